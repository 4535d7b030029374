"""Token embeddings, and products with token tables."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.core.backend import KERNELS, custom_gradient
from keras_transformers.core.types import Array, LayerOptions, Shape, Tensor
from keras_transformers.layers.adapters import Adapted
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import as_ids, check_ids, refuse
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.layers.masks import combine_masks

BLOCKS = 8  # as many as rows would be slow
FEW = 32  # rows up to which blocks of the table are quicker than the whole
QUANTIZED = 4096  # rows at once


@functools.cache
def _equal_blocks(rows: int) -> int:
    """Number of equal blocks that rows of a table make, near `BLOCKS`: 29 of GPT-2's 50,257."""
    numbers = (number for number in range(2, 4 * BLOCKS + 1) if rows % number == 0)
    return min(numbers, key=lambda number: abs(number - BLOCKS), default=1)


def times_table(table: Any, rows: Tensor) -> Tensor:
    """`rows E^T`, computed as `(E rows^T)^T`; few rows with each block of `E` on its own."""
    if table.shape[0] is None:
        return ops.transpose(ops.matmul(table, ops.transpose(rows)))
    few = rows.shape[0] is not None and rows.shape[0] <= FEW
    blocks = _equal_blocks(table.shape[0]) if few else 1
    table = ops.reshape(table, (blocks, -1, table.shape[1]))
    y = ops.matmul(table, ops.tile(ops.transpose(rows)[None], (blocks, 1, 1)))
    return ops.transpose(ops.reshape(y, (table.shape[1] * blocks, -1)))


def step_product(rows: Tensor, table: Tensor, alone: bool) -> Tensor:
    """`rows E^T` of one token of every sequence; `alone` where it is one of one sentence.

    XLA on a CPU is quicker at few rows this way round, and slower at the many of training. From
    2 to 32 are multiplied with blocks of the table, which all cores read; more with the whole,
    and one alone the other way round. Logits and the largest of each row, for 32,000 tokens of
    width 512, blocks against whole: 2.3 and 4.0 ms for 4 rows, 3.3 and 4.6 for 8, 6.1 and 6.6
    for 32, 21 and 15 for 128; in 8 bits 0.6 and 1.3, 1.3 and 1.6, 3.4 and 3.4, 18 and 10 (two
    cores of an AMD EPYC with AVX-512).
    """
    kernels = KERNELS.get()
    if kernels is not None:
        found: Tensor = kernels.table_product(rows, table)
        return found
    return ops.matmul(rows, ops.transpose(table)) if alone else times_table(table, rows)


def int8_product(rows: Tensor, table: Any, scale: Any) -> Tensor:
    """`rows (table / scale)^T` of `(n, width)`, as a product of 8-bit numbers.

    Rows are quantised one by one. Their gradient is that of the product with numbers as they are.
    """

    def forward(rows: Tensor, table: Tensor, scale: Tensor) -> tuple[Tensor]:
        values, scales = abs_max_quantize(rows, axis=-1)
        alone = rows.shape[0] == 1  # takes longer than two
        y = times_table(table, ops.concatenate([values, values]) if alone else values)
        scales = ops.cast(scales, "float32")  # of bfloat16 rows they are bfloat16
        y = ops.cast(y[:1] if alone else y, "float32") / (scale * scales)
        return (ops.cast(y, rows.dtype),)

    def backward(
        tensors: tuple[Tensor, ...], found: tuple[Tensor, ...], upstream: Tensor
    ) -> list[Tensor | None]:
        rows, table, scale = tensors
        upstream = ops.cast(ops.cast(upstream, "float32") / scale, rows.dtype)
        return [ops.matmul(upstream, ops.cast(table, rows.dtype)), None, None]

    def plain(rows: Tensor, table: Tensor, scale: Tensor) -> Tensor:
        y = ops.matmul(rows, ops.transpose(ops.cast(table, rows.dtype)))
        return ops.cast(ops.cast(y, "float32") / scale, rows.dtype)

    product = custom_gradient(forward, backward, plain)
    return product(rows, table, ops.stop_gradient(ops.convert_to_tensor(scale)))


def check_int8(layer: Any, mode: str, config: Any) -> None:
    """NotImplementedError, as Keras expects it, unless a layer is to be quantised in our way."""
    wrong = None if mode == "int8" else ("mode", "'int8'", repr(mode))
    if not wrong and config is not None and config.get_config() != type(config)().get_config():
        wrong = ("config", "without quantizers of its own", config.get_config())
    if wrong:
        name, expected, received = wrong
        raise NotImplementedError(
            f"{type(layer).__name__} '{layer.name}': `{name}` must be {expected}. "
            f"Received: {received}"
        )


def rounded(table: Any, padding: int) -> tuple[Array, Array]:
    """A table in 8 bits, with `padding` further rows, and the scale of each row."""
    rows, width = table.shape
    values, scale = np.zeros((rows + padding, width), "int8"), np.ones(rows + padding, "float32")
    for start in range(0, rows, QUANTIZED):  # there may be no memory for all
        some = slice(start, min(start + QUANTIZED, rows))
        values[some], scales = abs_max_quantize(table[some], axis=-1, to_numpy=True)
        scale[some] = scales[:, 0]
    return values, scale


