"""Swin (Liu et al. 2021) and Swin V2 (Liu et al. 2022)."""

from collections.abc import Callable
from typing import Any

import keras

from keras_transformers.models import Swin
from keras_transformers.models.swin import STAGES
from keras_transformers.pretrained.family import (
    Combined,
    Configuration,
    Family,
    Setting,
    Weights,
    activation,
    image_classes,
    number,
    size,
)
from keras_transformers.pretrained.vit import image_shape, read_side, without_channels, write_side
from keras_transformers.pretrained.weight_mapping import (
    MODULES_OF_SWIN,
    Mappings,
    PatchConvolution,
    WeightMapping,
    attention,
    linear,
    norm,
)

DEPTHS = [2, 2, 6, 2]


def _mappings(
    start: str, position_mappings: Callable[[str, str], Mappings]
) -> Callable[[Swin], Mappings]:
    """Mappings by the start of the names and what an attention has for positions."""
    layer = f"{start}.encoder.layers.{{s}}"
    block = f"{layer}.blocks.{{b}}"
    ours = "stage_{s}_block_{b}"
    q, k, v = (f"{block}.attention.self.{name}" for name in ("query", "key", "value"))
    patches = f"{start}.embeddings.patch_embeddings.projection"

    def mappings(model: Any) -> Mappings:
        side = model.get_config()["patch_size"]
        found: Mappings = [
            WeightMapping(
                "patch_embedding/projection/kernel", f"{patches}.weight", PatchConvolution(side)
            ),
            WeightMapping("patch_embedding/projection/bias", f"{patches}.bias"),
            *norm("embedding_norm", f"{start}.embeddings.norm"),
            *attention(f"{ours}/mixer", q, k, v, f"{block}.attention.output.dense"),
            *position_mappings(f"{ours}/mixer", f"{block}.attention.self"),
            *norm(f"{ours}/mixer_norm", f"{block}.layernorm_before"),
            *linear(f"{ours}/feed_forward/hidden", f"{block}.intermediate.dense"),
            *linear(f"{ours}/feed_forward/output", f"{block}.output.dense"),
            *norm(f"{ours}/feed_forward_norm", f"{block}.layernorm_after"),
            *norm("norm", f"{start}.layernorm"),
            *linear("head", "classifier"),
        ]
        for stage in range(len(model.get_config()["num_layers"]) - 1):
            merging = f"{start}.encoder.layers.{stage}.downsample"
            found += linear(f"merging_{stage + 1}/projection", f"{merging}.reduction", bias=False)
            found += norm(f"merging_{stage + 1}/norm", f"{merging}.norm")
        return found

    return mappings


def _table(ours: str, theirs: str) -> Mappings:
    return [
        WeightMapping(f"{ours}/position/relative_bias", f"{theirs}.relative_position_bias_table")
    ]


def _network(ours: str, theirs: str) -> Mappings:
    network = f"{theirs}.continuous_position_bias_mlp"
    return [
        WeightMapping(f"{ours}/score/log_scale", f"{theirs}.logit_scale"),
        *linear(f"{ours}/position/hidden", f"{network}.0"),
        *linear(f"{ours}/position/output", f"{network}.2", bias=False),
    ]


def _read_depths(value: Any) -> Any:
    if not isinstance(value, list) or len(value) not in STAGES:
        raise ValueError(f"a list of {STAGES[0]} to {STAGES[-1]} positive integers")
    if not all(isinstance(each, int) and each > 0 for each in value):
        raise ValueError("a list of positive integers")
    return value


def _stage_setting(theirs: str, ours: str, default: list[int], minimum: int) -> Combined:
    """Returns the setting of a list with an integer for each stage, which may be longer."""

    def read(config: dict[str, Any]) -> list[int | None]:
        value, stages = config.get(theirs, default), len(config["depths"])
        is_long_enough = isinstance(value, list) and len(value) >= stages
        if not is_long_enough or not all(isinstance(x, int) and x >= minimum for x in value):
            what = f"{stages} integers, {minimum} or more, one of each of `depths`"
            raise ValueError(f"`{theirs}` must be a list of {what}. Received: {value!r}")
        return [number or None for number in value[:stages]]

    def write(arguments: dict[str, Any]) -> dict[str, Any]:
        return {theirs: [number or 0 for number in arguments[ours]]}

    return Combined(ours, (theirs,), read, write)


def _read_ratio(value: Any) -> int:
    if value != int(value) or value < 1:
        raise ValueError("a whole number")
    return int(value)


