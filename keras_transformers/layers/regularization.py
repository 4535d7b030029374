"""Regularisers of residual branches: stochastic depth and a learned scale."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformers")
class DropPath(keras.layers.Layer):
    """Drops a whole residual branch, for each sample on its own (stochastic depth).

    While training, a sample's branch is set to zero with probability `rate` and divided by
    `1 - rate` otherwise, so that the expectation stays (Huang et al. 2016,
    https://arxiv.org/abs/1603.09382). At inference it does nothing.

    Args:
        rate: Probability of dropping, in `[0, 1)`.
        seed: Optional integer.

    Call arguments:
        x: `(batch, ...)`.
        training: Whether to drop.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If `rate` is not in `[0, 1)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DropPath
    >>> kept = DropPath(0.5, seed=3)(np.ones((64, 1), "float32"), training=True)
    >>> sorted(set(np.asarray(kept).ravel().tolist()))
    [0.0, 2.0]
    """

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"DropPath: `rate` must be in [0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.supports_masking = True
        self.built = True  # no weights; as in keras.layers.Dropout

    def call(self, x, training=None):
        if not training or self.rate == 0:
            return x
        shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        kept = keras.random.uniform(shape, seed=self.seed_generator, dtype="float32") >= self.rate
        return x * ops.cast(ops.cast(kept, "float32") / (1 - self.rate), x.dtype)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable("keras_transformers")
class LayerScale(keras.layers.Layer):
    """Multiplies each feature by a learned factor that starts small (Touvron et al. 2021).

    Source: "Going deeper with image transformers", https://arxiv.org/abs/2103.17239, section 2.

    Args:
        initial_value: Start of every factor.

    Call arguments:
        x: `(..., hidden_dim)`.

    Returns:
        Same shape and dtype as `x`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LayerScale
    >>> np.asarray(LayerScale(0.5)(np.ones((1, 3), "float32"))).tolist()
    [[0.5, 0.5, 0.5]]
    """

    def __init__(self, initial_value=1e-5, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value
        self.supports_masking = True

    def build(self, x_shape):
        self.factor = self.add_weight(
            name="factor",
            shape=(x_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, x):
        return x * ops.cast(self.factor, x.dtype)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
