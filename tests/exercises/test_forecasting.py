"""An exercise: a recipe that forecasts a series; CONTRIBUTING.md, "Add a recipe"."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from recipes.lib.options import configure
from tests.exercises import forecasting

pytestmark = pytest.mark.slow  # it trains until it beats the forecasts that need no learning


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    config = configure(forecasting.Config, output=str(folder), weeks=30, epochs=6)
    return config, folder, forecasting.run(config)


def test_what_is_learned_beats_the_last_value_and_the_week_before(finished):
    _, _, metrics = finished
    assert metrics["test_error"] < 0.9 * metrics["week_before_error"]
    assert metrics["test_error"] < 0.9 * metrics["last_value_error"]


def test_the_other_forecasts_are_what_they_are_called(finished):
    config, _, metrics = finished
    past, future = forecasting.load_data(config)[1]
    week = [abs(past[:, i - 168, 0] - future[:, i]).mean() for i in range(24)]
    assert metrics["week_before_error"] == pytest.approx(np.mean(week))
    last = abs(past[:, -1] - future).mean()
    assert metrics["last_value_error"] == pytest.approx(last)


def test_nothing_of_the_test_is_trained_with(finished):
    config, _, _ = finished
    (_, learned), (_, test) = forecasting.load_data(config)
    assert not np.isin(test, learned).any()  # of noise: no hour is like another


def test_a_run_leaves_the_folder_of_every_recipe(finished):
    config, folder, metrics = finished
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    for name in ("config.json", "history.csv", "figures/training_curves.png"):
        assert (folder / name).stat().st_size > 0
    past, _ = forecasting.load_data(config)[1]
    model = keras.models.load_model(folder / "model.keras")
    saved = tf.saved_model.load(folder / "saved_model")
    np.testing.assert_allclose(saved.serve(past), model.predict(past, verbose=0), atol=1e-5)
