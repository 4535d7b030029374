"""The base of text models: embedding, positions, inputs, and losses without logits."""

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import at_most, require
from keras_transformers.core.types import Index, LayerOptions, Part, ProblemType, Shape, Tensor
from keras_transformers.layers import (
    Dropout,
    PositionalEncoding,
    PositionEmbedding,
    TokenEmbedding,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.base import BaseLayer, output_spec_of_call
from keras_transformers.layers.checks import (
    as_ids,
    check_ids,
    dtype_name,
    named,
    rate,
    refuse,
    whole_number,
)
from keras_transformers.layers.masks import apply_to_tokens
from keras_transformers.layers.parts import (
    Prototype,
    arguments_of_call,
    part,
    part_or_numbers,
    serialized,
    serialized_parts,
)
from keras_transformers.layers.positions.biases import AttentionPositionEncoding
from keras_transformers.models.base import (
    BaseModel,
    Configuration,
    check_numbers,
    check_sizes,
    quantize,
    transfer,
    with_defaults,
)

OF_BLOCK, OF_EMBEDDING = ("num_heads", "mlp_dim"), ("vocab_size", "hidden_dim", "max_length")


def check_text_numbers(
    owner: str, settings: Mapping[str, Any], further: Sequence[str] = ()
) -> None:
    """`check_numbers` of those that are there, of parts, of layers and `further` ones."""
    names = (*OF_EMBEDDING, *OF_BLOCK, "num_layers", *further)
    there = {name: settings[name] for name in names if settings.get(name) is not None}
    check_numbers(owner, there)


NAMES = {"sinusoidal": PositionalEncoding}


def shortest_limit(layers: Iterable[Any]) -> int | None:
    """The least of the `most_positions` of layers; None where no layer has a limit."""
    limits = [getattr(layer, "most_positions", None) for layer in layers]
    return min((limit for limit in limits if limit is not None), default=None)


def make_positions(owner: Any, given: Any, name: str) -> Any:
    """A copy of what a model was given as `positions`, of that name; None of None.

    Args:
        owner: The model.
        given: A layer that is called with `x` and `positions`, as `PositionalEncoding` is; a
            `AttentionPositionEncoding` that is `shareable`; one of `NAMES`; or None.
        name: That of the copy.

    Raises:
        ValueError: If it is nothing of that.
    """
    if given is None:
        return None
    prototype = Prototype(owner, "positions", given, keras.layers.Layer, NAMES)
    layer = prototype.layer
    fits = "positions" in arguments_of_call(layer)
    if isinstance(layer, AttentionPositionEncoding):
        fits = layer.shareable
    if not fits:
        expected = "a layer that takes `positions`, or a term that blocks can share; any other"
        expected += " term is the `position` of a mixer"
        refuse(owner, "positions", expected, f"{type(layer).__name__} '{layer.name}'")
    return prototype.copy(owner, name)


def build_positions(owner: Any, layer: Any, width: int, block: Any) -> None:
    """Builds it for vectors of that width, and for the heads of a built block; None is let be."""
    if layer is None or layer.built:
        return
    if not isinstance(layer, AttentionPositionEncoding):
        shape = (None, None, width)
        layer.build(shape)
        if tuple(layer.compute_output_shape(shape))[-1] != width:
            refuse(owner, "positions", "a layer that keeps the width", type(layer).__name__)
        return
    heads = getattr(block.mixer, "num_heads", None)
    if heads is None:
        expected = f"no bias for the blocks, for a {type(block.mixer).__name__} has no heads"
        refuse(owner, "positions", expected, type(layer).__name__)
    layer.build((None, heads, None, block.mixer.head_dims[1]))


def bias_of_positions(layer: Any, length: Index) -> Tensor | None:
    """The bias that a stack shares, `(1, heads, length, length)`; None where there is none."""
    if not isinstance(layer, AttentionPositionEncoding):
        return None
    positions = ops.arange(length, dtype="int32")
    term: Any = layer  # a term that blocks share needs no queries
    return ops.expand_dims(term.bias(None, positions, positions), 0)


@keras.saving.register_keras_serializable("keras_transformers")
class TextEmbedding(BaseLayer):
    """The sum of token, position and token-type embeddings, and a norm: what there is of them.

    `x = norm(E[ids] + P[positions] + S[token_types])` (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805, section 3, figure 2). The `embedding` of `TextEncoder` and
    `LanguageModel`, which take logits from the same table `E`, or from one of
    their own.

    Args:
        vocab_size: Size of the vocabulary.
        hidden_dim: Width of every token.
        max_length: Rows of the table of positions; None for no table, where attention knows
            positions itself.
        token_types: Rows of the table of token types; 0 for none.
        padding_id: The id that stands for padding; where it is a token's in a published vocabulary,
            a negative one, which no token has.
        first_position: Row of that table that the first token gets: 2 in RoBERTa and OPT, whose
            texts are then at most `max_length - 2` long.
        norm: A norm of the sum, for instance `keras.layers.LayerNormalization()`, of which a copy
            is made; None for none.
        scale: Whether token vectors are multiplied by `sqrt(hidden_dim)`, see `TokenEmbedding`.
        embedding_dim: Width of the tables and of the norm, where it is another than `hidden_dim`;
            then a dense layer follows (Lan et al. 2020, "ALBERT",
            https://arxiv.org/abs/1909.11942, section 3.1: factorized embedding parameterization).
        tie_weights: Whether logits come from the table of tokens, see `TokenEmbedding`.

    Call arguments:
        ids: Integers `(batch, length)`, or floats that hold integers.
        positions: Optional integers `(batch, length)`, instead of `0, 1, ...`.
        token_types: Optional integers `(batch, length)`, instead of zeros.

    Returns:
        `(batch, length, hidden_dim)`.

    Raises:
        ValueError: If a size is not positive, or token types are given and there is no table.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.layers import EncoderBlock
    >>> from keras_transformers.models import TextEmbedding, TextEncoder
    >>> norm = keras.layers.LayerNormalization(epsilon=1e-5)
    >>> embedding = TextEmbedding(31, 16, max_length=9, padding_id=1, norm=norm)
    >>> model = TextEncoder(num_layers=2, embedding=embedding, block=EncoderBlock(2, 32))
    >>> tuple(model(np.array([[2, 5, 7, 3, 1]])).shape), model.padding_id
    ((1, 5, 16), 1)
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int,
        max_length: int | None = 512,
        token_types: int = 0,
        padding_id: int = 0,
        first_position: int = 0,
        norm: Part | None = None,
        scale: bool = False,
        embedding_dim: int | None = None,
        tie_weights: bool = True,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocab_size = whole_number(self, "vocab_size", vocab_size)
        self.hidden_dim = whole_number(self, "hidden_dim", hidden_dim)
        self.max_length = whole_number(self, "max_length", max_length, optional=True)
        self.token_types = whole_number(self, "token_types", token_types, least=0)
        self.padding_id = padding_id
        self.embedding_dim = whole_number(self, "embedding_dim", embedding_dim, optional=True)
        self.first_position = whole_number(self, "first_position", first_position, least=0)
        self.autocast = False  # half precision would round ids that are held in floats
        self.scale = scale
        self.tie_weights = tie_weights
        tokens = {"scale": scale, "tie_weights": tie_weights}
        self.token_embedding = self._table(vocab_size, "token_embedding", **tokens)
        self.position_embedding = None
        if max_length is not None:
            self.position_embedding = PositionEmbedding(
                max_length,
                first_position=first_position,
                name="position_embedding",
                dtype=self.dtype_policy,
            )
        self.token_type_embedding = None
        if token_types:
            self.token_type_embedding = self._table(token_types, "token_type_embedding")
        self.norm = None if norm is None else part(self, "norm", norm, keras.layers.Layer)
        self.projection = None
        if embedding_dim is not None:
            self.projection = keras.layers.Dense(
                hidden_dim, name="projection", dtype=self.dtype_policy
            )

    @property
    def most_positions(self) -> int | None:
        """How long a text may be, None without end."""
        return None if self.position_embedding is None else self.position_embedding.most_positions

    def _table(
        self, rows: int, name: str, scale: bool = False, tie_weights: bool = True
    ) -> TokenEmbedding:
        width, policy = self.embedding_dim or self.hidden_dim, self.dtype_policy
        return TokenEmbedding(rows, width, scale, tie_weights=tie_weights, name=name, dtype=policy)

    def build(self, ids_shape: Shape) -> None:
        self.token_embedding.build(ids_shape)
        if self.token_type_embedding is not None:
            self.token_type_embedding.build(ids_shape)
        for layer in (self.position_embedding, self.norm, self.projection):
            if layer is not None:
                layer.build((*ids_shape, self.embedding_dim or self.hidden_dim))

    def call(
        self, ids: Tensor, positions: Tensor | None = None, token_types: Tensor | None = None
    ) -> Tensor:
        if self.padding_id < 0:  # a row that is there, for padding outside the vocabulary
            ids = ops.maximum(as_ids(self, "ids", ids), 0)
        x = self.token_embedding(ids)
        if self.position_embedding is not None:
            x = self.position_embedding(x, positions=positions)
        if self.token_type_embedding is not None:
            types = ops.zeros_like(ids) if token_types is None else token_types
            x = x + self.token_type_embedding(types)
        elif token_types is not None:
            refuse(self, "token_types", "left out, for there is no table of them", "one")
        x = x if self.norm is None else ops.cast(self.norm(x), self.compute_dtype)
        return x if self.projection is None else self.projection(x)

    def compute_output_shape(self, ids_shape: Shape) -> Shape:
        return (*ids_shape, self.hidden_dim)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "hidden_dim": self.hidden_dim,
            "max_length": self.max_length,
            "token_types": self.token_types,
            "padding_id": self.padding_id,
            "first_position": self.first_position,
            "norm": serialized(self.norm),
            "scale": self.scale,
            "embedding_dim": self.embedding_dim,
            "tie_weights": self.tie_weights,
        }


def _refuse_inputs(model: Any, received: Any) -> NoReturn:
    """Raises ValueError: the inputs are not those that the model takes."""
    names, optional = (
        " and ".join(map(repr, each)) for each in (model.needed_inputs, model.optional_inputs)
    )
    expected = f"be ids, or have the key {names}"
    if len(model.needed_inputs) > 1:
        expected = f"be one dict and have the keys {names}"
    raise ValueError(
        f"{type(model).__name__} '{model.name}': `inputs` must {expected}"
        f"{f' and, if wanted, {optional}' if optional else ''}, each an array or a tensor of "
        f"integers (batch, length). Received: {received}"
    )


def _check_rows(model: Any, name: str, ids: Any) -> None:
    """Raises ValueError unless ids are a dense batch of rows of whole numbers."""
    fits = hasattr(ids, "dtype") and not _is_ragged(ids) and not _is_text(ids)
    if not fits or len(ids.shape) != 2:
        refuse(model, name, "an array or a tensor of integers (batch, length)", _described(ids))
    check_ids(model, name, ids, _most(model, name))


def _described(x: Any) -> str:
    """What was given as ids, in a few words, and what would make ids of it."""
    if isinstance(x, (list, tuple)):
        text = "; a tokenizer makes ids of strings" if x and isinstance(x[0], str) else ""
        return f"a {type(x).__name__} of {len(x)}{text}"
    if not hasattr(x, "dtype"):
        return f"a {type(x).__name__}"
    if _is_ragged(x):
        return "ragged ids; `ids.to_tensor(0)` pads them"
    hint = "; `ids[None]` is a batch of one text" if len(x.shape) == 1 else ""
    hint = "; a tokenizer makes ids of strings" if _is_text(x) else hint
    return f"{dtype_name(x)} of shape {tuple(x.shape)}{hint}"


def _is_ragged(x: Any) -> bool:
    return getattr(x, "ragged", False) or hasattr(x, "row_splits")


def _is_text(x: Any) -> bool:
    return dtype_name(x).startswith(("str", "bytes", "object"))


def _most(model: Any, name: str) -> int | None:
    """Returns the largest id of an input; None for an input without a vocabulary."""
    if name == "ids":
        table = model.token_embedding
    elif name in ("source", "target"):
        table = model.source_embedding if name == "source" else model.target_embedding
    else:
        return None
    most: int = table.vocab_size - 1
    return most


def rows_of_table(model: Any, ids: Tensor) -> Tensor:
    """Ids that a table has rows for: padding outside the vocabulary becomes any row."""
    return ops.maximum(ids, 0) if model.padding_id < 0 else ids


def masks_and_positions(
    model: Any, inputs: dict[str, Tensor], max_length: int | None = None
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Who sees whom, and where each token stands in its own text.

    Args:
        model: The one that is called, for the message.
        inputs: From `as_inputs`.
        max_length: Number of positions there are, or None.

    Returns:
        `(batch, length, length)` bool of packed rows, `(batch, length)` bool of others (one of them
        None), and positions int32 `(batch, length)`, counted from 0 wherever padding stands.

    Raises:
        ValueError: If a row that is not packed is longer than there are positions.
    """
    ids, segments = inputs["ids"], inputs.get("segments")
    if segments is not None:
        same = segment_mask(segments)
        return same, None, segment_positions(same)
    if max_length is not None:
        rule = f"{named(model, 'ids')} must be at most max_length={max_length} long."
        ids = require(ids, [at_most(ops.shape(ids)[1], max_length)], rule)
    real = padding_mask(ids, model.padding_id)
    return None, real, ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=1) - 1, 0)


