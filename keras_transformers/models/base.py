"""The base of the models: configurations, checks, transfer to another task, and quantisation."""

import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_transformers.layers.adapters import adapter_of, float_kernel_of, is_altered
from keras_transformers.layers.base import (
    CALIBRATED,
    KERAS_ARGUMENTS,
    BaseLayer,
    set_trainable,
    without_policies,
)
from keras_transformers.layers.checks import beside, refuse_unknown
from keras_transformers.layers.low_rank import quantized_by

# What the logits of classes are for, as `transformers` calls it.
SINGLE, SEVERAL = "single_label_classification", "multi_label_classification"
PROBLEMS = (None, SINGLE, SEVERAL, "regression")
MULTIPLE = 8  # of which a gated network's width is one


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Base class of the configurations of models.

    A subclass is a frozen dataclass. It has a field for each argument that the constructor of its
    model names: a number, a word, or a part in its serialised form (see `serialized`). Numbers of
    NumPy become those of Python, so that they can be written as JSON.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.generic | list | tuple):
                object.__setattr__(self, name, _plain(value))

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields by name, as the model's `get_config` has them."""
        return dict(vars(self))


def _plain(value: Any) -> Any:
    """Returns a number of NumPy as Python's, also in a list or tuple; anything else as it is."""
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    return value.item() if isinstance(value, np.generic) else value


def with_defaults(configuration: Any, names: Sequence[str], defaults: Mapping[str, Any]) -> Any:
    """Returns a configuration in which fields that are None have their defaults."""
    values = vars(configuration)
    missing = [name for name in names if values[name] is None and name in defaults]
    return dataclasses.replace(configuration, **{name: defaults[name] for name in missing})


def number_or_default(number: Any, default: Any, part: Any) -> Any:
    """Returns a number; its default if it is None and no part takes its place."""
    return default if number is None and part is None else number


def drop_numbers(
    settings: dict[str, Any], names: Iterable[str], changes: Mapping[str, Any]
) -> None:
    """Removes from the settings of a variant the numbers that a given part takes the place of.

    A number that the user gave beside the part stays, so that the constructor refuses it.
    """
    for name in names:
        if name not in changes:
            settings.pop(name, None)


def select_keywords(settings: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Returns the keywords of a part that are among the settings."""
    return {name: settings[name] for name in names if name in settings}


def pop_keywords(settings: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Removes the keywords of a part from settings, and returns them."""
    return {name: settings.pop(name) for name in names if name in settings}


class BaseModel(BaseLayer, keras.Model):
    """The base class of the models: a model that knows the arguments it was made with.

    Attributes:
        configuration: The arguments that the model was made with.
        variant_keywords: The keyword arguments of `from_variant`.
        defaults: Numbers where neither they nor the part that they make are given.
    """

    configuration: Any = None
    variant_keywords: ClassVar[Collection[str]] = ()
    defaults: ClassVar[Mapping[str, int]] = types.MappingProxyType({})

    def __init__(self, **kwargs: Any) -> None:
        for name in kwargs.keys() - KERAS_ARGUMENTS:
            if name in self.variant_keywords:
                owner, value = type(self).__name__, kwargs[name]
                raise ValueError(
                    f"{owner}: `{name}` is a keyword of {owner}.from_variant, which makes the "
                    f"parts; the constructor takes the parts. Received: {name}={value!r}"
                )
        super().__init__(**kwargs)
        self._is_frozen_from_the_start = kwargs.get("trainable") is False

    def _post_build(self) -> None:
        """Called by Keras when everything in the model is built."""
        super()._post_build()
        if self._is_frozen_from_the_start and not self.trainable:
            set_trainable(self, False)  # also its layers, which were created later

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self.configuration.as_dict()}


