"""Gemma 2 (Riviere et al. 2024, https://arxiv.org/abs/2408.00118)."""

from typing import Any

from keras_transformers.models import LanguageModel
from keras_transformers.pretrained.configuration import Combined, Configuration, activation, flag
from keras_transformers.pretrained.decoder_parts import language_model_keywords, make_language_model
from keras_transformers.pretrained.decoder_settings import padding, rope, windows_of_layers
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.heads import WITHOUT_SPANS, of_texts
from keras_transformers.pretrained.llama import (
    LAYER,
    LAYERS,
    SETTLED,
    SIZES,
    WITHOUT_EFFECT,
    ends,
    projections,
    rms_norm,
    sizes_of_decoder,
)
from keras_transformers.pretrained.weight_mapping import Mappings

NORMS = {
    "mixer_norm": "input_layernorm",
    "mixer_output_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_output_norm": "post_feedforward_layernorm",
}
DEFAULTS = {
    "vocab_size": 256000,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "tie_word_embeddings": True,
}


def _mappings(model: LanguageModel) -> Mappings:
    mappings = [*ends(model), *projections(), *rms_norm("norm", "model.norm", "offset")]
    for ours, theirs in NORMS.items():
        mappings += rms_norm(f"decoder_{{i}}/{ours}", f"{LAYER}.{theirs}", "offset")
    return mappings


def _positive(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and value > 0):
        raise ValueError(f"`{name}` must be a positive number. Received: {value!r}")
    return float(value)


def _cap(theirs: str, ours: str, default: float) -> Combined:
    """A soft cap: null says that there is none, and nothing the default."""

    def read(config: dict[str, Any]) -> float | None:
        value = config.get(theirs, default)
        return None if value is None else _positive(value, theirs)

    return Combined(ours, (theirs,), read, lambda given: {theirs: given[ours]})


def _scale(default: int) -> Combined:
    """What scores are multiplied by, of the number that they are divided by the root of."""
    name = "query_pre_attn_scalar"

    def read(config: dict[str, Any]) -> float:
        return _positive(config.get(name) or default, name) ** -0.5

    def write(given: dict[str, Any]) -> dict[str, Any]:
        scale = given["score_scale"]
        number = given["head_dim"] if scale is None else round(scale**-2)
        if scale is not None and abs(scale**-2 - number) > 1e-3:
            raise ValueError(f"scores must be divided by a whole number's root. Received: {scale}")
        return {name: number}

    return Combined("score_scale", (name,), read, write)


GEMMA2 = Family(
    configuration=Configuration(
        name="gemma2",
        settings=(
            *sizes_of_decoder(DEFAULTS),
            activation("hidden_activation", "activation", "gelu_pytorch_tanh"),
            flag("attention_bias", "attention_bias", False),
        ),
        combined=(
            padding(0),
            rope(8192),
            windows_of_layers(4096, last=False),
            _scale(256),
            _cap("attn_logit_softcapping", "score_cap", 50.0),
            _cap("final_logit_softcapping", "logits_cap", 30.0),
        ),
        fixed={"normalized": False, "gemma": True, "mlp_bias": False},
        settled={**SETTLED, "use_bidirectional_attention": (None, False)},
        # Of older files, which say beside it what is computed.
        without_effect=WITHOUT_EFFECT | {"hidden_act", "cache_implementation"},
    ),
    weights=Weights(_mappings, SIZES, LAYERS, projections=projections),
    model=LanguageModel,
    **of_texts("Gemma2", WITHOUT_SPANS),
    make=make_language_model,
    arguments=language_model_keywords,
)
