"""Learned tokens behind the class token, and what reads class token and patches together."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Initializer, LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import check_sequence, whole_number


@keras.saving.register_keras_serializable("keras_transformers")
class RegisterTokens(Arguments, keras.layers.Layer):
    """Puts learned tokens into a sequence, for a model to keep there what it needs.

    `[x_class; r_1; ...; r_n; x_1; ...; x_N]` (Darcet et al. 2024, "Vision Transformers Need
    Registers", https://arxiv.org/abs/2309.16588, section 2.2). They have no positions.

    Args:
        number: How many, `n` above.
        after: Behind how many tokens of the sequence they stand.
        initializer: Initialiser of the tokens.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, length + number, hidden_dim)`.

    Raises:
        ValueError: If `number` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RegisterTokens
    >>> tuple(RegisterTokens(4)(np.ones((2, 5, 8), "float32")).shape)
    (2, 9, 8)
    """

    def __init__(
        self,
        number: int,
        after: int = 1,
        initializer: Initializer = "truncated_normal",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.number = whole_number(self, "number", number)
        self.after = whole_number(self, "after", after, least=0)
        self.initializer = keras.initializers.get(initializer)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.tokens = self.add_weight(
            name="register_tokens",
            shape=(1, self.number, x_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, x: Tensor) -> Tensor:
        tokens = ops.cast(self.tokens, x.dtype)
        tokens = ops.broadcast_to(tokens, (ops.shape(x)[0], self.number, x.shape[-1]))
        return ops.concatenate([x[:, : self.after], tokens, x[:, self.after :]], axis=1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + self.number, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "number": self.number,
            "after": self.after,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class ClassAndMeanPooling(Arguments, keras.layers.Layer):
    """The first token and the mean of the patches, side by side: what a linear probe sees.

    `[x_class; mean(x_1, ..., x_N)]` (Oquab et al. 2024, "DINOv2",
    https://arxiv.org/abs/2304.07193, and their code's linear classifiers). The `pooling` of a `ViT`
    with a class token.

    Args:
        prefix_tokens: How many tokens stand before the patches: the class token and registers.

    Call arguments:
        x: `(batch, tokens, hidden_dim)`.

    Returns:
        `(batch, 2 * hidden_dim)`.

    Raises:
        ValueError: If `prefix_tokens` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassAndMeanPooling
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/16", 10, image_size=32, num_layers=1, class_token=True,
    ...                          registers=4, pooling=ClassAndMeanPooling(1 + 4))
    >>> tuple(model(np.zeros((2, 32, 32, 3), "float32")).shape), model.head.kernel.shape[0]
    ((2, 10), 384)
    """

    def __init__(self, prefix_tokens: int = 1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.prefix_tokens = whole_number(self, "prefix_tokens", prefix_tokens)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)

    def call(self, x: Tensor) -> Tensor:
        mean = ops.mean(x[:, self.prefix_tokens :], axis=1)
        return ops.concatenate([x[:, 0], mean], axis=-1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], 2 * x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "prefix_tokens": self.prefix_tokens}
