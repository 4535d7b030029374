"""A published translator: how soon it is there, and how fast it translates, beside its peers.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.pretrained

A folder laid out as OPUS-MT's are, of their size (6+6 layers, width 512, 58,101 pieces, 74 M
parameters), with random weights that never end a sentence: `keras_transformers.pretrained.load`,
`transformers`' `from_pretrained` and CTranslate2's converter read the same files. A hundred real
sentences are translated in batches, 40 new tokens each. All candidates stay loaded, each in its own
process, and take turns; before anything is timed their tokens must be the same.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, table, write

OURS, THEIRS, COMPILED = "keras_transformers", "Hugging Face", "CTranslate2"
PACKAGES = ("tensorflow", "keras", "torch", "transformers", "ctranslate2", "safetensors")
PIECES, VOCAB, NEW, SENTENCES = 2000, 58101, 40, 100
SIZES = {"hidden_dim": 512, "num_heads": 8, "mlp_dim": 2048, "num_layers": 6}


def make_folder(folder):
    """A published folder: real pieces, filled up with others, and random weights."""
    from benchmarks.marian import random_weights
    from benchmarks.networks import load
    from keras_transformers import pretrained
    from keras_transformers.models import Transformer
    from keras_transformers.text import MarianTokenizer, SentencePieceTokenizer

    sources, targets = sentences()
    trained = SentencePieceTokenizer.train(sources + targets, PIECES)
    real = [piece for piece in trained.pieces(range(PIECES)) if piece[:1] != "<"]
    vocab = ["</s>", "<unk>", *real]
    vocab += [f"▁filling{number}" for number in range(VOCAB - 1 - len(vocab))] + ["<pad>"]
    model = Transformer.from_variant(
        "base",
        VOCAB,
        **SIZES,
        activation="silu",
        positions="halves",
        norm_epsilon=1e-5,
        logits_bias=True,
        padding_id=VOCAB - 1,
    )
    model.build({"source": (None, None), "target": (None, None)})
    weights = random_weights(model)
    weights["source_embedding/token_embedding"][[0, VOCAB - 1]] = 0
    weights["source_embedding/logits_bias"] = np.zeros(VOCAB, "float32")
    load(model, weights)
    pretrained.save(model, folder)
    pretrained.save_tokenizer(MarianTokenizer(trained.proto, vocab), folder)
    path = pathlib.Path(folder, "config.json")
    ids = {"decoder_start_token_id": VOCAB - 1, "eos_token_id": 0, "bos_token_id": 0}
    path.write_text(json.dumps({**json.loads(path.read_text()), **ids}))


def sentences():
    """Sources and targets of real sentences."""
    from recipes.data.translation import load

    data = load("ui.en-de")
    return data.train.sources, data.train.targets


def sources(folder):
    """Ids of a hundred sentences of one length, so that no candidate pads."""
    from keras_transformers.pretrained import load_tokenizer
    from recipes.data.translation import load

    tokenizer = load_tokenizer(folder)
    rows = tokenizer.tokenize(load("ui.en-de").test.sources, end=True).to_list()
    rows = [row for row in rows if len(row) >= 16]
    return np.array([[*row[:15], 0] for row in rows[:SENTENCES]], "int32")


def ours(settings, ids):
    from keras_transformers import pretrained
    from keras_transformers.generation import BeamSearch, Greedy, generate

    started = time.perf_counter()
    model = pretrained.load(settings["folder"])
    seconds = time.perf_counter() - started
    beam = BeamSearch(settings["beam"], 1.0, normalization="length", early_stopping=False)
    search = Greedy() if settings["beam"] == 1 else beam

    def run():
        return [
            generate(model, part, search=search, max_length=NEW, start_id=VOCAB - 1, end_id=0)[
                "tokens"
            ]
            for part in ids
        ]

    return run, seconds


def hugging_face(settings, ids):
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    started = time.perf_counter()
    model = transformers.MarianMTModel.from_pretrained(settings["folder"]).eval()
    seconds = time.perf_counter() - started
    parts = [torch.tensor(part).long() for part in ids]

    def run():
        with torch.inference_mode():
            return [
                model.generate(
                    part,
                    attention_mask=torch.ones_like(part),
                    num_beams=settings["beam"],
                    do_sample=False,
                    bad_words_ids=[[VOCAB - 1]],
                    max_new_tokens=NEW,
                )[:, 1:].numpy()
                for part in parts
            ]

    return run, seconds


def compiled(settings, ids):
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        TransformersConverter(settings["folder"]).convert(folder, force=True)
        translator = ctranslate2.Translator(
            folder, compute_type="float32", intra_threads=os.cpu_count()
        )
    seconds = time.perf_counter() - started
    numbers = json.loads(pathlib.Path(settings["folder"], "vocab.json").read_text())
    pieces = sorted(numbers, key=numbers.get)
    parts = [[[pieces[i] for i in row] for row in part] for part in ids]

    def run():
        return [
            [
                [numbers[piece] for piece in each.hypotheses[0]]
                for each in translator.translate_batch(
                    part, beam_size=settings["beam"], max_decoding_length=NEW, length_penalty=1.0
                )
            ]
            for part in parts
        ]

    return run, seconds


def prepare(name, settings):
    rows = alternating.apart(sources, settings["folder"])
    size = settings["batch"]
    ids = [rows[start : start + size] for start in range(0, len(rows), size)]
    run, seconds = {OURS: ours, THEIRS: hugging_face, COMPILED: compiled}[name](settings, ids)
    tokens = [list(map(int, row))[:NEW] for part in run() for row in part]
    return run, {"tokens": tokens, "load_seconds": seconds}


class Agreement:
    """Which share of each candidate's tokens is that of ours, and how long loading took."""

    def __call__(self, found):
        ours = np.array(found[OURS]["tokens"])
        self.loads = {name: each["load_seconds"] for name, each in found.items()}
        self.shares = {
            name: float(np.mean(np.array(each["tokens"]) == ours)) for name, each in found.items()
        }


def run_all(rounds):
    result = {
        **heading(*PACKAGES),
        "model": f"as OPUS-MT's, {VOCAB} pieces, random weights that never end a sentence",
        "what": f"{SENTENCES} sentences of 16 pieces, {NEW} new tokens each, milliseconds for all",
        "searches": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder)
        for beam, batch in ((1, 25), (4, 25)):
            settings = {"beam": beam, "batch": batch, "folder": folder}
            agreement = Agreement()
            found = alternating.measure(
                "benchmarks.pretrained", (OURS, THEIRS, COMPILED), settings, rounds, agreement
            )
            for name, row in found.items():
                row["load_seconds"] = round(agreement.loads[name], 2)
                row["tokens_per_second"] = round(1e3 * SENTENCES * NEW / row["milliseconds"])
                row["share_of_tokens_as_ours"] = round(agreement.shares[name], 4)
            title = f"{'greedy' if beam == 1 else f'beam {beam}'}, batches of {batch}"
            result["searches"][title] = found
            print(title, table(found), sep="\n", flush=True)
            write("pretrained", result, result["searches"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    alternating.main(prepare, run_all, parser)
