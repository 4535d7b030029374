"""Speculative decoding of translators: the same tokens as greedy search, and at what speed.

    python -m recipes.translation --output runs/translation
    python -m recipes.translation --variant tiny --output runs/draft
    python -m benchmarks.speculative runs/translation runs/draft

200 sentences of the test set, of at most 31 pieces, one at a time, by the model alone and with the
draft of the same tokenizer, in turns. Before anything is timed, all tokens must be the same. Then
what a step costs at the size of Transformer base with random weights, where a draft is never right:
from it and the share of drafts that were kept follows what such a pair would gain.
"""

import argparse
import pathlib
import statistics
import time

import keras
import numpy as np

from benchmarks.report import heading, table, write
from keras_transformers.generation import Greedy, Speculative, generate
from keras_transformers.models import Transformer
from keras_transformers.text import SentencePieceTokenizer
from recipes.data.translation import load

SENTENCES, LENGTH, NUMBERS, END = 200, 32, (1, 2, 4, 6), 2
VOCAB, NEW, ROUNDS = 32000, 64, 5


def sentences(tokenizer):
    """Ids of the first sentences that are short enough, `(sentences, 1, length)`."""
    rows = [[*row, END] for row in tokenizer.tokenize(load().test.sources).to_list()]
    rows = [row for row in rows if len(row) <= LENGTH][:SENTENCES]
    return np.array([[row + [0] * (LENGTH - len(row))] for row in rows], "int32")


def timed(model, search, ids):
    started = time.perf_counter()
    found = generate(model, ids, search=search)
    return found, time.perf_counter() - started


def trained(model, draft, sources):
    """Tokens a second of each search, and how many tokens a step of the model gave."""
    searches = {"greedy": Greedy()}
    searches |= {f"{number} drafted": Speculative(draft, number) for number in NUMBERS}
    found = {name: [] for name in searches}
    for search in searches.values():
        timed(model, search, sources[0])  # compiles
    for ids in sources:
        for name, search in searches.items():
            found[name].append(timed(model, search, ids))
    rows = {}
    for name, results in found.items():
        different = sum(
            not np.array_equal(result["tokens"], alone["tokens"])
            for (result, _), (alone, _) in zip(results, found["greedy"], strict=True)
        )
        assert not different, f"{name}: other tokens in {different} sentences"
        tokens = sum(int(result["lengths"][0]) for result, _ in results)
        passes = sum(int(result.get("passes", result["lengths"])[0]) for result, _ in results)
        seconds = sum(seconds for _, seconds in results)
        rows[name] = {"tokens_per_second": round(tokens / seconds)}
        rows[name]["tokens_a_step"] = round(tokens / passes, 2)
    for row in rows.values():
        row["times_greedy"] = row["tokens_per_second"] / rows["greedy"]["tokens_per_second"]
        row["times_greedy"] = round(row["times_greedy"], 2)
    return rows


def costs(number=4):
    """Milliseconds a step at the size of base, with and without `number` drafts."""
    model, draft = (Transformer.from_variant(name, VOCAB) for name in ("base", "tiny"))
    for each in (model, draft):
        each.build({"source": (None, None), "target": (None, None)})
    ids = np.random.default_rng(0).integers(3, VOCAB, (1, LENGTH)).astype("int32")
    searches = {"greedy": Greedy(), f"{number} drafted": Speculative(draft, number)}
    milliseconds = {name: [] for name in searches}
    for turn in range(ROUNDS + 1):
        for name, search in searches.items():
            started = time.perf_counter()
            found = generate(model, ids, search=search, max_length=NEW)
            passes = int(found.get("passes", found["lengths"])[0])
            if turn:  # the first compiles
                milliseconds[name].append(1e3 * (time.perf_counter() - started) / passes)
    return {
        name: {"milliseconds_a_step": round(statistics.median(each), 2)}
        for name, each in milliseconds.items()
    }


def run(folder, draft, sentences_only):
    paths = [pathlib.Path(each) for each in (folder, draft)]
    model, small = (keras.saving.load_model(each / "model.keras", compile=False) for each in paths)
    tokenizer = SentencePieceTokenizer.load(paths[0] / "tokenizer.model")
    rows = trained(model, small, sentences(tokenizer))
    for name, each in (("model", model), ("draft", small)):
        print(f"{name}: {each.count_params():,} parameters")
    print(table(rows))
    result = {
        **heading("tensorflow", "keras"),
        "parameters": {"model": model.count_params(), "draft": small.count_params()},
        "trained": rows,
    }
    tables = {"A trained pair, one sentence at a time": rows}
    if not sentences_only:
        result["base"] = tables["Base with random weights, one sentence"] = costs()
        print(table(result["base"]))
    write("speculative", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of a run of recipes.translation")
    parser.add_argument("draft", help="of another, with the same tokenizer")
    parser.add_argument("--sentences-only", action="store_true")
    arguments = parser.parse_args()
    run(arguments.folder, arguments.draft, arguments.sentences_only)
