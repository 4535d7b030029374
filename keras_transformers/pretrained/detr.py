"""DETR (Carion et al. 2020), Conditional and Deformable DETR (Meng et al., Zhu et al. 2021)."""

import dataclasses
from typing import Any

import keras

from keras_transformers.layers import (
    ConditionalDecoderBlock,
    CrossAttention,
    DecoderBlock,
    DeformableDecoderBlock,
    DeformableEncoderBlock,
    EncoderBlock,
    FeedForward,
    FirstConditionalDecoderBlock,
    SelfAttention,
)
from keras_transformers.models import DETR as Detector
from keras_transformers.models import DeformableDETR, FeatureMap, FeatureMaps, ResNet
from keras_transformers.models.deformable_detr import QUERIES as DEFORMABLE_QUERIES
from keras_transformers.models.detr import QUERIES
from keras_transformers.models.image_model import STRIDES
from keras_transformers.models.resnet import VARIANTS as RESNETS
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
    BATCH_NORM,
    CONVOLUTION,
    FLAT,
    LINEAR,
    MODULES_OF_CONDITIONAL_DETR,
    MODULES_OF_DETR,
    Layout,
    Mappings,
    Pointwise,
    WeightMapping,
    attention,
    bart_layers,
    inside,
    linear,
    norm,
)

COSTS = ("class_cost", "box_cost", "giou_cost", "box_weight", "giou_weight", "no_object")
START = "model.backbone.conv_encoder.model"


def _convolution(ours: str, theirs: str, in_timm: str, norm_in_timm: str) -> Mappings:
    """A convolution without bias and its batch norm, as transformers and as timm call them."""
    mappings: Mappings = [
        WeightMapping(
            f"{ours}/convolution/kernel",
            f"{START}.{theirs}.convolution.weight",
            CONVOLUTION,
            also=(f"{START}.{in_timm}.weight",),
        )
    ]
    return mappings + [
        WeightMapping(
            f"{ours}/norm/{name}",
            f"{START}.{theirs}.normalization.{other}",
            also=(f"{START}.{norm_in_timm}.{other}",),
        )
        for name, other in BATCH_NORM.items()
    ]


BLOCK = "backbone/stage_{s}_block_{b}"
STAGE = "encoder.stages.{s}.layers.{b}"
SHARED = [  # but for the layers of encoder and decoder
    *_convolution("backbone/stem_0", "embedder.embedder", "conv1", "bn1"),
    *_convolution(
        f"{BLOCK}/convolution_{{c}}",
        f"{STAGE}.layer.{{c}}",
        "layer{s:+1}.{b}.conv{c:+1}",
        "layer{s:+1}.{b}.bn{c:+1}",
    ),
    *_convolution(
        f"{BLOCK}/short_cut",
        f"{STAGE}.shortcut",
        "layer{s:+1}.{b}.downsample.0",
        "layer{s:+1}.{b}.downsample.1",
    ),
    WeightMapping("input_projection/kernel", "model.input_projection.weight", Pointwise()),
    WeightMapping("input_projection/bias", "model.input_projection.bias"),
    *norm("decoder_norm", "model.decoder.layernorm"),
    WeightMapping("queries/embedding", "model.query_position_embeddings.weight"),
    *linear("heads/class_head", "class_labels_classifier"),
    *linear("heads/box_head/hidden_0", "bbox_predictor.layers.0"),
    *linear("heads/box_head/hidden_1", "bbox_predictor.layers.1"),
    *linear("heads/box_head/output", "bbox_predictor.layers.2"),
]
MAPPINGS = [*SHARED, *bart_layers()]


def default_backbone(config: dict[str, Any]) -> dict[str, Any]:
    """The `backbone_config` of a file that has none."""
    return {"model_type": "timm_backbone", "backbone": config.get("backbone", "resnet50")}


