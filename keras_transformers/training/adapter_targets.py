"""Which layers and weights of a model adapters are for."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import keras

from keras_transformers.layers.adapted import adapter_of, name_by_path
from keras_transformers.layers.adapting import adaptable, kernel_of
from keras_transformers.layers.low_rank import LowRank

# What `targets` may say for the layers of every model: ends of paths, as regular expressions.
TARGETS = {
    "attention": r"(query|key|value|attention_output)",
    "feed_forward": r"feed_forward/[^/]+",
    "embeddings": r"[^/]*embeddings?(/projection)?",
}


def adapted_layers(model: keras.Model) -> dict[str, Any]:
    """Path inside the model -> layer, of those that have adapters.

    Of such a layer, `adapter.arrays(name)` are `A`, `B` and the magnitudes, and
    `adapter.assign_arrays(name, arrays)` sets them.
    """
    layers = [layer for layer in model._flatten_layers() if adapter_of(layer) is not None]
    return name_parts(model, layers)


def name_parts(model: keras.Model, parts: Iterable[Any]) -> dict[str, Any]:
    """Returns path inside the model -> layer or weight, see `name_by_path`.

    Two models inside a model can have layers of the same path.
    """
    return name_by_path(parts, lambda part: path_in(model, part))


def plain_path(path: str) -> str:
    """Returns a path of `name_parts` without the number behind it."""
    return re.sub(r"#\d+$", "", path)


def path_in(model: keras.Model, part: Any) -> str:
    """Path of a layer or weight inside a model."""
    path: str = part.path
    return path.removeprefix(f"{model.path}/")


def layers_of(model: keras.Model, targets: str | Sequence[str]) -> dict[str, Any]:
    """Path -> layer, of what is to be changed."""
    layers = name_parts(model, [layer for layer in model._flatten_layers() if adaptable(layer)])
    found: dict[str, Any] = {}
    for target in [targets] if isinstance(targets, str) else targets:
        pattern = re.compile(rf"(.*/)?(?:{TARGETS.get(target, target)})")
        fitting = {
            path: layer for path, layer in layers.items() if pattern.fullmatch(plain_path(path))
        }
        if not fitting:
            raise ValueError(
                f"add_lora: `targets` must be {', '.join(TARGETS)}, or match the ends of paths of "
                f"layers. Received: {target!r}, which matches none of {', '.join(layers)}"
            )
        found |= fitting
    if not found:
        raise ValueError("add_lora: `targets` must name at least one layer. Received: none")
    for path, layer in found.items():
        if getattr(layer, "lora_enabled", False):
            raise ValueError(f"add_lora: the layer {path} has Keras's own LoRA already.")
    return {path: layer for path, layer in layers.items() if path in found}


def weights_of(model: keras.Model) -> dict[str, keras.Variable]:
    """Path inside the model -> weight, of all that it could train but adapters."""
    layers = [layer for layer in model._flatten_layers() if not isinstance(layer, LowRank)]
    return name_parts(model, [weight for layer in layers for weight in layer._trainable_variables])


def weights_named(
    model: keras.Model, train: str | Sequence[str], changed: Sequence[Any]
) -> dict[str, keras.Variable]:
    """Path -> weight, of what is to be trained besides adapters."""
    weights, found = weights_of(model), dict[str, keras.Variable]()
    kernels = {id(kernel_of(layer)) for layer in changed}
    for name in [train] if isinstance(train, str) else train:
        pattern = re.compile(rf"(.*/)?(?:{name})(/.*)?")
        fitting = {
            path: weight for path, weight in weights.items() if pattern.fullmatch(plain_path(path))
        }
        twice = [path for path, each in fitting.items() if id(each) in kernels]
        if not fitting or twice:
            received = f"which has {twice[0]}" if twice else "which is part of no path"
            raise ValueError(
                "add_lora: `train` must match parts of paths of weights that no adapter changes. "
                f"Received: {name!r}, {received}"
            )
        found |= fitting
    return found
