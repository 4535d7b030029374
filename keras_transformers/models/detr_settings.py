"""The settings of DETR: their checks, the blocks that numbers make, and how they are written."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.annotations import Part
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import (
    ConditionalDecoderBlock,
    DecoderBlock,
    EncoderBlock,
    FirstConditionalDecoderBlock,
)
from keras_transformers.layers.parts import Prototype, arguments_of_call
from keras_transformers.models.settings import check_divides, check_sizes, refuse_beside

# Carion et al. 2020, section 4.
NUMBERS: dict[str, Any] = {"num_heads": 8, "mlp_dim": 2048, "dropout": 0.1}
# What a block of the encoder, and one of the decoder, is called with.
OF_ENCODER = {"padding_mask", "positions"}
OF_DECODER = {"context", "context_mask", "context_positions", "positions"}


def check_settings(owner: str, settings: Mapping[str, Any]) -> None:
    """Raises ValueError unless the numbers are such, and fit together."""
    check_sizes(owner, settings, ["num_classes", "hidden_dim"], ["num_heads", "mlp_dim"])
    if isinstance(settings["queries"], int):
        check_sizes(owner, settings, ["queries"])
    if len(settings["num_layers"]) != 2:
        raise ValueError(
            f"{owner}: `num_layers` must be a number, or a pair of those of encoder and decoder. "
            f"Received: {settings['num_layers']}"
        )
    for number in settings["num_layers"]:
        check_sizes(owner, {"num_layers": number}, ["num_layers"])
    if settings["num_heads"] is not None:
        check_divides(owner, settings, "num_heads", "hidden_dim")
    if settings["hidden_dim"] % 8:
        raise ValueError(
            f"{owner}: `hidden_dim` must be a multiple of 8, for a sine and a cosine of each "
            f"coordinate of a box. Received: {settings['hidden_dim']}"
        )


def default_blocks(
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    dropout: float | None = None,
    norm_first: bool = False,
    references: bool = False,
) -> tuple[Part, ...]:
    """The blocks of the encoder and of the decoder; as in the paper where a number is None."""
    given = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
    settings: dict[str, Any] = {
        name: NUMBERS[name] if x is None else x for name, x in given.items()
    }
    settings |= {
        "norm_first": norm_first,
        "norm": keras.layers.LayerNormalization(epsilon=1e-5, name="norm"),
    }
    if references:
        kinds = (EncoderBlock, FirstConditionalDecoderBlock, ConditionalDecoderBlock)
        return tuple(kind(**settings) for kind in kinds)
    return EncoderBlock(**settings), DecoderBlock(**settings, causal=False)


def block_prototypes(
    owner: Any, blocks: Any, numbers: dict[str, Any], references: bool
) -> list[Prototype]:
    """Those of the encoder's and the decoder's blocks, which were given or numbers make.

    Args:
        owner: The model.
        blocks: What was given, or None.
        numbers: Those that make blocks.
        references: Whether the queries refer to points.

    Raises:
        ValueError: If both were given, or `blocks` are none that can be called as they must.
    """
    if blocks is None:
        blocks = default_blocks(**numbers, references=references)
    else:
        refuse_beside("DETR", "blocks", **numbers)
    several = blocks if isinstance(blocks, list | tuple) else [blocks]
    made = [Prototype(owner, "blocks", each, keras.layers.Layer) for each in several]
    layers = [each.layer for each in made]
    takes = [arguments_of_call(layer) for layer in layers]
    fits = [len(layers) in (2, 3), takes[0] >= OF_ENCODER]
    fits += [each >= OF_DECODER and ("reference" in each) == references for each in takes[1:]]
    fits += [not getattr(layer, "causal", False) for layer in layers[1:]]
    if not all(fits):
        decoder = "a DecoderBlock that is not causal (`causal=False`)"
        if references:
            decoder = "a ConditionalDecoderBlock, for `queries` that refer to points"
        names = ", ".join(type(each).__name__ for each in layers)
        raise ValueError(
            f"DETR: `blocks` must be a pair of an EncoderBlock and {decoder}, or three, of which "
            f"the second is the decoder's first. Received: {names}"
        )
    return made


def serialized_criterion(given: SetCriterion | dict[str, Any] | None) -> dict[str, Any]:
    """A `SetCriterion`, or a dict of its arguments, or None, as such a dict."""
    return dataclasses.asdict(given) if isinstance(given, SetCriterion) else given or {}


def pair_of_layers(given: Any) -> list[Any]:
    """Numbers of layers of encoder and decoder; one number stands for both."""
    return list(given) if isinstance(given, list | tuple) else [given, given]