def _check_sides(arguments: dict[str, Any]) -> None:
    """ValueError where windows would be others: theirs know a map without its padding."""
    for side in arguments["image_size"]:
        for stage in range(len(arguments["num_layers"])):
            stride, window = arguments["patch_size"] << stage, arguments["window_size"]
            if side % stride and side // stride < window:
                raise ValueError(
                    f"`image_size` must be a multiple of {stride}, or {window} times that, for the "
                    f"windows of stage {stage + 1}. Received: {side}"
                )


def _make(arguments: dict[str, Any]) -> Swin:
    if arguments["version"] == 2:
        _check_sides(arguments)
    return Swin.from_variant("T", **without_channels(arguments))


def _read(model: Swin) -> dict[str, Any]:
    """Returns the arguments that `_make` makes such a model of."""
    settings = model.configuration
    # The first block of each stage.
    numbers = [sum(settings.num_layers[:stage]) for stage in range(len(settings.num_layers))]
    blocks = [model.encoder_blocks[number] for number in numbers]
    block, network = blocks[0], blocks[0].feed_forward
    last_rate = blocks[-1].drop_path
    return {
        "num_classes": settings.num_classes,
        "image_size": settings.image_size,
        "problem_type": settings.problem_type,
        "channels": model.channels,
        "patch_size": settings.patch_size,
        "hidden_dim": settings.hidden_dim,
        "num_layers": settings.num_layers,
        "drop_path": last_rate if settings.drop_path is None else settings.drop_path,
        "version": 1 if block.norm_first else 2,
        "num_heads": [block.mixer.num_heads for block in blocks],
        # The blocks of the model have smaller windows where a map has no room for these.
        "window_size": max(model.blocks[0].layer.window_size),
        "pretrained_window_size": [block.mixer.pretrained_window_size for block in blocks],
        "qkv_bias": block.mixer.use_bias != "output",
        "mask_padding": block.mask_padding,
        "mlp_ratio": network.mlp_dim // settings.hidden_dim,
        "activation": keras.activations.serialize(network.activation),
        "norm_epsilon": block.mixer_norm.epsilon,
        "dropout": block.dropout,
    }


def _read_window(value: Any) -> int:
    """The side of a window; all pairs of its positions are numbered, so that it has a limit."""
    if not isinstance(value, int) or not 0 < value <= 64:
        raise ValueError("an integer from 1 to 64")
    return value


SETTINGS = (
    Setting("image_size", "image_size", 224, read_side, write_side),
    size("patch_size", "patch_size", 4),
    size("num_channels", "channels", 3),
    size("embed_dim", "hidden_dim", 96),
    Setting("depths", "num_layers", DEPTHS, _read_depths),
    Setting("window_size", "window_size", 7, _read_window),
    Setting("mlp_ratio", "mlp_ratio", 4.0, _read_ratio, float),
    Setting("qkv_bias", "qkv_bias", True, bool),
    activation("hidden_act", "activation", "gelu"),
    number("hidden_dropout_prob", "dropout", 0.0),
    number("drop_path_rate", "drop_path", 0.1),
    number("layer_norm_eps", "norm_epsilon", 1e-5),
)


def _family(
    name: str,
    title: str,
    version: int,
    position_mappings: Callable[[str, str], Mappings],
    more: tuple[Combined, ...],
) -> Family:
    configuration = Configuration(
        name=name,
        settings=SETTINGS,
        combined=(_stage_setting("num_heads", "num_heads", [3, 6, 12, 24], 1), *more),
        # Their code attends to the tokens that fill the last windows.
        fixed={"version": version, "mask_padding": False},
        settled={"use_absolute_embeddings": (False,)},
        without_effect=frozenset("attention_probs_dropout_prob encoder_stride path_norm".split())
        | frozenset("hidden_size num_layers out_features out_indices stage_names".split()),
    )
    weights = Weights(
        mappings=_mappings(name, position_mappings),
        sizes={
            f"{name}.embeddings.patch_embeddings.projection.weight": (
                "embed_dim",
                "num_channels",
                "patch_size",
                "patch_size",
            )
        },
        layers=lambda config: {
            f"depths.{stage}": f"{name}.encoder.layers.{stage}.blocks."
            for stage in range(len(config.get("depths") or DEPTHS))
        },
        prefix=f"{name}.",
        modules=MODULES_OF_SWIN if name == "swin" else {},
        bare=(f"{title}Model",),
    )
    return Family(
        configuration=configuration,
        weights=weights,
        model=Swin,
        **image_classes(title),
        make=_make,
        read=_read,
        shape=image_shape,
    )


SWIN = _family("swin", "Swin", 1, _table, ())
WINDOWS = _stage_setting("pretrained_window_sizes", "pretrained_window_size", [0] * len(DEPTHS), 0)
SWINV2 = _family("swinv2", "Swinv2", 2, _network, (WINDOWS,))
