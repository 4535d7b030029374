"""Claims about the learning rates, and about a compiled model on disk."""

import keras
import numpy as np
import pytest

from keras_transformers.training import (
    InverseSquareRoot,
    MaskedAccuracy,
    SmoothedCrossEntropy,
    TokenCrossEntropy,
    WarmupLinear,
)

VOCAB = 13


def compiled_model(schedule):
    """A model of token ids, compiled with everything of ours."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(VOCAB, 7),
            keras.layers.Dense(VOCAB),
        ]
    )
    model.compile(
        keras.optimizers.Adam(schedule),
        SmoothedCrossEntropy(),
        metrics=[MaskedAccuracy(), TokenCrossEntropy()],
        jit_compile=True,
    )
    return model


def ids(seed=0):
    """Token ids with padding, `(6, 5)`."""
    x = np.random.default_rng(seed).integers(1, VOCAB, (6, 5))
    x[:, 3:] = 0
    return x


@pytest.mark.parametrize("step", [1, 2, 3999, 4000, 4001, 100_000])
def test_rate_is_the_equation_of_the_paper(step):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert float(InverseSquareRoot(512)(step - 1)) == pytest.approx(expected, rel=1e-6)


def test_first_step_has_the_rate_of_step_one():
    assert float(InverseSquareRoot(64, 10)(0)) == pytest.approx(64**-0.5 * 10**-1.5)


def test_peak_stands_at_the_end_of_the_warm_up():
    rates = [float(InverseSquareRoot(64, 17)(step)) for step in range(60)]
    assert int(np.argmax(rates)) == 17 - 1
    assert max(rates) == pytest.approx((64 * 17) ** -0.5)


def test_scale_multiplies_the_rate():
    plain, double = InverseSquareRoot(64, 10), InverseSquareRoot(64, 10, scale=2.0)
    assert float(double(5)) == pytest.approx(2 * float(plain(5)))


@pytest.mark.parametrize("arguments", [(0, 10), (64, 0), (-1, 10)])
def test_sizes_that_are_not_positive_are_refused(arguments):
    with pytest.raises(ValueError, match="InverseSquareRoot: .*must be positive.*Received"):
        InverseSquareRoot(*arguments)


def test_optimizer_uses_the_rate_of_each_step():
    weight = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(InverseSquareRoot(4, 3))
    expected = 1.0
    for step in range(1, 6):
        optimizer.apply([keras.ops.ones((1,))], [weight])
        expected -= 4**-0.5 * min(step**-0.5, step * 3**-1.5)
        assert float(weight[0]) == pytest.approx(expected, rel=1e-6)


def test_compiled_model_trains_on_alike_after_reload(tmp_path):
    model = compiled_model(InverseSquareRoot(7, 5, scale=3.0))
    x = ids()
    model.fit(x, x, batch_size=3, epochs=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    config = model.optimizer._learning_rate.get_config()
    assert again.optimizer._learning_rate.get_config() == config
    assert isinstance(again.loss, SmoothedCrossEntropy)
    assert again.evaluate(x, x, verbose=0) == model.evaluate(x, x, verbose=0)
    for each in (model, again):
        each.fit(x, x, batch_size=3, epochs=2, shuffle=False, verbose=0)
    for weight, weight_again in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_allclose(weight_again, weight, atol=1e-6)


def test_linear_schedule_peaks_after_the_warm_up_and_ends_at_zero():
    rates = [float(WarmupLinear(0.3, 4, 10)(step)) for step in range(12)]
    assert int(np.argmax(rates)) == 4 - 1
    assert max(rates) == pytest.approx(0.3)
    assert all(rate > 0 for rate in rates[:10])
    assert rates[10:] == [0, 0]
    np.testing.assert_allclose(np.diff(rates[3:11]), -0.3 / 7, rtol=1e-5)


@pytest.mark.parametrize("arguments", [(1.0, 5, 4), (1.0, -1, 4), (1.0, 0, 0)])
def test_linear_schedule_refuses_impossible_steps(arguments):
    with pytest.raises(ValueError, match="WarmupLinear: `warmup_steps`.*Received"):
        WarmupLinear(*arguments)


def test_linear_schedule_round_trips():
    schedule = WarmupLinear(0.1, 3, 9)
    schedules = keras.optimizers.schedules
    again = schedules.deserialize(schedules.serialize(schedule))
    assert again.get_config() == schedule.get_config()
