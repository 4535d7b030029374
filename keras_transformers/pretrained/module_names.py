"""What modules of `transformers` are called where the files of their weights keep older names.

Since its version 5 most of its models of images are written anew. Their files have the names that
they always had, for it renames tensors when it reads and writes them. Adapters have the names of
modules: those of the version that wrote them.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

Renamed: TypeAlias = Mapping[str, str | tuple[str, ...]]

HEADS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
DENSES = {
    r"attention\.output\.dense": "attention.o_proj",
    r"intermediate\.dense": "mlp.fc1",
    r"output\.dense": "mlp.fc2",
}
_OF_SELF = {rf"attention\.self\.{old}": f"attention.{new}" for old, new in HEADS.items()}
_OF_ATTENTION = {rf"attention\.attention\.{old}": f"attention.{new}" for old, new in HEADS.items()}

MODULES_OF_VIT: Renamed = {
    r"attention\.attention\.relative": "relative",
    r"encoder\.layer\.": "layers.",
    **_OF_ATTENTION,
    **DENSES,
}
MODULES_OF_DINOV2: Renamed = {
    **_OF_ATTENTION,
    r"attention\.output\.dense": "attention.o_proj",
    r"mlp\.weights_in": ("mlp.gate_proj", "mlp.up_proj"),
    r"mlp\.weights_out": "mlp.down_proj",
}
MODULES_OF_SWIN: Renamed = {
    **_OF_SELF,
    r"attention\.self\.relative_position_bias_table": (
        "attention.relative_position_bias.relative_position_bias_table"
    ),
    **DENSES,
}
MODULES_OF_SEGFORMER: Renamed = {
    r"encoder\.patch_embeddings\.(\d+)": r"stages.\1.patch_embeddings",
    r"encoder\.block\.(\d+)": r"stages.\1.blocks",
    r"encoder\.layer_norm\.(\d+)": r"stages.\1.layer_norm",
    r"attention\.self\.sr": "attention.sequence_reduction.sequence_reduction",
    r"attention\.self\.layer_norm": "attention.sequence_reduction.layer_norm",
    **_OF_SELF,
    r"attention\.output\.dense": "attention.o_proj",
    r"mlp\.dense(\d)": r"mlp.fc\1",
    "layer_norm_1": "layernorm_before",
    "layer_norm_2": "layernorm_after",
    "linear_c": "linear_projections",
}
MODULES_OF_DETR: Renamed = {
    r"backbone\.conv_encoder": "backbone",
    r"attn\.out_proj": "attn.o_proj",
    r"layers\.(\d+)\.fc(\d)": r"layers.\1.mlp.fc\2",
}
_CONDITIONAL = {"qcontent": "q_content", "qpos": "q_pos", "kcontent": "k_content", "kpos": "k_pos"}
_CONDITIONAL |= {"v": "v", "qpos_sine": "q_pos_sine"}
MODULES_OF_CONDITIONAL_DETR: Renamed = {
    **MODULES_OF_DETR,
    **{rf"\.sa_{old}_proj": f".self_attn.{new}_proj" for old, new in _CONDITIONAL.items()},
    **{rf"\.ca_{old}_proj": f".encoder_attn.{new}_proj" for old, new in _CONDITIONAL.items()},
}


def module_name(name: str, part: int | None, renamed: Renamed) -> tuple[str, int | None]:
    """What a tensor of a file is called inside a model of today's `transformers`.

    Args:
        name: In the file.
        part: Which part of a fused tensor is meant, None for all of a tensor.
        renamed: The family's, see `Weights.modules`.

    Returns:
        The name, and the part, None where that is a tensor of its own.
    """
    for pattern, new in renamed.items():
        if isinstance(new, str):
            name = re.sub(pattern, new, name)
        elif part is not None and re.search(pattern, name):
            name, part = re.sub(pattern, new[part], name), None
    return name, part
