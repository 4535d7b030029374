"""The Swin Transformer of Liu et al. 2021, and its second version."""

from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Activation, Tensor
from keras_transformers.layers import PatchEmbedding, PatchMerging, SwinBlock, WindowAttention
from keras_transformers.layers.vision.patch_merging import pad_map
from keras_transformers.models.image_model import ImageModelOptions, both_sides
from keras_transformers.models.pyramid import STRIDES, Pyramid, block_name, norm
from keras_transformers.models.settings import (
    check_choice,
    check_sizes,
    keeps_settings,
    serialized_activation,
    variant,
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


def of_stages(window_size: int | Sequence[int | None] | None) -> list[int | None]:
    """A window size, or None, of each stage, given as a list of them or as one for all."""
    if isinstance(window_size, int | None):
        return [window_size] * len(STRIDES)
    return list(window_size)


@keras.saving.register_keras_serializable("keras_transformers")
class Swin(Pyramid):
    """Swin Transformer (Liu et al. 2021, https://arxiv.org/abs/2103.14030).

    Patches, then four stages of `SwinBlock`, the windows of every second one shifted by half a
    window, with `PatchMerging` between; `y = mean(LN(z))` and a linear head. The second version
    (Liu et al. 2022, https://arxiv.org/abs/2111.09883) has cosines for scores, a bias from a small
    network, and norms at the end of the branches. Cost grows linearly with the number of patches.
    Images of any size are taken: what is missing to whole patches, windows or pairs is padded.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both. A stage whose map has less than
            a window at this size gets windows as large as its map.
        patch_size: Side of a patch.
        hidden_dim: Width of the first stage; each has twice that of the last.
        num_layers: Blocks of each stage.
        num_heads: Heads of each stage; must divide its width.
        window_size: Side of a window in tokens.
        version: 1 or 2.
        pretrained_window_size: With version 2, the window by which offsets are measured, where it
            is not `window_size`; or one for each stage.
        mlp_ratio: How much wider than a token the hidden layer of the feed-forward networks is.
        mask_padding: See `SwinBlock`.
        dropout: Rate on every residual branch.
        drop_path: Rate of dropping a branch in the last block; the first has 0, those between lie
            on a line (Huang et al. 2016).
        norm_epsilon: Epsilon of all layer norms.
        activation: Activation of the feed-forward networks.
        qkv_bias: Whether the projections to queries, keys and values have biases.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, 8 * hidden_dim)` without a head. `features` gives
        the maps of all stages.

    Raises:
        ValueError: If a size is not positive, heads do not divide a stage's width, or there is no
            such version.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import Swin
    >>> model = Swin(10, image_size=64, hidden_dim=8, num_layers=(1, 2, 1, 1),
    ...              num_heads=(1, 2, 4, 8), window_size=4)
    >>> tuple(model(np.zeros((3, 64, 64, 3), "float32")).shape)
    (3, 10)
    >>> maps = model.features(np.zeros((3, 72, 60, 3), "float32"))
    >>> {name: tuple(x.shape[1:]) for name, x in maps.items()}["stride_8"]
    (9, 8, 16)
    """

    @keeps_settings(
        image_size=both_sides,
        num_layers=list,
        num_heads=list,
        pretrained_window_size=of_stages,
        activation=serialized_activation,
    )
    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        patch_size: int = 4,
        hidden_dim: int = 96,
        num_layers: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        version: Literal[1, 2] = 1,
        pretrained_window_size: int | Sequence[int | None] | None = None,
        mlp_ratio: int = 4,
        mask_padding: bool = True,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm_epsilon: float = 1e-5,
        activation: Activation | None = "gelu",
        qkv_bias: bool = True,
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        super().__init__(**kwargs)
        settings = self._settings
        sizes = ["patch_size", "hidden_dim", "window_size", "mlp_ratio"]
        check_sizes("Swin", settings, sizes)
        check_choice("Swin", settings, "version", (1, 2))
        self._check_stages(["num_layers", "num_heads"])
        self._check_stages(["pretrained_window_size"], or_none=True)
        policy = self.dtype_policy
        self.patch_embedding = PatchEmbedding(
            patch_size, hidden_dim, name="patch_embedding", dtype=policy
        )
        self.embedding_norm = norm(self, "embedding_norm")
        self.mergings = [
            PatchMerging(version == 1, norm_epsilon, name=f"merging_{i}", dtype=policy)
            for i in range(1, len(STRIDES))
        ]
        self.encoder_blocks = [
            self._block(stage, number, rate)
            for (stage, number), rate in zip(self._positions(), self._drop_path(), strict=True)
        ]
        self.norm = norm(self, "norm")
        self._make_head()

    def _block(self, stage: int, number: int, drop_path: float) -> keras.layers.Layer:
        settings = self._settings
        width = settings["hidden_dim"] * 2**stage
        window = settings["window_size"]
        map_size = [-(-side // self.strides()[stage]) for side in settings["image_size"]]
        attention = WindowAttention(
            settings["num_heads"][stage],
            [min(window, side) for side in map_size],
            cosine=settings["version"] == 2,
            pretrained_window_size=settings["pretrained_window_size"][stage],
            use_bias=True if settings["qkv_bias"] else "output",
        )
        return SwinBlock(
            mixer=attention,
            mlp_dim=settings["mlp_ratio"] * width,
            shift=[window // 2 * (number % 2) * (side > window) for side in map_size],
            norm_first=settings["version"] == 1,
            mask_padding=settings["mask_padding"],
            activation=settings["activation"],
            norm=norm(self, "norm"),
            dropout=settings["dropout"],
            drop_path=drop_path,
            name=block_name(stage, number),
            dtype=self.dtype_policy,
        )

    @classmethod
    def from_variant(
        cls,
        name: Literal["mini", "T", "S", "B", "L"],
        num_classes: int | None = 1000,
        **changes: Any,
    ) -> Self:
        """A model of a published size, of either version.

        Parameters for 1,000 classes: version 1 at 224 pixels "T" 28.3 M, "S" 49.6 M, "B" 87.8 M,
        "L" 196.5 M; version 2 at 256 pixels in windows of 8 "T" 28.3 M, "S" 49.7 M, "B" 87.9 M.

        Args:
            name: "mini", "T", "S", "B" or "L".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's; `version=2` for the
                second version.

        Raises:
            ValueError: If there is no such variant.
        """
        second = SECOND if changes.get("version") == 2 else {}
        return cls(num_classes, **variant("Swin", name, VARIANTS, {**second, **changes}))

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        width = self._settings["hidden_dim"]
        self.patch_embedding.build((None, None, None, self.channels))
        self.embedding_norm.build((None, None, width))
        for (stage, _), block in zip(self._positions(), self.encoder_blocks, strict=True):
            block.build((None, None, None, width * 2**stage))
        for stage, merging in enumerate(self.mergings):
            merging.build((None, None, None, width * 2**stage))
        self.norm.build((None, None, None, self._width))
        self._end_building()

    def strides(self) -> tuple[int, ...]:
        return tuple(self._settings["patch_size"] * 2**stage for stage in range(len(STRIDES)))

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [self.mergings[stage - 1]] if stage else [self.patch_embedding, self.embedding_norm]

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        if stage:
            return self.mergings[stage - 1](x)
        side = self._settings["patch_size"]
        x = pad_map(x, *(-extent % side for extent in ops.shape(x)[1:3]))
        rows, columns = (extent // side for extent in ops.shape(x)[1:3])
        x = self.embedding_norm(self.patch_embedding(x))
        return ops.reshape(x, (-1, rows, columns, x.shape[-1]))
