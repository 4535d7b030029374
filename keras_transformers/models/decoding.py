"""The decoding interface of the models, and the base of translators."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.annotations import BackPointers, Cache, Index, ModelMixin, Shape, Tensor
from keras_transformers.layers import TokenEmbedding, padding_mask
from keras_transformers.layers.attention.cached import (
    block_positions,
    cache_in,
    is_block,
    visible_slots,
    visible_to_block,
)
from keras_transformers.layers.base import Composite, Traced
from keras_transformers.layers.embeddings import ListedTokens
from keras_transformers.layers.parts import Prototype
from keras_transformers.models.base import ModelSettings
from keras_transformers.models.text_model import (
    TakesIds,
    TrainsWithoutLogits,
    bias_of_step,
    hidden_states,
)


def start_coverage(source_mask: Tensor, beams: int) -> Tensor:
    """float32 `(batch, beams, source_length)`: 0 at real tokens, 1 at padding."""
    padding = ops.cast(ops.logical_not(source_mask), "float32")[:, None]
    batch, _, length = ops.shape(padding)
    return ops.broadcast_to(padding, (batch, beams, length))


def add_coverage(coverage: Tensor, weights: Tensor, back_pointers: BackPointers | None) -> Tensor:
    """Each beam's coverage after a step with attention weights `(batch, beams, source_length)`."""
    if back_pointers is not None:
        coverage = ops.take_along_axis(coverage, back_pointers.parents[..., None], axis=1)
    return coverage + ops.cast(weights, "float32")


AT_A_TIME = 64  # positions of a prompt whose logits are in memory together


class DecodingState(NamedTuple):
    """What changes with every step.

    Args:
        caches: Of each decoder block.
        coverage: float32 `(batch, beams, source_length)`, how much each source token was attended
            to; empty where that is not summed up.
    """

    caches: list[Cache]
    coverage: Tensor | tuple[()] = ()


class Source(NamedTuple):
    """What an encoder made of the source, for every step.

    Args:
        context: For each decoder block what its cross-attention made of it.
        mask: Bool `(batch, source_length)`, False at padding.
    """

    context: Any
    mask: Tensor


class CachedDecoding(ModelMixin):
    """Decoding with `decoder_blocks`, whose state is a `DecodingState`; before `keras.Model`."""

    def _most_cached(self, positions: int | None) -> int | None:
        """Returns the number of tokens that a table of positions lets decode, None without a limit.

        Positions that turn by other angles in longer texts (`LongRopeScaling`) end there, too.
        """
        terms = (getattr(block.mixer, "position", None) for block in self.decoder_blocks)
        ends = [positions, *(getattr(term, "most_cached", None) for term in terms)]
        return min((end for end in ends if end is not None), default=None)

    def _check_decodable(self, max_length: Index) -> None:
        """Raises ValueError if there may be more steps than `most_decodable`.

        A tensor is what nobody knows while tracing; `generation.decode` asserts its value.
        """
        most = self.most_decodable
        if isinstance(max_length, int) and most is not None and max_length > most:
            raise ValueError(
                f"{type(self).__name__} '{self.name}': `max_length` must be at most the model's, "
                f"{most}. Received: {max_length}"
            )

    def _start_caches(self, batch: Any, beams: int, max_length: Index) -> list[Cache]:
        return [block.start_cache(batch, beams, max_length) for block in self.decoder_blocks]

    def _step_blocks(
        self,
        x: Tensor,
        index: Index,
        state: DecodingState,
        back_pointers: BackPointers | None,
        contexts: Sequence[Cache | None] | None = None,
        context_mask: Tensor | None = None,
        shared_bias: Any = None,
    ) -> tuple[Tensor, DecodingState, Any]:
        """One token of every sequence, or several of each row, through all blocks.

        Args:
            x: `(batch, beams, hidden_dim)`, or `(batch, length, hidden_dim)`.
            index, state, back_pointers: See `decode_step`.
            contexts: For each block what its cross-attention made of the context, or None.
            context_mask: Bool `(batch, context_length)`, or None.
            shared_bias: The `AttentionPositionEncoding` that the blocks share, or None.

        Returns:
            `(batch, beams, hidden_dim)`, the new `state`, and the weights of the last block's
            cross-attention `(batch, heads, beams, context_length)`, None without a context.
        """
        if is_block(index):
            visible = visible_to_block(index, state.caches[0], x.shape[1])
        else:
            slots = None if back_pointers is None else back_pointers.slots
            visible = visible_slots(index, state.caches[0], x.shape[1], slots)
        bias = None if shared_bias is None else bias_of_step(shared_bias, index, visible)
        contexts = [None] * len(self.decoder_blocks) if contexts is None else contexts
        stack, caches = (self.decoder_blocks, state.caches, contexts), []
        for block, cache, context in zip(*stack, strict=True):
            x, cache, weights = block.step(x, cache, index, visible, context, context_mask, bias)
            caches.append(cache)
        return x, state._replace(caches=caches), weights

    def caches_in(self, state: DecodingState, beams: int, dtype: str) -> DecodingState:
        """The state of `start_decoding` whose caches are held in `dtype`, "int8" or a float's."""
        return state._replace(caches=[cache_in(each, beams, dtype) for each in state.caches])

    def grow_caches(self, state: DecodingState, beams: int, positions: Index) -> DecodingState:
        """The state with as many positions more in its caches; only where nothing is compiled."""
        more = ((0, 0), (0, 0), (0, beams * positions), (0, 0))  # where positions are rows
        caches = [{k: ops.pad(x, more) for k, x in each.items()} for each in state.caches]
        return state._replace(caches=caches)


