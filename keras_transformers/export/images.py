"""Image classifiers that take encoded images: decoding and preprocessing inside."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, ClassProblem
from keras_transformers.data.array_files import ANIMATED
from keras_transformers.export.classes import Classes
from keras_transformers.export.convertible import Convertible
from keras_transformers.export.preprocessing_file import of_images
from keras_transformers.export.programs import Program, image_program
from keras_transformers.export.rounds import Rounds
from keras_transformers.vision import Preprocessing
from keras_transformers.vision.corpus import ImageCorpus
from keras_transformers.vision.decoding import NAMES, is_animated, kinds


def decoded_each(
    image: tf.Tensor,
    decode: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[tf.Tensor, ...]:
    """`decode` of each encoded image of a request, string `(batch,)`, one after the other.

    What cannot be decoded fails with its number in the request.

    Args:
        image: String tensor `(batch,)`.
        decode: Function of one of them that gives a tuple of tensors.
        outputs: Tuple of their `tf.TensorSpec`s.
    """
    results: tuple[tf.Tensor, ...] = tf.map_fn(
        lambda pair: _decoded_or_named(pair[0], pair[1], decode, outputs),
        (tf.range(tf.size(image)), image),
        fn_output_signature=outputs,
    )
    return results


def _decoded_or_named(
    number: tf.Tensor,
    encoded: tf.Tensor,
    decode: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[tf.Tensor, ...]:
    """`decode(encoded)`; what cannot be decoded fails with the number."""
    of_kind = kinds(encoded)
    known = list(of_kind.values())
    size, named = tf.strings.length(encoded), ["image number", number, "of the request"]
    message = f"is no {NAMES}; its size in bytes:"
    check = tf.debugging.Assert(tf.reduce_any(known), [*named, message, size])
    message = f"is an animation; {ANIMATED} are not read. Its size in bytes:"
    still = tf.debugging.Assert(~is_animated(encoded), [*named, message, size])
    with tf.control_dependencies([check, still]):
        results, good = _attempt(decode, tf.identity(encoded), outputs)
    kind = tf.boolean_mask(list(of_kind), known)
    message = "is a broken file, or one cut off:"
    check = tf.debugging.Assert(good, [*named, message, kind, "its size in bytes:", size])
    with tf.control_dependencies([check]):
        return tuple(map(tf.identity, results))


def _attempt(
    compute: Callable[[tf.Tensor], tuple[tf.Tensor, ...]],
    x: tf.Tensor,
    outputs: tuple[tf.TensorSpec, ...],
) -> tuple[Any, ...]:
    """What `compute(x)` gives and whether it did; where it fails zeros and False.

    TensorFlow has no other way to go on after an op has failed than a dataset that leaves out what
    does.
    """
    found = tf.data.Dataset.from_tensors(x).map(lambda x: (compute(x), True))
    zeros = tuple(tf.zeros(spec.shape, spec.dtype) for spec in outputs)
    instead = tf.data.Dataset.from_tensors((zeros, False))
    return found.ignore_errors().concatenate(instead).take(1).get_single_element()


def decoded_pixels(preprocessing: Preprocessing, image: tf.Tensor) -> tf.Tensor:
    """The pixels that a model sees, uint8, of encoded images, string `(batch,)`."""
    shape = (*preprocessing.image_size, preprocessing.channels)
    outputs = (tf.TensorSpec(shape, tf.uint8),)
    return decoded_each(image, lambda encoded: (preprocessing.decode(encoded),), outputs)[0]


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
        super().__init__("image_classifier", request)
        self.kind = "array_classifier" if arrays else "image_classifier"
        self._preprocessing = preprocessing
        shape = (*self._preprocessing.image_size, self._preprocessing.channels)
        width = model(keras.Input(shape)).shape[-1]
        self._classes = Classes("ImageClassifier", model, width, labels, problem_type)
        self._labels = tf.constant(self._classes.names, tf.string)
        self._hold(model)
        self._of_pixels = tf.function(
            lambda x: self._probabilities(x, self._rounds), autograph=False
        )

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = image_program(self._model, self._preprocessing, self._classes)
        return program, of_images(self._preprocessing, self._classes.names), None

    def _answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        pixels = self._pixels(image)
        probabilities = self._probabilities(pixels, rounds)
        return self._classes.named_answer(probabilities)

    def _pixels(self, image: tf.Tensor) -> tf.Tensor:
        """The pixels that the model sees, uint8, of encoded images or arrays."""
        shape = (*self._preprocessing.image_size, self._preprocessing.channels)
        outputs = tf.TensorSpec(shape, tf.uint8)
        if self.kind == "array_classifier":
            return tf.map_fn(self._preprocessing.resize, image, fn_output_signature=outputs)
        return decoded_pixels(self._preprocessing, image)

    def _probabilities(self, pixels: tf.Tensor, rounds: Rounds) -> tf.Tensor:
        results = {"probabilities": tf.TensorSpec([None, len(self._labels)], tf.float32)}
        classify = rounds.program(self._classify)
        return rounds.run(classify, [pixels], results)["probabilities"]

    def _classify(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self._model(self._preprocessing.normalize(pixels), training=False)
        return {"probabilities": self._classes.probabilities(logits)}

    def probabilities(self, images: ImageCorpus) -> Array:
        """Class probabilities `(n, classes)`, NumPy float32, of an `ImageCorpus`."""
        batches = images.batches(512, self._preprocessing)
        return np.concatenate([self._of_pixels(pixels).numpy() for pixels, _ in batches])


def _of_model(model: Any) -> Preprocessing:
    config = model.get_config()
    if "image_size" not in config or not model.built:
        raise ValueError(
            f"ImageClassifier: `preprocessing` must be given for {type(model).__name__}, which "
            "has no `image_size` or is not built. Received: None"
        )
    return Preprocessing(tuple(config["image_size"]), model.channels)
