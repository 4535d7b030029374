"""DETR (Carion et al. 2020) and Conditional DETR (Meng et al. 2021)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_transformers.layers import (
    ConditionalCrossAttention,
    ConditionalDecoderBlock,
    ConditionalSelfAttention,
    CrossAttention,
    FeedForward,
    FirstConditionalDecoderBlock,
    SelfAttention,
)
from keras_transformers.models import DETR as Detector
from keras_transformers.models import ResNet
from keras_transformers.models.detr import QUERIES
from keras_transformers.models.resnet import VARIANTS as RESNETS
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    number,
    size,
)
from keras_transformers.pretrained.parts import one_for_both
from keras_transformers.pretrained.weight_mapping import (
    BATCH_NORM,
    CONVOLUTION,
    MODULES_OF_CONDITIONAL_DETR,
    MODULES_OF_DETR,
    Mappings,
    Pointwise,
    WeightMapping,
    bart_layers,
    inside,
    linear,
    norm,
)

BOTH = ("num_heads", "mlp_dim")
# What the published blocks are made of, and what is not changed of these parts.
OF_ENCODER = {"mixer": SelfAttention, "feed_forward": FeedForward}
OF_DECODER = {**OF_ENCODER, "cross_attention": CrossAttention}
PLAIN: dict[str, Any] = {
    "key_dim": None,
    "value_dim": None,
    "use_bias": True,
    "num_key_value_heads": None,
}
PLAIN |= {"position": None, "activation": "relu"}
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


def make(arguments: dict[str, Any]) -> Any:
    """A built detector."""
    arguments = one_for_both(arguments, BOTH)
    backbone = ResNet(None, norm="frozen", name="backbone", **arguments.pop("resnet"))
    said = arguments.keys() & {*COSTS, "classification"}
    criterion = {name: arguments.pop(name) for name in said}
    model = Detector.from_variant("R50", backbone=backbone, criterion=criterion, **arguments)
    model.build((None, None, None, 3))
    return model


def arguments_of(model: Any, parts: Mapping[str, type] = OF_DECODER) -> dict[str, Any]:
    """What `make` takes for such a model, whose decoder's blocks are made of these parts."""
    backbone, queries = model.backbone, model.queries
    check_resnet(backbone)
    encoder, decoder = model.encoder_blocks[0], model.decoder_blocks[0]
    kinds = {kind: name for name, kind in QUERIES.items()}
    settings = model.get_config()
    return {
        **{name: settings[name] for name in ("num_classes", "hidden_dim")},
        **{name: value for name, value in vars(model.criterion).items() if name in COSTS},
        **numbers_of(encoder, OF_ENCODER),
        **{f"decoder_{name}": value for name, value in numbers_of(decoder, parts).items()},
        "num_encoder_layers": len(model.encoder_blocks),
        "num_decoder_layers": len(model.decoder_blocks),
        "num_queries": queries.num_queries,
        "queries": kinds.get(type(queries), type(queries).__name__),
        "norm_first": encoder.norm_first or decoder.norm_first,
        "feature": model.feature_map.feature,
        "max_wavelength": model.feature_map.max_wavelength,
        "classification": model.criterion.classification,
        "resnet": backbone.get_config(),
    }


def check_resnet(backbone: Any) -> None:
    """Raises ValueError unless a backbone is as the published ones are."""
    frozen = isinstance(backbone, ResNet) and backbone.get_config()["norm"] == "frozen"
    if not frozen or backbone.get_config()["stem"] != "pooled":
        raise ValueError(
            "save: the published DETR needs a ResNet with a pooled stem and frozen batch norms for "
            f"a backbone. Received: {backbone.name}"
        )


def numbers_of(block: Any, kinds: Mapping[str, type]) -> dict[str, Any]:
    """The numbers that a block is made of; ValueError if it computes anything but the published."""
    own = {"mixer": block.mixer, "feed_forward": block.feed_forward}
    own |= {"cross_attention": getattr(block, "cross_attention", None)}
    own |= {"mixer_norm": block.mixer_norm}
    parts = {name: own[name] for name in kinds}
    configs = {name: part.get_config() for name, part in parts.items()}
    other = [name for name, part in parts.items() if type(part) is not kinds[name]]
    other += [
        f"{name} with {key}={value!r}"
        for name, config in configs.items()
        for key, value in config.items()
        if key in PLAIN and value != PLAIN[key]
    ]
    if getattr(block.mixer_norm, "epsilon", None) != 1e-5 or block.layer_scale is not None:
        other.append("norm or layer scale")
    if other:
        raise ValueError(
            "save: the published DETR needs blocks of plain attention, `FeedForward`s with ReLU "
            f"and layer norms with epsilon 1e-5. Received another {', another '.join(other)}"
        )
    numbers = {"num_heads": block.mixer.num_heads, "mlp_dim": block.feed_forward.mlp_dim}
    return {**numbers, "dropout": block.dropout}


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
    make=make,
    arguments=arguments_of,
)


PARTS = OF_DECODER | {
    "mixer": ConditionalSelfAttention,
    "cross_attention": ConditionalCrossAttention,
}
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


def _mappings() -> Mappings:
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


CONDITIONAL_DETR_MAPPINGS = _mappings()


def _arguments(model: Any) -> dict[str, Any]:
    kinds = [type(block) for block in model.decoder_blocks]
    if kinds != [FirstConditionalDecoderBlock] + [ConditionalDecoderBlock] * (len(kinds) - 1):
        raise ValueError(
            "save: the published Conditional DETR needs a decoder of one "
            "FirstConditionalDecoderBlock and ConditionalDecoderBlocks. "
            f"Received: {', '.join(kind.__name__ for kind in kinds)}"
        )
    return arguments_of(model, PARTS)


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
    arguments=_arguments,
)
