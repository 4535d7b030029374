"""The predecessor: a recurrent encoder-decoder with attention, Bahdanau et al. 2014."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformers.core.types import BackPointers, Index, LayerOptions, Shape, Tensor
from keras_transformers.layers import CrossAttention, Dropout, TokenEmbedding, padding_mask
from keras_transformers.layers.attention.scores import GivenScore
from keras_transformers.layers.mixers import BidirectionalRNN, with_a_step
from keras_transformers.layers.parts import serialized
from keras_transformers.layers.regularization import Orthogonal
from keras_transformers.models.base import Configuration, check_sizes
from keras_transformers.models.decoding import Source, add_coverage, start_coverage
from keras_transformers.models.transformer import Translator


class RecurrentState(NamedTuple):
    """What changes with every step.

    Args:
        hidden: `(batch, beams, hidden_dim)`.
        coverage: As of a `DecodingState`.
    """

    hidden: Tensor
    coverage: Tensor | tuple[()] = ()


class _Cell:
    """A function as what `keras.layers.RNN` takes for a cell; that layer's loop XLA can derive."""

    def __init__(self, function: Callable[..., Any], state_size: Any, compute_dtype: str) -> None:
        self.call, self.state_size, self.compute_dtype = function, state_size, compute_dtype

    def __call__(self, inputs: Any, states: Any) -> Any:
        return self.call(inputs, states)


class _GRUCell(keras.layers.GRUCell):
    """Keras's, which says the shapes of its output and its state."""

    def compute_output_shape(self, input_shape: Shape) -> tuple[Shape, Shape]:
        shape = (input_shape[0], self.units)
        return shape, shape


@dataclasses.dataclass(frozen=True)
class RecurrentConfiguration(Configuration):
    """The arguments of a `RecurrentTranslator`; see there."""

    vocab_size: int
    hidden_dim: int
    embedding_dim: int | None
    dropout: float
    score: Any
    target_vocab_size: int | None


