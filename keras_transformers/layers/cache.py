"""The keys and values of step-by-step decoding, as pure functions.

What a decoder has seen lies in two arrays a layer, `(batch, heads, max_length * beams, dim)`: heads
outside, as the products want them; inside, positions in order and, for each position, a slot for
every beam. (The keys of several beams lie with the last two axes swapped.) A token stays in the
slot it was written to. When a search moves its beams nothing is copied: `visible_slots` says in
which slots each beam's own past lies.
"""

from keras import ops

from keras_transformers.layers.portable import current_kernels


def empty_cache(batch, beams, max_length, heads, key_dim, value_dim, dtype):
    """Zeros; the keys of several beams are columns.

    That way round the product of a few queries with them is quicker on a CPU (a step of four beams
    by 7 %), and that of a single query slower (a step of one by 15 %).
    """
    places = beams * max_length
    value = ops.zeros((batch, heads, places, value_dim), dtype)
    key_shape = (key_dim, places) if _in_columns(beams) else (places, key_dim)
    return {"key": ops.zeros((batch, heads, *key_shape), dtype), "value": value}


def write_cache(cache, key, value, index):
    """Puts one token of every beam, `(batch, heads, beams, dim)`, at position `index`."""
    beams = key.shape[2]
    if current_kernels():
        return {
            name: current_kernels().update_slice(cache[name], index * beams, new)
            for name, new in (("key", key), ("value", value))
        }
    place = key_place = (0, 0, index * beams, 0)
    if _in_columns(beams):
        key, key_place = ops.swapaxes(key, 2, 3), (0, 0, 0, index * beams)
    return {
        "key": ops.slice_update(cache["key"], key_place, key),
        "value": ops.slice_update(cache["value"], place, value),
    }


def fill_cache(cache, key, value, beams):
    """Puts the first tokens of sequences, `(batch, heads, length, dim)`, into all beams' slots."""
    key, value = (ops.repeat(x, beams, axis=2) if beams > 1 else x for x in (key, value))
    axis = 2
    if _in_columns(beams):
        key, axis = ops.swapaxes(key, 2, 3), 3
    filled = ops.shape(value)[2]
    rest = cache["key"][:, :, filled:] if axis == 2 else cache["key"][..., filled:]
    return {
        "key": ops.concatenate([key, rest], axis=axis),
        "value": ops.concatenate([value, cache["value"][:, :, filled:]], axis=2),
    }


def read_cache(cache, beams):
    """Keys and values, both `(batch, heads, places, dim)`."""
    key, value = cache["key"], cache["value"]
    return (ops.swapaxes(key, 2, 3) if _in_columns(beams) else key), value


def _in_columns(beams):
    """Whether keys are columns."""
    return beams > 1 and not current_kernels()


def room(cache, beams):
    """Number of positions that a cache has."""
    return ops.shape(cache["value"])[2] // beams


def grow_cache(cache, beams, positions):
    """The cache with as many positions more, where its places are rows."""
    more = ((0, 0), (0, 0), (0, beams * positions), (0, 0))
    return {name: ops.pad(each, more) for name, each in cache.items()}


def visible_slots(index, max_length, beams, slots=None):
    """Which places of the cache each beam may attend to at position `index`.

    Args:
        index: Position of the newest token, an int or a scalar tensor.
        max_length: Number of positions of the cache.
        beams: Number of beams, and of slots for a position.
        slots: Integers `(batch, beams, max_length)`, the slot in which each position of a beam's
            past lies; None where every beam has kept its own.

    Returns:
        Bool `(batch or 1, beams, max_length * beams)`.
    """
    past = ops.arange(max_length) <= index
    if slots is None:
        slots = ops.arange(beams)[None, :, None]
    own = ops.equal(slots[..., None], ops.arange(beams, dtype=slots.dtype))
    visible = ops.logical_and(own, past[:, None])
    batch = -1 if visible.shape[0] is None else visible.shape[0]
    return ops.reshape(visible, (batch, beams, max_length * beams if batch == -1 else -1))
