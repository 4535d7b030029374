"""Muon: orthogonalised momentum for matrices."""

import math
import re
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.training.optimizers import ByStep
from keras_transformers.training.orthogonalization import iteration_dtype, orthogonalize

# Numbers in one batch of matrices, which is a copy of them: 256 MB in float32.
TOGETHER = 2**26


@keras.saving.register_keras_serializable("keras_transformers")
class Muon(ByStep, keras.optimizers.Optimizer):
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
        steps: Polynomials of `orthogonalize`. Four bring singular values nearer to 1 than five
            iterations of Jordan et al. 2024 do; three cost less, and learned more slowly.
        adam_for: Regular expression; variables whose path it matches are left to Adam. Embeddings
            and a separate output projection belong there.
        **kwargs: Of `keras.optimizers.Optimizer`: `weight_decay`, `global_clipnorm`, `use_ema` ...;
            and `no_decay`, `no_decay_variables`, `depths` and `layer_decay`, see `AdamW`.

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
        steps: int = 4,
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

    def _update_at_rate(
        self, gradients: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        # Under tf.distribute Keras sums the gradients of replicas, then updates each variable.
        if self._in_one_program():
            self._update_all(gradients, variables, learning_rate)
        else:
            super()._update_at_rate(gradients, variables, learning_rate)

    def update_step(self, gradient: Tensor, variable: Any, learning_rate: Tensor) -> None:
        self._update_all([gradient], [variable], learning_rate)

    def _update_all(
        self, gradients: Sequence[Tensor], variables: Sequence[Any], learning_rate: Tensor
    ) -> None:
        """Updates vectors by Adam, and matrices of one shape together."""
        alike: dict[Any, list[tuple[Any, Tensor]]] = {}
        by_adam: list[tuple[Tensor, Any, int]] = []
        for gradient, variable in zip(gradients, variables, strict=True):
            index = self._get_variable_index(variable)
            gradient = ops.cast(gradient, self.moments[index].dtype)
            shape = self.shapes[index]
            if shape is None:
                by_adam.append((gradient, variable, index))
                continue
            moment = ops.add(self.momentum * self.moments[index], gradient)
            self.assign(self.moments[index], moment)
            ahead = ops.reshape(ops.add(gradient, self.momentum * moment), shape)
            kind = (shape, keras.backend.standardize_dtype(gradient.dtype))
            alike.setdefault(kind, []).append((variable, ahead))
        self._update_by_adam(by_adam, learning_rate)
        for (shape, dtype), members in alike.items():
            most = max(1, TOGETHER // math.prod(shape))
            for start in range(0, len(members), most):
                some = members[start : start + most]
                x = ops.cast(ops.stack([ahead for _, ahead in some]), iteration_dtype(dtype))
                changes = ops.cast(orthogonalize(x, self.steps), dtype)
                rate = ops.cast(learning_rate, dtype) * 0.2 * math.sqrt(max(shape))
                for (variable, _), change in zip(some, ops.unstack(changes), strict=True):
                    self._subtract(variable, rate * ops.reshape(change, variable.shape))

    def _update_by_adam(
        self, updates: Sequence[tuple[Tensor, Any, int]], learning_rate: Tensor
    ) -> None:
        """Adam's step of some variables: `(gradient, variable, index)` of each."""
        if not updates:
            return
        gradients, variables, indices = zip(*updates, strict=True)
        states = [(self.moments[index], self.velocities[index]) for index in indices]
        self._step_of_adam(gradients, variables, states, learning_rate)

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
