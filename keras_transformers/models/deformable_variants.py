"""Published sizes of Deformable DETR, its blocks, and from flat settings to its parts."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras

from keras_transformers.annotations import Config, LayerOptions, Part
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import DeformableDecoderBlock, DeformableEncoderBlock
from keras_transformers.layers.parts import Prototype, arguments_of_call
from keras_transformers.models.deformable_queries import (
    DeformableQueries,
    PointProposals,
    PointQueries,
)
from keras_transformers.models.detr_backbone import BackboneName
from keras_transformers.models.detr_levels import FeatureMaps
from keras_transformers.models.set_detector_variants import parts_of_variant
from keras_transformers.models.settings import refuse_beside

# Zhu et al. 2021, section 5 and appendix A.4.
NUMBERS: dict[str, Any] = {"num_heads": 8, "mlp_dim": 1024, "dropout": 0.1}
FOCAL: dict[str, Any] = {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0}
PAPER: dict[str, Any] = {
    "backbone": "50",
    "features": None,
    "num_levels": 4,
    "max_wavelength": 10000.0,
    "hidden_dim": 256,
    **NUMBERS,
    "num_points": 4,
    "norm_first": False,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "queries": "points",
    "num_queries": 300,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
        **PAPER,
        "backbone": "mini",
        "num_levels": 3,
        "max_wavelength": 20.0,
        "hidden_dim": 128,
        "num_heads": 4,
        "mlp_dim": 256,
        "dropout": 0.0,
        "norm_first": True,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "queries": "proposals",
        "num_queries": 40,
    },
    "R50": PAPER,
    "R101": {**PAPER, "backbone": "101"},
}
QUERIES: dict[str, Any] = {
    "points": PointQueries,
    "refined": lambda num_queries: PointQueries(num_queries, refine=True),
    "proposals": PointProposals,
}
# What a block of the encoder, and one of the decoder, is called with.
OF_ENCODER = {"reference_points", "level_shapes", "padding_mask", "positions"}
OF_DECODER = {"context", "context_mask", "reference_points", "level_shapes", "positions"}
# What an argument of the constructor takes the place of, where it is given whole.
FLAT = {
    "backbone": ("features", "num_levels", "max_wavelength"),
    "num_layers": ("num_encoder_layers", "num_decoder_layers"),
    "queries": ("num_queries",),
    "blocks": ("num_heads", "mlp_dim", "dropout", "num_points", "norm_first"),
}


class DeformableDETROptions(LayerOptions, total=False):
    """What `DeformableDETR.from_variant` takes by name; see there, and `DeformableDETR`."""

    backbone: BackboneName | keras.Model | FeatureMaps | Config
    features: Sequence[str] | None
    num_levels: int
    max_wavelength: float
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_points: int
    norm_first: bool
    dropout: float
    num_layers: int | tuple[int, int] | None
    num_encoder_layers: int
    num_decoder_layers: int
    queries: Literal["points", "refined", "proposals"] | int | DeformableQueries | Config
    num_queries: int
    blocks: Sequence[Part] | None
    criterion: SetCriterion | dict[str, Any] | None


def arguments_of_variant(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a published size with changes, flat ones or parts.

    Raises:
        ValueError: If there is no such variant or kind of queries, or the changes have both a part
            and numbers that make it.
    """
    settings, numbers = parts_of_variant(
        "DeformableDETR", name, changes, VARIANTS, DeformableDETROptions, FLAT, QUERIES, FeatureMaps
    )
    if numbers is not None:
        levels = getattr(settings["backbone"], "num_levels", 4)
        settings["blocks"] = default_blocks(num_levels=levels, **numbers)
    return settings


def default_blocks(
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    dropout: float | None = None,
    num_levels: int = 4,
    num_points: int = 4,
    norm_first: bool = False,
) -> tuple[Part, ...]:
    """The blocks of the encoder and of the decoder; as in the paper where a number is None."""
    given = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
    settings: dict[str, Any] = {
        name: NUMBERS[name] if x is None else x for name, x in given.items()
    }
    settings |= {"num_levels": num_levels, "num_points": num_points, "norm_first": norm_first}
    settings["norm"] = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
    return DeformableEncoderBlock(**settings), DeformableDecoderBlock(**settings)


def block_prototypes(
    owner: Any, blocks: Any, numbers: dict[str, Any], num_levels: int
) -> tuple[Prototype, Prototype]:
    """Those of the encoder's and the decoder's blocks, which were given or numbers make.

    Raises:
        ValueError: If both were given, or `blocks` are none that can be called as they must, or
            know of another number of levels.
    """
    if blocks is None:
        blocks = default_blocks(**numbers, num_levels=num_levels)
    else:
        refuse_beside("DeformableDETR", "blocks", **numbers)
    several = blocks if isinstance(blocks, list | tuple) else [blocks]
    made = [Prototype(owner, "blocks", each, keras.layers.Layer) for each in several]
    takes = [arguments_of_call(each.layer) for each in made]
    if len(made) != 2 or not (takes[0] >= OF_ENCODER and takes[1] >= OF_DECODER):
        names = ", ".join(type(each.layer).__name__ for each in made)
        raise ValueError(
            "DeformableDETR: `blocks` must be a pair of a DeformableEncoderBlock and a "
            f"DeformableDecoderBlock. Received: {names}"
        )
    levels = {getattr(each.layer, "num_levels", num_levels) for each in made}
    if levels != {num_levels}:
        raise ValueError(
            f"DeformableDETR: `blocks` must have num_levels={num_levels}, as `backbone` has. "
            f"Received: {', '.join(map(str, sorted(levels)))}"
        )
    return made[0], made[1]
