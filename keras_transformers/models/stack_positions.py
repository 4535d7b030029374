"""Positions of a stack of blocks: added to what goes in, or one bias that all blocks share."""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.layers import PositionalEncoding
from keras_transformers.layers.attention.block_step import block_positions, is_block
from keras_transformers.layers.errors import refuse
from keras_transformers.layers.parts import Prototype, arguments_of_call
from keras_transformers.layers.positions.in_attention import AttentionPositionEncoding

NAMES = {"sinusoidal": PositionalEncoding}


def shortest_limit(layers: Iterable[Any]) -> int | None:
    """The least of the `most_positions` of layers; None where no layer has a limit."""
    limits = [getattr(layer, "most_positions", None) for layer in layers]
    return min((limit for limit in limits if limit is not None), default=None)


def make_positions(owner: Any, given: Any, name: str) -> Any:
    """A copy of what a model was given as `positions`, of that name; None of None.

    Args:
        owner: The model.
        given: A layer that is called with `x` and `positions`, as `PositionalEncoding` is; a
            `AttentionPositionEncoding` that is `shareable`; one of `NAMES`; or None.
        name: That of the copy.

    Raises:
        ValueError: If it is nothing of that.
    """
    if given is None:
        return None
    prototype = Prototype(owner, "positions", given, keras.layers.Layer, NAMES)
    layer = prototype.layer
    fits = "positions" in arguments_of_call(layer)
    if isinstance(layer, AttentionPositionEncoding):
        fits = layer.shareable
    if not fits:
        expected = "a layer that takes `positions`, or a term that blocks can share; any other"
        expected += " term is the `position` of a mixer"
        refuse(owner, "positions", expected, f"{type(layer).__name__} '{layer.name}'")
    return prototype.copy(owner, name)


def build_positions(owner: Any, layer: Any, width: int, block: Any) -> None:
    """Builds it for vectors of that width, and for the heads of a built block; None is let be."""
    if layer is None or layer.built:
        return
    if not isinstance(layer, AttentionPositionEncoding):
        shape = (None, None, width)
        layer.build(shape)
        if tuple(layer.compute_output_shape(shape))[-1] != width:
            refuse(owner, "positions", "a layer that keeps the width", type(layer).__name__)
        return
    heads = getattr(block.mixer, "num_heads", None)
    if heads is None:
        expected = f"no bias for the blocks, for a {type(block.mixer).__name__} has no heads"
        refuse(owner, "positions", expected, type(layer).__name__)
    layer.build((None, heads, None, block.mixer.head_dims[1]))


def bias_of_positions(layer: Any, length: Index) -> Tensor | None:
    """The bias that a stack shares, `(1, heads, length, length)`; None where there is none."""
    if not isinstance(layer, AttentionPositionEncoding):
        return None
    positions = ops.arange(length, dtype="int32")
    return _bias(layer, positions, positions)


def bias_of_step(layer: Any, index: Index, visible: Tensor) -> Tensor:
    """The same for the token at `index` and the slots of a cache, `(1, heads, 1, slots)`.

    `layer` is a bias that is shared; `visible`, `(batch or 1, beams, slots)`, from `visible_slots`,
    or `(batch, length, slots)` for the tokens of a block step, whose is `(batch, heads, length,
    slots)`.
    """
    slots = ops.arange(ops.shape(visible)[2], dtype="int32")
    if is_block(index):
        here = ops.reshape(block_positions(index, visible.shape[1]), (-1,))
        bias = _bias(layer, here, slots)[0]  # (heads, batch * length, slots)
        bias = ops.reshape(bias, (bias.shape[0], -1, visible.shape[1], ops.shape(visible)[2]))
        return ops.swapaxes(bias, 0, 1)
    here = ops.reshape(ops.cast(index, "int32"), (1,))
    return _bias(layer, here, slots // visible.shape[1])


def _bias(term: Any, queries: Tensor, keys: Tensor) -> Tensor:
    return ops.expand_dims(term.bias(None, queries, keys), 0)
