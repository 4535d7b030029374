"""What stands on top of a text encoder: a class of the text, of each token, or hidden tokens."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import Dropout
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.parts import part

HEADS = (None, "masked_language", "classification", "tagging")


def pooled_tokens(x: Tensor, real: Tensor, pooling: Literal["token", "mean"]) -> Tensor:
    """One vector for each row of `x` `(batch, length, hidden_dim)`, in float32 at least.

    Args:
        real: Bool `(batch, length)`, False at padding.
        pooling: "token", the first real one, for padding may come before it; or "mean".
    """
    if pooling == "token":
        real = ops.logical_and(real, ops.cumsum(ops.cast(real, "int32"), axis=1) == 1)
    dtype = keras.backend.result_type(x.dtype, "float32")
    total = ops.sum(ops.where(ops.expand_dims(real, -1), ops.cast(x, dtype), 0.0), axis=1)
    return total / ops.maximum(ops.sum(ops.cast(real, dtype), axis=1, keepdims=True), 1.0)


@keras.saving.register_keras_serializable("keras_transformers")
class ClassificationHead(Composite, keras.layers.Layer):
    """One class for a whole text.

    With pooling "token", `tanh(W h_1 + b)` of the first real token, dropout, and a dense layer
    (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and 4.1); with "mean", the
    same of the mean over real tokens.

    Args:
        num_classes: Number of classes.
        dropout: Rate before the last layer.
        pooling: "token" or "mean".
        activation: Instead of tanh.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        real: Bool `(batch, length)`; True = real token.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`.
    """

    def __init__(
        self,
        num_classes: int,
        dropout: float = 0.1,
        pooling: Literal["token", "mean"] = "token",
        activation: Activation | None = "tanh",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout = dropout
        self.pooling = pooling
        self.activation = keras.activations.get(activation)

    def build(self, x_shape: Shape, real_shape: Shape | None = None) -> None:
        width = x_shape[-1]
        self.pooler = keras.layers.Dense(
            width, self.activation, name="pooler", dtype=self.dtype_policy
        )
        self.pooler.build((None, width))
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(self.num_classes, name="classes", dtype=self.dtype_policy)
        self.classes.build((None, width))

    def call(self, x: Tensor, real: Tensor, training: bool | None = None) -> Tensor:
        pooled = self.pooler(ops.cast(pooled_tokens(x, real, self.pooling), x.dtype))
        return self.classes(self.dropout_layer(pooled, training=training))

    def compute_output_shape(self, x_shape: Shape, real_shape: Shape | None = None) -> Shape:
        return (x_shape[0], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "dropout": self.dropout,
            "pooling": self.pooling,
            "activation": keras.activations.serialize(self.activation),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class TaggingHead(Composite, keras.layers.Layer):
    """One class for each token: dropout and a dense layer (Devlin et al. 2018, section 5.3).

    Args:
        num_classes: Number of classes.
        dropout: Rate before the layer.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, length, num_classes)`.
    """

    def __init__(
        self, num_classes: int, dropout: float = 0.1, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout = dropout

    def build(self, x_shape: Shape) -> None:
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(self.num_classes, name="classes", dtype=self.dtype_policy)
        self.classes.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        return self.classes(self.dropout_layer(x, training=training))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_classes": self.num_classes, "dropout": self.dropout}


@keras.saving.register_keras_serializable("keras_transformers")
class MaskedLanguageHead(Composite, keras.layers.Layer):
    """Which token stood at a position: `norm(act(W h + b)) E^T + c`, `E` the token table.

    The table is the encoder's own (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section
    3.1, and their code).

    Args:
        vocab_size: Size of the vocabulary.
        norm: A norm layer, of which a copy is made.
        activation: `act` above.

    Call arguments:
        x: `(batch, positions, hidden_dim)`.
        logits: Function from `(batch, positions, hidden_dim)` to `(batch, positions, vocab_size)`,
            the product with the table.

    Returns:
        Logits `(batch, positions, vocab_size)`.
    """

    def __init__(
        self,
        vocab_size: int,
        norm: Part,
        activation: Activation | None = "gelu",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.activation = keras.activations.get(activation)
        self.norm = part(self, "norm", norm, keras.layers.Layer)

    def build(self, x_shape: Shape) -> None:
        self.transform = keras.layers.Dense(
            x_shape[-1], self.activation, name="transform", dtype=self.dtype_policy
        )
        self.transform.build(x_shape)
        self.norm.build(x_shape)
        self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def call(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        scores = logits(self.norm(self.transform(x)))
        return scores + ops.cast(self.bias, scores.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.vocab_size)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "norm": keras.saving.serialize_keras_object(self.norm),
            "activation": keras.activations.serialize(self.activation),
        }


def make_head(settings: Mapping[str, Any], norm: Part, dtype: Any) -> keras.layers.Layer | None:
    """The head that a `TextEncoder`'s settings ask for, None for None.

    Args:
        settings: The model's.
        norm: That of "masked_language".
        dtype: Dtype policy.
    """
    kind, common = settings["head"], {"name": "head", "dtype": dtype}
    classes, dropout = settings["num_classes"], settings["dropout"]
    if kind == "masked_language":
        return MaskedLanguageHead(settings["vocab_size"], norm, settings["activation"], **common)
    if kind == "classification":
        return ClassificationHead(
            classes, dropout, settings["pooling"], settings["pooler_activation"], **common
        )
    return TaggingHead(classes, dropout, **common) if kind == "tagging" else None
