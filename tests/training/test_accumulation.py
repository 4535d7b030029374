"""Claims about gradients of several batches that make one step."""

import keras
import numpy as np
import pytest

from keras_transformers.models import Transformer, ViT
from keras_transformers.training import (
    AdamW,
    BudgetedDecay,
    InverseSquareRoot,
    Lamb,
    Muon,
    SmoothedCrossEntropy,
    WarmupLinear,
)
from tests.slow import slow_except

ON_JAX = keras.backend.backend() == "jax"
RNG = np.random.default_rng(11)
IMAGES = RNG.normal(size=(48, 16, 16, 3)).astype("float32")
IDS = RNG.integers(1, 31, (48, 7)).astype("int32")
BLOCK = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 19, "num_layers": 2, "dropout": 0.0}


def vit():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return ViT.from_variant("B/4", 5, image_size=16, **BLOCK), loss, IMAGES, np.arange(48) % 5


def transformer(ids=IDS, reduction="mean_with_sample_weight"):
    inputs = {"source": ids, "target": ids[:, ::-1]}
    return Transformer(31, **BLOCK), SmoothedCrossEntropy(0.1, reduction=reduction), inputs, ids


def weights(make, accumulated, optimizer=AdamW, batch=16, rate=1e-2, callbacks=()):
    """After three steps with so many rows each, in so many batches."""
    keras.utils.set_random_seed(4)
    model, loss, inputs, targets = make()
    model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
    steps = accumulated if accumulated > 1 else None
    # Epsilon above the rounding of gradients that are zero, as that of the keys' bias is.
    model.compile(
        optimizer(
            rate,
            weight_decay=0.05,
            epsilon=1e-4,
            global_clipnorm=0.1,
            gradient_accumulation_steps=steps,
        ),
        loss,
        jit_compile=True,
    )
    model.fit(
        inputs,
        targets,
        batch_size=batch // accumulated,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    # A key's bias changes no output: its gradient is rounding, which Muon makes as large as any.
    kept = [v for v in model.trainable_variables if not v.path.endswith("key/bias")]
    return [keras.ops.convert_to_numpy(variable).astype("float64") for variable in kept]


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("make", [vit, pytest.param(transformer, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", [AdamW, pytest.param(Muon, marks=pytest.mark.slow)])
def test_four_batches_make_the_step_of_one_four_times_as_large(make, optimizer):
    assert difference(weights(make, 4, optimizer), weights(make, 1, optimizer)) < 1e-5


SCHEDULES = {
    "linear": WarmupLinear(0.02, 2, 3),
    "inverse square root": InverseSquareRoot(16, 2, scale=0.1),
    "cosine": keras.optimizers.schedules.CosineDecay(0.01, 3, warmup_target=0.02, warmup_steps=1),
    "a budget's": None,
}


@pytest.mark.parametrize("schedule", slow_except(SCHEDULES, "a budget's"))
@pytest.mark.parametrize("optimizer", [AdamW, *(pytest.param(o, marks=pytest.mark.slow) for o in
    (Lamb, Muon))])  # fmt: skip
def test_a_schedule_counts_steps_of_any_number_of_batches(schedule, optimizer):
    def trained(accumulated):
        budget = [] if schedule else [BudgetedDecay(0.02, warmup_steps=2, steps=3)]
        rate = schedule or 0.0
        return weights(vit, accumulated, optimizer, rate=rate, callbacks=budget)

    assert difference(trained(4), trained(1)) < 2e-5


@pytest.mark.slow
def test_means_over_unequal_numbers_of_tokens_weigh_the_same_but_sums_do_not():
    ids = np.where(np.arange(7) < RNG.integers(1, 8, 48)[:, None], IDS, 0)

    def means():
        return transformer(ids)

    def sums():  # clipped to the same norm: the factor of four between them is gone
        return transformer(ids, "sum")

    assert difference(weights(means, 4), weights(means, 1)) > 1e-3
    assert difference(weights(sums, 4), weights(sums, 1)) < 1e-5


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
@pytest.mark.parametrize("accumulated", [None, 4])
def test_averaged_weights_are_averaged_once_a_step(optimizer, accumulated):
    """By NumPy, from the weights after each step of the optimizer."""
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    settings = {"use_ema": True, "ema_momentum": 0.8}
    model.compile(
        optimizer(0.05, gradient_accumulation_steps=accumulated, **settings),
        "mse",
        jit_compile=False,
    )
    expected, batches = None, accumulated or 1
    for batch in range(5 * batches):
        model.train_on_batch(IMAGES[batch, 0, :4], IMAGES[batch, 1, :4, :1])
        if ON_JAX:
            model.jax_state_sync()
        now = [keras.ops.convert_to_numpy(v).astype("float64") for v in model.trainable_variables]
        if expected is None or batch < batches:  # the average of what there is begins with it
            expected = now
        elif (batch + 1) % batches == 0:
            expected = [0.8 * e + 0.2 * n for e, n in zip(expected, now, strict=True)]
        averages = model.optimizer._model_variables_moving_average
        assert difference(expected, map(keras.ops.convert_to_numpy, averages)) < 1e-6


@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_averages_that_would_overwrite_weights_within_a_step_are_refused(optimizer):
    options = {"use_ema": True, "ema_overwrite_frequency": 2}
    with pytest.raises(ValueError, match="`ema_overwrite_frequency` must be None.*Received: 2"):
        optimizer(gradient_accumulation_steps=2, **options)
    optimizer(**options)
