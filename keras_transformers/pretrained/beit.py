"""BEiT (Bao et al. 2022): its encoder and its classifiers."""

import math
from typing import Any, Literal

from keras_transformers.layers import GridRelativeBias, SelfAttention
from keras_transformers.models import ViT
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    image_classes,
    number,
)
from keras_transformers.pretrained.vit import (
    FIXED,
    SETTINGS,
    embedding_mappings,
    encoder_mappings,
    image_shape,
    make_vit,
    read_vit,
    sizes,
)
from keras_transformers.pretrained.weight_mapping import (
    MODULES_OF_VIT,
    Mappings,
    WeightMapping,
    linear,
    norm,
)

MOST_PATCHES = 64  # along a side
# Keys have none.
BIASES: tuple[Literal["query", "value", "output"], ...] = ("query", "value", "output")
KEYWORDS_OF_MIXER = ("attention_dropout", "qkv_bias", "relative")
LAYER = "beit.encoder.layer.{i}"
TABLE = f"{LAYER}.attention.attention.relative_position_bias.relative_position_bias_table"


def _make(arguments: dict[str, Any]) -> ViT:
    """Makes an encoder of flat arguments.

    Raises:
        ValueError: If blocks with relative positions cannot have the size of the images.
    """
    sides = arguments["image_size"]
    grid = [side // arguments["patch_size"] for side in sides]
    if arguments["relative"] and sides[0] != sides[1]:
        raise ValueError(f"`image_size` must be of a square. Received: {sides}")
    if arguments["relative"] and grid[0] > MOST_PATCHES:  # all pairs of which are numbered
        raise ValueError(
            f"`image_size` must be at most {MOST_PATCHES} patches. Received: {grid[0]}"
        )
    mixer = SelfAttention(
        arguments["num_heads"],
        dropout=arguments["attention_dropout"],
        use_bias=BIASES,
        position=GridRelativeBias(grid, 1) if arguments["relative"] else None,
    )
    keywords = {name: x for name, x in arguments.items() if name not in KEYWORDS_OF_MIXER}
    return make_vit({**keywords, "mixer": mixer})


def _read(model: ViT) -> dict[str, Any]:
    block = model.encoder_blocks[0]
    return {
        **read_vit(model),
        "relative": block.mixer.position is not None,
        "layer_scale": block.layer_scale,
    }


def _mappings(model: Any) -> Mappings:
    last = "beit.pooler.layernorm" if model.pooling.kind == "mean" else "beit.layernorm"
    return [
        *embedding_mappings("", "beit.embeddings", model.patch_size),
        *encoder_mappings("encoder_{i}", LAYER),
        WeightMapping("encoder_{i}/mixer_scale/factor", f"{LAYER}.lambda_1"),
        WeightMapping("encoder_{i}/feed_forward_scale/factor", f"{LAYER}.lambda_2"),
        WeightMapping("encoder_{i}/mixer/position/relative_bias", TABLE),
        *norm("norm", last),
        *linear("head", "classifier"),
    ]


def _scale(value: Any) -> float | None:
    """The start of the factors, None for no factors."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError("a number")
    return value if value > 0 else None


def _one_of(ours: Any, both: tuple[Any, Any]) -> bool:
    """Returns whether a value is the second of two; raises ValueError if it is neither."""
    if not isinstance(ours, str | None) or ours not in both:
        raise ValueError(f"{both[0]!r} or {both[1]!r}")
    return ours == both[1]


BEIT_CONFIGURATION = Configuration(
    name="beit",
    settings=(
        *SETTINGS,
        number("drop_path_rate", "drop_path", 0.1),
        Setting(
            "use_absolute_position_embeddings",
            "positions",
            False,
            lambda value: "learned" if value else None,
            lambda ours: _one_of(ours, (None, "learned")),
        ),
        Setting("use_relative_position_bias", "relative", False, bool),
        Setting("layer_scale_init_value", "layer_scale", 0.1, _scale, lambda ours: ours or 0.0),
        Setting(
            "use_mean_pooling",
            "pooling",
            True,
            lambda value: "mean" if value else "token",
            lambda ours: _one_of(ours, ("token", "mean")),
        ),
    ),
    fixed={
        **{key: value for key, value in FIXED.items() if key not in ("pooling", "positions")},
        "distillation": None,
    },
    settled={"use_shared_relative_position_bias": (False,), "head_dim": (None,)},
    # Of pretraining on masked images, of backbones, and of segmentation.
    without_effect=frozenset({"vocab_size", "use_mask_token", "out_features", "out_indices"})
    | {"stage_names", "_out_features", "_out_indices", "add_fpn", "reshape_hidden_states"}
    | {"pool_scales", "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels"}
    | {"auxiliary_num_convs", "auxiliary_concat_input", "semantic_loss_ignore_index"},
)
BEIT_WEIGHTS = Weights(
    mappings=_mappings,
    sizes=sizes("beit"),
    layers={"num_hidden_layers": "beit.encoder.layer."},
    prefix="beit.",
    bare=("BeitModel",),
    modules=MODULES_OF_VIT,
)
BEIT = Family(
    configuration=BEIT_CONFIGURATION,
    weights=BEIT_WEIGHTS,
    model=ViT,
    **image_classes("Beit"),
    make=_make,
    read=_read,
    shape=image_shape,
)
