"""AdamW that remembers what it must not decay, and Muon for attention."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor

# Of Jordan et al. 2024: they bring singular values near 1 in few steps, not to 1 exactly.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
# Names of biases, norms and their like, and of learned tokens and positions.
NO_DECAY = ("bias", "beta", "gamma", "factor", "class_token", "query_token", "position_embedding")


if TYPE_CHECKING:
    _Optimizer = keras.optimizers.Optimizer
else:
    _Optimizer = object


class _ByStep(_Optimizer):
    """What both optimizers mend of Keras's: gradients of tables, averages while accumulating."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.gradient_accumulation_steps and self.use_ema and self.ema_overwrite_frequency:
            raise ValueError(
                f"{type(self).__name__}: `ema_overwrite_frequency` must be None with "
                "`gradient_accumulation_steps`: weights would change between batches of one step. "
                f"Received: {self.ema_overwrite_frequency}"
            )

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        super().apply(_dense(grads), trainable_variables)

    def _update_model_variables_moving_average(
        self, trainable_variables: Sequence[keras.Variable]
    ) -> None:
        """Averages once a step; Keras does after each batch, a momentum of `m^k` for `k` of them.

        Between steps it stays as it is, by a momentum of 1.
        """
        batches = self.gradient_accumulation_steps
        if not batches or not self.use_ema:
            super()._update_model_variables_moving_average(trainable_variables)
            return
        made = (self._iterations + 1) % batches == 0
        later = self._iterations >= batches  # until the first step, the weights are the average
        momentum = ops.where(later, ops.where(made, self.ema_momentum, 1.0), 0.0)
        for variable, average in zip(
            trainable_variables, self._model_variables_moving_average, strict=True
        ):
            if average is not None:
                share = ops.cast(momentum, variable.dtype)
                average.assign(share * average + (1 - share) * variable)


@keras.saving.register_keras_serializable("keras_transformers")
class AdamW(_ByStep, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose weight decay leaves some variables alone, also after reload.

    Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101. What Keras's own
    `exclude_from_weight_decay` was told is lost when a model is saved and loaded; here it is part
    of the configuration.

    Args:
        learning_rate: A float or a schedule.
        weight_decay: Share of a weight taken off in each step, times the learning rate.
        no_decay: Parts of the names of the variables that are not decayed; by default biases,
            norms, layer scales, learned tokens and positions.
        **kwargs: Of `keras.optimizers.AdamW`.

    Example:
    >>> import keras
    >>> from keras_transformers.training import AdamW
    >>> optimizer = AdamW(1e-3, weight_decay=0.05)
    >>> again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    >>> again.no_decay == optimizer.no_decay
    True
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        weight_decay: float = 4e-3,
        no_decay: Sequence[str] = NO_DECAY,
        name: str = "adamw",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay=weight_decay, name=name, **kwargs)
        self.no_decay = tuple(no_decay)
        self.exclude_from_weight_decay(var_names=list(self.no_decay))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "no_decay": list(self.no_decay)}


def _dense(gradients: Sequence[Any]) -> list[Any]:
    """Gradients as plain tensors.

    TensorFlow's gradient of an embedding lists a row once for each position that it was taken to;
    Keras's optimizers square each of the list: for a row taken twice, not the square of the sum.
    """
    return [
        ops.add(each, ops.zeros(each.shape, each.dtype)) if hasattr(each, "indices") else each
        for each in gradients
    ]


def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """Brings the singular values of a matrix near 1 by Newton-Schulz iterations.

    `X <- a X + (b A + c A A) X` with `A = X X^T`, from `X / ||X||` (Jordan et al. 2024,
    https://kellerjordan.github.io/posts/muon/).

    Args:
        matrix: `(rows, columns)`.
        steps: Number of iterations.

    Returns:
        A matrix of the same shape with singular values of about 0.7 to 1.2.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import orthogonalize
    >>> matrix = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
    >>> values = np.linalg.svd(np.asarray(orthogonalize(matrix)), compute_uv=False)
    >>> bool(np.all((values > 0.5) & (values < 1.3)))
    True
    """
    x = ops.convert_to_tensor(matrix)
    a, b, c = COEFFICIENTS
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else ops.transpose(x)  # the smaller of X X^T and X^T X
    x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)
    for _ in range(steps):
        gram = ops.matmul(x, ops.transpose(x))
        x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
    return x if wide else ops.transpose(x)


