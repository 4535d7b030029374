"""Batches for `model.fit`, and a clock that tells how long training waits for them."""

import tensorflow as tf

from keras_transformers.streams import keys
from keras_transformers.vision.augmentation import Augmentation


def training_batches(
    corpus, preprocessing, batch_size, augmentation=None, seed=0, epoch=None
):
    """Endless shuffled batches `(images, labels)`: normalised float32, and 0 and 1, float32.

    Args:
        corpus: An `ImageCorpus`.
        preprocessing: A `Preprocessing`.
        batch_size: Number of images in a batch; all batches are whole.
        augmentation: Optional `Augmentation`, or any function of images in [0, 255] and labels
            `(batch, classes)`.
        seed: Of the order, and of an `Augmentation`, together with its own.
        epoch: Number of the one epoch to give, an integer or a scalar tensor (see
            `streams.epochs`), instead of all of them without end.

    Raises:
        ValueError: As `ImageCorpus.batches`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import ImageCorpus, Preprocessing, training_batches
    >>> corpus = ImageCorpus.from_arrays("toy", np.zeros((9, 8, 8), "uint8"), np.arange(9) % 3)
    >>> batches = training_batches(corpus, Preprocessing(8, channels=1), batch_size=4)
    >>> [tuple(part.shape) for part in next(iter(batches))]
    [(4, 8, 8, 1), (4, 3)]
    """
    classes = len(corpus.classes)

    def prepare(batch, key):
        images, labels = batch
        labels = _hot(labels, classes)
        if isinstance(augmentation, Augmentation):
            images, labels = augmentation(images, labels, key)
        elif augmentation is not None:
            images, labels = augmentation(images, labels)
        return preprocessing.normalize(images), labels

    batches = corpus.batches(batch_size, preprocessing, seed, epoch)
    batches = tf.data.Dataset.zip(batches, keys(seed, epoch))
    return batches.map(prepare, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def evaluation_batches(corpus, preprocessing, batch_size):
    """Every image once, in order: `(images, labels)`, as for `training_batches`.

    Args:
        corpus, preprocessing, batch_size: As for `training_batches`; the last batch may be smaller.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import ImageCorpus, Preprocessing, evaluation_batches
    >>> corpus = ImageCorpus.from_arrays("toy", np.zeros((9, 8, 8), "uint8"), np.arange(9) % 3)
    >>> batches = evaluation_batches(corpus, Preprocessing(8, channels=1), batch_size=5)
    >>> [len(labels) for _, labels in batches]
    [5, 4]
    """
    classes = len(corpus.classes)

    def prepare(images, labels):
        return preprocessing.normalize(images), _hot(labels, classes)

    return corpus.batches(batch_size, preprocessing).map(prepare).prefetch(tf.data.AUTOTUNE)


def _hot(labels, classes):
    """float32 `(batch, classes)`, of numbers or of what can be several already."""
    several = labels.shape.rank == 2
    return tf.cast(labels, tf.float32) if several else tf.one_hot(labels, classes)


class WaitingClock:
    """Measures how long the consumer of a `tf.data` pipeline waits for it.

    Inside the graph: the time is taken when an element is asked for and when it is there. Divided
    by the time of training it is the share that the pipeline costs beyond what overlaps.

    Attributes:
        seconds: float64 variable, the sum of all waiting.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import WaitingClock
    >>> clock = WaitingClock()
    >>> len(list(clock.watch(tf.data.Dataset.range(3)))), float(clock.seconds) >= 0
    (3, True)
    """

    def __init__(self):
        self.seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def watch(self, dataset):
        """The same elements, watched. To be the last step of the pipeline."""
        asked = tf.data.Dataset.counter().map(lambda _: tf.timestamp())

        def arrived(asked, element):
            self.seconds.assign_add(tf.timestamp() - asked)
            return element

        # Zip asks its parts in turn, so that the first is made when the second is asked for.
        watched = tf.data.Dataset.zip(asked, dataset).map(arrived)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # would ask ahead of the consumer
        return watched.with_options(options)
