"""From token ids to vectors and back to logits."""

import itertools
import math
from collections.abc import Callable
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers import tables
from keras_transformers.layers.adapted import Adapted
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.ids import as_ids, check_ids
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.layers.masks import combine_masks


@keras.saving.register_keras_serializable("keras_transformers")
class TokenEmbedding(Arguments, Adapted, keras.layers.Layer):
    """Token vectors, scaled by `sqrt(hidden_dim)`, with a tied output projection.

    `x = sqrt(D) E[ids]` and `logits(y) = y E^T` (Vaswani et al. 2017, section 3.4,
    https://arxiv.org/abs/1706.03762; Press & Wolf 2017, https://arxiv.org/abs/1608.05859). Unlike
    those of `keras.layers.ReversibleEmbedding`, its logits have no soft cap and the compute dtype;
    and it is quantised by "int8" alone, with Keras's own quantizers.

    Args:
        vocab_size: Number of rows of the table.
        hidden_dim: Width of a row.
        scale: Whether to multiply by `sqrt(hidden_dim)`.
        mask_zero: Whether padding makes an implicit Keras mask, as in `keras.layers.Embedding`.
        logits_bias: Whether the logit of each token has a learned bias of its own.
        padding_id: The id that stands for padding. A negative one is no token's: any row stands for
            it.
        logits_scale: What logits are multiplied by, besides the bias: `hidden_dim ** -0.5` in T5.
        tie_weights: Whether logits come from the table of the vectors; else from one of their own,
            `logits(y) = y U^T`, as in Llama and in T5 from version 1.1 on.

    Call arguments:
        ids: Integers `(batch, length)`, or floats that hold integers, in `[0, vocab_size)`. XLA
            clamps an id outside that range without a word: check ids where they are made.
        reverse: Whether to go the other way, as in `keras.layers.ReversibleEmbedding`: `ids` are
            then vectors `(..., hidden_dim)`, and `logits` of them are returned. An implicit mask is
            carried on.

    Returns:
        `(batch, length, hidden_dim)`, or `(..., vocab_size)` in reverse, in the compute dtype.

    Raises:
        ValueError: If `vocab_size` or `hidden_dim` is not positive, the ids are not integers, or
            the vectors of another width.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import TokenEmbedding
    >>> embedding = TokenEmbedding(vocab_size=11, hidden_dim=6)
    >>> x = embedding(np.array([[1, 2, 3]]))
    >>> tuple(embedding.logits(x).shape)
    (1, 3, 11)
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        scale: bool = True,
        mask_zero: bool = False,
        logits_bias: bool = False,
        padding_id: int = 0,
        logits_scale: float = 1.0,
        tie_weights: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if vocab_size < 1 or hidden_dim < 1:
            raise ValueError(
                f"TokenEmbedding: `vocab_size` and `hidden_dim` must be positive. "
                f"Received: vocab_size={vocab_size}, hidden_dim={hidden_dim}"
            )
        self.vocab_size = vocab_size
        self.hidden_dim = hidden_dim
        self.scale = scale
        self.mask_zero = mask_zero
        self.logits_bias = logits_bias
        self.padding_id = padding_id
        self.logits_scale = logits_scale
        self.tie_weights = tie_weights
        self.supports_masking = True
        self.autocast = False  # half precision would round ids that are held in floats
        self._reversed = False
        self.table_scale: Any = None  # of a quantised table
        self.output_scale: Any = None  # of that which makes logits
        self.bias: Any = None

    def build(self, ids_shape: Shape | None = None) -> None:
        self._make_tables(int8=self.quantization_mode == "int8")  # out of a file
        if self.logits_bias:
            self.bias = self.add_weight(
                name="logits_bias", shape=(self.vocab_size,), initializer="zeros"
            )

    def _make_tables(self, int8: bool) -> None:
        make = self._int8_table if int8 else self._float_table
        self.table, self.table_scale = make("token_embedding")
        self.output_scale = self.table_scale
        if not self.tie_weights:
            self.output_embedding, self.output_scale = make("output_embedding")

    def _float_table(self, name: str) -> tuple[Any, Any]:
        # D^-0.5: unit variance after scaling, and logits of unit size for a normalised input.
        table = self.add_weight(
            name=name,
            shape=(self.vocab_size, self.hidden_dim),
            initializer=keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5),
            autocast=False,  # the gradient of a row is a sum over its tokens, in float32
        )
        return table, None

    def call(self, ids: Tensor, reverse: bool = False) -> Tensor:
        self._check(ids, reverse)
        if reverse:
            return self.logits(ids)
        return self.vectors(as_ids(self, "ids", ids, self.vocab_size - 1))

    def vectors(self, ids: Tensor) -> Tensor:
        """`call` without checks, for int32 ids that a program has made."""
        ids = ops.maximum(ids, 0) if self.padding_id < 0 else ids
        x = ops.cast(ops.take(self.table, ids, axis=0), self.compute_dtype)
        if self.table_scale is not None:
            x = x / ops.cast(ops.take(self.table_scale, ids, axis=0)[..., None], x.dtype)
        if self.changes is not None:
            x = self.changes.alter_rows(ids, x, self.float_kernel)
        return x * ops.cast(math.sqrt(self.hidden_dim), x.dtype) if self.scale else x

    def _check(self, x: Any, reverse: bool) -> None:
        """Notes which way, for `compute_mask` is not told, and checks vectors."""
        self._reversed = reverse
        if reverse and (not x.shape or x.shape[-1] not in (None, self.hidden_dim)):
            expected = f"vectors of shape (..., {self.hidden_dim}) in reverse"
            refuse(self, "ids", expected, f"shape {tuple(x.shape)}")

    def logits(self, x: Tensor) -> Tensor:
        """Scores every token of the vocabulary: `(..., hidden_dim)` -> `(..., vocab_size)`.

        `s x E^T` or `s x U^T`, `s` being `logits_scale`, and the bias of each token if there is.
        In a functional model this is a call of the layer, with `reverse=True`.
        """
        if isinstance(x, keras.KerasTensor):  # a product made here would have a copy of the table
            return self(x, reverse=True)
        x = self.before_logits(x)
        if self.table_scale is None and self._table_changes is None:
            table = ops.transpose(ops.cast(self._output_weights, self.compute_dtype))
            return self._with_bias(ops.matmul(ops.cast(x, self.compute_dtype), table))
        y = self._row_logits(ops.reshape(x, (-1, self.hidden_dim)), self._times_whole)
        return self._with_bias(ops.reshape(y, (*ops.shape(x)[:-1], self.vocab_size)))

    @property
    def output_table(self) -> Any:
        """The weights `(vocab_size, hidden_dim)` that make logits, as an adapter changes them."""
        changes, table = self._table_changes, self._output_weights
        return table if changes is None else changes.alter_whole(table)

    @property
    def _output_weights(self) -> Any:
        return self.table if self.tie_weights else self.output_embedding

    @property
    def _table_changes(self) -> LowRank | None:
        """The adapter where it changes logits, too."""
        return self.changes if self.tie_weights else None

    def _row_logits(self, rows: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits of `(n, hidden_dim)` without bias, `product` being that with the table."""
        product = product if self.table_scale is None else self._int8_logits
        changes = self._table_changes
        rows = ops.cast(rows, self.compute_dtype)
        if changes is None:
            return product(rows)
        return changes.alter_reversed(rows, product, self.float_kernel)

    def _times_whole(self, rows: Tensor) -> Tensor:
        return ops.matmul(rows, ops.transpose(ops.cast(self._output_weights, rows.dtype)))

    def before_logits(self, x: Tensor) -> Tensor:
        """Vectors as the table that makes logits takes them."""
        return x if self.logits_scale == 1 else x * ops.cast(self.logits_scale, x.dtype)

    def _with_bias(self, logits: Tensor) -> Tensor:
        return logits if self.bias is None else logits + ops.cast(self.bias, logits.dtype)

    def step_logits(self, x: Tensor) -> Tensor:
        """`logits` for one token of every sequence, `(batch, beams, hidden_dim)`: see `tables`."""
        if isinstance(x, keras.KerasTensor):
            return self(x, reverse=True)
        x = self.before_logits(x)
        alone = x.shape[0] == x.shape[1] == 1  # as far as is known when tracing

        def product(rows: Tensor) -> Tensor:
            return tables.step_product(rows, ops.cast(self._output_weights, rows.dtype), alone)

        y = self._row_logits(ops.reshape(x, (-1, self.hidden_dim)), product)
        y = ops.reshape(y, (-1, x.shape[1], self.vocab_size))
        return y if self.bias is None else y + ops.cast(self.bias, y.dtype)

    def output_rows(self, ids: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Weights `(n, hidden_dim)` for logits of some tokens; scales or None; biases or None."""
        made_of = (self._output_weights, self.output_scale, self.bias)
        taken: Any = (None if x is None else ops.take(x, ids, axis=0) for x in made_of)
        rows, scale, bias = taken
        if self._table_changes is not None:
            rows = ops.cast(rows, "float32") / (1.0 if scale is None else scale[:, None])
            rows, scale = self._table_changes.alter_rows(ids, rows, self.float_kernel), None
        return rows, scale, bias

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Keeps tables in 8 bits with a scale for each row, for inference; see `in_precision`.

        Raises:
            NotImplementedError: If `mode` is not "int8", or `config` has quantizers of its own;
                Keras then leaves the layer as it is.
        """
        tables.check_int8(self, mode, config)
        made_of = [tables.rounded(self.table, self._padding_rows())]
        del self.table
        if not self.tie_weights:
            made_of.append(tables.rounded(self.output_embedding, self._padding_rows()))
            del self.output_embedding
        self._make_tables(int8=True)
        made = [self.table, self.table_scale, self._output_weights, self.output_scale]
        for weight, value in zip(made, itertools.chain(*made_of), strict=False):
            weight.assign(value)
        policy = getattr(self.dtype_policy, "default_policy", self.dtype_policy)
        self.dtype_policy = f"int8_from_{policy.name}"

    def _padding_rows(self) -> int:
        """Rows that make whole blocks of the table, or its product would be the slow one."""
        return -self.vocab_size % tables.BLOCKS

    def _int8_table(self, name: str) -> tuple[Any, Any]:
        rows = self.vocab_size + self._padding_rows()
        kept = {"initializer": "zeros", "trainable": False}
        self._is_quantized = True
        return (
            self.add_weight(name=name, shape=(rows, self.hidden_dim), dtype="int8", **kept),
            self.add_weight(name=f"{name}_scale", shape=(rows,), dtype="float32", **kept),
        )

    def _int8_call(self, ids: Tensor, reverse: bool = False) -> Tensor:
        """What Keras calls where the policy is an 8-bit one."""
        return self.call(ids, reverse)

    def _int8_logits(self, rows: Tensor) -> Tensor:
        product = tables.int8_product(rows, self._output_weights, self.output_scale)
        return product[:, : self.vocab_size]

    def matrix_shape(self) -> tuple[int, int]:
        return self.vocab_size, self.hidden_dim

    def kernel_variable(self) -> Any:
        return self.table if self.table_scale is None else None

    def float_kernel(self) -> Tensor:
        table = ops.cast(self.table, "float32")
        table = table if self.table_scale is None else table / self.table_scale[:, None]
        return table[: self.vocab_size]

    def compute_mask(self, ids: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        reverse, self._reversed = self._reversed, False
        masked = self.mask_zero and not reverse
        real = ops.not_equal(ids, self.padding_id) if masked else None
        return combine_masks(previous_mask, real)

    def compute_output_shape(self, ids_shape: Shape, reverse: bool = False) -> Shape:
        return (*ids_shape[:-1], self.vocab_size) if reverse else (*ids_shape, self.hidden_dim)

    def compute_output_spec(self, ids: Any, reverse: bool = False) -> keras.KerasTensor:
        self._check(ids, reverse)
        if not reverse:
            check_ids(self, "ids", ids, self.vocab_size - 1)
        shape = self.compute_output_shape(ids.shape, reverse)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
            "mask_zero": self.mask_zero,
            "logits_bias": self.logits_bias,
            "padding_id": self.padding_id,
            "logits_scale": self.logits_scale,
            "tie_weights": self.tie_weights,
        }
