"""Boolean masks as pure functions, and which masks callers may give.

True always means "may be attended" or "is a real token".
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Index, Tensor
from keras_transformers.layers.checks import known_values, named, refuse


def padding_mask(ids: Tensor, ignore_id: int = 0) -> Tensor:
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


def causal_mask(query_length: Index, key_length: Index | None = None, start: Index = 0) -> Tensor:
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


def window_mask(query_length: Index, window_size: int, causal: bool = False) -> Tensor:
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
    positions = ops.arange(query_length, dtype="int32")
    return within_window(positions, positions, window_size, causal)


def within_window(
    query_positions: Tensor, key_positions: Tensor, window_size: int, causal: bool
) -> Tensor:
    """`window_mask` between any positions: bool `(queries, keys)`."""
    before = query_positions[:, None] - key_positions[None, :]
    if causal:
        return ops.logical_and(before >= 0, before < window_size)
    return ops.absolute(before) <= window_size // 2


def segment_mask(query_segments: Tensor, key_segments: Tensor | None = None) -> Tensor:
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


def segment_positions(same_segment: Tensor) -> Tensor:
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


def as_mask(mask: Any, name: str) -> Any:
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


def combine_masks(*masks: Tensor | None) -> Tensor | None:
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


def hide_padding(x: Tensor, mask: Tensor | None) -> Tensor:
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


# Keras layers whose `call` takes `mask`, `(batch, length)`, and leaves out what it hides.
KERAS_WITH_MASK = (
    keras.layers.RNN,
    keras.layers.Bidirectional,
    keras.layers.TimeDistributed,
    keras.layers.BatchNormalization,
)
# Keras layers that need zeros at padding only: beyond the ends they add zeros themselves.
KERAS_WITH_ZEROS = (
    keras.layers.Conv1D,
    keras.layers.Conv2D,
    keras.layers.DepthwiseConv1D,
    keras.layers.DepthwiseConv2D,
    keras.layers.SeparableConv1D,
    keras.layers.SeparableConv2D,
)
# Keras layers that normalise over `axis`.
KERAS_NORMS = (
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.UnitNormalization,
)


def takes_mask(part: Any) -> bool:
    """True if the `call` of a layer takes a padding mask as `mask`.

    Layers say so by an attribute `takes_mask`; of Keras's layers, `KERAS_WITH_MASK` do.
    """
    return bool(getattr(part, "takes_mask", isinstance(part, KERAS_WITH_MASK)))


def is_position_wise(part: Any, rank: int = 3) -> bool:
    """True if a layer is known to compute every token by itself.

    Layers say so by an attribute `position_wise`; of Keras's layers, `Dense` and norms over the
    last axis do.

    Args:
        part: A Keras layer.
        rank: Number of axes of its input, the last of which has the features.
    """
    alone = isinstance(part, (*KERAS_NORMS, keras.layers.Dense))
    return getattr(part, "position_wise", alone and not mixes_positions(part, rank))


def mixes_positions(part: Any, rank: int = 3) -> bool:
    """True if a layer, or a layer of a model, is known to compute a token from others as well.

    Args:
        part: A Keras layer.
        rank: Number of axes of its input, the last of which has the features.
    """
    if hasattr(part, "position_wise"):
        return not part.position_wise
    if isinstance(part, keras.Model) and not hasattr(part, "takes_mask"):
        return any(mixes_positions(layer, rank) for layer in part.layers)
    if isinstance(part, KERAS_NORMS):
        axes = part.axis if isinstance(part.axis, list | tuple) else [part.axis]
        return any(axis not in (-1, rank - 1) for axis in axes)
    with_zeros = isinstance(part, (*KERAS_WITH_ZEROS, keras.layers.GroupNormalization))
    return with_zeros or takes_mask(part)


def apply_to_tokens(
    owner: Any, argument: str, part: Any, x: Tensor, padding: Tensor | None, **options: Any
) -> Any:
    """Returns `part(x)`; what stands at padding changes nothing in the rows of real tokens.

    A part that takes a mask gets it. All others, except norms and networks that are known to
    compute every token by itself, get zeros at padding.

    Args:
        owner: The layer whose part it is.
        argument: What the owner calls it.
        part: A layer from `(batch, length, hidden_dim)` to such a tensor.
        x: Its input.
        padding: Bool `(batch, length)`, True = real token, or None.
        **options: What `part` is called with besides.

    Raises:
        ValueError: If there is a mask, and the part sums over positions without one.
    """
    if padding is None or is_position_wise(part, len(x.shape)):
        return part(x, **options)
    if takes_mask(part):
        return part(x, mask=padding, **options)
    if mixes_positions(part, len(x.shape)) and not isinstance(part, KERAS_WITH_ZEROS):
        expected = (
            "a layer that computes every token by itself, or one that takes `mask`, where there is "
            "padding: this one would count what stands at padding"
        )
        refuse(owner, argument, expected, f"{type(part).__name__} '{part.name}'")
    return part(hide_padding(x, padding), **options)


def given_padding(layer: Any, x: Tensor, **masks: Any) -> Tensor | None:
    """Padding masks as one bool mask, after checking that each fits; None where all are None.

    Args:
        layer: Whose arguments they are.
        x: The tensor that they are of, `(batch, length, hidden_dim)`.
        **masks: `(batch, length)`, as many axes as `x` has without its last, by the names that
            `layer` gives them.
    """
    known = []
    for name, mask in masks.items():
        if mask is not None:
            mask = as_mask(mask, named(layer, name))
            if not _fits(mask.shape, x.shape[:-1]):
                axes = "(batch, length)" if len(x.shape) == 3 else "like `x` without its last axis"
                expected = f"of shape {axes}, {tuple(x.shape[:-1])}"
                refuse(layer, name, expected, f"shape {tuple(mask.shape)}")
            known.append(mask)
    return combine_masks(*known)


def given_pairs(
    layer: Any, name: str, given: Any, full: Sequence[Any], is_mask: bool = True
) -> Tensor | None:
    """A mask or bias of pairs of tokens with an axis for the heads; None of None.

    Of two axes, `(queries, keys)` is meant. Where they could as well be `(batch, keys)`, a padding
    mask in the wrong argument, it is refused: both readings run, and one is wrong.

    Args:
        layer: Whose argument it is.
        name: What that calls it.
        given: `(queries, keys)`, `(batch, queries, keys)` or `(batch, heads, queries, keys)`; axes
            may be 1.
        full: What the last is.
        is_mask: Whether it is a mask, and not numbers to add.
    """
    if given is None:
        return None
    if is_mask:
        given = as_mask(given, named(layer, name))
    rank = len(given.shape)
    expected = {2: full[2:], 3: (full[0], *full[2:]), 4: full}.get(rank)
    if expected is None or not _fits(given.shape, expected):
        shape = "(queries, keys), (batch, queries, keys) or (batch, heads, queries, keys)"
        hint = ""
        if rank == 2 and _fits(given.shape, (full[0], full[3])):
            hint = "; a mask (batch, keys) has its query axis left out: `mask[:, None]`"
        refuse(layer, name, f"of shape {shape} = {full}{hint}", f"shape {tuple(given.shape)}")
    if rank == 2 and _may_be_rows(given.shape[0], full[0]):
        expected = (
            "of three axes where two could be (queries, keys) or (batch, keys): `mask[None]` for "
            "the first, `mask[:, None]` for the second"
        )
        refuse(layer, name, expected, f"shape {tuple(given.shape)}, batch {full[0]}")
    return given[:, None] if rank == 3 else given


def _fits(shape: Any, expected: Any) -> bool:
    """Whether a shape broadcasts to the expected one, as far as both are known."""
    return len(shape) == len(expected) and all(
        None in (have, want) or have in (1, want)
        for have, want in zip(shape, expected, strict=True)
    )


def _may_be_rows(size: Any, batch: Any) -> bool:
    """Whether an axis may be the batch; of size 1 both readings say the same."""
    return size != 1 and size == batch


def hidden_from_all(mask: Tensor | None) -> Tensor | None:
    """Bool `(batch or 1, 1, keys, 1)` of a mask that says the same for all queries and heads.

    None of any other; `mask` is from `given_pairs`.
    """
    if mask is None or any(size != 1 for size in mask.shape[-3:-1]):
        return None
    return mask[None, :, :, None] if len(mask.shape) == 2 else mask[:, 0, :, :, None]


def hide_unseen(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Returns `(batch, heads, keys, dim)` with zeros at keys that no query of `mask` sees.

    There NaN and infinity change nothing then; `mask` is from `given_pairs`.
    """
    seen = hidden_from_all(mask)
    if seen is None:
        return tensors
    return tuple(ops.where(seen, x, ops.zeros((), x.dtype)) for x in tensors)
