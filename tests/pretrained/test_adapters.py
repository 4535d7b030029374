"""Claims about published adapters: computed as peft does, and written as peft writes them."""

import json
import pathlib

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_transformers import models, pretrained
from keras_transformers.pretrained.adapter_weights import read_settings
from keras_transformers.training import add_lora, set_adapter
from keras_transformers.training.adapters import adapted_layers
from tests.contract import assert_close, to_numpy
from tests.pretrained.cases import CASES
from tests.pretrained.cases.adapters import ADAPTERS, adapter_tensors
from tests.pretrained.test_published import GOLDEN as CASE_FILES
from tests.pretrained.test_published import Published, inputs_of

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "adapters"
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


class PublishedAdapter:
    """A base and an adapter as published, and what peft computes with both."""

    def __init__(self, name, folder):
        self.folder = folder / "adapter"
        (folder / "base").mkdir()
        self.folder.mkdir()
        self.base = Published(CASE_FILES / f"{name}.npz", CASES[name], folder / "base")
        self.model = self.base.model
        found = np.load(GOLDEN / f"{name}.npz")
        self.config = json.loads(str(found["config"]))
        self.tensors = adapter_tensors(json.loads(str(found["shapes"])))
        self.expected = found["logits"]
        self.write()

    def write(self, **settings):
        (self.folder / CONFIG).write_text(json.dumps({**self.config, **settings}))
        save_file(self.tensors, self.folder / TENSORS)

    def logits(self):
        rows = len(self.expected)
        inputs, real = inputs_of(self.base)
        inputs = (
            {key: value[:rows] for key, value in inputs.items()}
            if isinstance(inputs, dict)
            else inputs[:rows]
        )
        found = to_numpy(self.model(inputs, training=False))
        return found if real is None or found.ndim < 3 else found[real[:rows]], real

    def check(self):
        logits, real = self.logits()
        rows = len(self.expected)
        expected = self.expected
        if real is not None and expected.ndim == 3:
            expected = expected[real[:rows]]
        assert_close(logits, expected, 1e-5)


@pytest.fixture(params=ADAPTERS)
def published(request, tmp_path):
    return PublishedAdapter(request.param, tmp_path)


def test_a_published_adapter_computes_and_is_written_as_peft_does(published, tmp_path):
    pretrained.load_adapter(published.model, published.folder, "theirs")
    published.check()
    folder = pretrained.save_adapter(published.model, tmp_path / "again", "theirs")
    written = load_file(folder / TENSORS)
    assert written.keys() == published.tensors.keys()
    for name, value in published.tensors.items():
        np.testing.assert_array_equal(written[name], value)


def small(**options):
    """A decoder with GPT-2's names, always with the same weights."""
    keras.utils.set_random_seed(1)
    model = models.LanguageModel.from_variant(
        "small", 17, hidden_dim=6, num_heads=2, mlp_dim=8, num_layers=1, padding_id=-1, **options
    )
    model.build((None, None))
    return model


IDS = np.array([[3, 5, 7, 2], [11, 13, 1, 4]])


def randomise(model, name="default", seed=1):
    """Gives all that an adapter consists of random values."""
    rng = np.random.default_rng(seed)
    for layer in adapted_layers(model).values():
        if name in layer.adapter.settings:
            arrays = layer.adapter.arrays(name)
            arrays = {key: rng.uniform(0.1, 0.5, a.shape) for key, a in arrays.items()}
            layer.adapter.assign_arrays(name, arrays)


@pytest.fixture(scope="module")
def decoder():
    """A model with two adapters, of which "first" is the active one."""
    model = small()
    options = {"targets": ["query", "value", "hidden"], "dora": True}
    add_lora(model, rank=2, alpha=6, name="second", train="mixer_norm", **options)
    randomise(model, "second")
    model.get_layer("decoder_0").mixer_norm.gamma.assign(np.full(6, 1.5))
    add_lora(model, rank=1, name="first", targets="value")
    randomise(model, "first")
    return model


def logits(model):
    return to_numpy(model(IDS, training=False))


def test_an_adapter_that_is_not_active_is_written_with_what_it_trains_besides(decoder, tmp_path):
    before = logits(decoder)
    folder = pretrained.save_adapter(decoder, tmp_path, "second")
    np.testing.assert_array_equal(logits(decoder), before)
    settings, tensors = read_settings(folder), load_file(folder / TENSORS)
    assert settings.saved == ("transformer.h.0.ln_1",)
    np.testing.assert_array_equal(tensors["base_model.model.transformer.h.0.ln_1.weight"], 1.5)
    # Query and value with an `A` each are one module with both.
    assert settings.of("transformer.h.0.attn.c_attn") == (4, 12)
    again = small()
    pretrained.load_adapter(again, folder)
    set_adapter(decoder, "second")
    expected = logits(decoder)
    set_adapter(decoder, "first")
    assert np.abs(expected - before).max() > 0.1
    assert_close(logits(again), expected, 1e-5)


