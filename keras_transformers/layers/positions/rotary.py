"""Rotary position embedding."""

import math
from typing import Any, Literal, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Index, LayerOptions, Shape, Tensor
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding
from keras_transformers.layers.positions.sequence import check_wavelength


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
    features that turn slowly and makes the scores sharper (the same, section 3.2 and 3.4).

    Args:
        max_wavelength: `w` above, a float.
        rotary_dim: Number of features of a head that are turned, even; all by default.
        interleaved: Whether a pair is features `2i` and `2i + 1`, as in the paper and GPT-J; else
            `i` and `i + d/2`, as in GPT-NeoX and Llama.
        scaling: None, "linear", "ntk" or "yarn".
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
        scaling: Literal["linear", "ntk", "yarn"] | None = None,
        scaling_factor: float = 1.0,
        original_length: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        check_wavelength(self, max_wavelength)
        wrong = None
        if scaling not in (None, "linear", "ntk", "yarn"):
            wrong = ("scaling", "None, 'linear', 'ntk' or 'yarn'", repr(scaling))
        elif scaling_factor < 1:
            wrong = ("scaling_factor", "at least 1", scaling_factor)
        elif scaling == "yarn" and not original_length:
            wrong = ("original_length", "given for scaling='yarn'", original_length)
        if wrong:
            self._refuse(*wrong)
        self.max_wavelength = max_wavelength
        self.rotary_dim = rotary_dim
        self.interleaved = interleaved
        self.scaling = scaling
        self.scaling_factor = scaling_factor
        self.original_length = original_length
        self.supports_masking = True

    def build(self, query_shape: Shape) -> None:
        width = query_shape[-1]
        turned = width if self.rotary_dim is None else self.rotary_dim
        if turned % 2 or not 0 < turned <= width:
            expected = f"even and at most {width}, the width of a head"
            self._refuse("rotary_dim", expected, turned)
        self._rates, self._gain = self._rates_and_gain(turned)

    def _rates_and_gain(self, width: int) -> tuple[Array, float]:
        """Radians a position for each pair, float32, and what cosine and sine are multiplied by."""
        pairs, factor, wavelength = np.arange(width // 2), self.scaling_factor, self.max_wavelength
        if self.scaling == "ntk":
            wavelength = wavelength * factor ** (width / max(width - 2, 1))
        rates = np.power(float(wavelength), -2 * pairs / width)
        if self.scaling == "linear":
            rates = rates / factor
        if self.scaling != "yarn":
            return rates.astype("float32"), 1.0
        # Pairs that turn more than 32 times within the original length keep their rates, those
        # that turn less than once are divided, and those between are mixed.
        first, last = (
            width
            * math.log((self.original_length or 0) / (turns * 2 * math.pi))
            / (2 * math.log(wavelength))
            for turns in (32, 1)
        )
        first, last = max(math.floor(first), 0), min(math.ceil(last), width - 1)
        divided = np.clip((pairs - first) / max(last - first, 1e-3), 0, 1)
        rates = rates * (1 - divided) + rates / factor * divided
        return rates.astype("float32"), 0.1 * math.log(factor) + 1

    def call(self, x: Tensor, start: Index = 0) -> Tensor:
        positions = ops.arange(ops.shape(x)[2], dtype="int32") + start
        return self.transform(x, positions)

    def transform(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = ops.cast(positions, "float32")[:, None] * self._rates  # (length, pairs)
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
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "rotary_dim": self.rotary_dim,
            "interleaved": self.interleaved,
            "scaling": self.scaling,
            "scaling_factor": self.scaling_factor,
            "original_length": self.original_length,
        }
