"""Claims about GPTQ and AWQ, which look at what the layers of a model are given."""

import keras
import numpy as np
import pytest

from keras_transformers import saving
from keras_transformers.generation import generate
from keras_transformers.models import LanguageModel, TextEncoder
from keras_transformers.training import add_lora, remove_lora
from tests.adapters import fill
from tests.contract import to_numpy
from tests.saving.test_changed_parts import assert_the_same

RNG = np.random.default_rng(0)
IDS = RNG.integers(1, 31, (3, 7)).astype("int32")
TEXTS = RNG.integers(1, 31, (2, 24)).astype("int32")


def config(mode, texts=TEXTS, **options):
    """A configuration of Keras for ids."""
    kind = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}[mode]
    options = {"group_size": -1, **options}
    return kind(list(texts), tokenizer=lambda ids: ids, num_samples=3, sequence_length=8, **options)


def made(kind=LanguageModel):
    """A model in whose kernels every group has weights of both signs."""
    model = kind(31, hidden_dim=8, num_heads=2, mlp_dim=11, num_layers=2, max_length=9)
    model.build((None, None))
    rng = np.random.default_rng(3)
    for weight in model.weights:
        value = rng.normal(size=weight.shape) / 3
        value[:1] = -np.abs(value[:1])
        weight.assign(value)
    return model


def kernels(model):
    return [to_numpy(w) for w in model.weights if w.path.endswith("kernel") and w.dtype == "uint8"]


@pytest.mark.parametrize(
    ("kind", "mode", "options"),
    [
        (LanguageModel, "gptq", {}),
        pytest.param(TextEncoder, "gptq", {"weight_bits": 8}, marks=pytest.mark.slow),
        pytest.param(LanguageModel, "gptq", {"activation_order": True}, marks=pytest.mark.slow),
        (TextEncoder, "awq", {"num_grid_points": 3}),
        pytest.param(LanguageModel, "awq", {}, marks=pytest.mark.slow),
    ],
)
def test_what_is_calibrated_comes_back_from_its_files(kind, mode, options, tmp_path):
    model = made(kind)
    model.quantize(mode, config=config(mode, **options))
    assert len(kernels(model)) == 12
    model.save(tmp_path / "model.keras")
    again = saving.load_model(tmp_path / "model.keras")
    assert_the_same(model, again, IDS)
    again.save(tmp_path / "again.keras")  # and once more
    assert_the_same(model, saving.load_model(tmp_path / "again.keras"), IDS)
    saving.save_weights(model, tmp_path / "model.safetensors")
    fresh = type(model).from_config(model.get_config())
    fresh.build((None, None))
    saving.load_weights(fresh, tmp_path / "model.safetensors")
    assert_the_same(model, fresh, IDS)


def test_gptq_depends_on_the_texts():
    """Keras 3.15 by itself rounds every weight as if it had seen none."""
    found = []
    for texts in (TEXTS, 1 + TEXTS % 3):
        model = made()
        model.quantize("gptq", config=config("gptq", texts), filters="^(query|hidden)$")
        found.append(kernels(model)[0])
    assert np.any(found[0] != found[1])


def test_what_lies_outside_the_blocks_is_left_alone(tmp_path):
    model = made(TextEncoder)
    model.quantize("gptq", config=config("gptq"), filters="^(query|key)$")
    modes = {each.name for each in model._flatten_layers() if each.quantization_mode}
    assert modes == {"query", "key"}


@pytest.mark.slow
def test_eight_bits_write_the_same_text():
    model = made()
    before = generate(model, prompt=IDS[:, :3], max_length=6)["tokens"]
    model.quantize("gptq", config=config("gptq", weight_bits=8))
    np.testing.assert_array_equal(
        generate(model, prompt=IDS[:, :3], max_length=6)["tokens"], before
    )


def test_what_was_never_calibrated_is_not_saved(tmp_path):
    model = made(TextEncoder)
    first = {"pre_block_layers": [], "sequential_blocks": model.encoder_blocks[:1]}
    given = config("gptq", quantization_layer_structure=first)
    model.encoder_blocks[1].mixer.query_dense.quantize("gptq", config=given)
    with pytest.raises(ValueError, match="cannot be saved: it was made ready for gptq, and never"):
        model.save(tmp_path / "model.keras")


def test_a_group_of_one_sign_is_refused():
    model = made()
    kernel = model.decoder_blocks[0].feed_forward.hidden_dense.kernel
    kernel.assign(np.abs(to_numpy(kernel)) + 1)
    with pytest.raises(ValueError, match="hidden': each group of weights must have negative ones"):
        model.quantize("awq", config=config("awq"))
    assert not kernels(model)


@pytest.mark.parametrize("mode", ["gptq", "awq"])
def test_adapters_learn_beside_what_is_calibrated(mode, tmp_path):
    model = made()
    model.quantize(mode, config=config(mode))
    plain = to_numpy(model(IDS))
    query = model.decoder_blocks[0].mixer.query_dense
    x = RNG.normal(size=(1, 5, 8)).astype("float32")
    y = to_numpy(query(x))
    with pytest.raises(ValueError, match="must have no adapters for"):
        tuned = made()
        add_lora(tuned, 2)
        tuned.quantize(mode, config=config(mode))
    add_lora(model, 2, alpha=3)
    np.testing.assert_allclose(to_numpy(model(IDS)), plain, atol=1e-5)
    fill(model)
    arrays = query.adapter.arrays("default")
    change = 1.5 * x.astype("float64") @ arrays["lora_a"] @ arrays["lora_b"]
    np.testing.assert_allclose(to_numpy(query(x)), y + change.reshape(y.shape), atol=1e-5)
    model.save(tmp_path / "model.keras")
    assert_the_same(model, saving.load_model(tmp_path / "model.keras"), IDS)
    remove_lora(model)
    np.testing.assert_allclose(to_numpy(model(IDS)), plain, atol=1e-5)
