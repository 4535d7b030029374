"""What a decoded sequence must and must not hold."""

import dataclasses

import numpy as np
from keras import ops

from keras_transformers.generation.request import NEVER


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Limits on what a search may choose; scores stay the model's own log-probabilities.

    Forced tokens (a prompt) are exempt. Where nothing is left to choose, the sequence ends.

    Args:
        min_length: Fewest tokens of a sequence, END included.
        min_ratio: Fewest tokens relative to the source's (END included on both sides), rounded up.
        max_ratio: Most tokens relative to the source's, rounded down, at least 1; END is forced
            there. (`max_length` of `generate` cuts.)
        no_repeat_ngram: No n-gram of this size occurs twice in a sequence; 0 allows all (Paulus et
            al. 2017, https://arxiv.org/abs/1705.04304, section 2.5).
        banned: Ids that never occur.
        required: Ids each of which occurs at least once. `BeamSearch` keeps places for sequences
            with 0, 1, 2 ... of them (Post and Vilar 2018, https://arxiv.org/abs/1804.06609); all
            searches force those that lack as soon as they would not fit any more.

    Raises:
        ValueError: If a number or an id is negative, `min_ratio` exceeds `max_ratio`, or an id is
            both banned and required; while searching, if one is padding's or beyond the vocabulary.

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
    banned: tuple[int, ...] = ()
    required: tuple[int, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "banned", tuple(sorted(set(self.banned))))
        object.__setattr__(self, "required", tuple(dict.fromkeys(self.required)))
        numbers = (self.min_length, self.min_ratio, self.no_repeat_ngram)
        if min(numbers) < 0 or (self.max_ratio is not None and self.max_ratio <= 0):
            raise ValueError(f"Constraints: numbers must not be negative. Received: {self}")
        if self.max_ratio is not None and self.min_ratio > self.max_ratio:
            raise ValueError(f"Constraints: `min_ratio` must not exceed `max_ratio`: {self}")
        ids = (*self.banned, *self.required)
        if any(token < 0 for token in ids) or len(set(ids)) < len(ids):
            raise ValueError(
                "Constraints: `banned` and `required` must be ids from 0 on with none in common. "
                f"Received: banned={self.banned}, required={self.required}"
            )

    def limits(self, source_lengths, max_lengths=None):
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

    def restrict(self, logits, tokens, index, request):
        """Lowers to `NEVER` what must not be chosen now.

        Args:
            logits: float32 `(batch, beams, vocab)`.
            tokens: Integers `(batch, beams, max_length)`, what has been chosen before `index`.
            index: Place of the token to choose.
            request: The `Request`.
        """
        vocab = logits.shape[-1]
        self._check(vocab, request.padding_id)
        ids = ops.arange(vocab, dtype="int32")
        is_end = ids == request.end_id
        forced = ops.take(request.forced, index, axis=1)
        banned = (request.padding_id, *self.banned)
        allowed = ops.convert_to_tensor(~np.isin(np.arange(vocab), banned))
        if request.min_lengths is not None:
            may_end = (index + 1 >= request.min_lengths)[:, None, None]
            allowed = ops.logical_and(allowed, ops.logical_or(may_end, ops.logical_not(is_end)))
        if self.required:
            allowed = self._leave_room(allowed, tokens, index, request, ids, is_end)
        if self.no_repeat_ngram:
            repeats = self._repeats(tokens, index, vocab)
            allowed = ops.logical_and(allowed, ops.logical_not(repeats))
        if self.no_repeat_ngram or self.banned or self.required:
            possible = ops.logical_and(allowed, logits > NEVER / 2)
            stuck = ops.logical_not(ops.any(possible, axis=-1, keepdims=True))
            allowed = ops.logical_or(allowed, ops.logical_and(stuck, is_end))
        if request.max_lengths is not None:
            last = ops.logical_and(index + 1 >= request.max_lengths, forced == request.padding_id)
            forced = ops.where(last, request.end_id, forced)
        forced = forced[:, None, None]
        free = forced == request.padding_id
        return ops.where(ops.where(free, allowed, ids == forced), logits, NEVER)

    def _check(self, vocab, padding_id):
        wrong = [token for token in self.banned if token >= vocab]
        wrong += [token for token in self.required if token >= vocab or token == padding_id]
        if wrong:
            raise ValueError(
                "Constraints: `banned` and `required` must be below the vocabulary's size, "
                f"{vocab}, and `required` not padding, {padding_id}. Received: {wrong}"
            )

    def met(self, tokens):
        """Which of `required` occur in `tokens`: bool `(batch, beams, len(required))`."""
        required = ops.convert_to_tensor(self.required, dtype="int32")
        return ops.any(tokens[..., None] == required, axis=-2)

    def _leave_room(self, allowed, tokens, index, request, ids, is_end):
        """No END before all required tokens, and those alone where the room is just enough."""
        lacking = ops.logical_not(self.met(tokens))
        number = ops.sum(ops.cast(lacking, "int32"), axis=-1)[..., None]
        wanted = ops.any(
            ops.logical_and(
                lacking[..., None], ops.convert_to_tensor(self.required, "int32")[:, None] == ids
            ),
            axis=-2,
        )
        room = ops.shape(tokens)[-1] - index
        if request.max_lengths is not None:
            room = ops.minimum(room, request.max_lengths - index)[:, None, None]
        allowed = ops.logical_and(allowed, ops.logical_or(number == 0, ops.logical_not(is_end)))
        tight = ops.logical_and(number > 0, room <= number + 1)
        return ops.where(tight, wanted, allowed)

    def _repeats(self, tokens, index, vocab):
        """Tokens that would complete an n-gram which the sequence already has."""
        size, max_length = self.no_repeat_ngram, ops.shape(tokens)[-1]
        places = ops.arange(max_length)
        match = ops.logical_and(places < index, places >= size - 1)
        for back in range(1, size):
            last = ops.take(tokens, ops.maximum(index - back, 0), axis=-1)[..., None]
            match = ops.logical_and(match, ops.roll(tokens, back, axis=-1) == last)
        # What completes no n-gram is counted behind the vocabulary.
        completing, counters = ops.where(match, tokens, vocab), vocab + 1
        batch, beams = ops.shape(tokens)[0], tokens.shape[1]
        rows = ops.arange(batch * beams, dtype="int32")[:, None]
        places = ops.reshape(rows * counters + ops.reshape(completing, (-1, max_length)), (-1, 1))
        counted = ops.scatter_update(
            ops.zeros((batch * beams * counters,), "int32"), places, ops.ones_like(places[:, 0])
        )
        return ops.reshape(counted, (batch, beams, counters))[..., :vocab] > 0
