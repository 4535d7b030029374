"""What kind of device programs run on, and how they are compiled for it."""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def on_accelerator() -> bool:
    """Whether there is a device that is no CPU, on TensorFlow and JAX."""
    return not all("cpu" in str(each).lower() for each in keras.distribution.list_devices())


def compiled(function: Callable[..., Any], variables: Sequence[Any]) -> Callable[..., Any]:
    """Compiles a function with XLA; what it returns stays on the device.

    Keras compiles models too, but gives NumPy arrays. Where the backend is neither TensorFlow nor
    JAX nothing is compiled.

    Args:
        function: Takes and returns tensors, also in dicts, lists and named tuples. It changes no
            variable.
        variables: Keras variables that it reads, with their values at the time of a call.

    Returns:
        The function, compiled once for all arguments of the same shapes.

    Example:
    >>> import keras
    >>> from keras_transformers.accelerators import compiled
    >>> weight = keras.Variable(2.0)
    >>> scaled = compiled(lambda inputs: inputs["x"] * weight, [weight])
    >>> float(scaled({"x": keras.ops.array(3.0)}))
    6.0
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True, autograph=False)
    if backend != "jax":
        return function
    import jax

    def with_values(values: Sequence[Any], *inputs: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function(*inputs)

    program = jax.jit(with_values)
    return lambda *inputs: program([variable.value for variable in variables], *inputs)
