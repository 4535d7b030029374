"""Layers that are given to other layers as arguments: a score, a position term, a mixer.

Who is given one makes copies, so that one object can be given to every block of a stack and each
has weights of its own.
"""

import functools
import inspect
import itertools
import numbers
import types
from collections.abc import Mapping
from typing import Any, NoReturn

import keras

from keras_transformers.annotations import Part
from keras_transformers.layers.base import copy_trainable
from keras_transformers.layers.checks import beside, refuse

# What every layer's configuration has and not every constructor takes.
OF_EVERY_LAYER = ("name", "trainable", "dtype", "activity_regularizer")
# Keys: of a serialised part that has a dtype of its own, and of a layer that has its owner's.
OWN_DTYPE, DTYPE_OF_OWNER = "own_dtype", "_dtype_of_owner"
STRIDE_OF_SEEDS = 1_000_003  # between the seeds of two blocks; a prime


def part(
    owner: Any, argument: str, given: Any, kind: type, names: Mapping[str, type] | None = None
) -> Any:
    """A copy of a layer given as an argument, in its owner's precision unless it has its own.

    Args:
        owner: The layer whose argument it is.
        argument: What the owner calls it; also the copy's name.
        given: A layer, its serialised configuration, or one of `names`.
        kind: Class that it must be of.
        names: Dict of names to classes.

    Raises:
        ValueError: If it is nothing of that, cannot be copied, or is built with weights.
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
            layer = _from_serialized(given)
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
        if layer is given and hasattr(layer, "make_again") and layer.built and layer.weights:
            self._refuse_weights(owner)

    def copy(self, owner: Any, name: str, index: int = 0) -> Any:
        """Returns a new layer of that name, in the precision of `owner` unless it has its own.

        Args:
            owner: The layer that gets the copy.
            name: Name of the copy.
            index: Number of the copy in a stack, which its seeds depend on.
        """
        try:
            copy = _copied(self.layer, name, owner.dtype_policy, index)
        except (NotImplementedError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            layer = f"{type(self.layer).__name__} '{self.layer.name}'"
            expected = "a layer that can be made again from its `get_config()`"
            refuse(owner, self.argument, expected, f"{layer}, for which it fails: {reason}")
        if self.layer.weights:  # a functional model has weights from the beginning
            if len(copy.weights) != len(self.layer.weights):
                self._refuse_weights(owner)
            copy.set_weights(self.layer.get_weights())
        return copy

    def _refuse_weights(self, owner: Any) -> NoReturn:
        """Raises ValueError: a copy of this part would silently begin with other weights."""
        kind = type(self.layer).__name__
        expected = (
            "a layer that is not built, for its copy begins with new weights. Give "
            f"`{kind}.from_config(layer.get_config())`; to begin with the weights of `layer`, "
            f"build the {type(owner).__name__}, and hand them to its copy by `set_weights`"
        )
        received = f"{kind} '{self.layer.name}' with {len(self.layer.weights)} weights"
        refuse(owner, self.argument, expected, received)

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


def _copied(layer: keras.layers.Layer, name: str, owner_policy: Any, index: int = 0) -> Any:
    own = own_policy(layer)
    policy = owner_policy if own is None else _policy_inside(owner_policy, own)
    if hasattr(layer, "make_again"):  # of ours: with the very objects it was made with
        again = _seeded_apart(layer.make_again, index)
        taken = _fitting(again.func, {"name": name, "dtype": policy})
        copy = again(**taken)
    else:
        config = _fold_seeds("", _unshared(layer.get_config()), index)
        config.update(name=name, dtype=keras.dtype_policies.serialize(policy))
        taken = _reloadable(type(layer), config)
        with keras.saving.CustomObjectScope(_functions(layer)):
            copy = type(layer).from_config(taken)
    if copy.name != name:
        copy.name = name
    if "dtype" not in taken:
        copy.dtype_policy = policy
    follow_owner(copy, own)
    copy_trainable(layer, copy)
    return copy


def own_policy(layer: keras.layers.Layer) -> Any:
    """Returns the dtype policy that a layer was made with; None if it takes that of its owner."""
    if vars(layer).get(DTYPE_OF_OWNER):
        return None
    if hasattr(layer, "make_again"):
        is_own = layer.make_again.keywords.get("dtype") is not None
    else:
        # Keras's record of a constructor's arguments, None unless all are numbers and strings.
        # There is no public one. `test_a_part_keeps_its_own_dtype` fails when it changes.
        arguments = getattr(layer, "_auto_config", None)
        if arguments is None:
            is_own = layer.dtype_policy.name != keras.config.dtype_policy().name
        else:
            is_own = arguments.config.get("dtype") is not None
    return layer.dtype_policy if is_own else None


def follow_owner(layer: keras.layers.Layer, own: Any) -> None:
    """Notes that a layer has the dtype of its owner, unless it has a policy of its own."""
    if own is None:
        attributes: Any = vars(layer)  # not as an attribute, which Keras would track
        attributes[DTYPE_OF_OWNER] = True


def _policy_inside(owner_policy: Any, own: Any) -> Any:
    """Returns the policy of a part with its own, which the map of its owner may quantise."""
    kind = keras.dtype_policies.DTypePolicyMap
    if not isinstance(owner_policy, kind) or isinstance(own, kind):
        return own
    return type(owner_policy)(own, dict(owner_policy))


def _from_serialized(config: dict[str, Any]) -> Any:
    """Returns the layer of a configuration, not built, which the part that is copied from it is."""
    config = {key: value for key, value in config.items() if key != "build_config"}
    layer = keras.saving.deserialize_keras_object(config)
    if isinstance(layer, keras.layers.Layer) and not config.get(OWN_DTYPE):
        follow_owner(layer, None)
    return layer


def _seeded_apart(again: functools.partial[Any], index: int) -> functools.partial[Any]:
    """Returns a constructor call whose seeds are those of copy number `index` in a stack."""
    names = itertools.chain(inspect.signature(again.func).parameters, itertools.repeat(""))
    positional = [
        _fold_seeds(name, value, index) for value, name in zip(again.args, names, strict=False)
    ]
    keywords = {name: _fold_seeds(name, value, index) for name, value in again.keywords.items()}
    return functools.partial(again.func, *positional, **keywords)


def _fold_seeds(name: str, value: Any, index: int) -> Any:
    """Folds the number of a copy into the seeds of an argument, of initializers and parts too."""
    if not index or not _is_seeded(name, value):
        return value
    if isinstance(value, numbers.Integral):
        return (int(value) + index * STRIDE_OF_SEEDS) % 2**31
    if isinstance(value, dict):
        return {key: _fold_seeds(key, item, index) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_fold_seeds(name, item, index) for item in value)
    if isinstance(value, keras.layers.Layer):
        return _copied(value, value.name, value.dtype_policy, index)
    return type(value).from_config(_fold_seeds("", value.get_config(), index))


def _is_seeded(name: str, value: Any) -> bool:
    """True if there is a seed that is a number in an argument, an initializer or a part."""
    if isinstance(value, numbers.Integral):
        return name == "seed" and not isinstance(value, bool)
    if isinstance(value, dict):
        return any(_is_seeded(key, item) for key, item in value.items())
    if type(value) in (list, tuple):
        return any(_is_seeded(name, item) for item in value)
    if isinstance(value, keras.initializers.Initializer):
        return _is_seeded("", value.get_config())
    if not isinstance(value, keras.layers.Layer) or value.weights:
        return False
    if hasattr(value, "make_again"):
        again = value.make_again
        names = itertools.chain(inspect.signature(again.func).parameters, itertools.repeat(""))
        positional = zip(names, again.args, strict=False)
        return any(_is_seeded(key, item) for key, item in (*positional, *again.keywords.items()))
    try:
        return _is_seeded("", value.get_config())
    except (NotImplementedError, TypeError, ValueError):
        return False  # it cannot be copied, which its owner says


def with_arguments(layer: keras.layers.Layer, **changes: Any) -> Any:
    """A new layer, without weights, made as one of ours was but for these arguments."""
    again = layer.make_again
    given = dict(zip(inspect.signature(again.func).parameters, again.args, strict=False))
    made = again.func(**{**given, **again.keywords, **changes})
    follow_owner(made, own_policy(layer))
    copy_trainable(layer, made)
    return made


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
        if own_policy(layer) is not None:
            config[OWN_DTYPE] = True
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
