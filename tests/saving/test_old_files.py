"""Claims about files of version 0.2.0, whose networks had the weights of their output first.

`version_0_2_0.tar.xz` was written by `make.py` inside it, run with that version: models of small
squares, whose weights of either order have the same shapes, and what they answered and learned.
"""

import pathlib
import tarfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import layers, models, saving, streams, training
from tests.contract import assert_close, to_numpy

FILES = pathlib.Path(__file__).with_name("version_0_2_0.tar.xz")
LOADERS = {"keras": keras.models.load_model, "ours": saving.load_model}


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(FILES) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def expected(old):
    return dict(np.load(old / "expected.npz"))


def encoder():
    keras.utils.set_random_seed(7)
    model = models.TextEncoder(
        7, hidden_dim=4, num_heads=2, mlp_dim=4, num_layers=1, max_length=5, dropout=0.0
    )
    model.build((None, None))
    model.compile(keras.optimizers.Adam(0.05), "mse", jit_compile=False)
    return model


def inputs_of(name, expected):
    return expected["y" if name == "functional" else "ids"]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("name", ["encoder", "functional", "adapted"])
def test_an_old_model_answers_and_learns_on_as_it_did(name, loader, old, expected, tmp_path):
    """With the state of its optimizer; when it is saved again, too."""
    model, x = LOADERS[loader](old / f"{name}.keras"), inputs_of(name, expected)
    assert_close(model(x), expected[name], 1e-6)
    model.save(tmp_path / "again.keras")
    for each in (model, LOADERS[loader](tmp_path / "again.keras")):
        each.fit(x, expected["y"][::-1], epochs=2, verbose=0, batch_size=1, shuffle=False)
        assert_close(each(x), expected[f"{name}_trained_on"], 1e-5)


@pytest.mark.parametrize("loader", LOADERS)
def test_an_old_quantised_model_answers_as_it_did(loader, old, expected):
    model = LOADERS[loader](old / "int8.keras")
    assert_close(model(expected["ids"]), expected["int8"], 1e-6)


def test_old_weights_load_into_a_new_model(old, expected):
    for load in (lambda m, path: m.load_weights(path), saving.load_weights):
        model = encoder()
        load(model, old / "encoder.weights.h5")
        assert_close(model(expected["ids"]), expected["encoder"], 1e-6)


def test_a_run_that_stopped_goes_on_in_a_new_model(old, expected):
    """With its averages and the best weights that its callbacks kept."""
    model, ids, y = encoder(), expected["ids"], expected["y"]
    resume = training.ExactResume(old / "stopped", every_minutes=None)
    callbacks = [
        training.CheckpointAverage(last=2),
        keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True),
        type("Kill", (keras.callbacks.Callback,), {"get_state": dict, "set_state": lambda *_: 0})(),
    ]
    model.fit(
        streams.epochs(
            lambda epoch: tf.data.Dataset.from_tensor_slices((ids, y)).batch(1), 2, resume.start
        ),
        steps_per_epoch=2,
        epochs=4,
        initial_epoch=resume.start[0],
        callbacks=resume.after(callbacks),
        verbose=0,
    )
    assert_close(model(ids), expected["resumed"], 1e-5)


@pytest.mark.parametrize("network", [layers.FeedForward, layers.GatedFeedForward])
def test_weights_are_in_the_order_of_the_equation(network):
    """So that `set_weights` of two layers of Keras does not swap them, even if all are square."""
    ours = network(4, "relu")
    ours.build((None, None, 4))
    names = ["hidden", "output"] if network is layers.FeedForward else ["gate", "hidden", "output"]
    assert [weight.path.split("/")[-2] for weight in ours.weights[::2]] == names
    if network is layers.FeedForward:
        theirs = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(4)])
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
        output = to_numpy(theirs(x))
        ours.set_weights(theirs.get_weights())
        assert_close(ours(x), output, 1e-6)


def test_a_seed_draws_the_weights_that_it_drew(old, expected):
    """The first weights of a model, of which the old run began."""
    model = encoder()
    x, y = expected["ids"], expected["y"]
    model.fit(x, y[::-1], epochs=2, verbose=0, batch_size=1, shuffle=False)
    assert_close(model(x), expected["encoder"], 1e-5)
