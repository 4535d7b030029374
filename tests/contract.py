"""What every layer, and every model, must do, whatever it computes.

`check_layer` checks, one function a duty: the configuration, gradients, precision policies and XLA
of a layer that has been called, what `build` makes, and symbolic shapes and saving of one that met
symbols first. Neither file system nor backend matters: the same call works on TensorFlow and on
JAX.
"""

import inspect
import json
import pathlib
import tempfile

import keras
import numpy as np
from keras import ops

from keras_transformers import saving

# Largest difference from float32 that a policy may cause, as a share of the largest output.
POLICIES = {"float16": 1e-2, "bfloat16": 6e-2, "mixed_float16": 1e-2, "mixed_bfloat16": 6e-2}
ON_JAX = keras.backend.backend() == "jax"
if ON_JAX:  # which compiles every operation for every dtype
    POLICIES = {"mixed_float16": POLICIES["mixed_float16"]}
# Adds the same to every score of a query, so that the softmax, and with it the loss, ignores it.
NO_GRADIENT = ("key/bias",)


def check_layer(make_layer, inputs, arguments=None, no_gradient=NO_GRADIENT, policies=POLICIES):
    """Asserts the whole contract.

    Args:
        make_layer: Function that takes keyword arguments of `keras.layers.Layer` (`name`, `dtype`)
            and returns a new layer.
        inputs: Tuple of the positional arguments of a call: NumPy arrays, or dicts of them.
        arguments: Dict of further call arguments, which are not tensors.
        no_gradient: Ends of the paths of weights whose gradient may be zero.
        policies: Dict of dtype policies to the tolerance of each.
    """
    arguments = arguments or {}
    layer = make_layer()
    expected = call(layer, inputs, arguments)
    check_config(layer, expected, inputs, arguments)
    check_gradients(layer, inputs, arguments, no_gradient)
    check_policies(make_layer, layer, expected, inputs, arguments, policies)
    if not ON_JAX:  # where `expected` is what XLA computes
        check_xla(layer, expected, inputs, arguments)
    check_build(make_layer, inputs, arguments)
    check_symbols_and_saving(make_layer, inputs, arguments)


def check_config(layer, expected, inputs, arguments):
    """`from_config(get_config())` is the same layer, and the configuration is complete and JSON."""
    config = layer.get_config()
    for name, parameter in inspect.signature(type(layer)).parameters.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        assert not named or name in config, f"get_config() lacks `{name}`"
    json.dumps(config)
    twin = type(layer).from_config(config)
    assert twin.get_config() == config
    call(twin, inputs, arguments)
    twin.set_weights(layer.get_weights())
    assert_close(call(twin, inputs, arguments), expected, 0)


def check_build(make_layer, inputs, arguments):
    """`build` alone, without the batch size, makes the weights that a call makes."""
    built, called = make_layer(name="same"), make_layer(name="same")
    built.build(*shapes_of(inputs))
    if ON_JAX:  # what a call computes is compiled often enough elsewhere
        called(*symbols_of(inputs), **arguments, **_inference(called))
    else:
        call(called, inputs, arguments)
    expected = [(weight.path, tuple(weight.shape)) for weight in called.weights]
    assert [(weight.path, tuple(weight.shape)) for weight in built.weights] == expected
    for layer in (*sublayers(built), *sublayers(called)):
        assert layer.built, f"{layer.name} was not built"


