"""What is served: our SavedModel with and without XLA, beside Hugging Face and CTranslate2.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m recipes.translation
    python -m benchmarks.serving --run runs/translation

Text in, text out: a request is a list of sentences, and all that is done to it is timed, cutting
into pieces included. Our candidates are one SavedModel, asked in a process with TensorFlow and
tensorflow-text alone: its `serving_default` where XLA compilation is disabled, as in TensorFlow
Serving, and its `xla`. `generate` of transformers and CTranslate2 have the same weights in float32
and get ids of the same tokenizer, through sentencepiece in Python. All candidates stay loaded, each
in its own process, and take turns; before anything is timed, their translations are compared.

Two networks: Transformer base (6+6 layers, width 512, post-norm, vocabulary 8,000, MarianMT for
transformers) with random weights, and the recipe's (3+3 layers, width 192, pre-norm, vocabulary
2,500, for transformers Pegasus, which is a pre-norm MarianMT) with those of `--run`. Without
`--run`, and of base, weights are random and never end a sentence: its limit does.

The sentences are those of the recipe's test set: of 1 as a series of single requests, of 32 in
requests of mixed lengths. The beam search is the one that all three have: it ends with four
finished sentences, the best for each of its tokens.

What is not equal: a translation has at most `min(2 n + 10, n + 50)` tokens, n those of its source.
CTranslate2 knows one limit for a request: the longest sentence's, or, where weights are random, the
mean of all, so that it computes as many tokens as the others; translations are therefore compared
up to the shorter one's end. transformers gets each sentence's own from a function that is called at
every step. The times from loading to the first answer are of one sentence, after the imports, and
of a new process each.
"""

import argparse
import json
import pathlib
import statistics
import tempfile

from benchmarks import alternating, translators
from benchmarks.report import heading, table, write
from benchmarks.translators import COMPILED, PORTABLE, THEIRS, XLA

PACKAGES = ("tensorflow", "tensorflow-text", "torch", "transformers", "ctranslate2")
CANDIDATES = (PORTABLE, XLA, THEIRS, COMPILED)
SINGLE, BATCHES, BATCH = 24, 3, 32
NETWORKS = {"base": (8000, {}), "mini": (2500, {"norm_first": True})}  # vocabulary, settings
AT_LEAST = {XLA: 0.98, THEIRS: 0.95, COMPILED: 0.95}  # share of greedy translations like ours


def prepare(name, settings):
    """A candidate: what answers all requests, and what it said."""
    translators.importing(name)
    asked = translators.requests(settings["folder"])[str(settings["batch"])]
    translate = translators.translator(name, settings["folder"], settings["beam"])

    def run():
        return [translate(request) for request in asked]

    return run, [text for request in run() for text in request]


def make(name, run, folder):
    """Writes a network for all candidates, and the requests."""
    from keras_transformers.generation import BeamSearch, Greedy
    from recipes.data.translation import load

    data = load()
    model, tokenizer = _trained(run) if run else _random(name, data.train)
    searches = {1: Greedy(), 4: BeamSearch(4, 1.0, normalization="length")}
    translators.write(folder, model, tokenizer, searches, endless=not run)
    sources = data.test.sources
    many = sources[SINGLE : SINGLE + BATCH * BATCHES]
    asked = {
        "1": [[sentence] for sentence in sources[:SINGLE]],
        "32": [many[start : start + BATCH] for start in range(0, len(many), BATCH)],
    }
    (folder / "requests.json").write_text(json.dumps(asked), encoding="utf-8")


def _trained(run):
    from keras_transformers import saving
    from keras_transformers.text import SentencePieceTokenizer

    folder = pathlib.Path(run)
    tokenizer = SentencePieceTokenizer.load(folder / "tokenizer.model")
    return saving.load_model(folder / "model.keras"), tokenizer


def _random(name, corpus):
    from benchmarks.marian import random_weights
    from benchmarks.networks import load
    from keras_transformers.models import Transformer
    from keras_transformers.text import SentencePieceTokenizer

    vocab, settings = NETWORKS[name]
    tokenizer = SentencePieceTokenizer.train(corpus.sources + corpus.targets, vocab)
    model = Transformer.from_variant(name, vocab, **settings)
    model.build({"source": (None, None), "target": (None, None)})
    load(model, random_weights(model))
    return model, tokenizer


