"""Decoding token by token: the state of a model, a step of its blocks, and scores of tokens."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from keras import ops

from keras_transformers.core.types import BackPointers, Cache, Index, Tensor
from keras_transformers.layers.attention.cached import (
    block_positions,
    cache_in,
    is_block,
    visible_slots,
    visible_to_block,
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


def shortest_cache(blocks: Sequence[Any], positions: int | None) -> int | None:
    """Returns the number of tokens that can be decoded, None without a limit.

    Positions that turn by other angles in longer texts (`LongRopeScaling`) end there.

    Args:
        blocks: The decoder blocks.
        positions: The number of rows of a table of positions; None without one.
    """
    terms = (getattr(block.mixer, "position", None) for block in blocks)
    ends = [positions, *(getattr(term, "most_cached", None) for term in terms)]
    return min((end for end in ends if end is not None), default=None)


def check_decodable(model: Any, max_length: Index) -> None:
    """Raises ValueError if there may be more steps than `most_decodable` of a model.

    A tensor has no value while tracing; `generation.decode` asserts its value.
    """
    most = model.most_decodable
    if isinstance(max_length, int) and most is not None and max_length > most:
        raise ValueError(
            f"{type(model).__name__} '{model.name}': `max_length` must be at most the model's, "
            f"{most}. Received: {max_length}"
        )


def bias_of_step(layer: Any, index: Index, visible: Tensor) -> Tensor:
    """Returns the bias that all blocks share, for a step: `(1, heads, beams, slots)`.

    Args:
        layer: The shared `AttentionPositionEncoding`.
        index: Position of the token, an int or a scalar tensor; `(batch,)` for a block step.
        visible: `(batch or 1, beams, slots)`, from `visible_slots`; or for a block step `(batch,
            length, slots)`, for which the bias is `(batch, heads, length, slots)`.
    """
    slots = ops.arange(ops.shape(visible)[2], dtype="int32")
    if is_block(index):
        queries = ops.reshape(block_positions(index, visible.shape[1]), (-1,))
        bias = layer.bias(None, queries, slots)  # (heads, batch * length, slots)
        bias = ops.reshape(bias, (bias.shape[0], -1, visible.shape[1], ops.shape(visible)[2]))
        return ops.swapaxes(bias, 0, 1)
    queries = ops.reshape(ops.cast(index, "int32"), (1,))
    return ops.expand_dims(layer.bias(None, queries, slots // visible.shape[1]), 0)


def step_blocks(
    blocks: Sequence[Any],
    x: Tensor,
    index: Index,
    state: DecodingState,
    back_pointers: BackPointers | None,
    contexts: Sequence[Cache | None] | None = None,
    context_mask: Tensor | None = None,
    shared_bias: Any = None,
) -> tuple[Tensor, DecodingState, Any]:
    """Runs one token of every sequence, or several of each row, through all blocks.

    Args:
        blocks: The decoder blocks.
        x: `(batch, beams, hidden_dim)`, or `(batch, length, hidden_dim)`.
        index, state, back_pointers: See `decode_step`.
        contexts: For each block what its cross-attention made of the context, or None.
        context_mask: Bool `(batch, context_length)`, or None.
        shared_bias: The `AttentionPositionEncoding` that the blocks share, or None.

    Returns:
        `(batch, beams, hidden_dim)`, the new `state`, and the weights of the last block's
        cross-attention `(batch, heads, beams, context_length)`, None without a context.
    """
    if len(getattr(index, "shape", ())) == 1:
        visible = visible_to_block(cast(Tensor, index), state.caches[0], x.shape[1])
    else:
        slots = None if back_pointers is None else back_pointers.slots
        visible = visible_slots(index, state.caches[0], x.shape[1], slots)
    bias = None if shared_bias is None else bias_of_step(shared_bias, index, visible)
    contexts = [None] * len(blocks) if contexts is None else contexts
    stack, caches = (blocks, state.caches, contexts), []
    for block, cache, context in zip(*stack, strict=True):
        x, cache, weights = block.step(x, cache, index, visible, context, context_mask, bias)
        caches.append(cache)
    return x, state._replace(caches=caches), weights


def hold_caches_in(model: Any, state: DecodingState, beams: int, dtype: str) -> DecodingState:
    """Returns the state of `start_decoding` with caches in `dtype`, "int8" or a float's.

    Models that have caches take it as their method `caches_in`.
    """
    return state._replace(caches=[cache_in(cache, beams, dtype) for cache in state.caches])


def grow_caches(model: Any, state: DecodingState, beams: int, positions: Index) -> DecodingState:
    """Returns the state with as many positions more in its caches; only where nothing is compiled.

    Models that have caches take it as their method.
    """
    more = ((0, 0), (0, 0), (0, beams * positions), (0, 0))  # where positions are rows
    caches = [{name: ops.pad(x, more) for name, x in cache.items()} for cache in state.caches]
    return state._replace(caches=caches)


def token_positions(index: Index, ids: Tensor, most: int | None = None) -> Tensor:
    """Positions of the tokens of a step, int32 `(batch, beams or length)`.

    Those of a block may reach beyond the end; no token there is kept, and they are kept in a table
    of `most`.
    """
    if len(getattr(index, "shape", ())) == 1:  # a block
        return block_positions(cast(Tensor, index), ids.shape[1], most)
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
