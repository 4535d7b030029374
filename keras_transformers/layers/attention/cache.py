"""Caches of what a decoder has seen, token by token.

What a decoder has seen lies in two arrays a layer, `(batch, heads, max_length * beams, dim)`: heads
outside, as the products want them; inside, positions in order and, for each position, a slot for
every beam. (The keys of several beams lie with the last two axes swapped.) A token stays in the
slot it was written to. When a search moves its beams nothing is copied: `visible_slots` says where
each beam's own past lies.
"""

from keras import ops

from keras_transformers.annotations import Cache, Index, Tensor
from keras_transformers.layers.portable import KERNELS


def write_cache(cache: Cache, key: Tensor, value: Tensor, index: Index) -> Cache:
    """Puts one token of every beam, `(batch, heads, beams, dim)`, at position `index`."""
    beams, kernels = key.shape[2], KERNELS.get()
    if kernels is not None:
        return {
            name: kernels.update_slice(cache[name], index * beams, new)
            for name, new in (("key", key), ("value", value))
        }
    position = key_position = (0, 0, index * beams, 0)
    if in_columns(beams):
        key, key_position = ops.swapaxes(key, 2, 3), (0, 0, 0, index * beams)
    key = ops.slice_update(cache["key"], key_position, key)
    return {"key": key, "value": ops.slice_update(cache["value"], position, value)}


def fill_cache(cache: Cache, key: Tensor, value: Tensor, beams: int) -> Cache:
    """Puts the first tokens of sequences, `(batch, heads, length, dim)`, into all beams' slots."""
    key, value = (ops.repeat(x, beams, axis=2) if beams > 1 else x for x in (key, value))
    filled = ops.shape(value)[2]
    if in_columns(beams):
        rest = [ops.swapaxes(key, 2, 3), cache["key"][..., filled:]]
    else:
        rest = [key, cache["key"][:, :, filled:]]
    key = ops.concatenate(rest, axis=3 if in_columns(beams) else 2)
    return {"key": key, "value": ops.concatenate([value, cache["value"][:, :, filled:]], axis=2)}


def read_cache(cache: Cache, beams: int) -> tuple[Tensor, Tensor]:
    """Keys and values, both `(batch, heads, positions, dim)`."""
    key, value = cache["key"], cache["value"]
    return (ops.swapaxes(key, 2, 3) if in_columns(beams) else key), value


def in_columns(beams: int) -> bool:
    """Whether keys are columns."""
    return beams > 1 and KERNELS.get() is None


def visible_slots(index: Index, cache: Cache, beams: int, slots: Tensor | None = None) -> Tensor:
    """Which positions of the cache each beam may attend to at position `index`.

    Args:
        index: Position of the newest token, an int or a scalar tensor.
        cache: From `start_cache`, for `max_length` positions.
        beams: Number of beams, and of slots for a position.
        slots: Integers `(batch, beams, max_length or more)`, the slot in which each position of a
            beam's past lies; None where every beam has kept its own.

    Returns:
        Bool `(batch or 1, beams, max_length * beams)`.
    """
    max_length = ops.shape(cache["value"])[2] // beams
    past = ops.arange(max_length) <= index
    slots = ops.arange(beams)[None, :, None] if slots is None else slots[..., :max_length]
    own = ops.equal(slots[..., None], ops.arange(beams, dtype=slots.dtype))
    visible = ops.logical_and(own, past[:, None])
    batch = -1 if visible.shape[0] is None else visible.shape[0]
    return ops.reshape(visible, (batch, beams, max_length * beams if batch == -1 else -1))