def check_sizes(
    owner: str, settings: Mapping[str, Any], names: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raises ValueError unless the settings of these names are positive integers.

    Args:
        owner: Name of the class, for the message.
        settings: Dict of all settings.
        names: Those that must be there.
        optional: Those that may be None.
    """
    for name in (*names, *(name for name in optional if settings[name] is not None)):
        whole = isinstance(settings[name], int) and settings[name] is not True
        if not (whole and settings[name] > 0):
            raise ValueError(
                f"{owner}: `{name}` must be a positive integer. Received: {settings[name]!r}"
            )


def check_divides(owner: str, settings: Mapping[str, Any], name: str, of: str) -> None:
    """Raises ValueError unless one setting divides another."""
    if settings[of] % settings[name]:
        raise ValueError(
            f"{owner}: `{name}` must divide `{of}`={settings[of]}. "
            f"Received: {name}={settings[name]}"
        )


def check_numbers(owner: str, numbers: Mapping[str, Any]) -> None:
    """Raises ValueError unless all are positive, and heads fit the width where both are there."""
    check_sizes(owner, numbers, tuple(numbers))
    if numbers.keys() >= {"num_heads", "hidden_dim"}:
        check_divides(owner, numbers, "num_heads", "hidden_dim")


def check_choice(owner: str, settings: Mapping[str, Any], name: str, known: Iterable[Any]) -> None:
    """Raises ValueError unless a setting is one of those known."""
    if settings[name] not in known:
        raise ValueError(
            f"{owner}: `{name}` must be one of {', '.join(map(str, known))}. "
            f"Received: {settings[name]!r}"
        )


def refuse_beside(owner: str, argument: str, **numbers: Any) -> None:
    """Raises ValueError if there are numbers beside the object that has its own."""
    for name, number in numbers.items():
        if number is not None:
            raise ValueError(
                f"{owner}: `{name}` must be {beside(argument)}. Received: {name}={number!r}"
            )


def check_changes(
    owner: str,
    changes: Mapping[str, Any],
    known: type,
    beside: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Raises ValueError unless `from_variant` knows all keywords, and none has a part beside it.

    Args:
        owner: Name of the class, for the message.
        changes: The keywords.
        known: The `TypedDict` of those that it takes.
        beside: Part -> keywords that make it, and are left out where an object is given.
    """
    names = typing.get_type_hints(known)
    for name, value in changes.items():
        if name not in names:
            refuse_unknown(f"{owner}.from_variant", name, value)
    for part, words in (beside or {}).items():
        if not isinstance(changes.get(part), str | None):  # a word says which part to make
            given = {word: changes[word] for word in words if word in changes}
            refuse_beside(f"{owner}.from_variant", part, **given)


def check_problem(owner: str, settings: Mapping[str, Any]) -> None:
    """Raises ValueError unless `problem_type` is known, and has classes enough."""
    check_choice(owner, settings, "problem_type", PROBLEMS)
    if settings["problem_type"] == SINGLE and settings["num_classes"] == 1:
        raise ValueError(
            f"{owner}: `num_classes` must be over 1 for problem_type={SINGLE!r}, which gives one "
            f"class the probability 1; use {SEVERAL!r}. Received: num_classes=1"
        )


def variant(
    owner: str, name: str, variants: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings of a published size, with changes.

    Where `style` is "modern", the gated feed-forward networks, which have three matrices, are two
    thirds as wide: as many parameters as in the paper, almost (Shazeer 2020,
    https://arxiv.org/abs/2002.05202, section 3).

    Raises:
        ValueError: If there is no such variant.
    """
    if name not in variants:
        raise ValueError(
            f"{owner}.from_variant: `name` must be one of {', '.join(variants)}. Received: {name!r}"
        )
    settings = dict(variants[name])
    if changes.get("style") == "modern":
        settings["mlp_dim"] = round(settings["mlp_dim"] * 2 / 3 / MULTIPLE) * MULTIPLE
    return {**settings, **changes}


def transfer(model: Any, changes: Mapping[str, Any]) -> Any:
    """Returns a new model for another task that starts from the weights of a built model.

    Args:
        model: A model with the attribute `anew` and the method `_shape_to_build`.
        changes: Arguments of its constructor that differ.

    Raises:
        ValueError: As `transferred`.
    """
    config = {**model.get_config(), **changes}
    config.pop("frozen_blocks", None)
    _check_without_adapters(model)
    heads = [layer.path for layer in _in_few_bits(model, model.anew).values()]
    new = type(model).from_config(without_policies(config, heads))
    new.build(model._shape_to_build(new))
    take_over(new, model, model.anew)
    return new


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


def quantize(
    model: Any,
    keras_quantize: Callable[..., Any],
    mode: str | None,
    config: Any = None,
    filters: Any = None,
    **kwargs: Any,
) -> None:
    """Quantises a model whose blocks follow one another, so that Keras calibrates block by block.

    `keras.quantizers.GPTQConfig` (Frantar et al. 2022, https://arxiv.org/abs/2210.17323) and
    `AWQConfig` (Lin et al. 2023, https://arxiv.org/abs/2306.00978) have the texts. The dense layers
    of the blocks are quantised; tables, norms and heads stay as they are.

    Args:
        model: A `TextModel`, with `calibrated_blocks`.
        keras_quantize: The method `quantize` of its Keras class.
        mode: "int8", "int4", "gptq", "awq" or "float8"; by default that of `config`.
        config: Of `keras.quantizers`; GPTQ and AWQ need one, with a `dataset` of texts or ids and a
            `tokenizer`.
        filters: Which layers, as Keras takes it: a regular expression of their names, several, or
            a function of a layer.

    Raises:
        ValueError: If weights of a group have one sign, which zero points of GPTQ and AWQ cannot
            hold; the message names the layer. If there are adapters, for GPTQ and AWQ; or one is
            merged.
    """
    if mode not in CALIBRATED:
        if filters is not None:
            wanted_kernel = _wanted(filters)
            filters = lambda layer: wanted_kernel(quantized_by(layer))  # noqa: E731
        keras_quantize(mode, config=config, filters=filters, **kwargs)
        return
    if config.quantization_layer_structure is None:
        blocks = model.calibrated_blocks
    else:
        blocks = config.quantization_layer_structure["sequential_blocks"]
    kinds = (keras.layers.Dense, keras.layers.EinsumDense)
    inside = [each for block in blocks for each in block._flatten_layers()]
    if adapted := [layer for layer in inside if adapter_of(layer) is not None]:
        raise ValueError(
            f"quantize: '{model.name}' must have no adapters for {mode}; quantise it before "
            "`training.add_lora`, or after `training.remove_lora`. Received: "
            f"{adapted[0].path} and {len(adapted) - 1} more with adapters"
        )
    wanted = _wanted(filters)
    chosen = {id(each): each for each in inside if type(each) in kinds and wanted(each)}
    for layer in chosen.values():
        _check_signs(layer, config)
    kwargs["filters"] = lambda layer: id(layer) in chosen
    with _seen(list(chosen.values()), f"_{mode}_call", f"is_{mode}_calibrated"):
        keras_quantize(mode, config=config, **kwargs)


def _wanted(filters: Any) -> Callable[[Any], bool]:
    """Keras's `filters` as a function of a layer."""
    if filters is None or callable(filters):
        return filters or (lambda layer: True)
    patterns = [filters] if isinstance(filters, str) else filters
    return lambda layer: any(re.search(pattern, layer.name) for pattern in patterns)


def _check_signs(layer: Any, config: Any) -> None:
    """ValueError where all weights of a group are positive, which Keras's zero points cannot be."""
    rows = layer.kernel.shape[0]
    if isinstance(layer, keras.layers.EinsumDense):
        _, kernel, output = re.split(",|->", layer.equation)
        sizes = zip(kernel, layer.kernel.shape, strict=True)
        rows = math.prod(size for letter, size in sizes if letter not in output)
    weights = np.reshape(ops.convert_to_numpy(layer.kernel), (rows, -1))
    size = rows if config.group_size == -1 else config.group_size
    least = np.minimum.reduceat(weights, np.arange(0, rows, size), axis=0)
    if np.any(least > 0):
        raise ValueError(
            f"{type(layer).__name__} '{layer.path}': each group of weights must have negative ones "
            f"too, or Keras's zero point is out of range; give a larger `group_size`. "
            f"Received: group_size={config.group_size} of {rows} rows"
        )


@contextlib.contextmanager
def _seen(layers: list[Any], name: str, calibrated: str) -> Iterator[None]:
    """A scope in which Keras sees what the layers are given.

    Keras 3.15 looks on at `call`, and a layer that is made ready for GPTQ or AWQ has another one
    called (https://github.com/keras-team/keras/pull/23512): without this, weights are rounded as
    if all inputs were alike.
    """

    def through_call(layer: Any, original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            done = getattr(layer, calibrated, False)
            return original(*args, **kwargs) if done else layer.call(*args, **kwargs)

        return call

    for layer in layers:
        vars(layer)[name] = through_call(layer, getattr(layer, name))
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop(name)
