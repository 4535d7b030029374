"""What a decoded sequence must and must not hold, and how far it has come with its phrases.

A phrase is looked for as by Knuth, Morris and Pratt: where it breaks off, what stands there may be
its beginning once more.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.generation.boundaries import Boundaries
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

NONE = -1  # no token


class Progress(NamedTuple):
    """How far hypotheses have come."""

    matched: Tensor  # (batch, beams, forms): how many of its tokens are the last of the hypothesis
    found: Tensor  # (batch, beams, phrases): how often it has occurred
    joins: Tensor  # (batch, beams): whether what follows may join the last token


def demands_of(phrases: Tensor, request: Request, room: Tensor) -> Demands:
    """What is demanded of each row.

    Args:
        phrases: Integers `(batch, phrases, [forms,] length)`, padding behind each.
        request: The `Request`.
        room: How many tokens all phrases of a row may have, `(batch,)`. From the first that does
            not fit into it on, none is demanded.
    """
    ids = ops.cast(phrases, "int32")
    ids = ids if len(ids.shape) == 4 else ids[:, :, None]
    lengths = ops.sum(ops.cast(ids != request.padding_id, "int32"), axis=-1)
    begins = _is(ids[..., 0], 0, request)
    sizes = ops.max(lengths + ops.cast(begins, "int32"), axis=-1)  # something must part them
    fits = ops.cumsum(sizes, axis=1) <= room[:, None]
    sizes, lengths = ops.where(fits, sizes, 0), ops.where(fits[..., None], lengths, 0)
    positions = ops.arange(ops.shape(ids)[3], dtype="int32")
    ids = ops.where(positions < lengths[..., None], ids, NONE)
    equal = ops.all(ids[:, :, None] == ids[:, None], axis=(-2, -1))  # (batch, phrases, phrases)
    earlier = ops.sum(ops.cast(ops.tril(equal, -1), "int32"), axis=-1)
    first = ops.logical_and(sizes > 0, earlier == 0)
    needed = ops.where(first, ops.sum(ops.cast(equal, "int32"), axis=-1), 0)
    batch, number, forms, length = ops.shape(ids)
    ids = ops.reshape(ids, (batch, number * forms, length))
    lengths = ops.reshape(lengths, (batch, number * forms))
    shifted = positions[:, None] + positions
    there = ops.take(ids, ops.minimum(shifted, positions[-1]), axis=-1)
    same = ops.logical_and(shifted < lengths[..., None, None], there == ids[:, :, None])
    agreeing = ops.sum(ops.cumprod(ops.cast(same, "int32"), axis=-1), axis=-1)
    joining, joinable = (_is(ids, which, request) for which in (0, 1))
    begins = joining[..., 0]
    before = ops.pad(joinable[..., :-1], [[0, 0], [0, 0], [1, 0]])
    agreeing = ops.where(ops.logical_and(begins[..., None], before), 0, agreeing)
    last = ops.take_along_axis(joinable, ops.maximum(lengths - 1, 0)[..., None], axis=-1)[..., 0]
    waits = ops.logical_and(last, lengths > 0)
    return Demands(ids, lengths, agreeing, begins, waits, sizes, needed)


def _is(ids: Tensor, which: int, request: Request) -> Tensor:
    """Whether tokens join (0), may be joined (1), or link (2): see `Request.joints`."""
    if request.joints is None:
        return ops.zeros_like(ids, "bool")
    found = ops.take(ops.convert_to_tensor(request.joints[which]), ops.maximum(ids, 0), axis=0)
    return ops.logical_and(ids >= 0, found)


def _of_phrases(x: Tensor, demands: Demands) -> Tensor:
    """Whether any form is, `(..., phrases)`, of bool `(..., forms)`."""
    phrases = ops.shape(demands.sizes)[1]
    forms = ops.shape(demands.lengths)[1] // phrases
    return ops.any(ops.reshape(x, (*ops.shape(x)[:-1], phrases, forms)), axis=-1)


def _of_forms(x: Tensor, demands: Demands) -> Tensor:
    """What is `(..., phrases)`, for each of their forms: `(..., forms)`."""
    all_forms = ops.shape(demands.lengths)[1]
    forms = all_forms // ops.shape(demands.sizes)[1]
    wide = ops.broadcast_to(x[..., None], (*ops.shape(x), forms))
    return ops.reshape(wide, (*ops.shape(x)[:-1], all_forms))


def first_progress(request: Request, tokens: Tensor, index: Index) -> Progress:
    """How far `tokens` `(batch, beams, max_length)` have come before `index`, or `(batch,)`."""
    demands: Demands = request.phrases
    none = ops.cast(tokens[..., 0] * 0, "int32")
    first = Progress(
        none[..., None] + demands.lengths[:, None] * 0,
        none[..., None] + demands.sizes[:, None] * 0,
        none > 0,
    )
    before = ops.reshape(ops.cast(index, "int32"), (-1, 1))

    def advance(i: Tensor, *old: Tensor) -> tuple[Tensor, ...]:
        new = after_each(request, Progress(*old), ops.take(tokens, i, axis=-1))
        kept = []
        for each, was in zip(new, old, strict=True):
            there = ops.reshape(i < before, (-1, *[1] * (len(was.shape) - 1)))
            kept.append(ops.where(there, each, was))
        return i + 1, *kept

    start = (ops.convert_to_tensor(0, "int32"), *first)
    _, *progress = ops.while_loop(lambda i, *_: i < ops.max(before), advance, start)
    return Progress(*progress)


def lacking(demands: Demands, progress: Progress) -> Tensor:
    """How often each phrase must still occur, `(batch, beams, phrases)`."""
    return ops.maximum(demands.needed[:, None] - progress.found, 0)


def _waiting(demands: Demands, progress: Progress) -> Tensor:
    """Which phrases `(batch, beams, phrases)` have occurred, unless the next token joins them."""
    whole = progress.matched == demands.lengths[:, None]
    waits = _of_phrases(ops.logical_and(whole, demands.waits[:, None]), demands)
    return ops.logical_and(waits, lacking(demands, progress) > 0)


def next_ids(demands: Demands, progress: Progress) -> Tensor:
    """The next token of each form of a phrase that lacks; `NONE` of the others."""
    longest = ops.shape(demands.ids)[-1]
    shape = (*ops.shape(progress.matched), longest)
    ids = ops.broadcast_to(demands.ids[:, None], shape)
    at = ops.minimum(progress.matched, longest - 1)[..., None]
    ids = ops.take_along_axis(ids, at, axis=-1)[..., 0]
    there = _of_forms(lacking(demands, progress), demands) > 0
    there = ops.logical_and(there, progress.matched < demands.lengths[:, None])
    return ops.where(ops.logical_and(there, _may_begin(demands, progress)), ids, NONE)


def _may_begin(demands: Demands, progress: Progress) -> Tensor:
    """False where a form would begin with a token that joins the last, `(batch, beams, forms)`."""
    wrong = ops.logical_and(demands.begins[:, None], progress.joins[..., None])
    return ops.logical_or(progress.matched > 0, ops.logical_not(wrong))


def after(request: Request, progress: Progress, ids: Tensor) -> Progress:
    """Progress with one token more: `(batch, beams * number, ...)` of ids `(..., number)`."""
    demands: Demands = request.phrases
    joining, joinable, links = (_is(ids, which, request) for which in range(3))
    position = ops.arange(ops.shape(demands.ids)[-1], dtype="int32")
    # The token at `position` may follow where all before it are the last that were matched.
    shift = progress.matched[..., None] - position
    agreeing = ops.broadcast_to(demands.agreeing[:, None], ops.shape(shift))
    most = ops.shape(demands.ids)[-1] - 1
    agreeing = ops.take_along_axis(agreeing, ops.clip(shift, 0, most), axis=-1)
    wrong = ops.logical_and(demands.begins[:, None], progress.joins[..., None])[..., None]
    begins = ops.logical_and(position == 0, ops.logical_not(wrong))
    goes_on = ops.logical_and(position > 0, agreeing >= position)
    follows = ops.logical_and(shift >= 0, ops.logical_or(begins, goes_on))
    lacks = _of_forms(lacking(demands, progress), demands)[..., None] > 0
    follows = ops.where(ops.logical_and(follows, lacks), demands.ids[:, None], NONE)
    match = follows[:, :, None] == ops.cast(ids, "int32")[..., None, None]
    # An occurrence that the token does not join is settled, and no other overlaps with it.
    waiting = _waiting(demands, progress)[:, :, None]
    open_still = ops.logical_or(joining, links)  # (batch, beams, number)
    settled = ops.logical_and(waiting, ops.logical_not(open_still)[..., None])
    anew = ops.logical_not(_of_forms(settled, demands))[..., None]
    match = ops.logical_and(match, ops.logical_or(position == 0, anew))
    new = ops.max(ops.where(match, position + 1, 0), axis=-1)  # (batch, beams, number, forms)
    whole = ops.logical_and(new == demands.lengths[:, None, None], new > 0)
    whole = ops.logical_and(whole, ops.logical_not(demands.waits)[:, None, None])
    whole = _of_phrases(whole, demands)
    length = demands.lengths[:, None, None]
    waits = ops.logical_and(_of_forms(waiting, demands), progress.matched[:, :, None] == length)
    new = ops.where(ops.logical_and(waits, links[..., None]), length, new)
    new = ops.where(_of_forms(whole, demands), 0, new)
    found = progress.found[:, :, None] + ops.cast(whole, "int32") + ops.cast(settled, "int32")
    rows = (-1, ids.shape[1] * ids.shape[2])
    new, found = (ops.reshape(x, (*rows, ops.shape(x)[-1])) for x in (new, found))
    return Progress(new, found, ops.reshape(joinable, rows))


def after_each(request: Request, progress: Progress, ids: Tensor) -> Progress:
    """Progress with one token more of each hypothesis, ids `(batch, beams)`."""
    return after(request, progress, ids[..., None])


def _spared(demands: Demands, progress: Progress) -> Tensor:
    """Tokens that each form makes needless by what there is of it, `(batch, beams, forms)`."""
    sizes = _of_forms(demands.sizes, demands)[:, None]
    spared = sizes - (demands.lengths[:, None] - progress.matched)
    there = _of_forms(lacking(demands, progress), demands) > 0
    return ops.where(ops.logical_and(there, progress.matched > 0), spared, 0)


def leave_room(
    allowed: Tensor, progress: Progress, index: Index, request: Request, is_end: Tensor
) -> Tensor:
    """No END before all phrases, and those alone where the room is just enough.

    Args:
        allowed: Bool `(vocab,)` or `(batch, beams, vocab)`.
        progress: Of the hypotheses.
        index, request: See `Constraints.restrict`.
        is_end: Bool `(vocab,)`.

    Returns:
        Bool `(batch, beams, vocab)`.
    """
    demands: Demands = request.phrases
    lacks = lacking(demands, progress)
    left = ops.sum(lacks * demands.sizes[:, None], axis=-1)[..., None]
    waiting = ops.cast(_waiting(demands, progress), "int32")
    rest = ops.sum((lacks - waiting) * demands.sizes[:, None], axis=-1)[..., None]
    allowed = ops.logical_and(allowed, ops.logical_or(rest == 0, ops.logical_not(is_end)))
    spared, ids = _spared(demands, progress), next_ids(demands, progress)
    going_on = ops.where(spared == ops.max(spared, axis=-1, keepdims=True), ids, NONE)
    # What has occurred must not be joined now: another phrase begins.
    first = _of_forms(lacks - waiting, demands) > 0
    first = ops.logical_and(first, ops.logical_not(demands.begins)[:, None])
    first = ops.where(first, demands.ids[:, None, :, 0], NONE)
    going_on = ops.where(ops.any(waiting > 0, axis=-1, keepdims=True), first, going_on)
    vocab = number_of(is_end)
    must = any_of(ops.where(going_on < 0, vocab, going_on), vocab)
    if request.joints is not None:  # those that can begin may be such as would join the last token
        joining, joinable = (ops.convert_to_tensor(each) for each in request.joints[:2])
        parts = ops.logical_and(
            ops.logical_or(rest == 0, ops.logical_not(joinable)), ops.logical_not(joining)
        )
        none = ops.all(going_on == NONE, axis=-1, keepdims=True)
        must = ops.logical_or(must, ops.logical_and(none, parts))
    room = ops.reshape(limits_of(request) - index, (-1, 1, 1))
    free = ops.logical_or(left == 0, room > left + 1)
    return ops.logical_and(allowed, ops.logical_or(free, must))


def standing(demands: Demands, progress: Progress) -> tuple[Tensor, Tensor]:
    """How far each hypothesis has come, integers `(batch, beams)`.

    Returns:
        Its bank, twice its phrases and one for one begun; and how many of the demanded tokens it
        has.
    """
    waiting = ops.cast(_waiting(demands, progress), "int32")
    done = ops.minimum(progress.found + waiting, demands.needed[:, None])
    waits = _of_forms(waiting, demands) > 0
    begun = ops.max(ops.where(waits, 0, _spared(demands, progress)), axis=-1)
    begun = ops.maximum(begun, 0)
    bank = 2 * ops.sum(done, axis=-1) + ops.cast(begun > 0, "int32")
    return bank, ops.sum(done * demands.sizes[:, None], axis=-1) + begun


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
