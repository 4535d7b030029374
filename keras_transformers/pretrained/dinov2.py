"""DINOv2 (Oquab et al. 2024), also with registers (Darcet et al. 2024)."""

from collections.abc import Mapping
from typing import Any

from keras_transformers.layers import ClassAndMeanPooling, GatedFeedForward
from keras_transformers.models import ViT
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    image_classes,
    not_negative,
    number,
    size,
)
from keras_transformers.pretrained.vit import (
    FIXED,
    SETTLED,
    embedding_mappings,
    image_shape,
    make_vit,
    read_side,
    read_vit,
    write_side,
)
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    LINEAR,
    MODULES_OF_DINOV2,
    FusedPart,
    Mappings,
    WeightMapping,
    attention,
    linear,
    norm,
)


def _network_width(hidden_dim: int, ratio: float, gated: bool) -> int:
    """Returns the width of a network; a gated one has two thirds of it, made a multiple of 8."""
    width = int(hidden_dim * ratio)
    return (int(width * 2 / 3) + 7) // 8 * 8 if gated else width


def _make(arguments: dict[str, Any]) -> ViT:
    keywords = dict(arguments)
    ratio, is_gated = keywords.pop("mlp_ratio"), keywords.pop("gated")
    width = _network_width(arguments["hidden_dim"], ratio, is_gated)
    if is_gated:
        keywords["feed_forward"] = GatedFeedForward(width, "silu")
        del keywords["activation"]
    else:
        keywords["mlp_dim"] = width
    if arguments["num_classes"] is not None:
        keywords["pooling"] = ClassAndMeanPooling(1 + arguments["registers"])
    return make_vit(keywords)


def _read(model: ViT) -> dict[str, Any]:
    arguments, block = read_vit(model), model.encoder_blocks[0]
    width, mlp_dim = arguments["hidden_dim"], arguments.pop("mlp_dim")
    is_gated = isinstance(block.feed_forward, GatedFeedForward)
    ratio = mlp_dim / width
    if is_gated:
        arguments["activation"] = "gelu"  # which no gated network reads
        # A whole ratio that gives such a network, or the ratio of its own width.
        fitting = (x for x in range(1, 17) if _network_width(width, x, is_gated) == mlp_dim)
        ratio = next(fitting, ratio)
    is_classifier = arguments["num_classes"] is not None
    if is_classifier and isinstance(model.pooling.kind, ClassAndMeanPooling):
        arguments["pooling"] = "token"  # for which `_make` makes the pooling of a classifier
    return {
        **arguments,
        "gated": is_gated,
        "mlp_ratio": int(ratio) if ratio == int(ratio) else ratio,
        "layer_scale": block.layer_scale,
    }


def _blocks(name: str) -> Mappings:
    """The mappings of the blocks."""
    ours, theirs = "encoder_{i}", f"{name}.encoder.layer.{{i}}"
    q, k, v = (f"{theirs}.attention.attention.{each}" for each in ("query", "key", "value"))
    return [
        *attention(f"{ours}/mixer", q, k, v, f"{theirs}.attention.output.dense"),
        *norm(f"{ours}/mixer_norm", f"{theirs}.norm1"),
        *norm(f"{ours}/feed_forward_norm", f"{theirs}.norm2"),
        WeightMapping(f"{ours}/mixer_scale/factor", f"{theirs}.layer_scale1.lambda1"),
        WeightMapping(f"{ours}/feed_forward_scale/factor", f"{theirs}.layer_scale2.lambda1"),
    ]


def _networks(name: str, gated: bool) -> Mappings:
    """The mappings of the feed-forward networks."""
    ours, theirs = "encoder_{i}/feed_forward", f"{name}.encoder.layer.{{i}}.mlp"
    if not gated:
        output = linear(f"{ours}/output", f"{theirs}.fc2")
        return [*linear(f"{ours}/hidden", f"{theirs}.fc1"), *output]
    mappings = linear(f"{ours}/output", f"{theirs}.weights_out")
    for i, part in enumerate(("gate", "hidden")):
        for weight, their, layout in (("kernel", "weight", LINEAR), ("bias", "bias", FLAT)):
            fused = FusedPart(i, layout, 2, axis=0)
            mapping = WeightMapping(
                f"{ours}/{part}/{weight}", f"{theirs}.weights_in.{their}", fused
            )
            mappings.append(mapping)
    return mappings


