"""Claims about `--pretrained` with a published folder: a run goes on from it, and publishes."""

import json

import keras
import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.models import LanguageModel
from keras_transformers.pretrained.adapter_weights import read_adapter
from keras_transformers.training import adapters_of
from tests.pretrained.folders import MADE
from tests.pretrained.test_quantised import GPTQ, gptq
from tests.pretrained.test_quantised import folders as of_few_bits
from tests.recipes.command import command, run

OFTEN = "text_classification"
TRIED = [pytest.param(name, marks=() if name == OFTEN else pytest.mark.slow) for name in MADE]


@pytest.mark.parametrize("recipe", TRIED)
@pytest.mark.slow
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


@pytest.mark.slow
def test_beside_weights_of_few_bits_adapters_learn_and_nothing_else_is_offered(tmp_path):
    (tmp_path / "llama").mkdir()
    made, _ = MADE["language_model"]
    size = made(tmp_path / "llama").embedding.vocab_size
    tokenizer = pretrained.load_tokenizer(tmp_path / "llama")
    sizes = {"hidden_dim": 16, "num_heads": 2, "num_key_value_heads": 1, "mlp_dim": 24}
    model = LanguageModel.from_variant(
        "small", size, style="modern", num_layers=1, padding_id=-1, **sizes
    )
    model.build((None, None))
    whole = pretrained.save(model, tmp_path / "llama", family="llama")
    few, _ = of_few_bits(whole, tmp_path, "llama", GPTQ, gptq)
    pretrained.save_tokenizer(tokenizer, few)
    refused = command("language_model", tmp_path / "x", "--smoke", "--pretrained", few)
    assert "weights of few bits, which are not trained; with --lora" in refused.stderr
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    output = tmp_path / "run"
    run("language_model", output, "--smoke", "--pretrained", few, "--lora", 2)
    tuned, before = keras.models.load_model(output / "model.keras"), pretrained.load(few)
    values = {weight.path.partition("/")[2]: weight for weight in tuned.weights}
    for weight in before.weights:
        np.testing.assert_array_equal(weight, values[weight.path.partition("/")[2]])
    assert adapters_of(tuned)["default"].rank == 2 and read_adapter(output / "adapter").changed
    assert (output / "saved_model").is_dir() and not (output / "published").exists()
