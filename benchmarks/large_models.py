"""Large published models: what loading takes, and how fast they decode, beside their peers.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.large_models --model nllb --folder /tmp/nllb
    python -m benchmarks.large_models --model llama --folder /tmp/llama --names "CTranslate2 int8"

A folder of random weights is written where none is: of NLLB-200-distilled-600M's configuration, in
float32, or of Llama-3.2-1B's, in bfloat16. Each candidate has a process of its own, one after
another, so that no two models are in memory: it loads (the peak of resident memory above what the
process held after its imports), then decodes 64 new tokens that never end a text, once to compile
and to compare, then `--rounds` times. All candidates in float32 must have the same tokens; of the
others the share that is the same is reported. CTranslate2 loads what its converter has written,
whose time and memory are told apart. Candidates that were measured before in the same folder stay
in the results.
"""

import argparse
import ctypes
import gc
import json
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np

from benchmarks import alternating
from benchmarks.large_folders import CONFIGS, LLAMA, NLLB, write
from benchmarks.report import heading, holding, measured, resident_mebibytes, table
from benchmarks.report import write as report

OURS, THEIRS, COMPILED = "keras_transformers", "Hugging Face", "CTranslate2"
PACKAGES = ("tensorflow", "keras", "torch", "transformers", "ctranslate2", "safetensors")
NUMBERS = {  # of CTranslate2, bfloat16 is for GPUs and some CPUs
    NLLB: {OURS: ("float32", "int8"), THEIRS: ("float32",), COMPILED: ("float32", "int8")},
    LLAMA: {
        OURS: ("float32", "bfloat16", "int8"),
        THEIRS: ("bfloat16",),
        COMPILED: ("float32", "int8"),
    },
}
NAMES = {
    kind: [f"{library} {number}" for library, each in numbers.items() for number in each]
    for kind, numbers in NUMBERS.items()
}
TITLES = {NLLB: "NLLB-200-distilled-600M's shape", LLAMA: "Llama-3.2-1B's shape"}
SOURCE = {NLLB: 32, LLAMA: 128}  # tokens that are given
CASES = {  # title -> batch, beams
    NLLB: {f"{title}, batch {batch}": (batch, beams)
           for title, beams in (("greedy", 1), ("beam 4", 4)) for batch in (1, 8)},
    LLAMA: {f"greedy, batch {batch}": (batch, 1) for batch in (1, 4)},
}  # fmt: skip
NEW = 64


def given(config, kind, batch):
    """Sources or prompts."""
    rows = (batch, SOURCE[kind])
    return np.random.default_rng(batch).integers(3, 9 * config["vocab_size"] // 10, rows, "int32")


def ours(folder, config, kind, number):
    """Function that loads, and function of the model that decodes."""
    import keras

    from keras_transformers import pretrained
    from keras_transformers.generation import BeamSearch, Greedy, generate
    from keras_transformers.precision import in_precision

    def load():
        # What is quantised comes from the file's own numbers.
        keras.config.set_dtype_policy(config["torch_dtype"] if number == "int8" else number)
        model = pretrained.load(folder)
        if number == "int8":
            model = in_precision(model, "int8")
            gc.collect()  # the first model, whose layers hold one another
        return model

    def decode(model, ids, beams, new):
        search = Greedy() if beams == 1 else BeamSearch(beams)
        ends = {"end_id": config["eos_token_id"], "search": search}
        if kind == NLLB:
            start = config["decoder_start_token_id"]
            return generate(model, ids, max_length=new, start_id=start, **ends)["tokens"]
        length = ids.shape[1]
        found = generate(model, prompt=ids, max_length=length + new, start_id=None, **ends)
        return found["tokens"][:, length:]

    return load, decode


def class_of(config):
    """The class of transformers."""
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    return getattr(transformers, config["architectures"][0])


def hugging_face(folder, config, kind, number):
    import torch

    published = class_of(config)

    def decode(model, ids, beams, new):
        ids = torch.tensor(ids).long()
        penalty = {"length_penalty": 0.0} if beams > 1 else {}
        with torch.inference_mode():
            found = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                num_beams=beams,
                do_sample=False,
                min_new_tokens=new,
                max_new_tokens=new,
                pad_token_id=config["eos_token_id"],
                **penalty,
            )
        return found[:, -new:].numpy()

    return lambda: published.from_pretrained(folder, dtype=getattr(torch, number)).eval(), decode


def convert(folder, config, kind, number, target):
    """Has CTranslate2's converter write a model; returns seconds and MiB above the start."""
    import torch
    from ctranslate2.converters import transformers as converters

    published = class_of(config)
    before, started = holding(), time.perf_counter()
    model = published.from_pretrained(folder, dtype=getattr(torch, config["torch_dtype"])).eval()
    loader = converters.M2M100Loader() if kind == NLLB else converters.LlamaLoader()
    spec = loader.get_model_spec(model)
    pieces = [str(piece) for piece in range(config["vocab_size"])]
    if kind == NLLB:
        spec.register_source_vocabulary(pieces)
        spec.register_target_vocabulary(pieces)
        spec.config.decoder_start_token = str(config["decoder_start_token_id"])
    else:
        spec.register_vocabulary(pieces)
        spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.config.unk_token = spec.config.bos_token = str(config["bos_token_id"])
    spec.config.eos_token = str(config["eos_token_id"])
    spec.validate()
    spec.optimize(number)
    pathlib.Path(target).mkdir()
    spec.save(target)
    return {
        "conversion_seconds": round(time.perf_counter() - started, 1),
        "conversion_MiB": round(resident_mebibytes() - before),
    }


