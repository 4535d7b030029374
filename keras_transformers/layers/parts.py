"""Layers that are given to other layers as arguments: a score, a position term, a mixer.

Who is given one makes copies, so that one object can be given to every block of a stack and each
has weights of its own.
"""

import inspect
import types
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.annotations import Part
from keras_transformers.layers.errors import beside, refuse

# What every layer's configuration has and not every constructor takes.
OF_EVERY_LAYER = ("name", "trainable", "dtype", "activity_regularizer")


def part(
    owner: Any, argument: str, given: Any, kind: type, names: Mapping[str, type] | None = None
) -> Any:
    """A copy of a layer given as an argument, in its owner's precision and without weights.

    Args:
        owner: The layer whose argument it is.
        argument: What the owner calls it; also the copy's name.
        given: A layer, its serialised configuration, or one of `names`.
        kind: Class that it must be of.
        names: Dict of names to classes.

    Raises:
        ValueError: If it is nothing of that, or cannot be copied.
    """
    return Prototype(owner, argument, given, kind, names).copy(owner, argument)


class Prototype:
    """A layer given as an argument, of which copies are made later.

    Not a layer itself, so that its owner does not take it for one of its own.

    Args:
        owner, argument, given, kind, names: See `part`.
    """

    def __init__(
        self,
        owner: Any,
        argument: str,
        given: Any,
        kind: type,
        names: Mapping[str, type] | None = None,
    ) -> None:
        names = names or {}
        layer: Any = given
        if isinstance(given, str) and given in names:
            layer = names[given]()
        elif isinstance(given, dict):
            layer = keras.saving.deserialize_keras_object(given)
        if not isinstance(layer, kind):
            choice = f"one of {', '.join(map(repr, names))} or " if names else ""
            hint = ""
            if isinstance(given, type):
                hint = f"; an object, `{given.__name__}(...)`, where a class was given"
            elif callable(given) and not isinstance(given, keras.layers.Layer):
                hint = "; a function of one's own goes into `call` of such a layer"
            article = "an" if kind.__name__[0] in "AEIOU" else "a"
            refuse(owner, argument, f"{choice}{article} {kind.__name__}{hint}", repr(given))
        self.argument = argument
        self.layer: Any = layer

    def copy(self, owner: Any, name: str) -> Any:
        """A new layer of that name, in the precision of `owner`."""
        try:
            return _copied(self.layer, name, owner.dtype_policy)
        except (NotImplementedError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            layer = f"{type(self.layer).__name__} '{self.layer.name}'"
            expected = "a layer that can be made again from its `get_config()`"
            refuse(owner, self.argument, expected, f"{layer}, for which it fails: {reason}")

    def serialized(self) -> Any:
        """The configuration of the layer, as `part` takes it."""
        return serialized(self.layer)


def part_or_numbers(
    owner: Any, argument: str, given: Any, kind: type = keras.layers.Layer, **numbers: Any
) -> Prototype | None:
    """The `Prototype` of a part that takes the place of numbers; None where they make it.

    Args:
        owner, argument, given, kind: See `part`.
        **numbers: Arguments that must be None beside the part.

    Raises:
        ValueError: If both are given, or the part is none.
    """
    if given is None:
        return None
    prototype = Prototype(owner, argument, given, kind)
    for name, number in numbers.items():
        if number is not None:
            refuse(owner, name, beside(argument), f"{name}={number}")
    return prototype


def norm_prototype(owner: Any, norm: Part | None) -> Prototype:
    """The `Prototype` of a norm that was given, or of a layer norm with epsilon 1e-6."""
    if norm is None:
        norm = keras.layers.LayerNormalization(epsilon=1e-6, name="norm")
    return Prototype(owner, "norm", norm, keras.layers.Layer)


def _copied(layer: keras.layers.Layer, name: str, policy: Any) -> Any:
    if hasattr(layer, "make_again"):  # of ours: with the very objects it was made with
        again = layer.make_again
        taken = _fitting(again.func, {"name": name, "dtype": policy})
        copy = again(**taken)
    else:
        config = _unshared(layer.get_config())
        config.update(name=name, dtype=keras.dtype_policies.serialize(policy))
        taken = _reloadable(type(layer), config)
        with keras.saving.CustomObjectScope(_functions(layer)):
            copy = type(layer).from_config(taken)
    if copy.name != name:
        copy.name = name
    if "dtype" not in taken:
        copy.dtype_policy = policy
    copy.trainable = layer.trainable
    return copy


def with_arguments(layer: keras.layers.Layer, **changes: Any) -> Any:
    """A new layer, without weights, made as one of ours was but for these arguments."""
    again = layer.make_again
    given = dict(zip(inspect.signature(again.func).parameters, again.args, strict=False))
    return again.func(**{**given, **again.keywords, **changes})


def _functions(layer: keras.layers.Layer) -> dict[str, Any]:
    """A layer's functions by name, for Keras looks for them among the registered ones."""
    functions = (each for each in vars(layer).values() if isinstance(each, types.FunctionType))
    return {each.__name__: each for each in functions}


def arguments_of_call(layer: keras.layers.Layer) -> frozenset[str]:
    """The names of what a part can be called with, a frozenset."""
    return frozenset(inspect.signature(layer.call).parameters)


def _fitting(kind: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without what is every layer's and this constructor does not take."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return config
    known = {each.name for each in parameters}
    items = config.items()
    return {key: value for key, value in items if key in known or key not in OF_EVERY_LAYER}


def _reloadable(kind: Any, config: dict[str, Any]) -> dict[str, Any]:
    """`_fitting`, unless the class reads configurations in a way of its own."""
    own = getattr(kind.from_config, "__func__", None)
    plain = own is getattr(keras.layers.Layer.from_config, "__func__", None)
    return _fitting(kind, config) if plain else config


def serialized(layer: Any) -> Any:
    """The configuration of a layer given as an argument, as `part` takes it; None of None."""
    config = layer if isinstance(layer, dict) else keras.saving.serialize_keras_object(layer)
    if isinstance(layer, keras.layers.Layer):
        config = {**config, "config": _reloadable(type(layer), config["config"])}
        config.pop("build_config", None)  # who takes it makes a copy, and builds that
    return _unshared(config)


def serialized_parts(given: Any) -> Any:
    """`serialized`, of several parts in a list; a number or word that stands for a part stays."""
    if isinstance(given, list | tuple):
        return [serialized_parts(each) for each in given]
    return serialized(given) if isinstance(given, keras.layers.Layer | dict) else given


def _unshared(config: Any) -> Any:
    """A configuration without Keras's marks of objects that are shared.

    Layers own their parts. And while a file is loaded, Keras marks objects as shared that had the
    same address one after the other, as copies of parts do that live for a moment.
    """
    if isinstance(config, dict):
        items = config.items()
        return {key: _unshared(value) for key, value in items if key != "shared_object_id"}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_unshared, config))
    return config
