"""Assertions about sizes and values, checked while a program is traced, or when it runs.

`require(x, [same(rows, 4), divides(2, columns)], "Layer 'name': `x` must ...")`. A size is an
integer, or a scalar tensor if only the call knows it. A symbolic size is None, or an expression of
JAX, and is not checked.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_transformers.core.types import Tensor

SHOWN = 5  # wrong values in a message


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


def require_values(x: Tensor, holds: Tensor, sentence: str) -> Tensor:
    """Returns `x`, provided that `holds` is True for all of its elements.

    A wrong element raises an error where its value is known, which is in an eager call. A graph of
    TensorFlow asserts the claim when it runs. XLA and traced programs of JAX cannot raise errors:
    there the caller must see to it that the result shows what is wrong, as NaN does.

    Args:
        x: The tensor that the claim is about.
        holds: Bool, in the shape of `x`.
        sentence: The claim.

    Returns:
        `x`, or a tensor equal to it that exists only where the claim holds.

    Raises:
        ValueError: If an element of `holds` is known to be False.
    """
    if not _has_values(holds):
        return _asserted_values(x, holds, sentence) if _is_tensorflow() else x
    is_right = keras.ops.convert_to_numpy(holds)
    if not is_right.all():
        wrong = np.unique(keras.ops.convert_to_numpy(x)[~is_right])[:SHOWN]
        numbers = ", ".join(f"{number:g}" for number in wrong.tolist())
        raise ValueError(f"{sentence} Received: {numbers}")
    return x


def _has_values(x: Tensor) -> bool:
    """True if the elements of a tensor are known now, as they are in an eager call."""
    if _is_tensorflow():
        import tensorflow as tf

        return not tf.is_symbolic_tensor(x)
    if keras.backend.backend() == "jax":
        import jax

        return not isinstance(x, jax.core.Tracer)
    return True


def _is_tensorflow() -> bool:
    return keras.backend.backend() == "tensorflow"


def _asserted_values(x: Tensor, holds: Tensor, sentence: str) -> Tensor:
    import tensorflow as tf

    wrong = tf.boolean_mask(x, tf.logical_not(holds))[:SHOWN]
    asserted = tf.debugging.Assert(tf.reduce_all(holds), [f"{sentence} Received:", wrong])
    with tf.control_dependencies([asserted]):
        return tf.identity(x)


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
