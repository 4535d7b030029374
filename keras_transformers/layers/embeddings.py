"""From token ids to vectors and back to logits."""

import itertools
import math
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Shape, Tensor
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.ids import as_ids, check_ids
from keras_transformers.layers.masks import combine_masks
from keras_transformers.layers.portable import KERNELS
from keras_transformers.layers.tables import BLOCKS, int8_product, rounded, times_table


@keras.saving.register_keras_serializable("keras_transformers")
class TokenEmbedding(Arguments, keras.layers.Layer):
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
        if self.table_scale is not None:
            y = self._int8_logits(ops.reshape(x, (-1, self.hidden_dim)))
            return self._with_bias(ops.reshape(y, (*ops.shape(x)[:-1], self.vocab_size)))
        table = ops.cast(self.output_table, self.compute_dtype)
        return self._with_bias(ops.matmul(ops.cast(x, self.compute_dtype), ops.transpose(table)))

    @property
    def output_table(self) -> Any:
        """The weights `(vocab_size, hidden_dim)` that make logits."""
        return self.table if self.tie_weights else self.output_embedding

    def before_logits(self, x: Tensor) -> Tensor:
        """Vectors as the table that makes logits takes them."""
        return x if self.logits_scale == 1 else x * ops.cast(self.logits_scale, x.dtype)

    def _with_bias(self, logits: Tensor) -> Tensor:
        return logits if self.bias is None else logits + ops.cast(self.bias, logits.dtype)

    def step_logits(self, x: Tensor) -> Tensor:
        """`logits` for one token of every sequence, `(batch, beams, hidden_dim)`: `(E x^T)^T`.

        XLA on a CPU is quicker at few rows this way round, and slower at the many of training. From
        2 to 32 are multiplied with blocks of the table, which all cores read; more with the whole,
        and one alone the other way round. Logits and the largest of each row, for 32,000 tokens of
        width 512, blocks against whole: 2.3 and 4.0 ms for 4 rows, 3.3 and 4.6 for 8, 6.1 and 6.6
        for 32, 21 and 15 for 128; in 8 bits 0.6 and 1.3, 1.3 and 1.6, 3.4 and 3.4, 18 and 10 (two
        cores of an AMD EPYC with AVX-512).
        """
        if isinstance(x, keras.KerasTensor):
            return self(x, reverse=True)
        x = self.before_logits(x)
        rows = ops.reshape(ops.cast(x, self.compute_dtype), (-1, self.hidden_dim))
        if self.table_scale is not None:
            y = self._int8_logits(rows)
        elif KERNELS.get() is not None:
            y = KERNELS.get().table_product(rows, ops.cast(self.output_table, rows.dtype))
        else:
            table = ops.cast(self.output_table, rows.dtype)
            alone = x.shape[0] == x.shape[1] == 1  # as far as is known when tracing
            y = ops.matmul(rows, ops.transpose(table)) if alone else times_table(table, rows)
        y = ops.reshape(y, (-1, x.shape[1], self.vocab_size))
        return y if self.bias is None else y + ops.cast(self.bias, y.dtype)

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Keeps tables in 8 bits with a scale for each row, for inference; see `in_precision`.

        Raises:
            NotImplementedError: If `mode` is not "int8", or `config` has quantizers of its own;
                Keras then leaves the layer as it is.
        """
        wrong = None if mode == "int8" else ("mode", "'int8'", repr(mode))
        if not wrong and config is not None and config.get_config() != type(config)().get_config():
            wrong = ("config", "without quantizers of its own", config.get_config())
        if wrong:
            name, expected, received = wrong
            raise NotImplementedError(
                f"TokenEmbedding '{self.name}': `{name}` must be {expected}. Received: {received}"
            )
        made_of = [rounded(self.table, self._padding_rows())]
        del self.table
        if not self.tie_weights:
            made_of.append(rounded(self.output_embedding, self._padding_rows()))
            del self.output_embedding
        self._make_tables(int8=True)
        made = [self.table, self.table_scale, self.output_table, self.output_scale]
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
        """8-bit products of `(n, hidden_dim)`, quantised row by row, with the table's blocks."""
        table, scale = map(ops.convert_to_tensor, (self.output_table, self.output_scale))
        y = int8_product(rows, table, scale)
        return ops.cast(y[:, : self.vocab_size], self.compute_dtype)

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
