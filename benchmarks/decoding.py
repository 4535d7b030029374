"""Speed of decoding: ours beside CTranslate2 and Hugging Face `generate`, with the same weights.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.decoding

A post-norm Transformer base (6+6 layers, width 512, vocabulary 32,000) with random weights that
never end a sentence, sources of 32 tokens, 64 new tokens. All candidates stay loaded, each in its
own process, and take turns. Before anything is timed, the tokens of all float32 candidates must be
the same; of the others the share that is the same is reported. What a token costs against the batch
and, in runs of their own, against the length is drawn.
"""

import argparse
import itertools
import os
import tempfile

import numpy as np

from benchmarks import alternating, pictures
from benchmarks.report import heading, measured, table, write

VARIANT, VOCAB, SOURCE, NEW = "base", 32000, 32, 64
PACKAGES = ("tensorflow", "keras", "torch", "transformers", "ctranslate2")
FLOAT32 = ("keras_transformers", "CTranslate2", "Hugging Face")
REDUCED = ("keras_transformers bfloat16", "keras_transformers int8", "CTranslate2 int8")
SEARCHES = {"greedy": 1, "beam 4": 4}
BATCHES, LENGTHS = (1, 2, 4, 8, 32), (32, 64, 128, 256, 512)


def sources(settings):
    rng = np.random.default_rng(0)
    return rng.integers(3, VOCAB, (settings["batch"], settings["source"])).astype("int32")


def built():
    from keras_transformers.models import Transformer

    model = Transformer.from_variant(VARIANT, VOCAB)
    model.build({"source": (None, None), "target": (None, None)})
    return model


def network():
    """The settings of the model and its weights."""
    from benchmarks.keywords import transformer_keywords
    from benchmarks.marian import random_weights

    model = built()
    return transformer_keywords(model), random_weights(model)


def ours(settings, kind):
    from benchmarks.marian import random_weights, set_epsilon
    from benchmarks.networks import load
    from keras_transformers.generation import BeamSearch, Greedy, generate
    from keras_transformers.precision import in_precision

    model = built()
    load(model, random_weights(model))
    set_epsilon(model, 1e-5)  # CTranslate2's
    if kind:
        model = in_precision(model, kind)
    ids = sources(settings)
    search = Greedy() if settings["beam"] == 1 else BeamSearch(settings["beam"])

    def run():
        return generate(model, ids, search=search, max_length=settings["new"])["tokens"]

    return run, run().tolist()


def same_marian():
    import torch

    from benchmarks.marian import marian

    torch.set_num_threads(os.cpu_count())
    return marian(*alternating.apart(network)).eval()


def hugging_face(settings):
    import torch

    model, ids = same_marian(), torch.tensor(sources(settings)).long()
    penalty = {"length_penalty": 0.0} if settings["beam"] > 1 else {}

    def run():
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                num_beams=settings["beam"],
                do_sample=False,
                min_new_tokens=settings["new"],
                max_new_tokens=settings["new"],
                **penalty,
            )[:, 1:]

    return run, run().tolist()


def ctranslate(settings, compute_type):
    import ctranslate2
    from ctranslate2.converters.transformers import BartLoader

    model = same_marian()
    model.config.normalize_before = model.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    pieces = [str(number) for number in range(VOCAB)]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token = spec.config.bos_token = spec.config.decoder_start_token = "1"
    spec.config.eos_token = "2"
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder, compute_type=compute_type, intra_threads=os.cpu_count()
        )
    source = [[str(number) for number in row] for row in sources(settings)]

    def run():
        found = translator.translate_batch(
            source,
            beam_size=settings["beam"],
            min_decoding_length=settings["new"],
            max_decoding_length=settings["new"],
            length_penalty=0.0,
        )
        return [[int(piece) for piece in each.hypotheses[0]] for each in found]

    return run, run()


def prepare(name, settings):
    if name == "Hugging Face":
        return hugging_face(settings)
    if name.startswith("CTranslate2"):
        return ctranslate(settings, "int8" if name.endswith("int8") else "float32")
    return ours(settings, name.partition(" ")[2])


class Agreement:
    """Which share of each candidate's tokens is that of ours; those in float32 must be the same."""

    def __call__(self, found):
        ours = np.array(found[FLOAT32[0]])
        self.shares = {name: float(np.mean(np.array(rows) == ours)) for name, rows in found.items()}
        wrong = {name: self.shares[name] for name in FLOAT32 if self.shares.get(name, 1) < 0.99}
        assert not wrong, f"other tokens than ours: {wrong}"

    def complete(self, found, tokens):
        """The figures of `alternating.measure` with what follows of a batch's number of tokens."""
        for name, row in found.items():
            row["tokens_per_second"] = round(1e3 * tokens / row["milliseconds"])
            ours = found[FLOAT32[0]]["milliseconds"]
            row["ours_times_this"] = round(row["milliseconds"] / ours, 2)
            row["share_of_tokens_as_ours"] = round(self.shares[name], 4)
        return found


def one(batch, beam, names, rounds, new=NEW):
    """All candidates on one setting."""
    settings = {"batch": batch, "beam": beam, "source": SOURCE, "new": new}
    agreement = Agreement()
    found = alternating.measure("benchmarks.decoding", names, settings, rounds, agreement)
    return agreement.complete(found, batch * new)


def run_all(rounds, lengths, batches, names):
    """Measures; what an earlier run has measured of other settings stays in the results."""
    searches = measured("decoding", "searches")
    result = {
        **heading(*PACKAGES),
        "model": f"Transformer {VARIANT}, vocabulary {VOCAB}, random weights",
        "what": f"{SOURCE} source tokens, {NEW} new tokens, milliseconds a batch",
        "searches": searches,
    }
    for search, batch in itertools.product(SEARCHES, batches):
        title = f"{search}, batch {batch}"
        found = one(batch, SEARCHES[search], names, rounds)
        searches[title] = found
        print(title, table(found), sep="\n", flush=True)
        write("decoding", result, searches)
    result |= curve("batch", {b: searches[f"greedy, batch {b}"] for b in batches})
    if lengths:
        result |= curve("new tokens", {new: one(8, 1, FLOAT32[:2], rounds, new) for new in LENGTHS})
    write("decoding", result, searches)
    pictures.draw("decoding")


def curve(name, rows):
    """What a token costs against something."""
    milliseconds = {
        value: {each: round(1e3 / row[each]["tokens_per_second"], 3) for each in FLOAT32[:2]}
        for value, row in rows.items()
    }
    return {f"milliseconds a token against {name}": milliseconds}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--names", nargs="+", default=FLOAT32 + REDUCED, help="ours comes first")
    parser.add_argument("--no-lengths", dest="lengths", action="store_false")
    alternating.main(prepare, run_all, parser)
