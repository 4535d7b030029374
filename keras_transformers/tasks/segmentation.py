"""Semantic segmentation: a class for every pixel of an encoded image."""

import pathlib
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath
from keras_transformers.layers.convolutions import old_positions
from keras_transformers.models import SegFormer
from keras_transformers.tasks.classes import named_labels
from keras_transformers.tasks.fitting import Answering, Fitted
from keras_transformers.tasks.image_requests import ImagePredictor, decoded_each
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import Saving, Served
from keras_transformers.vision import Preprocessing
from keras_transformers.vision.decoding import decoded

MOST_PADDED = 1 << 26  # pixels of all padded maps of a request together
PADDING = 4  # padded maps may have as many times the pixels of the images, if that is more
ROWS_OF_PIXELS = 1024  # most pixels of rows that are computed together; one row may have more


class Segmenter(Served):
    """A trained segmenter, its preprocessing and its class names as one function of encoded images.

    It takes `image` string `(batch,)`, JPEG or PNG (GIF, BMP and WebP too) of any size, and gives a
    dict of `map` int32 `(batch, height, width)`, the number of the class of each pixel of the
    upright image, padded with -1 to the largest image of the batch; and `size` int32 `(batch, 2)`,
    height and width of each image. An image is squeezed into the preprocessing's size. Its logits
    are resized to the image's own size, bilinear, few rows at a time, so that a large image takes
    little memory. A request with an empty, foreign or broken file fails with
    `InvalidArgumentError`, which says what is wrong; so does a request whose maps would be padding
    for the most part. The model's weights are shared, not copied. XLA compiles a handful of batch
    sizes; the SavedModel that `save` writes can be called without XLA, see `Served`.

    Args:
        model: A `models.SegFormer`, built.
        labels: Names of the classes.
        preprocessing: The `vision.Preprocessing` of the training, which cuts nothing off
            (`crop=False`) and has the channels of files, 1 or 3.

    Raises:
        ValueError: If the labels are not as many as the model's classes, or the preprocessing cuts
            something off or has other channels.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.export import Segmenter
    >>> from keras_transformers.models import PVT, SegFormer
    >>> from keras_transformers.vision import Preprocessing
    >>> model = SegFormer(2, PVT.from_variant("b0", None, num_layers=(1, 1, 1, 1)), 32)
    >>> model.build((None, 64, 64, 3))
    >>> segmenter = Segmenter(model, ["sky", "road"], Preprocessing(64, crop=False))
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> {name: tuple(value.shape) for name, value in segmenter(tf.stack([png, png])).items()}
    {'map': (2, 40, 30), 'size': (2, 2)}
    """

    kind = "segmenter"

    def __init__(
        self, model: SegFormer, labels: Sequence[str], preprocessing: Preprocessing
    ) -> None:
        super().__init__("segmenter", model, tf.TensorSpec([None], tf.string, name="image"))
        number = model.get_config()["num_classes"]
        self.labels = named_labels("Segmenter", labels, number, f"the model's {number} classes")
        cuts = preprocessing.crop or preprocessing.fit or preprocessing.resized is not None
        if cuts or preprocessing.channels not in (1, 3):
            raise ValueError(
                "Segmenter: `preprocessing` must squeeze the whole image (`crop=False`, "
                "`fit=False`, `resized=None`) and have 1 or 3 channels. Received: "
                f"crop={preprocessing.crop}, fit={preprocessing.fit}, "
                f"resized={preprocessing.resized}, channels={preprocessing.channels}"
            )
        self.preprocessing = preprocessing

    def answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        shape = (*self.preprocessing.image_size, self.preprocessing.channels)
        outputs = (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec((2,), tf.int32))
        pixels, sizes = decoded_each(image, self._decode, outputs)
        shape = self.model.compute_output_shape((None, *shape))
        results = {"logits": tf.TensorSpec(shape, tf.float32)}
        logits = rounds.run(rounds.program(self._logits), [pixels], results)["logits"]
        maps = tf.cond(  # TensorFlow cannot stack zero maps of unknown size
            tf.size(sizes) > 0,
            lambda: padded_maps(logits, sizes),
            lambda: tf.zeros((0, 0, 0), tf.int32),
        )
        return {"map": maps, "size": sizes}

    def _decode(self, encoded: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = decoded(encoded, self.preprocessing.channels)
        return self.preprocessing.resize(image), tf.shape(image)[:2]

    def _logits(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.model(self.preprocessing.normalize(pixels), training=False)
        return {"logits": tf.cast(logits, tf.float32)}


def padded_maps(logits: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Returns the `class_map` of each of several images, padded with -1 to the largest size.

    Args:
        logits: `(images, rows, columns, classes)`.
        sizes: Heights and widths of the images, int32 `(images, 2)`.
    """
    largest = tf.reduce_max(sizes, axis=0)
    with tf.control_dependencies([_check_maps(sizes, largest)]):
        largest = tf.identity(largest)

    def make_map(pair: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        image_logits, size = pair
        missing = largest - size
        widths = [[0, missing[0]], [0, missing[1]]]
        return tf.pad(class_map(image_logits, size), widths, constant_values=-1)

    maps = tf.TensorSpec((None, None), tf.int32)
    return tf.map_fn(make_map, (logits, sizes), fn_output_signature=maps)


def _check_maps(sizes: tf.Tensor, largest: tf.Tensor) -> tf.Operation:
    """Asserts that padded maps are in proportion to the images, int32 `(batch, 2)`."""
    sizes = tf.cast(sizes, tf.int64)
    padded = tf.size(sizes, tf.int64) // 2 * tf.reduce_prod(tf.cast(largest, tf.int64))
    pixels = tf.reduce_sum(tf.reduce_prod(sizes, axis=1))
    message = (
        "the maps of a request, padded to the greatest height and width, must have at most "
        f"{MOST_PADDED} pixels, or {PADDING} times those of the images; send images of such "
        "different sizes apart. Received, of the maps and of the images:"
    )
    fits = padded <= tf.maximum(tf.constant(MOST_PADDED, tf.int64), PADDING * pixels)
    return tf.debugging.Assert(fits, [message, padded, pixels])


def class_map(logits: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the likeliest class of every pixel of an image, int32 `(height, width)`.

    Args:
        logits: `(rows, columns, classes)`.
        size: Height and width of the image, int32.
    """
    first_row, second_row, down = _neighbours(tf.shape(logits)[0], size[0])
    first_column, second_column, along = _neighbours(tf.shape(logits)[1], size[1])
    step = tf.maximum(ROWS_OF_PIXELS // tf.maximum(tf.shape(logits)[1], size[1]), 1)

    def classify_rows(first: tf.Tensor) -> tf.Tensor:
        rows = tf.minimum(first + tf.range(step), size[0] - 1)
        share = tf.gather(down, rows)[:, None, None]
        lines = tf.gather(logits, tf.gather(first_row, rows)) * (1 - share)
        lines += tf.gather(logits, tf.gather(second_row, rows)) * share
        share = along[:, None]
        values: Any = tf.gather(lines, first_column, axis=1) * (1 - share)
        values += tf.gather(lines, second_column, axis=1) * share
        return tf.argmax(values, axis=-1, output_type=tf.int32)

    maps = tf.map_fn(
        classify_rows,
        tf.range(0, size[0], step),
        fn_output_signature=tf.TensorSpec([None, None], tf.int32),
    )
    return tf.reshape(maps, (-1, size[1]))[: size[0]]


def _neighbours(old: tf.Tensor, new: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the two old positions around each new one, and the share of the second."""
    positions = old_positions(old, new)
    first = tf.cast(tf.floor(positions), tf.int32)
    return first, tf.minimum(first + 1, old - 1), positions - tf.cast(first, tf.float32)


def segmenter(
    model: SegFormer,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a segmenter of encoded images. See `Segmenter` and its `save`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import export, models, vision
    >>> encoder = models.PVT.from_variant("b0", None, num_layers=(1, 1, 1, 1))
    >>> model = models.SegFormer(2, encoder, 32)
    >>> model.build((None, 64, 64, 3))
    >>> preprocessing = vision.Preprocessing(64, crop=False)
    >>> path = export.segmenter(model, tempfile.mkdtemp(), ["sky", "road"], preprocessing)
    >>> (path / "saved_model.pb").exists()
    True
    """
    return Segmenter(model, labels, preprocessing).save(path, **saving)


class SegmenterPredictor(ImagePredictor):
    """Gives a class to every pixel: for each image a dict of `map` and `shares`.

    `map` is a list of rows of class numbers, as large as the upright image. `shares` is a dict from
    the names of the classes in the image to their share of the pixels, the largest first.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import SegmenterPredictor
    >>> def segment(image):
    ...     return {"map": tf.constant([[[0, 1], [1, 1]]]), "size": tf.constant([[2, 2]])}
    >>> SegmenterPredictor(segment, ["sky", "road"]).predict(np.zeros((2, 2), "uint8"))
    {'map': [[0, 1], [1, 1]], 'shares': {'road': 0.75, 'sky': 0.25}}
    """

    kind = "segmenter"
    rows = 8

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        height, width = row["size"]
        classes = row["map"][:height, :width]
        shares: dict[str, float] = {}
        for number, pixels in zip(*np.unique(classes, return_counts=True), strict=True):
            name = self.labels[number] if self.labels else str(number)
            shares[name] = shares.get(name, 0.0) + int(pixels) / classes.size
        largest_first = sorted(shares.items(), key=lambda pair: -pair[1])
        return {"map": classes.tolist(), "shares": dict(largest_first)}


class SegmenterFitting(Answering):
    """A model that gives a class to every pixel.

    Example:
    >>> from keras_transformers.fitting import SegmenterFitting
    >>> SegmenterFitting.kind
    'segmenter'
    """

    kind = "segmenter"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        folder = published.folder
        if not isinstance(model, SegFormer) or not model.get_config().get("num_classes"):
            return None
        preprocessing = pretrained.load_preprocessing(folder)
        return cls(Held(model, None, preprocessing, pretrained.class_names(folder)))

    def served(self) -> Any:
        return Segmenter(self.held.model, self.held.labels or (), self.held.preprocessing)


TASKS = (Task(Segmenter, SegmenterPredictor, SegmenterFitting, output="map"),)