def _read_backbone(config: dict[str, Any]) -> dict[str, Any]:
    indices = config.get("out_indices")
    if indices is not None and (not isinstance(indices, list) or indices[-1:] not in ([4], [-1])):
        raise ValueError("of a backbone whose `out_indices` end with 4, its last stage")
    if config.get("model_type") == "resnet":
        last = f"stage{len(config.get('depths') or range(4))}"
        if config.get("out_features", [last]) != [last]:
            raise ValueError(f"of a backbone with out_features={[last]!r}")
    return read_resnet(config)


def read_resnet(config: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `ResNet` for a `backbone_config`, whichever maps of it are read."""
    kind = config.get("model_type")
    if config.get("output_stride") not in (None, 32):
        raise ValueError("of a backbone with `output_stride` 32")
    if kind == "timm_backbone":
        name = str(config.get("backbone")).removeprefix("resnet")
        if name not in RESNETS:
            listed = ", ".join(f"resnet{each}" for each in RESNETS if each.isdigit())
            raise ValueError(f"of a backbone of timm that is one of {listed}")
        return dict(RESNETS[name])
    layers, widths = config.get("depths", [3, 4, 6, 3]), config.get("hidden_sizes")
    if not isinstance(layers, list) or [type(n) for n in layers] != [int] * 4 or min(layers) < 1:
        raise ValueError("of a backbone with depths that are four positive integers")
    bottleneck = config.get("layer_type", "bottleneck") == "bottleneck"
    first = config.get("embedding_size", 64)
    expected = [first * 2**i * (4 if bottleneck else 1) for i in range(len(layers))]
    settled: dict[str, list[Any]] = {
        "model_type": ["resnet"],
        "hidden_act": ["relu"],
        "downsample_in_first_stage": [False],
        "downsample_in_bottleneck": [False],
        "num_channels": [3],
        "hidden_sizes": [expected],
    }
    for name, values in settled.items():
        if name in config and config[name] not in values:
            raise ValueError(f"of a backbone with {name}={values[0]!r}")
    if widths is None and expected != [256, 512, 1024, 2048]:
        raise ValueError(f"of a backbone with hidden_sizes={expected}")
    return {"hidden_dim": first, "num_layers": tuple(layers), "bottleneck": bottleneck}


def write_resnet(settings: dict[str, Any]) -> dict[str, Any]:
    """The `backbone_config` of a `ResNet` with these settings, of which the last map is read."""
    layers, first = list(settings["num_layers"]), settings["hidden_dim"]
    widths = [first * 2**i * (4 if settings["bottleneck"] else 1) for i in range(len(layers))]
    return {
        "model_type": "resnet",
        "embedding_size": first,
        "hidden_sizes": widths,
        "depths": layers,
        "layer_type": "bottleneck" if settings["bottleneck"] else "basic",
        "hidden_act": "relu",
        "out_features": [f"stage{len(layers)}"],
    }


def make_detector(arguments: dict[str, Any]) -> Detector:
    """Makes a detector of flat arguments."""
    backbone = make_backbone(arguments["resnet"])
    kind = QUERIES[arguments["queries"]]
    criterion = {name: value for name, value in arguments.items() if name in COSTS}
    return Detector(
        arguments["num_classes"],
        FeatureMap(backbone, arguments["feature"], arguments["max_wavelength"]),
        arguments["hidden_dim"],
        num_layers=(arguments["num_encoder_layers"], arguments["num_decoder_layers"]),
        queries=kind(arguments["num_queries"]),
        blocks=_blocks(arguments, kind.references),
        criterion={**criterion, "classification": arguments["classification"]},
    )


def make_backbone(arguments: dict[str, Any]) -> ResNet:
    """Makes the backbone of a detector."""
    return ResNet(None, **arguments, norm="frozen", name="backbone")


def _blocks(arguments: dict[str, Any], references: bool) -> list[keras.layers.Layer]:
    """Makes the block of the encoder, and one or two of the decoder."""
    shared: dict[str, Any] = {
        "dropout": arguments["dropout"],
        "norm_first": arguments["norm_first"],
        "norm": keras.layers.LayerNormalization(epsilon=1e-5, name="norm"),
    }
    network = FeedForward(arguments["mlp_dim"], "relu")
    mixer = SelfAttention(arguments["num_heads"])
    encoder = EncoderBlock(mixer=mixer, feed_forward=network, **shared)
    heads = arguments["decoder_num_heads"]
    shared["feed_forward"] = FeedForward(arguments["decoder_mlp_dim"], "relu")
    if references:
        kinds = (FirstConditionalDecoderBlock, ConditionalDecoderBlock)
        return [encoder, *(kind(heads, **shared) for kind in kinds)]
    attention = {"mixer": SelfAttention(heads), "cross_attention": CrossAttention(heads)}
    return [encoder, DecoderBlock(**attention, **shared, causal=False)]


def detector_shape(arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the shape of images that a detector is built for."""
    return (None, None, None, 3)


def read_detector(model: Detector) -> dict[str, Any]:
    """Returns the arguments that `make_detector` makes such a model of."""
    kinds = {kind: name for name, kind in QUERIES.items()}
    kind = type(model.queries)
    return {
        **read_set_detector(model),
        "no_object": model.criterion.no_object,
        "queries": kinds.get(kind, kind.__name__),
        "num_queries": model.queries.num_queries,
        "decoder_num_heads": model.decoder_blocks[0].mixer.num_heads,
        "feature": model.feature_map.feature,
        "resnet": read_backbone(model.backbone),
    }


def read_set_detector(model: Any) -> dict[str, Any]:
    """Returns the arguments that both kinds of detectors have."""
    encoder, decoder = model.encoder_blocks[0], model.decoder_blocks[0]
    criterion = model.criterion
    return {
        "num_classes": model.configuration.num_classes,
        "hidden_dim": model.configuration.hidden_dim,
        "num_encoder_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_heads": encoder.mixer.num_heads,
        "mlp_dim": encoder.feed_forward.mlp_dim,
        "decoder_mlp_dim": decoder.feed_forward.mlp_dim,
        "dropout": encoder.dropout,
        "norm_first": encoder.norm_first or decoder.norm_first,
        "max_wavelength": model.feature_map.max_wavelength,
        "classification": criterion.classification,
        "class_cost": criterion.class_cost,
        "box_cost": criterion.box_cost,
        "giou_cost": criterion.giou_cost,
        "box_weight": criterion.box_weight,
        "giou_weight": criterion.giou_weight,
    }


def read_backbone(backbone: ResNet) -> dict[str, Any]:
    """Returns the arguments that `make_backbone` makes such a backbone of."""
    settings = backbone.configuration
    return {
        "image_size": settings.image_size,
        "hidden_dim": settings.hidden_dim,
        "num_layers": settings.num_layers,
        "bottleneck": settings.bottleneck,
    }


NUMBERS = (
    size("d_model", "hidden_dim", 256),
    size("encoder_layers", "num_encoder_layers", 6),
    size("decoder_layers", "num_decoder_layers", 6),
    size("encoder_attention_heads", "num_heads", 8),
    size("decoder_attention_heads", "decoder_num_heads", 8),
    size("encoder_ffn_dim", "mlp_dim", 2048),
    size("decoder_ffn_dim", "decoder_mlp_dim", 2048),
    number("dropout", "dropout", 0.1),
    number("bbox_cost", "box_cost", 5),
    number("giou_cost", "giou_cost", 2),
    number("bbox_loss_coefficient", "box_weight", 5),
    number("giou_loss_coefficient", "giou_weight", 2),
    Setting("backbone_config", "resnet", default_backbone, _read_backbone, write_resnet),
)
FIXED = {"norm_first": False, "max_wavelength": 10000.0, "feature": None}
SETTLED = {
    "activation_function": ("relu",),
    "dilation": (False, None),
    "num_channels": (3,),
    "position_embedding_type": ("sine",),
    # timm's arguments; the last map is what DETR looks at, whichever else there are.
    "backbone_kwargs": (None, {}, {"in_chans": 3, "out_indices": [1, 2, 3, 4]}),
}
WITHOUT_EFFECT = frozenset(
    "attention_dropout activation_dropout backbone use_timm_backbone use_pretrained_backbone "
    "num_hidden_layers classifier_dropout encoder_layerdrop decoder_layerdrop init_xavier_std "
    "dice_loss_coefficient mask_loss_coefficient max_position_embeddings scale_embedding".split()
)
DETR_CONFIGURATION = Configuration(
    name="detr",
    settings=(
        *NUMBERS,
        size("num_queries", "num_queries", 100),
        number("class_cost", "class_cost", 1),
        number("eos_coefficient", "no_object", 0.1),
    ),
    fixed={**FIXED, "queries": "learned", "classification": "softmax"},
    settled=SETTLED,
    without_effect=WITHOUT_EFFECT | {"auxiliary_loss"},
    inner={"hidden_dim": 64},
)
DETR_WEIGHTS = Weights(
    modules=MODULES_OF_DETR,
    mappings=lambda model: inside(MAPPINGS, "backbone/", model.backbone),
    sizes={
        (f"{START}.embedder.embedder.convolution.weight", f"{START}.conv1.weight"): (
            "backbone_config.hidden_dim",
            3,
            7,
            7,
        ),
        "model.query_position_embeddings.weight": ("num_queries", "d_model"),
        "model.encoder.layers.0.fc1.weight": ("encoder_ffn_dim", "d_model"),
    },
    layers={
        "encoder_layers": "model.encoder.layers.",
        "decoder_layers": "model.decoder.layers.",
        **{
            f"backbone_config.num_layers.{s}": (
                f"{START}.encoder.stages.{s}.layers.",
                f"{START}.layer{s + 1}.",
            )
            for s in range(4)
        },
    },
)
DETR = Family(
    configuration=DETR_CONFIGURATION,
    weights=DETR_WEIGHTS,
    model=Detector,
    architectures={"DetrForObjectDetection": {}},
    tasks={"detection": "DetrForObjectDetection"},
    classes=True,
    make=make_detector,
    read=read_detector,
    shape=detector_shape,
)


# Of a layer of the decoder: what is not called as in BART.
PROJECTIONS = {
    "mixer/query": "sa_qcontent_proj",
    "mixer/query_position": "sa_qpos_proj",
    "mixer/key": "sa_kcontent_proj",
    "mixer/key_position": "sa_kpos_proj",
    "mixer/value": "sa_v_proj",
    "cross_attention/query": "ca_qcontent_proj",
    "cross_attention/query_position": "ca_qpos_proj",
    "cross_attention/key": "ca_kcontent_proj",
    "cross_attention/key_position": "ca_kpos_proj",
    "cross_attention/value": "ca_v_proj",
    "cross_attention/reference": "ca_qpos_sine_proj",
}
NETWORKS = {"reference_network": "ref_point_head", "scale_network": "query_scale"}


def _conditional_mappings() -> Mappings:
    ours = {f"decoder_{{i}}/{name}": theirs for name, theirs in PROJECTIONS.items()}
    layers: list[Any] = bart_layers()
    layers = [each for each in layers if each.ours.rpartition("/")[0] not in ours]
    mappings: Mappings = [*SHARED, *layers]
    for name, theirs in ours.items():
        mappings += linear(name, f"model.decoder.layers.{{i}}.{theirs}")
    for name, theirs in NETWORKS.items():
        mappings += linear(f"queries/{name}/hidden_0", f"model.decoder.{theirs}.layers.0")
        mappings += linear(f"queries/{name}/output", f"model.decoder.{theirs}.layers.1")
    return mappings


CONDITIONAL_DETR_MAPPINGS = _conditional_mappings()


CONDITIONAL_DETR_CONFIGURATION = Configuration(
    name="conditional_detr",
    settings=(
        *NUMBERS,
        size("num_queries", "num_queries", 300),
        number("class_cost", "class_cost", 2),
    ),
    fixed={**FIXED, "queries": "references", "classification": "focal"},
    # With auxiliary losses the published decoder normalises between its layers, another model.
    settled={**SETTLED, "auxiliary_loss": (False,), "focal_alpha": (0.25,)},
    # The published loss reads no coefficient of its classes.
    without_effect=WITHOUT_EFFECT | {"cls_loss_coefficient"},
    inner={"hidden_dim": 64},
)
CONDITIONAL_DETR = dataclasses.replace(
    DETR,
    configuration=CONDITIONAL_DETR_CONFIGURATION,
    weights=dataclasses.replace(
        DETR_WEIGHTS,
        mappings=lambda model: inside(CONDITIONAL_DETR_MAPPINGS, "backbone/", model.backbone),
        modules=MODULES_OF_CONDITIONAL_DETR,
    ),
    architectures={"ConditionalDetrForObjectDetection": {}},
    tasks={"detection": "ConditionalDetrForObjectDetection"},
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


def _deformable_layers() -> Mappings:
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


def _deformable_levels(model: Any) -> Mappings:
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


def _deformable_heads(model: Any) -> Mappings:
    """Returns the mappings of the heads of all layers, or of each layer and of the proposals."""
    layers, classes, boxes = len(model.decoder_blocks), "class_embed", "bbox_embed"
    if not model.queries.refine:  # which some files have as often as there are layers
        of_class, of_box = ([f"{each}.{i}" for i in range(layers)] for each in (classes, boxes))
        return _one_head("heads", of_class, of_box)
    if model.queries.proposes:
        classes = f"model.decoder.{classes}"
    mappings: Mappings = []
    for i in range(layers + model.queries.proposes):
        ours = "proposal_heads" if i == layers else f"heads_{i}"
        of_class = list(dict.fromkeys([f"{classes}.{i}", f"class_embed.{i}"]))
        of_box = [f"model.decoder.{boxes}.{i}", f"{boxes}.{i}"]
        mappings += _one_head(ours, of_class, of_box, tied=i > 0 and not model.queries.proposes)
    return mappings


def _one_head(ours: str, classes: list[str], boxes: list[str], tied: bool = False) -> Mappings:
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


def _deformable_mappings(model: Any) -> Mappings:
    """The mappings of every weight of a built detector."""
    backbone = [each for each in SHARED if each.ours.startswith("backbone/")]  # type: ignore[union-attr]
    mappings = [
        *backbone,
        *_deformable_layers(),
        *_deformable_levels(model),
        *_deformable_heads(model),
    ]
    if model.queries.proposes:
        for ours, theirs in PROPOSALS.items():
            of = norm if ours.endswith("norm") else linear
            mappings += of(f"queries/{ours}", f"model.{theirs}")
    else:
        name = "model.query_position_embeddings.weight"
        mappings += [WeightMapping("queries/embedding", name)]
        mappings += linear("queries/reference", "model.reference_points")
    return inside(mappings, "backbone/", model.backbone)


DEFORMABLE_COSTS = ("class_cost", "box_cost", "giou_cost", "box_weight", "giou_weight")
OF_QUERIES = ("with_box_refine", "two_stage", "num_queries", "two_stage_num_proposals")


def _default_deformable_backbone(config: dict[str, Any]) -> dict[str, Any]:
    if config.get("use_timm_backbone") is False and config.get("backbone") is None:
        return {"model_type": "resnet", "out_features": ["stage4"]}
    several = config.get("num_feature_levels", 4) != 1
    return {**default_backbone(config), "out_indices": [2, 3, 4] if several else [4]}


def _read_deformable_backbone(config: dict[str, Any]) -> dict[str, Any]:
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


def _write_deformable_backbone(settings: dict[str, Any]) -> dict[str, Any]:
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
        queries=DEFORMABLE_QUERIES[kind](num_queries),
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
        criterion={
            "classification": "focal",
            **{name: arguments[name] for name in DEFORMABLE_COSTS},
        },
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
        Setting(
            "backbone_config",
            "resnet",
            _default_deformable_backbone,
            _read_deformable_backbone,
            _write_deformable_backbone,
        ),
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
        mappings=_deformable_mappings,
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
