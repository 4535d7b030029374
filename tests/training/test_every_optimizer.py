"""Claims about ten steps of every optimizer: those of its paper, however it is trained with."""

import itertools

import keras
import numpy as np
import pytest

from keras_transformers.training import AdamW, Lamb, Muon, WarmupLinear
from keras_transformers.training.muon import polar_polynomials
from tests.slow import slow_except

STEPS, DECAY, NORM = 10, 0.1, 1.0
SHAPES = {"kernel": (5, 7), "bias": (7,), "embedding": (3, 2)}
SIZE = sum(map(np.prod, SHAPES.values()))
KINDS = {"AdamW": AdamW, "Lamb": Lamb, "Muon": Muon}
# Adam's change is below half a unit of bfloat16 at 1: by rounding alone, no weight would move.
RATES = {"AdamW": 0.002, "Lamb": 0.002, "Muon": 0.01}
# Precision -> dtype policy, and dtype of the kernel.
PRECISIONS = {
    "float32": ("float32", "float32"),
    "bfloat16": ("bfloat16", "bfloat16"),
    "float16": ("float16", "float16"),
    "mixed_bfloat16": ("mixed_bfloat16", "float32"),
    "mixed_float16": ("mixed_float16", "float32"),
    "bfloat16 beside float32": ("float32", "bfloat16"),
}
BITS = {"float32": 23, "bfloat16": 7, "float16": 10}  # of the mantissa
PRODUCT = itertools.product(KINDS, PRECISIONS, (1, 4), (1, 4), ("constant", "schedule"))
CASES = {", ".join(map(str, case)): case for case in PRODUCT}


class Weights(keras.layers.Layer):
    """All weights, each times an input: its gradient is that input."""

    def __init__(self, kernel_dtype, **options):
        super().__init__(**options)
        self.kernel_dtype = kernel_dtype

    def build(self, shape):
        self.parts = [
            self.add_weight(
                name=name,
                shape=size,
                initializer=keras.initializers.RandomNormal(seed=len(name)),
                dtype=self.kernel_dtype if name == "kernel" else None,
            )
            for name, size in SHAPES.items()
        ]

    def call(self, x):
        flat = [keras.ops.reshape(keras.ops.cast(part, x.dtype), (-1,)) for part in self.parts]
        return keras.ops.sum(x * keras.ops.concatenate(flat), axis=-1)


def adam(state, gradient, step, beta_2, epsilon):
    """The direction of Kingma & Ba 2015, algorithm 1."""
    state["m"] = 0.9 * state.get("m", 0) + 0.1 * gradient
    state["v"] = beta_2 * state.get("v", 0) + (1 - beta_2) * gradient**2
    return state["m"] / (1 - 0.9**step) / (np.sqrt(state["v"] / (1 - beta_2**step)) + epsilon)


def adamw_step(weight, name, gradient, state, step, rate):
    """Loshchilov & Hutter 2019, algorithm 2."""
    decay = 0 if name == "bias" else DECAY
    return weight - rate * (adam(state, gradient, step, 0.999, 1e-7) + decay * weight)


def lamb_step(weight, name, gradient, state, step, rate):
    """You et al. 2020, algorithm 2."""
    decay = 0 if name == "bias" else DECAY
    update = adam(state, gradient, step, 0.999, 1e-7) + decay * weight
    return weight - rate * np.linalg.norm(weight) / np.linalg.norm(update) * update


def muon_step(weight, name, gradient, state, step, rate):
    """Liu et al. 2025, equation 4, with Amsel's polynomials of the singular values."""
    if name != "kernel":
        decay = 0 if name == "bias" else DECAY
        return weight - rate * (adam(state, gradient, step, 0.98, 1e-9) + decay * weight)
    state["m"] = 0.95 * state.get("m", 0) + gradient
    left, values, right = np.linalg.svd(gradient + 0.95 * state["m"], full_matrices=False)
    values = values / np.sum(values**8) ** (1 / 8)
    for a, b, c in polar_polynomials(4):
        values = a * values + b * values**3 + c * values**5
    update = 0.2 * np.sqrt(max(weight.shape)) * (left * values) @ right
    return weight - rate * (update + DECAY * weight)


