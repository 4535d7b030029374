"""Muon, and the orthogonalisation of its momentum by odd polynomials."""

import functools
import math
import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import on_accelerator
from keras_transformers.core.types import Tensor
from keras_transformers.training.optimizers import ByStep

# How far from 1 the polynomials leave a singular value of the interval that they are made for.
DEVIATION = 0.2
# Each polynomial but the last expects singular values this much larger than those of exact
# arithmetic (Amsel et al. 2025, section 3.4): beyond their interval polynomials diverge.
SAFETY = 1.01
# Below it, the squared Frobenius norm of a matrix is rounding, and is not brought up to 1.
NOTHING = 1e-14

Polynomial = tuple[float, float, float]


def _minimax(lower: float, upper: float) -> tuple[Polynomial, float]:
    """The `a x + b x^3 + c x^5` nearest to 1 in `[lower, upper]`, and its largest deviation.

    By Remez' exchange: the deviation is the same, with alternating sign, at four points, the ends
    and the extrema between them.
    """
    points = np.linspace(lower, upper, 4)
    for _ in range(50):
        powers = points[:, None] ** np.array([1, 3, 5])
        *found, deviation = np.linalg.solve(np.c_[powers, [1, -1, 1, -1]], np.ones(4))
        a, b, c = map(float, found)
        extrema = np.sort(np.sqrt(np.roots([5 * c, 3 * b, a]).real))
        moved, points = points, np.array([lower, *extrema, upper])
        if np.allclose(moved, points, rtol=1e-12, atol=0):
            break
    return (a, b, c), abs(float(deviation))


def _composed(steps: int, lower: float) -> tuple[list[Polynomial], float]:
    """Polynomials that bring `[lower, 1]` near 1 one after the other, and the last deviation."""
    polynomials, upper = [], 1.0
    for _ in range(steps):
        polynomial, deviation = _minimax(lower, upper)
        polynomials.append(polynomial)
        lower, upper = 1 - deviation, 1 + deviation
    return polynomials, deviation


@functools.cache
def polar_polynomials(steps: int) -> tuple[Polynomial, ...]:
    """Coefficients `(a, b, c)` of `a x + b x^3 + c x^5` for each step of `orthogonalize`.

    Each is the best approximation of 1 in the interval that the one before leaves, and their
    composition is the best there is of such polynomials (Amsel et al. 2025, "Polar Express",
    https://arxiv.org/abs/2505.16932, theorem 3.1). The first interval is the widest, `[l, 1]`, from
    which `steps` of them come within 0.2 of 1: l = 0.013 for three, 0.003 for four.

    Args:
        steps: Number of polynomials.
    """
    low, high = 1e-12, 0.9
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if _composed(steps, middle)[1] < DEVIATION else (middle, high)
    *before, last = _composed(steps, high)[0]
    safe = [(a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in before]
    return (*safe, last)


def orthogonalize(matrices: Tensor, steps: int = 4) -> Tensor:
    """Brings the singular values of matrices near 1 by a few products.

    `X <- X (a I + b A + c A^2)` with `A = X^T X`, and other `a, b, c` in each step: see
    `polar_polynomials`. The largest singular value, which must not exceed 1 at first, is bounded by
    `||A^2||_F^(1/4)`, a product that the first step needs anyway; that is several times tighter
    than `||X||_F`, as much as a step is worth. Where a matrix is much longer than wide, all steps
    but the last product are taken on `A`: `A <- P A P` and `Q <- Q P`.

    Args:
        matrices: `(rows, columns)` or a batch, `(number, rows, columns)`.
        steps: Number of polynomials.

    Returns:
        Matrices of the same shape. Singular values above 0.003 of the bound are between 0.75
        and 1.25 after four steps, and smaller ones are below.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.training import orthogonalize
    >>> matrix = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
    >>> values = np.linalg.svd(np.asarray(orthogonalize(matrix)), compute_uv=False)
    >>> bool(np.all((values > 0.75) & (values < 1.25)))
    True
    """
    x = ops.convert_to_tensor(matrices)
    if len(x.shape) == 2:
        return orthogonalize(x[None], steps)[0]
    rows, columns = x.shape[1:]
    wide = rows <= columns  # of a square one too: XLA on a CPU is quicker at X X^T than at X^T X
    half = keras.backend.standardize_dtype(x.dtype) in ("bfloat16", "float16")
    # Squares of squares lose too much in half precision.
    along = _on_gram if max(rows, columns) > 1.5 * min(rows, columns) and not half else _on_matrix
    return along(x, wide, polar_polynomials(steps))


def iteration_dtype(dtype: str) -> str:
    """The dtype for `orthogonalize`: bfloat16 for float32 on a GPU or TPU, else what is given."""
    if dtype != "float32" or keras.backend.backend() == "torch":
        return dtype
    return "bfloat16" if on_accelerator() else dtype


def _gram(x: Tensor, wide: bool) -> Tensor:
    """The smaller of `X X^T` and `X^T X`."""
    return ops.einsum("nik,njk->nij" if wide else "nki,nkj->nij", x, x)


def _applied(p: Tensor, x: Tensor, wide: bool) -> Tensor:
    return ops.matmul(p, x) if wide else ops.matmul(x, p)


def _first(gram: Tensor, polynomial: Polynomial) -> tuple[Tensor, Tensor, Tensor]:
    """A Gram matrix with eigenvalues of at most 1, and `P = a I + b A + c A^2` of it.

    Returns:
        `(scale, A, P)`: `scale` is for `X`.
    """
    a, b, c = polynomial
    low, gram = gram.dtype, ops.cast(gram, _full(gram.dtype))
    number, side = gram.shape[:2]
    diagonal = ops.reshape(gram, (number, side * side))[:, :: side + 1]
    trace = ops.reshape(ops.sum(diagonal, axis=1), (number, 1, 1)) + NOTHING
    gram = gram / trace
    square = ops.cast(ops.matmul(ops.cast(gram, low), ops.cast(gram, low)), gram.dtype)
    norm = ops.sqrt(ops.sum(ops.square(square), axis=(1, 2), keepdims=True))
    bound = ops.maximum(ops.sqrt(norm), 1e-6)
    p = a * ops.eye(side, dtype=gram.dtype) + (b / bound) * gram + (c / ops.square(bound)) * square
    return ops.rsqrt(trace * bound), gram / bound, p


def _later(gram: Tensor, polynomial: Polynomial) -> Tensor:
    a, b, c = polynomial
    eye = ops.eye(gram.shape[-1], dtype=gram.dtype)
    return a * eye + b * gram + c * ops.matmul(gram, gram)


def _full(dtype: Any) -> str:
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def _on_matrix(x: Tensor, wide: bool, polynomials: Sequence[Polynomial]) -> Tensor:
    first, *others = polynomials
    scale, _, p = _first(_gram(x, wide), first)
    x = _applied(ops.cast(scale * p, x.dtype), x, wide)
    for each in others:
        x = _applied(_later(_gram(x, wide), each), x, wide)
    return x


def _on_gram(x: Tensor, wide: bool, polynomials: Sequence[Polynomial]) -> Tensor:
    first, *others = polynomials
    scale, gram, p = _first(_gram(x, wide), first)
    q = scale * p
    for each in others:
        gram = ops.matmul(p, ops.matmul(gram, p))
        p = _later(gram, each)
        q = ops.matmul(p, q)
    return _applied(q, x, wide)


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
