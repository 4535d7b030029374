"""Published sizes of the Swin Transformer, and from flat keywords to its parts."""

import functools
from collections.abc import Sequence
from typing import Any, Literal

import keras

from keras_transformers.annotations import Activation, Part
from keras_transformers.layers import FeedForward, SwinBlock, WindowAttention
from keras_transformers.models.image_model import ImageModelOptions
from keras_transformers.models.pyramid import check_stages
from keras_transformers.models.settings import (
    check_changes,
    check_choice,
    check_sizes,
    variant,
    with_parts,
)

# Liu et al. 2021, section 3.3; a smaller one for small images.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {"hidden_dim": 32, "num_layers": (2, 2, 2, 2), "num_heads": (1, 2, 4, 8)},
    "T": {"hidden_dim": 96, "num_layers": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)},
    "S": {"hidden_dim": 96, "num_layers": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)},
    "B": {"hidden_dim": 128, "num_layers": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)},
    "L": {"hidden_dim": 192, "num_layers": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)},
}
SECOND = {"image_size": 256, "window_size": 8}  # of the second version, Liu et al. 2022, table 4
STAGES = range(1, 9)  # numbers of them that there may be
# Numbers that make the blocks where these are not given, and the keywords by which they are others.
NUMBERS: dict[str, Any] = {"num_heads": (3, 6, 12, 24), "window_size": 7, "version": 1}
WORDS = ("pretrained_window_size", "mlp_ratio", "mask_padding", "dropout", "norm_epsilon")
WORDS += ("activation", "qkv_bias")


class SwinKeywords(ImageModelOptions, total=False):
    """What `Swin.from_variant` takes by name; see there."""

    image_size: int | Sequence[int]
    patch_size: int
    hidden_dim: int
    num_layers: Sequence[int]
    num_heads: Sequence[int]
    window_size: int
    version: Literal[1, 2]
    drop_path: float
    blocks: Sequence[Part] | None
    pretrained_window_size: int | Sequence[int | None] | None
    mlp_ratio: int
    mask_padding: bool
    dropout: float
    norm_epsilon: float
    activation: Activation | None
    qkv_bias: bool


def swin_blocks(
    hidden_dim: int,
    num_heads: Sequence[int] = NUMBERS["num_heads"],
    window_size: int = 7,
    version: Literal[1, 2] = 1,
    pretrained_window_size: int | Sequence[int | None] | None = None,
    mlp_ratio: int = 4,
    mask_padding: bool = True,
    dropout: float = 0.0,
    norm_epsilon: float = 1e-5,
    activation: Activation | None = "gelu",
    qkv_bias: bool = True,
) -> list[SwinBlock]:
    """A block of each stage, which is not shifted.

    Raises:
        ValueError: If a size is not positive, or there are not as many as stages.
    """
    stages = len(num_heads)
    trained = of_stages(pretrained_window_size, stages)
    sizes = {"hidden_dim": hidden_dim, "window_size": window_size, "mlp_ratio": mlp_ratio}
    check_sizes("Swin", sizes, list(sizes))
    check_choice("Swin", {"version": version}, "version", (1, 2))
    check_stages("Swin", "num_heads", num_heads, STAGES)
    same = range(stages, stages + 1)
    check_stages("Swin", "pretrained_window_size", trained, same, or_none=True)
    return [
        SwinBlock(
            mixer=WindowAttention(
                heads,
                window_size,
                cosine=version == 2,
                pretrained_window_size=trained[stage],
                use_bias=True if qkv_bias else "output",
            ),
            feed_forward=FeedForward(mlp_ratio * hidden_dim * 2**stage, activation),
            norm_first=version == 1,
            mask_padding=mask_padding,
            norm=keras.layers.LayerNormalization(epsilon=norm_epsilon, name="norm"),
            dropout=dropout,
        )
        for stage, heads in enumerate(num_heads)
    ]


def of_stages(window_size: int | Sequence[int | None] | None, stages: int) -> list[int | None]:
    """A window size, or None, of each stage, given as a list of them or as one for all."""
    if isinstance(window_size, int | None):
        return [window_size] * stages
    return list(window_size)


def swin_arguments(name: str, changes: SwinKeywords) -> dict[str, Any]:
    """The constructor's arguments for flat keywords: numbers, and blocks where these ask for them.

    Raises:
        ValueError: If there is no such variant or keyword, a value does not fit, or blocks are
            given beside what they are made of.
    """
    check_changes("Swin", changes, SwinKeywords, {"blocks": WORDS})
    second = SECOND if changes.get("version") == 2 else {}
    found = variant("Swin", name, VARIANTS, {**second, **changes})
    make = functools.partial(swin_blocks, found["hidden_dim"])
    return with_parts(found, changes, {"blocks": (make, tuple(NUMBERS), WORDS)})
