"""Rotary position embeddings, and their frequencies for longer texts."""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Index, LayerOptions, Shape, Tensor
from keras_transformers.layers.checks import refuse, whole_number
from keras_transformers.layers.parts import serialized
from keras_transformers.layers.positions.biases import AttentionPositionEncoding
from keras_transformers.layers.positions.sequence import check_wavelength


@keras.saving.register_keras_serializable("keras_transformers")
class RotaryScaling:
    """Base of what `RotaryEmbedding` takes as `scaling`; by itself it changes nothing.

    A scaling of one's own overrides `scaled`.

    Attributes:
        gain: What cosine and sine are multiplied by, so that scores become sharper.
        original_length: The length the model was trained for, where it matters.

    Example: positions that count half.
    >>> import keras
    >>> import numpy as np
    >>> from keras_transformers.layers import RotaryEmbedding, RotaryScaling
    >>> @keras.saving.register_keras_serializable()
    ... class Half(RotaryScaling):
    ...     def scaled(self, rates, wavelength):
    ...         return rates / 2
    >>> RotaryEmbedding(scaling=Half())(np.ones((1, 1, 3, 4), "float32")).shape[2]
    3
    """

    gain = 1.0
    original_length: int | None = None
    _refuse = refuse

    @property
    def name(self) -> str:
        return "scaling"  # in errors

    def scaled(self, rates: Array, wavelength: float) -> Array:
        """Radians a position for each pair of features.

        Args:
            rates: Float64 `(pairs,)`, those without scaling, `wavelength^(-i / pairs)`.
            wavelength: The `max_wavelength`.
        """
        return rates

    def beyond(self, rates: Array) -> Array | None:
        """The same for texts longer than `original_length`; None where they turn alike."""
        return None

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**config)

    def _factor(self, factor: float) -> float:
        if not factor >= 1:
            self._refuse("factor", "at least 1", factor)
        return factor


