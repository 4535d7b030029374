"""The mathematics of an exporter as one function of tensors, between raw input and names."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tokenizer
from keras_transformers.detection import best_answers
from keras_transformers.export.classes import Classes
from keras_transformers.generation.request import padding_of
from keras_transformers.models.text_heads import pooled_tokens
from keras_transformers.vision.preprocessing import Preprocessing

# What tells that a program computes in fewer bits, the coarsest first.
REDUCED = ("int8", "bfloat16", "float16")
HELD_IN_FOUR_BITS = {"int4", "gptq", "awq"}  # by a layer in one of these modes


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of tensors, without strings, and what is needed to convert and to try it.

    Args:
        exporter: Name of the exporter, for messages.
        model: The Keras model in it.
        function: A `tf.function` with an input signature that gives a dict of tensors.
        sample: Dict of arrays to call it with.
        compared: Name of the output, continuous in the weights, that a conversion is judged by.
    """

    exporter: str
    model: keras.Model
    function: Any
    sample: dict[str, Array]
    compared: str

    def expected(self) -> dict[str, Array]:
        """The outputs for the sample, a dict of arrays."""
        return {name: value.numpy() for name, value in self.function(**self.sample).items()}

    def inputs(self) -> dict[str, dict[str, Any]]:
        """Dict of the names of the inputs to dtype and shape, with names for what is free."""
        return {
            spec.name: {"dtype": spec.dtype.name, "shape": _named(spec.shape)}
            for spec in self.function.input_signature
        }

    def outputs(self) -> list[str]:
        """Names of the outputs, sorted."""
        return sorted(self.function.get_concrete_function().structured_outputs)

    def bytes(self) -> int:
        """Size of all weights."""
        return sum(
            int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size
            for variable in self.model.variables
        )

    def precision(self) -> str:
        """The coarsest type of numbers that is computed with: "float32", "float16" ..., or held."""
        modes = {layer.quantization_mode for layer in self.model._flatten_layers()}
        if modes & HELD_IN_FOUR_BITS:
            return "int4"
        operations = self.function.get_concrete_function().graph.get_operations()
        products = [op for op in operations if "MatMul" in op.type]
        found = {tensor.dtype.name for op in operations for tensor in op.outputs}
        found -= {"int8"}
        found |= {tensor.dtype.name for op in products for tensor in op.inputs}
        return next((name for name in REDUCED if name in found), "float32")


def _named(shape: Iterable[int | None]) -> list[int | str]:
    """`(None, None)` -> `["batch", "length"]`."""
    free = ("batch", "length")
    return [free[i] if side is None else side for i, side in enumerate(shape)]


def image_program(model: Any, preprocessing: Preprocessing, classes: Classes) -> Program:
    """Pixels as `Preprocessing.decode` gives them -> classes; normalising is inside."""

    def answer(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return _of_pixels("image_classifier", model, preprocessing, answer, "probabilities")


def image_encoder_program(model: Any, preprocessing: Preprocessing) -> Program:
    """Pixels as `Preprocessing.decode` gives them -> one vector an image."""

    def answer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": tf.cast(x, tf.float32)}

    return _of_pixels("image_encoder", model, preprocessing, answer, "embedding")


def _of_pixels(
    exporter: str,
    model: Any,
    preprocessing: Preprocessing,
    answer: Callable[[tf.Tensor], dict[str, tf.Tensor]],
    compared: str,
) -> Program:
    shape = (*preprocessing.image_size, preprocessing.channels)

    signature = [tf.TensorSpec([None, *shape], tf.uint8, name="pixels")]

    @tf.function(input_signature=signature, autograph=False)
    def compute(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer(model(preprocessing.normalize(pixels), training=False))

    return Program(exporter, model, compute, {"pixels": _pixels(shape)}, compared)


def detector_program(
    model: Any, preprocessing: Preprocessing, threshold: float, in_frame: bool
) -> Program:
    """Pixels as `Preprocessing.frame` gives them, and the image's extent there -> boxes.

    Args:
        in_frame: Whether the model's boxes are fractions of the frame, not of the image.
    """
    height, width = size = preprocessing.image_size
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
        found = model({"images": images, "padding_mask": mask}, training=False)
        answers = best_answers(found["logits"], found["boxes"], model.criterion.classification)
        boxes = answers["boxes"]
        if in_frame:
            boxes = boxes_in_image(boxes, content_size, size)
        sure = tf.cast(answers["scores"] >= threshold, tf.int32)
        return {
            "boxes": boxes,
            "score": answers["scores"],
            "label": answers["labels"],
            "number": tf.reduce_sum(sure, axis=1),
        }

    content = np.array([[height, width], [height, width - width // 4]], "int32")
    sample = {"pixels": _pixels((*size, 3)), "content_size": content}
    return Program("detector", model, detect, sample, "score")


def boxes_in_image(boxes: tf.Tensor, inner: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Turns fractions of a frame of `size` into fractions of the images in it.

    Args:
        boxes: float32 `(batch, boxes, 4)`, corner boxes.
        inner: int32 `(batch, 2)`, height and width of each image there.
    """
    factors = tf.constant(size, tf.float32) / tf.cast(inner, tf.float32)
    return tf.minimum(boxes * tf.tile(factors[:, None, ::-1], [1, 1, 2]), 1.0)


def text_program(model: Any, tokenizer: Tokenizer, longest: int, classes: Classes) -> Program:
    """Framed ids, padded with the model's id -> classes."""

    def answer(ids: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return _of_ids("text_classifier", model, tokenizer, longest, answer, "probabilities")


def sentence_program(
    model: Any,
    tokenizer: Tokenizer,
    longest: int,
    pooling: Literal["mean", "token"],
    normalize: bool,
) -> Program:
    """Framed ids, padded with the model's id -> one vector a text."""
    answer = functools.partial(
        vectors, pooling=pooling, normalize=normalize, padding=padding_of(model)
    )
    return _of_ids("sentence_encoder", model, tokenizer, longest, answer, "embedding")


def _of_ids(
    exporter: str,
    model: Any,
    tokenizer: Tokenizer,
    longest: int,
    answer: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
    compared: str,
) -> Program:
    signature = [tf.TensorSpec([None, None], tf.int32, name="ids")]

    @tf.function(input_signature=signature, autograph=False)
    def compute(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return answer(ids, model(ids, training=False))

    length = min(7, longest)
    ids = np.random.default_rng(0).integers(1, tokenizer.vocab_size, (2, length), "int32")
    ids[1, length - 1 :] = padding_of(model)
    return Program(exporter, model, compute, {"ids": ids}, compared)


def vectors(
    ids: tf.Tensor, x: tf.Tensor, pooling: Literal["mean", "token"], normalize: bool, padding: int
) -> dict[str, tf.Tensor]:
    """One vector for each row of `x` `(batch, length, hidden_dim)`; padding is left out."""
    found = tf.cast(pooled_tokens(x, ids != padding, pooling), tf.float32)
    return {"embedding": tf.math.l2_normalize(found, axis=-1) if normalize else found}


def _pixels(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(0).integers(0, 256, (2, *shape), "uint8")