@keras.saving.register_keras_serializable("keras_transformers")
class Muon(_ByStep, keras.optimizers.Optimizer):
    """Momentum orthogonalised for matrices, Adam for embeddings, norms and biases.

    `M <- mu M + G`, `W <- W - lr 0.2 sqrt(max(rows, columns)) NS(G + mu M)`: with that factor
    Adam's learning rate and weight decay serve both (Liu et al. 2025,
    https://arxiv.org/abs/2502.16982, eq. 4; Jordan et al. 2024).
    `keras.optimizers.Muon` leaves every kernel of more than two axes to Adam, attention's among
    them; here a kernel `(width, heads, key_dim)` or `(heads, value_dim, width)` is flattened to the
    matrix nearest to a square.

    Args:
        learning_rate: A float or a schedule.
        momentum: `mu`.
        beta_1, beta_2, epsilon: Of Adam.
        steps: Newton-Schulz iterations.
        adam_for: Regular expression; variables whose path it matches are left to Adam. Embeddings
            and a separate output projection belong there.
        **kwargs: Of `keras.optimizers.Optimizer`: `weight_decay`, `global_clipnorm`, `use_ema` ...

    Raises:
        ValueError: If `momentum` is not in `[0, 1)` or `steps` is not positive.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import Muon
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(Muon(learning_rate=0.05), "mse")
    >>> x = np.eye(4, dtype="float32")
    >>> losses = model.fit(x, x[:, :1], epochs=30, verbose=0).history["loss"]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        momentum: float = 0.95,
        beta_1: float = 0.9,
        beta_2: float = 0.98,
        epsilon: float = 1e-9,
        steps: int = 5,
        adam_for: str = "embedding",
        name: str = "muon",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if not 0 <= momentum < 1 or steps < 1:
            raise ValueError(
                "Muon: `momentum` must be in [0, 1) and `steps` positive. "
                f"Received: momentum={momentum}, steps={steps}"
            )
        self.momentum = momentum
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.steps = steps
        self.adam_for = adam_for

    def matrix_shape(self, variable: keras.Variable) -> tuple[int, int] | None:
        """(rows, columns) of the matrix that a variable is taken for, or None for Adam."""
        shape = tuple(variable.shape)
        if len(shape) < 2 or re.search(self.adam_for, variable.path):
            return None
        cuts = ((math.prod(shape[:i]), math.prod(shape[i:])) for i in range(1, len(shape)))
        return max(cuts, key=lambda cut: min(cut) / max(cut))

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self.moments = self.add_optimizer_variables(variables, "moment")
        # Decided here once: `update_step` may be handed a backend's variable without a path.
        self.shapes = [self.matrix_shape(variable) for variable in variables]
        self.velocities = [
            None if shape else self.add_variable_from_reference(variable, name="velocity")
            for variable, shape in zip(variables, self.shapes, strict=True)
        ]

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        moment, velocity, shape = self.moments[index], self.velocities[index], self.shapes[index]
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        if shape:
            self.assign(moment, ops.add(self.momentum * moment, gradient))
            ahead = ops.reshape(ops.add(gradient, self.momentum * moment), shape)
            change = ops.reshape(orthogonalize(ahead, self.steps), variable.shape)
            self.assign_sub(variable, rate * 0.2 * math.sqrt(max(shape)) * change)
        else:
            step = ops.cast(self.iterations + 1, variable.dtype)
            self.assign_add(moment, (1 - self.beta_1) * ops.subtract(gradient, moment))
            square = ops.subtract(ops.square(gradient), velocity)
            self.assign_add(velocity, (1 - self.beta_2) * square)
            unbiased = ops.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
            change = moment / (ops.sqrt(velocity) + self.epsilon)
            self.assign_sub(variable, rate * unbiased * change)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "steps": self.steps,
            "adam_for": self.adam_for,
        }
