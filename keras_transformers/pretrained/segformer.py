"""SegFormer (Xie et al. 2021), whose encoder, Mix Transformer, is a PVT v2."""

from typing import Any

from keras_transformers.models import PVT, SegFormer
from keras_transformers.pretrained.family import (
    Configuration,
    Family,
    Setting,
    Weights,
    number,
    of_images,
    size,
)
from keras_transformers.pretrained.vit import make_image_model
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
# Arguments that are not of the encoder: whether there is a decoder, and those of it.
DECODERS = ("segments", "decoder_dim", "decoder_dropout", "ignored_label", "reshaped")


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


def _make(arguments: dict[str, Any]) -> Any:
    decoder = {name: arguments[name] for name in DECODERS}
    encoder = {name: value for name, value in arguments.items() if name not in DECODERS}
    encoder["image_size"] = (224, 224)  # no weight depends on it
    if not decoder["segments"]:
        return make_image_model(PVT, encoder)
    if not decoder["reshaped"]:
        raise ValueError("`reshape_last_stage` must be true for segmentation. Received: False")
    channels, classes = encoder.pop("channels"), encoder.pop("num_classes")
    encoder.pop("problem_type", None)
    model = SegFormer(
        classes,
        PVT(None, **encoder),
        decoder["decoder_dim"],
        decoder["decoder_dropout"],
        decoder["ignored_label"],
    )
    model.build((None, None, None, channels))
    return model


def _arguments(model: Any) -> dict[str, Any]:
    if isinstance(model, PVT):
        decoder = dict.fromkeys(DECODERS) | {"segments": False}
        return {**model.get_config(), **decoder, "channels": model.channels}
    encoder, config = model.encoder, model.get_config()
    if not isinstance(encoder, PVT):
        raise ValueError(
            "save: the published SegFormer needs a PVT for an encoder. Received: "
            f"{type(encoder).__name__}"
        )
    return {
        **encoder.get_config(),
        "num_classes": config["num_classes"],
        "segments": True,
        "decoder_dim": config["decoder_dim"],
        "decoder_dropout": config["dropout"],
        "ignored_label": model.ignored_label,
        "reshaped": True,
        "channels": model.channels,
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
        size("decoder_hidden_size", "decoder_dim", 256),
        number("classifier_dropout_prob", "decoder_dropout", 0.1),
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
ENCODERS = of_images("Segformer")
SEGFORMER = Family(
    configuration=SEGFORMER_CONFIGURATION,
    weights=SEGFORMER_WEIGHTS,
    model=PVT,
    others=(SegFormer,),
    architectures={
        **{name: {**given, "segments": False} for name, given in ENCODERS["architectures"].items()},
        "SegformerForSemanticSegmentation": {"segments": True},
    },
    tasks={**ENCODERS["tasks"], "segmentation": "SegformerForSemanticSegmentation"},
    classes=True,
    make=_make,
    arguments=_arguments,
)
