"""How a model takes over the weights of another that was made for another task."""

from collections.abc import Sequence
from typing import Any, Self

import keras
from keras import ops

from keras_transformers.annotations import ModelMixin, Shape
from keras_transformers.layers.adapted import is_altered
from keras_transformers.layers.adapting import float_kernel_of
from keras_transformers.layers.composite import without_policies


class Transferable(ModelMixin):
    """A model from whose weights one for another task can start; before `keras.Model`.

    Attributes:
        anew: Starts of the paths of weights that another task may start anew; see `take_over`.
    """

    anew: tuple[str, ...] = ("head",)

    def transferred(self, **changes: Any) -> Self:
        """A new model for another task that starts from this one's weights.

        Args:
            **changes: Constructor arguments that differ, most often `num_classes`, of images also
                `image_size`, of texts `head`; and `dropout` and `drop_path` of the blocks. A head
                of the same kind and size is taken over, another starts anew, as does a pooling that
                was not there; tables of positions are resized. Of a quantised model, a head and a
                pooling get floating-point numbers, so that they can be trained.

        Returns:
            A built model of the same class, with nothing frozen.

        Raises:
            ValueError: If a weight other than those gets another shape, or this model is not built,
                or has adapters that are not merged.

        Example:
        >>> import numpy as np
        >>> from keras_transformers.models import ViT
        >>> model = ViT(10, image_size=28, patch_size=7, hidden_dim=16, num_heads=2, mlp_dim=32,
        ...             num_layers=2)
        >>> model.build((None, 28, 28, 1))
        >>> larger = model.transferred(num_classes=3, image_size=42)
        >>> tuple(larger(np.zeros((2, 42, 42, 1), "float32")).shape)
        (2, 3)
        """
        config = {**self.get_config(), **changes}
        config.pop("frozen_blocks", None)
        _check_without_adapters(self)
        heads = [layer.path for layer in _in_few_bits(self, self.anew).values()]
        model = type(self).from_config(without_policies(config, heads))
        model.build(self._shape_to_build(model))
        take_over(model, self, self.anew)
        return model

    def _shape_to_build(self, model: keras.Model) -> Shape:
        """A hook: the shape of inputs that a new model for another task is built with."""
        return (None, None)


def take_over(model: Any, source: Any, anew: Sequence[str] = ()) -> None:
    """Gives a built model the weights that another has under the same paths.

    A table of positions that was made for another grid is resized, by the `assign_resized` of the
    layer that has it.

    Args:
        model: The one that gets them.
        source: The one that has them.
        anew: Starts of the paths of weights that may differ in shape, or be missing, and then stay
            as they are.

    Raises:
        ValueError: If `source` is not built, or another weight is missing or of another shape.
    """
    if not source.built:
        raise ValueError(
            f"{type(source).__name__} '{source.name}': `transferred` must be called on a built "
            "model, which has weights: call the model, or `build`, before. Received: one without"
        )
    tables = _tables(source)
    resized = set()
    for path, table in _tables(model).items():
        if path in tables and tables[path].grid != table.grid:
            table.assign_resized(ops.convert_to_numpy(tables[path].weights[0]), tables[path].grid)
            resized.add(f"{path}/{table.weights[0].name}")
    mine: dict[str, Any] = {_path_in(source, weight): weight for weight in source.weights}
    for path, layer in _in_few_bits(source, anew).items():
        mine[f"{path}/kernel"] = float_kernel_of(layer)
    for weight in model.weights:
        path = _path_in(model, weight)
        found = mine.get(path)
        if path in resized:
            continue
        if found is not None and found.shape == weight.shape:
            weight.assign(found)
        elif not path.startswith(tuple(anew)):
            raise ValueError(
                f"{type(source).__name__} '{source.name}': `transferred` cannot take over {path} "
                f"of shape {None if found is None else tuple(found.shape)} as "
                f"{tuple(weight.shape)}"
            )


def _check_without_adapters(model: Any) -> None:
    if any(is_altered(layer) for layer in model._flatten_layers()):
        raise ValueError(
            f"{type(model).__name__} '{model.name}': `transferred` must be called on a model "
            "without adapters, which would be lost; `training.merge` and `training.remove_lora` "
            "add them to its kernels. Received: one with adapters"
        )


def _in_few_bits(model: Any, anew: Sequence[str]) -> dict[str, Any]:
    """Path -> layer, of the quantised ones among those that may start anew."""
    layers = model._flatten_layers(include_self=False)
    found = {_path_in(model, layer): layer for layer in layers if layer.quantization_mode}
    return {path: layer for path, layer in found.items() if path.startswith(tuple(anew))}


def _tables(model: Any) -> dict[str, Any]:
    """Path -> layer, of the layers with a table for a grid of positions."""
    layers = model._flatten_layers(include_self=False)
    return {
        _path_in(model, layer): layer
        for layer in layers
        if layer.weights and hasattr(layer, "assign_resized")
    }


def _path_in(model: Any, part: Any) -> str:
    """Path of a weight or a layer inside a model, which may itself be inside another."""
    return part.path.removeprefix(f"{model.path}/")
