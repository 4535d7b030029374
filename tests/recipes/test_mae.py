"""Claims about the recipe: pictures without labels, then few labels, then a served classifier."""

import csv

import keras
import pytest
import tensorflow as tf

from recipes import mae
from recipes.data import images
from tests.recipes.command import assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("mae", folder, "--smoke")


@pytest.mark.slow
def test_a_run_leaves_the_whole_folder(smoke):
    folder, metrics = smoke
    names = {"training_curves", "confusion", "reconstructions"}
    assert {path.stem for path in (folder / "figures").iterdir()} == names
    assert {f"test_top1_{kind}" for kind in mae.KINDS} <= set(metrics)
    with open(folder / "runs.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["kind"] for row in rows] == list(mae.KINDS)


@pytest.mark.slow
def test_what_a_run_leaves_can_be_used(smoke):
    folder, _ = smoke
    autoencoder = keras.models.load_model(folder / "model.keras")
    assert autoencoder.encoder.transferred(num_classes=3).built
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    result = serve(image=tf.stack([tf.io.encode_png(images.load().test.images[0])]))
    assert result["probabilities"].shape == (1, 10)
    assert_last_line_is_true(folder)
