"""Token embeddings, class and register tokens, and products with token tables."""

import itertools
import math
from collections.abc import Callable
from typing import Any, Unpack

import keras
import numpy as np
from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.annotations import Array, Initializer, LayerOptions, Shape, Tensor
from keras_transformers.gradients import custom_gradient
from keras_transformers.layers.adapters import Adapted
from keras_transformers.layers.base import Arguments
from keras_transformers.layers.checks import as_ids, check_ids, check_sequence, refuse, whole_number
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.layers.masks import combine_masks
from keras_transformers.layers.portable import KERNELS

BLOCKS = 8  # as many as rows would be slow
FEW = 32  # rows up to which blocks of the table are quicker than the whole
QUANTIZED = 4096  # rows at once


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
            return step_product(rows, ops.cast(self._output_weights, rows.dtype), alone)

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


@keras.saving.register_keras_serializable("keras_transformers")
class ClassToken(Arguments, keras.layers.Layer):
    """Puts one learned token in front of a sequence; its output stands for the whole.

    `[x_class; x_1; ...; x_N]` (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3;
    Dosovitskiy et al. 2021, https://arxiv.org/abs/2010.11929, eq. 1). An implicit Keras mask gets
    one more position.

    Args:
        initializer: Initialiser of the token.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, 1 + length, hidden_dim)`.

    Raises:
        ValueError: If `x` is not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassToken
    >>> tuple(ClassToken()(np.ones((2, 5, 8), "float32")).shape)
    (2, 6, 8)
    """

    def __init__(self, initializer: Initializer = "zeros", **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)
        self.supports_masking = True

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.token = self.add_weight(
            name="class_token", shape=(1, 1, x_shape[-1]), initializer=self.initializer
        )

    def call(self, x: Tensor) -> Tensor:
        token = ops.cast(self.token, x.dtype)
        token = ops.broadcast_to(token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)

    def compute_mask(self, x: Tensor, previous_mask: Tensor | None = None) -> Tensor | None:
        if previous_mask is None:
            return None
        return ops.pad(previous_mask, ((0, 0), (1, 0)), constant_values=True)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + 1, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class RegisterTokens(Arguments, keras.layers.Layer):
    """Puts learned tokens into a sequence, for a model to keep there what it needs.

    `[x_class; r_1; ...; r_n; x_1; ...; x_N]` (Darcet et al. 2024, "Vision Transformers Need
    Registers", https://arxiv.org/abs/2309.16588, section 2.2). They have no positions.

    Args:
        number: How many, `n` above.
        after: Behind how many tokens of the sequence they stand.
        initializer: Initialiser of the tokens.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, length + number, hidden_dim)`.

    Raises:
        ValueError: If `number` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import RegisterTokens
    >>> tuple(RegisterTokens(4)(np.ones((2, 5, 8), "float32")).shape)
    (2, 9, 8)
    """

    def __init__(
        self,
        number: int,
        after: int = 1,
        initializer: Initializer = "truncated_normal",
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.number = whole_number(self, "number", number)
        self.after = whole_number(self, "after", after, least=0)
        self.initializer = keras.initializers.get(initializer)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)
        self.tokens = self.add_weight(
            name="register_tokens",
            shape=(1, self.number, x_shape[-1]),
            initializer=self.initializer,
        )

    def call(self, x: Tensor) -> Tensor:
        tokens = ops.cast(self.tokens, x.dtype)
        tokens = ops.broadcast_to(tokens, (ops.shape(x)[0], self.number, x.shape[-1]))
        return ops.concatenate([x[:, : self.after], tokens, x[:, self.after :]], axis=1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        batch, length, width = x_shape
        return (batch, None if length is None else length + self.number, width)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "number": self.number,
            "after": self.after,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable("keras_transformers")
class ClassAndMeanPooling(Arguments, keras.layers.Layer):
    """The first token and the mean of the patches, side by side: what a linear probe sees.

    `[x_class; mean(x_1, ..., x_N)]` (Oquab et al. 2024, "DINOv2",
    https://arxiv.org/abs/2304.07193, and their code's linear classifiers). The `pooling` of a `ViT`
    with a class token.

    Args:
        prefix_tokens: How many tokens stand before the patches: the class token and registers.

    Call arguments:
        x: `(batch, tokens, hidden_dim)`.

    Returns:
        `(batch, 2 * hidden_dim)`.

    Raises:
        ValueError: If `prefix_tokens` is not positive, or `x` not of rank 3.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import ClassAndMeanPooling
    >>> from keras_transformers.models import ViT
    >>> model = ViT.from_variant("Ti/16", 10, image_size=32, num_layers=1, class_token=True,
    ...                          registers=4, pooling=ClassAndMeanPooling(1 + 4))
    >>> tuple(model(np.zeros((2, 32, 32, 3), "float32")).shape), model.head.kernel.shape[0]
    ((2, 10), 384)
    """

    def __init__(self, prefix_tokens: int = 1, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.prefix_tokens = whole_number(self, "prefix_tokens", prefix_tokens)

    def build(self, x_shape: Shape) -> None:
        check_sequence(self, x_shape)

    def call(self, x: Tensor) -> Tensor:
        mean = ops.mean(x[:, self.prefix_tokens :], axis=1)
        return ops.concatenate([x[:, 0], mean], axis=-1)

    def compute_output_shape(self, x_shape: Shape) -> Shape:
        return (x_shape[0], 2 * x_shape[-1])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "prefix_tokens": self.prefix_tokens}
