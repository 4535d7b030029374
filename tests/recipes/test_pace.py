"""Claims about the look at a machine's pace, and what a recipe chooses by it."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from recipes import translation
from recipes.lib import pace, training
from recipes.lib.options import configure, numbers, numbers_of

ROWS = [
    pace.FewSteps(100, {"variant": "tiny", "learning_rate": 0.02}, "because"),
    pace.FewSteps(1000, {"learning_rate": 0.01}, "for some reason"),
]


def model_and_data():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(4, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", metrics=["mae"])
    model.build((None, 3))
    model.optimizer.build(model.trainable_variables)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    return model, tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)


def state(model):
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    variables += model.optimizer.variables
    return [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]


def test_a_model_is_as_it_was_when_its_steps_have_been_timed(monkeypatch):
    monkeypatch.setattr(pace, "TIMED_SECONDS", 0.0)
    (timed, data), (other, _) = model_and_data(), model_and_data()
    before = state(timed)
    assert 0 < pace.seconds_of_a_step(timed, data) < 10
    for then, now in zip(before, state(timed), strict=True):
        np.testing.assert_array_equal(then, now)
    for model in (timed, other):
        model.fit(data, epochs=2, verbose=0)
    for ours, theirs in zip(state(timed), state(other), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("seconds", "given", "taken"),
    [
        (0.01, (), {}),
        (1.0, (), {"learning_rate": 0.01}),
        (60.0, (), {"variant": "tiny", "learning_rate": 0.02}),
        (60.0, ("variant",), {"learning_rate": 0.02}),
        (1.0, ("variant",), {"learning_rate": 0.01}),
    ],
)
def test_the_row_of_the_fewest_steps_is_taken_but_for_given_options(seconds, given, taken, capsys):
    config = configure(translation.Config, output="unused")
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, user_options=given))
    chosen, minutes = pace.choose_options(config, ROWS, seconds)
    assert numbers(chosen) == {**numbers(config), **taken}
    said = capsys.readouterr().out
    for name, value in taken.items():
        assert f"--{name.replace('_', '-')} {value}" in said
    assert ("this recipe takes" in said) == bool(taken) == (minutes is not None)


@pytest.mark.parametrize(
    "options",
    [
        {"minutes": None},
        {"measure": False},
        {"smoke": True},
        {"hosts": True},
        {"resume": True},
        {
            name: value
            for row in translation.Config.FEW_STEPS
            for name, value in row.options.items()
        },
    ],
    ids=str,
)
def test_a_run_is_not_timed(options, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(numbers(translation.Config())))
    default = configure(translation.Config, output=str(tmp_path))
    assert pace.usable_rows(default) == list(translation.Config.FEW_STEPS)
    assert pace.usable_rows(configure(translation.Config, output=str(tmp_path), **options)) == []


def test_published_weights_are_not_timed():
    default = translation.Config()
    model = dataclasses.replace(default.model, pretrained="opus-mt-en-de")
    assert pace.usable_rows(dataclasses.replace(default, model=model)) == []


def test_the_choice_is_written_for_a_resumed_run(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "seconds_of_a_step", lambda model, dataset: 10.0)
    output = str(tmp_path / "run")
    config = configure(translation.Config, output=output)
    folder = training.start_run(config)
    chosen, model = training.build_for_machine(
        config, folder, lambda config: config.model.variant, lambda epoch: None
    )
    assert (config.model.variant, chosen.model.variant, model) == ("mini", "tiny", "tiny")
    # 10 minutes have time for 54 steps, after a tenth for scoring.
    assert folder.minutes_of_defaults == math.ceil(4_100 / 5.4 / 5) * 5
    assert numbers_of(output) is None  # before the run begins
    folder.begin()
    assert numbers_of(output)["variant"] == folder.identity["options"]["variant"] == "tiny"
    resumed = configure(translation.Config, output=output, resume=True)
    assert resumed.model.variant == "tiny"
    assert pace.usable_rows(resumed) == []