@keras.saving.register_keras_serializable("keras_transformers")
class RecurrentTranslator(Translator):
    """Recurrent encoder-decoder with additive attention (https://arxiv.org/abs/1409.0473).

    A bidirectional GRU reads the source into `h_1 .. h_S`. The decoder's state is `s_t =
    GRU([y_(t-1); c_t], s_(t-1))` with `c_t = sum_j softmax_j(a(s_(t-1), h_j)) h_j`, where `a` is
    the additive score and `s_0 = tanh(W h_1)` of the backward GRU; logits are `tanh(W [s_t; c_t;
    y_(t-1)])` times the transposed target embedding. `h_j` goes through the value and output
    projections of `CrossAttention`, with one head. Same inputs, search and export as
    `Transformer`.

    Args:
        vocab_size: Size of the (source) vocabulary.
        hidden_dim: Width of the states; each direction of the encoder has a half of it.
        embedding_dim: Width of the embeddings; by default `hidden_dim`.
        dropout: Rate on embeddings and before the logits.
        score: Alignment score; see `MultiHeadAttention`.
        target_vocab_size: Size of the target vocabulary where it has a table of its own; None
            shares one table between source, target and output.

    Call arguments:
        inputs: Dict of integers, or floats that hold integers, `source` `(batch, source_length)`
            and `target` `(batch, target_length)` (the decoder's input, START first), 0 = padding.
        training: Whether dropout acts.

    Returns:
        Logits `(batch, target_length, target vocabulary)`, with the implicit Keras mask of the
        target's real tokens. `inspection.attention_maps` shows the alignment.

    Raises:
        ValueError: If a size is not positive, `hidden_dim` is odd, or `inputs` lacks "source" or
            "target", or has segments: packed rows are for attention without recurrence.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import RecurrentTranslator
    >>> model = RecurrentTranslator(vocab_size=31, hidden_dim=16)
    >>> ids = np.array([[1, 5, 7, 2, 0]])
    >>> tuple(model({"source": ids, "target": ids[:, :3]}).shape)
    (1, 3, 31)
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_dim: int = 512,
        embedding_dim: int | None = None,
        dropout: float = 0.2,
        score: GivenScore = "additive",
        target_vocab_size: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        sizes = {"vocab_size": vocab_size, "hidden_dim": hidden_dim}
        check_sizes("RecurrentTranslator", sizes, tuple(sizes))
        if hidden_dim % 2:
            raise ValueError(
                "RecurrentTranslator: `hidden_dim` must be even, a half for each direction. "
                f"Received: {hidden_dim}"
            )
        self.hidden_dim = hidden_dim
        self.embedding_dim = embedding_dim or hidden_dim
        policy = self.dtype_policy
        rows = [size for size in (vocab_size, target_vocab_size) if size is not None]
        self._make_tables(*(TokenEmbedding(size, self.embedding_dim, False) for size in rows))
        self.encoder = BidirectionalRNN("gru", hidden_dim // 2, name="encoder", dtype=policy)
        self.first_state = keras.layers.Dense(hidden_dim, "tanh", name="first_state", dtype=policy)
        self.attention = CrossAttention(
            1,
            key_dim=hidden_dim,
            score=score,
            output_shape=hidden_dim,
            name="attention",
            dtype=policy,
        )
        self.cell = _GRUCell(
            hidden_dim, recurrent_initializer=Orthogonal(), name="decoder", dtype=policy
        )
        self.readout = keras.layers.Dense(self.embedding_dim, "tanh", name="readout", dtype=policy)
        self.dropout_layer = Dropout(dropout, dtype=policy)
        self.configuration = RecurrentConfiguration(
            vocab_size=vocab_size,
            hidden_dim=hidden_dim,
            embedding_dim=embedding_dim,
            dropout=dropout,
            score=serialized(self.attention.score),
            target_vocab_size=target_vocab_size,
        )

    def build(self, input_shape: dict[str, Shape]) -> None:
        hidden, embedded = (None, None, self.hidden_dim), (None, None, self.embedding_dim)
        self._build_tables()
        self.encoder.build(embedded)
        self.first_state.build((None, self.hidden_dim // 2))
        self.attention.build(hidden, hidden)
        self.cell.build((None, self.embedding_dim + self.hidden_dim))
        self.readout.build((None, None, self.embedding_dim + 2 * self.hidden_dim))
        self.dropout_layer.build(embedded)

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        inputs = self.as_inputs(inputs)
        context, state, mask = self.encode(inputs["source"], training)
        cache = self.attention.project_context(context)
        y = self.dropout_layer(self.target_embedding(inputs["target"]), training=training)

        def advance(token: Any, states: Any) -> Any:
            found = self._advance(states[0][:, None], token[:, None], cache, mask)
            return ops.concatenate(found, axis=-1)[:, 0], [found[0][:, 0]]

        size = self.hidden_dim
        cell = _Cell(advance, size, self.compute_dtype)
        loop = keras.layers.RNN(cell, return_sequences=True, dtype=self.dtype_policy)
        steps = loop(with_a_step(y), initial_state=[state[:, 0]])[:, : ops.shape(y)[1]]
        states, attended = steps[..., :size], steps[..., size : 2 * size]
        weights = steps[..., 2 * size :]
        if self.attention.attention_observer is not None:
            self.attention.attention_observer(weights[:, None])
        y = self.readout(ops.concatenate([states, attended, y], axis=-1))
        y = self.dropout_layer(y, training=training)
        return self._scored(y, self.target_embedding.logits)

    def encode(self, source: Tensor, training: bool | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Reads the source: ids `(batch, length)`.

        Returns:
            `h` `(batch, length, hidden_dim)`, the decoder's first state `(batch, 1, hidden_dim)`,
            and which tokens are real `(batch, length)`.
        """
        mask = padding_mask(source)
        x = self.dropout_layer(self.source_embedding(source), training=training)
        context, _, backward = self.encoder(x, mask=mask)
        return context, self.first_state(backward)[:, None], mask

    def _advance(
        self, state: Any, y: Tensor, cache: Any, mask: Tensor
    ) -> tuple[Tensor, Tensor, Any]:
        """One token of `beams` sequences: states, `(batch, beams, ...)`, context and weights."""
        attended, weights = self.attention.step(state, cache, mask)
        assert weights is not None  # for no attention of a recurrent decoder goes without
        inputs = ops.concatenate([y, attended], axis=-1)
        flat = (ops.reshape(each, (-1, each.shape[-1])) for each in (inputs, state))
        new, _ = self.cell(*flat)
        return ops.reshape(new, ops.shape(state)), attended, weights[:, 0]

    def start_decoding(
        self, source: Tensor, beams: int, max_length: Index, coverage: bool = False
    ) -> tuple[RecurrentState, Source]:
        """Reads the source once, and makes what `decode_step` needs; see `Transformer`.

        The state holds `batch * beams * hidden_dim` numbers, whatever `max_length`, and the source
        `batch * source_length * 2 * hidden_dim`.
        """
        context, first, mask = self.encode(source, training=False)
        covered = start_coverage(mask, beams) if coverage else ()
        state = RecurrentState(ops.repeat(first, beams, axis=1), covered)
        return state, Source(self.attention.project_context(context), mask)

    def decode_step(
        self,
        ids: Tensor,
        index: Index,
        state: RecurrentState,
        shared: Source,
        back_pointers: BackPointers | None = None,
    ) -> tuple[Tensor, RecurrentState]:
        """Scores the next token of every sequence; see `Transformer.decode_step`."""
        hidden, coverage = state
        if back_pointers is not None:
            hidden = ops.take_along_axis(hidden, back_pointers.parents[..., None], axis=1)
        y = self.target_embedding(ids)
        hidden, attended, weights = self._advance(hidden, y, *shared)
        if not isinstance(coverage, tuple):
            coverage = add_coverage(coverage, weights, back_pointers)
        y = self.readout(ops.concatenate([hidden, attended, y], axis=-1))
        return self._scored(y, self.target_embedding.step_logits), RecurrentState(hidden, coverage)
