"""Batches of images, with and without boxes, for `model.fit`, and the changes that move boxes.

`WaitingClock` tells how long training waits for the batches.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.data.streams import Draws, keys, orders
from keras_transformers.vision.boxes import LEAST_SIDE, DetectionCorpus, decoded
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.preprocessing import Augmentation, Preprocessing


def training_batches(
    corpus: ImageCorpus,
    preprocessing: Preprocessing,
    batch_size: int,
    augmentation: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None,
    seed: int = 0,
    epoch: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
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

    def prepare(batch: Any, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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


def evaluation_batches(
    corpus: ImageCorpus, preprocessing: Preprocessing, batch_size: int
) -> tf.data.Dataset:
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

    def prepare(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return preprocessing.normalize(images), _hot(labels, classes)

    return corpus.batches(batch_size, preprocessing).map(prepare).prefetch(tf.data.AUTOTUNE)


def _hot(labels: tf.Tensor, classes: int) -> tf.Tensor:
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

    def __init__(self) -> None:
        self.seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same elements, watched. To be the last step of the pipeline."""
        asked = tf.data.Dataset.counter().map(lambda _: tf.timestamp())

        def arrived(asked: tf.Tensor, element: Any) -> Any:
            self.seconds.assign_add(tf.timestamp() - asked)
            return element

        # Zip asks its parts in turn, so that the first is made when the second is asked for.
        watched = tf.data.Dataset.zip(asked, dataset).map(arrived)
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False  # would ask ahead of the consumer
        return watched.with_options(options)


