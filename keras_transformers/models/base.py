"""The base of the models: their settings, checks of them, and transfer to another task."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias, TypeVar, cast

import keras
from keras import ops

from keras_transformers.annotations import Activation, LayerOptions, ModelMixin, Part, Shape
from keras_transformers.layers.adapters import float_kernel_of, is_altered
from keras_transformers.layers.base import OURS, Arguments, parameters_of, without_policies
from keras_transformers.layers.checks import beside
from keras_transformers.layers.parts import Prototype, part_or_numbers

# What the logits of classes are for, as `transformers` calls it.
SINGLE, SEVERAL = "single_label_classification", "multi_label_classification"
PROBLEMS = (None, SINGLE, SEVERAL, "regression")
Made = TypeVar("Made", bound=Callable[..., None])
MULTIPLE = 8  # of which a gated network's width is one


class ModelSettings(Arguments):
    """A model that knows what it was made with, and gives it as its configuration.

    Comes before `keras.Model` among the bases. A constructor under `keeps_settings` finds its
    arguments, by name, in the mapping `_settings`, which is read-only.

    Attributes:
        defaults: Numbers where neither they nor the part that they make are given.
    """

    defaults: ClassVar[Mapping[str, int]] = types.MappingProxyType({})

    _settings: Mapping[str, Any] = types.MappingProxyType({})

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        for name in _of_variants(cast(Any, cls)) & kwargs.keys():
            owner, value = cls.__name__, kwargs[name]
            raise ValueError(
                f"{owner}: `{name}` is a keyword of {owner}.from_variant, which makes the parts; "
                f"the constructor takes the parts. Received: {name}={value!r}"
            )
        return super().__new__(cls, *args, **kwargs)

    def _settle(self, **values: Any) -> None:
        """Sets settings that follow from others, where they were not given."""
        # No dict: Keras would track it as one of layers.
        self._settings = types.MappingProxyType({**self._settings, **values})

    def _of(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self._settings[name] for name in names}

    def _settled(self, names: Sequence[str]) -> dict[str, Any]:
        """The numbers of these names, checked, the default where there is none."""
        missing = [name for name in names if self._settings[name] is None and name in self.defaults]
        self._settle(**{name: self.defaults[name] for name in missing})
        check_sizes(type(self).__name__, self._settings, names)
        return self._of(names)

    def _prototype(
        self,
        argument: str,
        given: Part | None,
        kind: type[keras.layers.Layer],
        numbers: Sequence[str],
        make: Callable[..., keras.layers.Layer],
    ) -> Prototype:
        """A part that was given in the place of these numbers, or the one that they make.

        Raises:
            ValueError: If both are given, or what is given is no such part.
        """
        prototype = part_or_numbers(self, argument, given, kind, **self._of(numbers))
        if prototype is None:
            prototype = Prototype(self, argument, make(**self._settled(numbers)), kind)
        return prototype

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._settings}


def keeps_settings(**written: Callable[[Any], Any] | None) -> Callable[[Made], Made]:
    """Decorates a constructor of `ModelSettings`, whose arguments become settings.

    All that its signature names do, with defaults; what goes into `**kwargs` does not.

    Args:
        **written: For each argument that a configuration has in another form than it may be given
            in, the function from one to the other; or None for what is no setting, a model for
            instance, of which `get_config` knows more than the constructor.
    """

    def decorated(make: Made) -> Made:
        signature = inspect.signature(make)

        @functools.wraps(make)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                given = signature.bind(self, *args, **kwargs)
            except TypeError:
                given = None
            if given is not None:  # else Python says best what is missing or too much
                given.apply_defaults()
                self._settle(**_settings(given, written))
            make(self, *args, **kwargs)

        return cast(Made, __init__)

    return decorated


@functools.cache
def _of_variants(cls: Any) -> frozenset[str]:
    """What `from_variant` of a class takes by name and no constructor of it does."""
    if not hasattr(cls, "from_variant"):
        return frozenset()
    *_, last = inspect.signature(cls.from_variant).parameters.values()
    known = getattr(last.annotation, "__args__", ())  # of `Unpack[...]`, a `TypedDict`
    words: frozenset[str] = frozenset().union(*(typing.get_type_hints(each) for each in known))
    return words - parameters_of(cls) - typing.get_type_hints(LayerOptions).keys()


def _settings(given: inspect.BoundArguments, written: Mapping[str, Any]) -> dict[str, Any]:
    """What a configuration says of the arguments that a constructor was given."""
    _, *parameters = given.signature.parameters.values()  # the first is `self`
    found = {}
    for each in parameters:
        value = given.arguments[each.name]
        if each.kind is each.VAR_KEYWORD or written.get(each.name, ...) is None:
            continue
        found[each.name] = written[each.name](value) if each.name in written else value
    return found


def serialized_activation(activation: Activation | None) -> Any:
    """An activation, a function or its name, as a configuration has it."""
    return keras.activations.serialize(keras.activations.get(activation))


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
            ours = OURS.get(name)
            rule = f"is called `{ours}` here" if ours in names else "is no argument"
            raise ValueError(f"{owner}.from_variant: `{name}` {rule}. Received: {name}={value!r}")
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


# Part -> function that makes it, names of the numbers that stand for the default one, and of
# further keywords, by one of which it is another.
Makers: TypeAlias = Mapping[str, tuple[Callable[..., Any], Sequence[str], Sequence[str]]]


def with_parts(
    settings: Mapping[str, Any], changes: Mapping[str, Any], makers: Makers
) -> dict[str, Any]:
    """A constructor's arguments for flat settings: numbers, and parts where these ask for them.

    Args:
        settings: Those of a variant, with changes.
        changes: What the user gave, who is told of a number beside a part by the constructor.
        makers: How the parts are made, in order.
    """
    left = dict(settings)
    for part, (make, numbers, words) in makers.items():
        given = changes.get(part) is not None
        of_words = {name: settings[name] for name in words if name in settings}
        if not given and not of_words:
            continue
        of_numbers = {name: settings[name] for name in numbers if name in settings}
        for name in of_numbers:
            if not (given and name in changes):
                del left[name]
        if not given:
            left[part] = make(**of_numbers, **of_words)
    words = {word for _, _, words in makers.values() for word in words}
    return {name: value for name, value in left.items() if name not in words}


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