def _mappings(model: Any) -> Mappings:
    name = "dinov2_with_registers" if model.embedding.registers else "dinov2"
    gated = isinstance(model.encoder_blocks[0].feed_forward, GatedFeedForward)
    return [
        *embedding_mappings("", f"{name}.embeddings", model.patch_size),
        WeightMapping(
            "embedding/register_tokens/register_tokens", f"{name}.embeddings.register_tokens"
        ),
        *_blocks(name),
        *_networks(name, gated),
        *norm("norm", f"{name}.layernorm"),
        *linear("head", "classifier"),
    ]


def _patch(value: Any) -> int:
    sides = read_side(value)
    if sides[0] != sides[1]:
        raise ValueError("a positive integer")
    return sides[0]


SETTINGS = (
    size("hidden_size", "hidden_dim", 768),
    size("num_hidden_layers", "num_layers", 12),
    size("num_attention_heads", "num_heads", 12),
    number("mlp_ratio", "mlp_ratio", 4),
    activation("hidden_act", "activation", "gelu"),
    number("hidden_dropout_prob", "dropout", 0.0),
    number("attention_probs_dropout_prob", "attention_dropout", 0.0),
    number("drop_path_rate", "drop_path", 0.0),
    number("layer_norm_eps", "norm_epsilon", 1e-6),
    Setting("image_size", "image_size", 224, read_side, write_side),
    size("num_channels", "channels", 3),
    Setting("qkv_bias", "qkv_bias", True, bool),
    Setting("layerscale_value", "layer_scale", 1.0, not_negative, not_negative),
    Setting("use_swiglu_ffn", "gated", False, bool),
)
# Of backbones, whose maps `ViT.features` gives, and of pretraining on masked pictures.
WITHOUT_EFFECT = frozenset({"apply_layernorm", "reshape_hidden_states", "out_features"})
WITHOUT_EFFECT |= {"out_indices", "stage_names", "use_mask_token", "_out_features", "_out_indices"}


def _family(
    name: str, classes: str, own: Mapping[str, Any], patches: int, *more: Setting
) -> Family:
    """One of the two families.

    Args:
        name: Its `model_type`.
        classes: What the names of the published classes begin with.
        own: What its models have, whatever is said.
        patches: Side of a patch where nothing is said.
        *more: Further settings.
    """
    fixed = {key: value for key, value in FIXED.items() if key not in ("registers", "antialias")}
    configuration = Configuration(
        name=name,
        settings=(*SETTINGS, Setting("patch_size", "patch_size", patches, _patch), *more),
        fixed={**fixed, "distillation": None, **own},
        settled=SETTLED,
        without_effect=WITHOUT_EFFECT,
    )
    patches_of = f"{name}.embeddings.patch_embeddings.projection.weight"
    weights = Weights(
        mappings=_mappings,
        sizes={patches_of: ("hidden_size", "num_channels", "patch_size", "patch_size")},
        layers={"num_hidden_layers": f"{name}.encoder.layer."},
        prefix=f"{name}.",
        bare=(f"{classes}Model",),
        modules=MODULES_OF_DINOV2,
    )
    return Family(
        configuration=configuration,
        weights=weights,
        model=ViT,
        **image_classes(classes),
        make=_make,
        read=_read,
        shape=image_shape,
    )


# Positions are resized without antialiasing, but for the family with registers.
DINOV2 = _family("dinov2", "Dinov2", {"registers": 0, "antialias": False}, 14)
DINOV2_WITH_REGISTERS = _family(
    "dinov2_with_registers",
    "Dinov2WithRegisters",
    {"antialias": True},
    16,
    size("num_register_tokens", "registers", 4),
)
