"""The Multiscale Vision Transformer of Li et al. 2022, second version."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras

from keras_transformers.core.types import ProblemType, Tensor
from keras_transformers.layers import OverlappingPatchEmbedding, PoolingBlock
from keras_transformers.models.base import (
    Configuration,
    check_changes,
    check_problem,
    check_sizes,
    variant,
)
from keras_transformers.models.image_model import (
    STRIDES,
    ImageModelOptions,
    Pyramid,
    block_name,
    both_sides,
    norm,
)

# Li et al. 2022, table 1.
VARIANTS: dict[str, dict[str, Any]] = {
    "T": {"hidden_dim": 96, "num_layers": (1, 2, 5, 2), "num_heads": 1},
    "S": {"hidden_dim": 96, "num_layers": (1, 2, 11, 2), "num_heads": 1},
    "B": {"hidden_dim": 96, "num_layers": (2, 3, 16, 3), "num_heads": 1},
    "L": {"hidden_dim": 144, "num_layers": (2, 6, 36, 4), "num_heads": 2},
}


class MViTKeywords(ImageModelOptions, total=False):
    """The keyword arguments of `MViT.from_variant`; see `MViT`."""

    image_size: int | Sequence[int]
    hidden_dim: int
    num_layers: Sequence[int]
    num_heads: int
    key_stride: int
    mlp_ratio: int
    dropout: float
    drop_path: float
    norm_epsilon: float


@dataclasses.dataclass(frozen=True)
class MViTConfiguration(Configuration):
    """The arguments of an `MViT`."""

    num_classes: int | None
    image_size: list[int]
    hidden_dim: int
    num_layers: list[int]
    num_heads: int
    key_stride: int
    mlp_ratio: int
    dropout: float
    drop_path: float
    norm_epsilon: float
    problem_type: ProblemType | None


@keras.saving.register_keras_serializable("keras_transformers")
class MViT(Pyramid):
    """Multiscale Vision Transformer v2 (Li et al. 2022, https://arxiv.org/abs/2112.01526).

    Overlapping patches and four stages of `PoolingBlock`: the first block of a stage halves the
    grid and doubles width and heads. There are as many keys and values in every stage. Then
    `y = mean(LN(z))` and a linear head.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives `y`.
        image_size: `(height, width)` in pixels, or an int for both, that the tables of positions
            are made for; other sizes are taken too, the tables resized.
        hidden_dim: Width of the first stage; each has twice that of the last.
        num_layers: Blocks of each stage.
        num_heads: Heads of the first stage; each has twice as many as the last.
        key_stride: How many times fewer rows and columns keys and values have in the first stage;
            half as many times in each that follows.
        mlp_ratio: How much wider than a token the hidden layer of the feed-forward networks is.
        dropout: Rate on every residual branch.
        drop_path: Rate of dropping a branch in the last block; the first has 0, those between lie
            on a line (Huang et al. 2016).
        norm_epsilon: Epsilon of all layer norms.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, 8 * hidden_dim)` without a head. `features` gives
        the maps of all stages.

    Raises:
        ValueError: If a size is not positive, or heads do not divide a stage's width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import MViT
    >>> model = MViT(10, image_size=64, hidden_dim=8, num_layers=(1, 1, 1, 1))
    >>> tuple(model(np.zeros((3, 64, 64, 3), "float32")).shape)
    (3, 10)
    """

    variant_keywords = MViTKeywords.__annotations__

    configuration: MViTConfiguration

    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        hidden_dim: int = 96,
        num_layers: Sequence[int] = (1, 2, 5, 2),
        num_heads: int = 1,
        key_stride: int = 4,
        mlp_ratio: int = 4,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm_epsilon: float = 1e-6,
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        problem_type = kwargs.pop("problem_type", None)
        super().__init__(**kwargs)
        self.configuration = MViTConfiguration(
            num_classes=num_classes,
            image_size=both_sides(image_size),
            hidden_dim=hidden_dim,
            num_layers=list(num_layers),
            num_heads=num_heads,
            key_stride=key_stride,
            mlp_ratio=mlp_ratio,
            dropout=dropout,
            drop_path=drop_path,
            norm_epsilon=norm_epsilon,
            problem_type=problem_type,
        )
        arguments = vars(self.configuration)
        check_problem(type(self).__name__, arguments)
        check_sizes("MViT", arguments, ["hidden_dim", "num_heads", "key_stride", "mlp_ratio"])
        self._check_stages(["num_layers"])
        self.patch_embedding = OverlappingPatchEmbedding(
            hidden_dim,
            7,
            STRIDES[0],
            use_norm=False,
            name="patch_embedding",
            dtype=self.dtype_policy,
        )
        self.encoder_blocks = [
            self._block(stage, number, rate)
            for (stage, number), rate in zip(self._positions(), self._drop_path(), strict=True)
        ]
        self.norm = norm(self, "norm")
        self._make_head()

    def _block(self, stage: int, number: int, drop_path: float) -> keras.layers.Layer:
        config = self.configuration
        halves = stage > 0 and number == 0
        stride = STRIDES[stage] // (2 if halves else 1)  # of the block's input
        width = config.hidden_dim * 2**stage
        # As the authors have it: keys are pooled as much in a stage's first block as in the others.
        return PoolingBlock(
            config.num_heads * 2**stage,
            config.mlp_ratio * width,
            width,
            grid=[-(-side // stride) for side in config.image_size],
            query_stride=2 if halves else 1,
            key_stride=max(config.key_stride // 2**stage, 1),
            norm=norm(self, "norm"),
            dropout=config.dropout,
            drop_path=drop_path,
            name=block_name(stage, number),
            dtype=self.dtype_policy,
        )

    @classmethod
    def from_variant(
        cls,
        name: Literal["T", "S", "B", "L"],
        /,
        num_classes: int | None = 1000,
        **changes: Unpack[MViTKeywords],
    ) -> Self:
        """A model of a published size.

        Parameters for 1,000 classes at 224 pixels: "T" 24.2 M, "S" 34.9 M, "B" 51.5 M, "L" 218 M.

        Args:
            name: "T", "S", "B" or "L".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant or keyword.
        """
        check_changes("MViT", changes, MViTKeywords)
        return cls(num_classes, **variant("MViT", name, VARIANTS, changes))

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        self.patch_embedding.build((None, None, None, self.channels))
        width = self.configuration.hidden_dim
        for block in self.encoder_blocks:
            block.build((None, None, None, width))
            width = block.hidden_dim
        self.norm.build((None, None, None, width))
        self._end_building()

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [] if stage else [self.patch_embedding]

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        return x if stage else self.patch_embedding(x)
