"""Position-wise networks: the same small network on every token."""

from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import custom_gradient
from keras_transformers.core.types import Activation, LayerOptions, Shape, Tensor
from keras_transformers.layers.attention.scores import project_token
from keras_transformers.layers.base import BaseLayer, ReadByBuild, is_output_first
from keras_transformers.layers.checks import rate, whole_number
from keras_transformers.layers.convolutions import Depthwise
from keras_transformers.layers.patches import check_map
from keras_transformers.layers.regularization import Dropout


@keras.saving.register_keras_serializable("keras_transformers")
def gelu_tanh(x: Tensor) -> Tensor:
    """The Gaussian error linear unit by its approximation with a hyperbolic tangent.

    `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))` (Hendrycks & Gimpel 2016,
    https://arxiv.org/abs/1606.08415, section 2); GPT-2's. Keras's "gelu" is the exact one.

    Args:
        x: A floating tensor of any shape.

    Returns:
        Same shape and dtype.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import gelu_tanh
    >>> round(float(gelu_tanh(ops.convert_to_tensor(1.0))), 4)
    0.8412
    """
    return keras.ops.gelu(x, approximate=True)


@keras.saving.register_keras_serializable("keras_transformers")
def gelu_sigmoid(x: Tensor) -> Tensor:
    """The Gaussian error linear unit by its approximation with a sigmoid.

    `x sigmoid(1.702 x)` (Hendrycks & Gimpel 2016, https://arxiv.org/abs/1606.08415, section 2);
    CLIP's, which calls it "quick_gelu".

    Args:
        x: A floating tensor of any shape.

    Returns:
        Same shape and dtype.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import gelu_sigmoid
    >>> round(float(gelu_sigmoid(ops.convert_to_tensor(1.0))), 4)
    0.8458
    """
    return x * keras.ops.sigmoid(1.702 * x)


def _lean_relu(x: Tensor) -> Tensor:
    """`max(x, 0)` of rows that a product takes, of which XLA keeps the output alone.

    Where the gradient asks for the sign of the output, XLA on a CPU would compute it again, and so
    keep what it is computed from: the product with the kernel, and that with an adapter, each as
    large as the output. It does so with a function of one tensor, and where the output is given
    another shape; a choice between two tensors that a product takes as it is it computes once.
    """

    def forward(x: Tensor) -> tuple[Tensor]:
        return (keras.ops.where(x <= 0, keras.ops.zeros((), x.dtype), x),)

    def backward(
        tensors: tuple[Tensor, ...], found: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor]:
        return [keras.ops.where(found[0] > 0, upstream, keras.ops.zeros((), upstream.dtype))]

    return custom_gradient(forward, backward, keras.ops.relu)(x)


class _FeedForward(BaseLayer):
    """What the plain and the gated network share: configuration, dropout, output projection."""

    dropout: Any = ReadByBuild()

    hidden_dense: keras.layers.Dense
    output_dense: keras.layers.Dense

    position_wise = True

    def __init__(
        self,
        mlp_dim: int,
        activation: Activation | None = "relu",
        dropout: float = 0.0,
        use_bias: bool = True,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.mlp_dim = whole_number(self, "mlp_dim", mlp_dim)
        self.activation = keras.activations.get(activation)
        self.dropout = rate(self, "dropout", dropout)
        self.use_bias = use_bias
        self.seed = None if seed is None else int(seed)
        self.supports_masking = True

    def _dense(
        self, units: int, name: str, activation: Activation | None = None
    ) -> keras.layers.Dense:
        return keras.layers.Dense(
            units, activation, self.use_bias, name=name, dtype=self.dtype_policy
        )

    def build(self, x_shape: Shape) -> None:
        if len(x_shape) < 2 or x_shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `x` must have shape (..., hidden_dim) with "
                f"a known width. Received: shape {tuple(x_shape)}"
            )
        self.dropout_layer = Dropout(self.dropout, seed=self.seed, dtype=self.dtype_policy)
        self.output_first = is_output_first()  # if it comes from a file of version 0.2.0
        # The output draws its weights first, so that a seed gives those that it always gave.
        output = self._dense(x_shape[-1], "output")
        output.build((*x_shape[:-1], self.mlp_dim))
        # Weights are listed in the order in which layers become attributes.
        if self.output_first:
            self.output_dense = output
        self._build_hidden(x_shape)
        if not self.output_first:
            self.output_dense = output

    def _build_hidden(self, x_shape: Shape) -> None:
        """Builds the layers before the output; they become attributes in order."""
        hidden = self._dense(self.mlp_dim, "hidden")
        hidden.build(x_shape)
        self.hidden_dense = hidden

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mlp_dim": self.mlp_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "seed": self.seed,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class FeedForward(_FeedForward):
    """The position-wise feed-forward network of a Transformer block.

    `FFN(x) = act(x W1 + b1) W2 + b2` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762,
    eq. 2). Its weights are `W1, b1, W2, b2`, as those of two `keras.layers.Dense`.

    Args:
        mlp_dim: Width of the hidden layer (d_ff).
        activation: Any Keras activation; "relu" in 2017, "gelu" in BERT and ViT.
        dropout: Rate on the hidden layer.
        use_bias: Whether the two projections have biases.
        seed: Optional integer for the dropout.

    Call arguments:
        x: `(..., hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If `mlp_dim` is not positive or the width of `x` is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import FeedForward
    >>> layer = FeedForward(mlp_dim=32)
    >>> layer(np.zeros((2, 5, 8), "float32")).shape[-1], layer.count_params()
    (8, 552)
    """

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if not training:
            return self.output_dense(self.activation(self.hidden_dense(x)))
        activation = self.activation
        activation = _lean_relu if activation is keras.activations.relu else activation
        rows = ops.reshape(x, (-1, x.shape[-1]))  # as `_lean_relu` needs them
        hidden = self.dropout_layer(activation(self.hidden_dense(rows)), training=True)
        return ops.reshape(self.output_dense(hidden), ops.shape(x))

    def step(self, x: Tensor) -> Tensor:
        """`call` without dropout for one token of every sequence, `(batch, beams, hidden_dim)`."""
        hidden = self.activation(project_token(self.hidden_dense, x))
        return project_token(self.output_dense, hidden)


