"""Conditional DETR (Meng et al. 2021), whose queries refer to points of the image."""

import dataclasses
from typing import Any

from keras_transformers.layers import (
    ConditionalCrossAttention,
    ConditionalDecoderBlock,
    ConditionalSelfAttention,
    FirstConditionalDecoderBlock,
)
from keras_transformers.pretrained.configuration import Configuration, number, size
from keras_transformers.pretrained.detr import (
    DETR,
    DETR_WEIGHTS,
    FIXED,
    NUMBERS,
    OF_DECODER,
    SETTLED,
    SHARED,
    WITHOUT_EFFECT,
    arguments_of,
)
from keras_transformers.pretrained.module_names import MODULES_OF_CONDITIONAL_DETR
from keras_transformers.pretrained.weight_mapping import Mappings, bart_layers, inside, linear

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


MAPPINGS = _mappings()


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
        mappings=lambda model: inside(MAPPINGS, "backbone/", model.backbone),
        modules=MODULES_OF_CONDITIONAL_DETR,
    ),
    architectures={"ConditionalDetrForObjectDetection": {}},
    tasks={"detection": "ConditionalDetrForObjectDetection"},
    arguments=_arguments,
)
