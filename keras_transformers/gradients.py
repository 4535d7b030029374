"""The gradient of a function of tensors, by the backend in use: Keras itself has none."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.annotations import Tensor


def gradient(function: Callable[[Any], Tensor], tensors: Any) -> Any:
    """The gradient of a function at some tensors.

    Args:
        function: Takes what has the structure of `tensors`, and gives a scalar.
        tensors: A float tensor, or a dict or list of such.

    Returns:
        Gradients, in the same structure; 0 where the function does not depend on a tensor.

    Raises:
        ValueError: On a backend other than TensorFlow and JAX.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.gradients import gradient
    >>> found = gradient(lambda x: ops.sum(x["a"] ** 2), {"a": ops.ones(3)})
    >>> ops.convert_to_numpy(found["a"]).tolist()
    [2.0, 2.0, 2.0]
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.grad(function)(tensors)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensors)
            value = function(tensors)
        return tape.gradient(value, tensors, unconnected_gradients="zero")
    raise ValueError(f"gradient: the backend must be TensorFlow or JAX. Received: {backend}")
