"""Layers that are given to other layers as arguments: a score, a position term, a mixer.

The owner copies such a part, so that one object can be given to every block of a stack and each
copy has weights of its own. A copy is made from the configuration of the part.
"""

import contextlib
import copy
import functools
import inspect
import json
import numbers
import types
from collections.abc import Mapping
from typing import Any, NoReturn

import keras

from keras_transformers.core.types import Part
from keras_transformers.layers.base import BaseLayer, copy_trainable
from keras_transformers.layers.checks import beside, refuse

# What every layer's configuration has and not every constructor takes.
OF_EVERY_LAYER = ("name", "trainable", "dtype", "activity_regularizer")
# Keys: of a serialised part that has a dtype of its own, and of a layer that has its owner's.
OWN_DTYPE, DTYPE_OF_OWNER = "own_dtype", "_dtype_of_owner"
FUNCTIONS = "<functions>"
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
    return Prototype(owner, argument, given, kind, names, is_own=True).take(owner)


class Prototype:
    """A layer given as an argument, of which copies are made later.

    Not a layer itself, so that its owner does not take it for one of its own.

    Args:
        owner, argument, given, kind, names: See `part`.
        is_own: Whether a layer that is made here gets the name and dtype of the owner's copy, so
            that `take` need not copy it.

    Attributes:
        layer: The layer that was given, or made of a name or a configuration.
    """

    def __init__(
        self,
        owner: Any,
        argument: str,
        given: Any,
        kind: type,
        names: Mapping[str, type] | None = None,
        is_own: bool = False,
    ) -> None:
        names = names or {}
        layer: Any = given
        # True if nobody else has the layer, and its name and dtype are those of the owner's copy.
        self._is_new = False
        if isinstance(given, str) and given in names:
            options = {"name": argument, "dtype": owner.dtype_policy} if is_own else {}
            layer, self._is_new = names[given](**options), is_own
            follow_owner(layer, None)
        elif isinstance(given, dict):
            name = argument if is_own else None
            layer, self._is_new = _from_serialized(given, name, owner.dtype_policy)
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
        self._config: dict[str, Any] | None = None
        self._objects: dict[str, Any] = {}
        if layer is given and isinstance(layer, BaseLayer) and layer.built and layer.weights:
            self._refuse_weights(owner)

    def take(self, owner: Any) -> Any:
        """Makes `layer` the owner's own, a copy unless nobody else has it, and returns it."""
        if not self._is_new:
            self.layer, self._is_new = self.copy(owner, self.argument), True
        return self.layer

    def copy(self, owner: Any, name: str, index: int = 0) -> Any:
        """Returns a new layer of that name, in the precision of `owner` unless it has its own.

        Args:
            owner: The layer that gets the copy.
            name: Name of the copy.
            index: Number of the copy in a stack, which its seeds depend on.
        """
        try:
            if self._config is None:
                self._config = configuration_of(self.layer)
                self._objects = _own_objects(self.layer)
            config = copy.deepcopy(self._config)
            new = _copied(self.layer, config, self._objects, name, owner.dtype_policy, index)
        except (NotImplementedError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            layer = f"{type(self.layer).__name__} '{self.layer.name}'"
            expected = "a layer that can be made again from its `get_config()`"
            refuse(owner, self.argument, expected, f"{layer}, for which it fails: {reason}")
        if self.layer.weights:  # a functional model has weights from the beginning
            if len(new.weights) != len(self.layer.weights):
                self._refuse_weights(owner)
            new.set_weights(self.layer.get_weights())
        return new

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
    owner: Any, argument: str, given: Any, kind: type = keras.layers.Layer, is_own: bool = False,
    **numbers: Any
) -> Prototype | None:  # fmt: skip
    """The `Prototype` of a part that takes the place of numbers; None where they make it.

    Args:
        owner, argument, given, kind, is_own: See `Prototype`.
        **numbers: Arguments that must be None beside the part.

    Raises:
        ValueError: If both are given, or the part is none.
    """
    if given is None:
        return None
    prototype = Prototype(owner, argument, given, kind, is_own=is_own)
    for name, number in numbers.items():
        if number is not None:
            refuse(owner, name, beside(argument), f"{name}={number}")
    return prototype


def own_part(owner: Any, argument: str, given: Any, **numbers: Any) -> Prototype | None:
    """As `part_or_numbers`, but the layer is the owner's own copy."""
    prototype = part_or_numbers(owner, argument, given, is_own=True, **numbers)
    if prototype is not None:
        prototype.take(owner)
    return prototype


