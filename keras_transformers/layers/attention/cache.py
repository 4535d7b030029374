"""What a decoder has seen: keys and values of all tokens before.

They lie in two arrays a layer, `(batch, heads, max_length * beams, dim)`: heads outside, as the
products want them; inside, positions in order and, for each position, a slot for every beam. A
token stays in the slot it was written to. When a search moves its beams nothing is copied:
`visible_slots` says where each beam's own past lies.

They may be held in fewer bits than the layers compute in (`cache_in`); in 8 bits there is a scale
for the key and for the value of each token and head, in arrays of their own.
"""

from keras import ops
from keras.quantizers import abs_max_quantize

from keras_transformers.annotations import Cache, Index, Tensor
from keras_transformers.layers.portable import KERNELS

SCALE = "_scale"  # behind the name of what it belongs to


def in_columns(beams: int) -> bool:
    """Whether keys are columns, `(batch, heads, dim, max_length * beams)`."""
    return beams > 1 and KERNELS.get() is None


def cache_in(cache: Cache, beams: int, dtype: str) -> Cache:
    """An empty cache like this one whose keys and values are held in another type.

    Args:
        cache: From `start_cache`, `{"key": ..., "value": ...}`.
        beams: The number it was started with.
        dtype: A floating-point type; or "int8", with a float32 scale for each key and value.
    """
    held = {name: ops.cast(x, dtype) for name, x in cache.items()}
    if dtype == "int8":
        key, value = cache["key"], cache["value"]
        held["key" + SCALE] = ops.cast(
            key[:, :, :1] if in_columns(beams) else key[..., :1], "float32"
        )
        held["value" + SCALE] = ops.cast(value[..., :1], "float32")
    return held


def entries_of(cache: Cache, key: Tensor, value: Tensor) -> Cache:
    """New keys and values `(batch, heads, tokens, dim)` as the cache holds them, in rows."""
    if "key" + SCALE not in cache:
        new = {"key": key, "value": value}
        return {name: ops.cast(x, cache[name].dtype) for name, x in new.items()}
    held = {}
    for name, x in (("key", key), ("value", value)):
        held[name], scale = abs_max_quantize(ops.cast(x, "float32"), axis=-1)
        held[name + SCALE] = 1 / scale
    return held


def _of_key(name: str) -> bool:
    return name.startswith("key")


def write_cache(cache: Cache, key: Tensor, value: Tensor, index: Index) -> Cache:
    """Puts one token of every beam, `(batch, heads, beams, dim)`, at position `index`."""
    beams, kernels, filled = key.shape[2], KERNELS.get(), {}
    for name, new in entries_of(cache, key, value).items():
        if kernels is not None:
            filled[name] = kernels.update_slice(cache[name], index * beams, new)
        elif in_columns(beams) and _of_key(name):
            new, position = ops.swapaxes(new, 2, 3), (0, 0, 0, index * beams)
            filled[name] = ops.slice_update(cache[name], position, new)
        else:
            filled[name] = ops.slice_update(cache[name], (0, 0, index * beams, 0), new)
    return filled


def fill_cache(cache: Cache, key: Tensor, value: Tensor, beams: int) -> Cache:
    """Puts the first tokens of sequences, `(batch, heads, length, dim)`, into all beams' slots."""
    filled = {}
    for name, new in entries_of(cache, key, value).items():
        new, axis = ops.repeat(new, beams, axis=2) if beams > 1 else new, 2
        rest = cache[name][:, :, ops.shape(new)[2] :]
        if in_columns(beams) and _of_key(name):
            rest, axis = cache[name][..., ops.shape(new)[2] :], 3
            new = ops.swapaxes(new, 2, 3)
        filled[name] = ops.concatenate([new, rest], axis=axis)
    return filled


def read_cache(cache: Cache, beams: int, dtype: str) -> tuple[Tensor, Tensor]:
    """Keys and values, both `(batch, heads, positions, dim)`, in the type to compute in."""
    key, value = (ops.cast(cache[name], dtype) for name in ("key", "value"))
    if "key" + SCALE in cache:
        key = key * ops.cast(cache["key" + SCALE], dtype)
        value = value * ops.cast(cache["value" + SCALE], dtype)
    return (ops.swapaxes(key, 2, 3) if in_columns(beams) else key), value


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
