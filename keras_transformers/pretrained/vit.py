"""ViT, DeiT, and the masked autoencoder of ViT."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_transformers.models import MAE, ViT
from keras_transformers.models.vit import STEMS
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    image_classes,
    number,
    read_block,
    size,
)
from keras_transformers.pretrained.weight_mapping import (
    MODULES_OF_VIT,
    AsIs,
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