@keras.saving.register_keras_serializable("keras_transformers")
class GatedFeedForward(_FeedForward):
    """A feed-forward network whose hidden layer is gated.

    `FFN(x) = (act(x W) * (x V)) W2`; with "silu" this is SwiGLU, with "gelu" GEGLU
    (Shazeer 2020, https://arxiv.org/abs/2002.05202, eq. 6). Its weights are those of `W`, `V` and
    `W2`.

    Args:
        mlp_dim: Width of the hidden layer. Three matrices instead of two: `2/3` of the usual
            width keeps the number of parameters.
        activation: Any Keras activation, of the gate.
        dropout: Rate on the hidden layer.
        use_bias: Whether the three projections have biases.
        seed: Optional integer for the dropout.

    Call arguments:
        x: `(..., hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If `mlp_dim` is not positive or the width of `x` is unknown.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import GatedFeedForward
    >>> layer = GatedFeedForward(mlp_dim=32, activation="silu", use_bias=False)
    >>> layer(np.zeros((2, 5, 8), "float32")).shape[-1], layer.count_params()
    (8, 768)
    """

    def __init__(
        self,
        mlp_dim: int,
        activation: Activation | None = "silu",
        dropout: float = 0.0,
        use_bias: bool = True,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(mlp_dim, activation, dropout, use_bias, seed, **kwargs)

    def _build_hidden(self, x_shape: Shape) -> None:
        self.gate_dense = self._dense(self.mlp_dim, "gate", self.activation)
        self.gate_dense.build(x_shape)
        super()._build_hidden(x_shape)

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        hidden = self.gate_dense(x) * self.hidden_dense(x)  # (..., mlp_dim)
        return self.output_dense(self.dropout_layer(hidden, training=True) if training else hidden)

    def step(self, x: Tensor) -> Tensor:
        """`call` without dropout for one token of every sequence, `(batch, beams, hidden_dim)`."""
        hidden = project_token(self.gate_dense, x) * project_token(self.hidden_dense, x)
        return project_token(self.output_dense, hidden)


@keras.saving.register_keras_serializable("keras_transformers")
class ConvolutionalFeedForward(_FeedForward):
    """A feed-forward network on a grid, whose hidden layer sees its neighbours.

    `FFN(x) = act(DW(x W1 + b1)) W2 + b2`, `DW` a convolution of 3 x 3 positions of each feature by
    itself (Wang et al. 2022, "PVT v2", https://arxiv.org/abs/2106.13797, section 3.3). The zeros
    around the grid tell where its borders are; PVT v2 has no other positions.

    Args:
        mlp_dim, activation, dropout, use_bias, seed: See `FeedForward`.

    Call arguments:
        x: `(batch, rows, columns, hidden_dim)`.
        training: Whether dropout acts.

    Returns:
        Same shape as `x`.

    Raises:
        ValueError: If `mlp_dim` is not positive, or `x` is not of rank 4 with a known width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ConvolutionalFeedForward
    >>> layer = ConvolutionalFeedForward(mlp_dim=32, activation="gelu")
    >>> tuple(layer(np.zeros((2, 5, 6, 8), "float32")).shape)
    (2, 5, 6, 8)
    """

    position_wise = False

    def build(self, x_shape: Shape) -> None:
        check_map(self, x_shape)
        super().build(x_shape)

    def _build_hidden(self, x_shape: Shape) -> None:
        depthwise = Depthwise(3, use_bias=self.use_bias, name="depthwise", dtype=self.dtype_policy)
        super()._build_hidden(x_shape)
        depthwise.build((*x_shape[:-1], self.mlp_dim))
        self.depthwise = depthwise

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        check_map(self, x.shape)
        hidden = self.activation(self.depthwise(self.hidden_dense(x)))  # (..., mlp_dim)
        return self.output_dense(self.dropout_layer(hidden, training=True) if training else hidden)
