"""Published sizes of DETR, and from flat settings to its parts."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import keras

from keras_transformers.annotations import Config, LayerOptions, Part
from keras_transformers.detection import SetCriterion
from keras_transformers.models.detr_backbone import BackboneName, FeatureMap
from keras_transformers.models.detr_queries import (
    AnchorQueries,
    LearnedQueries,
    ObjectQueries,
    ProposalQueries,
)
from keras_transformers.models.detr_references import ReferenceQueries
from keras_transformers.models.detr_settings import NUMBERS, default_blocks
from keras_transformers.models.set_detector_variants import parts_of_variant

# Carion et al. 2020, section 4.
PAPER: dict[str, Any] = {
    "backbone": "50",
    "feature": None,
    "hidden_dim": 256,
    **NUMBERS,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "num_queries": 100,
    "queries": "learned",
    "norm_first": False,
    "max_wavelength": 10000.0,
}
# A smaller one for small data was measured on the embedded tree crowns.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
        **PAPER,
        "backbone": "mini",
        "hidden_dim": 128,
        "num_heads": 4,
        "mlp_dim": 256,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "num_queries": 40,
        "queries": "proposals",
        "norm_first": True,
        "dropout": 0.0,
        "max_wavelength": 20.0,
        "criterion": {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0},
    },
    "R50": PAPER,
    "R101": {**PAPER, "backbone": "101"},
}
QUERIES = {"learned": LearnedQueries, "anchors": AnchorQueries, "proposals": ProposalQueries}
QUERIES |= {"references": ReferenceQueries}
# What an argument of the constructor takes the place of, where it is given whole.
FLAT = {
    "backbone": ("feature", "max_wavelength"),
    "num_layers": ("num_encoder_layers", "num_decoder_layers"),
    "queries": ("num_queries",),
    "blocks": ("num_heads", "mlp_dim", "dropout", "norm_first"),
}


class DETROptions(LayerOptions, total=False):
    """What `DETR.from_variant` takes by name; see there, and `DETR`."""

    backbone: BackboneName | keras.Model | FeatureMap | Config
    feature: str | None
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int | tuple[int, int] | None
    num_encoder_layers: int
    num_decoder_layers: int
    queries: Literal["learned", "anchors", "proposals", "references"] | int | ObjectQueries | Config
    num_queries: int
    norm_first: bool
    dropout: float
    blocks: Sequence[Part] | None
    max_wavelength: float
    criterion: SetCriterion | dict[str, Any] | None


def arguments_of_variant(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a published size with changes, flat ones or parts.

    Raises:
        ValueError: If there is no such variant or kind of queries, or the changes have both a part
            and numbers that make it.
    """
    settings, numbers = parts_of_variant(
        "DETR", name, changes, VARIANTS, DETROptions, FLAT, QUERIES, FeatureMap
    )
    if numbers is not None and numbers.pop("norm_first"):
        references = getattr(settings["queries"], "references", False)
        settings["blocks"] = default_blocks(**numbers, norm_first=True, references=references)
    elif numbers is not None:
        settings |= numbers
    return settings
