"""Dropout, stochastic depth, layer scale, and an RMS norm with offset factors."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import LayerOptions, Shape, Tensor
from keras_transformers.layers import checks
from keras_transformers.layers.base import BaseLayer


@keras.saving.register_keras_serializable("keras_transformers", "Orthogonal")
class Orthogonal(keras.initializers.Orthogonal):
    """Keras's `Orthogonal`, made in float32 and cast: TensorFlow has no QR in bfloat16."""

    def __call__(self, shape: Shape, dtype: Any = None) -> Any:
        return ops.cast(super().__call__(shape, "float32"), dtype or keras.config.floatx())


# Which share of the batch a mask is drawn for, where each replica runs a program of its own
# (tf.distribute): `keras_transformers.distribution` puts a function here. On JAX there is one
# program over the whole batch.
replica: Callable[[], Tensor] | None = None


def keep_mask(shape: Sequence[Any], rate: float, seed: Any) -> Tensor:
    """Random booleans, False with probability `rate`: one hash of (seed, index) for each.

    On a CPU the generators behind `keras.random` take longer than the matrix product they are
    meant to regularise. A hash needs no state, runs inside the loop that uses it, and is the same
    on every backend. Mixing function: lowbias32 (Wellons 2018,
    https://nullprogram.com/blog/2018/07/31/), with half of the seed before and half inside it.

    Args:
        shape: Tuple of ints or scalar tensors.
        rate: Probability of False, in `[0, 1)`.
        seed: Two integers, as from `keras.random.SeedGenerator.next()`.

    Returns:
        Bool tensor of that shape.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import keep_mask
    >>> kept = keep_mask((100, 100), rate=0.1, seed=ops.array([1, 2]))
    >>> 0.88 < float(ops.mean(ops.cast(kept, "float32"))) < 0.92
    True
    """
    # Begins with a 0 that is computed: TensorFlow would hand XLA a constant of all indices, 4 bytes
    # for each element, to be compiled and kept on disk with the program.
    seed = ops.unstack(ops.cast(seed, "int32"), 2)
    index, size = seed[0] * 0, 1
    for axis, dimension in enumerate(shape):
        index = ops.expand_dims(index * dimension, -1) if axis else index
        index = index + ops.arange(dimension, dtype="int32")
        size = size * dimension
    return kept_at(index, size, rate, seed)


def kept_at(index: Tensor, size: Any, rate: float, seed: Any) -> Tensor:
    """Returns the elements of a `keep_mask` at int32 indices into its flattened `size` elements.

    `seed` is a tensor of two integers, or a list of two int32 scalars.
    """
    seed = seed if isinstance(seed, list) else ops.unstack(ops.cast(seed, "int32"), 2)
    first, second = seed
    numbers = [ops.convert_to_tensor(number, "int32") for number in NUMBERS]
    key = _mix(first + _mix(second, numbers), numbers)
    if replica is not None:  # the rows of the replicas before this one come first
        index = index + ops.cast(replica(), "int32") * size
    threshold = min(round(rate * 2**32), 2**32 - 1) - 2**31
    mixed = _mix(ops.bitwise_xor(index, key), numbers, _mix(key + 1, numbers))
    return mixed >= threshold


# Shifts, the masks that make them logical shifts of int32, and the factors of the mixing function.
# int32, because its products wrap on every backend; torch has no arithmetic on uint32.
NUMBERS = (16, 2**16 - 1, 15, 2**17 - 1, 0x7FEB352D, 0x846CA68B - 2**32)


def _mix(x: Any, numbers: Sequence[Tensor], key: Any = None) -> Tensor:
    """Every bit of int32 `x` changes every bit of the result with probability about 1/2."""
    by_16, low_16, by_15, low_17, first, second = numbers
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, by_16), low_16)) * first
    x = x if key is None else ops.bitwise_xor(x, key)
    x = ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, by_15), low_17)) * second
    return ops.bitwise_xor(x, ops.bitwise_and(ops.right_shift(x, by_16), low_16))