def ctranslate(folder, config, kind, number):
    import ctranslate2

    make = ctranslate2.Translator if kind == NLLB else ctranslate2.Generator
    settings = {"compute_type": number, "intra_threads": os.cpu_count()}

    def decode(model, ids, beams, new):
        rows = [[str(number) for number in row] for row in ids]
        options = {"beam_size": beams, "length_penalty": 0.0}
        if kind == NLLB:
            found = model.translate_batch(
                rows, min_decoding_length=new, max_decoding_length=new, **options
            )
            return [[int(piece) for piece in each.hypotheses[0]] for each in found]
        options |= {"min_length": new, "max_length": new, "include_prompt_in_result": False}
        return [each.sequences_ids[0] for each in model.generate_batch(rows, **options)]

    return lambda: make(str(pathlib.Path(folder, number)), **settings), decode


def candidate(name, folder, kind, rounds, new):
    """All figures of one candidate, in this process; its tokens too."""
    library, _, number = name.rpartition(" ")
    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    makers = {OURS: ours, THEIRS: hugging_face, COMPILED: ctranslate}
    load, decode = makers[library](folder, config, kind, number)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before, started = holding(), time.perf_counter()
    model = load()
    loading = {
        "seconds": round(time.perf_counter() - started, 2),
        "MiB_above_start": round(resident_mebibytes() - before),
    }
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    loading["MiB_kept"] = round(resident_mebibytes("VmRSS") - before)
    found = {"loading": loading, "cases": {}, "tokens": {}}
    for title, (batch, beams) in CASES[kind].items():
        ids, seconds = given(config, kind, batch), []
        holding()
        for _ in range(1 + rounds):
            started = time.perf_counter()
            tokens = np.asarray(decode(model, ids, beams, new))
            seconds.append(time.perf_counter() - started)
        found["tokens"][title] = tokens.tolist()
        first, *seconds = seconds
        found["cases"][title] = {
            "tokens_per_second": round(batch * new / statistics.median(seconds), 1),
            "from": round(batch * new / max(seconds), 1),
            "to": round(batch * new / min(seconds), 1),
            "first_seconds": round(first, 1),
            "peak_MiB_above_start": round(resident_mebibytes() - before),
        }
    return found


def one(name, folder, kind, rounds, new):
    """The figures of one candidate, for which CTranslate2's model is converted first."""
    converted = {}
    library, _, number = name.rpartition(" ")
    if library == COMPILED and not (target := pathlib.Path(folder, number)).exists():
        config = json.loads(pathlib.Path(folder, "config.json").read_text())
        converted = alternating.apart(convert, str(folder), config, kind, number, str(target))
    found = alternating.apart(candidate, name, str(folder), kind, rounds, new)
    found["loading"] |= converted
    return found


def compared(found, titles):
    """Tables of decoding; AssertionError if candidates in float32 have other tokens."""
    expected = next((each["tokens"] for name, each in found.items() if "float32" in name), None)
    tables = {}
    for title in titles:
        tables[title] = {name: dict(each["cases"][title]) for name, each in found.items()}
        for name, each in found.items():
            if expected is not None:
                share = np.mean(np.array(each["tokens"][title]) == np.array(expected[title]))
                tables[title][name]["share_of_tokens_as_the_first"] = round(float(share), 4)
                assert share > 0.97 or "float32" not in name, (name, title, share)
    return tables


def all_of(model, folder, names, rounds, smoke):
    """Tables of all candidates of a model, and the MiB of its weights."""
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    if not (folder / "config.json").exists():
        alternating.apart(write, str(folder), model, smoke)
    weights = (folder / "model.safetensors").stat().st_size / 2**20
    kept = folder / "measured.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for name in names or NAMES[model]:
        found[name] = one(name, folder, model, rounds, 4 if smoke else NEW)
        loading = found[name]["loading"]
        loading["times_the_file"] = round(loading["MiB_above_start"] / weights, 2)
        print(name, json.dumps({**loading, **found[name]["cases"]}), flush=True)
        kept.write_text(json.dumps(found))
    found = {name: found[name] for name in NAMES[model] if name in found}
    tables = {"loading": {name: each["loading"] for name, each in found.items()}}
    return tables | compared(found, CASES[model]), round(weights)


def run_all(model, folder, names, rounds, smoke):
    """Measures; what an earlier run has measured of the other model stays in the results."""
    with tempfile.TemporaryDirectory() as made:
        tables, weights = all_of(model, folder or made, names, rounds, smoke)
    for title, rows in tables.items():
        print(title, table(rows), sep="\n", flush=True)
    if smoke:
        return
    models = measured("large_models", "models") | {model: tables}
    sizes = measured("large_models", "files_MiB") | {model: weights}
    given = ", ".join(f"{tokens} ({kind})" for kind, tokens in SOURCE.items())
    what = f"{NEW} new tokens after {given}; peaks of memory are above what imports had taken"
    result = {**heading(*PACKAGES), "what": what, "files_MiB": sizes, "models": models}
    titled = {
        f"{TITLES[kind]}, a file of {sizes[kind]:,} MiB: {title}": rows
        for kind, each in models.items()
        for title, rows in each.items()
    }
    report("large_models", result, titled)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CONFIGS, default=NLLB)
    parser.add_argument("--folder", help="for the weights; by default a temporary one")
    parser.add_argument("--names", nargs="+", help="some of the candidates")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="small shapes, 4 tokens")
    run_all(**vars(parser.parse_args()))
