"""SegFormer (Xie et al. 2021), whose encoder, Mix Transformer, is a PVT v2."""

from typing import Any

from keras_transformers.models import PVT, SegFormer
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    image_classes,
    not_negative,
    number,
    positive,
    size,
)
from keras_transformers.pretrained.vit import without_channels
from keras_transformers.pretrained.weight_mapping import (
    CONVOLUTION,
    DEPTHWISE,
    MODULES_OF_SEGFORMER,
    FusedPart,
    Mappings,
    PatchConvolution,
    Pointwise,
    WeightMapping,
    also_called,
    attention,
    batch_norm,
    inside,
    linear,
    norm,
)

STAGES = 4
ENCODER, DECODER = "segformer.encoder", "decode_head"
# Arguments that the encoder does not have: whether there is a decoder, and the decoder's.
DECODER_ARGUMENTS = ("segments", "decoder_dim", "decoder_dropout", "ignored_label", "reshaped")


def _convolution(ours: str, theirs: str, layout: Any = CONVOLUTION) -> Mappings:
    """The mappings of a convolution."""
    return [
        WeightMapping(f"{ours}/kernel", f"{theirs}.weight", layout),
        WeightMapping(f"{ours}/bias", f"{theirs}.bias"),
    ]


def _of_encoder(model: PVT) -> Mappings:
    """The mappings of the encoder, and of the head of a classifier."""
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


def _of_decoder() -> Mappings:
    """The mappings of the decode head, which concatenates, last stage first, what ours sums."""
    theirs, newer = (f"{DECODER}.{name}.{{i}}.proj" for name in ("linear_c", "linear_projections"))
    fused = f"{DECODER}.linear_fuse.weight"
    return [
        *also_called(linear("projection_{i}", theirs), theirs, newer),
        *(
            WeightMapping(
                f"fusion_{stage}/kernel",
                fused,
                FusedPart(STAGES - 1 - stage, Pointwise(), STAGES, axis=1),
            )
            for stage in range(STAGES)
        ),
        *batch_norm("norm", f"{DECODER}.batch_norm"),
        WeightMapping("classifier/kernel", f"{DECODER}.classifier.weight", Pointwise()),
        WeightMapping("classifier/bias", f"{DECODER}.classifier.bias"),
    ]


def _mappings(model: Any) -> Mappings:
    if isinstance(model, PVT):
        return _of_encoder(model)
    return [*inside(_of_encoder(model.encoder), "", model.encoder), *_of_decoder()]


def _stages(value: Any) -> list[int]:
    """A positive integer for each stage."""
    numbers = list(value) if isinstance(value, list | tuple) else []
    if len(numbers) != STAGES or not all(
        isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in numbers
    ):
        raise ValueError(f"a list of {STAGES} positive integers")
    return numbers


def _index(value: Any) -> int:
    """An integer; ValueError unless it is one."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("an integer")
    return value


def _make(arguments: dict[str, Any]) -> PVT | SegFormer:
    encoder = {name: value for name, value in arguments.items() if name not in DECODER_ARGUMENTS}
    encoder = without_channels(encoder)
    if not arguments["segments"]:
        return PVT(**encoder)
    if not arguments["reshaped"]:
        raise ValueError("`reshape_last_stage` must be true for segmentation. Received: False")
    classes = encoder.pop("num_classes")
    encoder.pop("problem_type", None)
    return SegFormer(
        classes,
        PVT(None, **encoder),
        arguments["decoder_dim"],
        arguments["decoder_dropout"],
        arguments["ignored_label"],
    )


def _shape(arguments: dict[str, Any]) -> tuple[Any, ...]:
    sides = (None, None) if arguments["segments"] else (224, 224)  # no weight depends on them
    return (None, *sides, arguments["channels"])


def _read(model: PVT | SegFormer) -> dict[str, Any]:
    if isinstance(model, PVT):
        arguments = _read_encoder(model)
        return {**arguments, **dict.fromkeys(DECODER_ARGUMENTS), "segments": False}
    arguments = _read_encoder(model.encoder)
    del arguments["problem_type"]
    return {
        **arguments,
        "num_classes": model.configuration.num_classes,
        "segments": True,
        "decoder_dim": model.configuration.decoder_dim,
        "decoder_dropout": model.configuration.dropout,
        "ignored_label": model.ignored_label,
        "reshaped": True,
    }


def _read_encoder(model: PVT) -> dict[str, Any]:
    settings = model.configuration
    return {
        "num_classes": settings.num_classes,
        "image_size": settings.image_size,
        "problem_type": settings.problem_type,
        "channels": model.channels,
        "hidden_dims": settings.hidden_dims,
        "num_layers": settings.num_layers,
        "num_heads": settings.num_heads,
        "reductions": settings.reductions,
        "mlp_ratios": settings.mlp_ratios,
        "dropout": settings.dropout,
        "drop_path": settings.drop_path,
        "norm_epsilon": settings.norm_epsilon,
    }


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
        # Encoders alone have no decoder to write of.
        Setting("decoder_hidden_size", "decoder_dim", 256, positive),
        Setting("classifier_dropout_prob", "decoder_dropout", 0.1, not_negative),
        Setting("semantic_loss_ignore_index", "ignored_label", 255, _index),
        Setting("reshape_last_stage", "reshaped", True, bool),  # the mean does away with it
    ),
    fixed={"norm_epsilon": 1e-5},  # whatever `layer_norm_eps` says, which nothing reads
    settled={
        "num_encoder_blocks": (STAGES,),
        "patch_sizes": ([7, 3, 3, 3],),
        "strides": ([4, 2, 2, 2],),
        "hidden_act": ("gelu",),
        "attention_probs_dropout_prob": (0.0,),
    },
    without_effect=frozenset({"layer_norm_eps", "downsampling_rates", "image_size"}),
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
    modules=MODULES_OF_SEGFORMER,
    prefix="segformer.",
    bare=("SegformerModel",),
)
ENCODERS = image_classes("Segformer")
SEGFORMER = Family(
    configuration=SEGFORMER_CONFIGURATION,
    weights=SEGFORMER_WEIGHTS,
    model=PVT,
    others=(SegFormer,),
    architectures={
        **{
            name: {**settings, "segments": False}
            for name, settings in ENCODERS["architectures"].items()
        },
        "SegformerForSemanticSegmentation": {"segments": True},
    },
    tasks={**ENCODERS["tasks"], "segmentation": "SegformerForSemanticSegmentation"},
    classes=True,
    make=_make,
    read=_read,
    shape=_shape,
)
