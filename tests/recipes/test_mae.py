"""Claims about the recipe: pictures without labels, then few labels, then a served classifier."""

import csv

import keras
import pytest
import tensorflow as tf

from keras_transformers.vision import Preprocessing
from recipes import mae
from recipes.data import images
from recipes.lib.options import configure
from tests.recipes.command import assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("mae", folder, "--smoke")


def test_the_models_of_a_run_can_be_made(tmp_path):
    config = configure(mae.Config, smoke=True, output=str(tmp_path))
    model = mae.build_model(config, Preprocessing(config.data.image_size, channels=1))
    start = mae.encoder(config)
    start.build((None, config.data.image_size, config.data.image_size, 1))
    shapes = [[weight.shape for weight in part.weights] for part in (model.encoder, start)]
    assert shapes[0] == shapes[1] and start.transferred(num_classes=3).built


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