PAPERS = {"AdamW": adamw_step, "Lamb": lamb_step, "Muon": muon_step}


def by_the_paper(kind, weights, gradients, rates):
    """Weights after as many steps as there are gradients `(steps, SIZE)`, in float64."""
    cuts = np.cumsum([np.prod(shape) for shape in SHAPES.values()])[:-1]
    states = {name: {} for name in SHAPES}
    for step, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        gradient = gradient * min(1, NORM / np.linalg.norm(gradient))
        parts = dict(zip(SHAPES, np.split(gradient, cuts), strict=True))
        weights = {
            name: PAPERS[kind](
                weight, name, parts[name].reshape(weight.shape), states[name], step, rate
            )
            for name, weight in weights.items()
        }
    return weights


def learning_rates(kind, schedule):
    """A learning rate, and the number that it is in every step."""
    peak, steps = RATES[kind], np.arange(1, STEPS + 1)
    if schedule == "constant":
        return peak, np.full(STEPS, peak)
    rates = np.minimum(steps / 3, (STEPS + 1 - steps) / (STEPS + 1 - 3))
    return WarmupLinear(peak, 3, STEPS), peak * rates


def values_of(model):
    arrays = (keras.ops.convert_to_numpy(v).astype("float64") for v in model.trainable_variables)
    return dict(zip(SHAPES, arrays, strict=True))


def made(kind, precision, accumulated, per_execution, rate):
    policy, kernel_dtype = PRECISIONS[precision]
    keras.config.set_dtype_policy(policy)
    try:
        model = keras.Sequential([keras.Input((SIZE,)), Weights(kernel_dtype)])
        options = {"weight_decay": DECAY, "global_clipnorm": NORM}
        options["gradient_accumulation_steps"] = accumulated if accumulated > 1 else None
        model.compile(
            KINDS[kind](rate, **options),
            lambda _, sums: sums,
            steps_per_execution=per_execution,
            jit_compile=per_execution == 1,
        )
    finally:
        keras.config.set_dtype_policy("float32")
    draw = np.random.default_rng(1)
    model.set_weights([draw.normal(size=shape) for shape in SHAPES.values()])
    return model


@pytest.mark.parametrize(
    "case",
    slow_except(
        CASES,
        "AdamW, bfloat16, 4, 4, schedule",
        "AdamW, float16, 1, 1, constant",
        "Lamb, bfloat16, 1, 1, schedule",
        "Lamb, mixed_float16, 4, 1, constant",
        "Muon, bfloat16 beside float32, 4, 1, schedule",
        "Muon, float32, 1, 4, constant",
    ),
)
def test_ten_steps_are_those_of_the_paper(case):
    """Of every optimizer, precision, number of batches a step, and of steps an execution."""
    kind, precision, accumulated, per_execution, schedule = case
    rate, rates = learning_rates(kind, schedule)
    model = made(kind, precision, accumulated, per_execution, rate)
    start = values_of(model)
    # Eighths are exact in every dtype, and so are their means.
    batches = np.random.default_rng(0).integers(-8, 9, (STEPS * accumulated, SIZE)) / 8
    inputs = batches.astype("float32")
    model.fit(inputs, np.zeros(len(inputs)), batch_size=1, shuffle=False, verbose=0)
    expected = by_the_paper(
        kind, start, batches.reshape(STEPS, accumulated, SIZE).mean(axis=1), rates
    )
    received = values_of(model)
    for name, variable in zip(SHAPES, model.trainable_variables, strict=True):
        unit = 2.0 ** (np.floor(np.log2(np.abs(expected[name]))) - BITS[variable.dtype])
        error = np.abs(received[name] - expected[name])
        np.testing.assert_array_less(error, 1e-5 + 0.52 * unit, err_msg=name)
        assert np.mean(received[name] != start[name]) > 0.4
