"""Llama, Mistral, Qwen 2, Qwen 3, Gemma 2 and Phi-3, and the settings of decoders."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_transformers import layers
from keras_transformers.layers.parts import serialized
from keras_transformers.models import LanguageModel, SpanHead, TextEmbedding
from keras_transformers.pretrained.family import (
    DECODER_HEADS,
    DECODER_HEADS_WITHOUT_SPANS,
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    decoder_head,
    decoder_head_mappings,
    flag,
    number,
    read_block,
    read_decoder_head,
    size,
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

# In older files, in files of transformers 5, and beside both.
OF_ROPE = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
OF_ROPE += ("max_position_embeddings", "original_max_position_embeddings")
TYPES = ("default", "linear", "llama3", "yarn", "longrope")
WINDOW, FULL = "sliding_attention", "full_attention"
Config = Mapping[str, Any]


def rope(max_length: int, partial: bool = False, original_length: int | None = None) -> Combined:
    """Arguments of `RotaryEmbedding`, as `rope`.

    Args:
        max_length: `max_position_embeddings` where nothing is said.
        partial: Whether the published code turns a part of each head (Phi-3's does), and takes its
            older words for LongRoPE.
        original_length: `original_max_position_embeddings` where nothing is said, beside
            `rope_scaling`; None where `rope_scaling` has it.
    """

    def read(config: dict[str, Any]) -> dict[str, Any]:
        defaults = {"max_position_embeddings": max_length}
        if original_length is not None:
            defaults["original_max_position_embeddings"] = original_length
        return _read_rope({**defaults, **_without_nulls(config)}, partial)

    return Combined("rope", OF_ROPE, read, lambda given: _write_rope(given, partial))


def _without_nulls(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _read_rope(config: Config, partial: bool) -> dict[str, Any]:
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    if not isinstance(given, dict) or any(isinstance(each, dict) for each in given.values()):
        raise ValueError(f"`{name}` must be one dict for all layers. Received: {given!r}")
    given = _without_nulls(given)
    kind = given.get("rope_type", given.get("type", "default"))
    if partial and kind in ("su", "yarn"):  # as its code called it before
        kind = "longrope"
    if kind not in TYPES:
        why = ", for no model here turns by other angles as a text grows" * (kind == "dynamic")
        raise ValueError(
            f"`{name}` must be of type {', '.join(TYPES)}{why}. Received: {str(given)[:200]}"
        )
    part = given.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if part != 1.0 and not partial:
        raise ValueError(f"`partial_rotary_factor` must be 1.0. Received: {part!r}")
    theta: Any = given.get("rope_theta", config.get("rope_theta", 10000.0))
    found = {
        "max_wavelength": float(theta),
        "rotary_dim": None if part == 1.0 else int(config["head_dim"] * part),
        "scaling": None,
        "scaling_factor": 1.0,
        "original_length": None,
    }
    if kind == "default":
        return found
    try:
        if kind == "linear":
            return {**found, "scaling": "linear", "scaling_factor": float(given["factor"])}
        return {**found, "scaling": serialized(_scaling(kind, given, config))}
    except KeyError as error:
        message = f"`{name}` of type {kind} must have {error}. Received: {str(given)[:200]}"
        raise ValueError(message) from None


def _scaling(kind: str, given: Config, config: Config) -> layers.RotaryScaling:
    most = config["max_position_embeddings"]
    original = config.get(
        "original_max_position_embeddings", given.get("original_max_position_embeddings", most)
    )
    if kind == "llama3":
        ends = (given["low_freq_factor"], given["high_freq_factor"])
        return layers.Llama3Scaling(given["factor"], original, *map(float, ends))
    factor, gain = given.get("factor", most / original), given.get("attention_factor")
    if kind == "longrope":
        if gain is None:
            gain = math.sqrt(1 + math.log(max(factor, 1)) / math.log(original))
        return layers.LongRopeScaling(given["short_factor"], given["long_factor"], original, gain)
    scales: list[Any] = [given.get(name) for name in ("mscale", "mscale_all_dim")]
    if gain is None and all(scales):
        above, below = (0.1 * scale * math.log(max(factor, 1)) + 1 for scale in scales)
        gain = above / below
    turns = {"fast": given.get("beta_fast") or 32, "slow": given.get("beta_slow") or 1}
    return layers.YarnScaling(factor, original, gain, **turns, whole=given.get("truncate", True))


def _write_rope(given: dict[str, Any], partial: bool) -> dict[str, Any]:
    found, width = given["rope"], given["head_dim"]
    config: dict[str, Any] = {"rope_theta": found["max_wavelength"]}
    if partial:
        config["partial_rotary_factor"] = (found["rotary_dim"] or width) / width
    elif found["rotary_dim"] not in (None, width):
        raise ValueError(
            f"the whole head must be turned. Received: rotary_dim={found['rotary_dim']}"
        )
    scaling = found["scaling"]
    if scaling is None:
        return config
    if scaling == "yarn":
        scaling = layers.YarnScaling(found["scaling_factor"], found["original_length"])
    if isinstance(scaling, dict):
        scaling = keras.saving.deserialize_keras_object(scaling)
    written = _written(scaling, found["scaling_factor"])
    if partial and written["rope_type"] != "longrope":
        raise ValueError(f"rotary positions must have LongRoPE or no scaling. Received: {written}")
    if partial:
        config["original_max_position_embeddings"] = scaling.original_length
    # `type` is what transformers 4 read first.
    return {**config, "rope_scaling": {**written, "type": written["rope_type"]}}


def _written(scaling: Any, factor: float) -> dict[str, Any]:
    if scaling == "linear":
        return {"rope_type": "linear", "factor": factor}
    length = {"original_max_position_embeddings": getattr(scaling, "original_length", None)}
    if type(scaling) is layers.Llama3Scaling:
        ends = {"low_freq_factor": scaling.slow, "high_freq_factor": scaling.fast}
        return {"rope_type": "llama3", "factor": scaling.factor, **ends, **length}
    if type(scaling) is layers.LongRopeScaling:
        factors = {"short_factor": list(scaling.short), "long_factor": list(scaling.long)}
        return {"rope_type": "longrope", **factors, "attention_factor": scaling.gain, **length}
    if type(scaling) is layers.YarnScaling:
        turns = {"beta_fast": scaling.fast, "beta_slow": scaling.slow, "truncate": scaling.whole}
        gain = {"attention_factor": scaling.gain}
        return {"rope_type": "yarn", "factor": scaling.factor, **gain, **turns, **length}
    raise ValueError(f"no published code has this scaling of rotary positions. Received: {scaling}")


def padding(default: int | None = None) -> Combined:
    """Returns the setting of the id of padding, -1 for none, as for a model that writes text."""

    def read(config: dict[str, Any]) -> int:
        value = config.get("pad_token_id", default)
        if not isinstance(value, int | None) or isinstance(value, bool):
            raise ValueError(f"`pad_token_id` must be an integer or null. Received: {value!r}")
        return -1 if value is None or value < 0 else value

    def write(given: dict[str, Any]) -> dict[str, Any]:
        number = given["padding_id"]
        if given["head"] is None and number != -1:
            raise ValueError(f"padding_id must be -1. Received: {number}")
        return {"pad_token_id": None if number == -1 else number}

    return Combined("padding_id", ("pad_token_id",), read, write)


def one_window(default: int | None) -> Combined:
    """`windows` of a family whose layers all have the same `sliding_window`, or none."""

    def read(config: dict[str, Any]) -> list[int | None] | None:
        return _windows([WINDOW] * config["num_hidden_layers"], config, default)

    def write(given: dict[str, Any]) -> dict[str, Any]:
        sizes = set(given["windows"] or [None])
        if len(sizes) > 1:
            raise ValueError(f"all layers must have one window. Received: {given['windows']}")
        return {"sliding_window": sizes.pop()}

    return Combined("windows", ("sliding_window",), read, write)


def windows_of_layers(default: int, last: bool) -> Combined:
    """`windows` of a family that says of each layer whether it has one.

    Args:
        default: `sliding_window` where nothing is said.
        last: Whether, where layers are not listed, those from `max_window_layers` on have one, and
            only with `use_sliding_window` (Qwen); else every other one, from the first on (Gemma).
    """
    theirs: tuple[str, ...] = ("sliding_window", "layer_types")
    theirs += ("use_sliding_window", "max_window_layers") if last else ()

    def read(config: dict[str, Any]) -> list[int | None] | None:
        if last and not config.get("use_sliding_window", False):
            return None
        number, first = config["num_hidden_layers"], config.get("max_window_layers", 28)
        has_one: Callable[[int], bool] = (lambda i: i >= first) if last else (lambda i: i % 2 == 0)
        kinds = config.get("layer_types") or [WINDOW if has_one(i) else FULL for i in range(number)]
        return _windows(kinds, config, default)

    def write(given: dict[str, Any]) -> dict[str, Any]:
        windows = given["windows"] or [None] * given["num_layers"]
        sizes = set(windows) - {None}
        if len(sizes) > 1:
            raise ValueError(f"all windows must be of one size. Received: {sorted(sizes)}")
        kinds = [FULL if each is None else WINDOW for each in windows]
        config: dict[str, Any] = {"layer_types": kinds}
        if sizes:
            config["sliding_window"] = sizes.pop()
        if last:
            config["use_sliding_window"] = WINDOW in kinds
            config["max_window_layers"] = kinds.index(WINDOW) if WINDOW in kinds else len(kinds)
        return config

    return Combined("windows", theirs, read, write)


def _windows(kinds: Any, config: Config, default: int | None) -> list[int | None] | None:
    """The window of each layer, None for none; None where no layer has one."""
    number, size = config["num_hidden_layers"], config.get("sliding_window", default)
    if not isinstance(kinds, list) or len(kinds) != number or {*kinds} - {WINDOW, FULL}:
        raise ValueError(
            f"`layer_types` must have '{WINDOW}' or '{FULL}' for each of {number} layers. "
            f"Received: {str(kinds)[:200]}"
        )
    whole = isinstance(size, int) and not isinstance(size, bool)
    if size is not None and not (whole and size > 1):
        raise ValueError(f"`sliding_window` must be an integer over 1, or null. Received: {size!r}")
    windows = [size if kind == WINDOW else None for kind in kinds]
    return windows if any(windows) else None


def make_language_model(arguments: dict[str, Any]) -> LanguageModel:
    """Makes a model of flat arguments.

    With `gemma`, blocks have norms on both sides of a branch, whose factors are one plus an offset,
    and embeddings are multiplied by the root of the width.
    """
    windows = arguments["windows"]
    blocks = [_block(arguments, window) for window in windows or [None]]
    if windows and len(set(windows)) == 1:
        blocks = blocks[:1]
    return LanguageModel(
        num_layers=arguments["num_layers"],
        dropout=arguments.get("dropout", 0.0),
        block=blocks if len(blocks) > 1 else blocks[0],
        embedding=TextEmbedding(
            arguments["vocab_size"],
            arguments["hidden_dim"],
            max_length=None,
            padding_id=arguments["padding_id"],
            scale=arguments["gemma"],
            tie_weights=arguments["tied"] or arguments["head"] is not None,
        ),
        head=decoder_head(arguments),
        dtype=arguments.get("dtype"),
    )


def read_language_model(model: LanguageModel) -> dict[str, Any]:
    """Returns the arguments that `make_language_model` makes such a model of."""
    embedding, block = model.embedding, model.decoder_blocks[0]
    mixer, position = block.mixer, block.mixer.position
    shared, key_dim, _ = mixer.head_dims
    # As the attention was given them: None where they follow from others.
    widths = {"key_dim": mixer.key_dim, "num_key_value_heads": mixer.num_key_value_heads}
    widths["value_dim"] = key_dim if mixer.value_dim == key_dim else None
    windows = [
        layer.mixer.window_size if isinstance(layer.mixer, layers.LocalAttention) else None
        for layer in model.decoder_blocks
    ]
    return {
        "vocab_size": embedding.vocab_size,
        "hidden_dim": embedding.hidden_dim,
        "padding_id": embedding.padding_id,
        "tied": embedding.tie_weights,
        "num_layers": len(model.decoder_blocks),
        "dropout": model.configuration.dropout,
        **read_block(block),
        "num_key_value_heads": shared,
        "head_dim": key_dim,
        "widths": widths,
        "attention_bias": mixer.use_bias,
        "rope": {
            "max_wavelength": position.max_wavelength,
            "rotary_dim": position.rotary_dim,
            "scaling": position.scaling,
            "scaling_factor": position.scaling_factor,
            "original_length": position.original_length,
        },
        "windows": windows if any(windows) else None,
        **_read_score(mixer.score),
        "mlp_bias": block.feed_forward.use_bias,
        "gemma": isinstance(block, layers.SandwichDecoderBlock),
        **read_decoder_head(model.head),
    }


def _read_score(score: layers.Score) -> dict[str, Any]:
    cap = score.cap if isinstance(score, layers.SoftCapScore) else None
    normalized = isinstance(score, layers.NormalizedScore)
    return {"normalized": normalized, "score_scale": score.scale, "score_cap": cap}


def _block(arguments: dict[str, Any], window: int | None) -> layers.DecoderBlock:
    settings: dict[str, Any] = {
        "key_dim": arguments["head_dim"],
        "num_key_value_heads": arguments["num_key_value_heads"],
        **arguments.get("widths", {}),
        "dropout": arguments["attention_dropout"],
        "use_bias": arguments["attention_bias"],
        "score": _score(arguments),
        "position": layers.RotaryEmbedding(**arguments["rope"]),
    }
    if window is None:
        attention = layers.CausalSelfAttention(arguments["num_heads"], **settings)
    else:
        attention = layers.LocalAttention(arguments["num_heads"], window, causal=True, **settings)
    block = layers.SandwichDecoderBlock if arguments["gemma"] else layers.DecoderBlock
    return block(
        dropout=arguments.get("dropout", 0.0),
        norm_first=True,
        mixer=attention,
        feed_forward=layers.GatedFeedForward(
            arguments["mlp_dim"], arguments["activation"], use_bias=arguments["mlp_bias"]
        ),
        norm=_norm(arguments),
    )


def _norm(arguments: dict[str, Any]) -> keras.layers.Layer:
    kind = layers.OffsetRMSNormalization if arguments["gemma"] else keras.layers.RMSNormalization
    return kind(epsilon=arguments["norm_epsilon"])


def _score(arguments: dict[str, Any]) -> layers.Score:
    scale = arguments["score_scale"]
    if arguments["normalized"]:
        return layers.NormalizedScore(_norm(arguments), scale)
    if arguments["score_cap"] is not None:
        return layers.SoftCapScore(arguments["score_cap"], scale)
    return layers.ScaledDotScore(scale)


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
