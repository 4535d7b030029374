"""Claims about the recipe: the same shape as that of the ViT, with maps of what matters."""

import csv

import numpy as np
import pytest
import tensorflow as tf

from recipes import swin
from recipes.data import images
from recipes.lib import image_classifiers
from recipes.lib.options import configure
from tests.recipes.command import run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("swin", folder, "--smoke", "--batch-size", 64)


@pytest.mark.slow
def test_a_run_leaves_the_whole_folder(smoke):
    folder, _ = smoke
    names = {"training_curves", "confusion", "predictions_attention"}
    assert {path.stem for path in (folder / "figures").iterdir()} == names
    with open(folder / "history.csv", newline="") as file:
        assert {"loss", "val_loss", "val_accuracy"} <= set(next(csv.DictReader(file)))


@pytest.mark.slow
def test_the_saved_model_gives_the_predictions_of_the_run(smoke):
    folder, _ = smoke
    with open(folder / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    test = images.load().test.split(0.03)[1]
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    result = serve(image=tf.stack([tf.io.encode_png(pixels) for pixels in test.images]))
    probabilities = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(result["probability"], probabilities, atol=1e-5)


@pytest.mark.slow
def test_a_run_can_go_on_from_another_at_another_size(smoke):
    config = configure(swin.Config, pretrained=str(smoke[0]), image_size=48)
    model = swin.build_model(config, num_classes=4, channels=1)
    assert model(np.zeros((1, 48, 48, 1), "float32")).shape == (1, 4)


def test_importance_is_none_where_a_picture_is_empty():
    config = configure(swin.Config, image_size=16, window_size=2, version=2)
    model = swin.build_model(config, 3, 1)
    pictures = np.zeros((2, 16, 16, 1), "float32")
    pictures[:, :8] = np.random.default_rng(1).normal(size=(2, 8, 16, 1))
    found = image_classifiers.importance(model, pictures)
    assert found.shape == (2, 8, 8)
    assert np.all(found[:, 4:] == 0) and np.all(found[:, :4].max(axis=(1, 2)) > 0)
