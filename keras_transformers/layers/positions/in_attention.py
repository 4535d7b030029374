"""Positions inside attention: what a score, or a value, owes to where query and key stand."""

import math
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array, LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import refuse, whole_number
from keras_transformers.layers.positions.sequence import rows_of


@keras.saving.register_keras_serializable("keras_transformers")
class AttentionPositionEncoding(Arguments, keras.layers.Layer):
    """Base of the terms that attention takes as `position`; by itself it does nothing.

    A term of one's own overrides what differs. Weights are made in `build`, from the shape of the
    query, `(batch, heads, queries, key_dim)`. Positions are int32 vectors.

    Attributes:
        relative: Whether only the difference of two positions matters. `LocalAttention` takes no
            others, as it counts positions anew in each of its blocks.
        shareable: Whether the term is a `bias` alone, and one that is made without the query, so
            that the blocks of a stack can share one, as those of `models.Transformer` do.
        most_cached: Number of tokens of a text up to which what was made of the first ones stays
            right, as decoding token by token keeps it; None without end.

    Example: a penalty of one for every other position.
    >>> import keras
    >>> import numpy as np
    >>> from keras import ops
    >>> from keras_transformers.layers import AttentionPositionEncoding, SelfAttention
    >>> @keras.saving.register_keras_serializable()
    ... class Elsewhere(AttentionPositionEncoding):
    ...     def bias(self, query, query_positions, key_positions):
    ...         other = query_positions[:, None] != key_positions[None, :]
    ...         return -ops.cast(other, "float32")
    >>> layer = SelfAttention(num_heads=2, position=Elsewhere())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    relative = True
    shareable = False
    most_cached: int | None = None
    _refuse = refuse

    def build(self, query_shape: Shape) -> None:
        pass

    def fits(self, x: Tensor, causal: bool) -> Tensor:
        """`x` `(batch, length, width)` of self-attention, if the term is made for that length."""
        return x

    def transform(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys `(batch, heads, length, key_dim)` as they are compared at positions."""
        return x

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """What is added to the scores: broadcasts against `(batch, heads, queries, keys)`, or None.

        `query` is `(batch, heads, queries, key_dim)` as the score prepared it (for the scaled dot
        product, divided by `sqrt(key_dim)`).
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        """What is added to the output, `(batch, heads, queries, value_dim)`, or None.

        `weights` is `(batch, heads, queries, keys)`.
        """
        return None

    def get_config(self) -> dict[str, Any]:
        return super().get_config()  # Keras's automatic one knows no dtype policy


def _distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """`j - i` for a query at `i` and a key at `j`, int32 `(queries, keys)`."""
    return key_positions[None, :] - query_positions[:, None]


@keras.saving.register_keras_serializable("keras_transformers")
class ALiBi(AttentionPositionEncoding):
    """Linear biases: a score falls with the distance, at a slope of its own in each head.

    `a(q_i, k_j) - m_h |i - j|` (Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3),
    with `m_h = 2^(-8 h / H)` for `h = 1 .. H`; where H is no power of two, those of the next
    smaller power and every other one of twice as many, as the authors' code has it. There are no
    weights. Under a causal mask the term is the paper's; in both directions it is symmetric.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ALiBi, CausalSelfAttention
    >>> layer = CausalSelfAttention(num_heads=2, position=ALiBi())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    shareable = True

    def build(self, query_shape: Shape) -> None:
        heads = query_shape[1]
        power = 2 ** math.floor(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
        between = [2 ** (-8 * (i + 0.5) / power) for i in range(power)]
        self._slopes = np.array(slopes + between[: heads - power], "float32")

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = ops.absolute(_distances(query_positions, key_positions))
        return -ops.cast(distance, "float32") * self._slopes[:, None, None]


@keras.saving.register_keras_serializable("keras_transformers")
class RelativePositionBias(AttentionPositionEncoding):
    """A learned bias for each head and bucket of distances (T5).

    Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1: half of the buckets hold one
    distance each, the other half grow logarithmically up to `max_distance`, and the last holds all
    beyond. In both directions each gets half of the buckets; under a causal mask, where no key
    comes after its query, all of them serve the keys before.

    Args:
        num_buckets: Number of buckets.
        max_distance: Distance from which on all are in the last bucket.
        bidirectional: Whether keys after the query have buckets too; False for causal attention.

    Raises:
        ValueError: If there are fewer than 2 buckets for a direction, or `max_distance` is not
            beyond the buckets of one distance each.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RelativePositionBias, SelfAttention
    >>> layer = SelfAttention(num_heads=2, position=RelativePositionBias())
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    shareable = True

    def __init__(
        self,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        num_buckets = whole_number(self, "num_buckets", num_buckets)
        max_distance = whole_number(self, "max_distance", max_distance)
        directions = 2 if bidirectional else 1
        if num_buckets < 2 * directions or num_buckets % (2 * directions):
            self._refuse("num_buckets", f"a positive multiple of {2 * directions}", num_buckets)
        if max_distance <= num_buckets // directions // 2:
            expected = f"more than {num_buckets // directions // 2}, the distances counted singly"
            self._refuse("max_distance", expected, max_distance)
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self._buckets = self._bucket_of_distance()

    def _bucket_of_distance(self) -> Array:
        """int32 `(max_distance + 1,)`: the bucket of each distance in one direction."""
        buckets = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        exact = buckets // 2
        distance = np.arange(self.max_distance + 1)
        growth = np.log(np.maximum(distance, 1) / exact) / np.log(self.max_distance / exact)
        # The small number lets a logarithm that should be whole come out whole.
        wide = exact + np.int32(np.floor(growth * (buckets - exact) + 1e-6))
        return np.where(distance < exact, distance, np.minimum(wide, buckets - 1)).astype("int32")

    def build(self, query_shape: Shape) -> None:
        self.table = self.add_weight(
            name="relative_bias",
            shape=(self.num_buckets, query_shape[1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            autocast=False,
        )

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = _distances(query_positions, key_positions)
        near = ops.absolute(distance) if self.bidirectional else ops.maximum(-distance, 0)
        bucket = ops.take(self._buckets, ops.minimum(near, self.max_distance), axis=0)
        if self.bidirectional:
            after = ops.cast(distance > 0, "int32")
            bucket = bucket + after * (self.num_buckets // 2)
        bias = ops.cast(rows_of(self.table, bucket), self.compute_dtype)
        return ops.transpose(bias, (2, 0, 1))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
        }


@keras.saving.register_keras_serializable("keras_transformers")
class ShawRelativePosition(AttentionPositionEncoding):
    """A learned key and a learned value for each distance, clipped.

    `e_ij = q_i (k_j + a^K_(j-i))^T / sqrt(d_k)`, `z_i = sum_j w_ij (v_j + a^V_(j-i))` (Shaw et al.
    2018, https://arxiv.org/abs/1803.02155, eq. 3 and 4), the heads sharing both tables, as in the
    paper. All pairs of positions take `queries * keys * (key_dim + value_dim)` numbers, whatever
    the batch and the number of heads.

    Args:
        max_distance: Distances are clipped to `-max_distance .. max_distance` (the paper's k).
        use_values: Whether there is a table of values; False keeps the keys' only.
        value_dim: Width of a value in one head; by default that of a query.

    Raises:
        ValueError: If `max_distance` is negative.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import SelfAttention, ShawRelativePosition
    >>> layer = SelfAttention(num_heads=2, position=ShawRelativePosition(max_distance=4))
    >>> tuple(layer(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        max_distance: int = 16,
        use_values: bool = True,
        value_dim: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.max_distance = whole_number(self, "max_distance", max_distance, least=0)
        self.use_values = use_values
        self.value_dim = whole_number(self, "value_dim", value_dim, optional=True)

    def build(self, query_shape: Shape) -> None:
        distances = 2 * self.max_distance + 1
        self.keys = self.add_weight(
            name="relative_key",
            shape=(distances, query_shape[-1]),
            initializer="glorot_uniform",
            autocast=False,
        )
        self.table_of_values = None
        if self.use_values:
            self.table_of_values = self.add_weight(
                name="relative_value",
                shape=(distances, self.value_dim or query_shape[-1]),
                initializer="glorot_uniform",
                autocast=False,
            )

    def _of_pairs(
        self, table: Any, query_positions: Tensor, key_positions: Tensor, dtype: Any
    ) -> Tensor:
        distance = _distances(query_positions, key_positions)
        position = ops.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        return ops.cast(rows_of(table, position), dtype)  # (queries, keys, dim)

    def bias(self, query: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        keys = self._of_pairs(self.keys, query_positions, key_positions, query.dtype)
        return ops.einsum("bhqd,qkd->bhqk", query, keys)

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor | None:
        if self.table_of_values is None:
            return None
        values = self._of_pairs(self.table_of_values, query_positions, key_positions, weights.dtype)
        return ops.einsum("bhqk,qkd->bhqd", weights, values)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_distance": self.max_distance,
            "use_values": self.use_values,
            "value_dim": self.value_dim,
        }
