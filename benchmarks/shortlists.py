"""Shortlists: decoding speed within lists of target tokens, and what translations lose by it.

    python -m recipes.translation --output runs/translation
    python -m benchmarks.shortlists runs/translation

First Transformer base with random weights, sources of 16 tokens and 32 new tokens, at vocabularies
of 32,000 and 256,000: tokens a second among all tokens and within lists of 100 random tokens for
each source token, and 100 more, in turns. Random weights end no sentence, so both write as many.
Tokens of sources and of lists follow Zipf's law, so that the lists of a batch overlap.
Then the trained run: BLEU and sentences a second on its test set by lists of several lengths, which
are learned from its training pairs.
"""

import argparse
import pathlib
import statistics
import time

import keras
import numpy as np

from benchmarks.report import heading, table, write
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch, Greedy, Shortlist, Shortlisted, generate
from keras_transformers.models import Transformer
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import score_translations
from recipes.data.translation import load

VOCABULARIES, BATCHES, LENGTH, NEW, ROUNDS = (32_000, 256_000), (1, 32), 16, 32, 5
SEARCHES = {"greedy": Greedy(), "beam 4": BeamSearch(4)}
LISTED, FREQUENT, NUMBERS = 100, 100, (10, 25, 50, 100, 200)


def words(vocab, rng, shape):
    """Random tokens, `k` about as often as `1 / k`, as words are (Zipf's law)."""
    return (3 * (vocab / 3) ** rng.random(shape)).astype("int32")


def random_lists(vocab, rng):
    """A `Shortlist` of random tokens, each source token's own among them."""
    likeliest = words(vocab, rng, (vocab, LISTED))
    likeliest[:, 0] = np.arange(vocab)
    likeliest.sort(axis=1)
    splits = LISTED * np.arange(vocab + 1)
    return Shortlist(likeliest.ravel(), splits, np.arange(3, 3 + FREQUENT, dtype="int32"), vocab)


def tokens_per_second(vocab):
    """Of both ways of decoding, medians of `ROUNDS`, for each batch and search."""
    model, rng = Transformer.from_variant("base", vocab), np.random.default_rng(0)
    model.build({"source": (None, None), "target": (None, None)})
    lists, rows = random_lists(vocab, rng), {}
    for batch in BATCHES:
        source = words(vocab, rng, (batch, LENGTH))
        listed = int(np.count_nonzero(lists.within(source, (0, 1, 2)).allowed.any(axis=0)))
        for name, search in SEARCHES.items():
            ways = {"all": search, "within": Shortlisted(lists, search)}
            found = {way: [] for way in ways}
            for turn in range(ROUNDS + 1):
                for way, each in ways.items():
                    started = time.perf_counter()
                    tokens = generate(model, source, search=each, max_length=NEW)["lengths"].sum()
                    if turn:  # the first compiles
                        found[way].append(tokens / (time.perf_counter() - started))
            speeds = {way: statistics.median(each) for way, each in found.items()}
            row = {"all": round(speeds["all"]), "within_lists": round(speeds["within"])}
            row["times"] = round(speeds["within"] / speeds["all"], 2)
            rows[f"{vocab:,}, batch {batch}, {name}"] = {**row, "listed_tokens": listed}
            print(table(rows))
    return rows


def quality(folder):
    """BLEU, chrF and sentences a second of a trained run, among all pieces and within lists."""
    model = keras.saving.load_model(folder / "model.keras", compile=False)
    tokenizer = SentencePieceTokenizer.load(folder / "tokenizer.model")
    data, search, rows = load(), BeamSearch(4, 1.5), {}
    sides = [
        tokenizer.tokenize(side).to_list() for side in (data.train.sources, data.train.targets)
    ]
    sources = tokenizer.tokenize(data.test.sources).to_list()
    for number in (None, *NUMBERS):
        lists, row = None, {}
        if number is not None:
            started = time.perf_counter()
            lists = Shortlist.learn(*sides, *[tokenizer.vocab_size] * 2, number)
            row["seconds_to_learn"] = round(time.perf_counter() - started, 1)
            sizes = [lists.within(np.array([ids]), (0, 1, 2)).allowed.sum() for ids in sources]
            row["listed_pieces"] = round(float(np.mean(sizes)))
        translator = Translator(model, tokenizer, search, shortlist=lists)
        translator.translate(data.test.sources)  # compiles
        started = time.perf_counter()
        found = translator.translate(data.test.sources)
        speed = len(found) / (time.perf_counter() - started)
        bleu, chrf, _ = score_translations(found, data.test.targets)
        first = {"bleu": round(bleu, 2), "chrf": round(chrf, 2)}
        rows["all pieces" if number is None else f"{number} for each piece"] = {
            **first,
            "sentences_per_second": round(speed),
            **row,
        }
        print(table(rows))
    return rows


def run(folder):
    result = heading("tensorflow", "keras")
    result["quality"] = quality(pathlib.Path(folder))
    result["speed"] = {}
    for vocab in VOCABULARIES:
        result["speed"] |= tokens_per_second(vocab)
    tables = {
        "A trained run, 2,500 pieces, beam 4": result["quality"],
        "Base with random weights, tokens a second": result["speed"],
    }
    write("shortlists", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="of a run of recipes.translation")
    run(parser.parse_args().folder)
