"""Claims about images with boxes: what is checked, how they are cut, read and changed."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_transformers.vision import (
    BoxAugmentation,
    DetectionCorpus,
    Preprocessing,
    evaluation_boxes,
    fitted,
    read_coco,
    training_boxes,
)
from tests.animations import animated_webp

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 256, (40, 60, 3), dtype="uint8")
PNG = tf.io.encode_png(PICTURE).numpy()


def corpus(boxes, labels=None, images=None, **kwargs):
    images = [PICTURE] * len(boxes) if images is None else images
    labels = [[0] * len(each) for each in boxes] if labels is None else labels
    return DetectionCorpus.checked("toy", ["cat", "dog"], images, boxes, labels, **kwargs)


# ------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("box", "label", "reason"),
    [
        ([np.nan, 0, 5, 5], 0, "with numbers that are not finite"),
        ([0, 0, np.inf, 5], 0, "with numbers that are not finite"),
        ([5, 5, 5, 9], 0, "without area"),
        ([9, 5, 5, 9], 0, "without area"),
        ([0, 0, 5, 5], 2, "of unknown categories"),
        ([0, 0, 5, 5], -1, "of unknown categories"),
        ([60, 0, 80, 20], 0, "outside their image"),
        ([-20, -20, 0.5, 9], 0, "outside their image"),
    ],
)
def test_a_bad_box_is_left_out_and_counted(box, label, reason):
    found = corpus([[box, [1, 2, 11, 12]]], [[label, 1]])
    assert found.left_out == {reason: 1}
    assert found.boxes[0].tolist() == [[1, 2, 11, 12]] and found.labels[0].tolist() == [1]
    assert f"1 boxes in 1 images kept of 2; left out: 1 {reason}" in found.summary()


def test_a_box_around_a_crowd_is_left_out_and_counted():
    found = corpus([[[0, 0, 5, 5], [1, 1, 6, 6]]], crowds=[[True, False]])
    assert found.left_out == {"around crowds": 1} and found.number_of_boxes() == 1
    (truth,) = found.select([0]).truths()
    assert truth["boxes"].tolist() == [[1, 1, 6, 6], [0, 0, 5, 5]]
    assert truth["crowds"].tolist() == [False, True] and truth["labels"].tolist() == [0, 0]
    tiles = corpus([[[10, 5, 50, 35]]], crowds=[[True]]).tiles(20)
    assert [row["crowds"].tolist() for row in tiles.truths()] == [[True]] * len(tiles)
    assert tiles.truths()[0]["boxes"].tolist() == [[10, 5, 20, 20]]


def test_a_box_over_the_border_is_cut_and_counted():
    found = corpus([[[-5, 10, 20, 55], [0, 0, 60, 40]]])
    assert found.repaired == {"cut at the border": 1} and not found.left_out
    assert found.boxes[0].tolist() == [[0, 10, 20, 40], [0, 0, 60, 40]]


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("nowhere.png", "missing images"),
        (b"", "empty images"),
        (b"hello", "images that are no whole JPEG, PNG, GIF, BMP or WebP"),
        (PNG[:200], "images that are no whole JPEG, PNG, GIF, BMP or WebP"),
        (animated_webp(), "animated WebP files"),
        (PICTURE[..., :1], "images that are not uint8 (height, width, 3)"),
    ],
)
def test_an_unusable_image_is_left_out_with_its_boxes(image, reason):
    found = corpus([[[0, 0, 5, 5]] * 3, []], images=[image, PNG])
    assert found.left_out == {reason: 1, "of images left out": 3}
    assert len(found) == 1 and found.number_of_boxes() == 0
    with pytest.raises(ValueError, match="nothing to learn from"):
        corpus([[[0, 0, 5, 5]]], images=[image])


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="boxes and labels for each image. Received: 2 images"):
        corpus([[[0, 0, 5, 5]]], images=[PNG, PNG])
    with pytest.raises(ValueError, match="image 0 must have a label for each box"):
        corpus([[[0, 0, 5, 5]]], [[0, 0]])


# ------------------------------------------------------------------- COCO


def coco(folder, **changes):
    (folder / "1.png").write_bytes(PNG)
    content = {
        "images": [{"id": 3, "file_name": "1.png"}, {"id": 5, "file_name": "2.png"}],
        "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}],
        "annotations": [
            {"image_id": 3, "category_id": 9, "bbox": [10, 5, 20, 30]},
            {"image_id": 3, "category_id": 8, "bbox": [10, 5, 20, 30]},
            {"image_id": 3, "category_id": 4, "bbox": [10, 5, 20, 30], "iscrowd": 1},
            {"image_id": 3, "category_id": 4, "bbox": [10, 5, 20]},
            {"image_id": 3, "category_id": 4},
            {"image_id": 3, "category_id": 4, "bbox": [10, 5, float("nan"), 30]},
            {"image_id": 3, "category_id": 4, "bbox": [10, 5, -3, 30]},
            {"image_id": 4, "category_id": 4, "bbox": [10, 5, 20, 30]},
            {"image_id": 5, "category_id": 4, "bbox": [10, 5, 20, 30]},
        ],
        **changes,
    }
    path = folder / "boxes.json"
    path.write_text(json.dumps(content))
    return path


def test_everything_odd_in_a_coco_file_is_counted(tmp_path):
    found = read_coco(coco(tmp_path))
    assert found.classes == ["cat", "dog"]  # by their ids
    assert found.boxes[0].tolist() == [[10, 5, 30, 35]] and found.labels[0].tolist() == [1]
    assert found.left_out == {
        "of unknown categories": 1,
        "around crowds": 1,
        "without four numbers": 2,
        "with numbers that are not finite": 1,
        "without area": 1,
        "whose image is not listed": 1,
        "missing images": 1,
        "of images left out": 1,
    }
    assert read_coco(coco(tmp_path), classes=["dog"]).labels[0].tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"images": [{"id": 3}]}, "`images` must be a list of objects"),
        ({"categories": "cat"}, "`categories` must be a list of objects"),
        ({"images": [{"id": 3, "file_name": "1.png"}] * 2}, "id is there more than once"),
        ({"images": []}, "nothing to learn from"),
    ],
)
def test_what_is_no_coco_file_is_refused(changes, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        read_coco(coco(tmp_path, **changes))


def test_what_is_no_json_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_coco(tmp_path / "boxes.json")
    (tmp_path / "boxes.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        read_coco(tmp_path / "boxes.json")


# ------------------------------------------------------------------- tiles


def test_tiles_hold_every_pixel_once_and_boxes_keep_their_pixels():
    found = corpus([[[3, 4, 17, 15], [34, 15, 46, 25], [0, 0, 60, 40]]], [[0, 1, 0]])
    tiles = found.tiles(21)  # 60 -> three of 20, 40 -> two of 20
    assert tiles.sizes.tolist() == [[20, 20]] * 6
    rows = [np.concatenate(tiles.images[i : i + 3], axis=1) for i in (0, 3)]
    np.testing.assert_array_equal(np.concatenate(rows), PICTURE)
    assert tiles.boxes[0].tolist() == [[3, 4, 17, 15]]
    # A quarter of the second box is in none of four tiles to half; of the third, a sixth in each.
    assert tiles.number_of_boxes() == 1
    assert found.tiles(21, visible=0.1).number_of_boxes() == 1 + 4 + 6
    assert found.tiles(500).boxes[0].tolist() == found.boxes[0].tolist()
    with pytest.raises(ValueError, match="must be positive. Received: 0"):
        found.tiles(0)


# ------------------------------------------------------------------- augmentation


def marked(box, height=24, width=36):
    """An image that is white inside the box and black outside."""
    image = np.zeros((height, width, 3), "uint8")
    left, top, right, bottom = box
    image[top:bottom, left:right] = 255
    return image


def bounds(image):
    """The box around what is white."""
    rows, columns = np.nonzero(np.asarray(image)[..., 0] > 127)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@given(
    box=st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(3, 14), st.integers(3, 10)),
    seed=st.integers(0, 100),
)
def test_boxes_move_with_their_pixels(box, seed):
    left, top, width, height = box
    box = [left, top, left + width, top + height]
    tf.random.set_seed(seed)
    for settings in ({}, {"turn": True}, {"window": 16, "turn": True, "scale": 1.5}):
        image, boxes, labels = BoxAugmentation(visible=0.0, **settings)(
            tf.constant(marked(box)), tf.constant([box], tf.float32), tf.constant([7])
        )
        if len(boxes):
            assert boxes.numpy()[0].tolist() == bounds(image) and labels.numpy().tolist() == [7]


def test_all_eight_symmetries_and_no_other_come_up():
    box = tf.constant([[1.0, 2, 4, 8]])
    image = tf.constant(marked([1, 2, 4, 8], 16, 16))
    seen = {tuple(BoxAugmentation(turn=True)(image, box, [0])[1].numpy()[0]) for _ in range(80)}
    assert len(seen) == 8
    seen = {tuple(BoxAugmentation()(image, box, [0])[1].numpy()[0]) for _ in range(20)}
    assert seen == {(1, 2, 4, 8), (12, 2, 15, 8)}


def test_a_box_mostly_outside_the_window_is_left_out():
    image = tf.zeros((8, 16, 3), tf.uint8)
    box = tf.constant([[6.0, 0, 10, 8]])
    augment = BoxAugmentation(window=8, visible=0.6, flip=False)
    found = [augment(image, box, tf.constant([0]))[1].numpy() for _ in range(40)]
    widths = {float(each[0, 2] - each[0, 0]) if len(each) else 0 for each in found}
    assert widths == {0, 3, 4}  # of 2 to 4


def test_colours_change_channel_by_channel():
    image = tf.fill((4, 4, 3), tf.constant(100, tf.uint8))
    changed, _, _ = BoxAugmentation(colour=0.3)(image, tf.zeros((0, 4)), tf.zeros((0,), tf.int32))
    channels = changed.numpy().reshape(-1, 3)
    assert (channels == channels[0]).all() and len(set(channels[0].tolist())) == 3
    assert channels.min() >= 70 and channels.max() <= 130


@pytest.mark.parametrize(
    "settings", [{"window": 0}, {"scale": 0.5}, {"visible": 2.0}, {"colour": -0.1}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match="BoxAugmentation: `window` must be positive or None"):
        BoxAugmentation(**settings)


# ------------------------------------------------------------------- batches


def test_a_image_is_fitted_without_changing_its_shape():
    pixels, mask, inner = fitted(tf.constant(PICTURE), 30)
    assert inner.numpy().tolist() == [20, 30]
    assert mask.numpy()[:20].all() and not mask.numpy()[20:].any()
    assert not pixels.numpy()[20:].any()
    expected = tf.image.resize(PICTURE, (20, 30), antialias=True)
    np.testing.assert_allclose(pixels[:20], expected, atol=0.51)


@pytest.mark.parametrize("kind", ["pixels", "encoded", "files"])
def test_targets_are_fractions_of_the_image(kind, tmp_path):
    (tmp_path / "1.png").write_bytes(PNG)
    image = {"pixels": PICTURE, "encoded": PNG, "files": str(tmp_path / "1.png")}[kind]
    found = corpus([[[6, 8, 18, 20], [0, 0, 60, 40]], []], [[1, 0], []], images=[image, image])
    batches = list(evaluation_boxes(found, Preprocessing(30, std=0.25), 2, max_boxes=3))
    ((inputs, targets),) = batches
    assert targets["labels"].numpy().tolist() == [[0, 1, -1], [-1, -1, -1]]
    np.testing.assert_allclose(targets["boxes"][0, 0], [0.5, 0.5, 1.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(targets["boxes"][0, 1], [0.2, 0.35, 0.2, 0.3], atol=1e-6)
    pixels, mask, _ = fitted(tf.constant(PICTURE), 30)
    expected = (pixels.numpy() / 255 - 0.5) / 0.25 * mask.numpy()[..., None]
    np.testing.assert_allclose(inputs["images"][0], expected, atol=1e-5)
    assert inputs["padding_mask"].shape == (2, 30, 30)


def test_of_too_many_boxes_the_largest_stay():
    found = corpus([[[0, 0, 5, 5], [0, 0, 20, 20], [0, 0, 9, 9]]], [[0, 1, 1]])
    _, targets = next(iter(evaluation_boxes(found, Preprocessing(60), 1, max_boxes=2)))
    assert targets["labels"].numpy().tolist() == [[1, 1]]
    np.testing.assert_allclose(targets["boxes"][0, :, 2] * 60, [20, 9], atol=1e-4)


def test_training_batches_come_without_end_and_changed():
    found = corpus([[[6, 8, 18, 20]], [[0, 0, 60, 40]], []])
    batches = training_boxes(
        found, Preprocessing(32), 2, 4, BoxAugmentation(window=30, turn=True, colour=0.2)
    )
    shapes = {
        (*inputs["images"].shape, *targets["boxes"].shape) for inputs, targets in batches.take(9)
    }
    assert shapes == {(2, 32, 32, 3, 2, 4, 4)}
    with pytest.raises(ValueError, match="^toy: the preprocessing of a detector must have"):
        training_boxes(found, Preprocessing(32, channels=1), 2, 4)


def test_a_split_keeps_copies_of_an_image_together():
    pictures = np.repeat(RNG.integers(0, 256, (5, 9, 9, 3), dtype="uint8"), 3, axis=0)
    found = corpus([[[0, 0, 5, 5]]] * 15, images=list(pictures))
    first, second = found.split(0.2)
    assert (len(first), len(second)) == (12, 3)
    assert not set(first.content_keys()) & set(second.content_keys())
    with pytest.raises(ValueError, match="3 images of one content cannot be split"):
        found.select([0, 1, 2]).split(0.5)
