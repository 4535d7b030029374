"""What a decoded sequence must and must not hold."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.generation.boundaries import Boundaries
from keras_transformers.generation.phrases import Progress, demands_of, first_progress, leave_room
from keras_transformers.generation.request import (
    IMPOSSIBLE,
    MASKED,
    Demands,
    Request,
    among,
    any_of,
    is_finite,
    is_whole,
    limits_of,
    log_normalizer,
    number_of,
    over_beams,
    prompt_lengths,
    take_at,
)


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Limits on what a search may choose; scores stay the model's own log-probabilities.

    Forced tokens (a prompt) are exempt, and one that the model excludes (its logit is minus
    infinity) counts nothing. Where nothing is left to choose, the sequence ends. START, or the
    first token of a prompt that stands in its place, is part of a sequence where n-grams and banned
    sequences are looked for.

    Args:
        min_length: Fewest tokens of a sequence, END included.
        min_ratio: Fewest tokens relative to the source's (END included on both sides), rounded up.
        max_ratio: Most tokens relative to the source's, rounded down, at least 1; END is forced
            there. (`max_length` of `generate` cuts.)
        no_repeat_ngram: No n-gram of this size occurs twice in a sequence; 0 allows all (Paulus et
            al. 2017, https://arxiv.org/abs/1705.04304, section 2.5).
        banned: Ids, and sequences (tuples) of ids, that never occur.
        required: Ids each of which occurs at least once: phrases of one token, for every row. See
            `Request`, which has those of each row.
        min_new: Fewest tokens behind a prompt, END not included.
        boundaries: `Boundaries`: which ids end a sequence, what it begins and ends with.
        renormalize: Whether log-probabilities are those among what is allowed, which sum to 1.
        repetition_penalty: Above 1 makes tokens less probable that the sequence has, in its prompt
            or behind it; below 1 more probable (Keskar et al. 2019,
            https://arxiv.org/abs/1909.05858, section 4.1). A logit is divided by it if positive,
            else multiplied; a beam search, whose scores include it, takes log-probabilities for
            logits. Both as in `transformers`.

    Raises:
        ValueError: If a number or an id is negative, no number, or a fraction where an integer is
            needed; if `repetition_penalty` is not positive, `min_ratio` exceeds `max_ratio`, or an
            id is both banned and required. While searching, if an id is beyond the vocabulary, a
            required one is padding or ends a sequence, or padding is the only END.

    Example:
    >>> from keras_transformers.generation import BeamSearch, Constraints
    >>> search = BeamSearch(4, constraints=Constraints(no_repeat_ngram=3, banned=(7,)))
    >>> search.constraints.no_repeat_ngram
    3
    """

    min_length: int = 0
    min_ratio: float = 0.0
    max_ratio: float | None = None
    no_repeat_ngram: int = 0
    banned: tuple[int | tuple[int, ...], ...] = ()
    required: tuple[int, ...] = ()
    min_new: int = 0
    boundaries: Boundaries = Boundaries()
    renormalize: bool = False
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "banned", _sorted(self.banned))
        object.__setattr__(self, "required", tuple(dict.fromkeys(self.required)))
        ratio = self.max_ratio
        whole = all(map(is_whole, (self.min_length, self.no_repeat_ngram, self.min_new)))
        ratios = is_finite(self.min_ratio) and self.min_ratio >= 0
        if not (whole and ratios and (ratio is None or (is_finite(ratio) and ratio > 0))):
            raise ValueError(
                "Constraints: numbers must not be negative, `min_length`, `no_repeat_ngram` and "
                f"`min_new` must be integers, and `max_ratio` positive. Received: {self}"
            )
        if self.max_ratio is not None and self.min_ratio > self.max_ratio:
            raise ValueError(f"Constraints: `min_ratio` must not exceed `max_ratio`: {self}")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                "Constraints: `repetition_penalty` must be a positive number. "
                f"Received: {self.repetition_penalty}"
            )
        ids = (*self.banned_ids, *self.required)
        inside = [token for sequence in self.banned_sequences for token in sequence]
        if not all(map(is_whole, (*ids, *inside))) or len(set(ids)) < len(ids):
            raise ValueError(
                "Constraints: `banned` and `required` must be ids from 0 on with none in common. "
                f"Received: banned={self.banned}, required={self.required}"
            )

    @property
    def banned_ids(self) -> tuple[int, ...]:
        """Those of `banned` that are ids."""
        return tuple(each for each in self.banned if not isinstance(each, tuple))

    @property
    def banned_sequences(self) -> tuple[tuple[int, ...], ...]:
        """Those of `banned` that are sequences of ids."""
        return tuple(each for each in self.banned if isinstance(each, tuple))

    def limits(
        self, source_lengths: Tensor, max_lengths: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """`min_lengths` and `max_lengths` of a `Request`, integers `(batch,)` or None each.

        Args:
            source_lengths: Integers `(batch,)`, END included.
            max_lengths: Optional integers `(batch,)`, a limit of other origin: the smaller counts.
        """
        source = ops.cast(source_lengths, "float32")
        shortest = longest = None
        if self.min_length or self.min_ratio:
            # Ratios such as 1.1 are not exact in binary: 1.1 times 10 must stay 11.
            relative = ops.ceil(self.min_ratio * source - 1e-4)
            shortest = ops.maximum(ops.cast(relative, "int32"), self.min_length)
        if self.max_ratio is not None:
            longest = ops.cast(ops.floor(self.max_ratio * source + 1e-4), "int32")
            longest = ops.maximum(longest, 1)
        if max_lengths is not None:
            max_lengths = ops.cast(max_lengths, "int32")
            longest = max_lengths if longest is None else ops.minimum(longest, max_lengths)
        return shortest, longest

    def check_no_ratio(self, where: str) -> None:
        """ValueError if there are lengths relative to a source's, which there is not."""
        if self.min_ratio or self.max_ratio is not None:
            raise ValueError(
                f"{where}, `min_ratio` and `max_ratio` of constraints must be left out: they are "
                f"relative to its length. Received: {self.min_ratio}, {self.max_ratio}"
            )

    def demanding(self, request: Request) -> Request:
        """The request with all phrases as `Demands`: its own, and `required`."""
        phrases = request.phrases
        if isinstance(phrases, Demands) or not (self.required or phrases is not None):
            return request
        if self.required:
            batch, padding = ops.shape(request.forced)[0], request.padding_id
            ids = ops.convert_to_tensor(self.required, "int32")[None, :, None]
            ids = ops.broadcast_to(ids, (batch, len(self.required), 1))
            if phrases is not None:
                rest = ops.shape(phrases)[2:]
                ids = ops.reshape(ids, (*ops.shape(ids)[:2], *[1] * len(rest)))
                short = [[0, size - 1] for size in rest]
                ids = ops.pad(ids, [[0, 0], [0, 0], *short], constant_values=padding)
                ids = ops.concatenate([ids, ops.cast(phrases, "int32")], axis=1)
            phrases = ids
        marks = 1 + (self.boundaries.first is not None)  # END is the other
        room = limits_of(request) - prompt_lengths(request) - marks
        return request._replace(phrases=demands_of(phrases, request, room))

    def penalize(self, logits: Tensor, tokens: Tensor, index: Index, request: Request) -> Tensor:
        """Applies `repetition_penalty` to the logits of tokens that a sequence has, START included.

        Args:
            logits, tokens, index, request: As for `restrict`, which comes after it.
        """
        if self.repetition_penalty == 1.0:
            return logits
        vocab = number_of(logits)
        before = ops.arange(ops.shape(tokens)[-1], dtype="int32") < over_beams(index)
        before = ops.logical_and(before, tokens != request.padding_id)
        start = ops.reshape(ops.cast(request.start_id, "int32"), (-1, 1, 1))
        start = ops.broadcast_to(start, (*ops.shape(tokens)[:2], 1))
        start = ops.where(start < 0, vocab, start)  # padding that is no token
        ids = ops.concatenate([start, ops.where(before, ops.cast(tokens, "int32"), vocab)], axis=-1)
        penalty = self.repetition_penalty
        penalized = ops.where(logits < 0, logits * penalty, logits / penalty)
        return ops.where(any_of(ids, vocab), penalized, logits)

    def restrict(
        self,
        logits: Tensor,
        tokens: Tensor,
        index: Index,
        request: Request,
        progress: Progress | tuple[()] = (),
    ) -> Tensor:
        """Lowers to `MASKED` what must not be chosen now.

        Args:
            logits: float32 `(batch, beams, vocab)`.
            tokens: Integers `(batch, beams, max_length)`, what has been chosen before `index`.
            index: Position of the token to choose, or `(batch,)`, one for each row.
            request: The `Request`, see `demanding`.
            progress: How far `tokens` have come with its phrases; worked out where it is left out.
        """
        vocab = number_of(logits)
        self._check(vocab, request)
        ids = ops.arange(vocab, dtype="int32")
        is_end = self.boundaries.is_end(ids, request)
        banned = (request.padding_id, *self.banned_ids)
        allowed = ops.logical_not(among(vocab, banned))
        allowed = self._at_the_edges(allowed, index, request, ids, is_end)
        demands = request.phrases
        if demands is not None:
            known = progress or first_progress(request, tokens, index)
            allowed = leave_room(allowed, known, index, request, is_end)
        if self.no_repeat_ngram or self.banned_sequences:
            wrong = self._completing_banned(tokens, index, request, vocab)
            allowed = ops.logical_and(allowed, ops.logical_not(wrong))
        few = self.no_repeat_ngram or self.banned or self.boundaries.banned_first
        if few or demands is not None:
            possible = ops.logical_and(allowed, logits > MASKED / 2)
            stuck = ops.logical_not(ops.any(possible, axis=-1, keepdims=True))
            allowed = ops.logical_or(allowed, ops.logical_and(stuck, is_end))
        forced = self.boundaries.forced(index, request)[:, None, None]
        free = forced == request.padding_id
        free_logits = ops.where(allowed, logits, MASKED)
        # A forced token is taken even if its logit is minus infinity.
        forced_logits = ops.where(logits > IMPOSSIBLE, logits, IMPOSSIBLE)
        return ops.where(free, free_logits, ops.where(ids == forced, forced_logits, MASKED))

    def log_probabilities(
        self,
        logits: Tensor,
        best: Tensor,
        normalizer: tuple[Tensor, Tensor],
        index: Index,
        request: Request,
    ) -> Tensor:
        """What the chosen tokens add to the log-probabilities of their sequences.

        Args:
            logits: From `restrict`, `(batch, beams, vocab)`.
            best: Those of the chosen tokens, `(batch, beams)` or `(batch, beams, number)`.
            normalizer: `log_normalizer` of the logits before.
            index, request: As for `restrict`.
        """
        most, log_sum = log_normalizer(logits) if self.renormalize else normalizer
        settled = self.boundaries.not_scored(index, request)
        if len(best.shape) == 3:
            most, log_sum = most[..., None], log_sum[..., None]
        logp = (best - most) - log_sum
        logp = ops.where(best == IMPOSSIBLE, 0.0, logp)
        if settled is None:
            return logp
        return ops.where(ops.reshape(settled, (-1, *[1] * (len(logp.shape) - 1))), 0.0, logp)

    def _at_the_edges(
        self, allowed: Tensor, index: Index, request: Request, ids: Tensor, is_end: Tensor
    ) -> Tensor:
        """No END too early, and not first what may not be."""
        early = []  # (batch,)
        if request.min_lengths is not None:
            early.append(index + 1 < request.min_lengths)
        if self.min_new:
            early.append(index < prompt_lengths(request) + self.min_new)
        for where in early:
            wrong = ops.logical_and(where[:, None, None], is_end)
            allowed = ops.logical_and(allowed, ops.logical_not(wrong))
        if self.boundaries.banned_first:
            begins = self.boundaries.begins(index, request)[:, None, None]
            banned = among(number_of(ids), self.boundaries.banned_first)
            allowed = ops.logical_and(allowed, ops.logical_not(ops.logical_and(begins, banned)))
        return allowed

    def _check(self, vocab: Index, request: Request) -> None:
        padding_id, ends = request.padding_id, self.boundaries.ends or (request.end_id,)
        if set(ends) == {padding_id}:
            raise ValueError(
                "Constraints: a sequence must end with a token that is not padding, "
                f"{padding_id}. Received: {ends}"
            )
        if set(ends) & set(self.required):
            raise ValueError(
                "Constraints: `required` must have no token that ends a sequence, for nothing "
                f"follows it. Received: {self.required}, where {ends} end sequences"
            )
        if not isinstance(vocab, int):
            return  # of a list, which `Shortlisted` has checked
        named = [*self.banned_ids, *self.boundaries.ids, *ends]
        named += [token for sequence in self.banned_sequences for token in sequence]
        wrong = [token for token in dict.fromkeys(named) if not 0 <= token < vocab]
        wrong += [token for token in self.required if token >= vocab or token == padding_id]
        if wrong:
            raise ValueError(
                "Constraints: ids must be below the vocabulary's size, "
                f"{vocab}, and `required` not padding, {padding_id}. Received: {wrong}"
            )

    def _completing_banned(
        self, tokens: Tensor, index: Index, request: Request, vocab: Index
    ) -> Tensor:
        """Tokens that would complete a banned sequence, or an n-gram that there is already."""
        batch, beams = ops.shape(tokens)[0], tokens.shape[1]
        start = ops.reshape(ops.cast(request.start_id, "int32"), (-1, 1, 1))
        start = ops.broadcast_to(start, (batch, beams, 1))
        tokens = ops.concatenate([start, ops.cast(tokens, "int32")], axis=-1)
        found = []
        if self.no_repeat_ngram:
            found.append(self._repeating(tokens, index + 1, vocab))
        lengths = sorted({len(sequence) for sequence in self.banned_sequences})
        for length in lengths:
            alike = [each for each in self.banned_sequences if len(each) == length]
            before, last = np.array(alike, "int32")[:, :-1], np.array(alike, "int32")[:, -1]
            positions = [index + 1 + back for back in range(1 - length, 0)]
            chosen = [take_at(tokens, ops.maximum(position, 0)) for position in positions]
            match = ops.stack(chosen, axis=-1)[..., None, :] == before
            there = ops.stack([over_beams(position) >= 0 for position in positions], axis=-1)
            match = ops.logical_and(match, there)
            found.append(ops.where(ops.all(match, axis=-1), last, vocab))
        return any_of(ops.concatenate(found, axis=-1), vocab)

    def _repeating(self, tokens: Tensor, index: Index, vocab: Index) -> Tensor:
        """Each token that completes an n-gram as the next one would; else `vocab`."""
        size, positions = self.no_repeat_ngram, ops.arange(ops.shape(tokens)[-1])
        match = ops.logical_and(positions < over_beams(index), positions >= size - 1)
        for back in range(1, size):
            last = take_at(tokens, ops.maximum(index - back, 0))[..., None]
            match = ops.logical_and(match, ops.roll(tokens, back, axis=-1) == last)
        return ops.where(match, tokens, vocab)


def _sorted(banned: Iterable[int | Sequence[int]]) -> tuple[int | tuple[int, ...], ...]:
    """Ids, then sequences of several, each once."""
    each = [tuple(item) if isinstance(item, Iterable) else (item,) for item in banned]
    if not all(each):
        raise ValueError(f"Constraints: `banned` must hold no empty sequence. Received: {banned}")
    if not all(is_whole(token, -(2**31)) for item in each for token in item):
        raise ValueError(
            f"Constraints: `banned` must be integers and sequences of integers. Received: {banned}"
        )
    ids = sorted({int(item[0]) for item in each if len(item) == 1})
    return (*ids, *sorted({tuple(map(int, item)) for item in each if len(item) > 1}))