def check_symbols_and_saving(make_layer, inputs, arguments):
    """With the batch size unknown, shapes and dtypes are those of an eager call.

    And a model with the layer computes the very same after `save` and `saving.load_model`.
    """
    layer, symbols = make_layer(), symbols_of(inputs)
    symbolic = layer(*symbols, **arguments)
    expected = call(layer, inputs, arguments)
    outputs = (keras.tree.flatten(each) for each in (expected, symbolic))
    for eager, received in zip(*outputs, strict=True):
        assert received.shape == (None, *eager.shape[1:])
        assert keras.backend.standardize_dtype(received.dtype) == dtype_of(eager)
    if isinstance(layer, keras.Model):
        model, inputs = layer, inputs[0]
    else:
        model, inputs = keras.Model(symbols, symbolic), list(inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        model.save(path)
        loaded = saving.load_model(path)
    assert_close(call(loaded, (inputs,)), expected, 0)


def check_gradients(layer, inputs, arguments, no_gradient):
    """Every trainable weight has a finite gradient that is not zero everywhere."""
    found = gradients(layer, inputs, arguments)
    for weight, gradient in zip(layer.trainable_variables, found, strict=True):
        assert gradient is not None, f"{weight.path} has no gradient"
        assert np.isfinite(gradient).all(), f"{weight.path}: gradient not finite"
        exempt = weight.path.endswith(tuple(no_gradient))
        assert exempt or np.any(gradient), f"{weight.path}: gradient is zero"


def check_policies(make_layer, reference, expected, inputs, arguments, policies):
    """Sublayers, weights and outputs follow the dtype policy; outputs stay near float32's."""
    expected = keras.tree.flatten(to_numpy(expected))
    for policy, tolerance in policies.items():
        layer = make_layer(dtype=policy)
        layer.build(*shapes_of(inputs))
        layer.set_weights(reference.get_weights())
        for part in sublayers(layer):
            assert part.dtype_policy.name == policy, f"{part.path} ignores {policy}"
        for weight in layer.weights:
            dtype = keras.backend.standardize_dtype(weight.dtype)
            assert dtype == layer.variable_dtype, f"{weight.path} is {dtype} under {policy}"
        outputs = keras.tree.flatten(call(layer, inputs, arguments))
        for output, reference_output in zip(outputs, expected, strict=True):
            assert dtype_of(output) == layer.compute_dtype
            assert_close(output, reference_output, tolerance * np.abs(reference_output).max())


def check_xla(layer, expected, inputs, arguments, tolerance=1e-5):
    """Compiled by XLA it computes what it computes eagerly."""
    largest = max(np.abs(each).max() for each in keras.tree.flatten(to_numpy(expected)))
    found = compiled(layer, **arguments)(*to_tensors(inputs))
    assert_close(found, expected, tolerance * max(1.0, float(largest)))


def randomised(layer, shape, seed=0):
    """The layer, built, with random weights of about unit gain."""
    layer.build(shape)
    rng = np.random.default_rng(seed)
    layer.set_weights([rng.normal(size=weight.shape) / 3 for weight in layer.get_weights()])
    return layer


def number_of_parameters(model, shape):
    """Of a model that is built without room for its weights, of whatever size."""
    with keras.StatelessScope(initialize_variables=False):
        model.build(shape)
    keras.utils.clear_session()  # or Keras would make up for it when the next scope ends
    return model.count_params()


def call(layer, inputs, arguments=None):
    """Calls a layer for inference: eagerly, but on JAX, which would compile each operation."""
    arguments = arguments or {}
    if not ON_JAX:
        return layer(*to_tensors(inputs), **arguments, **_inference(layer))
    if not layer.built:
        layer(*symbols_of(inputs), **arguments, **_inference(layer))
    return compiled(layer, **arguments)(*to_tensors(inputs))


def _inference(layer):
    """`training=False` for a layer that takes it."""
    return {"training": False} if "training" in inspect.signature(layer.call).parameters else {}


def compiled(layer, **arguments):
    """`layer` for inference, compiled by XLA on the backend in use."""
    arguments = {**arguments, **_inference(layer)}
    if ON_JAX:
        import jax

        def run(trainable, others, inputs):  # `stateless_call` casts no inputs
            variables = (*layer.trainable_variables, *layer.non_trainable_variables)
            values = zip(variables, (*trainable, *others), strict=True)
            with keras.StatelessScope(state_mapping=values):
                return layer(*inputs, **arguments)

        run = jax.jit(run)
        return lambda *inputs: run(*_states(layer), inputs)
    import tensorflow as tf

    return tf.function(lambda *inputs: layer(*inputs, **arguments), jit_compile=True)


def gradients(layer, inputs, arguments=None):
    """Gradients of a random projection of the outputs, one array for each trainable variable."""
    arguments = {**(arguments or {}), **_inference(layer)}
    inputs = to_tensors(inputs)

    def project(outputs):
        # Not the plain sum: that of a layer norm's output is constant.
        rng = np.random.default_rng(7)
        return sum(
            ops.sum(output * ops.convert_to_tensor(rng.normal(size=output.shape), output.dtype))
            for output in keras.tree.flatten(outputs)
        )

    if ON_JAX:
        import jax

        def loss(trainable, others):
            return project(layer.stateless_call(trainable, others, *inputs, **arguments)[0])

        found = jax.jit(jax.grad(loss))(*_states(layer))
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = project(layer(*inputs, **arguments))
        found = tape.gradient(value, [weight.value for weight in layer.trainable_variables])
        found = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in found]
    return [None if gradient is None else to_numpy(gradient) for gradient in found]


def _states(layer):
    """Values of the variables, as `stateless_call` takes them."""
    trainable = [variable.value for variable in layer.trainable_variables]
    return trainable, [variable.value for variable in layer.non_trainable_variables]


def sublayers(layer):
    """The layer and every layer inside it."""
    return list(layer._flatten_layers())


def shapes_of(inputs):
    return tuple(
        {name: (None, *array.shape[1:]) for name, array in each.items()}
        if isinstance(each, dict)
        else (None, *each.shape[1:])
        for each in inputs
    )


def symbols_of(inputs):
    """Keras inputs like the given arrays, the batch size unknown."""
    return keras.tree.map_structure(
        lambda array: keras.Input(batch_shape=(None, *array.shape[1:]), dtype=str(array.dtype)),
        list(inputs),
    )


def to_tensors(inputs):
    return keras.tree.map_structure(ops.convert_to_tensor, tuple(inputs))


def to_numpy(tensors):
    """NumPy arrays, in float32 where the dtype is a float that NumPy lacks."""

    def convert(tensor):
        widen = dtype_of(tensor) in ("float16", "bfloat16")
        return ops.convert_to_numpy(ops.cast(tensor, "float32") if widen else tensor)

    return keras.tree.map_structure(convert, tensors)


def dtype_of(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def assert_close(received, expected, tolerance):
    """No element differs by more than `tolerance`; 0 demands the same bits."""
    received, expected = (keras.tree.flatten(to_numpy(each)) for each in (received, expected))
    for one, other in zip(received, expected, strict=True):
        assert one.shape == other.shape, f"shapes {one.shape} and {other.shape}"
        if one.dtype == bool or tolerance == 0:
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
