"""The base of text models: embedding, positions, inputs, and losses without logits."""

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.annotations import (
    Index,
    LayerOptions,
    ModelMixin,
    Part,
    ProblemType,
    Shape,
    Tensor,
)
from keras_transformers.assertions import at_most, require
from keras_transformers.layers import (
    Dropout,
    PositionalEncoding,
    PositionEmbedding,
    TokenEmbedding,
    padding_mask,
    segment_mask,
    segment_positions,
)
from keras_transformers.layers.attention.cached import block_positions, is_block
from keras_transformers.layers.base import Arguments, Composite, Traced
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
from keras_transformers.layers.parts import Prototype, arguments_of_call, part, serialized
from keras_transformers.layers.positions.biases import AttentionPositionEncoding
from keras_transformers.models.base import ModelSettings, Transferable, check_numbers, check_sizes
from keras_transformers.models.calibration import Calibrated

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
    return _bias(layer, positions, positions)


def bias_of_step(layer: Any, index: Index, visible: Tensor) -> Tensor:
    """The same for the token at `index` and the slots of a cache, `(1, heads, 1, slots)`.

    `layer` is a bias that is shared; `visible`, `(batch or 1, beams, slots)`, from `visible_slots`,
    or `(batch, length, slots)` for the tokens of a block step, whose is `(batch, heads, length,
    slots)`.
    """
    slots = ops.arange(ops.shape(visible)[2], dtype="int32")
    if is_block(index):
        here = ops.reshape(block_positions(index, visible.shape[1]), (-1,))
        bias = _bias(layer, here, slots)[0]  # (heads, batch * length, slots)
        bias = ops.reshape(bias, (bias.shape[0], -1, visible.shape[1], ops.shape(visible)[2]))
        return ops.swapaxes(bias, 0, 1)
    here = ops.reshape(ops.cast(index, "int32"), (1,))
    return _bias(layer, here, slots // visible.shape[1])


def _bias(term: Any, queries: Tensor, keys: Tensor) -> Tensor:
    return ops.expand_dims(term.bias(None, queries, keys), 0)


@keras.saving.register_keras_serializable("keras_transformers")
class TextEmbedding(Arguments, Composite, keras.layers.Layer):
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


TABLES = {"ids": "token_embedding", "source": "source_embedding", "target": "target_embedding"}


class TakesIds(ModelMixin):
    """A model of ids, and of numbers of segments, token types and positions; before `keras.Model`.

    What it is called with is checked before Keras converts it; floats that hold integers become
    int32, and never half precision; `export` asks for int32; and the output has the mask of its
    tokens.

    Attributes:
        needed_inputs, optional_inputs: Keys of a dict of inputs. Where only "ids" is needed, ids
            can be given by themselves.
    """

    needed_inputs: tuple[str, ...] = ("ids",)
    optional_inputs: tuple[str, ...] = ()

    @property
    def input_dtype(self) -> str:
        return "int32"  # to which Keras converts floats

    def __call__(self, inputs: Any, *others: Any, **kwargs: Any) -> Any:
        if others:
            _refuse_inputs(self, f"{1 + len(others)} positional arguments")
        self._checked(inputs)
        return super().__call__(inputs, **kwargs)

    def _checked(self, inputs: Any) -> dict[str, Tensor]:
        """A dict of the inputs that there are, as they are."""
        keyed = isinstance(inputs, dict)
        if not keyed and (len(self.needed_inputs) > 1 or not hasattr(inputs, "dtype")):
            _refuse_inputs(self, _described(inputs))
        inputs = inputs if keyed else {self.needed_inputs[0]: inputs}
        inputs = {name: ids for name, ids in inputs.items() if ids is not None}
        needed, known = {*self.needed_inputs}, {*self.needed_inputs, *self.optional_inputs}
        if not needed <= inputs.keys() <= known:
            _refuse_inputs(self, sorted(map(str, inputs)))
        for name, ids in inputs.items():
            _check_rows(self, name, ids)
        return inputs

    def as_inputs(self, inputs: Any) -> dict[str, Tensor]:
        """A dict of the inputs that there are, as int32.

        Raises:
            ValueError: If there are others than the model takes, or they are no batch of ids.
        """
        inputs = self._checked(inputs)
        return {name: as_ids(self, name, ids, _most(self, name)) for name, ids in inputs.items()}

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token, bool `(batch, length)`."""
        inputs = self._checked(inputs)
        of_target = "target" in inputs
        segments = inputs.get("target_segments" if of_target else "segments")
        if segments is not None:
            return ops.not_equal(segments, 0)
        if of_target:
            return _real_targets(inputs["target"], self.padding_id)
        return padding_mask(inputs["ids"], self.padding_id)


def _real_targets(ids: Tensor, padding_id: int) -> Tensor:
    """`padding_mask` of a decoder's input, whose START may be the id of padding, as Marian's is."""
    real = padding_mask(ids, padding_id)
    # Counted, for a symbolic input may have no length that a range could have.
    first = ops.equal(ops.cumsum(ops.ones_like(ids, dtype="int32"), axis=1), 1)
    return ops.logical_or(real, ops.logical_and(first, ops.any(real, axis=1, keepdims=True)))


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
    """The largest id of an input's vocabulary, None where it has none."""
    return getattr(model, TABLES[name]).vocab_size - 1 if name in TABLES else None


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


class TrainsWithoutLogits(ModelMixin):
    """A model of tokens that makes no logits where its loss, `LinearCrossEntropy`, needs none.

    In steps of `fit` and `evaluate`, `call` then gives hidden states, and `compute_loss` hands them
    to the loss with the table. Metrics are updated there too, from what the loss knows of each
    token.
    """

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """A hook: the table that makes the logits and biases that come to them, or None.

        Before the model is built, a bias may be None.
        """
        raise NotImplementedError

    @property
    def _gives_hidden(self) -> bool:
        """Whether `call` is in a step that wants no logits."""
        return _HIDDEN.get()

    def _scored(self, x: Tensor, logits: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits of hidden states, or in a step without logits these themselves."""
        return x if self._gives_hidden else logits(x)

    def _without_logits(self) -> bool:
        if not hasattr(getattr(self, "loss", None), "of_hidden"):
            return False
        found = self.output_table()
        return found is not None and found[0].table_scale is None  # not of a quantised table

    @property
    def _labels_each_token(self) -> bool:
        """A hook: true if labels are `(batch, length)`."""
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
        found = self.output_table() if _HIDDEN.get() else None
        if found is not None:
            embedding, biases = found
            bias = sum(biases[1:], biases[0]) if biases else None
            loss: Any = self.loss
            compiled = self.jit_compile and not self.run_eagerly
            given = (embedding.output_table, bias, sample_weight, training, compiled)
            y_pred = loss.of_hidden(y, embedding.before_logits(y_pred), *given)
            super().compute_metrics(x, y, y_pred, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training=training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if _HIDDEN.get():  # `compute_loss` has updated them
            return self.get_metrics_result()
        return super().compute_metrics(x, y, y_pred, sample_weight)


LENGTH = 1 << 20  # of a text, in the place of one that is not known
Blocks: TypeAlias = Part | Sequence[Part]  # of all layers, or in turn


class TextModel(
    Calibrated,
    Transferable,
    Traced,
    TakesIds,
    TrainsWithoutLogits,
    ModelSettings,
    Composite,
    keras.Model,
):
    """Base of `TextEncoder` and `LanguageModel`.

    Settings of both are `vocab_size`, `hidden_dim`, `num_heads`, `mlp_dim`, `num_layers`,
    `max_length`, `dropout`, the parts that take the place of numbers, `block` and `embedding`, and
    `head`.

    Attributes:
        block_kind: What a `block` must be.
        default_embedding, default_block: Functions of numbers, by name, that make the default part.
    """

    block_kind: ClassVar[type[keras.layers.Layer]]
    default_embedding: ClassVar[Any]
    default_block: ClassVar[Any]

    def _make_embedding(self, given: Part | None) -> TextEmbedding:
        make = self.default_embedding
        prototype = self._prototype("embedding", given, TextEmbedding, OF_EMBEDDING, make)
        embedding: TextEmbedding = prototype.copy(self, "embedding")
        return embedding

    def _make_blocks(self, given: Blocks | None, name: str) -> tuple[list[Any], Any]:
        """The blocks, `name`_0 and so on, and the norm behind those that are pre-norm, or None."""
        check_sizes(type(self).__name__, self._settings, ("num_layers",))
        dropout, number = self._settings["dropout"], self._settings["num_layers"]

        def make(**numbers: Any) -> Any:
            width = {"hidden_dim": self.embedding.hidden_dim}
            check_numbers(type(self).__name__, {**numbers, **width})
            rates = {} if dropout is None else {"dropout": dropout}
            return self.default_block(**numbers, **rates)

        several: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        if not several or number % len(several):
            refuse(self, "block", f"one, or as many as divide num_layers={number}", len(several))
        prototypes = [
            self._prototype("block", each, self.block_kind, OF_BLOCK, make) for each in several
        ]
        first = prototypes[0].layer
        if dropout is None:
            self._settle(dropout=first.dropout)
        dropout = rate(self, "dropout", self._settings["dropout"])
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy)
        turns = zip(range(number), itertools.cycle(prototypes), strict=False)
        blocks = [prototype.copy(self, f"{name}_{i}", i) for i, prototype in turns]
        for block in blocks:
            block.dropout = dropout
        self._most_mixed = shortest_limit(blocks)
        return blocks, first.copied_norm(self, "norm") if first.norm_first else None

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
        """As `Transferable.transferred`; `num_classes` alone makes a head like this one's."""
        if "num_classes" in changes and "head" not in changes:
            if not hasattr(self.head, "num_classes"):
                expected = "left out, for the head has no classes; give a `head`"
                refuse(self, "num_classes", expected, changes["num_classes"])
            head = serialized(self.head)
            number = {"num_classes": changes.pop("num_classes")}
            changes["head"] = {**head, "config": {**head["config"], **number}}
        return super().transferred(**changes)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Tensor | None:
        """Which positions of the output stand for a real token; None where it has others."""
        return super().compute_mask(inputs, previous_mask) if self._labels_each_token else None

    @property
    def _labels_each_token(self) -> bool:
        """True if there is an output for each token, `(batch, length, width)`."""
        shape = self.compute_output_shape((None, LENGTH))
        return len(shape) == 3 and shape[1] == LENGTH

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """As `TrainsWithoutLogits.output_table`."""
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
