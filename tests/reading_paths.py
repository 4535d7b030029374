"""Counts the functions and files that a reader opens on the way from an input to its result.

    python tests/reading_paths.py          # all paths, beside their budgets
    python tests/reading_paths.py --list   # and their functions, in the order of entry

The path of a recipe takes its smallest model and one real batch, both from the recipe's own
functions as `--smoke` calls them. The script profiles one eager forward pass in training mode, with
the loss. Reading the data and building the model do not count.

The path of a translator leads a text through the function that `serving_default` is, while
TensorFlow traces it. The passes through models and searches have budgets of their own and do not
count. `docs/contributing/reading.md` leads along the same paths.
"""

import argparse
import contextlib
import io
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import keras

from keras_transformers.export import Translator
from keras_transformers.models import Transformer
from keras_transformers.text import SentencePieceTokenizer
from recipes import translation, vit
from recipes.lib import training
from recipes.lib.options import configure
from tests.budgets import Size, list_functions, print_path, profile

FOLDERS = ("keras_transformers", "recipes")
MODEL_FOLDERS = tuple(f"keras_transformers/{name}" for name in ("layers", "models", "generation"))
PATH_BUDGETS = {
    "recipes.translation": Size(45, 12),
    "recipes.vit": Size(25, 8),
    "export.translator": Size(30, 8),
}
LINES = ["a cat sat on a mat", "a dog ran to the sea", "the mat is by the sea"] * 9


def prepare_translation(folder):
    """Returns the model of the translation recipe and one batch to train on."""
    config = configure(translation.Config, smoke=True, output=str(folder))
    run_folder = training.start_run(config)
    _, tokenizer, batches, _, _ = translation.load_data(config, run_folder)
    return translation.build_model(config, tokenizer.vocab_size), next(iter(batches(0)))


def prepare_vit(folder):
    """Returns the model of the recipe of images and one batch to train on."""
    config = configure(vit.Config, smoke=True, output=str(folder))
    training.start_run(config)
    data, preprocessing, batches, _ = vit.load_data(config)
    model = vit.build_model(config, len(data.train.classes), preprocessing.channels)
    return model, next(iter(batches(0)))


PREPARATIONS = {"recipes.translation": prepare_translation, "recipes.vit": prepare_vit}


def list_request():
    """Returns the (file, function) pairs from a text to its translation, in the order of entry."""
    tokenizer = SentencePieceTokenizer.train(LINES, vocab_size=24)
    model = Transformer.from_variant("tiny", tokenizer.vocab_size, num_layers=1)
    translator = Translator(model, tokenizer, source_lengths=(16,))
    functions = {}
    profile(
        lambda: translator.portable(LINES[:1]),
        FOLDERS,
        lambda file, function: functions.setdefault((file, function)),
        MODEL_FOLDERS,
    )
    return list(functions)


def list_path(name):
    """Returns the (file, function) pairs of a path, in the order of entry."""
    if name not in PREPARATIONS:
        return list_request()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        model, batch = PREPARATIONS[name](pathlib.Path(folder) / "run")
    model.run_eagerly = True
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)

    def compute_loss():
        y_pred = model(x, training=True)
        return model.compute_loss(x, y, y_pred, sample_weight, training=True)

    return list_functions(compute_loss, FOLDERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="prints the functions, too")
    with_list = parser.parse_args().list
    for name, budget in PATH_BUDGETS.items():
        print_path(name, list_path(name), budget, with_list)


if __name__ == "__main__":
    main()