def norm_prototype(owner: Any, norm: Part | None) -> Prototype:
    """The `Prototype` of a norm that was given, or of a layer norm with epsilon 1e-6."""
    if norm is None:
        norm = _default_norm()
    elif isinstance(norm, dict):
        with contextlib.suppress(TypeError):  # JSON cannot hold a user's function
            text = json.dumps(norm)
            if '"registered_name": "' not in text:  # nor a user's class
                norm = _norm_of_configuration(text)
    return Prototype(owner, "norm", norm, keras.layers.Layer)


@functools.lru_cache(maxsize=8)
def _norm_of_configuration(text: str) -> Any:
    """Returns a norm that is only copied, so that all blocks of a stack can share it."""
    layer, _ = _from_serialized(json.loads(text), None, None)
    return layer


@functools.cache
def _default_norm() -> keras.layers.Layer:
    return keras.layers.LayerNormalization(epsilon=1e-6, name="norm")


def configuration_of(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the configuration of a layer, from which it can be made again.

    Raises:
        TypeError: If `get_config` of a layer of ours misses an argument of the constructor. A copy
            would silently have the default instead.
    """
    config: dict[str, Any] = _unshared(layer.get_config())
    if isinstance(layer, BaseLayer):
        kind: Any = type(layer)
        names, _ = constructor_arguments(kind)
        # Keras's record of a constructor's arguments, None unless all are numbers and strings.
        record = getattr(layer, "_auto_config", None)
        recorded = {} if record is None else record.config
        config |= {
            name: recorded[name] for name in names if name in recorded.keys() - config.keys()
        }
        missing = [name for name in names if name not in config and name not in OF_EVERY_LAYER]
        if missing:
            raise TypeError(f"its `get_config` has no {', '.join(missing)}")
    return config


@functools.cache
def constructor_arguments(kind: Any) -> tuple[tuple[str, ...], bool]:
    """Returns the names of a constructor's arguments, and whether it takes others by name, too."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = tuple(parameter.name for parameter in parameters if parameter.kind not in variable)
    return names, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def _copied(
    layer: keras.layers.Layer, config: dict[str, Any], objects: dict[str, Any], name: str,
    owner_policy: Any, index: int
) -> Any:  # fmt: skip
    """Returns a new layer from the configuration of a part, with the seeds of copy `index`."""
    own = own_policy(layer)
    policy = owner_policy if own is None else _policy_inside(owner_policy, own)
    config = {**config, "name": name}
    if index:
        config = _fold_seeds("", config, index)
    config["dtype"] = keras.dtype_policies.serialize(policy)
    config = _reloadable(type(layer), config)
    new = _made_again(layer, config, objects)
    if new.name != name:
        new.name = name
    if "dtype" not in config:
        new.dtype_policy = policy
    follow_owner(new, own)
    if not all(inner._trainable for inner in layer._flatten_layers()):
        copy_trainable(layer, new)
    return new


def _made_again(layer: keras.layers.Layer, config: dict[str, Any], objects: dict[str, Any]) -> Any:
    """Returns a new layer of the class of another one, from a configuration like its own.

    Classes and functions (`objects`, from `_own_objects`), and the weights of parts that have them
    from the beginning, are those of the layer.
    """
    classes = {name: value for name, value in objects.items() if name != FUNCTIONS}
    for function in objects.get(FUNCTIONS, ()):
        _put_function(config, function)
    with keras.saving.CustomObjectScope(classes):
        new = type(layer).from_config(config)
    _copy_weights_of_parts(layer, new)
    return new


def own_policy(layer: keras.layers.Layer) -> Any:
    """Returns the dtype policy that a layer was made with; None if it takes that of its owner."""
    if vars(layer).get(DTYPE_OF_OWNER):
        return None
    if isinstance(layer, BaseLayer):
        has_own = layer.has_own_dtype
    else:
        # Keras's record of a constructor's arguments, None unless all are numbers and strings.
        # There is no public one. `test_a_part_keeps_its_own_dtype` fails when it changes.
        arguments = getattr(layer, "_auto_config", None)
        if arguments is None:
            has_own = layer.dtype_policy.name != keras.config.dtype_policy().name
        else:
            has_own = arguments.config.get("dtype") is not None
    return layer.dtype_policy if has_own else None


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


def _from_serialized(
    config: dict[str, Any], name: str | None, owner_policy: Any
) -> tuple[Any, bool]:
    """Returns the layer of a configuration, not built, and whether it is right for its owner.

    It is if it could be given a name and, unless it has its own, the dtype of its owner.
    """
    config = {key: value for key, value in config.items() if key != "build_config"}
    inner, has_own = config.get("config"), bool(config.get(OWN_DTYPE))
    is_right = isinstance(inner, dict) and {"name", "dtype"} <= inner.keys()
    is_right = is_right and name is not None and not has_own
    if is_right:
        dtype = keras.dtype_policies.serialize(owner_policy)
        config["config"] = {**config["config"], "name": name, "dtype": dtype}
    layer = keras.saving.deserialize_keras_object(config)
    if isinstance(layer, keras.layers.Layer) and not has_own:
        follow_owner(layer, None)
    return layer, is_right and isinstance(layer, keras.layers.Layer) and not layer.weights


def _fold_seeds(name: str, value: Any, index: int) -> Any:
    """Folds the number of a copy into the seeds of a configuration, of all parts in it too."""
    if isinstance(value, dict):
        return {key: _fold_seeds(key, item, index) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_fold_seeds(name, item, index) for item in value)
    if name == "seed" and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return (int(value) + index * STRIDE_OF_SEEDS) % 2**31
    return value


def with_arguments(layer: keras.layers.Layer, **changes: Any) -> Any:
    """Returns a new layer, without weights, made as another one but for these arguments."""
    config = {**copy.deepcopy(configuration_of(layer)), **changes}
    config = _reloadable(type(layer), config)
    changed = _made_again(layer, config, _own_objects(layer))
    follow_owner(changed, own_policy(layer))
    copy_trainable(layer, changed)
    return changed


def _own_objects(layer: keras.layers.Layer) -> dict[str, Any]:
    """Returns the user's classes inside a layer by name, and its functions in a list.

    Keras looks for the classes of a configuration among the registered ones, and a user's may not
    be. It would take a function of its own in the place of a user's of the same name.
    """
    kinds = (
        keras.layers.Layer,
        keras.initializers.Initializer,
        keras.regularizers.Regularizer,
        keras.constraints.Constraint,
    )
    known = ("keras.", "keras_transformers.")
    classes: dict[str, Any] = {}
    functions: list[Any] = []
    visited: set[int] = set()
    waiting: list[Any] = [layer]
    while waiting:
        value = waiting.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, list | tuple):
            waiting.extend(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, Prototype):
            waiting.append(value.layer)
        elif isinstance(value, types.FunctionType):
            if not (value.__module__ or "").startswith(known):
                functions.append(value)
        elif isinstance(value, kinds):
            if not type(value).__module__.startswith(known):
                classes[type(value).__name__] = type(value)
            attributes = vars(value).items()  # without TensorFlow's records of the same
            waiting += [x for name, x in attributes if not name.startswith(("_self_", "_obj_"))]
    return {**classes, FUNCTIONS: functions} if functions else classes


