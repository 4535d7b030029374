"""Claims about random changes of training images."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.data.streams import Draws
from keras_transformers.vision import Augmentation, random_crop

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(1, 256, (16, 9, 7, 3)).astype("float32")
LABELS = np.eye(16, dtype="float32")[:, :16]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_crop_is_a_window_of_the_padded_image(dtype):
    images = IMAGES.astype(dtype)
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)))
    indices = set()
    for image, frame in zip(random_crop(images, 2, Draws([1])).numpy(), padded, strict=True):
        found = [
            (top, left)
            for top in range(5)
            for left in range(5)
            if np.array_equal(image, frame[top : top + 9, left : left + 7])
        ]
        assert len(found) == 1
        indices.update(found)
    assert len(indices) > 5  # each image has its own


def test_half_of_the_images_are_mirrored():
    images, labels = Augmentation(flip=True, seed=3)(IMAGES, LABELS)
    mirrored = [np.array_equal(a, b[:, ::-1]) for a, b in zip(images, IMAGES, strict=True)]
    same = [np.array_equal(a, b) for a, b in zip(images, IMAGES, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 2 < sum(mirrored) < 14
    np.testing.assert_array_equal(labels, LABELS)


def test_without_anything_nothing_changes():
    images, labels = Augmentation()(IMAGES, LABELS)
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 16, 16), (0.5, 2, 14)])
def test_erasing_changes_its_share_of_images_in_part(share, least, most):
    images, _ = Augmentation(erasing=share, seed=3)(IMAGES, LABELS)
    changed = (images.numpy() != IMAGES).any(axis=-1).reshape(16, -1).mean(axis=1)
    assert least <= np.count_nonzero(changed) <= most
    assert changed.max() < 0.6
    assert images.numpy().min() >= 0 and images.numpy().max() <= 255


# Keras's CutMix rounds its rectangle to whole pixels, the labels follow the unrounded share.
@pytest.mark.parametrize(("options", "tolerance"), [({"mixup": 0.4}, 0.01), ({"cutmix": 1.0}, 12)])
def test_labels_are_mixed_as_the_images_are(options, tolerance):
    # Images of one value each: what was mixed in can be read off the pixels.
    values = np.linspace(10, 160, 16, dtype="float32")
    images = np.broadcast_to(values[:, None, None, None], (16, 45, 35, 3))
    mixed, labels = Augmentation(**options, seed=3)(images, LABELS)
    np.testing.assert_allclose(tf.reduce_sum(labels, axis=1), 1, atol=1e-5)
    assert (np.count_nonzero(labels, axis=1) <= 2).all() and (labels.numpy() < 0.999).any()
    expected = labels.numpy() @ values
    np.testing.assert_allclose(mixed.numpy().mean((1, 2, 3)), expected, atol=tolerance)


def test_everything_together_works_inside_a_pipeline():
    augment = Augmentation(2, True, rand_augment=2, erasing=0.3, mixup=0.2, cutmix=1.0, seed=3)
    batches = tf.data.Dataset.from_tensors((IMAGES, LABELS)).repeat(4).map(augment)
    for images, labels in batches:
        assert images.shape == IMAGES.shape and np.isfinite(images).all()
        np.testing.assert_allclose(tf.reduce_sum(labels, axis=1), 1, atol=1e-5)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="`crop_padding` must not be negative. Received: -1"):
        Augmentation(crop_padding=-1)
    with pytest.raises(ValueError, match=r"`erasing` must lie in \[0, 1\]. Received: 1.5"):
        Augmentation(erasing=1.5)