@keras.saving.register_keras_serializable("keras_transformers")
class Llama3Scaling(RotaryScaling):
    """Divides the rates of pairs that turn slowly, as Llama 3.1 has it.

    Pairs that turn more than `fast` times within the original length keep their rates, those that
    turn less than `slow` times are divided by `factor`, and those between are mixed (Grattafiori et
    al. 2024, https://arxiv.org/abs/2407.21783, section 3.4.2, and the authors' code).

    Args:
        factor: How many times longer texts may be, at least 1.
        original_length: The length the model was trained for, in tokens.
        slow, fast: Turns within that length.

    Raises:
        ValueError: If `factor` is less than 1, `original_length` is not positive, or `fast` is not
            more than `slow`.

    Example:
    >>> from keras_transformers.layers import Llama3Scaling, RotaryEmbedding
    >>> RotaryEmbedding(500000.0, scaling=Llama3Scaling(8.0, 8192)).scaling.factor
    8.0
    """

    def __init__(
        self, factor: float, original_length: int, slow: float = 1.0, fast: float = 4.0
    ) -> None:
        self.factor = self._factor(factor)
        self.original_length: int = whole_number(self, "original_length", original_length)
        if not 0 < slow < fast:
            self._refuse("fast", f"more than `slow`={slow}, and both positive", fast)
        self.slow = slow
        self.fast = fast

    def scaled(self, rates: Array, wavelength: float) -> Array:
        turns = self.original_length * rates / (2 * math.pi)
        kept = np.clip((turns - self.slow) / (self.fast - self.slow), 0, 1)
        return kept * rates + (1 - kept) * rates / self.factor

    def get_config(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "original_length": self.original_length,
            "slow": self.slow,
            "fast": self.fast,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class YarnScaling(RotaryScaling):
    """Divides the rates of pairs that turn slowly, and makes the scores sharper (YaRN).

    Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.2 and 3.4. Which pairs are divided
    follows from the turns within the original length: more than `fast`, none; less than `slow`,
    all; between, mixed along the number of the pair.

    Args:
        factor: How many times longer texts may be, at least 1.
        original_length: The length the model was trained for, in tokens.
        gain: What cosine and sine are multiplied by; by default the paper's `0.1 ln(factor) + 1`.
        fast, slow: Turns within the original length.
        whole: Whether the first and the last of the pairs between are whole numbers, as published.

    Raises:
        ValueError: If `factor` is less than 1, `original_length` is not positive, or `fast` is not
            more than `slow`.

    Example:
    >>> from keras_transformers.layers import RotaryEmbedding, YarnScaling
    >>> round(RotaryEmbedding(scaling=YarnScaling(4.0, 4096)).scaling.gain, 3)
    1.139
    """

    def __init__(
        self,
        factor: float,
        original_length: int,
        gain: float | None = None,
        fast: float = 32.0,
        slow: float = 1.0,
        whole: bool = True,
    ) -> None:
        self.factor = self._factor(factor)
        self.original_length: int = whole_number(self, "original_length", original_length)
        if not 0 < slow < fast:
            self._refuse("fast", f"more than `slow`={slow}, and both positive", fast)
        self.gain = 0.1 * math.log(factor) + 1 if gain is None else gain
        self.fast = fast
        self.slow = slow
        self.whole = whole

    def scaled(self, rates: Array, wavelength: float) -> Array:
        width = 2 * len(rates)
        first, last = (
            width
            * math.log(self.original_length / (turns * 2 * math.pi))
            / (2 * math.log(wavelength))
            for turns in (self.fast, self.slow)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, width - 1)
        divided = np.clip((np.arange(len(rates)) - first) / ((last - first) or 1e-3), 0, 1)
        return rates * (1 - divided) + rates / self.factor * divided

    def get_config(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "original_length": self.original_length,
            "gain": self.gain,
            "fast": self.fast,
            "slow": self.slow,
            "whole": self.whole,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class LongRopeScaling(RotaryScaling):
    """Divides the rate of each pair by a factor of its own, which longer texts have others of.

    Ding et al. 2024, "LongRoPE", https://arxiv.org/abs/2402.13753, section 3.2; Phi-3. A text is
    longer where any of its positions is `original_length` or more; then all of its tokens turn by
    the other rates, the first ones too. So token by token, what was decoded before a text became
    longer is not what the whole text would give; `LanguageModel` refuses to go beyond.

    Args:
        short: A factor for each pair, in texts of at most `original_length` tokens.
        long: The same for longer texts.
        original_length: The length the model was trained for, in tokens.
        gain: What cosine and sine are multiplied by.

    Raises:
        ValueError: If there are not as many factors as pairs, or one is not positive.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LongRopeScaling, RotaryEmbedding
    >>> layer = RotaryEmbedding(scaling=LongRopeScaling([1.0, 1.0], [1.0, 4.0], 4096))
    >>> layer(np.ones((1, 1, 3, 4), "float32")).shape[2]
    3
    """

    def __init__(
        self, short: Sequence[float], long: Sequence[float], original_length: int, gain: float = 1.0
    ) -> None:
        for name, factors in (("short", short), ("long", long)):
            if not len(factors) or not all(each > 0 for each in factors):
                self._refuse(name, "a positive factor for each pair of features", factors)
        self.short = tuple(short)
        self.long = tuple(long)
        self.original_length: int = whole_number(self, "original_length", original_length)
        self.gain = gain

    def scaled(self, rates: Array, wavelength: float) -> Array:
        return self._divided("short", self.short, rates)

    def beyond(self, rates: Array) -> Array:
        return self._divided("long", self.long, rates)

    def _divided(self, name: str, factors: Sequence[float], rates: Array) -> Array:
        """Divides the rate of each pair by its factor."""
        if len(factors) != len(rates):
            self._refuse(name, f"{len(rates)} factors, one for each pair", f"{len(factors)}")
        return rates / np.array(factors)

    def get_config(self) -> dict[str, Any]:
        return {
            "short": list(self.short),
            "long": list(self.long),
            "original_length": self.original_length,
            "gain": self.gain,
        }


Scaling: TypeAlias = Literal["linear", "ntk", "yarn"] | RotaryScaling | dict[str, Any]


@keras.saving.register_keras_serializable("keras_transformers")
class RotaryEmbedding(AttentionPositionEncoding):
    """Turns queries and keys by angles that grow with their position.

    The two features of pair `i` are rotated by `pos / w^(2i/d)`, so that the product of a query and
    a key depends on the difference of their positions alone (Su et al. 2021,
    https://arxiv.org/abs/2104.09864, eq. 15). Angles are computed in float32, and there are no
    weights.

    For contexts `s = scaling_factor` times longer than a model was trained for: "linear" divides
    the positions by `s` (Chen et al. 2023, https://arxiv.org/abs/2306.15595); "ntk" makes the
    wavelengths longer, the longest `s` times, the shortest hardly, `w' = w s^(d/(d-2))` (described
    in Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.1); "yarn" divides only the
    features that turn slowly and makes the scores sharper (the same, section 3.2 and 3.4). An
    object is another way, `Llama3Scaling`, `LongRopeScaling` or YaRN with settings, `YarnScaling`.

    Args:
        max_wavelength: `w` above, a float.
        rotary_dim: Number of features of a head that are turned, even; all by default.
        interleaved: Whether a pair is features `2i` and `2i + 1`, as in the paper and GPT-J; else
            `i` and `i + d/2`, as in GPT-NeoX and Llama.
        scaling: None, "linear", "ntk", "yarn", or a `RotaryScaling`, beside which there is neither
            `scaling_factor` nor `original_length`.
        scaling_factor: `s` above.
        original_length: For "yarn": the length the model was trained for.

    Call arguments:
        x: `(batch, heads, length, key_dim)`.
        start: Position of the first token, an int or a scalar tensor.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If `max_wavelength` is an int below 10,000, which is taken for a width; if
            `scaling` is unknown, `scaling_factor` less than 1, or "yarn" lacks `original_length`;
            if the features to be turned are odd or more than there are.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import CausalSelfAttention, RotaryEmbedding
    >>> layer = CausalSelfAttention(num_heads=2, position=RotaryEmbedding())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        scaling: Scaling | None = None,
        scaling_factor: float = 1.0,
        original_length: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_wavelength(self, max_wavelength)
        if isinstance(scaling, dict):
            scaling = keras.saving.deserialize_keras_object(scaling)
        self._check_scaling(scaling, scaling_factor, original_length)
        self.max_wavelength = max_wavelength
        self.rotary_dim = rotary_dim
        self.interleaved = interleaved
        self.scaling: Any = scaling
        self.scaling_factor = scaling_factor
        self.original_length = original_length
        self.supports_masking = True

    def _check_scaling(self, scaling: Any, factor: float, length: int | None) -> None:
        if isinstance(scaling, RotaryScaling):
            if (factor, length) != (1.0, None):
                expected = "left out beside an object, which has its own"
                self._refuse("scaling_factor", expected, f"{factor}, original_length={length}")
        elif scaling not in (None, "linear", "ntk", "yarn"):
            expected = "None, 'linear', 'ntk', 'yarn' or a RotaryScaling"
            self._refuse("scaling", expected, repr(scaling))
        elif factor < 1:
            self._refuse("scaling_factor", "at least 1", factor)
        elif scaling == "yarn" and not length:
            self._refuse("original_length", "given for scaling='yarn'", length)

    def build(self, query_shape: Shape) -> None:
        width = query_shape[-1]
        turned = width if self.rotary_dim is None else self.rotary_dim
        if turned % 2 or not 0 < turned <= width:
            expected = f"even and at most {width}, the width of a head"
            self._refuse("rotary_dim", expected, turned)
        scaling, factor, wavelength = self.scaling, self.scaling_factor, float(self.max_wavelength)
        if scaling == "yarn":
            scaling = YarnScaling(factor, self.original_length or 0)
        if scaling == "ntk":
            wavelength = wavelength * factor ** (turned / max(turned - 2, 1))
        rates = np.power(wavelength, -2 * np.arange(turned // 2) / turned)
        if scaling == "linear":
            rates = rates / factor
        self._gain, self._beyond = 1.0, None  # radians a position in longer texts, or None
        if isinstance(scaling, RotaryScaling):
            self._gain, self._beyond = scaling.gain, scaling.beyond(rates)
            self.most_cached = None if self._beyond is None else scaling.original_length
            rates = scaling.scaled(rates, wavelength)
        self._rates = rates.astype("float32")  # radians a position for each pair

    def _rates_at(self, positions: Tensor) -> Any:
        """The rates of a text with tokens at these positions."""
        if self._beyond is None:
            return self._rates
        longer = ops.max(positions) >= self.scaling.original_length
        return ops.where(longer, self._beyond.astype("float32"), self._rates)

    def call(self, x: Tensor, start: Index = 0) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        positions = ops.arange(ops.shape(x)[2], dtype="int32") + start
        return self.transform(x, positions)

    def transform(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = ops.cast(positions, "float32")[:, None] * self._rates_at(
            positions
        )  # (length, pairs)
        cosine, sine = (
            ops.cast(function(angles) * self._gain, x.dtype) for function in (ops.cos, ops.sin)
        )
        pairs = self._rates.shape[0]
        turned, rest = x[..., : 2 * pairs], x[..., 2 * pairs :]
        if self.interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned[..., :pairs], turned[..., pairs:]
        first, second = first * cosine - second * sine, second * cosine + first * sine
        if self.interleaved:
            turned = ops.reshape(ops.stack([first, second], axis=-1), ops.shape(turned))
        else:
            turned = ops.concatenate([first, second], axis=-1)
        return turned if rest.shape[-1] == 0 else ops.concatenate([turned, rest], axis=-1)

    def compute_output_shape(self, query_shape: Shape) -> Shape:
        return query_shape

    def get_config(self) -> dict[str, Any]:
        scaling = self.scaling
        if isinstance(scaling, RotaryScaling):
            scaling = serialized(scaling)
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rotary_dim": self.rotary_dim,
            "interleaved": self.interleaved,
            "scaling": scaling,
            "scaling_factor": self.scaling_factor,
            "original_length": self.original_length,
        }
