"""Where a token stands: the sinusoidal encoding and the learned table."""

from typing import Any, Literal, Self, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.backend import at_most, require
from keras_transformers.core.types import Index, Initializer, LayerOptions, Part, Shape, Tensor
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import (
    as_ids,
    check_sequence,
    known_values,
    named,
    refuse,
    whole_number,
)
from keras_transformers.layers.parts import part, serialized

SMALL = 10_000  # below the usual wavelength, where widths and lengths are


def sinusoidal_encoding(
    positions: Tensor,
    hidden_dim: int,
    max_wavelength: float = 10000.0,
    layout: Literal["pairs", "halves"] = "pairs",
) -> Tensor:
    """Sines and cosines of a position at geometrically spaced wavelengths.

    `PE(pos, 2i) = sin(pos / w^(2i/D))`, `PE(pos, 2i+1) = cos(pos / w^(2i/D))` with
    `w = max_wavelength` (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5).
    Always computed in float32: in bfloat16 the angles themselves would be wrong.

    Args:
        positions: Integer or float tensor of any shape.
        hidden_dim: D, the number of features; an odd D drops the last cosine.
        max_wavelength: The longest wavelength is `2 pi max_wavelength`.
        layout: "pairs", as above, or "halves": all sines, then all cosines, as in Marian
            (Junczys-Dowmunt et al. 2018, https://arxiv.org/abs/1804.00344) and fairseq.

    Returns:
        float32, `positions.shape + (hidden_dim,)`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import sinusoidal_encoding
    >>> ops.convert_to_numpy(sinusoidal_encoding(ops.arange(2), 4))[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    pairs = ops.arange((hidden_dim + 1) // 2, dtype="float32")
    rates = ops.power(ops.cast(max_wavelength, "float32"), -2.0 * pairs / hidden_dim)
    angles = ops.cast(positions, "float32")[..., None] * rates  # (..., ceil(D / 2))
    if layout == "halves":
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)[..., :hidden_dim]
    table = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # (..., ceil(D / 2), 2)
    table = ops.reshape(table, ops.shape(angles)[:-1] + (2 * ((hidden_dim + 1) // 2),))
    return table[..., :hidden_dim]


def check_wavelength(layer: Any, max_wavelength: Any) -> None:
    """Raises ValueError for what is meant as a width or a length: a small int.

    Layers of other libraries take those in the first place; here they would be a wavelength.
    """
    if isinstance(max_wavelength, (int, np.integer)) and max_wavelength < SMALL:
        expected = f"a float, or an int of at least {SMALL}"
        hint = f"write {float(max_wavelength)} for such a wavelength"
        reason = "width and length are read from the input"
        refuse(layer, "max_wavelength", f"{expected}; {reason}", f"{max_wavelength} ({hint})")


def rows_of(table: Any, index: Any) -> Tensor:
    """Rows of a learned table that many positions share, with a gradient that is a plain tensor.

    TensorFlow's gradient of `take` lists a row once for each position. Optimizers square
    each of them: Keras's Adam then adds up the squares of a row's terms, not the square of a sum.
    Under mixed precision that sum is one of float32 where the table is a weight with
    `autocast=False`, and the rows are cast: else a row's terms, often thousands, are bfloat16.
    """
    return ops.take(table * 1, index, axis=0)


def with_positions(layer: Any, name: str, x: Tensor, positions: Tensor | None) -> Tensor:
    """`x + positions`, as queries or keys are made of; `x` itself where `positions` is None."""
    return x if positions is None else x + positions_of(layer, name, x, positions)


def positions_of(layer: Any, name: str, x: Tensor, positions: Tensor) -> Tensor:
    """Positions of the tokens `x` in their dtype; ValueError unless they fit.

    `positions` are `(length, width)` or `(batch, length, width)`, of any floating dtype.
    """
    positions = ops.convert_to_tensor(positions)
    expected, found = tuple(x.shape), tuple(positions.shape)
    fits = len(found) in (2, 3) and all(
        None in (have, want) or have == want or (have == 1 and position == -3)
        for position, have, want in zip((-1, -2, -3), found[::-1], expected[::-1], strict=False)
    )
    if not fits:
        layer._refuse(name, f"of shape {expected} or {expected[1:]}", f"shape {found}")
    return ops.cast(positions, x.dtype)


@keras.saving.register_keras_serializable("keras_transformers")
class PositionalEncoding(BaseLayer):
    """Adds (or concatenates) the sinusoidal position encoding; it has no weights.

    `PE(pos, 2i) = sin(pos / w^(2i/D))`, `PE(pos, 2i+1) = cos(pos / w^(2i/D))` (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762, section 3.5), computed in float32 whatever the compute dtype
    and cast last. An implicit Keras mask is carried on.

    Args:
        max_wavelength: `w` above, a float.
        combine: "add", or "concat" for `[x; PE]`, which doubles the width.
        layout: "pairs" or "halves"; see `sinusoidal_encoding`.
        first_position: What the first token's position counts as: 2 in M2M-100 and NLLB.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        start: Position of the first token, an int or a scalar tensor (for decoding).
        positions: Optional ints `(batch, length)`, instead of `start, start + 1, ...` (for packed
            rows).

    Returns:
        `(batch, length, hidden_dim)`, or twice as wide for "concat"; dtype of `x`.

    Raises:
        ValueError: If `combine` or `layout` is unknown, `max_wavelength` is an int below 10,000,
            which is taken for a width, or `x` is not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PositionalEncoding
    >>> PositionalEncoding()(np.zeros((2, 5, 8), "float32")).shape[-1]
    8
    """

    def __init__(
        self,
        max_wavelength: float = 10000.0,
        combine: Literal["add", "concat"] = "add",
        layout: Literal["pairs", "halves"] = "pairs",
        first_position: int = 0,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.first_position = whole_number(self, "first_position", first_position, least=0)
        check_wavelength(self, max_wavelength)
        if layout not in ("pairs", "halves"):
            raise ValueError(
                f'PositionalEncoding: `layout` must be "pairs" or "halves". Received: {layout!r}'
            )
        if combine not in ("add", "concat"):
            raise ValueError(
                f'PositionalEncoding: `combine` must be "add" or "concat". '
                f"Received: combine={combine!r}"
            )
        self.max_wavelength = max_wavelength
        self.combine = combine
        self.layout = layout
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)

    def call(self, x: Tensor, start: Index = 0, positions: Tensor | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        if positions is None:
            positions = ops.arange(ops.shape(x)[1], dtype="int32") + start
        positions = positions + self.first_position
        table = sinusoidal_encoding(positions, x.shape[-1], self.max_wavelength, self.layout)
        if self.combine == "add":
            return x + ops.cast(table, x.dtype)
        table = ops.broadcast_to(ops.cast(table, x.dtype), ops.shape(x))
        return ops.concatenate([x, table], axis=-1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (*x_shape[:-1], x_shape[-1] * (1 if self.combine == "add" else 2))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "combine": self.combine,
            "layout": self.layout,
            "first_position": self.first_position,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        # Of a word that is the name of a layer's function, Keras's reader of .h5 files makes that.
        combine = config.get("combine", "add")
        return cls(**{**config, "combine": getattr(combine, "__name__", combine)})


@keras.saving.register_keras_serializable("keras_transformers")
class PositionEmbedding(BaseLayer):
    """Adds a learned vector for each position (BERT, Devlin et al. 2018; ViT, eq. 1).

    Source: https://arxiv.org/abs/1810.04805, section 3, and https://arxiv.org/abs/2010.11929.

    Args:
        max_length: Number of positions in the table.
        initializer: Initialiser of the table.
        first_position: Row of the table that the first token gets: 2 in RoBERTa, OPT and BART,
            whose texts are then at most `max_length - 2` long.
        norm: A norm of the sum, as BART has one, for instance `keras.layers.LayerNormalization()`,
            of which a copy is made; None for none.

    Call arguments:
        x: `(batch, length, hidden_dim)`, `length <= max_length - first_position`.
        start: Position of the first token, an int or a scalar tensor (for decoding).
        positions: Optional ints `(batch, length)`, instead of `start, start + 1, ...`.

    Returns:
        Same shape and dtype as `x`.

    Raises:
        ValueError: If `x` is not of rank 3 or longer than the table.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import PositionEmbedding
    >>> PositionEmbedding(max_length=16)(np.zeros((2, 5, 8), "float32")).shape[1]
    5
    """

    def __init__(
        self,
        max_length: int,
        initializer: Initializer = "truncated_normal",
        first_position: int = 0,
        norm: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if max_length < 1:
            raise ValueError(
                f"PositionEmbedding: `max_length` must be positive. Received: {max_length}"
            )
        self.max_length = max_length
        self.first_position = whole_number(self, "first_position", first_position, least=0)
        if self.first_position >= max_length:
            refuse(self, "first_position", f"less than max_length={max_length}", first_position)
        self.initializer = (
            keras.initializers.TruncatedNormal(stddev=0.02)
            if initializer == "truncated_normal"
            else keras.initializers.get(initializer)
        )
        self.norm = None if norm is None else part(self, "norm", norm, keras.layers.Layer)
        self.supports_masking = True

    @property
    def most_positions(self) -> int:
        """How long a sequence may be."""
        return self.max_length - self.first_position

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.table = self.add_weight(
            name="position_embedding",
            shape=(self.max_length, x_shape[-1]),
            initializer=self.initializer,
            autocast=False,
        )
        if self.norm is not None:
            self.norm.build(x_shape)

    def call(self, x: Tensor, start: Index = 0, positions: Tensor | None = None) -> Tensor:
        x = ops.cast(x, self.compute_dtype)
        first = self.first_position
        if positions is None:
            if isinstance(start, int):  # who decodes has seen to it
                rule = (
                    f"{named(self, 'x')} must end at one of the max_length={self.max_length} "
                    f"positions of the table; it starts at {start + first}."
                )
                x = require(x, [at_most(ops.shape(x)[1], self.most_positions - start)], rule)
            positions = ops.arange(ops.shape(x)[1], dtype="int32") + start
        else:
            positions = as_ids(self, "positions", positions, self.most_positions - 1)
            values = known_values(positions)
            if values is not None and not ((values >= 0) & (values < self.most_positions)).all():
                expected = f"from 0 to {self.most_positions - 1}"
                refuse(self, "positions", expected, f"{values.min()} to {values.max()}")
        x = x + ops.cast(rows_of(self.table, positions + first), x.dtype)
        return x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return x_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_length": self.max_length,
            "initializer": keras.initializers.serialize(self.initializer),
            "first_position": self.first_position,
            "norm": serialized(self.norm),
        }
