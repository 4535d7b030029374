"""The Pyramid Vision Transformer of Wang et al., second version."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras

from keras_transformers.core.types import ProblemType, Tensor
from keras_transformers.layers import (
    ConvolutionalFeedForward,
    EncoderBlock,
    OverlappingPatchEmbedding,
    SpatialReductionAttention,
)
from keras_transformers.models.base import Configuration, check_changes, check_problem, variant
from keras_transformers.models.image_model import (
    STRIDES,
    ImageModelOptions,
    Pyramid,
    block_name,
    both_sides,
    norm,
)

# Wang et al. 2022, table 1.
WIDTHS, HEADS, RATIOS = (64, 128, 320, 512), (1, 2, 5, 8), (8, 8, 4, 4)
VARIANTS: dict[str, dict[str, Any]] = {
    "b0": {"hidden_dims": (32, 64, 160, 256), "num_layers": (2, 2, 2, 2), "mlp_ratios": RATIOS},
    "b1": {"hidden_dims": WIDTHS, "num_layers": (2, 2, 2, 2), "mlp_ratios": RATIOS},
    "b2": {"hidden_dims": WIDTHS, "num_layers": (3, 4, 6, 3), "mlp_ratios": RATIOS},
    "b3": {"hidden_dims": WIDTHS, "num_layers": (3, 4, 18, 3), "mlp_ratios": RATIOS},
    "b4": {"hidden_dims": WIDTHS, "num_layers": (3, 8, 27, 3), "mlp_ratios": RATIOS},
    "b5": {"hidden_dims": WIDTHS, "num_layers": (3, 6, 40, 3), "mlp_ratios": (4, 4, 4, 4)},
}


class PVTKeywords(ImageModelOptions, total=False):
    """The keyword arguments of `PVT.from_variant`; see `PVT`."""

    image_size: int | Sequence[int]
    hidden_dims: Sequence[int]
    num_layers: Sequence[int]
    num_heads: Sequence[int]
    reductions: Sequence[int]
    mlp_ratios: Sequence[int]
    dropout: float
    drop_path: float
    norm_epsilon: float


@dataclasses.dataclass(frozen=True)
class PVTConfiguration(Configuration):
    """The arguments of a `PVT`."""

    num_classes: int | None
    image_size: list[int]
    hidden_dims: list[int]
    num_layers: list[int]
    num_heads: list[int]
    reductions: list[int]
    mlp_ratios: list[int]
    dropout: float
    drop_path: float
    norm_epsilon: float
    problem_type: ProblemType | None


@keras.saving.register_keras_serializable("keras_transformers")
class PVT(Pyramid):
    """Pyramid Vision Transformer v2 (Wang et al. 2022, https://arxiv.org/abs/2106.13797).

    Four stages, each of an `OverlappingPatchEmbedding`, pre-norm encoder blocks with
    `SpatialReductionAttention` and `ConvolutionalFeedForward`, and a layer norm; then the mean of
    the last map's positions and a linear head. Images of any size are taken.

    Args:
        num_classes: Number of classes; None leaves the head out, and the model gives the mean.
        image_size: `(height, width)` in pixels, or an int for both; no weight depends on it.
        hidden_dims: Width of each stage.
        num_layers: Blocks of each stage.
        num_heads: Heads of each stage; must divide its width.
        reductions: Side of the patches that keys and values are made of, of each stage.
        mlp_ratios: How much wider than a token the hidden layer of the feed-forward networks is.
        dropout: Rate on every residual branch.
        drop_path: Rate of dropping a branch in the last block; the first has 0, those between lie
            on a line (Huang et al. 2016).
        norm_epsilon: Epsilon of all layer norms.

    Call arguments:
        images: `(batch, height, width, channels)`, floating.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, num_classes)`, or `(batch, hidden_dims[-1])` without a head. `features`
        gives the maps of all stages.

    Raises:
        ValueError: If a size is not positive, or heads do not divide a stage's width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import PVT
    >>> model = PVT.from_variant("b0", num_classes=10, num_layers=(1, 1, 1, 1))
    >>> tuple(model(np.zeros((3, 64, 72, 3), "float32")).shape)
    (3, 10)
    """

    variant_keywords = PVTKeywords.__annotations__

    configuration: PVTConfiguration

    def __init__(
        self,
        num_classes: int | None = 1000,
        image_size: int | Sequence[int] = 224,
        hidden_dims: Sequence[int] = WIDTHS,
        num_layers: Sequence[int] = (3, 4, 6, 3),
        num_heads: Sequence[int] = HEADS,
        reductions: Sequence[int] = (8, 4, 2, 1),
        mlp_ratios: Sequence[int] = RATIOS,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm_epsilon: float = 1e-6,
        **kwargs: Unpack[ImageModelOptions],
    ) -> None:
        problem_type = kwargs.pop("problem_type", None)
        super().__init__(**kwargs)
        self.configuration = PVTConfiguration(
            num_classes=num_classes,
            image_size=both_sides(image_size),
            hidden_dims=list(hidden_dims),
            num_layers=list(num_layers),
            num_heads=list(num_heads),
            reductions=list(reductions),
            mlp_ratios=list(mlp_ratios),
            dropout=dropout,
            drop_path=drop_path,
            norm_epsilon=norm_epsilon,
            problem_type=problem_type,
        )
        check_problem(type(self).__name__, vars(self.configuration))
        sizes = ["hidden_dims", "num_layers", "num_heads", "reductions", "mlp_ratios"]
        self._check_stages(sizes)
        self.embeddings = [
            OverlappingPatchEmbedding(
                width,
                kernel_size=3 if stage else 7,
                stride=2 if stage else STRIDES[0],
                norm_epsilon=norm_epsilon,
                name=f"embedding_{stage}",
                dtype=self.dtype_policy,
            )
            for stage, width in enumerate(hidden_dims)
        ]
        self.encoder_blocks = [
            self._block(stage, number, rate)
            for (stage, number), rate in zip(self._positions(), self._drop_path(), strict=True)
        ]
        self.norms = [norm(self, f"norm_{stage}") for stage in range(len(STRIDES))]
        self.norm = None  # each stage has its own
        self._make_head()

    def _block(self, stage: int, number: int, drop_path: float) -> keras.layers.Layer:
        config = self.configuration
        heads, reduction = config.num_heads[stage], config.reductions[stage]
        mlp_dim = config.mlp_ratios[stage] * config.hidden_dims[stage]
        block_norm = norm(self, "norm")
        return EncoderBlock(
            dropout=config.dropout,
            norm_first=True,
            mixer=SpatialReductionAttention(heads, reduction, block_norm),
            feed_forward=ConvolutionalFeedForward(mlp_dim, "gelu"),
            norm=block_norm,
            drop_path=drop_path,
            name=block_name(stage, number),
            dtype=self.dtype_policy,
        )

    @classmethod
    def from_variant(
        cls,
        name: Literal["b0", "b1", "b2", "b3", "b4", "b5"],
        /,
        num_classes: int | None = 1000,
        **changes: Unpack[PVTKeywords],
    ) -> Self:
        """A model of a published size.

        Parameters for 1,000 classes: "b0" 3.7 M, "b1" 14.0 M, "b2" 25.4 M, "b3" 45.2 M, "b4"
        62.6 M, "b5" 82.0 M.

        Args:
            name: "b0" to "b5".
            num_classes: Number of classes, or None.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant or keyword.
        """
        check_changes("PVT", changes, PVTKeywords)
        return cls(num_classes, **variant("PVT", name, VARIANTS, changes))

    def build(self, images_shape: Any) -> None:
        self._start_building(images_shape)
        widths = self.configuration.hidden_dims
        channels = self.channels
        for embedding, stage_norm, width in zip(self.embeddings, self.norms, widths, strict=True):
            embedding.build((None, None, None, channels))
            stage_norm.build((None, None, None, width))
            channels = width
        for (stage, _), block in zip(self._positions(), self.encoder_blocks, strict=True):
            block.build((None, None, None, widths[stage]))
        self._end_building()

    @property
    def _width(self) -> int:
        return self.configuration.hidden_dims[-1]

    def _entrances(self, stage: int) -> list[keras.layers.Layer]:
        return [self.embeddings[stage], self.norms[stage]]

    def _enter(self, stage: int, x: Tensor, training: bool | None = None) -> Tensor:
        return self.embeddings[stage](x)

    def _leave(self, stage: int, x: Tensor) -> Tensor:
        return self.norms[stage](x)
