"""Speed of writing: language models of ours beside CTranslate2 and Hugging Face `generate`.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.language_decoding                      # all that follows, or a part:
    python -m benchmarks.language_decoding --models gpt2 --prompts 32 --batches 1 4

GPT-2 small (124 M parameters, vocabulary 50,257) and a Llama of 100 M (12 blocks of width 768,
rotary positions, RMS norms, SwiGLU, 4 heads of keys for 12 of queries, vocabulary 32,000), each
with the same random weights in all candidates, written by transformers; prompts of 32 or 512 ids,
64 new tokens that never end a text, greedy. All candidates stay loaded, each in its own process,
and take turns. Before anything is timed, the tokens of all float32 candidates must be the same.
"""

import argparse
import os
import pathlib
import tempfile

import numpy as np

from benchmarks import alternating
from benchmarks.decoding import Agreement
from benchmarks.report import heading, measured, table, write

NEW = 64
PACKAGES = ("tensorflow", "keras", "torch", "transformers", "ctranslate2")
FLOAT32 = ("keras_transformers", "CTranslate2", "Hugging Face")
NAMES = (*FLOAT32, "keras_transformers int8", "CTranslate2 int8")
TITLES = {"gpt2": "GPT-2 small", "llama": "Llama, 100 M"}
VOCABULARIES = {"gpt2": 50257, "llama": 32000}
WIDTH, HEADS, KEYS, GATED, LAYERS = 768, 12, 4, 2048, 12  # of the Llama


def write_model(folder, kind):
    """Writes random weights as transformers does."""
    import torch
    import transformers

    torch.manual_seed(0)
    spread = {"initializer_range": 0.06}  # wide enough that what is written is not one token
    if kind == "gpt2":
        config = transformers.GPT2Config(**spread)
    else:
        config = transformers.LlamaConfig(
            vocab_size=VOCABULARIES[kind],
            hidden_size=WIDTH,
            intermediate_size=GATED,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=KEYS,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            **spread,
        )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def prompts(settings):
    rng = np.random.default_rng(0)
    shape = (settings["batch"], settings["prompt"])
    return rng.integers(3, VOCABULARIES[settings["model"]] - 1, shape).astype("int32")


def end_of(settings):
    """A token that is never written."""
    return VOCABULARIES[settings["model"]] - 1


def our_llama(folder):
    """Our model with the weights of a Llama that transformers has written."""
    from safetensors.numpy import load_file

    from keras_transformers.models import LanguageModel

    sizes = {"mlp_dim": GATED, "num_key_value_heads": KEYS, "padding_id": -1}
    model = LanguageModel.from_variant("small", VOCABULARIES["llama"], style="modern", **sizes)
    model.build((None, None))
    theirs = load_file(pathlib.Path(folder, "model.safetensors"))
    names = {
        "mixer/query/kernel": "self_attn.q_proj",
        "mixer/key/kernel": "self_attn.k_proj",
        "mixer/value/kernel": "self_attn.v_proj",
        "mixer/attention_output/kernel": "self_attn.o_proj",
        "mixer_norm/scale": "input_layernorm",
        "feed_forward/gate/kernel": "mlp.gate_proj",
        "feed_forward/hidden/kernel": "mlp.up_proj",
        "feed_forward/output/kernel": "mlp.down_proj",
        "feed_forward_norm/scale": "post_attention_layernorm",
    }
    for weight in model.weights:
        _, part, *rest = weight.path.split("/")
        if part == "embedding":
            name = "model.embed_tokens"
        elif part == "norm":
            name = "model.norm"
        else:
            name = f"model.layers.{part.removeprefix('decoder_')}.{names['/'.join(rest)]}"
        value = theirs[f"{name}.weight"]
        turned = part != "embedding" and value.ndim == 2  # theirs lie the other way round
        weight.assign((value.T if turned else value).reshape(weight.shape))
    return model


def ours(settings, kind):
    from keras_transformers import pretrained
    from keras_transformers.generation import Constraints, Greedy, generate
    from keras_transformers.precision import in_precision

    if settings["model"] == "gpt2":
        model = pretrained.load(settings["folder"], "language_model")
    else:
        model = our_llama(settings["folder"])
    if kind:
        model = in_precision(model, kind)
    prompt, end = prompts(settings), end_of(settings)
    options = {"max_length": settings["prompt"] + NEW, "start_id": None, "end_id": end}
    search = Greedy(Constraints(min_new=NEW))

    def run():
        found = generate(model, prompt=prompt, search=search, **options)
        return found["tokens"][:, settings["prompt"] :]

    return run, run().tolist()


def same(settings):
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    return transformers.AutoModelForCausalLM.from_pretrained(settings["folder"]).eval()


def hugging_face(settings):
    import torch

    model, ids = same(settings), torch.tensor(prompts(settings)).long()
    end = end_of(settings)

    def run():
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=NEW,
                max_new_tokens=NEW,
                eos_token_id=end,
                pad_token_id=end,
            )[:, settings["prompt"] :]

    return run, run().tolist()


def ctranslate(settings, compute_type):
    import ctranslate2
    from ctranslate2.converters import transformers as converters

    kind, model = settings["model"], same(settings)
    loader = converters.GPT2Loader() if kind == "gpt2" else converters.LlamaLoader()
    spec = loader.get_model_spec(model)
    spec.register_vocabulary([str(number) for number in range(VOCABULARIES[kind])])
    end = str(end_of(settings))
    spec.config.unk_token = spec.config.bos_token = spec.config.eos_token = end
    if kind == "llama":
        spec.config.layer_norm_epsilon = model.config.rms_norm_eps
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        generator = ctranslate2.Generator(
            folder, compute_type=compute_type, intra_threads=os.cpu_count()
        )
    del model
    rows = [[str(number) for number in row] for row in prompts(settings)]

    def run():
        found = generator.generate_batch(
            rows, min_length=NEW, max_length=NEW, include_prompt_in_result=False
        )
        return [each.sequences_ids[0] for each in found]

    return run, run()


def prepare(name, settings):
    if name == "Hugging Face":
        return hugging_face(settings)
    if name.startswith("CTranslate2"):
        return ctranslate(settings, "int8" if name.endswith("int8") else "float32")
    return ours(settings, name.partition(" ")[2])


def one(model, prompt, batch, rounds, folder):
    """All candidates on one setting."""
    settings = {"model": model, "prompt": prompt, "batch": batch, "folder": str(folder)}
    agreement = Agreement()
    found = alternating.measure("benchmarks.language_decoding", NAMES, settings, rounds, agreement)
    return agreement.complete(found, batch * NEW)


def run_all(rounds, models, prompts, batches):
    """Measures; what an earlier run has measured of other settings stays in the results."""
    texts = measured("language_decoding", "texts")
    what = f"{NEW} new tokens, greedy, random weights; milliseconds a batch, its prompts included"
    result = {**heading(*PACKAGES), "what": what, "texts": texts}
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            alternating.apart(write_model, folder, model)
            for prompt in prompts:
                for batch in batches:
                    title = f"{TITLES[model]}, prompt {prompt}, batch {batch}"
                    texts[title] = one(model, prompt, batch, rounds, folder)
                    print(title, table(texts[title]), sep="\n", flush=True)
                    write("language_decoding", result, texts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=TITLES, default=list(TITLES))
    parser.add_argument("--prompts", nargs="+", type=int, default=[32, 512])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 32])
    alternating.main(prepare, run_all, parser)