def test_an_adapter_of_a_quantised_model_is_written_and_read(tmp_path):
    """What is changed is `W` itself: that of the 8-bit kernel is not in the files."""
    first, second = small(), small()
    for model in (first, second):
        model.quantize("int8")
    add_lora(first, rank=2, train="head|norm")
    randomise(first)
    pretrained.load_adapter(second, pretrained.save_adapter(first, tmp_path))
    np.testing.assert_array_equal(logits(first), logits(second))


def test_an_adapter_is_merged_into_what_is_published(decoder, tmp_path):
    again = pretrained.load(pretrained.save(decoder, tmp_path))
    assert_close(logits(again), logits(decoder), 1e-5)


def test_names_of_older_versions_are_read(tmp_path):
    published = PublishedAdapter("vit", tmp_path)
    older = {"layers.1.": "encoder.layer.1.", "mlp.fc1": "intermediate.dense"}
    older |= {
        f"attention.{name[0]}_proj": f"attention.attention.{name}" for name in ("query", "value")
    }
    older["attention.o_proj"] = "attention.output.dense"
    tensors = {}
    for name, value in published.tensors.items():
        for new, old in older.items():
            name = name.replace(new, old)
        tensors[name] = value
    published.tensors = tensors
    published.write(
        target_modules=["query", "value", "attention.output.dense", "intermediate.dense"]
    )
    pretrained.load_adapter(published.model, published.folder)
    published.check()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return PublishedAdapter("gpt2", tmp_path_factory.mktemp("gpt2"))


REFUSED = {
    "peft_type": "IA3",
    "use_qalora": True,
    "bias": "lora_only",
    "lora_bias": True,
    "init_lora_weights": "pissa",
    "trainable_token_indices": [1, 2],
    "target_parameters": ["experts.weight"],
    "layer_replication": [[0, 1]],
    "alora_invocation_tokens": [3],
    "arrow_config": {"top_k": 3},
    "r": 0,
    "lora_alpha": "high",
    "lora_dropout": 1.0,
    "use_dora": 1,
    "modules_to_save": "classifier",
    "rank_pattern": {"c_fc": 1.5},
    "alpha_pattern": {"(a+)+b": 3},
    "something_of_next_year": 1,
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_has_no_counterpart_is_refused_by_name(gpt2, key):
    gpt2.write(**{key: REFUSED[key]})
    with pytest.raises(ValueError, match=f"adapter_config.json: .*`{key}`"):
        read_settings(gpt2.folder)


LAYER = "base_model.model.transformer.h.0.mlp.c_fc"
BROKEN = {
    "must change layers that the model has": {f"{LAYER}2.lora_A.weight": np.ones((4, 12))},
    "must have shape .2, 12": {f"{LAYER}.lora_A.weight": np.ones((12, 2))},
    "names must .* end with": {f"{LAYER}.lora_E": np.ones((4, 1))},
    "names must begin": {"lora_A.weight": np.ones((4, 1))},
    "must have what is saved whole": {"base_model.model.score.weight": np.ones((2, 12))},
    "of another base": {"base_model.model.transformer.ln_f.weight": np.ones(12)},
    "of .*c_fc there must be lora_a, lora_b": {f"{LAYER}.lora_magnitude_vector": np.ones(48)},
    "all must have the same adapter": {"base_model.model.lm_head.lora_A.weight": np.ones((4, 12))},
}


@pytest.mark.parametrize("message", BROKEN)
def test_tensors_that_do_not_fit_are_refused_before_anything_is_changed(gpt2, message):
    changed = {name: value.astype("float32") for name, value in BROKEN[message].items()}
    save_file({**gpt2.tensors, **changed}, gpt2.folder / TENSORS)
    (gpt2.folder / CONFIG).write_text(json.dumps(gpt2.config))
    with pytest.raises(ValueError, match=message):
        pretrained.load_adapter(gpt2.model, gpt2.folder)
    assert not adapted_layers(gpt2.model)


def test_a_pickle_is_not_read(gpt2):
    gpt2.write()
    (gpt2.folder / TENSORS).rename(gpt2.folder / "adapter_model.bin")
    with pytest.raises(ValueError, match="can execute"):
        pretrained.load_adapter(gpt2.model, gpt2.folder)
