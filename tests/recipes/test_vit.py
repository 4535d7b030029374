"""Claims about the recipe: from images to a scored, served model, and no bad input taken."""

import csv
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.vision import Preprocessing
from recipes import vit
from recipes.data import images
from recipes.lib import image_classifiers
from recipes.lib.options import configure
from tests.recipes.command import assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("vit", folder, "--smoke")


def test_a_run_leaves_the_whole_folder(smoke):
    folder, metrics = smoke
    assert {path.stem for path in (folder / "figures").iterdir()} == {
        "training_curves",
        "confusion",
        "predictions_attention",
        "position_similarity",
        "patch_filters",
    }
    assert json.loads((folder / "config.json").read_text())["dataset"] == "fashion-mnist-12k"
    scores = {"test_top1", "test_top5", "test_calibration_error"}
    assert {"seconds", "parameters"} | scores <= set(metrics)
    with open(folder / "history.csv", newline="") as file:
        assert {"loss", "val_loss", "val_accuracy"} <= set(next(csv.DictReader(file)))
    with open(folder / "classes.tsv", newline="") as file:
        assert len(list(csv.DictReader(file, delimiter="\t"))) == 10


def test_the_saved_model_gives_the_predictions_of_the_run(smoke):
    folder, _ = smoke
    with open(folder / "predictions.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    test = images.load().test.split(0.03)[1]
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    result = serve(image=tf.stack([tf.io.encode_png(pixels) for pixels in test.images]))
    assert [name.decode() for name in result["label"].numpy()] == [row["predicted"] for row in rows]
    probabilities = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(result["probability"], probabilities, atol=1e-5)


def test_the_run_ends_with_the_line_that_uses_it(smoke):
    assert_last_line_is_true(smoke[0])


def test_the_preprocessing_of_a_run_can_be_had_again(smoke):
    settings = json.loads((smoke[0] / "preprocessing.json").read_text())
    preprocessing = Preprocessing(**settings)
    assert preprocessing.image_size == (32, 32) and preprocessing.channels == 1
    assert 0.2 < preprocessing.mean[0] < 0.4


def test_a_run_can_go_on_from_another(smoke, tmp_path):
    config = configure(vit.Config, pretrained=str(smoke[0]), image_size=48, freeze=True)
    model = vit.build_model(config, num_classes=4, channels=1)
    assert model(np.zeros((1, 48, 48, 1), "float32")).shape == (1, 4)
    assert {weight.path.split("/")[1] for weight in model.trainable_weights} == {"head"}
    trained = keras.models.load_model(smoke[0] / "model.keras")
    kernel = trained.encoder_blocks[0].mixer.query_dense.kernel
    np.testing.assert_array_equal(model.encoder_blocks[0].mixer.query_dense.kernel, kernel)


def test_lower_blocks_of_a_pretrained_model_learn_more_slowly(smoke):
    given = {"pretrained": str(smoke[0]), "layer_decay": 0.5}
    optimizer = vit.build_model(configure(vit.Config, **given), 4, 1).optimizer
    np.testing.assert_allclose(optimizer.depth_rates, 0.5 ** np.arange(5, -1, -1))
    with pytest.raises(ValueError, match="need --pretrained"):
        vit.build_model(configure(vit.Config, unfreeze_every=2), 4, 1)


def test_weight_decay_spares_the_same_weights_after_reload(smoke):
    optimizer = keras.models.load_model(smoke[0] / "model.keras").optimizer
    assert {"bias", "gamma", "position_embedding"} <= set(optimizer.no_decay)


@pytest.mark.parametrize("pooling", ["token", "mean", "attention"])
def test_what_an_answer_draws_on_is_shown_in_two_ways(pooling):
    config = configure(vit.Config, pooling=pooling, image_size=16, patch_size=4, size="mini")
    model = vit.build_model(config, 3, 1)
    found = image_classifiers.heat_maps(model, np.random.rand(2, 16, 16, 1).astype("float32"))
    assert [each.shape for each in found.values()] == [(2, 4, 4)] * 2
    total = found[image_classifiers.ROLLOUT].sum((1, 2))
    assert np.all(total <= 1 + 1e-6) and np.all(total > 0.3)  # a class token draws on itself too
    relevance = found[image_classifiers.RELEVANCE]
    assert np.all(relevance >= 0) and np.all(relevance.max((1, 2)) > 0)
