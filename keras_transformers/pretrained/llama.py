"""Llama (Touvron et al. 2023), Mistral (Jiang et al. 2023), Qwen 2 and Qwen 3 (Yang et al.).

https://arxiv.org/abs/2302.13971, 2310.06825, 2407.10671 and 2505.09388. SmolLM's type is Llama's.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_transformers.models import LanguageModel, SpanHead
from keras_transformers.pretrained.configuration import (
    Combined,
    Configuration,
    Setting,
    activation,
    flag,
    number,
    size,
)
from keras_transformers.pretrained.decoder_parts import language_model_keywords, make_language_model
from keras_transformers.pretrained.decoder_settings import (
    one_window,
    padding,
    rope,
    windows_of_layers,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.heads import OF_DECODERS, head_of_decoder, of_texts
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, attention, linear

LAYER = "model.layers.{i}"
HEAD = "lm_head.weight"
OTHER = "transformer."  # what names begin with in a model that answers questions
OF_HEADS = ("query", "key", "value")  # the projections that have biases in Qwen 2


def rms_norm(ours: str, theirs: str, name: str = "scale") -> Mappings:
    """The mapping of an RMS norm, whose one weight is called `name` here."""
    return [WeightMapping(f"{ours}/{name}", f"{theirs}.weight")]


def ends(model: LanguageModel) -> Mappings:
    """The mappings of the table of tokens, of that of the logits if there is one, and of a head."""
    tied = model.embedding.tie_weights and model.writes
    tokens = "embedding/token_embedding/token_embedding"
    return [
        WeightMapping(tokens, "model.embed_tokens.weight", also=(HEAD,) if tied else ()),
        WeightMapping("embedding/token_embedding/output_embedding", HEAD),
        *head_of_decoder(model),
    ]


def projections() -> Mappings:
    """The mappings of attention and feed-forward network, with the biases that there may be."""
    return [
        *attention("decoder_{i}/mixer", *(f"{LAYER}.self_attn.{name}_proj" for name in "qkvo")),
        *linear("decoder_{i}/feed_forward/gate", f"{LAYER}.mlp.gate_proj"),
        *linear("decoder_{i}/feed_forward/hidden", f"{LAYER}.mlp.up_proj"),
        *linear("decoder_{i}/feed_forward/output", f"{LAYER}.mlp.down_proj"),
    ]


def norms() -> Mappings:
    """The mappings of the norms in front of each branch, and of the last."""
    return [
        *rms_norm("decoder_{i}/mixer_norm", f"{LAYER}.input_layernorm"),
        *rms_norm("decoder_{i}/feed_forward_norm", f"{LAYER}.post_attention_layernorm"),
        *rms_norm("norm", "model.norm"),
    ]


def _mappings(model: LanguageModel) -> Mappings:
    return [
        *ends(model),
        *projections(),
        *norms(),
        *rms_norm("decoder_{i}/mixer/score/query_norm", f"{LAYER}.self_attn.q_norm"),
        *rms_norm("decoder_{i}/mixer/score/key_norm", f"{LAYER}.self_attn.k_norm"),
    ]


def sizes_of_decoder(defaults: Mapping[str, Any]) -> tuple[Setting, ...]:
    """The settings that all of Llama's kin have, with what they are where nothing is said."""

    def head_dim(config: dict[str, Any]) -> int:
        width, heads = defaults["hidden_size"], defaults["num_attention_heads"]
        width, heads = (
            (config.get("hidden_size") or width),
            config.get("num_attention_heads") or heads,
        )
        return int(width // heads)

    def key_value_heads(config: dict[str, Any]) -> int:
        if "num_key_value_heads" not in config and "num_key_value_heads" in defaults:
            return int(defaults["num_key_value_heads"])
        return int(config.get("num_attention_heads") or defaults["num_attention_heads"])

    sizes = {
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_dim",
        "intermediate_size": "mlp_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
    }
    return (
        *(size(theirs, ours, defaults[theirs]) for theirs, ours in sizes.items()),
        size("num_key_value_heads", "num_key_value_heads", key_value_heads),
        size("head_dim", "head_dim", defaults.get("head_dim", head_dim)),
        number("attention_dropout", "attention_dropout", 0.0),
        number("rms_norm_eps", "norm_epsilon", defaults.get("rms_norm_eps", 1e-6)),
        flag("tie_word_embeddings", "tied", defaults.get("tie_word_embeddings", False)),
    )


def _under_other_name(model: LanguageModel) -> Mappings:
    """The mappings where the model that answers questions is called `transformer`, not `model`."""
    found = _mappings(model)
    if not isinstance(model.head, SpanHead):
        return found
    return [
        dataclasses.replace(
            each, theirs=each.theirs.replace("model.", OTHER, 1), also=(each.theirs,)
        )
        if each.theirs.startswith("model.")
        else each
        for each in found
        if isinstance(each, WeightMapping)
    ]


FIXED = {"windows": None, "normalized": False}
FIXED |= {"gemma": False, "score_scale": None, "score_cap": None, "logits_cap": None}
FIXED |= {"attention_bias": False, "mlp_bias": False}
SETTLED = {"tie_word_embeddings": (True, False), "token_classification_bias": (True,)}
WITHOUT_EFFECT = frozenset({"classifier_dropout", "hidden_dropout"})


def _family(
    name: str,
    title: str,
    defaults: Mapping[str, Any],
    combined: tuple[Combined, ...],
    settings: tuple[Setting, ...] = (),
    fixed: Mapping[str, Any] | None = None,
    settled: Mapping[str, Any] | None = None,
    without_effect: frozenset[str] = frozenset(),
    mappings: Callable[[LanguageModel], Mappings] = _under_other_name,
) -> Family:
    """One whose tensors are called as Llama's.

    Args:
        name: Its `model_type`.
        title: What the names of the published classes begin with.
        defaults: What settings are where nothing is said.
        combined, settled, without_effect: As for `Configuration`.
        settings: Those beside `sizes_of_decoder`, of which they replace those of the same name.
        fixed: As for `Configuration`, beside what all have.
        mappings: As for `Weights`.
    """
    settings = (activation("hidden_act", "activation", "silu"), *settings)
    said = {each.ours for each in settings} | {each.ours for each in combined}
    return Family(
        configuration=Configuration(
            name=name,
            settings=(*sizes_of_decoder(defaults), *settings),
            combined=(padding(), *combined),
            fixed={**{k: v for k, v in FIXED.items() if k not in said}, **(fixed or {})},
            settled={**SETTLED, **(settled or {})},
            without_effect=WITHOUT_EFFECT | without_effect,
        ),
        weights=Weights(mappings, SIZES, LAYERS, projections=projections),
        model=LanguageModel,
        **of_texts(title, OF_DECODERS),
        make=make_language_model,
        arguments=language_model_keywords,
    )


def _either(name: str) -> tuple[str, str]:
    """The name of a tensor of the model, and where it answers questions."""
    return f"model.{name}", f"{OTHER}{name}"


TABLE: dict[Any, Any] = {_either("embed_tokens.weight"): ("vocab_size", "hidden_size")}
SIZES = {**TABLE, _either("layers.0.mlp.gate_proj.weight"): ("intermediate_size", "hidden_size")}
LAYERS = {"num_hidden_layers": _either("layers.")}
# Of Llama 2 7B, as its configuration class has them.
OF_LLAMA = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008}
OF_LLAMA |= {"num_hidden_layers": 32, "num_attention_heads": 32}
OF_MISTRAL = {**OF_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8}
OF_QWEN = {**OF_LLAMA, "vocab_size": 151936, "intermediate_size": 22016}
LLAMA = _family(
    "llama",
    "Llama",
    OF_LLAMA,
    combined=(rope(2048),),
    settings=(flag("attention_bias", "attention_bias", False), flag("mlp_bias", "mlp_bias", False)),
    # How a product was cut, when it was trained; and of SmolLM's files.
    settled={"rope_interleaved": (False,)},
    without_effect=frozenset({"pretraining_tp", "is_llama_config"}),
)
MISTRAL = _family(
    "mistral", "Mistral", OF_MISTRAL, combined=(rope(131072), one_window(4096)), mappings=_mappings
)
QWEN2 = _family(
    "qwen2",
    "Qwen2",
    OF_QWEN,
    combined=(rope(32768), windows_of_layers(4096, last=True)),
    fixed={"attention_bias": OF_HEADS},
    settled={"use_mrope": (False,)},
)
QWEN3 = _family(
    "qwen3",
    "Qwen3",
    {**OF_QWEN, "head_dim": 128},
    combined=(rope(32768), windows_of_layers(4096, last=True)),
    settings=(flag("attention_bias", "attention_bias", False),),
    fixed={"normalized": True},
)
