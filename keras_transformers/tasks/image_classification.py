"""Image classification: a class or several labels for an encoded image, or for an array."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import Array, ClassProblem, StrPath
from keras_transformers.data.array_files import as_bytes, is_pillow, upright_pillow
from keras_transformers.data.splits import held_out
from keras_transformers.data.table_files import Chosen
from keras_transformers.models import PVT, Swin, ViT
from keras_transformers.models.base import SEVERAL, SINGLE
from keras_transformers.tasks.classes import SEPARATOR, Classes, weights_of_classes
from keras_transformers.tasks.conversion import Program, _of_pixels, of_images
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    class_scores,
    in_two,
    learned,
    split_parts,
    with_adapter,
)
from keras_transformers.tasks.image_requests import (
    ImagePredictor,
    _read,
    _read_array,
    decoded_pixels,
)
from keras_transformers.tasks.predictor import Refused, named_probabilities, received
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import Conversion, Convertible
from keras_transformers.training import classification_accuracy, classification_loss
from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    Preprocessing,
    evaluation_batches,
    read_images,
    training_batches,
)


class ImageClassifier(Convertible):
    """A trained model, its preprocessing and its class names as one function of encoded images.

    It takes `image` string `(batch,)`, JPEG or PNG (GIF, BMP and WebP too) of any size, grey, RGB
    or RGBA, upright as its EXIF says, and gives a dict of `label` string `(batch,)`, `probability`
    float32 `(batch,)` and `probabilities` float32 `(batch, classes)`; where an image can have
    several labels, also `present` bool `(batch, classes)`, and `label` is the most probable. A
    request with an empty, foreign or broken file fails with `InvalidArgumentError`, which says what
    is wrong. What `save` writes is loadable with TensorFlow alone. Where the preprocessing has
    other than 1 or 3 channels, which no such file has, it takes arrays instead: uint8 `(batch,
    height, width, channels)`, of any height and width. The model's weights are shared, not copied.
    XLA compiles a handful of batch sizes, each when it is first met; what `save` writes can be
    called without XLA, see `Served`.

    Args:
        model: A model of `models` with classes, `ViT` or `Swin`, or any Keras model from normalised
            images to logits.
        labels: Names of the classes, one for each logit; two for a single logit, which is the
            second one's.
        preprocessing: The `vision.Preprocessing` of the evaluation; by default one for the model's
            `image_size` and channels, with mean and deviation 0.5.
        problem_type: "single_label_classification" (probabilities sum to 1) or
            "multi_label_classification" (each label by itself); by default the model's, or the
            first. A single logit always is by itself.

    Raises:
        ValueError: If the labels are not as many as the logits, there is no preprocessing, or the
            model's `problem_type` is "regression".

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.export import ImageClassifier
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 1))
    >>> classifier = ImageClassifier(model, ["cat", "dog"])
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> {name: tuple(value.shape) for name, value in classifier(tf.stack([png, png])).items()}
    {'label': (2,), 'probability': (2,), 'probabilities': (2, 2)}
    """

    kind = "image_classifier"

    def __init__(
        self,
        model: keras.Model,
        labels: Sequence[str],
        preprocessing: Preprocessing | None = None,
        problem_type: ClassProblem | None = None,
    ) -> None:
        preprocessing = preprocessing or _of_model(model)
        request = tf.TensorSpec([None], tf.string, name="image")
        arrays = preprocessing.channels not in (1, 3)
        if arrays:
            shape = [None, None, None, preprocessing.channels]
            request = tf.TensorSpec(shape, tf.uint8, name="image")
        super().__init__("image_classifier", model, request)
        self.kind = "array_classifier" if arrays else "image_classifier"
        self.preprocessing = preprocessing
        shape = (*self.preprocessing.image_size, self.preprocessing.channels)
        width = model(keras.Input(shape)).shape[-1]
        self._classes = Classes("ImageClassifier", model, width, labels, problem_type)
        self.labels = self._classes.names
        self._of_pixels = tf.function(
            lambda x: self._probabilities(x, self.compiled_rounds), autograph=False
        )

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = image_program(self.model, self.preprocessing, self._classes)
        return program, of_images(self.preprocessing, self._classes.names), None

    def answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        pixels = self._pixels(image)
        probabilities = self._probabilities(pixels, rounds)
        return self._classes.named_answer(probabilities)

    def _pixels(self, image: tf.Tensor) -> tf.Tensor:
        """The pixels that the model sees, uint8, of encoded images or arrays."""
        shape = (*self.preprocessing.image_size, self.preprocessing.channels)
        outputs = tf.TensorSpec(shape, tf.uint8)
        if self.kind == "array_classifier":
            return tf.map_fn(self.preprocessing.resize, image, fn_output_signature=outputs)
        return decoded_pixels(self.preprocessing, image)

    def _probabilities(self, pixels: tf.Tensor, rounds: Rounds) -> tf.Tensor:
        results = {"probabilities": tf.TensorSpec([None, len(self._classes)], tf.float32)}
        classify = rounds.program(self._classify)
        return rounds.run(classify, [pixels], results)["probabilities"]

    def _classify(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.model(self.preprocessing.normalize(pixels), training=False)
        return {"probabilities": self._classes.probabilities(logits)}

    def probabilities(self, images: ImageCorpus) -> Array:
        """Class probabilities `(n, classes)`, NumPy float32, of an `ImageCorpus`."""
        batches = images.batches(512, self.preprocessing)
        return np.concatenate([self._of_pixels(pixels).numpy() for pixels, _ in batches])


def _of_model(model: Any) -> Preprocessing:
    config = model.get_config()
    if "image_size" not in config or not model.built:
        raise ValueError(
            f"ImageClassifier: `preprocessing` must be given for {type(model).__name__}, which "
            "has no `image_size` or is not built. Received: None"
        )
    return Preprocessing(tuple(config["image_size"]), model.channels)


def image_classifier(
    model: keras.Model,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing | None = None,
    problem_type: ClassProblem | None = None,
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports a classifier of encoded images. See `ImageClassifier` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models
    >>> model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> path = export.image_classifier(model, tempfile.mkdtemp(), ["cat", "dog"])
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(image=tf.io.encode_png(tf.zeros((9, 9, 3), tf.uint8))[None]))
    ['label', 'probabilities', 'probability']
    """
    return ImageClassifier(model, labels, preprocessing, problem_type).save(path, **saving)