class TransformerDecoding(CachedDecoding):
    """The source once, then token by token, for `Transformer`; before `keras.Model`."""

    @property
    def most_decodable(self) -> int | None:
        """The most tokens that can be decoded: all target positions, or None without a limit."""
        return self._most_cached(getattr(self.target_positions, "most_positions", None))

    def start_decoding(
        self, source: Tensor, beams: int, max_length: Index, coverage: bool = False
    ) -> tuple[DecodingState, Source]:
        """Encodes the source once, and makes what `decode_step` needs.

        The caches hold `batch * heads * (key_dim + value_dim) * (beams * max_length +
        source_length)` numbers of the compute dtype for each decoder block.

        Args:
            source: Integer ids `(batch, source_length)`.
            beams: Number of sequences to decode for each source.
            max_length: Number of steps there may be.
            coverage: Whether to sum up how much each source token was attended to.

        Returns:
            `(state, shared)`: a `DecodingState`, whose coverage is the sums of the last block's
            cross-attention (mean of its heads), 1 at padding; and the `Source`.

        Raises:
            ValueError: If there may be more steps than `most_decodable`.
        """
        self._check_decodable(max_length)
        context = self.encode(source, training=False)
        mask = padding_mask(source, self.padding_id)
        shared = [block.cross_attention.project_context(context) for block in self.decoder_blocks]
        state = DecodingState(
            self._start_caches(ops.shape(source)[0], beams, max_length),
            start_coverage(mask, beams) if coverage else (),
        )
        return state, Source(shared, mask)

    def decode_step(
        self,
        ids: Tensor,
        index: Index,
        state: DecodingState,
        shared: Source,
        back_pointers: BackPointers | None = None,
    ) -> tuple[Tensor, DecodingState]:
        """Scores the next token of every sequence.

        Args:
            ids: Integers `(batch, beams)`, the token at position `index`; or `(batch, length)`,
                several of each row from its `index` on, where there is one beam.
            index: Int or scalar tensor; or integers `(batch,)`.
            state, shared: From `start_decoding` or the step before.
            back_pointers: `generation.BackPointers` of the beams; None where none has moved.

        Returns:
            Logits `(batch, beams or length, target vocabulary)` and the new `state`.
        """
        x = self.target_embedding.vectors(ids)
        bias = self.target_positions  # that all blocks share
        if self.adds_positions:
            here = token_positions(
                index, ids, getattr(self.target_positions, "most_positions", None)
            )
            x, bias = self.target_positions(x, positions=here), None
        x, state, weights = self._step_blocks(
            x, index, state, back_pointers, shared.context, shared.mask, bias
        )
        if not isinstance(state.coverage, tuple):
            attended = ops.mean(ops.cast(weights, "float32"), axis=1)
            coverage = add_coverage(state.coverage, attended, back_pointers)
            state = state._replace(coverage=coverage)
        x = x if self.decoder_norm is None else ops.cast(self.decoder_norm(x), x.dtype)
        return self._scored(x, self.target_embedding.step_logits), state


def token_positions(index: Index, ids: Tensor, most: int | None = None) -> Tensor:
    """Positions of the tokens of a step, int32 `(batch, beams or length)`.

    Those of a block may reach beyond the end; no token there is kept, and they are kept in a table
    of `most`.
    """
    if is_block(index):
        return block_positions(index, ids.shape[1], most)
    return ops.broadcast_to(ops.cast(index, "int32"), ops.shape(ids))


