"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021)."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformers.models import ViT
from keras_transformers.models.vit_variants import STEMS, vit_block
from keras_transformers.pretrained.configuration import (
    Configuration,
    Setting,
    activation,
    number,
    size,
)
from keras_transformers.pretrained.family import Family, Weights, of_images
from keras_transformers.pretrained.module_names import MODULES_OF_VIT
from keras_transformers.pretrained.parts import parts_of, refused, said
from keras_transformers.pretrained.tensor_layouts import AsIs, PatchConvolution
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    WeightMapping,
    attention,
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


def make_image_model(kind: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """A built model of pictures with as many channels as `arguments` say."""
    arguments = dict(arguments)
    channels = arguments.pop("channels")
    model = kind(**arguments)
    model.build((None, *arguments["image_size"], channels))
    return model


def make_vit(arguments: dict[str, Any]) -> Any:
    """A built `ViT` of flat keywords and channels."""
    return make_image_model(functools.partial(ViT.from_variant, "B/16"), arguments)


def keywords_of_block(block: Any) -> dict[str, Any]:
    """What `vit_block` makes such a block of, if it does."""
    mixer, network = block.mixer, block.feed_forward
    return {
        "num_heads": getattr(mixer, "num_heads", 1),
        "mlp_dim": getattr(network, "mlp_dim", 1),
        "norm_epsilon": getattr(block.mixer_norm, "epsilon", 1e-6),
        "activation": keras.activations.serialize(getattr(network, "activation", None)),
        "attention_dropout": getattr(mixer, "dropout", 0.0),
        "qkv_bias": getattr(mixer, "use_bias", True) != "output",
    }


def check_block(model: Any, block: Any, made: Any) -> None:
    """Raises ValueError unless a block of a model's is like the one that keywords make."""
    for name, ours in parts_of(block).items():
        if said(ours) != said(parts_of(made)[name]):
            expected = f"such that keywords of `from_variant` make the `{name}` of its blocks"
            raise refused(model, said(ours), expected)


def arguments_of_vit(
    model: ViT, of_block: Callable[[Any], dict[str, Any]] = keywords_of_block
) -> dict[str, Any]:
    """What `ViT.from_variant` makes such a model of, and its channels.

    Args:
        model: Built.
        of_block: Function of a block that gives the keywords of `vit_block`.

    Raises:
        ValueError: If no keywords make such a model; the message names the part.
    """
    block, embedding, pooling = model.encoder_blocks[0], model.embedding, model.pooling
    settings, numbers = model.get_config(), of_block(block)
    check_block(model, block, vit_block(**numbers))
    if embedding.norm is not None or not embedding.patch_embedding.use_bias:
        expected = "of patches with a bias, and without a `norm` in its `embedding`"
        raise refused(model, said(embedding.get_config()), expected)
    stems = {kind: word for word, kind in STEMS.items()}
    stem = type(embedding.patch_embedding)
    token = None if embedding.distillation_token is None else "token"
    return {
        "num_classes": settings["num_classes"],
        "image_size": settings["image_size"],
        "patch_size": embedding.patch_size,
        "hidden_dim": embedding.hidden_dim,
        "num_layers": settings["num_layers"],
        "problem_type": settings["problem_type"],
        **numbers,
        "dropout": block.dropout,
        "drop_path": model.block.layer.drop_path,
        "class_token": embedding.class_token is not None,
        "positions": embedding.positions,
        "registers": embedding.registers,
        "antialias": embedding.antialias,
        "stem": stems.get(stem, stem.__name__),
        "pooling": "token" if pooling.kind == "distilled" else pooling.kind,
        "representation_dim": pooling.representation_dim,
        "distillation": "head" if pooling.kind == "distilled" else token,
        "channels": model.channels,
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
    **of_images("ViT"),
    make=make_vit,
    arguments=arguments_of_vit,
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
    arguments=arguments_of_vit,
)
