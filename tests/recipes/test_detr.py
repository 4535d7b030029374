"""Claims about the recipe: images with boxes, then a scored and served detector."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.export import Detector
from keras_transformers.training import score_boxes
from keras_transformers.vision import Preprocessing, fitted, training_boxes
from recipes import detr
from recipes.data import boxes, data_sets
from recipes.lib.options import configure
from tests.recipes.command import assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("detr", folder, "--smoke")


@pytest.mark.slow
def test_a_run_leaves_the_whole_folder(smoke):
    folder, metrics = smoke
    for name in ("config.json", "history.csv", "metrics.json", "preprocessing.json", "model.keras"):
        assert (folder / name).stat().st_size > 0
    names = ("test_boxes", "held_out_boxes", "query_attention", "training_curves")
    for name in names:
        assert (folder / "figures" / f"{name}.png").stat().st_size > 10_000
    assert 0 <= metrics["test_ap50"] <= 100 and 0 <= metrics["held_out_recall"] <= 100


@pytest.mark.slow
def test_the_run_ends_with_the_line_that_uses_it(smoke):
    assert_last_line_is_true(smoke[0])


@pytest.mark.slow
def test_the_saved_model_finds_boxes_in_a_photograph(smoke):
    folder, _ = smoke
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    photograph = (data_sets.HERE / "tree-crowns" / "OSBS_029.jpg").read_bytes()
    found = serve(image=tf.constant([photograph]))
    assert found["boxes"].shape == (1, 40, 4) and set(found["label"].numpy()[0]) == {b"Tree"}
    corners = found["boxes"].numpy()[0]
    assert (corners >= 0).all() and (corners <= 400).all()


def test_the_embedded_photographs_are_split_by_position():
    data = boxes.load()
    counts = {name: getattr(data, name).number_of_boxes() for name in ("train", "test")}
    assert counts == {"train": 853, "test": 98} and data.train.classes == ["Tree"]
    assert all("YELL" in name for name in data.train.images)
    tiles = data.test.tiles(200)
    assert len(tiles) == 8 and tiles.sizes.tolist() == [[200, 200]] * 8


def test_own_files_and_sets_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="There is no data set 'crowns'"):
        boxes.load("crowns")
    with pytest.raises(ValueError, match="missing: --valid and --test"):
        boxes.load(train="a.json")
    with pytest.raises(FileNotFoundError, match="There is no file a.json"):
        boxes.load(train="a.json", valid="b.json", test="c.json")


@pytest.mark.slow
def test_four_tiles_are_learned_by_heart():
    """AP50 of at least 0.9 on the tiles it was fitted to, with `fit` alone."""
    keras.utils.set_random_seed(1)
    config = configure(detr.Config, batch_size=4)
    side = config.data.image_size
    tiles = boxes.load().train.tiles(200)
    full = np.argsort([-len(labels) for labels in tiles.labels])[5:40:10]
    tiles = tiles.select(full)
    pixels = np.stack([fitted(tiles.pixels(i), side)[0] for i in range(4)])
    preprocessing = Preprocessing.measured(pixels, side)
    model = detr.build_model(config, 1)
    batches = training_boxes(tiles, preprocessing, 4, config.model.num_queries)
    model.fit(batches, steps_per_epoch=100, epochs=6, verbose=0)
    predicted, truths = detr.predict(Detector(model, tiles.classes, preprocessing), tiles)
    assert score_boxes(predicted, truths, 1).ap50 >= 0.9
