"""What multi-head attention does between its projections, in parts that a subclass may override."""

from collections.abc import Sequence

from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.layers.attention.fused import Way, attend_without_weights, way_of
from keras_transformers.layers.attention.scores import product, regroup, softmax_of_visible
from keras_transformers.layers.attention.settings import AttentionSettings
from keras_transformers.layers.masks import causal_mask, combine_masks


class AttentionHooks(AttentionSettings):
    """The hooks of `MultiHeadAttention`, and which of its ways a call goes."""

    def prepare_query(self, query: Tensor, positions: Tensor | None) -> Tensor:
        """A hook: queries as they are compared.

        Args:
            query: `(batch, heads, queries, key_dim)`.
            positions: int32 `(queries,)`; None in cross-attention token by token.

        Returns:
            Same shape.
        """
        query = self.score.normalize_query(query)
        if self.position is not None:
            query = self.position.transform(query, positions)
        return self.score.prepare_query(query)

    def prepare_key(self, key: Tensor, positions: Tensor | None) -> Tensor:
        """A hook: keys `(batch, key_value_heads, keys, key_dim)` as compared and cached."""
        key = self.score.normalize_key(key)
        if self.position is not None:
            key = self.position.transform(key, positions)
        return self.score.prepare_key(key)

    def make_mask(
        self,
        query: Tensor,
        key: Tensor,
        attention_mask: Tensor | None,
        padding: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        """A hook: what each query may attend to.

        Args:
            query, key: The inputs, `(batch, queries, width)` and `(batch, keys, width)`.
            attention_mask: The caller's, bool `(queries, keys)` or `(batch, heads, queries, keys)`,
                axes of which may be 1; or None.
            padding: Bool `(batch, keys)`, True = real token; or None.
            causal: Whether query `i` sees keys `0 .. i` only.

        Returns:
            What `attend` takes as `mask`: bool that broadcasts against `(batch, heads, queries,
            keys)`, or None for everything.
        """
        masks = [] if attention_mask is None else [attention_mask]
        if causal:
            masks.append(causal_mask(ops.shape(query)[1], ops.shape(key)[1]))
        if padding is not None:
            masks.append(ops.expand_dims(padding, (1, 2)))  # LiteRT has no `[:, None, None]` here
        return combine_masks(*masks) if masks else None

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None,
        positions: Sequence[Tensor], training: bool | None = None
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """A hook: from what was prepared to the output of the heads.

        Args:
            query: `(batch, heads, queries, key_dim)`.
            key: `(batch, key_value_heads, keys, key_dim)`.
            value: `(batch, key_value_heads, keys, value_dim)`.
            mask: From `make_mask`.
            bias: Added to the scores `(batch, heads, queries, keys)`, against which it broadcasts;
                or None.
            positions: Those of the queries and of the keys, int32 vectors.
            training: Whether dropout acts.

        Returns:
            `(batch, heads, queries, value_dim)`, and the weights before dropout `(batch, heads,
            queries, keys)`, or None where there are none.
        """
        heads, shared = query.shape[1], key.shape[1]
        if self.position is not None:
            term = self.position.bias(query, *positions)
            bias = term if bias is None else bias if term is None else ops.add(bias, term)
        together = query if heads == shared else regroup(query, shared)
        scores = self.score.compare(together, key)  # (batch, shared, group * queries, keys)
        scores = scores if heads == shared else regroup(scores, heads)
        weights = ops.cast(softmax_of_visible(scores, mask, bias), query.dtype)
        weights = weights if self.attention_change is None else self.attention_change(weights)
        dropped = self.dropout_layer(weights, training=True) if training else weights
        y = product(dropped, value)  # (batch, heads, queries, value_dim)
        more = None if self.position is None else self.position.values(dropped, *positions)
        return y if more is None else y + more, weights

    def attend_to(
        self, inputs: tuple[Tensor, Tensor], prepared: tuple[Tensor, Tensor, Tensor],
        pairs: Tensor | None, padding: Tensor | None, causal: bool, bias: Tensor | None,
        positions: Sequence[Tensor], training: bool | None = None, wanted: bool = False
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """`attend` under `make_mask`, or another way to the same output where nobody is to see it.

        The weights of all pairs are made where they are wanted, where `attend` is overridden, and
        where `way_of` says "plain".

        Args:
            inputs: `query` and `key` of the call, `(batch, length, width)`.
            prepared: Queries, keys and values as `attend` takes them.
            pairs, padding, causal: As `make_mask` takes them.
            bias, positions, training: As `attend` takes them.
            wanted: Whether the weights are.

        Returns:
            As `attend`; None in place of weights that were not made.
        """
        overridden = type(self).attend is not AttentionHooks.attend
        wanted = wanted or self.attention_change is not None
        way: Way = "plain" if wanted or overridden else way_of(self, *inputs, training)
        # A mask of one's own may depend on `causal` in any manner.
        as_flag = way != "plain" and type(self).make_mask is AttentionHooks.make_mask
        mask = self.make_mask(*inputs, pairs, padding, causal and not as_flag)
        if way == "plain":
            return self.attend(*prepared, mask, bias, positions, training)
        causal = causal and as_flag
        return attend_without_weights(self, way, *prepared, mask, bias, causal, training), None
