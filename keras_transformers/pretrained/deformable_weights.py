"""Which published tensor of Deformable DETR becomes which weight of ours."""

from typing import Any

import keras

from keras_transformers.pretrained.detr import SHARED
from keras_transformers.pretrained.tensor_layouts import (
    CONVOLUTION,
    FLAT,
    LINEAR,
    Layout,
    Pointwise,
)
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
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
    """Those of the maps' projections and norms."""
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
    """Those of the heads that all layers share, or of each layer's and of the proposals'."""
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
    """Those of one head, of which a file has one or more of each list; the first is written.

    With `tied`, a class head that is not there is that of the first layer.
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