class _Rate:
    """The rate of a `Dropout`, which stays 0 if it is 0: then the layer has no seed."""

    def __set__(self, layer: Any, value: float) -> None:
        attributes = vars(layer)
        if value and attributes.get("seed_generator", "not made yet") is None:
            checks.refuse(layer, "rate", "0, as when the layer was made, for it has no seed", value)
        attributes["rate"] = value


@keras.saving.register_keras_serializable("keras_transformers")
class Dropout(BaseLayer):
    """Sets features to zero at random while training, and scales the rest by `1 / (1 - rate)`.

    Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html. Equal in distribution
    to `keras.layers.Dropout`, with the random numbers of `keep_mask`.

    Args:
        rate: Probability of dropping, in `[0, 1)`.
        seed: Optional integer.

    Call arguments:
        x: `(...)`.
        training: Whether to drop.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If `rate` is not in `[0, 1)`.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import Dropout
    >>> kept = Dropout(0.5, seed=3)(np.ones((64, 4), "float32"), training=True)
    >>> sorted(set(np.asarray(kept).ravel().tolist()))
    [0.0, 2.0]
    """

    rate: Any = _Rate()
    drops_samples = False  # True if a sample is dropped as a whole

    def __init__(
        self, rate: float, seed: int | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.rate = rate = checks.rate(self, "rate", rate)
        self.seed = None if seed is None else int(seed)
        self.seed_generator: Any = keras.random.SeedGenerator(self.seed) if rate else None
        self.supports_masking = True
        self.built = True  # no weights; as in keras.layers.Dropout

    def build(self, x_shape: Shape) -> None:
        pass  # so that a model's summary knows the shape, if the model says it

    def call(self, x: Tensor, training: bool | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if not training or self.rate == 0:
            return x
        shape: Any = ops.shape(x)
        if self.drops_samples:
            shape = (shape[0],) + (1,) * (len(shape) - 1)
        kept = keep_mask(shape, self.rate, self.seed_generator.next())
        return ops.where(kept, x * ops.cast(1 / (1 - self.rate), x.dtype), ops.zeros((), x.dtype))

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


@keras.saving.register_keras_serializable("keras_transformers")
class DropPath(Dropout):
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

    drops_samples = True


@keras.saving.register_keras_serializable("keras_transformers")
class LayerScale(BaseLayer):
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

    def __init__(self, initial_value: float = 1e-5, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.initial_value = initial_value
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        self.factor = self.add_weight(
            name="factor",
            shape=(x_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        return x * ops.cast(self.factor, x.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "initial_value": self.initial_value}


@keras.saving.register_keras_serializable("keras_transformers")
class OffsetRMSNormalization(BaseLayer):
    """`y = x / sqrt(mean(x^2) + epsilon) * (1 + g)`, with `g` learned from zero.

    The norm of Gemma: that of Zhang & Sennrich 2019 (https://arxiv.org/abs/1910.07467, eq. 4) whose
    weights decay to a factor of 1. Over the last axis, computed in float32 and cast last.

    Args:
        epsilon: Added to the mean square.

    Call arguments:
        x: `(..., width)`.

    Returns:
        Same shape and dtype.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import OffsetRMSNormalization
    >>> np.asarray(OffsetRMSNormalization()(np.array([[3.0, -3.0]], "float32"))).round(3).tolist()
    [[1.0, -1.0]]
    """

    position_wise = True

    def __init__(self, epsilon: float = 1e-6, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        self.offset = self.add_weight(
            name="offset", shape=(x_shape[-1],), initializer="zeros", autocast=False
        )

    def call(self, x: Tensor) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        precise = keras.backend.result_type(x.dtype, "float32")
        y = ops.rms_normalization(ops.cast(x, precise), epsilon=self.epsilon)
        return ops.cast(y * (1.0 + ops.cast(self.offset, precise)), x.dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}
