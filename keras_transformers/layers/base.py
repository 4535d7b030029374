"""The base of the layers: arguments, symbolic calls, and what is saved of sublayers."""

import contextlib
import contextvars
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from typing import Any, Self, cast

import keras
import numpy as np

from keras_transformers.annotations import Mixin
from keras_transformers.layers.adapters import (
    ADAPTERS,
    FROZEN,
    Adapted,
    adapter_of,
    name_by_path,
    restore_adapters,
)
from keras_transformers.layers.checks import refuse
from keras_transformers.layers.low_rank import LowRank

# Keras's, KerasHub's, PyTorch's and transformers' words for what is called by one here.
WORDS = {
    "mlp_dim": (
        "intermediate_dim", "intermediate_size", "dim_feedforward", "feedforward_dim",
        "feed_forward_dim", "ff_dim", "ffn_dim", "d_ff", "mlp_hidden_dim",
    ),
    "hidden_dim": (
        "hidden_size", "d_model", "model_dim", "embed_dim", "embedding_dim", "emb_dim", "n_embd",
        "output_dim",
    ),
    "num_heads": (
        "nhead", "n_head", "n_heads", "heads", "num_attention_heads", "num_query_heads",
    ),
    "num_key_value_heads": ("key_value_num_heads", "num_kv_heads", "n_kv_heads", "kv_heads"),
    "key_dim": ("head_dim", "head_size", "dim_head", "kdim", "d_head"),
    "value_dim": ("vdim",),
    "num_layers": ("num_hidden_layers", "n_layer", "n_layers", "depth", "num_blocks"),
    "dropout": ("dropout_rate", "dropout_prob", "hidden_dropout_prob", "hidden_dropout"),
    "rate": ("p", "drop_prob"),
    "attention_dropout": ("attention_probs_dropout_prob", "attn_dropout", "attention_dropout_rate"),
    "drop_path": ("drop_path_rate", "drop_path_prob", "stochastic_depth"),
    "layer_scale": ("layer_scale_init_value", "layerscale_value"),
    "norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "epsilon", "eps"),
    "norm_first": ("normalize_first", "pre_norm", "prenorm"),
    "activation": ("hidden_act", "activation_function", "hidden_activation"),
    "use_bias": ("bias",),
    "vocab_size": ("vocabulary_size", "input_dim", "num_embeddings", "num_tokens", "n_vocab"),
    "max_length": (
        "sequence_length", "max_sequence_length", "max_len", "max_position_embeddings",
        "n_positions", "context_length", "block_size",
    ),
    "num_classes": ("num_labels", "classes"),
    "image_size": ("image_shape", "img_size"),
    "patch_size": ("patch_len",),
}  # fmt: skip
OURS = {theirs: ours for ours, words in WORDS.items() for theirs in words}
# What a block is not told, for it is an argument of one of its parts.
OF_PARTS = {
    "attention_dropout": "mixer=SelfAttention(num_heads, dropout=...)",
    "qkv_bias": "mixer=SelfAttention(num_heads, use_bias=...)",
    "norm_epsilon": "norm=LayerNormalization(epsilon=...)",
}


class Arguments(Mixin):
    """A layer or model that knows what it was made with, and the words that others use.

    Comes before Keras's class among the bases. NumPy's numbers become Python's on their way into a
    constructor, so that they are what they are checked for, and can be written as JSON. Vectors of
    integers are cast to the compute dtype of the layer, as an operation on floats would do.

    Attributes:
        vector_arguments: Names of those arguments of `call` that are vectors, a tuple.
    """

    vector_arguments: tuple[str, ...] = ("x", "query", "value", "key", "context")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _of_plain_numbers(cls.__init__)  # type: ignore[method-assign]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        known = None
        for word, value in kwargs.items():
            if word not in OURS and word not in ("hidden_dim", *OF_PARTS):
                continue
            known = parameters_of(cast(Any, cls)) if known is None else known
            if word not in known:
                _refuse_word(cls, word, value, known)
        made = super().__new__(cls, *args, **kwargs)
        # A function, for Keras would take layers in a tuple or a dict for layers of this one.
        made.make_again = functools.partial(cls, *args, **kwargs)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = _arguments_of_call(cast(Any, type(self)))
        given = [
            self._as_floats(name, value)
            for name, value in itertools.zip_longest(names[: len(args)], args)
        ]
        named = {name: self._as_floats(name, value) for name, value in kwargs.items()}
        return super().__call__(*given, **named)

    def _as_floats(self, name: str | None, value: Any) -> Any:
        """The value of an argument of `call`; vectors of integers as floats."""
        if name not in self.vector_arguments or not hasattr(value, "dtype"):
            return value
        dtype = keras.backend.standardize_dtype(value.dtype)
        if dtype == "bool" or keras.backend.is_int_dtype(dtype):
            return keras.ops.cast(value, self.compute_dtype)
        return value


def _of_plain_numbers(make: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *_plain(args), **_plain(kwargs))

    # Keras asks for it without unwrapping.
    vars(__init__)["__signature__"] = inspect.signature(make)
    return __init__


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if type(value) is dict:
        return {name: _plain(each) for name, each in value.items()}
    return value


def _refuse_word(cls: type, word: str, value: Any, known: Collection[str]) -> None:
    ours = OURS.get(word, word)
    if ours in known:
        raise ValueError(
            f"{cls.__name__}: `{word}` is called `{ours}` here. Received: {word}={value!r}"
        )
    if ours in OF_PARTS and "mixer" in known:
        raise ValueError(
            f"{cls.__name__}: `{word}` is an argument of a part here, {OF_PARTS[ours]}. "
            f"Received: {word}={value!r}"
        )
    if ours == "hidden_dim":
        raise ValueError(
            f"{cls.__name__}: `{word}` must be left out, for the width is that of the input. "
            f"Received: {word}={value!r}"
        )


@functools.cache
def _arguments_of_call(cls: Any) -> tuple[str, ...]:
    """The names of what `call` of a class takes, without `self`."""
    return tuple(inspect.signature(cls.call).parameters)[1:]


@functools.cache
def parameters_of(cls: Any) -> frozenset[str]:
    """What the constructors of a class and of those it comes from take by name."""
    return frozenset(
        name
        for one in cls.__mro__
        if "__init__" in vars(one)
        for name in inspect.signature(one.__init__).parameters
    )


class Traced(Mixin):
    """Makes a symbolic call of a layer with `compute_output_shape` run its `call` all the same.

    Keras would otherwise ask `compute_output_shape` alone, which knows of no options such as
    `return_attention_scores`; and what `call` checks, masks for instance, would be checked when the
    model runs and not where the mistake is made. Inputs have the dtype that Keras casts those of a
    call to, whether or not the caller has cast them.
    """

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = keras.tree.map_structure(self._as_called, (args, kwargs))
        known = (
            None not in x.shape[1:]
            for x in keras.tree.flatten((args, kwargs))
            if isinstance(x, keras.KerasTensor)
        )
        options = kwargs.get("return_attention_scores")
        if keras.backend.backend() != "tensorflow" and not options and not all(known):
            return super().compute_output_spec(*args, **kwargs)  # sizes are expressions there
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _as_called(self, x: Any) -> Any:
        return self.dtype_policy.convert_input(x, self.autocast, self.input_dtype)


TRAINABLE = "trainable_parts"  # of a build configuration
# Key of a build configuration: its networks have their weights in the order of their equations.
# Version 0.2.0, whose configurations lack the key, had those of the output first.
ORDER = "weights_in_order"
CALIBRATED = ("gptq", "awq")  # quantised by what the layers are given
# Arguments that `build` reads, and no call: a later value would change the configuration only.
READ_BY_BUILD = ("dropout", "drop_path", "layer_scale")


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


class Composite(Mixin):
    """Mixed into layers and models that are made of layers.

    Keras saves the arguments of a layer. What was done later to the layers inside it is kept here:
    quantisation in `dtype`, by the path of each part, and `trainable` in what `build_from_config`
    is given. So what a file gives computes and trains as what was saved did. And setting
    `trainable` sets that of all parts: on TensorFlow Keras passes over a value that the layer has
    already, whatever its parts have. A part that a frozen layer gets later, in `build` for
    instance, is frozen too: a model asks the variables inside a layer, not the layer.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "trainable":
            set_trainable(self, value)
            return
        if name in READ_BY_BUILD and getattr(self, "built", False):
            _refuse_change(self, name, value)
        super().__setattr__(name, value)
        if not getattr(self, "trainable", True):
            _freeze_layers(value)

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
        if not config:
            return config
        layers = self._flatten_layers(include_self=False)
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


def _refuse_change(layer: Any, name: str, value: Any) -> None:
    """Raises ValueError if a built layer gets another value of what only `build` reads."""
    if value != getattr(layer, name, None):
        expected = "set before the layer is built, for `build` reads it and no call does"
        refuse(layer, name, expected, repr(value))


def _freeze_layers(value: Any) -> None:
    """Freezes the layers in what has become an attribute of a frozen layer."""
    if isinstance(value, keras.layers.Layer):
        set_trainable(value, False)
    elif isinstance(value, list | tuple):
        for item in value:
            _freeze_layers(item)
    elif isinstance(value, dict):
        _freeze_layers(list(value.values()))


def _freeze_inside(owner: keras.layers.Layer) -> None:
    """Freezes what frozen layers of other makes have got in their own `build`.

    A model keeps what was set for its layers, which it has from the beginning.
    """
    for layer in owner._flatten_layers(include_self=False, recursive=False):
        if isinstance(layer, Composite | keras.Model):
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
    """Has a layer or model save the adapters in it, where Keras or a `Composite` does not."""
    if isinstance(layer, Composite | AdaptedOwner | Adapted) or not _has_adapters(layer):
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
