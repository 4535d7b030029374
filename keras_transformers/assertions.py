"""Claims about sizes: checked while a program is traced, or when it runs.

`require(x, [same(rows, 4), divides(2, columns)], "Layer 'name': `x` must ...")`. A size is an
integer; a scalar tensor where only the call knows it; or None, or an expression of JAX, where it is
symbolic and nothing can be said of it.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import keras

from keras_transformers.annotations import Tensor


def same(size: Any, other: Any) -> Any:
    """Whether two sizes are equal."""
    return _unknowable(size, other) or size == other


def at_most(size: Any, most: Any) -> Any:
    """Whether a size is not larger than another."""
    return _unknowable(size, most) or size <= most


def divides(size: Any, extent: Any) -> Any:
    """Whether an extent is a multiple of a size."""
    return _unknowable(size, extent) or extent % size == 0


def _unknowable(*sizes: Any) -> bool:
    known = (isinstance(size, numbers.Integral) or keras.ops.is_tensor(size) for size in sizes)
    return not all(known)


def require(x: Tensor, conditions: Sequence[Any], sentence: str) -> Tensor:
    """`x`, provided that all conditions hold; else an error that says `sentence`.

    Sizes that are integers make conditions that are booleans, and a wrong one raises here; on JAX
    and PyTorch all do. In a graph of TensorFlow others are tensors, and the graph asserts them when
    it runs; `keras.ops` has no operation for that.

    Args:
        x: The tensor whose sizes they are about.
        conditions: Of `same`, `at_most` and `divides`.
        sentence: What must be so.

    Returns:
        `x`, or a tensor equal to it that exists only where the conditions hold.

    Raises:
        ValueError: If one of the conditions is known to be False.
    """
    open_ones = [condition for condition in conditions if keras.ops.is_tensor(condition)]
    if not all(condition for condition in conditions if not keras.ops.is_tensor(condition)):
        raise ValueError(f"{sentence} Received: shape {tuple(x.shape)}")
    if open_ones and keras.backend.backend() == "tensorflow":
        return _asserted(x, open_ones, sentence)
    return x


def _asserted(x: Tensor, conditions: Sequence[Any], sentence: str) -> Tensor:
    import tensorflow as tf

    holds = tf.reduce_all(tf.stack(conditions))
    shape = tf.shape(x)
    asserted = tf.debugging.Assert(holds, [f"{sentence} Received: shape", shape])
    with tf.control_dependencies([asserted]):
        y = tf.identity(x)
    # XLA leaves assertions out. It knows all sizes when it compiles, and there is no size -2.
    y = tf.reshape(y, tf.where(holds, shape, -2))
    y.set_shape(x.shape)
    return y
