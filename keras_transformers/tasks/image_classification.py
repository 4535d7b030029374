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
from keras_transformers.tasks.conversion import Program, image_settings, pixel_program
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    attach_adapter,
    class_scores,
    hold_out_part,
    split_parts,
    train_model,
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
    or RGBA, and turns it upright as its EXIF says. It gives a dict of `label` string `(batch,)`,
    `probability` float32 `(batch,)` and `probabilities` float32 `(batch, classes)`. If an image can
    have several labels, `label` is the most probable, and a further output is `present` bool
    `(batch, classes)`. A request with an empty, foreign or broken file fails with
    `InvalidArgumentError`, which says what is wrong.

    If the preprocessing has other than 1 or 3 channels, which no such file has, it takes arrays
    instead: uint8 `(batch, height, width, channels)`, of any height and width. The model's weights
    are shared, not copied. XLA compiles a handful of batch sizes, each when it is first used. The
    SavedModel that `save` writes is loadable with TensorFlow alone, and can be called without XLA,
    see `Served`.

    Args:
        model: A model of `models` with classes, `ViT` or `Swin`, or any Keras model from normalised
            images to logits.
        labels: Names of the classes, one for each logit. A single logit can have two names; it
            belongs to the second.
        preprocessing: The `vision.Preprocessing` of the evaluation; by default one for the model's
            `image_size` and channels, with mean and deviation 0.5.
        problem_type: "single_label_classification" (probabilities sum to 1) or
            "multi_label_classification" (each label has its own probability); by default the
            model's, or the first. A single logit always has its own probability.

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
        preprocessing = preprocessing or _default_preprocessing(model)
        request = tf.TensorSpec([None], tf.string, name="image")
        takes_arrays = preprocessing.channels not in (1, 3)
        if takes_arrays:
            shape = [None, None, None, preprocessing.channels]
            request = tf.TensorSpec(shape, tf.uint8, name="image")
        super().__init__("image_classifier", model, request)
        self.kind = "array_classifier" if takes_arrays else "image_classifier"
        self.preprocessing = preprocessing
        inputs = keras.Input((*preprocessing.image_size, preprocessing.channels))
        width = model(inputs).shape[-1]
        self._classes = Classes("ImageClassifier", model, width, labels, problem_type)
        self.labels = self._classes.names
        self._classify_pixels = tf.function(
            lambda x: self._probabilities(x, self.compiled_rounds), autograph=False
        )

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = image_program(self.model, self.preprocessing, self._classes)
        return program, image_settings(self.preprocessing, self._classes.names), None

    def answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        pixels = self._read_pixels(image)
        probabilities = self._probabilities(pixels, rounds)
        return self._classes.named_answer(probabilities)

    def _read_pixels(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the pixels that the model sees, uint8, of encoded images or arrays."""
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
        """Returns class probabilities `(n, classes)`, NumPy float32, of an `ImageCorpus`."""
        batches = images.batches(512, self.preprocessing)
        return np.concatenate([self._classify_pixels(pixels).numpy() for pixels, _ in batches])


def _default_preprocessing(model: Any) -> Preprocessing:
    """Returns the preprocessing for a model's image size and channels."""
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
    """Returns the program from pixels, as `Preprocessing.decode` gives them, to classes."""

    def answer(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return pixel_program("image_classifier", model, preprocessing, answer, "probabilities")


class ImageClassifierPredictor(ImagePredictor):
    """Classifies images: a dict of `label`, `probability` and `probabilities`.

    `probabilities` is a dict from the name of each class, or from "0", "1", ... if the names are
    not known. If an image can have several labels, `labels` lists the labels that it has.

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
    """Classifies arrays of more channels than images have, as `ImageClassifierPredictor`.

    An item is an array `(height, width, channels)`, uint8 or floats in [0, 1], a `.npy` file of
    one, or the bytes of such a file.

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

    def _answer_strings(self, arrays: list[Any], details: bool, first: int) -> list[Any]:
        """Returns the answers; arrays of one shape are computed together."""
        answers = [None] * len(arrays)
        for shape in dict.fromkeys(array.shape for array in arrays):
            positions = [i for i, array in enumerate(arrays) if array.shape == shape]
            try:
                group = super()._answer_strings([arrays[i] for i in positions], details, first)
            except (TypeError, ValueError) as error:  # of another shape than is declared
                group = [Refused(self._failure(error))] * len(positions)
            for position, answer in zip(positions, group, strict=True):
                answers[position] = answer
        return answers

    def _request_of(self, items: list[Any]) -> tf.Tensor:
        return tf.constant(np.stack(items))

    def _failure(self, error: Exception) -> str:
        return "must have as many channels as the model."


IN_MEMORY = 2**31  # bytes of pixels; a larger corpus is read from its files in every epoch
CROP_SHARE = 16  # the padding around a random crop is this part of the side


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
        model = published.model
        folder = published.folder
        if not isinstance(model, ViT | Swin | PVT) or not model.get_config().get("num_classes"):
            return None
        preprocessing = pretrained.load_preprocessing(folder)
        return cls(Held(model, None, preprocessing, pretrained.class_names(folder)))

    def served(self) -> Any:
        held = self.held
        return ImageClassifier(held.model, held.labels or (), held.preprocessing, **held.options)

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
            data, valid: As `vision.read_images` reads them; with None, a part of `data` is
                `valid`. For a folder with parts such as `train` and `test` see
                `fitting.split_parts`.
            asked: Settings of the training.
            problem_type: "multi_label_classification" if an image can have several labels.
            class_weights: "balanced", or a dict from names to the weight of an image of the class.
            label_separator: Separator of several labels in one str.
            augmentation: Random changes of images; by default they are mirrored and moved a little.

        Returns:
            The classifier, and the history.
        """
        data, valid = split_parts(data, valid, asked.verbose)
        separator = label_separator if problem_type == SEVERAL else None
        train = read_images(data, None, separator, asked.columns)
        if self.held.labels and set(train.classes) <= set(self.held.labels):
            train = read_images(data, self.held.labels, separator, asked.columns)
        watched = None
        if valid is not None:
            watched = read_images(valid, train.classes, separator, asked.columns)
        train, watched = hold_out_part(asked, train, watched, split_images)
        if problem_type != SEVERAL and len(train.classes) < 2:
            raise ValueError(
                f"{train.summary()}. There is nothing to tell apart: all have one class."
            )
        weights = None
        if class_weights is not None:
            weights = weights_of_classes(class_weights, train.classes, train.labels, problem_type)
        held = self._prepare_head(train, problem_type)
        held = dataclasses.replace(held, label_separator=label_separator)
        preprocessing = held.preprocessing
        numbers = asked.numbers(len(train), "image")
        bytes_of_image = np.prod(preprocessing.image_size) * preprocessing.channels
        if (len(train) + len(watched)) * bytes_of_image < IN_MEMORY:
            train = train.decoded(preprocessing)
            watched = watched.decoded(preprocessing)
        size = min(numbers.batch_size, len(train))
        if augmentation is None:
            padding = preprocessing.image_size[0] // CROP_SHARE
            augmentation = Augmentation(crop_padding=padding, flip=True, seed=asked.seed)

        def make_batches(epoch: Any) -> tf.data.Dataset:
            batches = training_batches(train, preprocessing, size, augmentation, asked.seed, epoch)
            if weights is None:
                return batches
            # A mixed image has shares of several classes, and the same shares of their weights.
            return batches.map(lambda x, y: (x, y, tf.linalg.matvec(y, weights)))

        history = train_model(
            held.model,
            make_batches,
            evaluation_batches(watched, preprocessing, size),
            numbers,
            asked,
            loss=classification_loss(problem_type),
            metrics=[classification_accuracy(problem_type)],
        )
        return ImageClassifierFitting(held), history

    def _prepare_head(self, train: ImageCorpus, problem_type: ClassProblem) -> Held:
        """Returns the model to train, which gets a new head unless its own has these classes."""
        held = self.held
        problem = held.model.problem_type or SINGLE
        if list(held.labels or ()) == train.classes and problem == problem_type:
            return attach_adapter(held, False)
        model = held.model.transferred(num_classes=len(train.classes), problem_type=problem_type)
        held = dataclasses.replace(held, model=model, labels=train.classes, options={})
        return attach_adapter(held, True)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Scores classes, see `class_scores`."""
        has_several = self.held.model.problem_type == SEVERAL
        separator = (self.held.label_separator or SEPARATOR) if has_several else None
        corpus = read_images(data, self.held.labels or (), separator, columns, True)
        scores = class_scores(self.served().probabilities(corpus), corpus.labels, corpus.classes)
        return {**scores, "left_out": sum(corpus.left_out.values())}


def split_images(corpus: ImageCorpus, seed: int) -> tuple[ImageCorpus, ImageCorpus]:
    """Splits images for training and validation by `splits.held_out`, by class in proportion."""
    strata = None if corpus.several else corpus.labels.tolist()
    is_held_out = held_out(corpus.content_keys(), seed, strata)
    train = corpus.select(np.flatnonzero(~is_held_out))
    return train, corpus.select(np.flatnonzero(is_held_out))


TASKS = (
    Task(ImageClassifier, ImageClassifierPredictor, ImageClassifierFitting),
    Task(ImageClassifier, ArrayClassifierPredictor),
)
