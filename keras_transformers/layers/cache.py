"""The keys and values of step-by-step decoding, as pure functions.

What a decoder has seen lies in two arrays a layer, `(batch * heads, max_length * beams, dim)`:
heads outside, as the products want them; inside, positions in order and, for each position, a slot
for every beam. (The keys of several beams lie with the last two axes swapped.) A token stays in the
slot it was written to. When a search moves its beams nothing is copied: `visible_slots` says in
which slots each beam's own past lies.
"""

import math

from keras import ops

from keras_transformers.layers.masks import masked_softmax


def fold_heads(x):
    """`(batch, length, heads, dim)` -> `(batch * heads, length, dim)`."""
    length = ops.shape(x)[1] if x.shape[1] is None else x.shape[1]
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, length, x.shape[3]))


def empty_cache(rows, beams, max_length, key_dim, value_dim, dtype):
    """Zeros for `rows = batch * heads`; the keys of several beams are columns.

    That way round the product of a few queries with them is quicker on a CPU (a step of four beams
    by 7 %), and that of a single query slower (a step of one by 15 %).
    """
    places = beams * max_length
    key_shape = (key_dim, places) if beams > 1 else (places, key_dim)
    return {
        "key": ops.zeros((rows, *key_shape), dtype),
        "value": ops.zeros((rows, places, value_dim), dtype),
    }


def write_cache(cache, key, value, index):
    """Puts one token of every beam, `(batch, beams, heads, dim)`, at position `index`."""
    beams = key.shape[1]
    key, key_place = fold_heads(key), (0, index * beams, 0)
    if beams > 1:
        key, key_place = ops.transpose(key, (0, 2, 1)), (0, 0, index * beams)
    return {
        "key": ops.slice_update(cache["key"], key_place, key),
        "value": ops.slice_update(cache["value"], (0, index * beams, 0), fold_heads(value)),
    }


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
    return ops.reshape(visible, (-1, beams, max_length * beams))


def attend_cache(query, cache, visible=None, key_columns=False):
    """Scaled dot-product attention of one token of every beam to a cache.

    Args:
        query: `(batch, beams, heads, key_dim)`.
        cache: Dict of `key` `(batch * heads, places, key_dim)` and `value`.
        key_columns: Whether `key` is `(batch * heads, key_dim, places)` instead.
        visible: Optional bool `(batch or 1, beams or 1, places)`; True = attend.

    Returns:
        `(batch, beams, heads, value_dim)` and the weights `(batch, heads, beams, places)`.
    """
    key, value = cache["key"], cache["value"]
    beams, heads, places = query.shape[1], query.shape[2], ops.shape(value)[1]
    query = fold_heads(query * ops.cast(1 / math.sqrt(query.shape[3]), query.dtype))
    scores = ops.matmul(query, key if key_columns else ops.transpose(key, (0, 2, 1)))
    scores = ops.reshape(scores, (-1, heads, beams, places))
    weights = masked_softmax(scores, None if visible is None else visible[:, None])
    weights = ops.cast(weights, query.dtype)
    output = ops.matmul(ops.reshape(weights, (-1, beams, places)), value)
    output = ops.reshape(output, (-1, heads, beams, value.shape[2]))
    return ops.transpose(output, (0, 2, 1, 3)), weights