def _agree(one, other):
    return one.startswith(other) or other.startswith(one) if one and other else one == other


class Agreement:
    """Which share of each candidate's translations is that of our portable signature."""

    def __init__(self, beam):
        self._beam = beam

    def __call__(self, found):
        ours = found[PORTABLE]
        self.shares = {
            name: sum(map(_agree, texts, ours)) / len(ours) for name, texts in found.items()
        }
        self.characters = round(statistics.mean(map(len, ours)), 1)
        wrong = {name: self.shares[name] for name in AT_LEAST if self.shares[name] < AT_LEAST[name]}
        assert self._beam > 1 or not wrong, f"other translations than ours: {wrong}"


def one(folder, batch, beam, rounds):
    """All candidates on one setting: a dict of figures each."""
    settings = {"folder": str(folder), "batch": batch, "beam": beam}
    agreement = Agreement(beam)
    found = alternating.measure("benchmarks.serving", CANDIDATES, settings, rounds, agreement)
    number = SINGLE if batch == 1 else BATCH * BATCHES
    fastest = found[PORTABLE]["milliseconds"]
    for name, row in found.items():
        row["sentences_per_second"] = round(1e3 * number / row["milliseconds"], 1)
        row["portable_times_this"] = round(row["milliseconds"] / fastest, 2)
        row["share_of_translations_as_portable"] = round(agreement.shares[name], 3)
        del row["seconds_until_first"]  # of all requests
    return found, agreement.characters


def firsts(folder, beam, rounds):
    """Of our two signatures: the median time from loading to the first answer, and memory."""
    found = {PORTABLE: [], XLA: []}
    for _ in range(rounds):
        for name, taken in found.items():
            told = (name, str(folder), str(beam))
            taken.append(alternating.fresh("benchmarks.translators", *told))
    return {
        name: {
            "first_answer_seconds": round(statistics.median(x["seconds"] for x in taken), 2),
            "mebibytes_then": round(statistics.median(x["mebibytes"] for x in taken)),
        }
        for name, taken in found.items()
    }


def summary(found, first):
    """One line of the table that is read first."""
    row = {"portable_sentences_per_second": found[PORTABLE]["sentences_per_second"]}
    for name, other in (("XLA", XLA), ("Hugging Face", THEIRS), ("CTranslate2", COMPILED)):
        row[f"times_{name}"] = found[other]["portable_times_this"]
    seconds = [first[name]["first_answer_seconds"] for name in (PORTABLE, XLA)]
    return row | {
        "first_answer": seconds[0],
        "of_XLA": seconds[1],
        "share": round(seconds[0] / seconds[1], 3),
    }


def run_all(rounds, first_rounds, run, only):
    result = {
        **heading(*PACKAGES),
        "networks": {"base": "random weights", "mini": run or "random weights"},
        "what": f"milliseconds for {SINGLE} requests of 1 or {BATCHES} of {BATCH} sentences",
        "characters_of_a_translation": {},
        "all": {},
        "settings": {},
    }
    lines = result["all"]
    for name in only or NETWORKS:
        with tempfile.TemporaryDirectory() as position:
            folder = pathlib.Path(position)
            make(name, run if name == "mini" else None, folder)
            for beam in (1, 4):
                first = firsts(folder, beam, first_rounds)
                for batch in (1, BATCH):
                    title = f"{name}, {'greedy' if beam == 1 else 'beam 4'}, batch {batch}"
                    found, characters = one(folder, batch, beam, rounds)
                    for each, figures in first.items():
                        found[each] |= figures
                    result["characters_of_a_translation"][title] = characters
                    result["settings"][title] = found
                    lines[title] = summary(found, first)
                    print(title, table(found), sep="\n", flush=True)
                    write("serving", result, {"All": lines, **result["settings"]})
    print(table(lines, "setting"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first-rounds", type=int, default=3)
    parser.add_argument("--run", help="of recipes.translation: weights for the recipe's network")
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS))
    alternating.main(prepare, run_all, parser)
