"""Phrases that a sequence must hold, and how far each hypothesis has come with them.

A phrase is looked for as by Knuth, Morris and Pratt: where it breaks off, what stands there may be
its beginning once more.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformers.annotations import Index, Tensor

NONE = -1  # no token


class Demands(NamedTuple):
    """The phrases of each row of a batch, and what is known of them beforehand."""

    ids: Tensor  # (batch, phrases, length): `NONE` behind each
    lengths: Tensor  # (batch, phrases): 0 where there is none
    needed: Tensor  # (batch, phrases): how often it must occur; 0 for one that stood there before
    agreeing: Tensor  # (batch, phrases, length): how many tokens from each on are as the first


class Progress(NamedTuple):
    """How far hypotheses have come, `(batch, beams, phrases)` each."""

    matched: Tensor  # tokens of it that are the last of the hypothesis
    found: Tensor  # how often it has occurred


def demands_of(phrases: Tensor, padding_id: int, room: Tensor) -> Demands:
    """What is demanded of each row.

    Args:
        phrases: Integers `(batch, phrases, length)`, padding behind each.
        padding_id: Padding.
        room: How many tokens all phrases of a row may have, `(batch,)`. The first phrases that fit
            into it are demanded, the others are not.
    """
    ids = ops.cast(phrases, "int32")
    lengths = ops.sum(ops.cast(ids != padding_id, "int32"), axis=-1)
    fits = ops.cumsum(lengths, axis=1) <= room[:, None]
    lengths = ops.where(fits, lengths, 0)
    positions = ops.arange(ops.shape(ids)[2], dtype="int32")
    ids = ops.where(positions < lengths[..., None], ids, NONE)
    equal = ops.all(ids[:, :, None] == ids[:, None], axis=-1)  # (batch, phrases, phrases)
    times = ops.sum(ops.cast(equal, "int32"), axis=-1)
    before = ops.sum(ops.cast(ops.tril(equal, -1), "int32"), axis=-1)
    needed = ops.where(ops.logical_and(lengths > 0, before == 0), times, 0)
    shifted = positions[:, None] + positions
    inside = shifted < lengths[..., None, None]
    there = ops.take(ids, ops.minimum(shifted, positions[-1]), axis=-1)
    same = ops.logical_and(inside, there == ids[:, :, None])
    agreeing = ops.sum(ops.cumprod(ops.cast(same, "int32"), axis=-1), axis=-1)
    return Demands(ids, lengths, needed, agreeing)


def first_progress(demands: Demands, tokens: Tensor, index: Index) -> Progress:
    """How far `tokens` `(batch, beams, max_length)` have come before `index`, or `(batch,)`."""
    none = ops.zeros_like(tokens[..., :1] + demands.lengths[:, None])
    before = ops.reshape(index, (-1, 1, 1))

    def advance(i: Tensor, matched: Tensor, found: Tensor) -> tuple[Tensor, ...]:
        old = Progress(matched, found)
        new = after(demands, old, ops.take(tokens, i, axis=-1)[..., None])
        known = zip((new.matched, new.found), old, strict=True)
        return i + 1, *(ops.where(i < before, each[:, :, 0], kept) for each, kept in known)

    first = (ops.convert_to_tensor(0, "int32"), none, none)
    _, *progress = ops.while_loop(lambda i, *_: i < ops.max(index), advance, first)
    return Progress(*progress)


def lacking(demands: Demands, progress: Progress) -> Tensor:
    """How often each phrase must still occur, `(batch, beams, phrases)`."""
    return ops.maximum(demands.needed[:, None] - progress.found, 0)


def next_ids(demands: Demands, progress: Progress) -> Tensor:
    """The next token of each phrase that lacks; `NONE` of the others."""
    ids = ops.broadcast_to(
        demands.ids[:, None], (*ops.shape(progress.matched), ops.shape(demands.ids)[-1])
    )
    ids = ops.take_along_axis(ids, progress.matched[..., None], axis=-1)[..., 0]
    return ops.where(lacking(demands, progress) > 0, ids, NONE)


def after(demands: Demands, progress: Progress, ids: Tensor) -> Progress:
    """Progress with one token more: `(batch, beams, number, phrases)` of ids `(..., number)`."""
    matched = progress.matched[..., None]
    position = ops.arange(ops.shape(demands.ids)[-1], dtype="int32")
    # The token at `position` may follow where all before it are the last that were matched.
    shift = matched - position
    agreeing = ops.broadcast_to(demands.agreeing[:, None], ops.shape(shift))
    agreeing = ops.take_along_axis(agreeing, ops.maximum(shift, 0), axis=-1)
    follows = ops.logical_and(shift >= 0, ops.logical_or(position == 0, agreeing >= position))
    lacks = lacking(demands, progress)
    follows = ops.logical_and(follows, lacks[..., None] > 0)
    follows = ops.where(follows, demands.ids[:, None], NONE)[:, :, None]
    match = follows == ops.cast(ids, "int32")[..., None, None]
    new = ops.max(ops.where(match, position + 1, 0), axis=-1)
    whole = ops.logical_and(new == demands.lengths[:, None, None], new > 0)
    found = progress.found[:, :, None] + ops.cast(whole, "int32")
    return Progress(ops.where(whole, 0, new), found)


def beside(progress: Progress) -> Progress:
    """That of `(batch, beams, number)` as that of `(batch, beams * number)`."""
    matched, found = (
        ops.reshape(each, (-1, each.shape[1] * each.shape[2], ops.shape(each)[3]))
        for each in progress
    )
    return Progress(matched, found)


def after_each(demands: Demands, progress: Progress, ids: Tensor) -> Progress:
    """Progress with one token more of each hypothesis, ids `(batch, beams)`."""
    return beside(after(demands, progress, ids[..., None]))


def begun(demands: Demands, progress: Progress) -> Tensor:
    """How many tokens of a phrase that lacks stand at the end, `(batch, beams)`."""
    there = lacking(demands, progress) > 0
    return ops.max(ops.where(there, progress.matched, 0), axis=-1)


def due(demands: Demands, progress: Progress, room: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the room that is left asks of the next token.

    Args:
        demands, progress: Of the hypotheses.
        room: Positions that are left, `(batch,)` or `(1,)`.

    Returns:
        Whether a phrase lacks, and whether there is room for what goes on with none of them, bool
        `(batch, beams)`; and the tokens of which one must follow where there is not, `(batch,
        beams, phrases)`.
    """
    lacks = lacking(demands, progress)
    left = ops.sum(lacks * demands.lengths[:, None], axis=-1)
    here, ids = begun(demands, progress), next_ids(demands, progress)
    going_on = ops.where(progress.matched == here[..., None], ids, NONE)
    free = ops.logical_or(left == 0, room[:, None] > left + 1)
    return left > 0, free, going_on


def levels(demands: Demands, progress: Any) -> Tensor:
    """The bank of each candidate `(batch, candidates)`: how many tokens of phrases it has."""
    done = ops.minimum(progress.found, demands.needed[:, None])
    whole = ops.sum(done * demands.lengths[:, None], axis=-1)
    return whole + begun(demands, progress)