def log_probabilities(
    logits_of: Callable[[Tensor], Tensor], x: Tensor, following: Tensor
) -> Tensor:
    """Log-probabilities of `following`, a few positions at a time: logits are large.

    Args:
        logits_of: Function from `(batch, positions, hidden_dim)` to `(batch, positions, vocab)`.
        x: `(batch, length, hidden_dim)`, the output of the last norm.
        following: Integers `(batch, length)`, the token after each.

    Returns:
        Float32 `(batch, length)`.
    """

    def score(x: Tensor, following: Tensor) -> Tensor:
        logits = ops.cast(logits_of(x), "float32")
        chosen = ops.take_along_axis(logits, following[..., None], axis=-1)[..., 0]
        return chosen - ops.logsumexp(logits, axis=-1)

    batch, length = ops.shape(x)[:2]
    if x.shape[1] is not None:
        parts = [slice(i, i + AT_A_TIME) for i in range(0, length, AT_A_TIME)]
        return ops.concatenate([score(x[:, i], following[:, i]) for i in parts], axis=1)
    size = ops.minimum(length, AT_A_TIME)
    number = (length + size - 1) // size
    width = ((0, 0), (0, number * size - length))
    x = ops.reshape(ops.pad(x, (*width, (0, 0))), (batch, number, size, x.shape[2]))
    following = ops.reshape(ops.pad(following, width), (batch, number, size))

    def advance(i: Index, scores: Tensor) -> tuple[Index, Tensor]:
        new = score(ops.take(x, i, axis=1), ops.take(following, i, axis=1))
        here = (ops.arange(number) == i)[:, None]
        return i + 1, ops.where(here, new[:, None], scores)

    first = (ops.convert_to_tensor(0, "int32"), ops.zeros((batch, number, size), "float32"))
    _, scores = ops.while_loop(lambda i, scores: i < number, advance, first)
    return ops.reshape(scores, (batch, -1))[:, :length]


class Translator(Traced, TakesIds, TrainsWithoutLogits, ModelSettings, Composite, keras.Model):
    """Base of `Transformer` and `RecurrentTranslator`.

    Attributes:
        source_embedding, target_embedding: The tables, which may be one; the target's makes logits.
        padding_id: The id that stands for padding, on both sides.
    """

    needed_inputs = ("source", "target")

    def _make_tables(self, source: Any, target: Any = None) -> None:
        """Copies of the `TokenEmbedding` of the source and of the target; one where that is None.

        Raises:
            ValueError: If the two do not fit each other.
        """
        kind = TokenEmbedding
        prototype = Prototype(self, "embedding", source, kind)
        self.source_embedding = prototype.copy(self, "source_embedding")
        self.target_embedding = self.source_embedding
        if target is not None:
            prototype = Prototype(self, "embedding", target, kind)
            self.target_embedding = prototype.copy(self, "target_embedding")
        self.padding_id = self.target_embedding.padding_id
        for name in ("hidden_dim", "padding_id"):
            found = [getattr(each, name) for each in (self.source_embedding, self.target_embedding)]
            if found[0] != found[1]:
                raise ValueError(
                    f"{type(self).__name__}: the two of `embedding` must have the same `{name}`. "
                    f"Received: {found[0]} and {found[1]}"
                )

    def _build_tables(self) -> None:
        self.source_embedding.build((None, None))
        if self.target_embedding is not self.source_embedding:
            self.target_embedding.build((None, None))

    def output_table(self) -> tuple[TokenEmbedding, list[Any]] | None:
        """As `TrainsWithoutLogits.output_table`."""
        table = self.target_embedding
        return table, [] if table.bias is None else [table.bias]

    def step_within(self, ids: Tensor) -> Any:
        """`decode_step` with the logits of some target tokens alone, as a function of its own.

        Args:
            ids: Integers `(tokens,)`, whose rows of the table are taken once, for all steps.

        Returns:
            Function as `decode_step`, whose logits are `(batch, beams, tokens)`.
        """
        listed = ListedTokens(self.target_embedding, ids)

        def step(*arguments: Any) -> tuple[Tensor, Any]:
            with hidden_states():
                x, state = self.decode_step(*arguments)
            return listed.step_logits(x), state

        return step

    def log_probabilities(self, source: Tensor, target: Tensor) -> Tensor:
        """How probable the tokens of given translations are, each after those before it.

        Logits exist for a few positions at a time.

        Args:
            source: Ids `(batch, length)`.
            target: Ids `(batch, length + 1)`, the first of which is START; END should be the last
                real one.

        Returns:
            Float32 `(batch, length)`, of the tokens from the second on; 0 at padding.
        """
        following = target[:, 1:]
        with hidden_states():
            x = self({"source": source, "target": target[:, :-1]}, training=False)
        found = log_probabilities(self.target_embedding.logits, x, following)
        return ops.where(ops.equal(following, self.padding_id), 0.0, found)

    def next_log_probabilities(self, source: Tensor, target: Tensor) -> Tensor:
        """How probable each token of the vocabulary is behind the beginnings of translations.

        Args:
            source: Ids `(batch, length)`.
            target: Ids `(batch, length)`, the first of which is START; padding behind the last.

        Returns:
            Float32 `(batch, target vocabulary)`.
        """
        with hidden_states():
            x = self({"source": source, "target": target}, training=False)
        # Behind START, which with Marian's models is padding's id.
        real = ops.not_equal(target[:, 1:], self.padding_id)
        last = ops.sum(ops.cast(real, "int32"), axis=1)
        x = ops.take_along_axis(x, last[:, None, None], axis=1)
        logits = ops.cast(self.target_embedding.logits(x)[:, 0], "float32")
        return ops.log_softmax(logits)

    def compute_output_shape(self, input_shape: dict[str, Shape]) -> Shape:
        return (*input_shape["target"], self.target_embedding.vocab_size)
