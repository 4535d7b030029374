"""Speculative decoding: a small model drafts, the large one checks."""

import dataclasses
from typing import Any, NamedTuple, cast

import keras
from keras import ops

from keras_transformers.core.types import Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.request import (
    Decodable,
    Decoded,
    Prefilled,
    Request,
    is_whole,
    lengths_of,
    log_normalizer,
    padding_of,
    requested,
    take_at,
    top_tokens,
    vocabularies_of,
    write_at,
)
from keras_transformers.generation.search import Greedy, Sampling, Search, Step, drawn

DRAWS = 3  # random numbers of a position: for the draft, for its acceptance, for what replaces it


class Checked(NamedTuple):
    """What is kept of sequences of which every row has its own number of tokens."""

    lengths: Tensor  # (batch,)
    tokens: Tensor  # (batch, 1, max_length): padding from the length on
    scores: Tensor  # (batch,)
    finished: Tensor  # (batch,)
    passes: Tensor  # (batch,)


def most_probable(logits: Tensor, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """The most probable tokens, and how many of the first are as drafted."""
    ids = top_tokens(logits, 1)[1][..., 0]
    return ids, leading(ids[:, :-1] == drafts)


def drawn_anew(
    target: Tensor, weights: Tensor, drafts: Tensor, index: Tensor, request: Request
) -> tuple[Tensor, Tensor]:
    """Drafts with what takes the place of the first that is refused, and how many are accepted.

    Args:
        target: The model's probabilities `(batch, number + 1, vocab)`.
        weights: Those that the drafts were drawn with, `(batch, number, vocab)`.
        drafts: Integers `(batch, number)`.
        index: Positions of the tokens, `(batch, number + 1)`.
        request: The `Request`.
    """
    p, q = (
        ops.take_along_axis(each, drafts[..., None], axis=-1)[..., 0]
        for each in (target[:, :-1], weights)
    )
    right = leading(uniform_at(request, index[:, :-1], 1) * q < p)
    ends = [(0, 0), (0, 1), (0, 0)]  # behind a draft that is accepted as a whole: p itself
    p, q = (
        ops.take_along_axis(each, right[:, None, None], axis=1)
        for each in (target, ops.pad(weights, ends))
    )
    rest = ops.maximum(p - q, 0.0)
    rest = ops.where(ops.sum(rest, axis=-1, keepdims=True) > 0, rest, p)  # but for rounding
    instead = drawn(rest, uniform_at(request, taken_from(index, right[:, None]), 2))
    ids = ops.concatenate([drafts, drafts[:, :1]], axis=1)
    here = ops.arange(ids.shape[1], dtype="int32") == right[:, None]
    return ops.where(here, instead, ids), right


def leading(true: Tensor) -> Tensor:
    """How many of `(batch, number)` are True before the first that is not."""
    return ops.sum(ops.cumprod(ops.cast(true, "int32"), axis=1), axis=1)


def taken_from(x: Tensor, positions: Tensor) -> Tensor:
    """Of `(batch, length)` what stands at each row's `positions` `(batch, number)`."""
    return ops.take_along_axis(x, positions, axis=1)


def inputs_from(tokens: Tensor, index: Tensor, number: int, request: Request) -> Tensor:
    """What the model reads from position `index` `(batch,)` on: the token before each."""
    start = ops.reshape(ops.cast(request.start_id, tokens.dtype), (-1, 1))
    start = ops.broadcast_to(start, (ops.shape(tokens)[0], 1))
    read = ops.concatenate([start, tokens[:, 0]], axis=1)  # (batch, max_length + 1)
    positions = index[:, None] + ops.arange(number, dtype=index.dtype)
    return taken_from(read, ops.minimum(positions, ops.shape(tokens)[-1]))


def inside(index: Tensor, request: Request) -> Tensor:
    """Positions that there are: what a draft says beyond the last is not kept."""
    return ops.minimum(index, ops.shape(request.forced)[1] - 1)


def uniform_at(request: Request, index: Tensor, which: int) -> Tensor:
    """Random numbers at positions `(batch,)` or `(batch, number)`.

    A position that is drafted again has the same ones: what was done about the tokens before it,
    by which it was given up, did not depend on them.
    """
    numbers = cast(Tensor, request.uniform)[..., which]
    return take_at(numbers, index) if len(index.shape) == 1 else taken_from(numbers, index)


def row_each(request: Request, number: int) -> Request:
    """The request with every row as many times as there are tokens of it to choose at once."""
    rows = keras.tree.map_structure(lambda x: ops.repeat(x, number, axis=0), requested(request))
    return request._replace(**rows)


class Started(NamedTuple):
    """A model before its first step: what it has made of the source and of the prompts."""

    step: Step
    state: Any
    shared: Any
    prefilled: Prefilled | None


@dataclasses.dataclass(frozen=True)
class Speculative(Search):
    """`Greedy` or `Sampling` in fewer steps of the model: a smaller one drafts, the model checks.

    The `draft` writes `num_tokens` tokens, the model scores all of them in one step, and those that
    it agrees with are kept, with one more of its own. With `Greedy` the tokens are those of the
    model alone, for a draft is kept where it is the model's first choice; sums are made in another
    order, so in half precision near ties may fall otherwise. With `Sampling` they follow the
    model's own distribution: a draft `x` is kept with probability `min(1, p(x) / q(x))`, where `p`
    is the model's and `q` the draft's, and otherwise replaced by one drawn from `max(0, p - q)`
    (Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, section 2.3; Chen et al. 2023,
    https://arxiv.org/abs/2302.01318, algorithm 2). Temperature, cuts and constraints shape both.

    Every row of a batch keeps its own number of tokens at each step. It pays where a step of the
    model takes long whatever the number of its tokens, at small batches of large models, and the
    draft is many times as quick and often right. An export takes no draft.

    Args:
        draft: A `models.Transformer` or `models.LanguageModel` with the vocabulary and the padding
            of the model that is decoded, which must be one of these, too.
        num_tokens: Number of tokens to draft before each step of the model.
        search: `Greedy()` or `Sampling(...)` of one sample.

    Raises:
        ValueError: If `num_tokens` is not positive, or `search` keeps several sequences; while
            searching, if a vocabulary is another one, or a model cannot take a token back.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.generation import Speculative, generate
    >>> from keras_transformers.models import Transformer
    >>> model = Transformer(vocab_size=31, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=2)
    >>> draft = Transformer(vocab_size=31, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> source = np.array([[5, 7, 2]])
    >>> found = generate(model, source, search=Speculative(draft, num_tokens=3), max_length=8)
    >>> bool((found["tokens"] == generate(model, source, max_length=8)["tokens"]).all())
    True

    The tokens that a step of the model gave, from 1 to `num_tokens + 1`:
    >>> bool(1 <= (found["lengths"] / found["passes"])[0] <= 4)
    True
    """

    draft: Decodable
    num_tokens: int = 4
    search: Greedy | Sampling = Greedy()

    def __post_init__(self) -> None:
        if not is_whole(self.num_tokens, 1):
            raise ValueError(
                "Speculative: `num_tokens` must be an integer of at least 1. "
                f"Received: {self.num_tokens}"
            )
        if not isinstance(self.search, Greedy | Sampling) or self.search.beams > 1:
            raise ValueError(
                "Speculative: `search` must be `Greedy()`, or `Sampling(...)` of one sample "
                f"(give a source several times for several). Received: {self.search}"
            )

    @property
    def constraints(self) -> Constraints:  # type: ignore[override]
        """Those of `search`."""
        return self.search.constraints

    @property
    def beams(self) -> int:
        return 1

    def check(self, model: Decodable) -> None:
        """ValueError if the draft cannot draft for a model."""
        for name, each in (("the model", model), ("`draft`", self.draft)):
            if not hasattr(each, "grow_caches"):
                raise ValueError(
                    f"Speculative: {name} must have a cache that can take back tokens, as those "
                    f"of Transformer and LanguageModel. Received: {type(each).__name__}"
                )
        expected, received = (
            (*vocabularies_of(each), padding_of(each)) for each in (model, self.draft)
        )
        if received[1:] != expected[1:] or (expected[0] and received[0] not in (None, expected[0])):
            raise ValueError(
                "Speculative: `draft` must have the (source vocabulary, vocabulary, padding id) of "
                f"the model, {expected}. Received: {received}"
            )

    def speculate(self, model: Started, draft: Started, request: Request) -> Decoded[Tensor]:
        """Searches.

        Args:
            model, draft: Each `Started`, with room for `num_tokens` tokens behind the longest.
            request: A `Request`.

        Returns:
            Dict of `tokens`, `scores` and `lengths` as from other searches, and `passes`
            `(batch,)`, the number of the model's steps in which a row took tokens.
        """
        request = self.constraints.demanding(request)
        batch, limit = ops.shape(request.forced)
        prefilled = model.prefilled
        if prefilled is None or draft.prefilled is None:
            prefilled = Prefilled(ops.convert_to_tensor(0, "int32"), ops.zeros((batch,), "float32"))
        _, tokens, scores = prefilled.sequences(request)
        none = ops.zeros_like(request.forced[:, 0])
        lengths = none + ops.cast(prefilled.length, none.dtype)
        kept = Checked(lengths, tokens, scores[:, 0], lengths >= limit, none)

        def more(kept: Checked, state: Any, drafting: Any) -> Tensor:
            return ops.logical_not(ops.all(kept.finished))

        def advance(kept: Checked, state: Any, drafting: Any) -> tuple[Checked, Any, Any]:
            tokens, weights, drafting = self._write(draft, drafting, kept, request)
            ids = inputs_from(tokens, kept.lengths, self.num_tokens + 1, request)
            logits, state = model.step(ids, kept.lengths, state, model.shared, None)
            return self._take(logits, tokens, weights, kept, request), state, drafting

        kept, _, _ = ops.while_loop(more, advance, (kept, model.state, draft.state))
        tokens = kept.tokens[:, 0]
        return {
            "tokens": tokens,
            "scores": kept.scores,
            "lengths": lengths_of(tokens, request.padding_id),
            "finished": self.constraints.boundaries.finished(tokens, request),
            "passes": kept.passes,
        }

    def _write(
        self, draft: Started, state: Any, kept: Checked, request: Request
    ) -> tuple[Tensor, Tensor | None, Any]:
        """The tokens with those of the draft, what these were drawn by, and the draft's state."""
        tokens, weights = kept.tokens, []
        # The last of a draft that was kept as a whole has not been taken in: two tokens at first.
        index = ops.maximum(kept.lengths - 1, 0)
        ids, newest = inputs_from(tokens, index, 2, request), kept.lengths - index
        for _ in range(self.num_tokens):
            logits, state = draft.step(ids, index, state, draft.shared, None)
            index = index + newest  # of the token to choose
            logits = ops.take_along_axis(logits, newest[:, None, None], axis=1)
            here = inside(index, request)
            allowed = ops.cast(logits, "float32")
            allowed = self.constraints.penalize(allowed, tokens, here, request)
            allowed = self.constraints.restrict(allowed, tokens, here, request)
            if isinstance(self.search, Greedy):
                ids = top_tokens(allowed, 1)[1][..., 0]
            else:
                weights.append(self.search.probabilities(allowed))
                ids = drawn(weights[-1], uniform_at(request, here, 0)[:, None])
            tokens = write_at(tokens, ids, index)
            index, newest = index + 1, ops.zeros_like(newest)
        return tokens, ops.concatenate(weights, axis=1) if weights else None, state

    def _take(
        self,
        logits: Tensor,
        tokens: Tensor,
        weights: Tensor | None,
        kept: Checked,
        request: Request,
    ) -> Checked:
        """What the model's logits `(batch, num_tokens + 1, vocab)` leave of a draft, and add."""
        number, limit = self.num_tokens + 1, ops.shape(tokens)[-1]
        index = kept.lengths[:, None] + ops.arange(number, dtype="int32")
        there = inside(index, request)
        here, alone = ops.reshape(there, (-1,)), row_each(request, number)  # a row each token
        past = ops.repeat(tokens, number, axis=0)
        past = ops.where(ops.arange(limit) < here[:, None, None], past, request.padding_id)
        logits = ops.cast(ops.reshape(logits, (-1, 1, logits.shape[-1])), "float32")
        allowed = self.constraints.penalize(logits, past, here, alone)
        allowed = self.constraints.restrict(allowed, past, here, alone)
        drafts = taken_from(tokens[:, 0], there)[:, :-1]
        rows = ops.reshape(allowed, (-1, number, allowed.shape[-1]))
        if weights is None:
            ids, right = most_probable(rows, drafts)
        else:
            rows = cast(Sampling, self.search).probabilities(rows)
            ids, right = drawn_anew(rows, weights, drafts, there, request)
        flat = ops.reshape(ids, (-1, 1))
        constraints = self.constraints
        is_own = constraints.repetition_penalty != 1.0 and not constraints.renormalize
        own = logits if is_own else allowed
        logit = ops.take_along_axis(own, flat[..., None], axis=-1)[..., 0]
        normalizer = log_normalizer(logits)
        gained = self.constraints.log_probabilities(allowed, logit, normalizer, here, alone)
        written = write_at(past, flat, here)
        ended = self.constraints.boundaries.ended(flat, written, here, alone)[:, 0]
        last = limit if alone.cut_lengths is None else ops.minimum(limit, alone.cut_lengths)
        ended = ops.reshape(ops.logical_or(ended, here + 1 >= last), (-1, number))
        # Up to the first that ends the sequence, or to the one that is the model's own.
        before = ops.cumsum(ops.cast(ended, "int32"), axis=1) - ops.cast(ended, "int32")
        taken = ops.logical_and(before == 0, ops.arange(number) <= right[:, None])
        taken = ops.logical_and(taken, ops.logical_not(kept.finished)[:, None])
        lengths = kept.lengths + ops.sum(ops.cast(taken, kept.lengths.dtype), axis=1)
        gained = ops.where(taken, ops.reshape(gained, (-1, number)), 0.0)
        for i in range(number):
            tokens = write_at(tokens, ids[:, i : i + 1], index[:, i])
        tokens = ops.where(ops.arange(limit) < lengths[:, None, None], tokens, request.padding_id)
        finished = ops.logical_or(kept.finished, ops.any(ops.logical_and(taken, ended), axis=1))
        passes = kept.passes + ops.cast(ops.any(taken, axis=1), kept.passes.dtype)
        return Checked(lengths, tokens, kept.scores + ops.sum(gained, axis=1), finished, passes)
