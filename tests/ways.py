"""Output and gradients of attention layers, computed the plain way and another, on any backend.

`python -m tests.ways` prints how far the two are apart in every case, as JSON.
"""

import contextlib
import json
from unittest import mock

import keras
import numpy as np

from keras_transformers.layers import (
    ALiBi,
    CausalSelfAttention,
    CrossAttention,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.layers.attention import kernels

BATCH, LENGTH, CONTEXT_LENGTH, WIDTH = 2, 37, 23, 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
CONTEXT = RNG.normal(size=(BATCH, CONTEXT_LENGTH, WIDTH)).astype("float32")
END = np.arange(LENGTH) < np.array([[LENGTH], [11]])  # padding at the end
FRONT = np.arange(LENGTH) >= np.array([[0], [9]])  # and before the tokens: those see nothing
PAIRS = RNG.random((BATCH, LENGTH, CONTEXT_LENGTH)) < 0.5
PAIRS[:, 3] = False  # a query that may attend to nothing
BIAS = RNG.normal(size=(BATCH, 3, LENGTH, LENGTH)).astype("float32")
BIAS[:, :, :, 5] = -np.inf
CAUSAL_BUCKETS = RelativePositionBias(8, 20, bidirectional=False)

# Name -> layer, what it is called with, further arguments of the call.
CASES = {
    "padding": (lambda: SelfAttention(3), (X,), {"mask": END}),
    "causal": (lambda: CausalSelfAttention(3), (X,), {}),
    "causal, padding in front": (lambda: CausalSelfAttention(2), (X,), {"mask": FRONT}),
    "pairs": (lambda: CrossAttention(3), (X, CONTEXT), {"attention_mask": PAIRS}),
    "padded context": (
        lambda: CrossAttention(2, value_dim=5),
        (X, CONTEXT),
        {"context_mask": END[:, :CONTEXT_LENGTH]},
    ),
    "grouped, rotary": (
        lambda: CausalSelfAttention(6, num_key_value_heads=2, position=RotaryEmbedding()),
        (X,),
        {},
    ),
    "one head of keys": (lambda: SelfAttention(6, num_key_value_heads=1), (X,), {"mask": END}),
    "T5": (lambda: CausalSelfAttention(3, position=CAUSAL_BUCKETS), (X,), {"mask": END}),
    "T5, both ways": (lambda: SelfAttention(3, position=RelativePositionBias(8, 20)), (X,), {}),
    "ALiBi": (lambda: SelfAttention(4, position=ALiBi()), (X,), {}),
    "bias": (lambda: MultiHeadAttention(3), (X,), {"attention_bias": BIAS}),
    "dropout": (
        lambda: CausalSelfAttention(3, dropout=0.3, seed=5),
        (X,),
        {"training": True, "mask": END},
    ),
    "dropout, grouped, T5": (
        lambda: SelfAttention(
            6, num_key_value_heads=3, position=RelativePositionBias(8, 20), dropout=0.3, seed=5
        ),
        (X,),
        {"training": True},
    ),
}


@contextlib.contextmanager
def one_way(plain, kernel=None):
    """All attention is plain, or none is that need not be and blocks are small.

    `kernel` says whether Keras's operation is used; by default as on this machine.
    """
    with contextlib.ExitStack() as stack:
        patch = mock.patch.object
        for least in ("LEAST_PAIRS", "LEAST_PAIRS_OF_CUDNN"):
            stack.enter_context(patch(kernels, least, 10**9 if plain else 1))
        stack.enter_context(patch(kernels, "SCORES", 300))
        if kernel is not None:
            stack.enter_context(patch(kernels, "_has_kernel", lambda layer: kernel))
        yield


def made(name, dtype="float32"):
    """The layer of a case, a function that calls it, and what that is called with."""
    keras.utils.set_random_seed(3)
    make, inputs, arguments = CASES[name]
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    layer = make()
    keras.config.set_dtype_policy(before)
    layer.build(*(x.shape for x in inputs))
    bias = arguments.get("attention_bias")
    tensors = [*inputs, *([] if bias is None else [bias])]

    def call(*tensors):
        more = {} if bias is None else {"attention_bias": tensors[-1]}
        return layer(*tensors[: len(inputs)], **{**arguments, **more})

    return layer, call, tensors


def function_of(name):
    """The layer of a case as a function of inputs, bias and weights, and these as arrays."""
    layer, call, tensors = made(name)
    weights, number = layer.trainable_weights, len(tensors)
    others = [(weight, weight.value) for weight in layer.non_trainable_variables]

    def function(*given):
        mapping = [*zip(weights, given[number:], strict=True), *others]
        with keras.StatelessScope(state_mapping=mapping):
            return call(*given[:number])

    return function, [*tensors, *(keras.ops.convert_to_numpy(weight.value) for weight in weights)]


def output_and_gradients(name, dtype="float32", xla=False):
    """Arrays: the output, and the gradients of inputs, the bias and weights."""
    layer, call, tensors = made(name, dtype)
    function = globals()[f"_on_{keras.backend.backend()}"]
    return [np.float32(x) for x in function(call, layer, tensors, xla)]


def _factors(shape):
    """What the output is multiplied with before it is summed up, so that all of it matters."""
    return np.sin(np.arange(np.prod(shape))).reshape(shape).astype("float32")


def _on_tensorflow(call, layer, tensors, xla):
    import tensorflow as tf

    @tf.function(jit_compile=xla, autograph=False)
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = call(*tensors)
            total = tf.reduce_sum(tf.cast(y, "float32") * _factors(y.shape))
        weights = [weight.value for weight in layer.trainable_weights]
        return y, *tape.gradient(total, [*tensors, *weights])

    return [keras.ops.convert_to_numpy(x) for x in run(*map(tf.constant, tensors))]


def _on_jax(call, layer, tensors, xla):
    import jax

    weights = [weight.value for weight in layer.trainable_weights]
    others = [weight.value for weight in layer.non_trainable_variables]

    def run(tensors, weights):
        mapping = [*zip(layer.trainable_weights, weights, strict=True)]
        mapping += zip(layer.non_trainable_variables, others, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            y = call(*tensors)
        return (y.astype("float32") * _factors(y.shape)).sum(), y

    (_, y), gradients = jax.jit(jax.value_and_grad(run, (0, 1), has_aux=True))(tensors, weights)
    return [y, *jax.tree.leaves(gradients)]


def _on_torch(call, layer, tensors, xla):
    import torch

    tensors = [torch.tensor(x, requires_grad=True) for x in tensors]
    y = call(*tensors)
    (y.float() * torch.tensor(_factors(tuple(y.shape)))).sum().backward()
    weights = [weight.value for weight in layer.trainable_weights]
    return [x.detach().numpy() for x in (y, *(x.grad for x in (*tensors, *weights)))]


def apart(name, kernel=None, dtype="float32", xla=False):
    """Largest difference between the plain way and the other, of arrays of numbers up to 1."""
    with one_way(plain=True):
        plain = output_and_gradients(name, dtype, xla)
    with one_way(plain=False, kernel=kernel):
        other = output_and_gradients(name, dtype, xla)
    assert len(plain) == len(other)
    return max(
        float(np.abs(x - y).max()) / max(1, float(np.abs(x).max()))
        for x, y in zip(plain, other, strict=True)
    )


if __name__ == "__main__":
    found = {name: apart(name) for name in CASES}
    if keras.backend.backend() == "jax":  # what a GPU would be given
        # None drops weights, or takes values of another width.
        others = ("dropout", "dropout, grouped, T5", "padded context")
        found |= {f"{name}, kernel": apart(name, kernel=True) for name in CASES.keys() - others}
    print(json.dumps(found))
