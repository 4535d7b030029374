"""What a translator, a language model and a classifier of images lose in 8 and in 4 bits.

    pip install -e '.[recipes]'
    python -m benchmarks.quantisation [--runs runs] [--smoke]

`--runs` has the folders of `recipes.translation`, `recipes.language_model` and `recipes.vit` as
they come; one that is not there is trained first, ten minutes each. Each model is quantised in
every way and asked the whole test set of its recipe. In the ways that begin with "int4", kernels
share a scale and a zero point by groups of so many inputs and the tables of tokens have 8 bits;
"all" has one scale for an output, and no zero point. "gptq" and "awq" are Keras's, in groups of
128, calibrated on 32 rows of training text; the tables have 8 bits there too.
"""

import argparse
import pathlib
import re
import tempfile
import time
import warnings
from functools import partial

import keras
import numpy as np

from benchmarks.report import heading, table, write
from keras_transformers import saving
from keras_transformers.export import ImageClassifier, Translator
from keras_transformers.generation import BeamSearch
from keras_transformers.precision import in_precision
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import score_classes, score_translations
from recipes import language_model, translation, vit
from recipes.data.documents import load_documents
from recipes.data.images import load_data as load_images
from recipes.data.translation import load as load_pairs
from recipes.lib import training
from recipes.lib.options import configure

RECIPES = {"translation": translation, "language_model": language_model, "vit": vit}
ROWS, LENGTH = 32, 256  # of what GPTQ and AWQ are calibrated on


def in_groups(model, size):
    """A copy with kernels in 4 bits by groups of so many inputs, and tables in 8."""
    copy = in_precision(model, "float32")
    config = keras.quantizers.Int4QuantizationConfig(block_size=size)
    copy.quantize(config=config, filters=lambda layer: not _is_table(layer))
    copy.quantize("int8", filters=_is_table)
    return copy


def calibrated(model, kind, documents, smoke):
    """A copy quantised by what its layers are given when it reads documents."""
    copy = in_precision(model, "float32")
    config = kind(
        documents,
        tokenizer=lambda ids: ids,
        num_samples=2 if smoke else ROWS,
        sequence_length=32 if smoke else LENGTH,
        group_size=128,
    )
    copy.quantize(config=config)
    copy.quantize("int8", filters=_is_table)
    return copy


def _is_table(layer):
    return type(layer).__name__ == "TokenEmbedding"


WAYS = {
    "float32": lambda model: model,
    "int8": lambda model: in_precision(model, "int8"),
    "int4, 32": lambda model: in_precision(model, "int4"),
    "int4, 64": partial(in_groups, size=64),
    "int4, 128": partial(in_groups, size=128),
    "int4, all": partial(in_groups, size=None),
}


def of_translation(folder, config):
    """BLEU and chrF, beam 4; and how many translations are float32's."""
    pairs = load_pairs(config.data.dataset)
    test = (pairs.head(train=400, valid=64, test=64) if config.run.smoke else pairs).test
    tokenizer = SentencePieceTokenizer.load(folder / "tokenizer.model")
    search = BeamSearch(config.decoding.beam_size, config.decoding.length_penalty)
    first = []

    def score(model):
        found = Translator(model, tokenizer, search).translate(test.sources)
        first[:] = first or found
        bleu, chrf, _ = score_translations(found, test.targets)
        same = np.mean(np.array(found) == np.array(first))
        return {"BLEU": round(bleu, 2), "chrF": round(chrf, 2), "same": f"{same:.1%}"}

    return score, WAYS


def of_language_model(folder, config):
    """Bits per byte and perplexity of held-out texts."""
    corpora = load_documents(config.data.dataset)
    most = language_model.SMOKE_CHARACTERS if config.run.smoke else None
    texts = corpora.test.texts[:1] if config.run.smoke else corpora.test.texts
    texts = [text[:most] for text in texts]
    tokenizer = SentencePieceTokenizer.load(folder / "tokenizer.model")

    def ids(texts):
        return [tokenizer.tokenize(text, start=True, end=True).numpy() for text in texts]

    documents, seen = ids(texts), ids([text[:20_000] for text in corpora.train.texts[:8]])
    tokens = sum(map(len, documents)) - len(documents)

    def score(model):
        batches = language_model.windows(config, documents, model.padding_id)
        model.compile(jit_compile=True, **training.token_loss_and_metrics(model))
        found = model.evaluate(batches, verbose=0, return_dict=True)["cross_entropy"]
        bits = found * tokens / sum(len(text.encode()) for text in texts) / np.log(2)
        return {"bits_per_byte": round(bits, 4), "perplexity_per_token": round(np.exp(found), 2)}

    kinds = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}
    ways = {
        name: partial(calibrated, kind=kind, documents=seen, smoke=config.run.smoke)
        for name, kind in kinds.items()
    }
    return score, {**WAYS, **ways}


def of_vit(folder, config):
    """Accuracy on the test images."""
    data, preprocessing, *_ = load_images(config)

    def score(model):
        served = ImageClassifier(model, data.train.classes, preprocessing)
        found = score_classes(served.probabilities(data.test), data.test.labels, data.test.classes)
        return {"top1": round(100 * found.top1, 2)}

    return score, WAYS


TASKS = {"translation": of_translation, "language_model": of_language_model, "vit": of_vit}


def rows_of(name, folder, config):
    """What is measured of one model, a dict for each way."""
    score, ways = TASKS[name](folder, config)
    trained, rows = saving.load_model(folder / "model.keras", compile=False), {}
    for way, make in ways.items():
        started = time.perf_counter()
        with warnings.catch_warnings():  # one for each layer without a kernel
            warnings.filterwarnings("ignore", message=".*quantize.*")
            model = make(trained)
        quantised = time.perf_counter() - started
        rows[way] = {
            **score(model),
            "MB_of_weights": round(sum(map(_bytes, model.weights)) / 1e6, 2),
            "seconds_to_quantise": round(quantised, 1),
        }
        print(table({way: rows[way]}, name), flush=True)
    return rows


def _bytes(weight):
    bits = int(re.sub(r"\D", "", keras.backend.standardize_dtype(weight.dtype)))
    return np.prod(weight.shape) * bits / 8


def main(runs, smoke):
    with tempfile.TemporaryDirectory() as temporary:
        runs = pathlib.Path(temporary) if smoke else runs
        tables = {}
        for name, recipe in RECIPES.items():
            folder = runs / name
            config = configure(recipe.Config, output=str(folder), smoke=smoke)
            if not (folder / "model.keras").exists():
                recipe.run(config)
            tables[name] = rows_of(name, folder, config)
        if not smoke:
            result = {**heading("tensorflow", "keras", "sacrebleu"), "rows": tables}
            write("quantisation", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--smoke", action="store_true", help="tiny models; nothing is kept")
    main(**vars(parser.parse_args()))