def _put_function(config: Any, function: Any) -> None:
    """Puts a user's function in the places of a configuration that stand for it."""
    try:
        written = keras.activations.serialize(function)
    except (AttributeError, TypeError, ValueError):  # no activation, but a function of another kind
        return
    waiting = [config]
    while waiting:
        value = waiting.pop()
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in list(items):
            if item == written and key not in ("name", "class_name", "module", "registered_name"):
                value[key] = function
            elif isinstance(item, dict | list):
                waiting.append(item)


def _copy_weights_of_parts(layer: keras.layers.Layer, new: keras.layers.Layer) -> None:
    """Copies the weights of parts that have them from the beginning, as functional models do."""
    waiting = [(layer, new)]
    while waiting:
        source, target = waiting.pop()
        attributes = vars(target)
        for name, value in vars(source).items():
            if isinstance(value, Prototype):
                part, its_copy = value.layer, attributes[name].layer
                if part.weights:
                    its_copy.set_weights(part.get_weights())
                waiting.append((part, its_copy))


def arguments_of_call(layer: keras.layers.Layer) -> frozenset[str]:
    """The names of what a part can be called with, a frozenset."""
    return frozenset(inspect.signature(layer.call).parameters)


def _reloadable(kind: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Returns a configuration without what every layer has and this constructor does not take.

    A class that reads configurations in a way of its own gets all of it.
    """
    own = getattr(kind.from_config, "__func__", None)
    is_plain = own is getattr(keras.layers.Layer.from_config, "__func__", None)
    if not (is_plain or issubclass(kind, BaseLayer)):
        return config
    names, takes_any = constructor_arguments(kind)
    if takes_any:
        return config
    if issubclass(kind, BaseLayer):  # which sets the other arguments of its base class itself
        return {key: value for key, value in config.items() if key in names}
    items = config.items()
    return {key: value for key, value in items if key in names or key not in OF_EVERY_LAYER}


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
    """Removes Keras's marks of shared objects from a configuration, and returns it.

    Layers own their parts. And while a file is loaded, Keras marks objects as shared that had the
    same address one after the other, as copies of parts do that live for a moment.
    """
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            value.pop("shared_object_id", None)
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return config
