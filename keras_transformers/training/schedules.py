"""Learning rates that Keras lacks."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Scalar


@keras.saving.register_keras_serializable("keras_transformers")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step.

    `lr = scale D^-0.5 min(step^-0.5, step warmup^-1.5)`, steps counted from 1 (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, eq. 3).

    Args:
        hidden_dim: D, the width of the model.
        warmup_steps: Steps until the peak, `scale (D warmup)^-0.5`.
        scale: Factor on the whole.

    Raises:
        ValueError: If `hidden_dim` or `warmup_steps` is not positive.

    Example:
    >>> from keras_transformers.training import InverseSquareRoot
    >>> schedule = InverseSquareRoot(hidden_dim=512, warmup_steps=4000)
    >>> [round(float(schedule(step)), 6) for step in (1999, 3999, 15999)]
    [0.000349, 0.000699, 0.000349]
    """

    def __init__(self, hidden_dim: int, warmup_steps: int = 4000, scale: float = 1.0) -> None:
        super().__init__()
        if hidden_dim < 1 or warmup_steps < 1:
            raise ValueError(
                "InverseSquareRoot: `hidden_dim` and `warmup_steps` must be positive. "
                f"Received: hidden_dim={hidden_dim}, warmup_steps={warmup_steps}"
            )
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step: Any) -> Scalar:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        rate = ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rate

    def get_config(self) -> dict[str, Any]:
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class WarmupLinear(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay to zero (Devlin et al. 2019, section A.2).

    `lr = peak min(step / warmup, (total + 1 - step) / (total + 1 - warmup))`, steps counted from 1:
    zero comes after the last step, so that no step is spent on a rate of zero.

    Args:
        peak: Highest rate, at the last step of the warm-up.
        warmup_steps: Steps until the peak; 0 starts there.
        total_steps: Steps of the whole training.

    Raises:
        ValueError: Unless `0 <= warmup_steps <= total_steps` and `1 <= total_steps`.

    Example:
    >>> from keras_transformers.training import WarmupLinear
    >>> schedule = WarmupLinear(peak=1.0, warmup_steps=2, total_steps=5)
    >>> [round(float(schedule(step)), 2) for step in range(6)]
    [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int) -> None:
        super().__init__()
        if not 0 <= warmup_steps <= total_steps or total_steps < 1:
            raise ValueError(
                "WarmupLinear: `warmup_steps` must be in [0, total_steps] and `total_steps` "
                f"positive. Received: warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step: Any) -> Scalar:
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        warmup = max(self.warmup_steps, 1)
        left = (self.total_steps + 1 - step) / (self.total_steps + 1 - warmup)
        return self.peak * ops.maximum(ops.minimum(step / warmup, left), 0.0)

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }
