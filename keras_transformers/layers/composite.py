"""What is saved of the layers inside a layer: how they were quantised, and which are frozen."""

from collections.abc import Container
from typing import Any

import keras

from keras_transformers.annotations import Mixin

TRAINABLE = "trainable_parts"  # of a build configuration
CALIBRATED = ("gptq", "awq")  # quantised by what the layers are given


class Composite(Mixin):
    """Mixed into layers and models that are made of layers.

    Keras saves the arguments of a layer. What was done later to the layers inside it is kept here:
    quantisation in `dtype`, by the path of each part, and `trainable` in what `build_from_config`
    is given. So what a file gives computes and trains as what was saved did. And setting
    `trainable` sets that of all parts: on TensorFlow Keras passes over a value that the layer has
    already, whatever its parts have.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "trainable":
            set_trainable(self, value)
        else:
            super().__setattr__(name, value)

    def _post_build(self) -> None:
        """Called by Keras when everything in the layer is built: each part gets its own policy.

        Saving, Keras asks the policy of a quantised layer for its mode, not for that of its path.
        """
        super()._post_build()
        if isinstance(self.dtype_policy, PolicyOfParts):
            for layer in self._flatten_layers(include_self=False):
                if layer.built and layer.quantization_mode is not None:
                    layer._dtype_policy = _policy_of(layer)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
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
        return config and {**config, TRAINABLE: _unlike_their_owner(self)}

    def build_from_config(self, config: dict[str, Any]) -> None:
        config = dict(config)
        parts = config.pop(TRAINABLE, None)
        super().build_from_config(config)
        if parts is not None and self.built:
            _set_parts(self, parts)


@keras.saving.register_keras_serializable("keras_transformers")
class PolicyOfParts(keras.dtype_policies.DTypePolicyMap):
    """A `DTypePolicyMap` whose paths begin with the layer that was saved, wherever that is.

    Keras looks for the whole path, which is another one as soon as the layer is inside something.
    """

    def __getitem__(self, path: str) -> Any:
        found = _of_tail(path, self)
        return self.default_policy if found is None else super().__getitem__(found)


def _of_tail(path: str, known: Container[str]) -> str | None:
    """The longest end of a path that is known; None where none is."""
    while path not in known:
        _, slash, path = path.partition("/")
        if not slash:
            return None
    return path


def _path_from(owner: Any, layer: keras.layers.Layer) -> str:
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
        if getattr(layer, f"is_{mode}_calibrated"):
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
                found[_path_from(owner, layer)] = layer.trainable
            waiting.append(layer)
    return found


def set_trainable(layer: keras.layers.Layer, value: bool) -> None:
    """Sets `trainable` of a layer and of all that is in it."""
    for each in layer._flatten_layers():
        type(each).trainable.fset(each, value)


def _set_parts(owner: Any, parts: dict[str, Any]) -> None:
    set_trainable(owner, owner.trainable)  # some of what is in it was made just now
    layers = [each for each in owner._flatten_layers(include_self=False) if each.weights]
    for path, trainable in parts.items():
        # A model given as a part, a backbone for instance, is built first: its paths are shorter.
        inside = [
            each for each in layers if _of_tail(each.path, (path,)) or _of_tail(path, (each.path,))
        ]
        if not inside or not isinstance(trainable, bool):
            raise ValueError(
                f"{type(owner).__name__} '{owner.name}': `{TRAINABLE}` must have paths of its "
                f"layers and True or False. Received: {path:.200}: {trainable!s:.100}"
            )
        for layer in inside:
            set_trainable(layer, trainable)
