"""Drafts and what is kept of them: the tensor work of speculative decoding."""

from typing import NamedTuple, cast

import keras
from keras import ops

from keras_transformers.annotations import Tensor
from keras_transformers.generation.batches import requested
from keras_transformers.generation.request import Request, take_at, top_tokens
from keras_transformers.generation.stepwise import drawn

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
