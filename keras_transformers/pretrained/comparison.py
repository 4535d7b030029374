"""The comparison of a model with the one that a published configuration stands for.

A family reads its settings from the parts of a model as plain attributes. Models have more settings
than a published configuration can express. So the family makes a second model of what it has read,
which stays without weights, and `check_same` compares the two, setting by setting.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from keras_transformers.layers.adapters import Adapted
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.blocks.transformer import Block
from keras_transformers.layers.parts import OWN_DTYPE
from keras_transformers.models.base import BaseModel

# Settings that change nothing that a model computes: names, precision, how it was started and
# trained; and layers that `build` makes of other settings.
IGNORED = {"name", "dtype", OWN_DTYPE, "trainable", "frozen_blocks", "seed", "dropout", "drop_path"}
IGNORED |= {"dropout_layer", "criterion", "prediction"}
IGNORED_ENDS = ("_initializer", "_regularizer", "_constraint")
# Numbers of a block that make a part where none was given. The part is compared instead of them.
NUMBERS_OF_PARTS = {
    "mixer": ("num_heads", "window_size"),
    "cross_attention": ("num_heads",),
    "feed_forward": ("mlp_dim", "activation"),
}
# Arguments of models that make layers. The layers are compared instead of them.
ARGUMENTS_OF_LAYERS = {"block", "blocks", "encoder_block", "decoder_block", "embedding", "head"}
ARGUMENTS_OF_LAYERS |= {"positions", "pooling", "queries", "num_layers", "num_heads", "mlp_dim"}
ARGUMENTS_OF_LAYERS |= {"decoder_heads", "decoder_mlp_dim", "vocab_size", "max_length"}
ARGUMENTS_OF_LAYERS |= {"hidden_dim", "patch_size", "window_size", "version"}


class ClassName(str):
    """The name of a class, which messages show without quotes."""

    __repr__ = str.__str__


def check_same(model: Any, expected: Any, family: str) -> None:
    """Raises ValueError unless a model computes what the published code would.

    Args:
        model: Built.
        expected: The model that the published configuration stands for. It is not built.
        family: `model_type` of the published models, for the message.
    """
    ours = dict(settings_of(model))
    theirs = dict(settings_of(expected))
    for path in {**theirs, **ours}:
        if ours.get(path) != theirs.get(path):
            raise ValueError(
                f"save: models of type {family} must have {path}={theirs.get(path)!r}. "
                f"Received: {ours.get(path)!r}"
            )


def settings_of(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings of a part and of the parts inside it, and their classes, by path.

    Args:
        part: A layer, its serialised form, a dataclass, a list of such, or a plain value.
        path: Path of the part, empty for the model itself, whose class is not compared.
    """
    if isinstance(part, list | tuple):
        yield from _settings_of_list(part, path)
        return
    settings = _settings_inside(part)
    if settings is None:
        yield path, part
        return
    if path:
        yield path, ClassName(_class_name(part))
    for name, value in settings.items():
        if name not in IGNORED and not name.endswith(IGNORED_ENDS):
            yield from settings_of(value, f"{path}.{name}" if path else name)


def _settings_of_list(values: list[Any] | tuple[Any, ...], path: str) -> Iterator[tuple[str, Any]]:
    if not any(isinstance(value, keras.layers.Layer | dict) for value in values):
        # Keras replaces the axis of a norm by a list of axes when it builds the norm.
        yield path, values[0] if len(values) == 1 else list(values)
        return
    for i, value in enumerate(values):
        yield from settings_of(value, f"{path}[{i}]")


def _settings_inside(part: Any) -> Mapping[str, Any] | None:
    """Returns the settings of a part by name; None of a plain value."""
    if isinstance(part, BaseModel):
        return _settings_of_model(part)
    if isinstance(part, Block):
        return _settings_of_block(part)
    if isinstance(part, keras.layers.Layer):
        return part.get_config()
    if isinstance(part, dict) and "class_name" in part:
        config = part["config"]
        return config if isinstance(config, dict) else {"name of function": config}
    if dataclasses.is_dataclass(part):
        return vars(part)
    return None


def _settings_of_model(model: BaseModel) -> dict[str, Any]:
    """Returns the layers of a model, and its arguments that make no layers."""
    settings: dict[str, Any] = {
        name: value
        for name, value in vars(model).items()
        if not name.startswith("_") and name != "configuration" and _has_parts(value)
    }
    for name, value in vars(model.configuration).items():
        if name not in (*ARGUMENTS_OF_LAYERS, *IGNORED):
            settings[f"configuration.{name}"] = value
    return settings


def _has_parts(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, keras.layers.Layer) for item in value)
    return isinstance(value, keras.layers.Layer) or dataclasses.is_dataclass(value)


def _settings_of_block(block: Block) -> dict[str, Any]:
    """Returns the configuration of a block, with the parts that numbers have made."""
    settings = block.get_config()
    made = {"mixer": block.mixer, "feed_forward": block.feed_forward}
    if "cross_attention" in settings:
        made["cross_attention"] = block.cross_attention
    for name, layer in made.items():
        if name in settings:
            settings[name] = settings[name] or layer
            for number in NUMBERS_OF_PARTS[name]:
                settings.pop(number, None)
    return settings


def _class_name(part: Any) -> str:
    """Returns the name of the class of a part; adapters in a layer do not change it."""
    if isinstance(part, dict):
        return str(part["class_name"])
    if isinstance(part, Adapted) and not isinstance(part, BaseLayer):
        kinds = (kind for kind in type(part).__mro__ if issubclass(kind, keras.layers.Layer))
        return next(kind.__name__ for kind in kinds if not issubclass(kind, Adapted))
    return type(part).__name__
