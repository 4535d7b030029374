"""Examples for pages, from the files of a run and from its test set."""

import contextlib
import csv
import io
import json
import pathlib

import numpy as np
import PIL.Image

from keras_transformers.data.array_files import pixels_of_pillow
from keras_transformers.models.base import SEVERAL

from ...data import boxes, documents, images

NUMBER = 5
LONGEST = 120  # characters of an example
SENTENCES = ["Open the door.", "Shut the window.", "Where is the next station?"]
PROMPTS = ["", "Once upon a time", "To be, or not to be"]


def settings_of(folder):
    """Returns the numbers of a run, a dict; empty if the folder has none."""
    try:
        found = json.loads(pathlib.Path(folder, "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def threshold(folder):
    """Returns the least score of a box, as a run has chosen it."""
    try:
        metrics = json.loads(pathlib.Path(folder, "metrics.json").read_text(encoding="utf-8"))
        return min(max(float(metrics["test_threshold"]), 0.0), 1.0)
    except (OSError, ValueError, KeyError, TypeError):
        return 0.5


def sentences(folder):
    """Returns test sentences of the run, of moderate length."""
    found = _column(folder, "translations.tsv", "source")
    return [text for text in found if 15 <= len(text) <= LONGEST][:NUMBER] or SENTENCES


def prompts(folder):
    """Returns the prompts of the run."""
    return list(settings_of(folder).get("prompts") or PROMPTS)


def masked(folder):
    """Returns the samples with masks of the run."""
    return _column(folder, "samples.tsv", "text")[:NUMBER] or ["To be, or not to [MASK]."]


def labelled_texts(folder):
    """Returns test texts of a run; none if the test set must be downloaded, or is gone."""
    data = _data(documents.load_labelled, folder, "shakespeare-plays")
    return [text[: 4 * LONGEST] for text in data.test.texts[:NUMBER]] if data else []


def pictures(folder):
    """Returns pixels of test pictures of different classes, or different labels, of a run."""
    data = _data(images.load, folder, "fashion-mnist-12k", own_files=False)
    if not data:
        return _example(folder)
    _, first = np.unique(np.asarray(data.test.labels), return_index=True, axis=0)
    return [_pixels(data.test, i) for i in first[:NUMBER]]


def scenes(folder):
    """Returns pixels of test pictures with boxes of a run, in its windows."""
    data = _data(boxes.load, folder, "tree-crowns")
    if not data:
        return _example(folder)
    window = settings_of(folder).get("window")
    test = data.test.tiles(window) if window else data.test
    positions = np.linspace(0, len(test) - 1, min(NUMBER, len(test))).astype(int)
    return [test.pixels(i) for i in positions]


def _column(folder, name, column):
    """Returns a column of a run's table, a list of str; empty without the table."""
    try:
        with open(pathlib.Path(folder, name), newline="", encoding="utf-8") as file:
            return [row[column] for row in csv.DictReader(file, delimiter="\t")]
    except (OSError, KeyError):
        return []


def _data(load, folder, usual, own_files=True):
    """Loads the data set of a run, or the usual one; None if this machine does not have it."""
    settings = settings_of(folder)
    dataset = settings.get("dataset", usual)
    if str(dataset).startswith("tfds:"):
        return None
    names = ("train", "valid", "test") if own_files else ()
    options = {name: settings.get(name) for name in names}
    if settings.get("problem_type") == SEVERAL:
        options["separator"] = settings.get("label_separator", ",")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the run has said what was read
            return load(dataset, **options)
    except (ValueError, OSError):
        return None


def _example(folder):
    """Returns the example picture of a run."""
    path = pathlib.Path(folder, "example.png")
    return [np.asarray(PIL.Image.open(path))] if path.is_file() else []


def _pixels(corpus, number):
    pixels = corpus.select([number]).images[0]
    if isinstance(pixels, np.ndarray):
        return pixels
    with PIL.Image.open(io.BytesIO(pixels) if isinstance(pixels, bytes) else pixels) as image:
        return pixels_of_pillow(image)