# Whether the step that is traced now wants hidden states instead of logits.
_HIDDEN: contextvars.ContextVar[bool] = contextvars.ContextVar("hidden", default=False)


@contextlib.contextmanager
def hidden_states(wanted: bool = True) -> Iterator[None]:
    """Calls of models in this context give hidden states, where that is wanted."""
    token = _HIDDEN.set(wanted)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


# Dtypes of ids, as NumPy and the backends have them.
INTEGERS = ("int32", "int64", "uint32", "int16", "uint16", "int8", "uint8", "uint64")


class TokenModel(BaseModel):
    """The base class of the models of token ids.

    Its inputs are ids, and numbers of segments, token types and positions. They are checked before
    Keras converts them: floats that hold integers become int32, and never half precision. `export`
    asks for int32. The output has the mask of its tokens.

    A loss such as `LinearCrossEntropy` needs no logits. In steps of `fit` and `evaluate` with such
    a loss `call` returns hidden states, and `compute_loss` hands them to the loss with the table.
    Metrics are updated there too, from the values that the loss has of each token.

    Attributes:
        needed_inputs, optional_inputs: Keys of a dict of inputs. Where only "ids" is needed, ids
            can be given by themselves.
    """

    compute_output_spec = output_spec_of_call
    input_dtype = "int32"  # to which Keras converts floats

    needed_inputs: tuple[str, ...] = ("ids",)
    optional_inputs: tuple[str, ...] = ()

    def __call__(self, inputs: Any, *others: Any, **kwargs: Any) -> Any:
        if others:
            _refuse_inputs(self, f"{1 + len(others)} positional arguments")
        self._check_inputs(inputs)
        return super().__call__(inputs, **kwargs)

    def _check_inputs(self, inputs: Any) -> dict[str, Tensor]:
        """Returns a dict of the inputs, as they are, after checking that they are batches of ids.

        Raises:
            ValueError: If there are others than the model takes, or they are no batch of ids.
        """
        if not isinstance(inputs, dict):
            if len(self.needed_inputs) > 1 or not hasattr(inputs, "dtype"):
                _refuse_inputs(self, _described(inputs))
            inputs = {self.needed_inputs[0]: inputs}
        inputs = {name: ids for name, ids in inputs.items() if ids is not None}
        needed = set(self.needed_inputs)
        if not needed <= inputs.keys() <= {*needed, *self.optional_inputs}:
            _refuse_inputs(self, sorted(map(str, inputs)))
        for name, ids in inputs.items():
            dtype = getattr(ids, "dtype", None)
            is_dense = not hasattr(ids, "row_splits") and not getattr(ids, "ragged", False)
            if not (dtype in INTEGERS and is_dense and len(ids.shape) == 2):
                _check_rows(self, name, ids)
        return inputs

    def as_inputs(self, inputs: Any) -> dict[str, Tensor]:
        """A dict of the inputs that there are, as int32.

        Raises:
            ValueError: If there are others than the model takes, or they are no batch of ids.
        """
        inputs = self._check_inputs(inputs)
        return {
            name: ops.cast(ids, "int32")
            if ids.dtype in INTEGERS
            else as_ids(self, name, ids, _most(self, name))
            for name, ids in inputs.items()
        }

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Returns which positions of the output stand for a real token, bool `(batch, length)`."""
        if not isinstance(inputs, dict):
            inputs = {self.needed_inputs[0]: inputs}
        has_target = inputs.get("target") is not None
        segments = inputs.get("target_segments" if has_target else "segments")
        if segments is not None:
            return ops.not_equal(segments, 0)
        if not has_target:
            return ops.not_equal(inputs["ids"], self.padding_id)
        # START of a decoder's input is a real token, even if it has the id of padding, as Marian's.
        ids = inputs["target"]
        real = ops.not_equal(ids, self.padding_id)
        # Counted, for a symbolic input may have no length that a range could have.
        is_first = ops.equal(ops.cumsum(ops.ones_like(ids, dtype="int32"), axis=1), 1)
        has_tokens = ops.any(real, axis=1, keepdims=True)
        return ops.logical_or(real, ops.logical_and(is_first, has_tokens))

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """Returns the table that makes the logits and the biases of these; or None.

        Each model overrides it. Before the model is built, a bias may be None.
        """
        raise NotImplementedError

    @property
    def _gives_hidden(self) -> bool:
        """True if `call` is in a step that wants no logits."""
        return _HIDDEN.get()

    def _scored(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the logits of hidden states, or in a step without logits these themselves."""
        return x if _HIDDEN.get() else logits(x)

    def _without_logits(self) -> bool:
        if not hasattr(getattr(self, "loss", None), "of_hidden"):
            return False
        found = self.output_table()
        return found is not None and found[0].table_scale is None  # not of a quantised table

    @property
    def _labels_each_token(self) -> bool:
        """True if labels are `(batch, length)`; a model may override it."""
        return True

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.fit` does; refuses `class_weight` where tokens have labels."""
        self._check_class_weight("fit", kwargs)
        return super().fit(*args, **kwargs)

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Trains as `keras.Model.train_on_batch` does, and refuses what `fit` does."""
        self._check_class_weight("train_on_batch", kwargs)
        return super().train_on_batch(*args, **kwargs)

    def _check_class_weight(self, method: str, options: dict[str, Any]) -> None:
        class_weight = options.get("class_weight")
        if class_weight is not None and self._labels_each_token:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `class_weight` of `{method}` must be None, "
                "because Keras would read one class in each row of labels. Weigh tokens by a "
                f"`sample_weight` of the labels' shape. Received: class_weight={class_weight}"
            )

    def train_step(self, *args: Any) -> Any:
        with hidden_states(self._without_logits()):
            return super().train_step(*args)

    def test_step(self, *args: Any) -> Any:
        with hidden_states(self._without_logits()):
            return super().test_step(*args)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        table = self.output_table() if _HIDDEN.get() else None
        if table is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training=training)
        # `y_pred` are hidden states; a loss such as `LinearCrossEntropy` makes the logits.
        embedding, biases = table
        bias = sum(biases[1:], biases[0]) if biases else None
        loss: Any = self.loss
        compiled = self.jit_compile and not self.run_eagerly
        options = (embedding.output_table, bias, sample_weight, training, compiled)
        y_pred = loss.of_hidden(y, embedding.before_logits(y_pred), *options)
        super().compute_metrics(x, y, y_pred, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training=training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if _HIDDEN.get():  # `compute_loss` has updated them
            return self.get_metrics_result()
        return super().compute_metrics(x, y, y_pred, sample_weight)


LENGTH = 1 << 20  # of a text, in the place of one that is not known
Blocks: TypeAlias = Part | Sequence[Part]  # of all layers, or in turn


@dataclasses.dataclass(frozen=True)
class TextConfiguration(Configuration):
    """The arguments of a `TextEncoder` or `LanguageModel`; see there."""

    vocab_size: int | None
    hidden_dim: int | None
    num_heads: int | None
    mlp_dim: int | None
    num_layers: int
    max_length: int | None
    dropout: float | None
    block: Any
    embedding: Any
    head: Any


class TextModel(TokenModel):
    """The base class of `TextEncoder` and `LanguageModel`.

    Arguments of both are `vocab_size`, `hidden_dim`, `num_heads`, `mlp_dim`, `num_layers`,
    `max_length`, `dropout`, the parts that take the place of numbers, `block` and `embedding`, and
    `head`.

    Attributes:
        block_kind: The class of a `block`.
        block_name: Beginning of the names of the blocks, "encoder" or "decoder".
        default_embedding, default_block: Functions of numbers, by name, that make the default part.
    """

    anew: tuple[str, ...] = ("head",)
    block_kind: ClassVar[type[keras.layers.Layer]]
    block_name: ClassVar[str]
    default_embedding: ClassVar[Any]
    default_block: ClassVar[Any]

    @property
    def calibrated_blocks(self) -> Sequence[Any]:
        """The blocks that GPTQ and AWQ quantise; each model has its own."""
        raise NotImplementedError

    def get_quantization_layer_structure(self, mode: str | None = None) -> dict[str, Any]:
        """Returns what Keras asks for: what comes before the blocks, and the blocks."""
        blocks = list(self.calibrated_blocks)
        return {"pre_block_layers": [self.embedding], "sequential_blocks": blocks}

    def quantize(
        self, mode: str | None = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantises as `keras.Model.quantize`; see `models.base.quantize`."""
        quantize(self, super().quantize, mode, config, filters, **kwargs)

    def __init__(
        self,
        vocab_size: int | None = None,
        hidden_dim: int | None = None,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        num_layers: int = 12,
        max_length: int | None = None,
        dropout: float | None = None,
        block: Blocks | None = None,
        embedding: Part | None = None,
        head: Part | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.configuration: TextConfiguration = TextConfiguration(
            vocab_size=vocab_size,
            hidden_dim=hidden_dim,
            num_heads=num_heads,
            mlp_dim=mlp_dim,
            num_layers=num_layers,
            max_length=max_length,
            dropout=dropout,
            block=serialized_parts(block),
            embedding=serialized(embedding),
            head=serialized(head),
        )
        self._make_embedding(embedding)
        self._make_stack(block)
        self._make_head(head)

    def _keep_blocks(self, blocks: list[Any]) -> None:
        """Stores the blocks under the name that paths in files have."""
        raise NotImplementedError

    def _make_embedding(self, embedding: Part | None) -> None:
        """Makes the embedding that was given, or the one of the numbers."""
        if embedding is None:
            self._complete(OF_EMBEDDING)
            values = vars(self.configuration)
            check_sizes(type(self).__name__, values, OF_EMBEDDING)
            embedding = self.default_embedding(**{name: values[name] for name in OF_EMBEDDING})
        else:
            numbers = {name: vars(self.configuration)[name] for name in OF_EMBEDDING}
            part_or_numbers(self, "embedding", embedding, TextEmbedding, **numbers)
        prototype = Prototype(self, "embedding", embedding, TextEmbedding)
        self.embedding: TextEmbedding = prototype.copy(self, "embedding")

    def _complete(self, names: Sequence[str]) -> None:
        """Replaces numbers of the configuration that are None by their defaults."""
        self.configuration = with_defaults(self.configuration, names, self.defaults)

    def _make_stack(self, block: Blocks | None) -> None:
        """Makes the dropout of the embeddings, the blocks, and the norm behind pre-norm ones."""
        check_sizes(type(self).__name__, vars(self.configuration), ("num_layers",))
        count = self.configuration.num_layers
        several: Sequence[Any] = block if isinstance(block, list | tuple) else [block]
        if not several or count % len(several):
            refuse(self, "block", f"one, or as many as divide num_layers={count}", len(several))
        if any(part is None for part in several):
            self._complete(OF_BLOCK)
        prototypes = [self._block_prototype(part) for part in several]
        first = prototypes[0].layer
        if self.configuration.dropout is None:
            self.configuration = dataclasses.replace(self.configuration, dropout=first.dropout)
        dropout = rate(self, "dropout", self.configuration.dropout)
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)
        turns = zip(range(count), itertools.cycle(prototypes), strict=False)
        name = self.block_name
        blocks = [prototype.copy(self, f"{name}_{i}", i) for i, prototype in turns]
        for layer in blocks:
            layer.dropout = dropout
        self._most_mixed = shortest_limit(blocks)
        norm = first.copied_norm(self, "norm") if first.norm_first else None
        self._keep_blocks(blocks)
        self.norm = norm

    def _block_prototype(self, given: Part | None) -> Prototype:
        """The prototype of a block: the given one, or one made of the numbers."""
        owner, configuration = type(self).__name__, self.configuration
        numbers = {name: vars(configuration)[name] for name in OF_BLOCK}
        prototype = part_or_numbers(self, "block", given, self.block_kind, **numbers)
        if prototype is not None:
            return prototype
        check_sizes(owner, numbers, OF_BLOCK)
        check_numbers(owner, {**numbers, "hidden_dim": self.embedding.hidden_dim})
        if configuration.dropout is not None:
            numbers["dropout"] = configuration.dropout
        return Prototype(self, "block", self.default_block(**numbers), self.block_kind)

    @property
    def padding_id(self) -> int:
        """The id that stands for padding."""
        return self.embedding.padding_id

    @property
    def token_embedding(self) -> TokenEmbedding:
        """The table of tokens, from which logits come."""
        return self.embedding.token_embedding

    @property
    def most_positions(self) -> int | None:
        """The number of positions that a text may have, None without a limit."""
        known = (self.embedding.most_positions, self._most_mixed)
        return min((most for most in known if most is not None), default=None)

    def _make_head(self, given: Part | None) -> None:
        self.head: Any = None
        self._head_takes: frozenset[str] = frozenset()
        if given is not None:
            self.head = part(self, "head", given, keras.layers.Layer)
            self._head_takes = arguments_of_call(self.head)

    @property
    def _restores(self) -> bool:
        """Whether the head makes logits of the vocabulary."""
        return "logits" in self._head_takes

    def _build_head(self, shape: Shape) -> None:
        if self.head is not None:
            self.head.build(shape, **self._shape_of_logits(shape))

    def _shape_of_logits(self, hidden: Shape) -> dict[str, Shape]:
        """What a head that takes `logits` is told of them."""
        vocab_size = self.embedding.vocab_size
        return {"logits_shape": (*hidden[:-1], vocab_size)} if self._restores else {}

    def _headed(self, x: Tensor, ids: Tensor, training: bool | None) -> Tensor:
        """What the head makes of `(batch, length, hidden_dim)`, given what its `call` names."""
        options: dict[str, Any] = {"training": training, "logits": self.token_embedding.logits}
        options |= {"ids": ids, "real": padding_mask(ids, self.padding_id)}
        return self.head(x, **{k: v for k, v in options.items() if k in self._head_takes})

    def _shape_of_output(self, hidden: Shape) -> Shape:
        """The shape of what the head makes."""
        shape: Shape = self.head.compute_output_shape(hidden, **self._shape_of_logits(hidden))
        return shape

    @property
    def problem_type(self) -> ProblemType | None:
        """What the logits of classes are for, as the head was told."""
        return getattr(self.head, "problem_type", None)

    def transferred(self, **changes: Any) -> Self:
        """Returns a model for another task that starts from this one's weights; see `transfer`.

        `num_classes` alone makes a head like this one's.
        """
        if "num_classes" in changes and "head" not in changes:
            if not hasattr(self.head, "num_classes"):
                expected = "left out, for the head has no classes; give a `head`"
                refuse(self, "num_classes", expected, changes["num_classes"])
            head = serialized(self.head)
            number = {"num_classes": changes.pop("num_classes")}
            changes["head"] = {**head, "config": {**head["config"], **number}}
        return transfer(self, changes)

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, None)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token; None where it has others."""
        return super().compute_mask(inputs, previous_mask) if self._labels_each_token else None

    @property
    def _labels_each_token(self) -> bool:
        """True if there is an output for each token, `(batch, length, width)`."""
        shape = self.compute_output_shape((None, LENGTH))
        return len(shape) == 3 and shape[1] == LENGTH

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """Returns the token table, which makes the logits, and its bias if it has one."""
        table = self.token_embedding
        return table, [] if table.bias is None else [table.bias]

    def _build_stack(self, blocks: Sequence[Any]) -> tuple[None, None, int]:
        """Builds all but a head; returns the shape of what comes out, `(None, None, width)`."""
        shape = (None, None, self.embedding.hidden_dim)
        self.embedding.build(shape[:2])
        for layer in (self.dropout_layer, *blocks, *([] if self.norm is None else [self.norm])):
            layer.build(shape)
        return shape

    def _run(
        self, blocks: Sequence[Any], inputs: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """From `as_inputs` through the blocks and the last norm: `(batch, length, hidden_dim)`."""
        same, padding, positions = masks_and_positions(self, inputs, self.embedding.most_positions)
        types = inputs.get("token_types")
        x = self.embedding(inputs["ids"], positions=positions, token_types=types)
        x = self.dropout_layer(x, training=training)
        for block in blocks:
            x = block(x, attention_mask=same, padding_mask=padding, training=training)
        return self._normed(x, padding)

    def _normed(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """What the blocks give, after the last norm, if there is one."""
        if self.norm is None:
            return x
        return ops.cast(apply_to_tokens(self, "norm", self.norm, x, padding), self.compute_dtype)
