"""Claims about `save_weights` and `load_weights`: all or nothing, and no bit unnoticed."""

import struct

import keras
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from keras_transformers import models, saving
from tests.contract import to_numpy
from tests.saving import hostile

ENDINGS = (".weights.h5", ".safetensors", ".keras")


def random(seed=0, dtype="float32", width=12):
    settings = {"num_heads": 2, "mlp_dim": 17, "num_layers": 2, "dtype": dtype, "max_length": 9}
    model = models.LanguageModel(31, width, **settings)
    model.build((None, None))
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=weight.shape) for weight in model.get_weights()])
    return model


def save(model, path):
    if path.suffix == ".keras":
        model.save(path)
    else:
        saving.save_weights(model, path)
    return path


def assert_same(model, weights):
    for weight, expected in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(weight, expected)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "mixed_bfloat16"])
def test_weights_come_back_to_the_last_bit(ending, dtype, tmp_path):
    model, other = random(0, dtype), random(1, dtype)
    saving.load_weights(other, save(model, tmp_path / f"model{ending}"))
    assert_same(other, model.get_weights())


@pytest.mark.parametrize("ending", ENDINGS)
def test_optimizer_of_file_and_model_have_no_part_in_it(ending, tmp_path):
    model, other = random(0), random(1)
    for each, optimizer in ((model, "adam"), (other, "sgd")):
        each.compile(optimizer, "mse")
        each.optimizer.build(each.trainable_variables)
    before = [to_numpy(variable) for variable in other.optimizer.variables]
    saving.load_weights(other, save(model, tmp_path / f"model{ending}"))
    assert_same(other, model.get_weights())
    for variable, was in zip(other.optimizer.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), was)
    if ending != ".safetensors":
        saving.load_weights(random(2), tmp_path / f"model{ending}")  # has no optimizer


@pytest.mark.parametrize("ending", ENDINGS)
def test_weights_of_another_model_change_nothing(ending, tmp_path):
    model = random(0)
    before = model.get_weights()
    for name, other in {"wide": random(1, width=14), "half": random(1, "float16")}.items():
        path = save(other, tmp_path / f"{name}{ending}")
        with pytest.raises(ValueError, match="the weight .* must have shape .* and type float32"):
            saving.load_weights(model, path)
        assert_same(model, before)


@pytest.mark.parametrize("ending", ENDINGS)
def test_file_cut_anywhere_changes_nothing(ending, tmp_path):
    model = hostile.victim()
    data, before = save(model, tmp_path / f"model{ending}").read_bytes(), model.get_weights()
    path = tmp_path / f"cut{ending}"
    for length in np.random.default_rng(0).integers(0, len(data), 50):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match="cut"):
            saving.load_weights(model, path)
        assert_same(model, before)


def test_a_wrong_bit_anywhere_among_tensors_is_found(tmp_path):
    model = hostile.victim()
    data = save(model, tmp_path / "model.safetensors").read_bytes()
    before, path = model.get_weights(), tmp_path / "flipped.safetensors"
    for position in np.random.default_rng(0).integers(0, 8 * len(data), 500):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError):
            saving.load_weights(model, path)
    assert_same(model, before)


def test_a_wrong_bit_in_an_archive_is_found_or_changes_no_weight(tmp_path):
    model = hostile.victim()
    data = save(model, tmp_path / "model.keras").read_bytes()
    before, path, found = model.get_weights(), tmp_path / "flipped.keras", 0
    for position in np.random.default_rng(0).integers(0, 8 * len(data), 300):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            saving.load_weights(model, path)
        except ValueError:
            found += 1
        assert_same(model, before)
    assert found > 290  # of the others, a few are in dates and versions of the zip file


@pytest.mark.slow
def test_a_wrong_bit_in_hdf5_never_ends_the_process(tmp_path):
    """HDF5 has no checksum here: what is flipped in a value is read, all else is refused."""
    model = hostile.victim()
    data = save(model, tmp_path / "model.weights.h5").read_bytes()
    path = tmp_path / "flipped.weights.h5"
    for position in np.random.default_rng(0).integers(0, 8 * len(data), 5000):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            saving.load_weights(model, path)
        except ValueError:
            pass


def test_file_of_tensors_can_be_read_by_others(tmp_path):
    model = random(0, "bfloat16")
    path = save(model, tmp_path / "model.safetensors")
    with safe_open(path, "numpy") as file:
        for weight in model.weights:
            tensor = file.get_tensor(weight.path.removeprefix(f"{model.name}/"))
            assert tensor.dtype == ml_dtypes.bfloat16
            np.testing.assert_array_equal(tensor, to_numpy(weight))


@pytest.mark.parametrize("length", [0x280, 0x380, 0x480])
def test_header_that_begins_like_a_pickle_is_none(length, tmp_path):
    model = hostile.victim()
    data = save(model, tmp_path / "model.safetensors").read_bytes()
    (before,) = struct.unpack("<Q", data[:8])
    padded = data[8 : 8 + before].ljust(length)
    path = tmp_path / "padded.safetensors"
    path.write_bytes(struct.pack("<Q", length) + padded + data[8 + before :])
    saving.load_weights(model, path)


def test_weights_of_one_path_are_not_saved_over_each_other(tmp_path):
    inner = [keras.Sequential([keras.layers.Dense(2, name="same")]) for _ in range(2)]
    model = keras.Sequential([keras.Input((2,)), *inner])
    paths = [weight.path for weight in model.weights]
    if len(set(paths)) == len(paths):
        saving.save_weights(model, tmp_path / "model.safetensors")
    else:
        with pytest.raises(ValueError, match="two weights are called"):
            saving.save_weights(model, tmp_path / "model.safetensors")


def test_errors_name_what_was_expected(tmp_path):
    model = hostile.victim()
    with pytest.raises(ValueError, match="save_weights: `path` must end .*Received: model.keras"):
        saving.save_weights(model, tmp_path / "model.keras")
    with pytest.raises(ValueError, match="load_weights: `path` must end in .*Received: model.npz"):
        saving.load_weights(model, tmp_path / "model.npz")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        saving.load_weights(model, tmp_path / "nothing.safetensors")
    with pytest.raises(ValueError, match="load_weights: `model` must be built"):
        saving.load_weights(keras.Sequential([keras.layers.Dense(2)]), tmp_path / "x.weights.h5")
