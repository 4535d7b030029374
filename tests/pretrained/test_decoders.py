"""Claims about Llama and its kin: what `config.json` says of positions and windows, and errors."""

import json

import keras
import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.generation import generate
from keras_transformers.layers import (
    CausalSelfAttention,
    DecoderBlock,
    GatedFeedForward,
    LocalAttention,
    LongRopeScaling,
    RotaryEmbedding,
)
from keras_transformers.models import LanguageModel, TextEmbedding
from keras_transformers.pretrained.folder import FAMILIES
from tests.contract import assert_close, to_numpy
from tests.pretrained.test_bad_folders import edit

# As `rope_scaling` stands in files on the hub: Llama 3.2, Qwen 2.5, DeepSeek's kind of YaRN.
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
SCALES = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 24, "truncate": False}
LONG = {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]}
LONG |= {"long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]}
PHI = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
PHI |= {"partial_rotary_factor": 0.75}
ROPES = [
    ("llama", {"rope_theta": 500000.0}, None),
    ("llama", {"rope_theta": 500000.0, "max_position_embeddings": 131072}, LLAMA3),
    ("llama", {"rope_theta": 10000.0}, {"type": "linear", "factor": 4.0}),
    ("qwen2", {"rope_theta": 1000000.0, "max_position_embeddings": 32768}, YARN),
    ("qwen3", {"rope_theta": 1000000.0, "head_dim": 16}, SCALES),
    ("phi3", PHI, LONG),
    ("phi3", {"partial_rotary_factor": 0.5}, None),
]


def read(kind, **config):
    return FAMILIES[kind].configuration.read(config, "config.json")


@pytest.mark.parametrize(("kind", "config", "scaling"), ROPES)
def test_positions_turn_as_in_transformers(kind, config, scaling):
    hf = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    config = {**config, "hidden_size": 64, "num_attention_heads": 4}
    scaled = {"rope_scaling": scaling} if scaling else {}
    theirs = hf.AutoConfig.for_model(kind, **config, **json.loads(json.dumps(scaled)))
    module = getattr(hf.models, kind)
    name = type(theirs).__name__.removesuffix("Config")
    made = getattr(getattr(module, f"modeling_{kind}"), f"{name}RotaryEmbedding")(theirs)
    ours = RotaryEmbedding(**read(kind, **config, **scaled)["rope"])
    ours.build((None, 4, None, 16))
    np.testing.assert_allclose(ours._rates, made.inv_freq.numpy(), rtol=2e-6)
    np.testing.assert_allclose(ours._gain, made.attention_scaling, rtol=1e-6)
    if kind == "phi3" and scaling:
        functions = hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS
        longer, _ = functions["longrope"](theirs, "cpu", seq_len=4097)
        np.testing.assert_allclose(ours._beyond, longer.numpy(), rtol=2e-6)


@pytest.mark.parametrize(
    ("kind", "config", "windows"),
    [
        ("mistral", {}, [4096] * 3),
        ("mistral", {"sliding_window": None}, None),
        ("phi3", {}, None),
        ("phi3", {"sliding_window": 2047}, [2047] * 3),
        ("qwen2", {"sliding_window": 9, "max_window_layers": 1}, None),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, [None, 4096, 4096]),
        ("gemma2", {}, [4096, None, 4096]),
        (
            "gemma2",
            {"layer_types": ["full_attention"] * 2 + ["sliding_attention"], "sliding_window": 7},
            [None, None, 7],
        ),
    ],
)
def test_windows_are_those_of_the_layers(kind, config, windows):
    assert read(kind, num_hidden_layers=3, **config)["windows"] == windows


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "for no model here turns"),
        ("llama", {"rope_scaling": {"type": "llama3", "factor": 8.0}}, "must have 'low_freq_fa"),
        ("llama", {"rope_scaling": {"type": "linear"}}, "`rope_scaling` of type linear must have"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "must be one dict for all layers"),
        ("llama", {"partial_rotary_factor": 0.5}, "`partial_rotary_factor` must be 1.0"),
        ("llama", {"attention_bias": "yes"}, "`attention_bias` must be true or false"),
        ("mistral", {"sliding_window": 1}, "`sliding_window` must be an integer over 1"),
        ("gemma2", {"layer_types": ["local"] * 26}, "`layer_types` must have 'sliding_attention'"),
        ("gemma2", {"final_logit_softcapping": -1}, "`final_logit_softcapping` must be a positive"),
        ("gemma2", {"use_bidirectional_attention": True}, "must be None or False for models of"),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1]}}, "'long_factor'"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(kind, config, message):
    with pytest.raises(ValueError, match=message):
        read(kind, **config)


