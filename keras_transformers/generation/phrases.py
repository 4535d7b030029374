"""Phrases that a sequence must hold, and how far each hypothesis has come with them.

A phrase is looked for as by Knuth, Morris and Pratt: where it breaks off, what stands there may be
its beginning once more.
"""

from typing import NamedTuple

from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.generation.request import Demands, Request, any_of, limits_of, number_of

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
