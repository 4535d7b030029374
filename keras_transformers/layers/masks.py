"""Boolean masks as pure functions, and the softmax that obeys them.

True always means "may be attended" or "is a real token".
"""

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.ids import known_values
from keras_transformers.layers.portable import current_kernels


def padding_mask(ids, ignore_id=0):
    """Marks the real tokens of a batch of padded sequences.

    Args:
        ids: Integer token ids `(batch, length)`.
        ignore_id: The id that stands for padding.

    Returns:
        Bool `(batch, length)`; True where the token is real.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import padding_mask
    >>> ops.convert_to_numpy(padding_mask(ops.array([[5, 7, 0]]))).tolist()
    [[True, True, False]]
    """
    return ops.not_equal(ids, ignore_id)


def causal_mask(query_length, key_length=None, start=0):
    """Lets query `i`, which stands at position `start + i`, see keys `0 .. start + i` only.

    Args:
        query_length: Number of queries, an int or a scalar tensor.
        key_length: Number of keys; by default as many as queries.
        start: Position of the first query among the keys.

    Returns:
        Bool `(query_length, key_length)`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import causal_mask
    >>> ops.convert_to_numpy(causal_mask(2)).tolist()
    [[True, False], [True, True]]
    """
    key_length = query_length if key_length is None else key_length
    queries = ops.expand_dims(ops.arange(query_length, dtype="int32") + start, 1)
    return queries >= ops.expand_dims(ops.arange(key_length, dtype="int32"), 0)