@dataclasses.dataclass(frozen=True)
class BoxAugmentation:
    """A function from one image and its boxes to a changed one: window, symmetries, colour.

    A square window somewhere in the image, scaled; one of the eight symmetries of the square (or
    of those that do not turn); the brightness of each channel. `keras.layers` change boxes too, but
    know neither windows that keep their scale nor turns by 90 degrees.

    Args:
        window: Side of the window in pixels, or None for the whole image.
        scale: The window's side is divided by a number between `1 / scale` and `scale`, uniform on
            a logarithmic axis; 1 leaves it.
        visible: A box stays if at least this share of its area is in the window.
        flip: Whether to mirror half of the images, left to right.
        turn: Whether to turn by a multiple of 90 degrees and to mirror top to bottom: for images
            from above.
        colour: Each channel is multiplied by a number within `1 +- colour`.

    Call arguments:
        image: uint8 `(height, width, 3)`.
        boxes: float32 `(k, 4)`, corner boxes in pixels.
        labels: int32 `(k,)`.
        key: Optional integers `(n,)`, as from `streams.keys`, that all draws follow from.

    Returns:
        Image, boxes and labels; boxes that are no longer seen are left out.

    Raises:
        ValueError: If `window` is not positive, `scale` below 1, or a share outside [0, 1].

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import BoxAugmentation
    >>> augment = BoxAugmentation(window=8, turn=True)
    >>> image = tf.zeros((16, 24, 3), tf.uint8)
    >>> image, boxes, labels = augment(image, tf.constant([[0.0, 0, 24, 16]]), tf.constant([3]))
    >>> tuple(image.shape), boxes.shape[0]
    ((8, 8, 3), 0)
    """

    window: int | None = None
    scale: float = 1.0
    visible: float = 0.5
    flip: bool = True
    turn: bool = False
    colour: float = 0.0

    def __post_init__(self) -> None:
        shares = all(0 <= value <= 1 for value in (self.visible, self.colour))
        if (self.window is not None and self.window < 1) or self.scale < 1 or not shares:
            raise ValueError(
                "BoxAugmentation: `window` must be positive or None, `scale` at least 1, `visible` "
                f"and `colour` in [0, 1]. Received: {self}"
            )

    def __call__(
        self,
        image: tf.Tensor,
        boxes: tf.Tensor,
        labels: tf.Tensor,
        key: tf.Tensor | Sequence[int] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        draws = Draws(key)
        image, boxes, labels = self._cut(image, boxes, labels, draws)
        if self.flip or self.turn:
            image, boxes = self._mirrored(image, boxes, draws)
        if self.colour:
            factors = draws.uniform((3,), 1 - self.colour, 1 + self.colour)
            image = tf.cast(tf.clip_by_value(tf.cast(image, tf.float32) * factors, 0, 255), "uint8")
        return image, boxes, labels

    def _cut(
        self, image: tf.Tensor, boxes: tf.Tensor, labels: tf.Tensor, draws: Draws
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        extents = tf.shape(image)[:2]
        longest = tf.cast(tf.reduce_max(extents), tf.float32)
        side = longest if self.window is None else float(self.window)
        bound = float(np.log(self.scale))
        side = tf.cast(tf.round(side * tf.exp(draws.uniform((), -bound, bound))), tf.int32)
        sides = tf.minimum(extents, side)
        start = draws.uniform((2,), 0.0, 1.0) * tf.cast(extents - sides + 1, tf.float32)
        start = tf.minimum(tf.cast(start, tf.int32), extents - sides)
        image = image[start[0] : start[0] + sides[0], start[1] : start[1] + sides[1]]
        moved = boxes - tf.tile(tf.cast(start[::-1], tf.float32), [2])
        cut = tf.clip_by_value(moved, 0.0, tf.tile(tf.cast(sides[::-1], tf.float32), [2]))
        spans, before = cut[:, 2:] - cut[:, :2], moved[:, 2:] - moved[:, :2]
        seen = tf.reduce_prod(spans, 1) >= self.visible * tf.reduce_prod(before, 1)
        seen &= tf.reduce_all(spans >= LEAST_SIDE, axis=1)
        return image, tf.boolean_mask(cut, seen), tf.boolean_mask(labels, seen)

    def _mirrored(
        self, image: tf.Tensor, boxes: tf.Tensor, draws: Draws
    ) -> tuple[tf.Tensor, tf.Tensor]:
        height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))
        left, top, right, bottom = tf.unstack(boxes, axis=1)
        chance = draws.uniform((3,)) < 0.5
        if self.flip or self.turn:
            image = tf.cond(chance[0], lambda: image[:, ::-1], lambda: image)
            left, right = tf.cond(
                chance[0], lambda: (width - right, width - left), lambda: (left, right)
            )
        if self.turn:
            image = tf.cond(chance[1], lambda: image[::-1], lambda: image)
            top, bottom = tf.cond(
                chance[1], lambda: (height - bottom, height - top), lambda: (top, bottom)
            )
            corners = tf.stack([left, top, right, bottom], axis=1)
            turned = tf.stack([top, left, bottom, right], axis=1)
            image = tf.cond(chance[2], lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
            return image, tf.cond(chance[2], lambda: turned, lambda: corners)
        return image, tf.stack([left, top, right, bottom], axis=1)


def training_boxes(
    corpus: DetectionCorpus,
    preprocessing: Preprocessing,
    batch_size: int,
    max_boxes: int,
    augmentation: Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]] | None = None,
    seed: int = 0,
    epoch: int | tf.Tensor = 0,
) -> tf.data.Dataset:
    """Endless shuffled batches `(inputs, targets)` for a detector.

    Args:
        corpus: A `DetectionCorpus`.
        preprocessing: A `Preprocessing`; see its `frame`.
        batch_size: Number of images in a batch; all batches are whole.
        max_boxes: Room for boxes in an image; of more, the largest stay. Images that have more as a
            whole are reported by a warning, for the model learns that the others are background.
        augmentation: Optional `BoxAugmentation`, or any function like it.
        seed: Of the order, and of a `BoxAugmentation`.
        epoch: Number of the epoch, an integer or a scalar tensor (see `streams.epochs`): each has
            an endless order of its own, in which all images come before one comes again.

    Returns:
        `tf.data` of inputs `images`, float32 `(batch, height, width, 3)` of the preprocessing's
        `image_size`, zeros where no image is, and `padding_mask`, bool `(batch, height, width)`;
        targets `labels`, int32 `(batch, max_boxes)`, -1 where there is none, and `boxes`, float32
        `(batch, max_boxes, 4)`, centre boxes as fractions of the image without its padding, as
        DETR's authors have them.

    Raises:
        ValueError: If the preprocessing fits no detector, or the corpus has no box to learn from.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import DetectionCorpus, Preprocessing, training_boxes
    >>> corpus = DetectionCorpus.checked(
    ...     "toy", ["cat"], [np.zeros((40, 60, 3), "uint8")], [[[10, 10, 30, 20]]], [[0]])
    >>> inputs, targets = next(iter(training_boxes(corpus, Preprocessing(32), 2, max_boxes=5)))
    >>> tuple(inputs["images"].shape), targets["labels"].numpy().tolist()[0]
    ((2, 32, 32, 3), [0, -1, -1, -1, -1])
    """
    if not corpus.number_of_boxes():
        raise ValueError(f"{corpus.summary()}. There is no box to learn from.")
    count, epoch = len(corpus), tf.cast(epoch, tf.int64)
    passes = tf.data.Dataset.counter()
    indices = passes.flat_map(lambda i: orders(count, count, seed, tf.stack([epoch, i]))).unbatch()
    indices = tf.data.Dataset.zip(indices, keys(seed, epoch))
    examples = _examples(corpus, preprocessing, max_boxes, augmentation, indices)
    return examples.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def evaluation_boxes(
    corpus: DetectionCorpus, preprocessing: Preprocessing, batch_size: int, max_boxes: int
) -> tf.data.Dataset:
    """Every image once, in order; otherwise as `training_boxes`, the last batch may be smaller.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import DetectionCorpus, Preprocessing, evaluation_boxes
    >>> corpus = DetectionCorpus.checked(
    ...     "toy", ["cat"], [np.zeros((40, 60, 3), "uint8")], [[[0, 0, 60, 30]]], [[0]])
    >>> inputs, targets = next(iter(evaluation_boxes(corpus, Preprocessing(30), 2, max_boxes=1)))
    >>> targets["boxes"].numpy().tolist()
    [[[0.5, 0.375, 1.0, 0.75]]]
    """
    indices = tf.data.Dataset.zip(tf.data.Dataset.range(len(corpus)), keys(0, 0))
    examples = _examples(corpus, preprocessing, max_boxes, None, indices)
    number = tf.data.experimental.assert_cardinality(-(-len(corpus) // batch_size))  # for Keras
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE).apply(number)


def _examples(
    corpus: DetectionCorpus,
    preprocessing: Preprocessing,
    max_boxes: int,
    augmentation: Callable[..., tuple[tf.Tensor, tf.Tensor, tf.Tensor]] | None,
    indices: tf.data.Dataset,
) -> tf.data.Dataset:
    preprocessing.check_frame(corpus.name)
    counts = [len(labels) for labels in corpus.labels]
    if getattr(augmentation, "window", None) is None:  # a window shows only some of the boxes
        _warn_of_dropped_boxes(corpus.name, counts, max_boxes)
    with tf.init_scope():  # not as constants of the graph in which `streams.epochs` asks for it
        read = _reader(corpus)
        boxes = tf.RaggedTensor.from_row_lengths(
            np.concatenate([np.zeros((0, 4)), *corpus.boxes]).astype(np.float32), counts
        )
        labels = tf.RaggedTensor.from_row_lengths(
            np.concatenate([np.zeros(0), *corpus.labels]).astype(np.int32), counts
        )

    def example(
        index: tf.Tensor, key: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        image, of_image, of_class = read(index), boxes[index], labels[index]
        if isinstance(augmentation, BoxAugmentation):
            image, of_image, of_class = augmentation(image, of_image, of_class, key)
        elif augmentation is not None:
            image, of_image, of_class = augmentation(image, of_image, of_class)
        pixels, mask, _ = preprocessing.frame(image)
        of_image = of_image / tf.tile(tf.cast(tf.shape(image)[1::-1], tf.float32), [2])
        first, second = of_image[:, :2], of_image[:, 2:]
        areas = tf.reduce_prod(second - first, axis=1)
        _, largest = tf.math.top_k(areas, tf.minimum(max_boxes, tf.size(areas)))
        centers = tf.gather(tf.concat([(first + second) / 2, second - first], axis=1), largest)
        missing = max_boxes - tf.size(largest)
        images = preprocessing.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        inputs = {"images": images, "padding_mask": mask}
        of_class = tf.pad(tf.gather(of_class, largest), [[0, missing]], constant_values=-1)
        return inputs, {
            "labels": tf.ensure_shape(of_class, (max_boxes,)),
            "boxes": tf.ensure_shape(tf.pad(centers, [[0, missing], [0, 0]]), (max_boxes, 4)),
        }

    return indices.map(example, tf.data.AUTOTUNE, deterministic=True)


def _warn_of_dropped_boxes(name: str, counts: Sequence[int], max_boxes: int) -> None:
    """Warns if images have more boxes than the model has queries for."""
    beyond = [count - max_boxes for count in counts if count > max_boxes]
    if beyond:
        warnings.warn(
            f"{name}: {sum(beyond):,} boxes in {len(beyond):,} images are dropped, the smallest of "
            f"each image, because `max_boxes` is {max_boxes} and one image has {max(counts)}. "
            "The model learns that they are background; use a model with more queries.",
            stacklevel=4,
        )


def _reader(corpus: DetectionCorpus) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function of a position to the image there, in the graph."""
    if not isinstance(corpus.images[0], np.ndarray):
        sources = tf.constant(corpus.images)
        files = isinstance(corpus.images[0], str)
        return lambda i: decoded(tf.io.read_file(sources[i]) if files else sources[i])
    # Images of different sizes, one after the other.
    pixels = tf.constant(np.concatenate([np.reshape(image, -1) for image in corpus.images]))
    sizes = tf.constant(corpus.sizes)
    ends = np.cumsum(corpus.sizes.astype(np.int64).prod(axis=1) * 3)
    starts = tf.constant(np.concatenate([[0], ends[:-1]]))
    ends = tf.constant(ends)

    def read(i: tf.Tensor) -> tf.Tensor:
        height, width = sizes[i][0], sizes[i][1]
        return tf.reshape(pixels[starts[i] : ends[i]], (height, width, 3))

    return read