def image_program(model: Any, preprocessing: Preprocessing, classes: Classes) -> Program:
    """Pixels as `Preprocessing.decode` gives them -> classes; normalising is inside."""

    def answer(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return _of_pixels("image_classifier", model, preprocessing, answer, "probabilities")


class ImageClassifierPredictor(ImagePredictor):
    """Classifies images: a dict of `label`, `probability` and `probabilities`.

    `probabilities` is a dict from the name of each class; where the names are not known, from "0",
    "1", ... Where an image can have several labels, `labels` is the list of those that it has.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ImageClassifierPredictor
    >>> def classify(image):
    ...     return {"label": tf.constant(["cat"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]])}
    >>> classifier = ImageClassifierPredictor(classify, ["cat", "dog"])
    >>> classifier.predict(np.zeros((28, 28), "uint8"))["label"]
    'cat'
    """

    kind = "image_classifier"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        return named_probabilities(row, self.labels)


class ArrayClassifierPredictor(ImageClassifierPredictor):
    """Classifies arrays of more channels than images have: as `ImageClassifierPredictor`.

    Each is a uint8 array `(height, width, channels)` or one of floats in [0, 1], a `.npy` file or
    the bytes of one.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ArrayClassifierPredictor
    >>> def classify(image):
    ...     return {"label": tf.constant(["sea"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]])}
    >>> classifier = ArrayClassifierPredictor(classify, ["sea", "land"])
    >>> classifier.predict(np.zeros((8, 9, 13), "uint8"))["label"]
    'sea'
    """

    kind = "array_classifier"

    def _encoded(self, item: Any) -> Any:
        if isinstance(item, str | pathlib.PurePath):
            item = _read(item)
        if isinstance(item, bytes | bytearray):
            item = _read_array(bytes(item))
        if is_pillow(item):
            item = np.asarray(upright_pillow(item))
        if not isinstance(item, np.ndarray) or item.ndim not in (2, 3) or 0 in item.shape:
            raise ValueError(
                "must be an array (height, width, channels), or a .npy file of one. "
                f"{received(item)}"
            )
        return as_bytes(item if item.ndim == 3 else item[..., None])

    def _found(self, arrays: list[Any], details: bool, first: int) -> list[Any]:
        """The answers, those to arrays of one shape together."""
        answers = [None] * len(arrays)
        for shape in dict.fromkeys(each.shape for each in arrays):
            positions = [i for i, each in enumerate(arrays) if each.shape == shape]
            try:
                found = super()._found([arrays[i] for i in positions], details, first)
            except (TypeError, ValueError) as error:  # of another shape than is declared
                found = [Refused(self._failure(error))] * len(positions)
            for position, answer in zip(positions, found, strict=True):
                answers[position] = answer
        return answers

    def _request_of(self, items: list[Any]) -> tf.Tensor:
        return tf.constant(np.stack(items))

    def _failure(self, error: Exception) -> str:
        return "must have as many channels as the model."


IN_MEMORY = 2**31  # bytes of pixels; what has more is read from its files in every epoch
CROP_SHARE = 16  # of the side: padding around the random crop


class ImageClassifierFitting(Fitted):
    """A classifier of images.

    Example:
    >>> from keras_transformers.fitting import ImageClassifierFitting
    >>> ImageClassifierFitting.kind
    'image_classifier'
    """

    kind = "image_classifier"
    choices = ("problem_type", "class_weights", "label_separator", "augmentation")

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model, folder = published.model, published.folder
        if not isinstance(model, ViT | Swin | PVT) or not model.get_config().get("num_classes"):
            return None
        preprocessing = pretrained.load_preprocessing(folder)
        return cls(Held(model, None, preprocessing, pretrained.class_names(folder)))

    def served(self) -> Any:
        of = self.held
        return ImageClassifier(of.model, of.labels or (), of.preprocessing, **of.options)

    def fit(
        self,
        data: Any,
        valid: Any,
        asked: Asked,
        problem_type: ClassProblem = "single_label_classification",
        class_weights: str | Mapping[str, float] | None = None,
        label_separator: str = SEPARATOR,
        augmentation: Augmentation | None = None,
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on images and their labels.

        Args:
            data, valid: What `vision.read_images` reads; `valid` None holds some out. Of a folder
                with parts such as `train` and `test` see `base.split_parts`.
            asked: See there.
            problem_type: "multi_label_classification" where an image can have several labels.
            class_weights: "balanced", or a dict from names to what an image of the class counts.
            label_separator: What stands between these in one str.
            augmentation: How images are changed at random; by default they are mirrored and moved a
                little.

        Returns:
            The classifier, and the history.
        """
        data, valid = split_parts(data, valid, asked.verbose)
        between = label_separator if problem_type == SEVERAL else None
        train = read_images(data, None, between, asked.columns)
        if self.held.labels and set(train.classes) <= set(self.held.labels):
            train = read_images(data, self.held.labels, between, asked.columns)
        watched = None
        if valid is not None:
            watched = read_images(valid, train.classes, between, asked.columns)
        train, watched = in_two(asked, train, watched, split_images)
        if problem_type != SEVERAL and len(train.classes) < 2:
            raise ValueError(
                f"{train.summary()}. There is nothing to tell apart: all have one class."
            )
        weights = None
        if class_weights is not None:
            weights = weights_of_classes(class_weights, train.classes, train.labels, problem_type)
        held = self._with_head(train, problem_type)
        held = dataclasses.replace(held, label_separator=label_separator)
        of, numbers = held.preprocessing, asked.numbers(len(train), "image")
        if (len(train) + len(watched)) * np.prod(of.image_size) * of.channels < IN_MEMORY:
            train, watched = train.decoded(of), watched.decoded(of)
        size = min(numbers.batch_size, len(train))
        change = augmentation or Augmentation(
            crop_padding=of.image_size[0] // CROP_SHARE, flip=True, seed=asked.seed
        )

        def batches(epoch: Any) -> tf.data.Dataset:
            found = training_batches(train, of, size, change, asked.seed, epoch)
            if weights is None:
                return found
            # Of mixed images the labels are shares, by which their classes' weights are mixed.
            return found.map(lambda x, y: (x, y, tf.linalg.matvec(y, weights)))

        history = learned(
            held.model,
            batches,
            evaluation_batches(watched, of, size),
            numbers,
            asked,
            loss=classification_loss(problem_type),
            metrics=[classification_accuracy(problem_type)],
        )
        return ImageClassifierFitting(held), history

    def _with_head(self, train: ImageCorpus, problem_type: ClassProblem) -> Held:
        of, model = self.held, self.held.model
        problem = model.problem_type or SINGLE
        if list(of.labels or ()) == train.classes and problem == problem_type:
            return with_adapter(of, False)
        model = model.transferred(num_classes=len(train.classes), problem_type=problem_type)
        return with_adapter(
            dataclasses.replace(of, model=model, labels=train.classes, options={}), True
        )

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Scores classes, see `class_scores`."""
        has_several = self.held.model.problem_type == SEVERAL
        separator = (self.held.label_separator or SEPARATOR) if has_several else None
        corpus = read_images(data, self.held.labels or (), separator, columns, True)
        scores = class_scores(self.served().probabilities(corpus), corpus.labels, corpus.classes)
        return {**scores, "left_out": sum(corpus.left_out.values())}


def split_images(corpus: ImageCorpus, seed: int) -> tuple[ImageCorpus, ImageCorpus]:
    """What is learned from, and what `splits.held_out` chooses: of every class the same share."""
    strata = None if corpus.several else corpus.labels.tolist()
    chosen = held_out(corpus.content_keys(), seed, strata)
    return corpus.select(np.flatnonzero(~chosen)), corpus.select(np.flatnonzero(chosen))


TASKS = (
    Task(ImageClassifier, ImageClassifierPredictor, ImageClassifierFitting),
    Task(ImageClassifier, ArrayClassifierPredictor),
)
