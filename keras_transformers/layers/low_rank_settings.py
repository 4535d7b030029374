"""What an adapter is, apart from its values."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class LowRankSettings:
    """What one adapter is, the same in all layers that have it.

    Args:
        rank: Columns of `A` and rows of `B`.
        alpha: The product is scaled by `alpha / rank`.
        dropout: Rate on what `A` is multiplied with, in training.
        dora: Whether magnitudes are learned apart from directions (DoRA).
        rslora: Whether the product is scaled by `alpha / sqrt(rank)` instead (rsLoRA).

    Example:
    >>> from keras_transformers.layers.low_rank_settings import LowRankSettings
    >>> LowRankSettings(rank=4, alpha=8.0).scale
    2.0
    """

    rank: int = 8
    alpha: float = 8.0
    dropout: float = 0.0
    dora: bool = False
    rslora: bool = False

    @property
    def scale(self) -> float:
        """The factor of the product."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def with_scale(self, scale: float) -> "LowRankSettings":
        """Returns the same settings with the `alpha` of another scale."""
        if scale == self.scale:
            return self
        alpha = scale * (math.sqrt(self.rank) if self.rslora else self.rank)
        return dataclasses.replace(self, alpha=alpha)
