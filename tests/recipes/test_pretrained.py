"""Claims about `--pretrained` with a published folder: a run goes on from it, and publishes."""

import json

import keras
import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.pretrained.adapter_tensors import read_adapter
from tests.pretrained.folders import MADE
from tests.recipes.command import command, run

OFTEN = "text_classification"
TRIED = [pytest.param(name, marks=() if name == OFTEN else pytest.mark.slow) for name in MADE]


@pytest.mark.parametrize("recipe", TRIED)
def test_a_run_goes_on_from_published_weights_and_publishes(recipe, tmp_path):
    make, shape = MADE[recipe]
    (tmp_path / "theirs").mkdir()
    model = make(tmp_path / "theirs")
    model.build(shape)
    folder = pretrained.save(model, tmp_path / "theirs")
    output = tmp_path / "run"
    run(recipe, output, "--smoke", "--pretrained", folder)
    tuned, published = keras.models.load_model(output / "model.keras"), output / "published"
    again = pretrained.load(published)
    assert [w.shape for w in again.weights] == [w.shape for w in tuned.weights]
    for one, other in zip(again.weights, tuned.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (output / "saved_model" / "saved_model.pb").is_file()
    theirs, ours = ({path.name for path in position.iterdir()} for position in (folder, published))
    assert theirs <= ours | {"target.spm"}  # with its tokenizer, or how it wants its images
    kept = json.loads((folder / "config.json").read_text())["model_type"]
    assert json.loads((published / "config.json").read_text())["model_type"] == kept


def test_a_folder_of_neither_kind_is_refused(tmp_path):
    result = command("text_classification", tmp_path / "x", "--smoke", "--pretrained", tmp_path)
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert str(tmp_path) in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", MADE)
def test_a_run_with_adapters_publishes_them_and_a_model_that_has_them_merged(recipe, tmp_path):
    make, shape = MADE[recipe]
    (tmp_path / "theirs").mkdir()
    model = make(tmp_path / "theirs")
    model.build(shape)
    folder = pretrained.save(model, tmp_path / "theirs")
    output = tmp_path / "run"
    run(recipe, output, "--smoke", "--pretrained", folder, "--lora", 2)
    tuned = keras.models.load_model(output / "model.keras")
    published = pretrained.load(output / "published")
    for one, other in zip(published.weights, tuned.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    before = {weight.path.partition("/")[2]: weight for weight in model.weights}
    same = {
        path: np.array_equal(weight, before[path])
        for weight in published.weights
        if (path := weight.path.partition("/")[2]) in before and "head" not in path
    }
    changed = {path for path, equal in same.items() if not equal}
    assert changed and all("mixer" in path or "feed_forward" in path for path in changed)
    [adapter] = output.glob("adapter*")
    found = read_adapter(adapter)
    assert found.settings.rank == 2 and found.changed
