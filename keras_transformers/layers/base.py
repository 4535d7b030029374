"""The base class of the layers: arguments, freezing, saved sublayers, rematerialization."""

import contextlib
import contextvars
import re
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import LayerOptions, Mixin
from keras_transformers.layers.adapters import (
    ADAPTERS,
    FROZEN,
    Adapted,
    adapter_of,
    name_by_path,
    restore_adapters,
)
from keras_transformers.layers.checks import refuse, refuse_unknown
from keras_transformers.layers.low_rank import LowRank


class _BlockNames:
    """What `keras.RematScope` asks `name in names`: what the blocks of our models are called."""

    PATTERN = re.compile(r"(en|de)coder_\d+|stage_\d+_block_\d+|\w+_block(_\d+)?")

    def __contains__(self, name: str) -> bool:
        return self.PATTERN.fullmatch(name) is not None


BLOCK_NAMES = _BlockNames()


def rematerialized_blocks() -> keras.RematScope:
    """A scope in which models are made that keep of each block its input only.

    The backward pass computes the rest again: activations for a little more than one block instead
    of all, for about a third more computation (Chen et al. 2016,
    https://arxiv.org/abs/1604.06174). Weights and gradients are the same but for the order of sums,
    dropout included. It is `keras.RematScope(mode="list_of_layers", layer_names=...)`, which can as
    well be given the names of some blocks. A file of the model does not remember it.

    Returns:
        `keras.RematScope`, a context manager.

    Example:
    >>> from keras_transformers import layers, models
    >>> with layers.rematerialized_blocks():
    ...     model = models.ViT.from_variant("Ti/8", num_classes=2, image_size=32, num_layers=12)
    """
    return keras.RematScope(mode="list_of_layers", layer_names=BLOCK_NAMES)


