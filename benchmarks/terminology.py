"""What phrases that must stand in a translation do to it, and what becomes of numbers.

    python -m benchmarks.terminology --run runs/translation

The model of a run of `recipes.translation` translates its test set with a beam of four: as it is;
with one phrase demanded of each sentence, one to three words of its reference drawn at random; and
with what must come through (`placeables`) demanded. Each is timed on its second time, when all is
compiled.
"""

import argparse
import json
import pathlib
import random
import time

import sacrebleu

import keras_transformers
from benchmarks.report import heading, table, write
from keras_transformers.core.words import kept_placeables
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch


def drawn_phrases(references, seed=7):
    """One to three words of each reference, one behind the other."""
    generator, phrases = random.Random(seed), []
    for words in (reference.split() for reference in references):
        size = generator.randint(1, min(3, len(words)))
        start = generator.randint(0, len(words) - size)
        phrases.append(" ".join(words[start : start + size]))
    return phrases


def measured(translate, sources, references, phrases):
    """The figures of one way of translating."""
    translate(sources)
    started = time.perf_counter()
    translations = translate(sources)
    taken = time.perf_counter() - started
    kept = kept_placeables(zip(sources, references, translations, strict=True)).values()
    pairs = list(zip(phrases, translations, strict=True))
    row = {
        "BLEU": round(sacrebleu.corpus_bleu(translations, [references]).score, 2),
        "phrases there, %": round(100 * sum(p in each for p, each in pairs) / len(pairs), 1),
        "numbers kept": f"{sum(a for a, _ in kept)} of {sum(b for _, b in kept)}",
        "sentences a second": round(len(sources) / taken, 1),
    }
    print(row, flush=True)
    return row


def main(run):
    served = keras_transformers.load(run)
    config = json.loads((run / "config.json").read_text())
    search = BeamSearch(config["beam_size"], config["length_penalty"])
    translator = Translator(served.model, served.tokenizer, search)
    lines = (run / "translations.tsv").read_text(encoding="utf-8").splitlines()[1:]
    sources, references, _ = map(list, zip(*(line.split("\t") for line in lines), strict=True))
    phrases = drawn_phrases(references)
    of_reference = dict(zip(sources, phrases, strict=True))
    ways = {
        "as it is": translator.translate,
        "a phrase of the reference": lambda texts: translator.translate(
            texts, phrases=[[of_reference[text]] for text in texts]
        ),
        "placeables": lambda texts: translator.translate(texts, keep_placeables=True),
    }
    rows = {
        name: measured(translate, sources, references, phrases) for name, translate in ways.items()
    }
    print(table(rows, "demanded"))
    result = {**heading("tensorflow", "keras", "sacrebleu"), "demanded": rows}
    write("terminology", result, {f"{config['dataset']}, test set": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    main(**vars(parser.parse_args()))
