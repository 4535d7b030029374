"""Published sizes of the Vision Transformer, and from flat keywords to its parts."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import keras

from keras_transformers.annotations import Activation, Part
from keras_transformers.layers import (
    AttentionPooling,
    ConvolutionalStem,
    EncoderBlock,
    FeedForward,
    PatchEmbedding,
    SelfAttention,
    ShiftedPatchEmbedding,
)
from keras_transformers.models.image_embedding import POSITIONS, ImageEmbedding, Positions
from keras_transformers.models.image_model import ImageModelOptions
from keras_transformers.models.image_pooling import ImagePooling, as_pooling
from keras_transformers.models.settings import (
    Makers,
    check_changes,
    check_choice,
    check_numbers,
    with_parts,
)

Stem: TypeAlias = Literal["patches", "shifted", "convolutional"]
# Dosovitskiy et al. 2021, table 1 (B, L, H); Touvron et al. 2021, DeiT, table 1 (Ti, S); a smaller
# one for small images.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {"hidden_dim": 128, "num_heads": 4, "mlp_dim": 256, "num_layers": 4},
    "Ti": {"hidden_dim": 192, "num_heads": 3, "mlp_dim": 768, "num_layers": 12},
    "S": {"hidden_dim": 384, "num_heads": 6, "mlp_dim": 1536, "num_layers": 12},
    "B": {"hidden_dim": 768, "num_heads": 12, "mlp_dim": 3072, "num_layers": 12},
    "L": {"hidden_dim": 1024, "num_heads": 16, "mlp_dim": 4096, "num_layers": 24},
    "H": {"hidden_dim": 1280, "num_heads": 16, "mlp_dim": 5120, "num_layers": 32},
}
STEMS = {
    "patches": PatchEmbedding,
    "shifted": ShiftedPatchEmbedding,
    "convolutional": ConvolutionalStem,
}
CHOICES = {
    "positions": (*POSITIONS, None),
    "stem": tuple(STEMS),
    "distillation": (None, "token", "head"),
}
# Numbers that make a part, and the keywords by which it is another.
OF_BLOCK, OF_EMBEDDING = ("num_heads", "mlp_dim"), ("patch_size", "hidden_dim")
BLOCK_WORDS = (
    "dropout",
    "drop_path",
    "norm_epsilon",
    "activation",
    "attention_dropout",
    "qkv_bias",
)
BLOCK_WORDS += ("mixer", "feed_forward", "norm", "layer_scale")
EMBEDDING_WORDS = ("class_token", "positions", "stem", "registers", "antialias", "distillation")
POOLING_WORDS = ("representation_dim", "distillation")


class ViTKeywords(ImageModelOptions, total=False):
    """What `ViT.from_variant` takes by name; see there."""

    image_size: int | Sequence[int]
    patch_size: int
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int
    block: Part | None
    embedding: Part | None
    pooling: Literal["token", "mean", "attention"] | ImagePooling | Part
    class_token: bool | None
    positions: Positions | None
    stem: Stem
    representation_dim: int | None
    distillation: Literal["token", "head"] | None
    registers: int
    antialias: bool
    dropout: float
    drop_path: float
    norm_epsilon: float
    activation: Activation | None
    attention_dropout: float
    qkv_bias: bool
    mixer: Part | None
    feed_forward: Part | None
    norm: Part | None
    layer_scale: float | None


def vit_block(
    num_heads: int,
    mlp_dim: int,
    norm_epsilon: float = 1e-6,
    activation: Activation | None = "gelu",
    attention_dropout: float = 0.0,
    qkv_bias: bool = True,
    **given: Any,
) -> EncoderBlock:
    """A pre-norm block; the parts that are not given are made of the numbers."""
    parts = {name: each for name, each in given.items() if each is not None}
    bias: bool | Literal["output"] = True if qkv_bias else "output"
    made = {
        "mixer": lambda: SelfAttention(num_heads, dropout=attention_dropout, use_bias=bias),
        "feed_forward": lambda: FeedForward(mlp_dim, activation),
        "norm": lambda: keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm"),
    }
    parts |= {name: make() for name, make in made.items() if name not in parts}
    return EncoderBlock(norm_first=True, **parts)


def vit_embedding(
    patch_size: int,
    hidden_dim: int,
    class_token: bool = True,
    positions: Positions | None = "learned",
    stem: Stem = "patches",
    distillation_token: bool = False,
    registers: int = 0,
    antialias: bool = True,
) -> ImageEmbedding:
    """What makes tokens, with a stem of that name."""
    made = STEMS[stem](patch_size, hidden_dim)
    return ImageEmbedding(made, class_token, positions, distillation_token, registers, antialias)


def vit_arguments(name: str, changes: ViTKeywords) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and parts where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or a part is given
            beside what it is made of.
    """
    match = re.fullmatch(r"(\w+)/([1-9]\d*)", name)
    if not match or match[1] not in VARIANTS:
        raise ValueError(
            f"ViT.from_variant: `name` must be one of {', '.join(VARIANTS)}, a slash and the "
            f"patch size, for instance 'S/16'. Received: {name!r}"
        )
    beside: dict[str, tuple[str, ...]]
    beside = {"block": BLOCK_WORDS, "embedding": EMBEDDING_WORDS, "pooling": POOLING_WORDS}
    beside |= {"mixer": ("attention_dropout", "qkv_bias"), "feed_forward": ("activation",)}
    check_changes("ViT", changes, ViTKeywords, beside)
    found: dict[str, Any] = {**VARIANTS[match[1]], "patch_size": int(match[2]), **changes}
    check_numbers("ViT", {name: found[name] for name in (*OF_BLOCK, *OF_EMBEDDING)})
    defaults = {"positions": None, "stem": "patches", "distillation": None}
    for word, known in CHOICES.items():
        check_choice("ViT", {**defaults, **found}, word, known)
    found["pooling"] = pooling = _pooling(found)
    if changes.get("embedding") is None and any(word in found for word in EMBEDDING_WORDS):
        if found.get("class_token") is None:
            found["class_token"] = as_pooling(pooling).of_class_token
        found["distillation_token"] = found.get("distillation") is not None
    made = (*EMBEDDING_WORDS[:-1], "distillation_token")
    makers: Makers = {
        "embedding": (vit_embedding, OF_EMBEDDING, made),
        "block": (vit_block, OF_BLOCK, BLOCK_WORDS),
    }
    found = with_parts(found, changes, makers)
    return {name: value for name, value in found.items() if name not in POOLING_WORDS}


def _pooling(found: Mapping[str, Any]) -> Any:
    """What pools, as the constructor takes it."""
    pooling, width = found.get("pooling", "token"), found.get("representation_dim")
    distillation = found.get("distillation")
    if not isinstance(pooling, str):
        return pooling
    check_choice("ViT", {"pooling": pooling}, "pooling", ("token", "mean", "attention"))
    if distillation and pooling != "token":
        raise ValueError(
            f'ViT: `distillation` needs `pooling`="token". Received: pooling={pooling!r}'
        )
    kind: Any = "distilled" if distillation == "head" else pooling
    if pooling == "attention":
        epsilon = found.get("norm_epsilon", 1e-6)
        kind = AttentionPooling(found["num_heads"], found["mlp_dim"], epsilon)
    return kind if width is None else ImagePooling(kind, width)
