"""Detectors that take encoded images: decoding, fitting and boxes in pixels inside."""

from collections.abc import Sequence
from typing import Any, Literal

import tensorflow as tf

from keras_transformers.detection import best_answers
from keras_transformers.detection.boxes import Answers
from keras_transformers.export.convertible import Convertible
from keras_transformers.export.images import decoded_each
from keras_transformers.export.preprocessing_file import of_fitted_images
from keras_transformers.export.programs import Program, boxes_in_image, detector_program
from keras_transformers.export.rounds import Rounds
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.vision.decoding import decoded
from keras_transformers.vision.preprocessing import Preprocessing


class Detector(Convertible):
    """A trained detector, its preprocessing and its class names as one function of encoded images.

    It takes `image` string `(batch,)`, JPEG or PNG (GIF, BMP and WebP too) of any size, and gives a
    dict of `boxes` float32 `(batch, queries, 4)`, `(left, top, right, bottom)` in pixels of the
    image as it is seen, upright; `label` string `(batch, queries)`; `score` float32 `(batch,
    queries)`, the surest first; and `number` int32 `(batch,)`, how many of them have a score of
    `threshold` or more. No anchors, nothing suppressed. A request with an empty, foreign or broken
    file fails with `InvalidArgumentError`, which says what is wrong. The model's weights are
    shared, not copied. XLA compiles a handful of batch sizes, each when it is first met; what
    `save` writes can be called without XLA, see `Served`.

    Args:
        model: A `models.DETR` or `models.DeformableDETR`, built.
        labels: Names of the classes.
        preprocessing: The `vision.Preprocessing` of the training, with 3 channels; see its `frame`.
        threshold: Score from which on a box is an answer; the others stand behind them.
        boxes_in: What the model's boxes are fractions of: "image", the image without its padding,
            as in the papers; or "frame", the whole `image_size`, as in detectors that were trained
            with version 0.2.0.

    Raises:
        ValueError: If the labels are not as many as the model's classes, the preprocessing fits no
            detector, the threshold is not in [0, 1], or `boxes_in` is unknown.

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
        boxes_in: Literal["image", "frame"] = "image",
    ) -> None:
        super().__init__("detector", tf.TensorSpec([None], tf.string, name="image"))
        settings = model.get_config()
        if len(labels) != settings["num_classes"]:
            raise ValueError(
                f"Detector: `labels` must have a name for each of the model's "
                f"{settings['num_classes']} classes. Received: {len(labels)}"
            )
        preprocessing.check_frame("Detector")
        if not 0 <= threshold <= 1 or boxes_in not in ("image", "frame"):
            raise ValueError(
                'Detector: `threshold` must be in [0, 1], `boxes_in` "image" or "frame". '
                f"Received: threshold={threshold}, boxes_in={boxes_in!r}"
            )
        self._hold(model)
        self._preprocessing = preprocessing
        self._labels = tf.constant(list(labels), tf.string)
        self._threshold = threshold
        self._in_frame = boxes_in == "frame"

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = detector_program(
            self._model, self._preprocessing, self._threshold, self._in_frame
        )
        labels = self.labels or []
        return program, of_fitted_images(self._preprocessing, labels, self._threshold), None

    def _answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        size = self._preprocessing.image_size
        outputs = (
            tf.TensorSpec((*size, 3), tf.uint8),
            tf.TensorSpec(size, tf.bool),
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
        if self._in_frame:
            boxes = boxes_in_image(boxes, inner, size)
        extents = tf.cast(extents, tf.float32)
        boxes = boxes * tf.tile(extents[:, None, ::-1], [1, 1, 2])  # in pixels
        sure = tf.cast(scores >= self._threshold, tf.int32)
        return {
            "boxes": boxes,
            "label": tf.gather(self._labels, labels),
            "score": scores,
            "number": tf.reduce_sum(sure, axis=1),
        }

    def _fitted(self, encoded: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = decoded(encoded, 3)
        return (*self._preprocessing.frame(image), tf.shape(image)[:2])

    def _detect(self, pixels: tf.Tensor, mask: tf.Tensor) -> Answers:
        images = self._preprocessing.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        found = self._model({"images": images, "padding_mask": mask}, training=False)
        classification = self._model.criterion.classification
        return best_answers(found["logits"], found["boxes"], classification)
