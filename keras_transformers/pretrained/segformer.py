"""SegFormer's encoder, Mix Transformer (Xie et al. 2021), which is a PVT v2."""

from typing import Any

from keras_transformers.models import PVT
from keras_transformers.pretrained.configuration import Configuration, Setting, number, size
from keras_transformers.pretrained.family import Family, Weights, of_images
from keras_transformers.pretrained.tensor_layouts import CONVOLUTION, DEPTHWISE, PatchConvolution
from keras_transformers.pretrained.vit import make_image_model
from keras_transformers.pretrained.weight_mapping import (
    Mappings,
    WeightMapping,
    attention,
    linear,
    norm,
)

STAGES = 4
ENCODER = "segformer.encoder"


def _convolution(ours: str, theirs: str, layout: Any = CONVOLUTION) -> Mappings:
    """The mappings of a convolution."""
    return [
        WeightMapping(f"{ours}/kernel", f"{theirs}.weight", layout),
        WeightMapping(f"{ours}/bias", f"{theirs}.bias"),
    ]


def _mappings(model: Any) -> Mappings:
    ours, theirs = "stage_{s}_block_{b}", f"{ENCODER}.block.{{s}}.{{b}}"
    q, k, v = (f"{theirs}.attention.self.{name}" for name in ("query", "key", "value"))
    patches = f"{ENCODER}.patch_embeddings.{{s}}"
    found = [
        *_convolution("embedding_{s}/projection", f"{patches}.proj"),
        *norm("embedding_{s}/norm", f"{patches}.layer_norm"),
        *attention(f"{ours}/mixer", q, k, v, f"{theirs}.attention.output.dense"),
        *norm(f"{ours}/mixer/norm", f"{theirs}.attention.self.layer_norm"),
        *norm(f"{ours}/mixer_norm", f"{theirs}.layer_norm_1"),
        *linear(f"{ours}/feed_forward/hidden", f"{theirs}.mlp.dense1"),
        *_convolution(f"{ours}/feed_forward/depthwise", f"{theirs}.mlp.dwconv.dwconv", DEPTHWISE),
        *linear(f"{ours}/feed_forward/output", f"{theirs}.mlp.dense2"),
        *norm(f"{ours}/feed_forward_norm", f"{theirs}.layer_norm_2"),
        *norm("norm_{s}", f"{ENCODER}.layer_norm.{{s}}"),
        *linear("head", "classifier"),
    ]
    for stage, reduction in enumerate(model.get_config()["reductions"]):
        ours, theirs = f"stage_{stage}_block_{{b}}/mixer/reduce", f"{ENCODER}.block.{stage}.{{b}}"
        reduced = f"{theirs}.attention.self.sr"
        found += _convolution(f"{ours}/projection", reduced, PatchConvolution(reduction))
    return found


def _stages(value: Any) -> list[int]:
    """A positive integer for each stage."""
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != STAGES or not all(
        isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers
    ):
        raise ValueError(f"a list of {STAGES} positive integers")
    return numbers


def _make(arguments: dict[str, Any]) -> Any:
    return make_image_model(PVT, {**arguments, "image_size": (224, 224)})


def _arguments(model: PVT) -> dict[str, Any]:
    return {**model.get_config(), "channels": model.channels}


SEGFORMER_CONFIGURATION = Configuration(
    name="segformer",
    settings=(
        size("num_channels", "channels", 3),
        Setting("depths", "num_layers", [2, 2, 2, 2], _stages),
        Setting("sr_ratios", "reductions", [8, 4, 2, 1], _stages),
        Setting("hidden_sizes", "hidden_dims", [32, 64, 160, 256], _stages),
        Setting("num_attention_heads", "num_heads", [1, 2, 5, 8], _stages),
        Setting("mlp_ratios", "mlp_ratios", [4, 4, 4, 4], _stages),
        number("hidden_dropout_prob", "dropout", 0.0),
        number("drop_path_rate", "drop_path", 0.1),
    ),
    fixed={"norm_epsilon": 1e-5},  # whatever `layer_norm_eps` says, which nothing reads
    settled={
        "num_encoder_blocks": (STAGES,),
        "patch_sizes": ([7, 3, 3, 3],),
        "strides": ([4, 2, 2, 2],),
        "hidden_act": ("gelu",),
        "attention_probs_dropout_prob": (0.0,),
    },
    # Of segmentation, of a shape that the mean does away with, and of the first files.
    without_effect=frozenset({"decoder_hidden_size", "classifier_dropout_prob", "layer_norm_eps"})
    | {"semantic_loss_ignore_index", "reshape_last_stage", "downsampling_rates", "image_size"},
)
SEGFORMER_WEIGHTS = Weights(
    mappings=_mappings,
    sizes={
        f"{ENCODER}.patch_embeddings.0.proj.weight": ("hidden_sizes.0", "num_channels", 7, 7),
        **{
            f"{ENCODER}.patch_embeddings.{stage}.proj.weight": (
                f"hidden_sizes.{stage}",
                f"hidden_sizes.{stage - 1}",
                3,
                3,
            )
            for stage in range(1, STAGES)
        },
    },
    layers={f"depths.{stage}": f"{ENCODER}.block.{stage}." for stage in range(STAGES)},
    prefix="segformer.",
    bare=("SegformerModel",),
)
SEGFORMER = Family(
    configuration=SEGFORMER_CONFIGURATION,
    weights=SEGFORMER_WEIGHTS,
    model=PVT,
    **of_images("Segformer"),
    make=_make,
    arguments=_arguments,
)
