"""BLEU and speed of a trained translation model in fewer bits.

    pip install -e '.[recipes]'
    python -m recipes.translation
    python -m benchmarks.precision --run runs/translation

Translates the whole test set of the recipe's default data with beam 4, by XLA, in each precision.
The second of two passes is timed: the first compiles.
"""

import argparse
import pathlib
import re
import time

import keras
import numpy as np

from benchmarks.report import heading, table, write
from keras_transformers import saving
from keras_transformers.export import Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.precision import PRECISIONS, in_precision
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import score_translations
from recipes.data.translation import load
from recipes.translation import Config


def main(run):
    config = Config()
    data = load(config.data.dataset).test
    tokenizer = SentencePieceTokenizer.load(run / "tokenizer.model")
    trained = saving.load_model(run / "model.keras", compile=False)
    rows, first = {}, None
    for precision in PRECISIONS:
        model = trained if precision == "float32" else in_precision(trained, precision)
        search = BeamSearch(config.decoding.beam_size, config.decoding.length_penalty)
        translator = Translator(model, tokenizer, search)
        translator.translate(data.sources)
        started = time.perf_counter()
        found = translator.translate(data.sources)
        seconds = time.perf_counter() - started
        first = first or found
        bleu, chrf, _ = score_translations(found, data.targets)
        rows[precision] = {
            "BLEU": round(bleu, 2),
            "chrF": round(chrf, 2),
            "same_as_float32": f"{np.mean(np.array(found) == np.array(first)):.1%}",
            "sentences_per_second": round(len(found) / seconds, 1),
            "megabytes_of_weights": round(sum(map(_bytes, model.weights)) / 1e6, 1),
        }
        print(table(rows), flush=True)
    result = {**heading("tensorflow", "keras", "sacrebleu"), "rows": rows}
    write("precision", result, {"ui.en-de, test set, beam 4": rows})


def _bytes(weight):
    bits = int(re.sub(r"\D", "", keras.backend.standardize_dtype(weight.dtype)))
    return np.prod(weight.shape) * bits / 8


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=pathlib.Path, required=True)
    main(**vars(parser.parse_args()))
