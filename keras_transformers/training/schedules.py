"""Learning rates that Keras lacks."""

import keras
from keras import ops


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

    def __init__(self, hidden_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        if hidden_dim < 1 or warmup_steps < 1:
            raise ValueError(
                "InverseSquareRoot: `hidden_dim` and `warmup_steps` must be positive. "
                f"Received: hidden_dim={hidden_dim}, warmup_steps={warmup_steps}"
            )
        self.hidden_dim = hidden_dim
        self.warmup_steps = warmup_steps
        self.scale = scale

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0  # Keras counts from 0
        rate = ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rate

    def get_config(self):
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
