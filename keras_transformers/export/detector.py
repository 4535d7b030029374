"""Detectors that take encoded images: decoding, fitting and boxes in pixels inside."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.detection import best_answers
from keras_transformers.detection.answers import Answers
from keras_transformers.export.convertible import Convertible
from keras_transformers.export.images import decoded_each
from keras_transformers.export.preprocessing_file import of_fitted_images
from keras_transformers.export.programs import Program, detector_program
from keras_transformers.export.rounds import Rounds
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.vision import fitted
from keras_transformers.vision.decoding import decoded
from keras_transformers.vision.preprocessing import Preprocessing


class Detector(Convertible):
    """A trained detector, its preprocessing and its class names as one function of encoded images.

    It takes `image` string `(batch,)`, JPEG or PNG (GIF, BMP and WebP too) of any size, and gives a
    dict of `boxes` float32 `(batch, queries, 4)`, `(left, top, right, bottom)` in pixels of the
    image as it is seen, upright; `label` string `(batch, queries)`; `score` float32 `(batch,
    queries)`, the surest first; and `number` int32 `(batch,)`, how many of them have a score of
    `threshold` or more. No anchors, nothing suppressed. An image is scaled to fit into the
    preprocessing's square and its boxes are scaled back. A request with an empty, foreign or broken
    file fails with `InvalidArgumentError`, which says what is wrong. The model's weights are
    shared, not copied. XLA compiles a handful of batch sizes, each when it is first met; what
    `save` writes can be called without XLA, see `Served`.

    Args:
        model: A `models.DETR` or `models.DeformableDETR`, built.
        labels: Names of the classes.
        preprocessing: The `vision.Preprocessing` of the training, with a square `image_size` and 3
            channels.
        threshold: Score from which on a box is an answer; the others stand behind them.

    Raises:
        ValueError: If the labels are not as many as the model's classes, `image_size` is no square,
            or the threshold is not in [0, 1].

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.export import Detector
    >>> from keras_transformers.models import DETR
    >>> from keras_transformers.vision import Preprocessing
    >>> model = DETR.from_variant("mini", num_classes=2)
    >>> model.build((None, 128, 128, 3))
    >>> detector = Detector(model, ["cat", "dog"], Preprocessing(128))
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> {name: tuple(value.shape) for name, value in detector(tf.stack([png, png])).items()}
    {'boxes': (2, 40, 4), 'label': (2, 40), 'score': (2, 40), 'number': (2,)}
    """

    kind = "detector"

    def __init__(
        self,
        model: SetDetector,
        labels: Sequence[str],
        preprocessing: Preprocessing,
        threshold: float = 0.5,
    ) -> None:
        super().__init__("detector", tf.TensorSpec([None], tf.string, name="image"))
        settings = model.get_config()
        size = preprocessing.image_size
        if len(labels) != settings["num_classes"]:
            raise ValueError(
                f"Detector: `labels` must have a name for each of the model's "
                f"{settings['num_classes']} classes. Received: {len(labels)}"
            )
        if size[0] != size[1] or preprocessing.channels != 3 or not 0 <= threshold <= 1:
            raise ValueError(
                "Detector: `preprocessing` must have a square `image_size` and 3 channels, "
                f"`threshold` be in [0, 1]. Received: image_size={size}, "
                f"channels={preprocessing.channels}, threshold={threshold}"
            )
        self._hold(model)
        self._preprocessing = preprocessing
        self._labels = tf.constant(list(labels), tf.string)
        self._side, self._threshold = size[0], threshold

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = detector_program(self._model, self._preprocessing, self._threshold)
        labels = self.labels or []
        return program, of_fitted_images(self._preprocessing, labels, self._threshold), None

    def _answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        side = self._side
        outputs = (
            tf.TensorSpec((side, side, 3), tf.uint8),
            tf.TensorSpec((side, side), tf.bool),
            tf.TensorSpec((2,), tf.int32),
            tf.TensorSpec((2,), tf.int32),
        )
        pixels, mask, inner, extents = decoded_each(image, self._fitted, outputs)
        queries = self._model.queries.num_queries
        results = {
            "boxes": tf.TensorSpec([None, queries, 4], tf.float32),
            "labels": tf.TensorSpec([None, queries], tf.int32),
            "scores": tf.TensorSpec([None, queries], tf.float32),
        }
        found = rounds.run(rounds.program(self._detect), [pixels, mask], results)
        boxes, labels, scores = (found[name] for name in results)
        # Shares of the square -> pixels of the image, inside of it.
        extents = tf.cast(extents, tf.float32)
        factors = side * extents / tf.cast(inner, tf.float32)
        boxes = boxes * tf.tile(factors[:, None, ::-1], [1, 1, 2])
        boxes = tf.minimum(boxes, tf.tile(extents[:, None, ::-1], [1, 1, 2]))
        sure = tf.cast(scores >= self._threshold, tf.int32)
        return {
            "boxes": boxes,
            "label": tf.gather(self._labels, labels),
            "score": scores,
            "number": tf.reduce_sum(sure, axis=1),
        }

    def _fitted(self, encoded: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = decoded(encoded, 3)
        return (*fitted(image, self._side), tf.shape(image)[:2])

    def _detect(self, pixels: tf.Tensor, mask: tf.Tensor) -> Answers:
        images = self._preprocessing.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        found = self._model({"images": images, "padding_mask": mask}, training=False)
        classification = self._model.criterion.classification
        return best_answers(found["logits"], found["boxes"], classification)
