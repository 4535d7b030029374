"""Deformable DETR (Zhu et al. 2021)."""

from typing import Any

import keras

from keras_transformers.layers import DeformableDecoderBlock, DeformableEncoderBlock, FeedForward
from keras_transformers.models import DeformableDETR, FeatureMaps
from keras_transformers.models.deformable_detr import QUERIES
from keras_transformers.models.image_model import STRIDES
from keras_transformers.pretrained.detr import (
    DETR_WEIGHTS,
    NUMBERS,
    SETTLED,
    SHARED,
    WITHOUT_EFFECT,
    default_backbone,
    detector_shape,
    make_backbone,
    read_backbone,
    read_resnet,
    read_set_detector,
    write_resnet,
)
from keras_transformers.pretrained.family import (
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    number,
    size,
)
from keras_transformers.pretrained.weight_mapping import (
    CONVOLUTION,
    FLAT,
    LINEAR,
    Layout,
    Mappings,
    Pointwise,
    WeightMapping,
    attention,
    inside,
    linear,
    norm,
)

DEFORMABLE = {
    "value": "value_proj",
    "offset": "sampling_offsets",
    "weight": "attention_weights",
    "attention_output": "output_proj",
}
PROPOSALS = {
    "proposal_network": "enc_output",
    "proposal_norm": "enc_output_norm",
    "position_network": "pos_trans",
    "position_norm": "pos_trans_norm",
}


def _layers() -> Mappings:
    """The mappings of the layers of encoder and decoder."""
    mappings: Mappings = []
    for side, of_maps, theirs in (
        ("encoder", "mixer", "self_attn"),
        ("decoder", "cross_attention", "encoder_attn"),
    ):
        ours, start = f"{side}_{{i}}", f"model.{side}.layers.{{i}}"
        for part, name in DEFORMABLE.items():
            mappings += linear(f"{ours}/{of_maps}/{part}", f"{start}.{theirs}.{name}")
        mappings += norm(f"{ours}/{of_maps}_norm", f"{start}.{theirs}_layer_norm")
        mappings += linear(f"{ours}/feed_forward/hidden", f"{start}.fc1")
        mappings += linear(f"{ours}/feed_forward/output", f"{start}.fc2")
        mappings += norm(f"{ours}/feed_forward_norm", f"{start}.final_layer_norm")
    start = "model.decoder.layers.{i}.self_attn"
    names = (f"{start}.{name}_proj" for name in ("q", "k", "v", "out"))
    mappings += attention("decoder_{i}/mixer", *names)
    return mappings + norm("decoder_{i}/mixer_norm", f"{start}_layer_norm")


def _levels(model: Any) -> Mappings:
    """Returns the mappings of the projections and norms of the maps."""
    mappings: Mappings = [WeightMapping("levels/embedding", "model.level_embed")]
    for i, projection in enumerate(model.levels.projections):
        theirs = f"model.input_proj.{i}"
        layout = Pointwise() if isinstance(projection, keras.layers.Dense) else CONVOLUTION
        mappings += [
            WeightMapping(f"levels/projection_{i}/kernel", f"{theirs}.0.weight", layout),
            WeightMapping(f"levels/projection_{i}/bias", f"{theirs}.0.bias"),
        ]
        mappings += norm(f"levels/norm_{i}", f"{theirs}.1")
    return mappings


def _heads(model: Any) -> Mappings:
    """Returns the mappings of the heads of all layers, or of each layer and of the proposals."""
    layers, classes, boxes = len(model.decoder_blocks), "class_embed", "bbox_embed"
    if not model.queries.refine:  # which some files have as often as there are layers
        of_class, of_box = ([f"{each}.{i}" for i in range(layers)] for each in (classes, boxes))
        return _head("heads", of_class, of_box)
    if model.queries.proposes:
        classes = f"model.decoder.{classes}"
    mappings: Mappings = []
    for i in range(layers + model.queries.proposes):
        ours = "proposal_heads" if i == layers else f"heads_{i}"
        of_class = list(dict.fromkeys([f"{classes}.{i}", f"class_embed.{i}"]))
        of_box = [f"model.decoder.{boxes}.{i}", f"{boxes}.{i}"]
        mappings += _head(ours, of_class, of_box, tied=i > 0 and not model.queries.proposes)
    return mappings