def llama(**changes):
    """A small model of Llama's parts."""
    attention = CausalSelfAttention(
        3, num_key_value_heads=1, use_bias=False, position=RotaryEmbedding()
    )
    parts = {"mixer": attention, "feed_forward": GatedFeedForward(20, "silu", use_bias=False)}
    parts |= {"norm": keras.layers.RMSNormalization(epsilon=1e-6)}
    block = DecoderBlock(norm_first=True, **{**parts, **changes})
    embedding = TextEmbedding(31, 12, None, padding_id=-1, tie_weights=False)
    model = LanguageModel(num_layers=2, block=block, embedding=embedding)
    model.build((None, None))
    return model


@pytest.fixture
def folder(tmp_path):
    return pretrained.save(llama(), tmp_path / "llama")


def test_a_model_of_such_parts_is_llama(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_key_value_heads"], config["head_dim"]) == (1, 4)
    assert not config["tie_word_embeddings"]


def test_a_modern_variant_is_llama_too(tmp_path):
    sizes = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20, "num_layers": 1}
    model = LanguageModel.from_variant("small", 31, **sizes, style="modern", padding_id=-1)
    model.build((None, None))
    again = pretrained.load(pretrained.save(model, tmp_path))
    ids = np.arange(1, 8)[None]
    assert_close(again(ids), to_numpy(model(ids)), 1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward": None, "mlp_dim": 20}, "GatedFeedForward. Received: Fee"),
        ({"norm": keras.layers.LayerNormalization()}, "norm=RMSNormalization. Received: LayerN"),
        (
            {"mixer": CausalSelfAttention(3, position=RotaryEmbedding(interleaved=True))},
            r"\[0\].mixer.position.interleaved=False. Received: True",
        ),
        ({"mixer": CausalSelfAttention(3)}, "a part with `max_wavelength`. Received: None in its"),
        (
            {"mixer": CausalSelfAttention(3, position=RotaryEmbedding(scaling="ntk"))},
            "no published code has this scaling",
        ),
        (
            {"mixer": LocalAttention(3, 4, position=RotaryEmbedding(), causal=False)},
            "`mixer` must be causal",
        ),
    ],
)
def test_a_model_of_other_parts_is_not_written(changes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        pretrained.save(llama(**changes), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 2}, "`num_key_value_heads` must be a divisor of `num_heads`=3"),
        ({"head_dim": 6}, "q_proj.weight must have shape"),
        ({"head_dim": 5}, "`rotary_dim` must be even"),
        ({"tie_word_embeddings": True}, "must be the same tensor"),
        ({"attention_bias": True}, "self_attn.q_proj.bias is missing"),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "the tensor score.weight is missing",
        ),
        ({"architectures": ["LlamaForNothing"]}, "`architectures` must have one of"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(folder)


def test_a_chat_template_is_not_applied_and_this_is_said(folder):
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.warns(UserWarning, match="has a chat template, by which turns of a conversation"):
        pretrained.load(folder)


def test_angles_that_change_in_longer_texts_are_decoded_up_to_there():
    scaling = LongRopeScaling([1.0, 1.0], [2.0, 4.0], 8)
    position = RotaryEmbedding(scaling=scaling)
    mixer = CausalSelfAttention(3, use_bias=False, position=position)
    model, ids = llama(mixer=mixer), np.arange(1, 12)[None]
    short = llama(mixer=CausalSelfAttention(3, use_bias=False, position=RotaryEmbedding()))
    short.set_weights(model.get_weights())
    assert_close(model(ids[:, :8]), to_numpy(short(ids[:, :8])), 1e-6)
    assert np.abs(to_numpy(model(ids))[:, :8] - to_numpy(short(ids))[:, :8]).max() > 1e-3
    given = {"prompt": ids[:, :3], "start_id": None, "end_id": 30}
    # The last token is not looked at any more.
    assert generate(model, **given, max_length=9)["tokens"].shape == (1, 9)
    with pytest.raises(ValueError, match="`max_length` must be at most the model's, 8. Received"):
        generate(model, **given, max_length=10)
