"""Derivatives of forward mode and of second order, of a function of arrays, on TensorFlow and JAX.

Each takes the function and float arrays, and returns arrays. `way` is "eager", "graph" or "xla" on
TensorFlow, where JAX always compiles.
"""

import keras
import numpy as np


def factors(shape):
    """What an output is multiplied with before it is summed up, so that all of it matters."""
    return np.sin(1 + np.arange(np.prod(shape))).reshape(shape).astype("float32")


def forward(function, arrays, way="graph"):
    """The derivative in a direction, by forward mode."""
    directions = tuple(factors(x.shape) for x in arrays)
    if keras.backend.backend() == "jax":
        import jax

        return [np.array(jax.jit(lambda *x: jax.jvp(function, x, directions)[1])(*arrays))]
    import tensorflow as tf

    def run(*tensors):
        tangents = tuple(tf.constant(x) for x in directions)
        with tf.autodiff.ForwardAccumulator(tensors, tangents) as accumulator:
            y = function(*tensors)
        return [accumulator.jvp(y)]

    return _run(run, arrays, way)


def gradients(function, arrays, way="graph"):
    """The gradients of `sum(factors * y**2)`."""
    if keras.backend.backend() == "jax":
        import jax

        return _arrays(jax.jit(_gradients_of(function))(*arrays))
    import tensorflow as tf

    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = _total(function(*tensors))
        return tape.gradient(total, tensors)

    return _run(run, arrays, way)


def second(function, arrays, way="graph"):
    """The Hessian of `sum(factors * y**2)` times a vector, by two gradients."""
    if keras.backend.backend() == "jax":
        import jax

        return _arrays(jax.jit(jax.grad(_along(_gradients_of(function)), _all(arrays)))(*arrays))
    import tensorflow as tf

    def run(*tensors):
        with tf.GradientTape() as outer:
            outer.watch(tensors)
            with tf.GradientTape() as inner:
                inner.watch(tensors)
                total = _total(function(*tensors))
            gradients = inner.gradient(total, tensors, unconnected_gradients="zero")
            total = tf.add_n([tf.reduce_sum(x * factors(x.shape)) for x in gradients])
        return outer.gradient(total, tensors, unconnected_gradients="zero")

    return _run(run, arrays, way)


def forward_of_gradient(function, arrays, way="graph"):
    """The same, by forward mode of one gradient."""
    directions = tuple(factors(x.shape) for x in arrays)
    if keras.backend.backend() == "jax":
        import jax

        gradients = _gradients_of(function)
        return _arrays(jax.jit(lambda *x: jax.jvp(gradients, x, directions)[1])(*arrays))
    import tensorflow as tf

    def run(*tensors):
        tangents = tuple(tf.constant(x) for x in directions)
        with tf.autodiff.ForwardAccumulator(tensors, tangents) as accumulator:
            with tf.GradientTape() as tape:
                tape.watch(tensors)
                total = _total(function(*tensors))
            gradients = tape.gradient(total, tensors, unconnected_gradients="zero")
        return [accumulator.jvp(x, unconnected_gradients="zero") for x in gradients]

    return _run(run, arrays, way)


KINDS = {each.__name__: each for each in (forward, second, forward_of_gradient)}


def _total(y):
    return keras.ops.sum(y**2 * factors(y.shape))


def _all(arrays):
    return tuple(range(len(arrays)))


def _gradients_of(function):
    import jax

    return lambda *x: jax.grad(lambda *x: _total(function(*x)), _all(x))(*x)


def _along(gradients):
    return lambda *x: sum((g * factors(g.shape)).sum() for g in gradients(*x))


def _arrays(tensors):
    return [keras.ops.convert_to_numpy(x) for x in tensors]


def _run(function, arrays, way):
    import tensorflow as tf

    if way != "eager":
        function = tf.function(function, jit_compile=way == "xla", autograph=False)
    return _arrays(function(*map(tf.constant, arrays)))
