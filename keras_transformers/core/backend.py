"""Functions that depend on the backend: gradients, compilation, assertions, kernels, event files.

`gradient` and `custom_gradient` work on each backend. Adam's step is one operation where a backend
has it. TensorFlow alone writes TensorBoard's event files, so TensorBoard need not be installed.

`require(x, [same(rows, 4), divides(2, columns)], "Layer 'name': `x` must ...")` asserts sizes. A
size is an integer, or a scalar tensor if only the call knows it. A symbolic size is None, or an
expression of JAX, and is not checked.

XLA fuses neighbouring operations and knows all sizes. Without XLA every operation is a call, and
other operations are quick: products of two matrices, slices written in place, no copies. Layers ask
`KERNELS` for them; the code that traces such a program provides them.
"""

import contextlib
import contextvars
import functools
import numbers
import pathlib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Tensor


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
    >>> from keras_transformers.core.backend import gradient
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


def custom_gradient(
    forward: Callable[..., tuple[Any, ...]],
    backward: Callable[..., Sequence[Tensor | None]],
    plain: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    """A function whose output and gradient are computed by given functions.

    `ops.custom_gradient` replaces the gradient too, but then TensorFlow differentiates the gradient
    operation by operation, which fails for loops that write into slices, and JAX has no
    derivative in forward mode. Here derivatives of forward mode and of higher order are those of
    `plain`. On PyTorch it is `ops.custom_gradient`.

    Args:
        forward: Takes the tensors, and returns the output and, behind it, other tensors that
            `backward` needs.
        backward: Takes the tensors, what `forward` returned, and the gradient by the output, each
            of the first two as a tuple. Returns the gradient by each tensor, in its dtype; None for
            a constant.
        plain: Takes the tensors, and returns the same output in shape and dtype, by operations
            that the backend can differentiate.

    None of the three functions may use tensors that are not among its arguments.

    Returns:
        A function of one or more tensors, at least one of them floating, that returns the output.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.core.backend import custom_gradient, gradient
    >>> cube = custom_gradient(
    ...     lambda x: (x**3,), lambda tensors, found, upstream: [3 * tensors[0] ** 2 * upstream],
    ...     lambda x: x**3,
    ... )
    >>> float(gradient(lambda x: cube(x), ops.convert_to_tensor(2.0)))
    12.0
    >>> float(gradient(lambda x: gradient(cube, x), ops.convert_to_tensor(2.0)))
    12.0
    """
    by_backend = {"tensorflow": _custom_gradient_tensorflow, "jax": _custom_gradient_jax}
    derive = by_backend.get(keras.backend.backend(), _custom_gradient_keras)
    return functools.partial(derive, forward, backward, plain)


def _floating(tensors: Sequence[Tensor]) -> list[int]:
    """Indices of the tensors that can have a gradient."""
    dtypes = [keras.backend.standardize_dtype(x.dtype) for x in tensors]
    return [i for i, dtype in enumerate(dtypes) if keras.backend.is_float_dtype(dtype)]


def _replaced(tensors: Sequence[Any], indices: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """`tensors` with new ones at some indices."""
    replaced = dict(zip(indices, new, strict=True))
    return [replaced.get(i, x) for i, x in enumerate(tensors)]


def _custom_gradient_keras(forward: Any, backward: Any, plain: Any, *tensors: Tensor) -> Tensor:
    def computed(*tensors: Tensor) -> tuple[Tensor, Any]:
        outputs = forward(*tensors)

        def derivative(*arguments: Any, upstream: Tensor | None = None) -> tuple[Any, ...]:
            # PyTorch gives the gradient by name, behind what the function was called with.
            upstream = arguments[0] if upstream is None else upstream
            return tuple(backward(tensors, outputs, upstream))

        return outputs[0], derivative

    return ops.custom_gradient(computed)(*tensors)


def _custom_gradient_tensorflow(
    forward: Any, backward: Any, plain: Any, *tensors: Tensor
) -> Tensor:
    import tensorflow as tf
    from tensorflow.python.eager import forwardprop_util

    tensors = tuple(map(tf.convert_to_tensor, tensors))  # reads variables
    # True if a `tf.autodiff.ForwardAccumulator` follows a tensor. It needs the gradient of each
    # operation; in a graph it takes the derivative of a `tf.custom_gradient` to be zero. TensorFlow
    # has no public way to ask for it; `tests/core/test_gradients.py` fails if this one changes.
    if forwardprop_util.pack_tangents(list(tensors)).tangents:
        return plain(*tensors)
    floating = _floating(tensors)

    # `stop_gradient` hides the operations of `forward` and `backward` from outer tapes.
    def computed(*tensors: Tensor) -> tuple[Tensor, Any]:
        constants = tuple(map(tf.stop_gradient, tensors))
        outputs = forward(*constants)

        def first(upstream: Tensor) -> list[Tensor | None]:
            changes = list(backward(constants, outputs, tf.stop_gradient(upstream)))
            varied = [i for i in floating if changes[i] is not None]

            def gradients(upstream: Tensor, *inputs: Tensor) -> tuple[list[Any], Any]:
                def second(*directions: Tensor) -> list[Tensor]:
                    by = [upstream, *inputs]
                    with tf.GradientTape(watch_accessed_variables=False) as outer:
                        outer.watch(by)
                        with tf.GradientTape(watch_accessed_variables=False) as inner:
                            inner.watch(inputs)
                            y = plain(*_replaced(tensors, varied, inputs))
                        derived = inner.gradient(y, inputs, upstream, "zero")
                    return outer.gradient(derived, by, list(directions), "zero")

                return [changes[i] for i in varied], second

            inputs = [tensors[i] for i in varied]
            first_order = tf.custom_gradient(gradients)(upstream, *inputs)
            return _replaced(changes, varied, first_order)

        return outputs[0], first

    return tf.custom_gradient(computed)(*tensors)


def _custom_gradient_jax(forward: Any, backward: Any, plain: Any, *tensors: Tensor) -> Tensor:
    import jax
    import jax.numpy as jnp

    tensors = tuple(map(ops.convert_to_tensor, tensors))
    floating = _floating(tensors)

    @jax.custom_jvp
    def output(outputs: tuple[Tensor, ...], *tensors: Tensor) -> Tensor:
        return outputs[0]

    @functools.partial(output.defjvp, symbolic_zeros=True)
    def derivative(primals: Any, tangents: Any) -> tuple[Tensor, Tensor]:
        outputs, *tensors = primals
        zero = jax.custom_derivatives.SymbolicZero
        varied = [i for i in floating if not isinstance(tangents[i + 1], zero)]
        y = output(outputs, *tensors)
        if not varied:
            return y, jnp.zeros_like(y)

        inputs = [tensors[i] for i in varied]

        def tangent(directions: Sequence[Tensor]) -> Tensor:
            def plain_of_varied(*inputs: Tensor) -> Tensor:
                return plain(*_replaced(tensors, varied, inputs))

            return jax.jvp(plain_of_varied, tuple(inputs), tuple(directions))[1]

        def transposed(upstream: Tensor) -> list[Tensor | None]:
            changes = backward(tuple(tensors), outputs, upstream)
            return [changes[i] for i in varied]

        directions = [tangents[i + 1] for i in varied]
        return y, _linear_map(tangent, transposed, directions, y, inputs)

    return output(forward(*map(jax.lax.stop_gradient, tensors)), *tensors)


def _linear_map(
    tangent: Callable[[Sequence[Tensor]], Tensor],
    transposed: Callable[[Tensor], Sequence[Tensor | None]],
    directions: list[Tensor],
    like: Tensor,
    inputs: Sequence[Tensor],
) -> Tensor:
    """Returns `tangent(directions)`, of which JAX computes the transpose by `transposed`.

    JAX has one linear map that can be given a transpose and be differentiated further: the solution
    of linear equations. With `T` for `tangent`, `(x, y - T x) = (b, 0)` is solved by `(b, T b)`.

    Args:
        tangent: Linear; it may use `inputs`.
        transposed: Returns the gradient by each of the directions, or None for zero.
        directions: Tensors of the shapes of `inputs`.
        like: A tensor of the shape and dtype of the result.
        inputs: The tensors by which the result can be differentiated further.
    """
    import jax
    import jax.numpy as jnp

    def linked(x: Tensor) -> Tensor:
        """Adds a zero that JAX takes for a bilinear function of `x` and all of `inputs`.

        `custom_linear_solve` fails where it knows that a derivative is zero.
        """
        zeros = [ops.cast(_make_zero(tensor), x.dtype) for tensor in inputs]
        return x + _make_zero(x) * sum(zeros[1:], start=zeros[0])

    def equations(vector: Any) -> Any:
        x, y = vector
        return list(map(linked, x)), linked(y - tangent(x))

    def solve(_: Any, vector: Any) -> Any:
        x, y = vector
        return x, y + tangent(x)

    def solve_transposed(_: Any, vector: Any) -> Any:
        x, upstream = vector
        pairs = zip(x, transposed(upstream), strict=True)
        return [a if change is None else a + change for a, change in pairs], upstream

    # JAX transposes the right-hand side only where all of it depends on the directions.
    zeros = jnp.broadcast_to(ops.cast(_make_zero(directions[0]), like.dtype), like.shape)
    solved = jax.lax.custom_linear_solve(equations, (directions, zeros), solve, solve_transposed)
    result: Tensor = solved[1]
    return result


def _make_zero(x: Tensor) -> Tensor:
    """Returns 0, the sum of an empty part of `x`. Compilers remove it; JAX keeps track of it."""
    return ops.sum(ops.reshape(x, (-1,))[:0])


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
    >>> from keras_transformers.core.backend import compiled
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


def has_adam() -> bool:
    """Whether the backend has Adam's step as one operation, as TensorFlow has."""
    return keras.backend.backend() == "tensorflow"


def apply_adam(
    gradient: Tensor, variable: Any, moment: Any, velocity: Any, scalars: dict[str, Tensor]
) -> None:
    """Adam's step (Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, section 2, last formulas).

    Args:
        gradient: Of the variable's shape and dtype.
        variable, moment, velocity: What it changes.
        scalars: `lr`, `beta1`, `beta2`, `epsilon`, and the powers `beta1_power` and `beta2_power`
            of this step, all of that dtype.
    """
    import tensorflow as tf

    var, m, v = (_handle(each) for each in (variable, moment, velocity))
    tf.raw_ops.ResourceApplyAdam(var=var, m=m, v=v, grad=gradient, **scalars)


def _handle(variable: Any) -> Any:
    return (variable.value if isinstance(variable, keras.Variable) else variable).handle


class EventFiles:
    """Curves of TensorBoard under a folder, on the disk after each call.

    Args:
        folder: Of all of them.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def write(self, name: str, step: int, numbers: Mapping[str, float]) -> None:
        """Adds a point to each of some curves.

        Args:
            name: Folder within the folder, which TensorBoard calls a run.
            step: Where the points stand.
            numbers: Name of a curve -> value.
        """
        if not numbers:
            return
        import tensorflow as tf

        if name not in self._writers:
            self._writers[name] = tf.summary.create_file_writer(str(self.folder / name))
        value = tf.compat.v1.Summary.Value
        values = [value(tag=key, simple_value=number) for key, number in numbers.items()]
        summary = tf.compat.v1.Summary(value=values).SerializeToString()
        with self._writers[name].as_default():
            tf.summary.experimental.write_raw_pb(summary, step)
        self._writers[name].flush()


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
