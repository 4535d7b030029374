"""Claims about batches for training, and about the clock that watches them."""

import time

import numpy as np
import tensorflow as tf

from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    Preprocessing,
    WaitingClock,
    evaluation_batches,
    training_batches,
)

RNG = np.random.default_rng(0)
CORPUS = ImageCorpus.from_arrays(
    "toy", RNG.integers(0, 256, (10, 8, 8), dtype="uint8"), np.arange(10) % 3
)
PREPROCESSING = Preprocessing.measured(CORPUS.images, 8)


def test_evaluation_sees_every_image_once_in_order():
    batches = list(evaluation_batches(CORPUS, PREPROCESSING, 4))
    images = np.concatenate([images for images, _ in batches])
    np.testing.assert_allclose(images, PREPROCESSING.normalize(CORPUS.images), atol=1e-6)
    labels = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(labels, np.eye(3)[CORPUS.labels])


def test_training_without_augmentation_sees_what_evaluation_sees():
    images, labels = next(iter(training_batches(CORPUS, PREPROCESSING, 10)))
    order = np.argsort(images.numpy().sum((1, 2, 3)))
    expected = PREPROCESSING.normalize(CORPUS.images).numpy()
    indices = np.argsort(expected.sum((1, 2, 3)))
    np.testing.assert_allclose(images.numpy()[order], expected[indices], atol=1e-6)
    np.testing.assert_array_equal(labels.numpy()[order].argmax(1), CORPUS.labels[indices])


def test_a_seed_fixes_the_order():
    def first(seed):
        return next(iter(training_batches(CORPUS, PREPROCESSING, 10, seed=seed)))[0].numpy()

    np.testing.assert_array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))


def test_every_epoch_is_augmented_anew():
    batches = iter(training_batches(CORPUS, PREPROCESSING, 10, Augmentation(2, True, seed=1)))
    one, other = (np.sort(next(batches)[0].numpy().ravel()) for _ in range(2))
    assert not np.array_equal(one, other)


def slow(delay, prefetch=0):
    """Ten numbers, each of which takes `delay` seconds."""

    def slowly(i):
        return tf.numpy_function(lambda i: (time.sleep(delay), i)[1], [i], tf.int64)

    return tf.data.Dataset.range(10).map(slowly).prefetch(prefetch)


def test_the_clock_counts_the_time_spent_waiting():
    clock = WaitingClock()
    assert [int(i) for i in clock.watch(slow(0.05))] == list(range(10))
    assert 0.5 <= float(clock.seconds) < 5


def test_the_clock_does_not_count_what_was_ready_in_time():
    clock = WaitingClock()
    for _ in clock.watch(slow(0.05, prefetch=2)):
        time.sleep(0.15)  # longer than the pipeline takes
    assert float(clock.seconds) < 0.4