def _head(ours: str, classes: list[str], boxes: list[str], tied: bool = False) -> Mappings:
    """Returns the mappings of one head.

    Args:
        ours: Our name of the head.
        classes, boxes: Published names, of which a file has one or more. The first is written.
        tied: Whether a class head that a file lacks is that of the first layer.
    """
    parts = [(f"{ours}/class_head", classes, "")]
    for k, layer in enumerate(("hidden_0", "hidden_1", "output")):
        parts.append((f"{ours}/box_head/{layer}", boxes, f".layers.{k}"))
    kinds: list[tuple[str, str, Layout]]
    kinds = [("weight", "kernel", LINEAR), ("bias", "bias", FLAT)]
    mappings: Mappings = []
    for part, (first, *also), end in parts:
        for last, weight, layout in kinds:
            names = tuple(f"{name}{end}.{last}" for name in also)
            instead = (f"class_embed.0.{last}",) if tied and not end else ()
            theirs = f"{first}{end}.{last}"
            mappings.append(WeightMapping(f"{part}/{weight}", theirs, layout, names, instead))
    return mappings


def mappings_of(model: Any) -> Mappings:
    """The mappings of every weight of a built detector."""
    backbone = [each for each in SHARED if each.ours.startswith("backbone/")]  # type: ignore[union-attr]
    mappings = [*backbone, *_layers(), *_levels(model), *_heads(model)]
    if model.queries.proposes:
        for ours, theirs in PROPOSALS.items():
            of = norm if ours.endswith("norm") else linear
            mappings += of(f"queries/{ours}", f"model.{theirs}")
    else:
        name = "model.query_position_embeddings.weight"
        mappings += [WeightMapping("queries/embedding", name)]
        mappings += linear("queries/reference", "model.reference_points")
    return inside(mappings, "backbone/", model.backbone)


COSTS = ("class_cost", "box_cost", "giou_cost", "box_weight", "giou_weight")
OF_QUERIES = ("with_box_refine", "two_stage", "num_queries", "two_stage_num_proposals")


