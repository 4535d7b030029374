"""Llama, Mistral, Qwen 2, Qwen 3, Gemma 2 and Phi-3."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_transformers.models import LanguageModel, SpanHead
from keras_transformers.pretrained.decoders import (
    make_language_model,
    one_window,
    padding,
    read_language_model,
    rope,
    windows_of_layers,
)
from keras_transformers.pretrained.family import (
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    flag,
    number,
    size,
)
from keras_transformers.pretrained.heads import (
    DECODER_HEADS,
    DECODER_HEADS_WITHOUT_SPANS,
    decoder_head_mappings,
    text_classes,
)
from keras_transformers.pretrained.weight_mapping import (
    LINEAR,
    OUTPUT,
    Mappings,
    Stacked,
    WeightMapping,
    attention,
    linear,
)

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
        *decoder_head_mappings(model),
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


def _renamed_mappings(model: LanguageModel) -> Mappings:
    """Returns the mappings; a model that answers questions is called `transformer` there."""
    mappings = _mappings(model)
    if not isinstance(model.head, SpanHead):
        return mappings
    return [
        dataclasses.replace(
            mapping, theirs=mapping.theirs.replace("model.", OTHER, 1), also=(mapping.theirs,)
        )
        if mapping.theirs.startswith("model.")
        else mapping
        for mapping in mappings
        if isinstance(mapping, WeightMapping)
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
    mappings: Callable[[LanguageModel], Mappings] = _renamed_mappings,
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
    names = {setting.ours for setting in settings} | {item.ours for item in combined}
    return Family(
        configuration=Configuration(
            name=name,
            settings=(*sizes_of_decoder(defaults), *settings),
            combined=(padding(), *combined),
            fixed={**{k: v for k, v in FIXED.items() if k not in names}, **(fixed or {})},
            settled={**SETTLED, **(settled or {})},
            without_effect=WITHOUT_EFFECT | without_effect,
        ),
        weights=Weights(mappings, SIZES, LAYERS, projections=projections),
        model=LanguageModel,
        **text_classes(title, DECODER_HEADS),
        make=make_language_model,
        read=read_language_model,
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


def _gemma2_mappings(model: LanguageModel) -> Mappings:
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

    return Combined(ours, (theirs,), read, lambda arguments: {theirs: arguments[ours]})


def _scale(default: int) -> Combined:
    """Returns the setting of the scale of scores: one by the root of a published number."""
    name = "query_pre_attn_scalar"

    def read(config: dict[str, Any]) -> float:
        return _positive(config.get(name) or default, name) ** -0.5

    def write(arguments: dict[str, Any]) -> dict[str, Any]:
        scale = arguments["score_scale"]
        number = arguments["head_dim"] if scale is None else round(scale**-2)
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
    weights=Weights(_gemma2_mappings, SIZES, LAYERS, projections=projections),
    model=LanguageModel,
    **text_classes("Gemma2", DECODER_HEADS_WITHOUT_SPANS),
    make=make_language_model,
    read=read_language_model,
)


PHI3_DEFAULTS = {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "rms_norm_eps": 1e-5,
}


def _phi3_mappings(model: LanguageModel) -> Mappings:
    mixer, network = model.decoder_blocks[0].mixer, model.decoder_blocks[0].feed_forward
    shared, key_dim, _ = mixer.head_dims
    fused = {
        "mixer": (
            f"{LAYER}.self_attn.qkv_proj.weight",
            {
                "query": mixer.num_heads * key_dim,
                "key": shared * key_dim,
                "value": shared * key_dim,
            },
        ),
        "feed_forward": (
            f"{LAYER}.mlp.gate_up_proj.weight",
            {"gate": network.mlp_dim, "hidden": network.mlp_dim},
        ),
    }
    mappings = [
        *ends(model),
        *norms(),
        WeightMapping(
            "decoder_{i}/mixer/attention_output/kernel", f"{LAYER}.self_attn.o_proj.weight", OUTPUT
        ),
        WeightMapping(
            "decoder_{i}/feed_forward/output/kernel", f"{LAYER}.mlp.down_proj.weight", LINEAR
        ),
    ]
    for part, (theirs, rows) in fused.items():
        for position, name in enumerate(rows):
            layout = Stacked(position, tuple(rows.values()), LINEAR)
            mappings.append(WeightMapping(f"decoder_{{i}}/{part}/{name}/kernel", theirs, layout))
    return mappings


PHI3 = Family(
    configuration=Configuration(
        name="phi3",
        settings=(
            *sizes_of_decoder(PHI3_DEFAULTS),
            activation("hidden_act", "activation", "silu"),
            number("resid_pdrop", "dropout", 0.0),
        ),
        combined=(padding(32000), rope(4096, partial=True, original_length=4096), one_window(None)),
        fixed={name: value for name, value in FIXED.items() if name != "windows"},
        settled=SETTLED,
        # Nobody reads them: no projection has a bias, and code in a folder is never run.
        without_effect=WITHOUT_EFFECT | {"embd_pdrop", "attention_bias", "auto_map"},
    ),
    weights=Weights(
        mappings=_phi3_mappings,
        sizes={
            **TABLE,
            "model.layers.0.mlp.down_proj.weight": ("hidden_size", "intermediate_size"),
        },
        layers=LAYERS,
    ),
    model=LanguageModel,
    **text_classes("Phi3", DECODER_HEADS_WITHOUT_SPANS),
    make=make_language_model,
    read=read_language_model,
)
