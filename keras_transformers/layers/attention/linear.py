"""Self-attention whose cost is linear in the length, by a feature map in place of the softmax."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Tensor
from keras_transformers.layers.attention.multi_head import ProjectionOptions, SelfAttention
from keras_transformers.layers.attention.scores import batch_size

CHUNK = 64


@keras.saving.register_keras_serializable("keras_transformers")
class LinearAttention(SelfAttention):
    """Self-attention with `phi(q)^T phi(k)` in place of `exp(q^T k)`: time `O(length)`.

    `y_i = phi(q_i)^T sum_j phi(k_j) v_j^T / (phi(q_i)^T sum_j phi(k_j))`, `phi(x) = elu(x) + 1`,
    the sums over all tokens or, with `causal`, over those up to `i` (Katharopoulos et al. 2020,
    https://arxiv.org/abs/2006.16236, eq. 5, 7 and 9). Sums are taken in float32; causal ones over
    chunks of 64 tokens, so that no more than `length / 64` sums of a head exist at once.

    Args:
        num_heads: Number of heads.
        causal: Whether later tokens are hidden.
        key_dim, value_dim, use_bias, output_shape, ...: See `MultiHeadAttention`. As no pair has a
            score, there is no `score`, `position`, `dropout` or `num_key_value_heads`.

    Call arguments:
        x: `(batch, length, hidden_dim)`.
        training: Makes no difference.
        mask, x_mask: `(batch, length)` padding mask, filled in by Keras.

    Returns:
        `(batch, length, hidden_dim)`; zeros, before the output projection, where there is nothing
        to attend to.

    Raises:
        ValueError: As `MultiHeadAttention`, and for an argument that cannot act.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import LinearAttention
    >>> tuple(LinearAttention(num_heads=2)(np.ones((3, 5, 8), "float32")).shape)
    (3, 5, 8)
    """

    def __init__(
        self, num_heads: int, causal: bool = False, **kwargs: Unpack[ProjectionOptions]
    ) -> None:
        given: dict[str, Any] = {**kwargs}
        unused = sorted({"score", "position", "dropout", "num_key_value_heads"} & given.keys())
        if unused:
            raise ValueError(
                f"LinearAttention: `{unused[0]}` cannot act, as no pair of tokens has a score. "
                f"Received: {unused[0]}={given[unused[0]]!r}"
            )
        super().__init__(num_heads, score="dot", **kwargs)
        self.causal = causal

    def call(
        self,
        x: Tensor,
        training: bool | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
    ) -> Any:
        return super().call(x, training=training, mask=mask, x_mask=x_mask)

    def make_mask(
        self,
        query: Tensor,
        key: Tensor,
        attention_mask: Tensor,
        padding: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        return padding

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        positions: Sequence[Tensor],
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        dtype, precise = query.dtype, keras.backend.result_type(query.dtype, "float32")
        query, key, value = (ops.cast(x, precise) for x in (query, key, value))
        query, key = ops.elu(query) + 1, ops.elu(key) + 1
        if mask is not None:
            key = key * ops.cast(mask, precise)[:, None, :, None]
        # One more value, always 1, sums up the weights.
        value = ops.concatenate([value, ops.ones_like(value[..., :1])], axis=-1)
        sums = (_causal_sums if self.causal else _sums)(query, key, value)
        output = ops.divide_no_nan(sums[..., :-1], sums[..., -1:])
        return ops.cast(output, dtype), None

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("score", "position", "dropout", "num_key_value_heads"):
            del config[name]
        return {**config, "causal": self.causal}


def _sums(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`q_i^T sum_j k_j v_j^T`: `(batch, heads, length, value_dim)`."""
    return ops.matmul(query, ops.matmul(ops.swapaxes(key, 2, 3), value))


def _causal_sums(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """`q_i^T sum_(j <= i) k_j v_j^T`, by pairs inside a chunk and by sums before it."""
    batch, length = batch_size(query), ops.shape(query)[2]
    chunks = (length + CHUNK - 1) // CHUNK

    def cut(x: Tensor) -> Tensor:
        x = ops.pad(x, ((0, 0), (0, 0), (0, chunks * CHUNK - length), (0, 0)))
        return ops.reshape(x, (batch, x.shape[1], chunks, CHUNK, x.shape[3]))

    query, key, value = map(cut, (query, key, value))
    columns = ops.swapaxes(key, 3, 4)
    pairs = ops.matmul(query, columns) * ops.tril(ops.ones((CHUNK, CHUNK), query.dtype))
    states = ops.matmul(columns, value)  # (batch, heads, chunks, key_dim, value_dim)
    before = ops.cumsum(states, axis=2) - states
    sums = ops.matmul(pairs, value) + ops.matmul(query, before)
    shape = (batch, sums.shape[1], chunks * CHUNK, sums.shape[4])
    return ops.reshape(sums, shape)[:, :, :length]