class Rematerialized(Mixin):
    """Makes `keras.RematScope` right for a layer with masks, options and dropout.

    Keras's own wrapper takes no keyword arguments on TensorFlow, draws another dropout mask the
    second time there, and cannot carry the state of a seed out on JAX. Here the layer becomes a
    function of its floating inputs, its weights and its seeds, so that the second pass is the
    first one again (Chen et al. 2016, https://arxiv.org/abs/1604.06174).
    """

    def rematerialized_call(
        self, layer_call: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Callable[..., Any]:
        """Called by Keras for a layer made inside `keras.RematScope`."""
        wrapped = super().rematerialized_call(layer_call, *args, **kwargs)
        # The scope may be for other layers. Without training nothing is kept anyway, and a
        # SavedModel would not know the seeds.
        if wrapped is layer_call or not kwargs.get("training"):
            return layer_call
        return lambda *args, **kwargs: _rematerialized(self, layer_call, args, kwargs)


def _rematerialized(
    layer: keras.layers.Layer,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """`call(*args, **kwargs)`, of which the backward pass finds the inputs only."""
    flat = keras.tree.flatten((args, kwargs))
    if any(isinstance(each, keras.KerasTensor) for each in flat):
        return call(*args, **kwargs)
    positions = [i for i, each in enumerate(flat) if _is_floating(each)]
    weights, (fixed, others) = layer.trainable_variables, _frozen_and_others(layer)
    # Times one, for on TensorFlow a variable would be read when the backward pass comes to it.
    states = [variable * 1 for variable in others]
    kept = [(variable, variable.value) for variable in fixed]  # not copied: they may be gigabytes

    def pure(inputs: Any, values: Any) -> Any:
        known = list(flat)
        for position, tensor in zip(positions, inputs, strict=True):
            known[position] = tensor
        args_again, kwargs_again = keras.tree.pack_sequence_as((args, kwargs), known)
        mapping = [*zip(weights, values, strict=True), *zip(others, states, strict=True), *kept]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = call(*args_again, **kwargs_again)
        return outputs, [scope.get_current_value(variable) for variable in others]

    inputs = [flat[position] for position in positions]
    outputs, after = keras.remat(pure)(inputs, [variable * 1 for variable in weights])
    for variable, value in zip(others, after, strict=True):
        variable.assign(value)
    return outputs


def _frozen_and_others(layer: keras.layers.Layer) -> tuple[list[Any], list[Any]]:
    """Weights that no call changes, frozen or quantised; and what else is not trained."""
    weights = {
        id(variable)
        for each in layer._flatten_layers()
        for variable in each._trainable_variables
        + (each._non_trainable_variables if each.quantization_mode else [])
    }
    variables = layer.non_trainable_variables
    fixed = [variable for variable in variables if id(variable) in weights]
    return fixed, [variable for variable in variables if id(variable) not in weights]


def _is_floating(value: Any) -> bool:
    return ops.is_tensor(value) and keras.backend.is_float_dtype(
        keras.backend.standardize_dtype(value.dtype)
    )


TRAINABLE = "trainable_parts"  # of a build configuration
# Key of a build configuration: its networks have their weights in the order of their equations.
# Version 0.2.0, whose configurations lack the key, had those of the output first.
ORDER = "weights_in_order"
CALIBRATED = ("gptq", "awq")  # quantised by what the layers are given
# The arguments that Keras's own constructors of layers take.
KERAS_ARGUMENTS = frozenset(
    (*LayerOptions.__annotations__, "input_shape", "batch_shape", "batch_size")
)


class BaseLayer(keras.layers.Layer):
    """The base class of all layers of this package, and of the models (`BaseModel`).

    Keras saves the arguments of a layer. This class also saves what was done later to the layers
    inside it: quantisation in `dtype`, by the path of each part, and `trainable` in the build
    configuration. So a layer from a file computes and trains as the saved one did. Setting
    `trainable` of a frozen layer also reaches the layers that it creates in `build`.

    Attributes:
        has_own_dtype: True if the layer was given a `dtype`. A layer that is given as a part to
            another one keeps its own dtype, and otherwise gets that of its owner.
    """

    # Arguments of other libraries' layers -> what to give this one instead.
    elsewhere: ClassVar[Mapping[str, str]] = types.MappingProxyType({})

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        unknown = sorted(kwargs.keys() - KERAS_ARGUMENTS)
        if unknown:
            options: dict[str, Any] = {**kwargs}
            refuse_unknown(type(self).__name__, unknown[0], options[unknown[0]], self.elsewhere)
        super().__init__(**kwargs)
        self.has_own_dtype = kwargs.get("dtype") is not None

    @property
    def trainable(self) -> bool:
        """Whether the layer trains; setting it sets that of all layers inside it.

        On TensorFlow Keras ignores `layer.trainable = True` if the attribute is the object True
        already, even if layers inside are frozen. So it is the number 1 then, which is equal.
        """
        is_trainable: bool = super().trainable
        inside = self._flatten_layers(include_self=False)
        if is_trainable and not all(layer._trainable for layer in inside):
            return 1  # type: ignore[return-value]
        return is_trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        for layer in self._flatten_layers():
            kind: Any = keras.layers.Layer if isinstance(layer, BaseLayer) else type(layer)
            kind.trainable.fset(layer, value)

    def _post_build(self) -> None:
        """Called by Keras when everything in the layer is built: each part gets its own policy.

        Saving, Keras asks the policy of a quantised layer for its mode, not for that of its path.
        """
        super()._post_build()
        _freeze_inside(self)
        if isinstance(self.dtype_policy, PolicyOfParts):
            for layer in self._flatten_layers(include_self=False):
                if layer.built and layer.quantization_mode is not None:
                    layer._dtype_policy = _policy_of(layer)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config["trainable"] = bool(config["trainable"])
        policies = {
            _path_from(self, layer): _policy_of(layer)
            for layer in self._flatten_layers(include_self=False)
            if layer.quantization_mode is not None and _check_kept(layer)
        }
        if policies:
            policy = getattr(self.dtype_policy, "default_policy", self.dtype_policy)
            config["dtype"] = keras.dtype_policies.serialize(PolicyOfParts(policy, policies))
        return config

    def save_own_variables(self, store: Any) -> None:
        """Called by Keras before it saves the parts."""
        for layer in self._flatten_layers(include_self=False):
            if layer.quantization_mode in CALIBRATED:
                _keep_zero_point(layer)
        super().save_own_variables(store)

    def get_build_config(self) -> Any:
        config = super().get_build_config()
        layers = self._flatten_layers(include_self=False)
        if not config or not layers or isinstance(self, Adapted):  # which saves its own adapter
            return config
        adapters = {
            path: layer.adapter.saved()
            for path, layer in _numbered_paths(self, layers).items()
            if adapter_of(layer) is not None
        }
        frozen = [
            _path_from(self, weight) for layer in [self, *layers] for weight in _frozen(layer)
        ]
        config = {**config, TRAINABLE: _unlike_their_owner(self)}
        if not has_output_first(self):
            config[ORDER] = True
        found = {ADAPTERS: adapters, FROZEN: frozen}
        return {**config, **{key: value for key, value in found.items() if value}}

    def build_from_config(self, config: dict[str, Any]) -> None:
        config = dict(config)
        keys = (TRAINABLE, ADAPTERS, FROZEN)
        parts, adapters, frozen = (config.pop(key, None) for key in keys)
        with output_first(not config.pop(ORDER, False)):  # so that its optimizer's state fits
            super().build_from_config(config)
        if self.built:
            for path, found in (adapters or {}).items():
                restore_adapters(_find_by_numbered_path(self, path), found)
            if parts is not None:
                _set_parts(self, parts)
            _freeze_weights(self, frozen or ())


def output_spec_of_call(layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the symbolic output of a layer by tracing its `call`.

    Layers with options such as `return_attention_scores` take it as their method
    `compute_output_spec`. Keras would otherwise ask `compute_output_shape` alone, which knows no
    options; and what `call` checks, masks for instance, would be checked when the model runs and
    not where the mistake is made. Inputs have the dtype that Keras casts those of a call to,
    whether or not the caller has cast them.
    """

    def as_called(x: Any) -> Any:
        return layer.dtype_policy.convert_input(x, layer.autocast, layer.input_dtype)

    args, kwargs = keras.tree.map_structure(as_called, (args, kwargs))
    is_known = (
        None not in x.shape[1:]
        for x in keras.tree.flatten((args, kwargs))
        if isinstance(x, keras.KerasTensor)
    )
    options = kwargs.get("return_attention_scores")
    if keras.backend.backend() != "tensorflow" and not options and not all(is_known):
        # Sizes are expressions there.
        return keras.layers.Layer.compute_output_spec(layer, *args, **kwargs)
    return keras.Operation.compute_output_spec(layer, *args, **kwargs)


class ReadByBuild:
    """An attribute that `build` reads and no call does: it cannot change once the layer is built.

    A later value would change the configuration only.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __set__(self, layer: Any, value: Any) -> None:
        attributes = vars(layer)
        if attributes.get("built") and value != attributes.get(self.name):
            expected = "set before the layer is built, for `build` reads it and no call does"
            refuse(layer, self.name, expected, repr(value))
        attributes[self.name] = value.item() if isinstance(value, np.generic) else value


_output_first = contextvars.ContextVar("output_first", default=False)


def is_output_first() -> bool:
    """True while a layer is built whose networks have the weights of their output first."""
    return _output_first.get()


@contextlib.contextmanager
def output_first(is_so: bool) -> Iterator[None]:
    """A context in which networks are built with the weights of their output first, or not."""
    token = _output_first.set(is_so)
    try:
        yield
    finally:
        _output_first.reset(token)


def has_output_first(layer: keras.layers.Layer) -> bool:
    """True if a layer, or one in it, has the order of weights of version 0.2.0."""
    return any(getattr(each, "output_first", False) for each in layer._flatten_layers())


@keras.saving.register_keras_serializable("keras_transformers")
class PolicyOfParts(keras.dtype_policies.DTypePolicyMap):
    """A `DTypePolicyMap` whose paths begin with the layer that was saved, wherever that is.

    Keras looks for the whole path, which is another one as soon as the layer is inside something.
    """

    def __getitem__(self, path: str) -> Any:
        found = _of_tail(path, self)
        return self.default_policy if found is None else super().__getitem__(found)


def without_policies(config: Any, paths: Sequence[str]) -> Any:
    """A configuration, and all those inside it, whose layers of some paths are not quantised."""
    if isinstance(config, list | tuple):
        return type(config)(without_policies(each, paths) for each in config)
    if not isinstance(config, dict):
        return config
    kept = {key: without_policies(value, paths) for key, value in config.items()}
    if config.get("class_name") == PolicyOfParts.__name__:
        policies = config["config"]["policy_map"].items()
        known = {key: each for key, each in policies if not any(_same(key, p) for p in paths)}
        kept["config"] = {**config["config"], "policy_map": known}
    return kept


def _of_tail(path: str, known: Container[str]) -> str | None:
    """The longest end of a path that is known; None where none is."""
    while path not in known:
        _, slash, path = path.partition("/")
        if not slash:
            return None
    return path


def _path_from(owner: Any, layer: keras.layers.Layer | keras.Variable) -> str:
    """The path of a layer, which begins with the name of what has it."""
    inside = layer.path.removeprefix(f"{owner.path}/")
    return layer.path if inside == layer.path else f"{owner.name}/{inside}"


def _policy_of(layer: keras.layers.Layer) -> Any:
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy[layer.path]
    return policy


def _check_kept(layer: keras.layers.Layer) -> bool:
    """True; ValueError where a layer was quantised in a way that its policy does not tell."""
    mode = layer.quantization_mode
    if mode in CALIBRATED:  # their settings are in the policy
        if layer.is_gptq_calibrated if mode == "gptq" else layer.is_awq_calibrated:
            return True
        raise ValueError(
            f"{type(layer).__name__} '{layer.path}' cannot be saved: it was made ready for {mode}, "
            "and never calibrated. It lies outside the blocks that are; leave it out by `filters`."
        )
    config = getattr(layer, "quantization_config", None)
    quantizers = [] if config is None else [config, type(config)()]
    quantizers = [each.activation_quantizer for each in quantizers]
    if len({repr(each and (type(each), each.get_config())) for each in quantizers}) > 1:
        raise ValueError(
            f"{type(layer).__name__} '{layer.path}' cannot be saved: of its quantisation the mode "
            f"is kept, not an `activation_quantizer` of its own. Received: {quantizers[0]}"
        )
    return True


def _keep_zero_point(layer: Any) -> None:
    """Has Keras save the zero points of GPTQ and AWQ, which 3.15 leaves out of the file."""
    if layer._get_kernel_with_merged_lora()[-1] is None:
        vars(layer)["_get_kernel_with_merged_lora"] = lambda: (None, None, layer.kernel_zero)


def _unlike_their_owner(owner: Any) -> dict[str, bool]:
    """Path -> `trainable`, of layers with weights where it is another than that of what has them.

    Outer layers come first: setting one sets those inside it.
    """
    found, waiting = {}, [owner]
    while waiting:
        outer = waiting.pop(0)
        for layer in outer._flatten_layers(include_self=False, recursive=False):
            if layer.weights and layer.trainable != outer.trainable:
                found[_path_from(owner, layer)] = bool(layer.trainable)
            waiting.append(layer)
    return found


def set_trainable(layer: keras.layers.Layer, value: bool) -> None:
    """Sets `trainable` of a layer and of all that is in it."""
    for each in layer._flatten_layers():
        type(each).trainable.fset(each, value)


def _frozen(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The layer's own weights that are frozen, where it could train them."""
    return [each for each in layer._trainable_variables if layer.trainable and not each.trainable]


def _same(path: str, other: str) -> bool:
    """Whether two paths may be of the same part.

    A model given as a part, a backbone for instance, is built first: its paths are shorter.
    """
    return bool(_of_tail(path, (other,)) or _of_tail(other, (path,)))


def _of_path(owner: Any, path: str, argument: str) -> list[Any]:
    """The layers with weights inside a layer that have this path."""
    layers = [each for each in owner._flatten_layers(include_self=False) if each.weights]
    found = [each for each in layers if _same(each.path, path)]
    if not found:
        raise ValueError(
            f"{type(owner).__name__} '{owner.name}': `{argument}` must have paths of its layers. "
            f"Received: {path:.200}"
        )
    return found


def _numbered_paths(owner: Any, layers: Sequence[Any]) -> dict[str, Any]:
    """Returns path -> layer with weights, see `name_by_path`; adapters are left out."""
    plain = [layer for layer in layers if layer.weights and not isinstance(layer, LowRank)]
    return name_by_path(plain, lambda layer: _path_from(owner, layer))


def _find_by_numbered_path(owner: Any, path: str) -> Any:
    """Returns the layer of a path of `_numbered_paths`, which may have another beginning."""
    plain, _, number = path.partition("#")
    layers = [layer for layer in _of_path(owner, plain, ADAPTERS) if not isinstance(layer, LowRank)]
    position = int(number or 1) - 1
    if position >= len(layers):
        raise ValueError(
            f"{type(owner).__name__} '{owner.name}': `{ADAPTERS}` must have paths of its layers. "
            f"Received: {path:.200}"
        )
    return layers[position]


def _set_parts(owner: Any, parts: dict[str, Any]) -> None:
    set_trainable(owner, owner.trainable)  # some of what is in it was made just now
    for path, trainable in parts.items():
        inside = _of_path(owner, path, TRAINABLE)
        if not isinstance(trainable, bool):
            raise ValueError(
                f"{type(owner).__name__} '{owner.name}': `{TRAINABLE}` must have True or False for "
                f"each path. Received: {path:.200}: {trainable!s:.100}"
            )
        for layer in inside:
            set_trainable(layer, trainable)


def _freeze_weights(owner: Any, paths: Any) -> None:
    weights = [each for layer in owner._flatten_layers() for each in layer._trainable_variables]
    for path in paths:
        for weight in weights:
            if _same(weight.path, path):
                weight.trainable = False


def _freeze_inside(owner: keras.layers.Layer) -> None:
    """Freezes the layers that a frozen layer created in its `build`.

    A model keeps what was set for its layers, which it has from the beginning.
    """
    if not owner.trainable and not isinstance(owner, keras.Model):
        set_trainable(owner, False)
        return
    for layer in owner._flatten_layers(include_self=False, recursive=False):
        if isinstance(layer, BaseLayer | keras.Model):
            continue
        if layer.trainable:
            _freeze_inside(layer)
        else:
            set_trainable(layer, False)


def frozen_like(owner: keras.layers.Layer, layer: Any) -> Any:
    """Returns a layer that goes into a list of its owner, frozen if the owner is."""
    if not owner.trainable:
        set_trainable(layer, False)
    return layer


def copy_trainable(source: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Gives a copy of a layer, and the layers inside it, the `trainable` of the original."""
    if copy.trainable != source.trainable:
        set_trainable(copy, source.trainable)
    pairs = zip(
        source._flatten_layers(include_self=False, recursive=False),
        copy._flatten_layers(include_self=False, recursive=False),
        strict=False,
    )
    for layer, its_copy in pairs:
        if layer.name == its_copy.name:
            copy_trainable(layer, its_copy)


@keras.saving.register_keras_serializable("keras_transformers")
class AdaptedOwner(Mixin):
    """Mixed into a layer or model of another make when layers inside it get adapters.

    Its configuration is that of the plain layer and that of the adapters, which are told apart by
    the positions of their layers: names that Keras makes up are others in each process.
    """

    stands_for_others = True  # its name in a configuration is that of the layer
    plain: type

    def get_config(self) -> dict[str, Any]:
        layers = _plain_layers(self)
        quantized = [layer for layer in layers if layer.quantization_mode is not None]
        if quantized:  # Keras's own, as its attention, cannot be loaded again without adapters
            raise ValueError(
                f"{type(self).__name__} '{self.path}' cannot be saved: layers inside it are "
                f"quantised and have adapters. `save_weights` keeps both. Received: "
                f"'{quantized[0].path}', in {quantized[0].quantization_mode}"
            )
        owner, self.__class__ = self.__class__, self.plain
        try:
            layer = keras.saving.serialize_keras_object(self)
        finally:
            self.__class__ = owner
        layer.pop("compile_config", None)  # the optimizer is for what an adapter trains
        adapters = {
            str(i): layer.adapter.saved()
            for i, layer in enumerate(layers)
            if adapter_of(layer) is not None
        }
        weights = [weight for layer in layers for weight in layer._trainable_variables]
        return {
            "layer": layer,
            "num_layers": len(layers),
            ADAPTERS: adapters,
            "trainable_layers": [i for i, layer in enumerate(layers) if layer.trainable],
            "trainable_weights": [i for i, weight in enumerate(weights) if weight.trainable],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Makes the plain layer, and gives the layers in it their adapters."""
        owner = keras.saving.deserialize_keras_object(config["layer"], custom_objects)
        layers = _plain_layers(owner)
        if not owner.built or len(layers) != config["num_layers"]:
            raise ValueError(
                f"{type(owner).__name__} '{owner.name}': its `build` must build all layers in it, "
                f"or their adapters cannot be restored. Expected: {config['num_layers']} layers. "
                f"Received: {len(layers)}, {'built' if owner.built else 'not built'}"
            )
        for i, saved in config[ADAPTERS].items():
            restore_adapters(layers[int(i)], saved)
        for i, layer in enumerate(layers):
            type(layer).trainable.fset(layer, i in config["trainable_layers"])
        weights = [weight for layer in layers for weight in layer._trainable_variables]
        for i, weight in enumerate(weights):
            weight.trainable = i in config["trainable_weights"]
        own_adapters(owner)
        return owner

    def get_build_config(self) -> None:
        """None, for what `from_config` makes is built."""


def own_adapters(layer: Any) -> None:
    """Has a layer or model save the adapters in it, where Keras or a `BaseLayer` does not."""
    if isinstance(layer, BaseLayer | AdaptedOwner | Adapted) or not _has_adapters(layer):
        return
    if _is_made_of_configurations(layer):
        for inner in layer._flatten_layers(include_self=False, recursive=False):
            own_adapters(inner)
        return
    plain = type(layer)
    owner: Any = types.new_class(plain.__name__, (AdaptedOwner, plain))
    owner.plain = plain
    keras.saving.register_keras_serializable("keras_transformers", "AdaptedOwner")(owner)
    keras.saving.register_keras_serializable("keras_transformers", "AdaptedOwner")(AdaptedOwner)
    layer.__class__ = owner


def disown_adapters(layer: Any) -> None:
    """Makes all layers of `own_adapters` what they were, whose adapters have been removed."""
    for inner in layer._flatten_layers():
        if isinstance(inner, AdaptedOwner) and not _has_adapters(inner):
            inner.__class__ = inner.plain


def _plain_layers(owner: Any) -> list[Any]:
    """The layers in a layer, and itself, but for adapters and what is in these."""
    layers, waiting = [], [owner]
    while waiting:
        layer = waiting.pop(0)
        layers.append(layer)
        inner = layer._flatten_layers(include_self=False, recursive=False)
        waiting += [part for part in inner if not isinstance(part, LowRank)]
    return list({id(layer): layer for layer in layers}.values())


def _has_adapters(layer: Any) -> bool:
    return any(isinstance(inner, LowRank) for inner in layer._flatten_layers())


def _is_made_of_configurations(layer: Any) -> bool:
    """True of Keras's models whose configuration has that of each layer, with what it was built."""
    kind = type(layer)
    return kind is keras.Sequential or (
        kind.__name__ == "Functional" and kind.__module__.startswith("keras.")
    )
