"""ModernBERT (Warner et al. 2024)."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.models import TextEncoder
from keras_transformers.pretrained.configuration import (
    Configuration,
    Setting,
    activation,
    number,
    positive,
    size,
)
from keras_transformers.pretrained.family import Family, Weights
from keras_transformers.pretrained.heads import OF_ENCODERS, of_texts
from keras_transformers.pretrained.modernbert_parts import (
    DEFAULT_WAVELENGTHS,
    arguments_of_modernbert,
    make_modernbert,
)
from keras_transformers.pretrained.tensor_layouts import FLAT, LINEAR, OUTPUT, FusedPart
from keras_transformers.pretrained.weight_mapping import Mappings, WeightMapping, linear, norm

MOST_LAYERS = 1 << 12
GLOBAL, LOCAL = "full_attention", "sliding_attention"
WAVELENGTHS = dict(zip((GLOBAL, LOCAL), DEFAULT_WAVELENGTHS, strict=True))
OLDER = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}
POOLING = {"cls": "token", "mean": "mean"}


def _layer_types(config: Mapping[str, Any]) -> Any:
    """Of older files, which say that every n-th layer is global; what they say if it is wrong."""
    every, layers = config.get("global_attn_every_n_layers", 3), config.get("num_hidden_layers", 22)
    for each in (every, layers):
        if not isinstance(each, int) or not 0 < each <= MOST_LAYERS:
            return each
    return [LOCAL if i % every else GLOBAL for i in range(layers)]


def _read_layer_types(types: Any) -> list[bool]:
    """Which layers are local."""
    if not isinstance(types, list) or not {*types} <= {GLOBAL, LOCAL}:
        raise ValueError(
            f"a list of {GLOBAL!r} and {LOCAL!r}, or `global_attn_every_n_layers` a positive "
            "integer"
        )
    return [each == LOCAL for each in types]


def _rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of older files, which have a number each."""
    return {kind: {"rope_theta": config.get(name)} for kind, name in OLDER.items()}


def _read_wavelengths(asked: Any) -> list[float]:
    """The longest wavelengths of global and of local layers."""
    found = []
    for kind, default in WAVELENGTHS.items():
        each = dict((asked or {}).get(kind) or {})
        wavelength = each.pop("rope_theta", None) or default
        if each.pop("rope_type", "default") != "default" or any(each.values()):
            raise ValueError(f"of `rope_type` 'default' for {kind}, without a scaling")
        if isinstance(wavelength, bool) or not isinstance(wavelength, int | float):
            raise ValueError(f"such that `rope_theta` of {kind} is a number")
        found.append(float(wavelength))
    return found


def _write_wavelengths(found: list[float]) -> dict[str, Any]:
    return {
        kind: {"rope_type": "default", "rope_theta": wavelength}
        for kind, wavelength in zip(WAVELENGTHS, found, strict=True)
    }


def _read_pooling(name: Any) -> str:
    if name not in POOLING:
        raise ValueError(f"one of {', '.join(POOLING)}")
    return POOLING[name]


def _window(value: Any) -> int:
    if positive(value) < 2:
        raise ValueError("an integer, 2 or more")
    return value


def _fused(ours: str, theirs: str, parts: tuple[str, ...]) -> Mappings:
    """The mappings of layers whose kernels, and biases, are one tensor."""
    mappings: Mappings = []
    for i, part in enumerate(parts):
        for weight, name, layout in (("kernel", "weight", LINEAR), ("bias", "bias", FLAT)):
            fused = FusedPart(i, layout, len(parts), axis=0)
            mappings.append(WeightMapping(f"{ours}/{part}/{weight}", f"{theirs}.{name}", fused))
    return mappings