def _default_backbone(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("use_timm_backbone") is False and config.get("backbone") is None:
        return {"model_type": "resnet", "out_features": ["stage4"]}
    several = config.get("num_feature_levels", 4) != 1
    return {**default_backbone(config), "out_indices": [2, 3, 4] if several else [4]}


def _read_backbone(config: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `ResNet`, and the features that are read."""
    resnet = read_resnet(config)
    stages = [f"stage{i + 1}" for i in range(4)]
    names = config.get("out_features")
    if names is None:
        indices = config.get("out_indices") or [4]
        names = [f"stage{i}" for i in indices] if isinstance(indices, list) else None
    if not isinstance(names, list) or names != [each for each in stages if each in names]:
        raise ValueError(f"of a backbone whose maps are some of {', '.join(stages)}")
    return {**resnet, "features": [f"stride_{STRIDES[stages.index(each)]}" for each in names]}


def _write_backbone(settings: dict[str, Any]) -> dict[str, Any]:
    strides = [int(name.removeprefix("stride_")) for name in settings["features"]]
    names = [f"stage{STRIDES.index(stride) + 1}" for stride in strides]
    return {**write_resnet(settings), "out_features": names}


def _read_queries(config: dict[str, Any]) -> tuple[str, int]:
    """The kind of queries, and how many."""
    refine, proposes = (config.get(name) or False for name in OF_QUERIES[:2])
    for name, value in zip(OF_QUERIES, (refine, proposes), strict=False):
        if not isinstance(value, bool):
            raise ValueError(f"`{name}` must be true or false. Received: {value!r}")
    if proposes and not refine:
        raise ValueError("`with_box_refine` must be true where `two_stage` is. Received: False")
    name, kind = OF_QUERIES[3 if proposes else 2], "refined" if refine else "points"
    count = 300 if config.get(name) is None else config[name]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {count!r}")
    return "proposals" if proposes else kind, count


def _write_queries(arguments: dict[str, Any]) -> dict[str, Any]:
    kind, number = arguments["queries"]
    values = (kind != "points", kind == "proposals", number, number)
    return dict(zip(OF_QUERIES, values, strict=True))


def make_deformable_detr(arguments: dict[str, Any]) -> DeformableDETR:
    """Makes a detector of flat arguments."""
    resnet = dict(arguments["resnet"])
    features = resnet.pop("features")
    levels = arguments["num_levels"]
    maps = FeatureMaps(make_backbone(resnet), arguments.get("features", features), levels)
    kind, num_queries = arguments["queries"]
    return DeformableDETR(
        arguments["num_classes"],
        maps,
        arguments["hidden_dim"],
        num_layers=(arguments["num_encoder_layers"], arguments["num_decoder_layers"]),
        queries=QUERIES[kind](num_queries),
        blocks=[
            DeformableEncoderBlock(
                arguments["num_heads"],
                num_points=arguments["num_points"],
                **_shared_parts(arguments, arguments["mlp_dim"]),
            ),
            DeformableDecoderBlock(
                arguments["decoder_num_heads"],
                num_points=arguments["decoder_num_points"],
                **_shared_parts(arguments, arguments["decoder_mlp_dim"]),
            ),
        ],
        criterion={"classification": "focal", **{name: arguments[name] for name in COSTS}},
    )


def _shared_parts(arguments: dict[str, Any], mlp_dim: int) -> dict[str, Any]:
    """Returns the arguments of a block that are the same in encoder and decoder."""
    return {
        "feed_forward": FeedForward(mlp_dim, "relu"),
        "num_levels": arguments["num_levels"],
        "dropout": arguments["dropout"],
        "norm": keras.layers.LayerNormalization(epsilon=1e-5, name="norm"),
    }


def read_deformable_detr(model: DeformableDETR) -> dict[str, Any]:
    """Returns the arguments that `make_deformable_detr` makes such a model of."""
    maps, queries = model.feature_map, model.queries
    kind = "refined" if queries.refine else "points"
    strides = [f"stride_{stride}" for stride in model.backbone.strides()]
    coarse = [name for name in strides if name != "stride_4"]
    features = coarse[-maps.num_levels :] if maps.features is None else list(maps.features)
    return {
        **read_set_detector(model),
        "decoder_num_heads": model.decoder_blocks[0].num_heads,
        "num_points": model.encoder_blocks[0].num_points,
        "decoder_num_points": model.decoder_blocks[0].num_points,
        "num_levels": maps.num_levels,
        "queries": ("proposals" if queries.proposes else kind, queries.num_queries),
        "features": maps.features,  # None for those that `resnet` lists
        "resnet": {**read_backbone(model.backbone), "features": features},
    }


OTHERS = ("encoder_ffn_dim", "decoder_ffn_dim", "backbone_config")
DEFORMABLE_DETR_CONFIGURATION = Configuration(
    name="deformable_detr",
    settings=(
        *(each for each in NUMBERS if each.theirs not in OTHERS),
        size("encoder_ffn_dim", "mlp_dim", 1024),
        size("decoder_ffn_dim", "decoder_mlp_dim", 1024),
        size("encoder_n_points", "num_points", 4),
        size("decoder_n_points", "decoder_num_points", 4),
        size("num_feature_levels", "num_levels", 4),
        number("class_cost", "class_cost", 1),
        Setting("backbone_config", "resnet", _default_backbone, _read_backbone, _write_backbone),
    ),
    combined=(Combined("queries", OF_QUERIES, _read_queries, _write_queries),),
    fixed={"norm_first": False, "max_wavelength": 10000.0, "classification": "focal"},
    settled={
        **SETTLED,
        "focal_alpha": (0.25,),
        # timm's arguments, in older files; those that it is given here too.
        "backbone_kwargs": (None, {}, {"in_chans": 3, "out_indices": [2, 3, 4]}),
    },
    without_effect=WITHOUT_EFFECT
    | {"auxiliary_loss", "disable_custom_kernels", "eos_coefficient", "return_intermediate"},
    inner={"hidden_dim": 64},
)
DEFORMABLE_DETR = Family(
    configuration=DEFORMABLE_DETR_CONFIGURATION,
    weights=Weights(
        mappings=mappings_of,
        sizes={
            **{name: of for name, of in DETR_WEIGHTS.sizes.items() if isinstance(name, tuple)},
            "model.level_embed": ("num_feature_levels", "d_model"),
            "model.encoder.layers.0.fc1.weight": ("encoder_ffn_dim", "d_model"),
        },
        layers=DETR_WEIGHTS.layers,
    ),
    model=DeformableDETR,
    architectures={"DeformableDetrForObjectDetection": {}},
    tasks={"detection": "DeformableDetrForObjectDetection"},
    classes=True,
    make=make_deformable_detr,
    read=read_deformable_detr,
    shape=detector_shape,
)
