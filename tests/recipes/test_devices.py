"""Claims about recipes on several devices, in less memory, and on what one model leaves behind."""

import importlib.util

import keras
import pytest
import tyro

from recipes import translation, vit
from recipes.lib import training
from recipes.lib.options import FLAT, changed, configure
from tests.recipes.command import command, run

FOUR = {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
SMOKE = ("--smoke", "--minutes", "None")
with_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")


def test_the_process_that_scores_is_told_everything_but_the_devices():
    given = ["--seed", "2", "--devices", "data=4", "--devices=data=2", "--hosts", "--epochs", "3"]
    told = tyro.cli(translation.Config, args=training._arguments_to_score(given), config=FLAT)
    of_run = {"seed": 2, "epochs": 3, "resume": True, "devices": None, "hosts": False}
    assert told == changed(translation.Config(), **of_run)


def test_the_next_model_of_a_run_has_its_precision_too():
    try:
        training.start_next_model(configure(vit.Config, precision="mixed_bfloat16"), seed=1)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
    finally:
        keras.config.set_dtype_policy("float32")


def test_what_is_asked_of_the_optimizer_reaches_it():
    given = {"image_size": 16, "patch_size": 4, "accumulate": 4, "clip_norm": None}
    config = configure(vit.Config, **given)
    optimizer = vit.build_model(config, 3, 1).optimizer
    assert optimizer.gradient_accumulation_steps == 4
    assert optimizer.global_clipnorm is None


@pytest.mark.slow
@with_jax
def test_jax_trains_on_a_grid_and_tensorflow_scores_and_exports(tmp_path):
    options = ("--devices", "data=2,model=2", "--accumulate", "2", "--rematerialize")
    metrics = run("vit", tmp_path, *SMOKE, *options, environment=FOUR)
    assert metrics["epochs"] == 2
    assert (tmp_path / "saved_model" / "saved_model.pb").is_file()
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
@with_jax
def test_validation_sentences_are_translated_on_jax_too(tmp_path):
    options = ("--devices", "data=2,model=2", "--epochs", "2", "--score-every", "1")
    metrics = run("translation", tmp_path, *SMOKE, *options, environment=FOUR)
    assert metrics["epochs"] == 2
    assert (tmp_path / "saved_model" / "saved_model.pb").is_file()


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_tensorflow_trains_on_several_devices_what_is_right_there_and_refuses_the_rest(tmp_path):
    result = command("vit", tmp_path / "clipped", *SMOKE, "--devices", "data=2")
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "`global_clipnorm` clips each replica's gradients" in result.stderr
    metrics = run("vit", tmp_path / "right", *SMOKE, "--devices", "data=2", "--clip-norm", "None")
    assert metrics["epochs"] == 2
