"""Object detection: boxes in an encoded image."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath
from keras_transformers.detection import Answers, best_answers
from keras_transformers.models import DETR, DeformableDETR
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.pretrained.files import read_json
from keras_transformers.pretrained.images import boxes_in
from keras_transformers.tasks.classes import named_labels
from keras_transformers.tasks.conversion import Program, image_settings, sample_pixels
from keras_transformers.tasks.fitting import Answering, Fitted
from keras_transformers.tasks.image_requests import ImagePredictor, decoded_each
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import Conversion, Convertible
from keras_transformers.vision import Preprocessing
from keras_transformers.vision.decoding import decoded


class Detector(Convertible):
    """A trained detector, its preprocessing and its class names as one function of encoded images.

    It takes `image` string `(batch,)`, JPEG or PNG (GIF, BMP and WebP too) of any size, and gives a
    dict of `boxes` float32 `(batch, queries, 4)`, `(left, top, right, bottom)` in pixels of the
    upright image; `label` string `(batch, queries)`; `score` float32 `(batch, queries)`, the
    highest first; and `number` int32 `(batch,)`, the number of boxes with a score of `threshold` or
    more. There are no anchors, and no box is suppressed. A request with an empty, foreign or broken
    file fails with `InvalidArgumentError`, which says what is wrong. The model's weights are
    shared, not copied. XLA compiles a handful of batch sizes, each when it is first used; the
    SavedModel that `save` writes can be called without XLA, see `Served`.

    Args:
        model: A `models.DETR` or `models.DeformableDETR`, built.
        labels: Names of the classes.
        preprocessing: The `vision.Preprocessing` of the training, with 3 channels; see its `frame`.
        threshold: Lowest score of a box that is an answer; the other boxes stand behind these.
        boxes_in: Frame of reference of the model's boxes, which are fractions: "image", the image
            without its padding, as in the papers; or "frame", the whole `image_size`, as in
            detectors that were trained with version 0.2.0.

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
        super().__init__("detector", model, tf.TensorSpec([None], tf.string, name="image"))
        number = model.get_config()["num_classes"]
        self.labels = named_labels("Detector", labels, number, f"the model's {number} classes")
        preprocessing.check_frame("Detector")
        if not 0 <= threshold <= 1 or boxes_in not in ("image", "frame"):
            raise ValueError(
                'Detector: `threshold` must be in [0, 1], `boxes_in` "image" or "frame". '
                f"Received: threshold={threshold}, boxes_in={boxes_in!r}"
            )
        self.preprocessing = preprocessing
        self._threshold = threshold
        self._in_frame = boxes_in == "frame"

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = detector_program(self.model, self.preprocessing, self._threshold, self._in_frame)
        labels = self.labels or []
        return program, frame_settings(self.preprocessing, labels, self._threshold), None

    def answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        size = self.preprocessing.image_size
        outputs = (
            tf.TensorSpec((*size, 3), tf.uint8),
            tf.TensorSpec(size, tf.bool),
            tf.TensorSpec((2,), tf.int32),
            tf.TensorSpec((2,), tf.int32),
        )
        pixels, mask, inner, extents = decoded_each(image, self._fitted, outputs)
        queries = self.model.queries.num_queries
        results = {
            "boxes": tf.TensorSpec([None, queries, 4], tf.float32),
            "labels": tf.TensorSpec([None, queries], tf.int32),
            "scores": tf.TensorSpec([None, queries], tf.float32),
        }
        answers = rounds.run(rounds.program(self._detect), [pixels, mask], results)
        boxes = answers["boxes"]
        if self._in_frame:
            boxes = boxes_in_image(boxes, inner, size)
        extents = tf.cast(extents, tf.float32)
        boxes = boxes * tf.tile(extents[:, None, ::-1], [1, 1, 2])  # in pixels
        return {
            "boxes": boxes,
            "label": tf.gather(tf.constant(self.labels, tf.string), answers["labels"]),
            "score": answers["scores"],
            "number": _count_sure(answers["scores"], self._threshold),
        }

    def _fitted(self, encoded: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image = decoded(encoded, 3)
        return (*self.preprocessing.frame(image), tf.shape(image)[:2])

    def _detect(self, pixels: tf.Tensor, mask: tf.Tensor) -> Answers:
        images = self.preprocessing.normalize(pixels) * tf.cast(mask, tf.float32)[..., None]
        return _best_boxes(self.model, images, mask)


def detector(
    model: SetDetector,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    threshold: float = 0.5,
    boxes_in: Literal["image", "frame"] = "image",
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports a detector of encoded images. See `Detector` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, vision
    >>> model = models.DETR.from_variant("mini", num_classes=1, num_queries=4)
    >>> model.build((None, 64, 64, 3))
    >>> path = export.detector(model, tempfile.mkdtemp(), ["cat"], vision.Preprocessing(64))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(image=tf.io.encode_png(tf.zeros((9, 12, 3), tf.uint8))[None]))
    ['boxes', 'label', 'number', 'score']
    """
    return Detector(model, labels, preprocessing, threshold, boxes_in).save(path, **saving)


def detector_program(
    model: Any, preprocessing: Preprocessing, threshold: float, in_frame: bool
) -> Program:
    """Returns the program from pixels, and the size of the image in them, to boxes.

    Args:
        model: The detector.
        preprocessing: The preprocessing, whose `frame` makes the pixels.
        threshold: Lowest score of a box that counts in `number`.
        in_frame: Whether the model's boxes are fractions of the frame, not of the image.
    """
    size = preprocessing.image_size
    height, width = size
    signature = [
        tf.TensorSpec([None, *size, 3], tf.uint8, name="pixels"),
        tf.TensorSpec([None, 2], tf.int32, name="content_size"),
    ]

    @tf.function(input_signature=signature, autograph=False)
    def detect(pixels: tf.Tensor, content_size: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = tf.range(height) < content_size[:, :1]
        columns = tf.range(width) < content_size[:, 1:]
        mask = tf.expand_dims(rows, 2) & tf.expand_dims(columns, 1)
        images = preprocessing.normalize(pixels)
        images = images * tf.expand_dims(tf.cast(mask, tf.float32), 3)
        answers = _best_boxes(model, images, mask)
        boxes = answers["boxes"]
        if in_frame:
            boxes = boxes_in_image(boxes, content_size, size)
        return {
            "boxes": boxes,
            "score": answers["scores"],
            "label": answers["labels"],
            "number": _count_sure(answers["scores"], threshold),
        }

    content = np.array([[height, width], [height, width - width // 4]], "int32")
    sample = {"pixels": sample_pixels((*size, 3)), "content_size": content}
    return Program("detector", model, detect, sample, "score")


def _best_boxes(model: Any, images: tf.Tensor, mask: tf.Tensor) -> Answers:
    """Runs a detector on normalised images, whose padding is False in the mask."""
    outputs = model({"images": images, "padding_mask": mask}, training=False)
    return best_answers(outputs["logits"], outputs["boxes"], model.criterion.classification)


def _count_sure(scores: tf.Tensor, threshold: float) -> tf.Tensor:
    """Counts the boxes of each image that have a score of `threshold` or more."""
    return tf.reduce_sum(tf.cast(scores >= threshold, tf.int32), axis=1)


def boxes_in_image(boxes: tf.Tensor, inner: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Turns fractions of a frame of `size` into fractions of the images in it.

    Args:
        boxes: float32 `(batch, boxes, 4)`, corner boxes.
        inner: int32 `(batch, 2)`, height and width of each image there.
    """
    factors = tf.constant(size, tf.float32) / tf.cast(inner, tf.float32)
    return tf.minimum(boxes * tf.tile(factors[:, None, ::-1], [1, 1, 2]), 1.0)


def frame_settings(
    preprocessing: Preprocessing, labels: Sequence[str], threshold: float
) -> dict[str, Any]:
    """Returns the entries of `preprocessing.json` for images that `Preprocessing.frame` makes."""
    framed = dataclasses.replace(preprocessing, fit=preprocessing.fit or preprocessing.crop)
    return image_settings(framed, labels) | {"threshold": threshold}


class DetectorPredictor(ImagePredictor):
    """Finds boxes: for each image a list of dicts of `label`, `score` and `box`, surest first.

    A box is `[left, top, right, bottom]` in pixels of the upright image. An answer has the boxes
    with a score of the model's threshold or more; with `details` all boxes.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import DetectorPredictor
    >>> def detect(image):
    ...     return {"boxes": tf.constant([[[0., 0, 9, 5], [1, 1, 2, 2]]]),
    ...             "label": tf.constant([["cat", "dog"]]), "score": tf.constant([[0.75, 0.25]]),
    ...             "number": tf.constant([1])}
    >>> DetectorPredictor(detect).predict(np.zeros((28, 28), "uint8"))
    [{'label': 'cat', 'score': 0.75, 'box': [0.0, 0.0, 9.0, 5.0]}]
    """

    kind = "detector"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        number = len(row["score"]) if details else int(row["number"])
        boxes = zip(row["label"], row["score"].tolist(), row["boxes"].tolist(), strict=True)
        answers = [{"label": n.decode(), "score": s, "box": box} for n, s, box in boxes]
        return answers[:number]


class DetectorFitting(Answering):
    """A detector: `options` are `threshold` and `boxes_in` of `export.Detector`.

    Example:
    >>> from keras_transformers.fitting import DetectorFitting
    >>> DetectorFitting.kind
    'detector'
    """

    kind = "detector"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        folder = published.folder
        if not isinstance(model, DETR | DeformableDETR):
            return None
        if not model.get_config().get("num_classes"):
            return None
        preprocessing = pretrained.load_preprocessing(folder)
        labels = pretrained.class_names(folder)
        return cls(Held(model, None, preprocessing, labels, {"boxes_in": boxes_in(folder)}))

    @classmethod
    def options_of_run(
        cls, folder: pathlib.Path, predictor: Any, numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        settings = read_json(folder, "preprocessing.json")
        # Boxes of version 0.2.0 are fractions of the frame.
        options: dict[str, Any] = {"boxes_in": "image" if "fit" in settings else "frame"}
        if (folder / "metrics.json").is_file():
            metrics = read_json(folder, "metrics.json")
            options["threshold"] = metrics.get("test_threshold", 0.5)
        return options

    def served(self) -> Any:
        held = self.held
        return Detector(held.model, held.labels or (), held.preprocessing, **held.options)


TASKS = (Task(Detector, DetectorPredictor, DetectorFitting, output="boxes"),)