class ListedTokens:
    """The part of a `TokenEmbedding` that scores some tokens, taken out of it once.

    Args:
        embedding: A built `TokenEmbedding`.
        ids: Integers `(n,)`; of a negative one any row is taken.
    """

    def __init__(self, embedding: Any, ids: Tensor) -> None:
        self._embedding = embedding
        rows, self._scale, self._bias = embedding.output_rows(ops.maximum(ids, 0))
        self._rows = rows if self._scale is not None else ops.cast(rows, embedding.compute_dtype)

    def step_logits(self, x: Tensor) -> Tensor:
        """As `TokenEmbedding.step_logits`: `(batch, beams, hidden_dim)` -> `(batch, beams, n)`."""
        alone = x.shape[0] == x.shape[1] == 1
        x, beams = self._embedding.before_logits(x), x.shape[1]
        rows = ops.cast(ops.reshape(x, (-1, x.shape[2])), self._embedding.compute_dtype)
        if self._scale is None:
            y = step_product(rows, self._rows, alone)
        else:
            y = int8_product(rows, self._rows, self._scale)
        y = ops.reshape(y, (-1, beams, ops.shape(self._rows)[0]))
        return y if self._bias is None else y + ops.cast(self._bias, y.dtype)


@keras.saving.register_keras_serializable("keras_transformers")
class TokenEmbedding(Adapted, BaseLayer):
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
        self._reversed = reverse  # for `compute_mask`, which is not told
        if reverse:
            self._check_vectors(ids)
            return self.logits(ids)
        if ids.dtype != "int32":
            ids = as_ids(self, "ids", ids, self.vocab_size - 1)
        return self.vectors(ids)

    def vectors(self, ids: Tensor) -> Tensor:
        """Returns `sqrt(D) E[ids]`, `(batch, length, hidden_dim)`, without checking int32 ids."""
        ids = ops.maximum(ids, 0) if self.padding_id < 0 else ids
        x = ops.cast(ops.take(self.table, ids, axis=0), self.compute_dtype)
        if self.table_scale is not None:
            x = x / ops.cast(ops.take(self.table_scale, ids, axis=0)[..., None], x.dtype)
        if getattr(self, "adapter", None) is not None and self.changes is not None:
            x = self.changes.alter_rows(ids, x, self.float_kernel)
        return x * ops.cast(math.sqrt(self.hidden_dim), x.dtype) if self.scale else x

    def _check_vectors(self, x: Any) -> None:
        """Raises ValueError unless vectors have the width of the table."""
        if not x.shape or x.shape[-1] not in (None, self.hidden_dim):
            expected = f"vectors of shape (..., {self.hidden_dim}) in reverse"
            refuse(self, "ids", expected, f"shape {tuple(x.shape)}")

    def logits(self, x: Tensor) -> Tensor:
        """Scores every token of the vocabulary: `(..., hidden_dim)` -> `(..., vocab_size)`.

        `s x E^T` or `s x U^T`, `s` being `logits_scale`, and the bias of each token if there is.
        In a functional model this is a call of the layer, with `reverse=True`.
        """
        if isinstance(x, keras.KerasTensor):  # a product made here would have a copy of the table
            return self(x, reverse=True)
        if self.logits_scale != 1:
            x = self.before_logits(x)
        if self.table_scale is None and getattr(self, "adapter", None) is None:
            table = self.table if self.tie_weights else self.output_embedding
            table = ops.transpose(ops.cast(table, self.compute_dtype))
            y = ops.matmul(ops.cast(x, self.compute_dtype), table)
        else:
            y = self._row_logits(ops.reshape(x, (-1, self.hidden_dim)), self._times_whole)
            y = ops.reshape(y, (*ops.shape(x)[:-1], self.vocab_size))
        return y if self.bias is None else y + ops.cast(self.bias, y.dtype)

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

    def step_logits(self, x: Tensor) -> Tensor:
        """`logits` for one token of every sequence, `(batch, beams, hidden_dim)`: see `tables`."""
        if isinstance(x, keras.KerasTensor):
            return self(x, reverse=True)
        if self.logits_scale != 1:
            x = self.before_logits(x)
        alone = x.shape[0] == x.shape[1] == 1  # as far as is known when tracing
        rows = ops.cast(ops.reshape(x, (-1, self.hidden_dim)), self.compute_dtype)
        if self.table_scale is None and getattr(self, "adapter", None) is None:
            table = self.table if self.tie_weights else self.output_embedding
            y = step_product(rows, ops.cast(table, rows.dtype), alone)
        else:

            def product(rows: Tensor) -> Tensor:
                return step_product(rows, ops.cast(self._output_weights, rows.dtype), alone)

            y = self._row_logits(rows, product)
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
        check_int8(self, mode, config)
        made_of = [rounded(self.table, self._padding_rows())]
        del self.table
        if not self.tie_weights:
            made_of.append(rounded(self.output_embedding, self._padding_rows()))
            del self.output_embedding
        self._make_tables(int8=True)
        made = [self.table, self.table_scale, self._output_weights, self.output_scale]
        for weight, value in zip(made, itertools.chain(*made_of), strict=False):
            weight.assign(value)
        policy = getattr(self.dtype_policy, "default_policy", self.dtype_policy)
        self.dtype_policy = f"int8_from_{policy.name}"

    def _padding_rows(self) -> int:
        """Rows that make whole blocks of the table, or its product would be the slow one."""
        return -self.vocab_size % BLOCKS

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
        product = int8_product(rows, self._output_weights, self.output_scale)
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
        if not masked:
            return previous_mask
        return combine_masks(previous_mask, ops.not_equal(ids, self.padding_id))

    def compute_output_shape(self, ids_shape: Shape, reverse: bool = False) -> Shape:
        return (*ids_shape[:-1], self.vocab_size) if reverse else (*ids_shape, self.hidden_dim)

    def compute_output_spec(self, ids: Any, reverse: bool = False) -> keras.KerasTensor:
        self._reversed = reverse
        if reverse:
            self._check_vectors(ids)
        else:
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
