"""One token through a stack of decoder blocks, for every model that has one."""

from keras import ops

from keras_transformers.layers.composite import Composite
from keras_transformers.layers.decoder_attention import visible_slots


class CachedDecoding(Composite):
    """Decoding whose state has the `cache` of each block."""

    def grow_caches(self, state, beams, positions):
        """The state with as many positions more in its caches; only where nothing is compiled."""
        more = ((0, 0), (0, 0), (0, beams * positions), (0, 0))  # where positions are rows
        caches = [{k: ops.pad(x, more) for k, x in each.items()} for each in state["cache"]]
        return {**state, "cache": caches}


def step_blocks(blocks, x, index, caches, ancestry, contexts=None, context_mask=None):
    """Passes one token of every sequence through the blocks.

    Args:
        blocks: `DecoderBlock`s.
        x: `(batch, beams, hidden_dim)`.
        index: Position of the token, an int or a scalar tensor.
        caches: One from `start_cache` for each block, filled by the steps before.
        ancestry: `generation.Ancestry` of the beams; None where none has moved.
        contexts: `cross_attention.project_context(context)` of each block, or None.
        context_mask: Optional bool `(batch, context_length)`.

    Returns:
        `(batch, beams, hidden_dim)`, the new caches, and the weights of the last block's
        cross-attention `(batch, heads, beams, context_length)`, None without a context.
    """
    beams = x.shape[1]
    max_length = ops.shape(caches[0]["value"])[2] // beams
    slots = None if ancestry is None else ancestry.slots[..., :max_length]
    visible = visible_slots(index, max_length, beams, slots)
    contexts = [None] * len(blocks) if contexts is None else contexts
    after, weights = [], None
    for block, cache, context in zip(blocks, caches, contexts, strict=True):
        x, cache, weights = block.step(x, cache, index, visible, context, context_mask)
        after.append(cache)
    return x, after, weights


def position_of(index, ids):
    """The position of a step's tokens, int32 in the shape of `ids`."""
    return ops.broadcast_to(ops.cast(index, "int32"), ops.shape(ids))
