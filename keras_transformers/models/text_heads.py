"""What stands on top of a text encoder: a class of the text, of each token, or hidden tokens."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import (
    Activation,
    LayerOptions,
    Part,
    ProblemType,
    Shape,
    Tensor,
)
from keras_transformers.layers import Dropout
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import rate, refuse, whole_number
from keras_transformers.layers.parts import Prototype, part_or_numbers
from keras_transformers.models.head_transform import HeadTransform
from keras_transformers.models.settings import check_problem

Pooling: TypeAlias = Literal["token", "mean", "last"]
POOLINGS = ("token", "mean", "last")


def pooled_tokens(x: Tensor, real: Tensor, pooling: Pooling) -> Tensor:
    """One vector for each row of `x` `(batch, length, hidden_dim)`, in float32 at least.

    Args:
        real: Bool `(batch, length)`, False at padding.
        pooling: "token", the first real one, for padding may come before it; "mean"; or "last", the
            last real one.
    """
    if pooling != "mean":
        number = ops.cumsum(ops.cast(real, "int32"), axis=1)
        wanted = 1 if pooling == "token" else number[:, -1:]
        real = ops.logical_and(real, number == wanted)
    dtype = keras.backend.result_type(x.dtype, "float32")
    total = ops.sum(ops.where(ops.expand_dims(real, -1), ops.cast(x, dtype), 0.0), axis=1)
    return total / ops.maximum(ops.sum(ops.cast(real, dtype), axis=1, keepdims=True), 1.0)


@keras.saving.register_keras_serializable("keras_transformers")
class ClassificationHead(Arguments, Composite, keras.layers.Layer):
    """One class for a whole text.

    With pooling "token", `tanh(W h_1 + b)` of the first real token, dropout, and a dense layer
    (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1 and 4.1); with "mean", the
    same of the mean over real tokens; with "last", of the last real token, the only one that has
    seen the whole text in a decoder.

    Args:
        num_classes: Number of classes.
        pooling: "token", "mean" or "last".
        activation: Instead of tanh.
        dropout: Rate before the last layer.
        transform: What stands in the place of the dense layer with `activation`: a `HeadTransform`,
            or `keras.layers.Identity()` for nothing; copied.
        problem_type: What the logits are for, which exports go by: "single_label_classification" (a
            softmax), "multi_label_classification" (a sigmoid of each), "regression", or None: one
            of several classes, a sigmoid of a single logit.
        use_bias: Whether the last layer has a bias.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        real: Bool `(batch, length)`; True = real token.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`.

    Raises:
        ValueError: If `num_classes` is not positive, or a choice is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import ClassificationHead, TextEncoder
    >>> head = ClassificationHead(3, pooling="mean", problem_type="multi_label_classification")
    >>> model = TextEncoder(31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1, head=head)
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 3)
    """

    def __init__(
        self,
        num_classes: int,
        pooling: Pooling = "token",
        activation: Activation | None = "tanh",
        dropout: float = 0.1,
        problem_type: ProblemType | None = None,
        transform: Part | None = None,
        use_bias: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number(self, "num_classes", num_classes)
        self._transform = part_or_numbers(self, "transform", transform, keras.layers.Layer)
        if pooling not in POOLINGS:
            refuse(self, "pooling", f"one of {', '.join(POOLINGS)}", repr(pooling))
        self.use_bias = use_bias
        self.pooling = pooling
        self.activation = keras.activations.get(activation)
        self.dropout = rate(self, "dropout", dropout)
        settings = {"problem_type": problem_type, "num_classes": num_classes}
        check_problem("ClassificationHead", settings)
        self.problem_type = problem_type

    def build(self, x_shape: Shape, real_shape: Shape | None = None) -> None:
        width = x_shape[-1]
        if self._transform is None:
            self.pooler: Any = keras.layers.Dense(
                width, self.activation, name="pooler", dtype=self.dtype_policy
            )
        else:
            self.pooler = self._transform.copy(self, "transform")
        self.pooler.build((None, width))
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(
            self.num_classes, use_bias=self.use_bias, name="classes", dtype=self.dtype_policy
        )
        self.classes.build(self.pooler.compute_output_shape((None, width)))

    def call(self, x: Tensor, real: Tensor, training: bool | None = None) -> Tensor:
        pooled = self.pooler(ops.cast(pooled_tokens(x, real, self.pooling), x.dtype))
        return self.classes(self.dropout_layer(pooled, training=training))

    def compute_output_shape(self, x_shape: Shape, real_shape: Shape | None = None) -> Shape:
        return (x_shape[0], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "pooling": self.pooling,
            # Beside a transform it is of no effect.
            "activation": keras.activations.serialize(self.activation)
            if self._transform is None
            else None,
            "dropout": self.dropout,
            "problem_type": self.problem_type,
            "transform": None if self._transform is None else self._transform.serialized(),
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class TaggingHead(Arguments, Composite, keras.layers.Layer):
    """One class for each token: dropout and a dense layer (Devlin et al. 2018, section 5.3).

    Args:
        num_classes: Number of classes.
        dropout: Rate before the layer.
        transform: What every token goes through first, a `HeadTransform`, or None; copied.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, length, num_classes)`.

    Raises:
        ValueError: If `num_classes` is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import TaggingHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=TaggingHead(num_classes=3))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 5, 3)
    """

    def __init__(
        self,
        num_classes: int,
        dropout: float = 0.1,
        transform: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number(self, "num_classes", num_classes)
        self.dropout = rate(self, "dropout", dropout)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform)

    def build(self, x_shape: Shape) -> None:
        self.transform: Any = None
        if self._transform is not None:
            self.transform = self._transform.copy(self, "transform")
            self.transform.build(x_shape)
            x_shape = self.transform.compute_output_shape(x_shape)
        self.dropout_layer = Dropout(self.dropout, dtype=self.dtype_policy)
        self.classes = keras.layers.Dense(self.num_classes, name="classes", dtype=self.dtype_policy)
        self.classes.build(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = x if self.transform is None else self.transform(x)
        return self.classes(self.dropout_layer(x, training=training))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], self.num_classes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "dropout": self.dropout,
            "transform": None if self._transform is None else self._transform.serialized(),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class MaskedLanguageHead(Arguments, Composite, keras.layers.Layer):
    """Which token stood at a position: `norm(act(W h + b)) E^T + c`, `E` the token table.

    The table is the encoder's own (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section
    3.1, and their code).

    Args:
        activation: `act` above.
        norm: What stands in the place of `keras.layers.LayerNormalization(epsilon=1e-12)`; copied.
        transform: What stands in the place of both, a `HeadTransform` with as many units as the
            table is wide; copied.

    Call arguments:
        x: `(batch, positions, hidden_dim)`.
        logits: Function from `(batch, positions, hidden_dim)` to `(batch, positions, vocab_size)`,
            the product with the table.

    Returns:
        Logits `(batch, positions, vocab_size)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import MaskedLanguageHead, TextEncoder
    >>> model = TextEncoder.from_variant("tiny", 31, head=MaskedLanguageHead("relu"))
    >>> tuple(model(np.array([[2, 5, 7, 3, 0]])).shape)
    (1, 5, 31)
    """

    def __init__(
        self,
        activation: Activation | None = "gelu",
        norm: Part | None = None,
        transform: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.activation = keras.activations.get(activation)
        self._transform = part_or_numbers(self, "transform", transform, HeadTransform, norm=norm)
        norm = keras.layers.LayerNormalization(epsilon=1e-12) if norm is None else norm
        self._norm = Prototype(self, "norm", norm, keras.layers.Layer)

    def build(self, x_shape: Shape, logits_shape: Shape) -> None:
        """For `x`, and for what `logits` makes of it, whose width is that of the vocabulary."""
        self.norm: Any = None
        if self._transform is None:
            self.transform: Any = keras.layers.Dense(
                x_shape[-1], self.activation, name="transform", dtype=self.dtype_policy
            )
            self.norm = self._norm.copy(self, "norm")
            self.norm.build(x_shape)
        else:
            self.transform = self._transform.copy(self, "transform")
        self.transform.build(x_shape)
        self.bias = self.add_weight(name="bias", shape=(logits_shape[-1],), initializer="zeros")

    def call(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        scores = logits(self.vectors(x))
        return scores + ops.cast(self.bias, scores.dtype)

    def vectors(self, x: Tensor) -> Tensor:
        """What is multiplied with the table."""
        vectors: Any = self.transform(x)
        vectors = vectors if self.norm is None else self.norm(vectors)
        return ops.cast(vectors, self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape, logits_shape: Shape) -> Shape:
        return tuple(logits_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "activation": keras.activations.serialize(self.activation),
            "norm": self._norm.serialized() if self._transform is None else None,
            "transform": None if self._transform is None else self._transform.serialized(),
        }
