"""Orthogonalisation of matrices by odd polynomials: what Muon makes of its momentum."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.accelerators import on_accelerator
from keras_transformers.annotations import Tensor

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