def window_mask(query_length, window_size, causal=False):
    """Lets every token see those near it only (Beltagy et al. 2020).

    Source: "Longformer", https://arxiv.org/abs/2004.05150, section 3.1.

    Args:
        query_length: Number of tokens, an int or a scalar tensor.
        window_size: Tokens at a distance of at most `window_size // 2`, before and after, are seen;
            with `causal`, the `window_size - 1` before and the token itself.
        causal: Whether later tokens are hidden.

    Returns:
        Bool `(query_length, query_length)`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import window_mask
    >>> ops.convert_to_numpy(window_mask(3, window_size=2, causal=True)).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    places = ops.arange(query_length, dtype="int32")
    return near(places, places, window_size, causal)


def near(query_positions, key_positions, window_size, causal):
    """`window_mask` between any positions: bool `(queries, keys)`."""
    before = query_positions[:, None] - key_positions[None, :]
    if causal:
        return ops.logical_and(before >= 0, before < window_size)
    return ops.absolute(before) <= window_size // 2


def segment_mask(query_segments, key_segments=None):
    """Keeps apart the sequences that were packed into one row (Krell et al. 2021).

    Args:
        query_segments: Integers `(batch, queries)`: 1, 2, 3 ... number the sequences of a row and
            0 marks padding.
        key_segments: Integers `(batch, keys)`; by default those of the queries.

    Returns:
        Bool `(batch, queries, keys)`; True where both stand in the same sequence.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import segment_mask
    >>> ops.convert_to_numpy(segment_mask(ops.array([[1, 2, 0]]))).astype(int).tolist()
    [[[1, 0, 0], [0, 1, 0], [0, 0, 0]]]
    """
    key_segments = query_segments if key_segments is None else key_segments
    same = ops.equal(query_segments[:, :, None], key_segments[:, None, :])
    return ops.logical_and(same, (key_segments != 0)[:, None, :])


def segment_positions(same_segment):
    """Position of every token inside its own sequence of a packed row, counted from 0.

    Args:
        same_segment: Bool `(batch, length, length)` from `segment_mask`.

    Returns:
        int32 `(batch, length)`.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import segment_mask, segment_positions
    >>> same = segment_mask(ops.array([[1, 1, 2, 2, 2, 0]]))
    >>> ops.convert_to_numpy(segment_positions(same)).tolist()
    [[0, 1, 0, 1, 2, 0]]
    """
    length = ops.shape(same_segment)[-1]
    earlier = ops.logical_not(causal_mask(length))  # (key, query): key stands before query
    before = ops.logical_and(same_segment, ops.transpose(earlier))
    return ops.sum(ops.cast(before, "int32"), axis=-1)


def as_mask(mask, name):
    """A mask as a bool tensor; None of None.

    Floats are taken if they are 0 and 1, integers if none is negative (0 is False). Others, the 0
    and -1e9 of a mask that is added to scores say, would mean the opposite of what was meant. While
    a graph is traced values cannot be seen, so floats are refused there.

    Args:
        mask: Tensor, array or nested list, or None.
        name: What errors call it.

    Raises:
        ValueError: If a value is none of these, or unseen and a float.
    """
    if mask is None:
        return None
    if not hasattr(mask, "dtype"):
        mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if dtype == "bool":
        return mask
    floats = keras.backend.is_float_dtype(dtype)
    values = None if isinstance(mask, keras.KerasTensor) else known_values(mask)
    if values is not None and not (np.isin(values, (0, 1)) if floats else values >= 0).all():
        raise ValueError(
            f"{name} must be bool, or of 0 and 1 (numbers to add to scores are an "
            f"`attention_bias`). Received: {dtype} from {values.min()} to {values.max()}"
        )
    if values is None and floats:
        raise ValueError(
            f"{name} must be bool or of integers where its values cannot be seen, as in a graph "
            f"(`mask > 0.5` makes it so). Received: {dtype}"
        )
    return ops.cast(mask, "bool")


def combine_masks(*masks):
    """The conjunction of masks, any of which may be None ("everything allowed").

    Args:
        masks: Bool tensors that broadcast against one another, or None.

    Returns:
        A bool tensor, or None if every mask is None.

    Raises:
        ValueError: If a mask is of floats that are not 0 and 1, or in a graph, or is negative.

    Example:
    >>> from keras_transformers.layers import causal_mask, combine_masks
    >>> combine_masks(None, causal_mask(3), None).shape[0]
    3
    """
    combined = None
    for mask in masks:
        if mask is not None:
            mask = as_mask(mask, "combine_masks: each mask")
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def key_mask(mask):
    """Turns a padding mask of the keys, `(batch, keys)` or None, into `(batch, 1, keys)`."""
    return None if mask is None else as_mask(mask, "The mask of the keys")[:, None, :]


def hide_padding(x, mask):
    """Zeros at padding, `(batch, length, ...)`, whatever stood there: NaN and infinity too.

    What is zero here stays harmless: a weight of 0 times NaN would be NaN, in sums over keys as in
    the gradients of kernels, which are sums over tokens.

    Args:
        x: `(batch, length, ...)`.
        mask: Bool `(batch, length)`, or None.
    """
    if mask is None:
        return x
    for _ in x.shape[len(mask.shape) :]:
        mask = ops.expand_dims(mask, -1)  # LiteRT has no `[..., None]` of a mask
    return ops.where(mask, x, ops.zeros((), x.dtype))


def wide(dtype):
    """The dtype in which scores are added and softmaxes taken: float64 for it, else float32."""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"


def masked_softmax(scores, mask=None):
    """Softmax over the last axis, as if every masked score were minus infinity.

    Computed in float32 (float64 for float64 scores). A row that may attend to nothing gets weights
    of exactly zero, never NaN.

    Args:
        scores: `(..., keys)`, any floating dtype.
        mask: Optional bool that broadcasts against `scores`; True = attend.

    Returns:
        Weights of the same shape, float32 or float64.

    Example:
    >>> from keras import ops
    >>> from keras_transformers.layers import masked_softmax
    >>> weights = masked_softmax(ops.zeros((2, 2)), ops.array([[True, True], [False, False]]))
    >>> ops.convert_to_numpy(weights).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    scores = ops.cast(scores, wide(scores.dtype))
    mask = as_mask(mask, "masked_softmax: `mask`")
    if mask is not None and current_kernels():
        return current_kernels().softmax(scores, mask)
    if mask is not None:
        # Finite, so that a wholly masked row makes no NaN; elsewhere its exp() is exactly 0.
        scores = ops.where(mask, scores, -1e38)
    # Keras warns about a softmax over a single key, which is legitimate here.
    weights = ops.ones_like(scores) if scores.shape[-1] == 1 else ops.softmax(scores, axis=-1)
    return weights if mask is None else ops.where(mask, weights, 0.0)
