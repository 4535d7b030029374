"""Families of `ViT`: ViT, DeiT, BEiT, DINOv2, and the masked autoencoder of ViT."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from keras_transformers.layers import (
    ClassAndMeanPooling,
    GatedFeedForward,
    GridRelativeBias,
    SelfAttention,
)
from keras_transformers.models import MAE, ViT
from keras_transformers.models.vit import STEMS
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    image_classes,
    not_negative,
    number,
    read_block,
    size,
)
from keras_transformers.pretrained.weight_mapping import (
    FLAT,
    LINEAR,
    MODULES_OF_DINOV2,
    MODULES_OF_VIT,
    AsIs,
    FusedPart,
    Mappings,
    PatchConvolution,
    WeightMapping,
    also_called,
    attention,
    inside,
    linear,
    norm,
)


def encoder_mappings(ours: str, theirs: str) -> Mappings:
    """The mappings of a pre-norm encoder block."""
    q, k, v = (f"{theirs}.attention.attention.{name}" for name in ("query", "key", "value"))
    return [
        *attention(f"{ours}/mixer", q, k, v, f"{theirs}.attention.output.dense"),
        *norm(f"{ours}/mixer_norm", f"{theirs}.layernorm_before"),
        *linear(f"{ours}/feed_forward/hidden", f"{theirs}.intermediate.dense"),
        *linear(f"{ours}/feed_forward/output", f"{theirs}.output.dense"),
        *norm(f"{ours}/feed_forward_norm", f"{theirs}.layernorm_after"),
    ]


def embedding_mappings(ours: str, theirs: str, patch_size: int) -> Mappings:
    """The mappings of what makes tokens of pictures."""
    patches = f"{theirs}.patch_embeddings.projection"
    return [
        WeightMapping(
            f"{ours}embedding/patch_embedding/projection/kernel",
            f"{patches}.weight",
            PatchConvolution(patch_size),
        ),
        WeightMapping(f"{ours}embedding/patch_embedding/projection/bias", f"{patches}.bias"),
        WeightMapping(f"{ours}embedding/class_token/class_token", f"{theirs}.cls_token"),
        WeightMapping(
            f"{ours}embedding/distillation_token/class_token", f"{theirs}.distillation_token"
        ),
        WeightMapping(
            f"{ours}embedding/position_embedding/position_embedding",
            f"{theirs}.position_embeddings",
            AsIs(lead=1),
        ),
    ]


def _mappings(name: str, heads: Mappings) -> Callable[[ViT], Mappings]:
    def mappings(model: Any) -> Mappings:
        return [
            *embedding_mappings("", f"{name}.embeddings", model.patch_size),
            *encoder_mappings("encoder_{i}", f"{name}.encoder.layer.{{i}}"),
            *norm("norm", f"{name}.layernorm"),
            *heads,
        ]

    return mappings


def read_side(value: Any) -> list[int]:
    """`(height, width)` of an image size."""
    sides = [value, value] if isinstance(value, int) else list(value)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError("a positive integer, or two of them")
    return sides


def write_side(sides: Sequence[int]) -> Any:
    """One number for a square."""
    return sides[0] if sides[0] == sides[1] else list(sides)


def image_shape(arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the shape of images that a model is built for."""
    return (None, *arguments["image_size"], arguments["channels"])