MAPPINGS = [
    WeightMapping(
        "embedding/token_embedding/token_embedding",
        "model.embeddings.tok_embeddings.weight",
        also=("decoder.weight",),
    ),
    *norm("embedding/norm", "model.embeddings.norm"),
    *norm("encoder_{i}/mixer_norm", "model.layers.{i}.attn_norm"),
    *_fused("encoder_{i}/mixer", "model.layers.{i}.attn.Wqkv", ("query", "key", "value")),
    WeightMapping(
        "encoder_{i}/mixer/attention_output/kernel", "model.layers.{i}.attn.Wo.weight", OUTPUT
    ),
    WeightMapping("encoder_{i}/mixer/attention_output/bias", "model.layers.{i}.attn.Wo.bias"),
    *norm("encoder_{i}/feed_forward_norm", "model.layers.{i}.mlp_norm"),
    *_fused("encoder_{i}/feed_forward", "model.layers.{i}.mlp.Wi", ("gate", "hidden")),
    *linear("encoder_{i}/feed_forward/output", "model.layers.{i}.mlp.Wo"),
    *norm("norm", "model.final_norm"),
    *linear("head/transform/dense", "head.dense"),
    *norm("head/transform/norm", "head.norm"),
    WeightMapping("head/bias", "decoder.bias"),
    *linear("head/classes", "classifier"),
    *linear("head/ends", "classifier"),
]

MODERNBERT_CONFIGURATION = Configuration(
    name="modernbert",
    settings=(
        size("vocab_size", "vocab_size", 50368),
        size("hidden_size", "hidden_dim", 768),
        size("num_hidden_layers", "num_layers", 22),
        size("num_attention_heads", "num_heads", 12),
        size("intermediate_size", "mlp_dim", 1152),
        activation("hidden_activation", "activation", "gelu"),
        number("norm_eps", "norm_epsilon", 1e-5),
        Setting("norm_bias", "norm_bias", False, bool),
        Setting("pad_token_id", "padding_id", 50283),
        Setting(
            "layer_types",
            "local",
            _layer_types,
            _read_layer_types,
            lambda local: [LOCAL if each else GLOBAL for each in local],
        ),
        Setting("rope_parameters", "wavelengths", _rotary, _read_wavelengths, _write_wavelengths),
        Setting("local_attention", "window_size", 128, _window),
        number("attention_dropout", "attention_dropout", 0.0),
        Setting("attention_bias", "attention_bias", False, bool),
        number("mlp_dropout", "mlp_dropout", 0.0),
        Setting("mlp_bias", "mlp_bias", False, bool),
        Setting(
            "classifier_pooling",
            "pooling",
            "cls",
            _read_pooling,
            lambda ours: {our: their for their, our in POOLING.items()}[ours],
        ),
        activation("classifier_activation", "head_activation", "gelu"),
        Setting("classifier_bias", "head_bias", False, bool),
    ),
    settled={
        "decoder_bias": (True,),
        "embedding_dropout": (0.0,),
        "head_dim": (None,),
        "rope_scaling": (None,),
        "sliding_window": (None,),  # which would be half of `local_attention`
        "position_embedding_type": ("absolute",),  # of the first files, which nothing reads
    },
    # The first are read in the place of others, see `_layer_types` and `_rotary`; the next say how
    # long texts were in training, how to compute the same, and what a loss is computed of.
    without_effect=frozenset({"global_attn_every_n_layers", *OLDER.values()})
    | {"max_position_embeddings", "deterministic_flash_attn", "reference_compile"}
    | {"repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index"}
    | {"initializer_cutoff_factor", "classifier_dropout", "layer_norm_eps"},
)
MODERNBERT_WEIGHTS = Weights(
    mappings=lambda model: MAPPINGS,
    sizes={"model.embeddings.tok_embeddings.weight": ("vocab_size", "hidden_size")},
    layers={"num_hidden_layers": "model.layers."},
    prefix="model.",
    bare=("ModernBertModel",),
)
MODERNBERT = Family(
    configuration=MODERNBERT_CONFIGURATION,
    weights=MODERNBERT_WEIGHTS,
    model=TextEncoder,
    **of_texts("ModernBert", OF_ENCODERS),
    make=make_modernbert,
    arguments=arguments_of_modernbert,
)
