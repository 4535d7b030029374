"""The same mathematics, written for TensorFlow's own kernels instead of for a compiler.

XLA fuses what stands side by side and knows all sizes. Without it every operation is a call, and
what is quick is another thing: products of two matrices, slices written in place, no copies. What
differs asks `KERNELS` here; who traces such a program provides them.
"""

import contextlib
import contextvars
import typing
from collections.abc import Iterator
from typing import Any

# The kernels of the program that is traced now; None where XLA compiles it.
KERNELS: contextvars.ContextVar[Any] = contextvars.ContextVar("kernels", default=None)


class Kernels(typing.Protocol):
    """What `keras.ops` has no quick or no portable operation for."""

    def update_slice(self, x: Any, start: Any, new: Any) -> Any:
        """`x` with `new` in the place of as many rows of axis 2, from `start` on."""

    def product(self, x: Any, kernel: Any) -> Any:
        """`x W`, `(rows, width)` and `(width, outputs)`."""

    def table_product(self, x: Any, table: Any) -> Any:
        """`x E^T`, `(rows, width)` and `(outputs, width)`."""

    def batch_product(self, x: Any, y: Any, transposed: bool = False) -> Any:
        """`x y` of each batch and head, or `x y^T`."""

    def swap(self, x: Any) -> Any:
        """`(batch, a, b, dim)` -> `(batch, b, a, dim)`."""

    def softmax(self, scores: Any, mask: Any) -> Any:
        """Over the last axis, where `mask` is True; zeros in a row that has nothing."""


@contextlib.contextmanager
def portable(kernels: Kernels) -> Iterator[None]:
    """A scope in which a program is traced that no compiler will see."""
    token = KERNELS.set(kernels)
    try:
        yield
    finally:
        KERNELS.reset(token)
