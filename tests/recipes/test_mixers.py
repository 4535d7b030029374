"""Claims about the comparison of mixers, and about the recurrent recipe."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

from recipes import mixers
from recipes.data.tasks import Task
from recipes.lib.options import configure
from tests.recipes.command import assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("mixers", folder, "--smoke")


@pytest.mark.slow
def test_a_run_leaves_table_picture_and_the_best_model(smoke):
    folder, metrics = smoke
    with open(folder / "table.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [(row["task"], row["variant"]) for row in rows] == [
        (task, variant) for task in ("image", "text") for variant in ("fourier", "nothing")
    ]
    assert float(rows[0]["accuracy"]) == metrics["image_fourier_accuracy"]
    assert [path.name for path in (folder / "figures").iterdir()] == ["comparison.png"]
    with open(folder / "history.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 2 * 2 * 2
    assert keras.models.load_model(folder / "model.keras").output_shape == (None, 10)
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    png = tf.io.encode_png(np.zeros((28, 28, 1), "uint8"))
    assert serve(image=tf.stack([png]))["probabilities"].shape == (1, 10)
    assert_last_line_is_true(folder)


@pytest.mark.slow
def test_fourier_mixing_costs_operations_and_no_weights(smoke):
    _, metrics = smoke
    for task in ("image", "text"):
        weights, operations = (
            [metrics[f"{task}_{variant}_{column}"] for variant in ("fourier", "nothing")]
            for column in ("parameters", "megaflop_an_example")
        )
        assert weights[0] == weights[1]
        assert operations[0] > operations[1]


@pytest.mark.parametrize("task", ["image", "text"])
@pytest.mark.parametrize("variant", mixers.VARIANTS)
def test_every_variant_makes_a_model_of_every_task(variant, task):
    config = configure(mixers.Config, num_layers=1)
    if task == "image":
        train = np.zeros((2, 28, 28, 1), "float32"), np.zeros(2, "int32")
        made = Task(train, train, train, list("abc"), 49, (7, 7), None)
    else:
        train = np.tile(np.arange(64, dtype="int32") % 40, (2, 1)), np.zeros(2, "int32")
        made = Task(train, train, train, list("abc"), 64, None, 50)
    model = mixers.build_model(config, made, variant)
    assert model(train[0]).shape == (2, 3)


@pytest.mark.slow
def test_the_recurrent_recipe_leaves_the_whole_folder(tmp_path):
    run("recurrent_translation", tmp_path, "--smoke")
    figures = {"training_curves.png", "cross_attention.png", "errors.png"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == figures
    with open(tmp_path / "translations.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))[:4]
    serve = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    result = serve(text=tf.constant([row["source"] for row in rows]))
    served = [text.decode() for text in result["translation"].numpy()]
    assert served == [row["translation"] for row in rows]