def without_channels(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments without `channels`, which models read from the shape of images."""
    return {name: value for name, value in arguments.items() if name != "channels"}


def make_vit(arguments: dict[str, Any]) -> ViT:
    """Makes a `ViT` of flat keywords."""
    return ViT.from_variant("B/16", **without_channels(arguments))


def read_vit(model: ViT) -> dict[str, Any]:
    """Returns the keywords that `make_vit` makes such a model of."""
    embedding, pooling, block = model.embedding, model.pooling, model.encoder_blocks[0]
    stems = {kind: name for name, kind in STEMS.items()}
    stem = type(embedding.patch_embedding)
    is_distilled = pooling.kind == "distilled"
    kind = type(pooling.kind).__name__ if pooling.is_layer else pooling.kind
    token = None if embedding.distillation_token is None else "token"
    return {
        "num_classes": model.configuration.num_classes,
        "image_size": model.configuration.image_size,
        "problem_type": model.configuration.problem_type,
        "channels": model.channels,
        "patch_size": embedding.patch_size,
        "hidden_dim": embedding.hidden_dim,
        "stem": stems.get(stem, stem.__name__),
        "class_token": embedding.class_token is not None,
        "positions": embedding.positions,
        "registers": embedding.registers,
        "antialias": embedding.antialias,
        "num_layers": len(model.encoder_blocks),
        **read_block(block),
        "qkv_bias": block.mixer.use_bias != "output",
        "dropout": block.dropout,
        "drop_path": model.block.layer.drop_path,
        "pooling": "token" if is_distilled else kind,
        "representation_dim": pooling.representation_dim,
        "distillation": "head" if is_distilled else token,
    }


SETTINGS = (
    size("hidden_size", "hidden_dim", 768),
    size("num_hidden_layers", "num_layers", 12),
    size("num_attention_heads", "num_heads", 12),
    size("intermediate_size", "mlp_dim", 3072),
    activation("hidden_act", "activation", "gelu"),
    number("hidden_dropout_prob", "dropout", 0.0),
    number("attention_probs_dropout_prob", "attention_dropout", 0.0),
    number("layer_norm_eps", "norm_epsilon", 1e-12),
    Setting("image_size", "image_size", 224, read_side, write_side),
    size("patch_size", "patch_size", 16),
    size("num_channels", "channels", 3),
)
OF_VIT = (*SETTINGS, Setting("qkv_bias", "qkv_bias", True, bool))
FIXED = {"pooling": "token", "class_token": True, "positions": "learned", "stem": "patches"}
FIXED |= {"representation_dim": None, "registers": 0, "antialias": True}
SETTLED = {"head_dim": (None,)}
# Of the pooler, which classifiers have not, and of pretraining on masked pictures.
WITHOUT_EFFECT = frozenset({"encoder_stride", "pooler_output_size", "pooler_act"})


def sizes(start: str) -> dict[Any, tuple[Any, ...]]:
    """Extents by setting, of a few tensors."""
    return {
        f"{start}.embeddings.patch_embeddings.projection.weight": (
            "hidden_size",
            "num_channels",
            "patch_size",
            "patch_size",
        ),
        f"{start}.encoder.layer.0.intermediate.dense.weight": ("intermediate_size", "hidden_size"),
    }


VIT_CONFIGURATION = Configuration(
    name="vit",
    settings=OF_VIT,
    fixed={**FIXED, "distillation": None},
    settled=SETTLED,
    without_effect=WITHOUT_EFFECT,
)
VIT_WEIGHTS = Weights(
    mappings=_mappings("vit", linear("head", "classifier")),
    sizes=sizes("vit"),
    layers={"num_hidden_layers": "vit.encoder.layer."},
    prefix="vit.",
    bare=("ViTModel",),
    modules=MODULES_OF_VIT,
)
VIT = Family(
    configuration=VIT_CONFIGURATION,
    weights=VIT_WEIGHTS,
    model=ViT,
    **image_classes("ViT"),
    make=make_vit,
    read=read_vit,
    shape=image_shape,
)

TEACHER = [
    *linear("head", "cls_classifier"),
    *linear("distillation_head", "distillation_classifier"),
]


def _deit_mappings(model: ViT) -> Mappings:
    teacher = model.distillation_head is not None
    return _mappings("deit", TEACHER if teacher else linear("head", "classifier"))(model)


DEIT_CONFIGURATION = Configuration(
    name="deit", settings=OF_VIT, fixed=FIXED, settled=SETTLED, without_effect=WITHOUT_EFFECT
)
DEIT_WEIGHTS = Weights(
    mappings=_deit_mappings,
    sizes=sizes("deit"),
    layers={"num_hidden_layers": "deit.encoder.layer."},
    prefix="deit.",
    bare=("DeiTModel",),
    modules=MODULES_OF_VIT,
)
DEIT = Family(
    configuration=DEIT_CONFIGURATION,
    weights=DEIT_WEIGHTS,
    model=ViT,
    architectures={
        "DeiTModel": {"distillation": "token", "num_classes": None},
        "DeiTForImageClassification": {"distillation": "token"},
        "DeiTForImageClassificationWithTeacher": {"distillation": "head"},
    },
    tasks={
        "classification": "DeiTForImageClassification",
        "distilled_classification": "DeiTForImageClassificationWithTeacher",
        "features": "DeiTModel",
    },
    classes=True,
    make=make_vit,
    read=read_vit,
    shape=image_shape,
)


DECODER = ("decoder_dim", "decoder_heads", "decoder_mlp_dim", "decoder_layers")
DECODER += ("mask_ratio", "normalize_patches")
LAYERS = "decoder.decoder_layers."
LAYERS_OF_TRANSFORMERS_5 = "decoder.decoder_encoder.layer."  # as its `save_pretrained` writes them


def _vit_mae_mappings(model: Any) -> Mappings:
    of_encoder = [
        *embedding_mappings("encoder/", "vit.embeddings", model.encoder.patch_size),
        *encoder_mappings("encoder/encoder_{i}", "vit.encoder.layer.{i}"),
        *norm("encoder/norm", "vit.layernorm"),
    ]
    return [
        *inside(of_encoder, "encoder/", model.encoder),
        WeightMapping("mask_token", "decoder.mask_token"),
        WeightMapping(
            "decoder_positions/position_embedding", "decoder.decoder_pos_embed", AsIs(lead=1)
        ),
        *linear("decoder_embedding", "decoder.decoder_embed"),
        *also_called(
            encoder_mappings("decoder_{i}", f"{LAYERS}{{i}}"), LAYERS, LAYERS_OF_TRANSFORMERS_5
        ),
        *norm("decoder_norm", "decoder.decoder_norm"),
        *linear("prediction", "decoder.decoder_pred"),
    ]


def _make_mae(arguments: dict[str, Any]) -> MAE:
    decoder = {name: arguments[name] for name in DECODER}
    encoder = {name: value for name, value in arguments.items() if name not in DECODER}
    vit = ViT.from_variant("B/16", None, name="encoder", **without_channels(encoder))
    return MAE(vit, **decoder)


def _read_mae(model: MAE) -> dict[str, Any]:
    block = model.decoder_blocks[0]
    arguments = read_vit(model.encoder)
    del arguments["num_classes"]
    return {
        **arguments,
        "decoder_dim": model.configuration.decoder_dim,
        "decoder_layers": len(model.decoder_blocks),
        "decoder_heads": block.mixer.num_heads,
        "decoder_mlp_dim": block.feed_forward.mlp_dim,
        "mask_ratio": model.configuration.mask_ratio,
        "normalize_patches": model.configuration.normalize_patches,
    }


VIT_MAE_CONFIGURATION = Configuration(
    name="vit_mae",
    settings=(
        *OF_VIT,
        size("decoder_hidden_size", "decoder_dim", 512),
        size("decoder_num_hidden_layers", "decoder_layers", 8),
        size("decoder_num_attention_heads", "decoder_heads", 16),
        size("decoder_intermediate_size", "decoder_mlp_dim", 2048),
        number("mask_ratio", "mask_ratio", 0.75),
        Setting("norm_pix_loss", "normalize_patches", False, bool),
    ),
    # Their positions are a table in the file, sines and cosines in an order of their own.
    fixed={**FIXED, "distillation": None},
    settled=SETTLED,
    without_effect=WITHOUT_EFFECT,
)
VIT_MAE_WEIGHTS = Weights(
    mappings=_vit_mae_mappings,
    sizes=sizes("vit"),
    layers={
        "num_hidden_layers": "vit.encoder.layer.",
        "decoder_num_hidden_layers": (LAYERS, LAYERS_OF_TRANSFORMERS_5),
    },
    modules=MODULES_OF_VIT,
)
VIT_MAE = Family(
    configuration=VIT_MAE_CONFIGURATION,
    weights=VIT_MAE_WEIGHTS,
    model=MAE,
    architectures={"ViTMAEForPreTraining": {}},
    tasks={"reconstruction": "ViTMAEForPreTraining"},
    make=_make_mae,
    read=_read_mae,
    shape=image_shape,
)


MOST_PATCHES = 64  # along a side
# Keys have none.
BEIT_BIASES: tuple[Literal["query", "value", "output"], ...] = ("query", "value", "output")
KEYWORDS_OF_MIXER = ("attention_dropout", "qkv_bias", "relative")
BEIT_LAYER = "beit.encoder.layer.{i}"
BEIT_TABLE = f"{BEIT_LAYER}.attention.attention.relative_position_bias.relative_position_bias_table"


def _make_beit(arguments: dict[str, Any]) -> ViT:
    """Makes an encoder of flat arguments.

    Raises:
        ValueError: If blocks with relative positions cannot have the size of the images.
    """
    sides = arguments["image_size"]
    grid = [side // arguments["patch_size"] for side in sides]
    if arguments["relative"] and sides[0] != sides[1]:
        raise ValueError(f"`image_size` must be of a square. Received: {sides}")
    if arguments["relative"] and grid[0] > MOST_PATCHES:  # all pairs of which are numbered
        raise ValueError(
            f"`image_size` must be at most {MOST_PATCHES} patches. Received: {grid[0]}"
        )
    mixer = SelfAttention(
        arguments["num_heads"],
        dropout=arguments["attention_dropout"],
        use_bias=BEIT_BIASES,
        position=GridRelativeBias(grid, 1) if arguments["relative"] else None,
    )
    keywords = {name: x for name, x in arguments.items() if name not in KEYWORDS_OF_MIXER}
    return make_vit({**keywords, "mixer": mixer})


def _read_beit(model: ViT) -> dict[str, Any]:
    block = model.encoder_blocks[0]
    return {
        **read_vit(model),
        "relative": block.mixer.position is not None,
        "layer_scale": block.layer_scale,
    }


def _beit_mappings(model: Any) -> Mappings:
    last = "beit.pooler.layernorm" if model.pooling.kind == "mean" else "beit.layernorm"
    return [
        *embedding_mappings("", "beit.embeddings", model.patch_size),
        *encoder_mappings("encoder_{i}", BEIT_LAYER),
        WeightMapping("encoder_{i}/mixer_scale/factor", f"{BEIT_LAYER}.lambda_1"),
        WeightMapping("encoder_{i}/feed_forward_scale/factor", f"{BEIT_LAYER}.lambda_2"),
        WeightMapping("encoder_{i}/mixer/position/relative_bias", BEIT_TABLE),
        *norm("norm", last),
        *linear("head", "classifier"),
    ]


def _scale(value: Any) -> float | None:
    """The start of the factors, None for no factors."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError("a number")
    return value if value > 0 else None


def _one_of(ours: Any, both: tuple[Any, Any]) -> bool:
    """Returns whether a value is the second of two; raises ValueError if it is neither."""
    if not isinstance(ours, str | None) or ours not in both:
        raise ValueError(f"{both[0]!r} or {both[1]!r}")
    return ours == both[1]


BEIT_CONFIGURATION = Configuration(
    name="beit",
    settings=(
        *SETTINGS,
        number("drop_path_rate", "drop_path", 0.1),
        Setting(
            "use_absolute_position_embeddings",
            "positions",
            False,
            lambda value: "learned" if value else None,
            lambda ours: _one_of(ours, (None, "learned")),
        ),
        Setting("use_relative_position_bias", "relative", False, bool),
        Setting("layer_scale_init_value", "layer_scale", 0.1, _scale, lambda ours: ours or 0.0),
        Setting(
            "use_mean_pooling",
            "pooling",
            True,
            lambda value: "mean" if value else "token",
            lambda ours: _one_of(ours, ("token", "mean")),
        ),
    ),
    fixed={
        **{key: value for key, value in FIXED.items() if key not in ("pooling", "positions")},
        "distillation": None,
    },
    settled={"use_shared_relative_position_bias": (False,), "head_dim": (None,)},
    # Of pretraining on masked images, of backbones, and of segmentation.
    without_effect=frozenset({"vocab_size", "use_mask_token", "out_features", "out_indices"})
    | {"stage_names", "_out_features", "_out_indices", "add_fpn", "reshape_hidden_states"}
    | {"pool_scales", "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels"}
    | {"auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index"},
)
BEIT_WEIGHTS = Weights(
    mappings=_beit_mappings,
    sizes=sizes("beit"),
    layers={"num_hidden_layers": "beit.encoder.layer."},
    prefix="beit.",
    bare=("BeitModel",),
    modules=MODULES_OF_VIT,
)
BEIT = Family(
    configuration=BEIT_CONFIGURATION,
    weights=BEIT_WEIGHTS,
    model=ViT,
    **image_classes("Beit"),
    make=_make_beit,
    read=_read_beit,
    shape=image_shape,
)


def _network_width(hidden_dim: int, ratio: float, gated: bool) -> int:
    """Returns the width of a network; a gated one has two thirds of it, made a multiple of 8."""
    width = int(hidden_dim * ratio)
    return (int(width * 2 / 3) + 7) // 8 * 8 if gated else width


def _make_dinov2(arguments: dict[str, Any]) -> ViT:
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


def _read_dinov2(model: ViT) -> dict[str, Any]:
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
        arguments["pooling"] = "token"  # for which `_make_dinov2` makes the pooling of a classifier
    return {
        **arguments,
        "gated": is_gated,
        "mlp_ratio": int(ratio) if ratio == int(ratio) else ratio,
        "layer_scale": block.layer_scale,
    }


def _dinov2_blocks(name: str) -> Mappings:
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


def _dinov2_networks(name: str, gated: bool) -> Mappings:
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


def _dinov2_mappings(model: Any) -> Mappings:
    name = "dinov2_with_registers" if model.embedding.registers else "dinov2"
    gated = isinstance(model.encoder_blocks[0].feed_forward, GatedFeedForward)
    return [
        *embedding_mappings("", f"{name}.embeddings", model.patch_size),
        WeightMapping(
            "embedding/register_tokens/register_tokens", f"{name}.embeddings.register_tokens"
        ),
        *_dinov2_blocks(name),
        *_dinov2_networks(name, gated),
        *norm("norm", f"{name}.layernorm"),
        *linear("head", "classifier"),
    ]


def _patch(value: Any) -> int:
    sides = read_side(value)
    if sides[0] != sides[1]:
        raise ValueError("a positive integer")
    return sides[0]


DINOV2_SETTINGS = (
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
DINOV2_WITHOUT_EFFECT = frozenset({"apply_layernorm", "reshape_hidden_states", "out_features"})
DINOV2_WITHOUT_EFFECT |= {
    "out_indices",
    "stage_names",
    "use_mask_token",
    "_out_features",
    "_out_indices",
}


def _dinov2_family(
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
        settings=(*DINOV2_SETTINGS, Setting("patch_size", "patch_size", patches, _patch), *more),
        fixed={**fixed, "distillation": None, **own},
        settled=SETTLED,
        without_effect=DINOV2_WITHOUT_EFFECT,
    )
    patches_of = f"{name}.embeddings.patch_embeddings.projection.weight"
    weights = Weights(
        mappings=_dinov2_mappings,
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
        make=_make_dinov2,
        read=_read_dinov2,
        shape=image_shape,
    )


# Positions are resized without antialiasing, but for the family with registers.
DINOV2 = _dinov2_family("dinov2", "Dinov2", {"registers": 0, "antialias": False}, 14)
DINOV2_WITH_REGISTERS = _dinov2_family(
    "dinov2_with_registers",
    "Dinov2WithRegisters",
    {"antialias": True},
    16,
    size("num_register_tokens", "registers", 4),
)
