"""Loads a saved model whose file is untrusted, and checks its configuration.

Keras looks up classes and functions by the module and the name in the file, and imports the module.
Here nothing is imported for a file: each name must be Keras's own and made to be saved, or the
program that loads the file must have registered it.
"""

import math
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformers.core.types import StrPath
from keras_transformers.saving.untrusted_files import (
    CONFIG,
    METADATA,
    WEIGHTS,
    Archive,
    Layout,
    parse_json,
    within,
)
from keras_transformers.saving.weights import OPTIMIZER, check_same, layout_of

MOST_METADATA = 1 << 16
MOST_CONFIG = 4 << 20  # bytes; the largest model here has some hundred thousand
UNBUILT = 3  # scalars that an optimizer saves before its first step


def load_model(
    path: StrPath, custom_objects: Mapping[str, Any] | None = None, compile: bool = True
) -> Any:
    """A model out of a `.keras` file that somebody else may have written.

    What `keras.models.load_model` gives, bit for bit; but the whole file is checked before Keras
    touches it, and no code, no other file and no address that it names is ever used. What is
    refused is in `docs/how_to/untrusted_files.md`.

    Args:
        path: Path of the file.
        custom_objects: Dict of name -> class or function of your own that the file may name. What
            is registered (`keras.saving.register_keras_serializable`) need not be in it.
        compile: Whether to compile the model as it was when it was saved.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not what Keras writes, is damaged, names something that is neither
            Keras's own nor registered, describes more than it has weights for, or has weights
            other than the model that it describes.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import models, saving
    >>> model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
    >>> model.save(path)
    >>> saving.load_model(path).count_params() == model.count_params()
    True
    """
    path = pathlib.Path(path)
    if path.suffix != ".keras":
        raise ValueError(f"load_model: `path` must end in .keras. Received: {path}")
    with Archive(path) as archive:
        for name, most in ((METADATA, MOST_METADATA), (CONFIG, MOST_CONFIG)):
            config = parse_json(archive.read(name, most), most, f"{path}: {name}")
        check_configuration(config, custom_objects, f"{path}: {CONFIG}")
        layout = Layout(archive.open(WEIGHTS), archive.size(WEIGHTS), f"{path}: {WEIGHTS}")
    try:
        with within(layout.values(), layout.objects):
            model = keras.models.load_model(path, custom_objects, compile, safe_mode=True)
    except Exception as error:
        # Keras raises nearly everything for a file that does not fit; the first line says why.
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path}: no model can be made of it: {why[0]}") from error
    if not isinstance(model, keras.Model):
        raise ValueError(f"{path} must hold a model. Received: a {type(model).__name__}")
    _check_weights(model, layout)
    return model


def _check_weights(model: keras.Model, layout: Layout) -> None:
    """Keras passes over weights that no layer asks for, and over an optimizer's that do not fit."""
    expected, found = layout_of(model), dict(layout.entries)
    state = {path: entry for path, entry in found.items() if path.startswith(OPTIMIZER)}
    unbuilt = len(state) <= UNBUILT and all(shape == () for shape, _ in state.values())
    # `quantize` leaves the state of the optimizer of the weights before; Keras passes over it.
    modes = {getattr(layer, "quantization_mode", None) for layer in model._flatten_layers()}
    if getattr(model, "optimizer", None) is None or unbuilt or modes - {None, "float8"}:
        found = {path: entry for path, entry in found.items() if path not in state}
        expected = {p: entry for p, entry in expected.items() if not p.startswith(OPTIMIZER)}
    check_same(expected, found, layout.where)


MOST_DEPTH = 100
MOST_VALUES = 2**26  # of one input; an image of 4,700 x 4,700 pixels
# What stands for an object but is none: how Keras writes the values that JSON does not have.
VALUES = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__")
ARRAYS = ("__tensor__", "__numpy__")
KINDS = (
    keras.Operation,  # layers and models too
    keras.Optimizer,
    keras.Loss,
    keras.Metric,
    keras.Initializer,
    keras.Regularizer,
    keras.constraints.Constraint,
    keras.Quantizer,
    keras.quantizers.Float8QuantizationConfig,
    keras.quantizers.Int4QuantizationConfig,
    keras.quantizers.Int8QuantizationConfig,
    keras.DTypePolicy,
    keras.optimizers.schedules.LearningRateSchedule,
    keras.random.SeedGenerator,
)
CLASSES = ("keras", "keras.constraints", "keras.dtype_policies", "keras.initializers")
CLASSES += ("keras.layers", "keras.losses", "keras.metrics", "keras.models", "keras.optimizers")
CLASSES += ("keras.optimizers.schedules", "keras.quantizers", "keras.random", "keras.regularizers")
# Layers of Keras that run code of the file, or of other files that it names.
RUN_CODE = (keras.layers.Lambda, keras.layers.TFSMLayer, keras.layers.TorchModuleWrapper)
RUN_CODE += (keras.layers.JaxLayer, keras.layers.FlaxLayer)
FUNCTIONS = ("keras.activations", "keras.constraints", "keras.initializers", "keras.losses")
FUNCTIONS += ("keras.metrics", "keras.ops", "keras.regularizers")
NOT_FUNCTIONS = ("get", "serialize", "deserialize")
# Settings with which Keras's layers read a file or fetch an address where they are a string.
READ_FILES = ("vocabulary", "idf_weights", "weights", "filepath", "file_path", "path", "url")
SHAPES = ("batch_shape", "shape", "input_shape", "build_input_shape", "target_shape", "shapes_dict")
# Settings of which tables are made that no weight shows, and the most there may be: positions of a
# window (32 x 32), distances, frequencies.
TABLES = {"window_size": 2**10, "grid": 2**10, "max_distance": 2**20}
TABLES |= {"fft_length": 2**16, "num_mel_bins": 2**10}
FUNCTIONAL = ("keras.src.models.functional", "Functional")
_UNREGISTERED = "neither Keras's own nor registered here; import what defines it, if you trust it"


def check_configuration(
    config: dict[str, Any], custom_objects: Mapping[str, Any] | None, where: Any
) -> None:
    """ValueError unless everything in a configuration is harmless.

    Args:
        config: Content of `config.json`.
        custom_objects: Dict of name -> class or function that the user trusts, or None.
        where: Its file, for messages.
    """
    if not _is_entry(config):
        raise ValueError(f"{where} does not describe a Keras object.")
    waiting: list[tuple[Any, int, Any]] = [(config, 1, None)]
    while waiting:
        found, depth, key = waiting.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"{where} is nested more than {MOST_DEPTH} deep.")
        try:
            if key in SHAPES:
                _check_shape(found, key)
            if isinstance(found, dict):
                if "class_name" in found:
                    _check_entry(found, custom_objects)
                if "inbound_nodes" in found:
                    _check_nodes(found["inbound_nodes"])
                waiting += [(value, depth + 1, key) for key, value in found.items()]
            elif isinstance(found, list):
                waiting += [(value, depth + 1, None) for value in found]
        except _Refused as error:
            raise ValueError(f"{where}: {error}.") from None


def _is_entry(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("class_name"), str)


def _check_entry(entry: dict[str, Any], custom_objects: Mapping[str, Any] | None) -> None:
    """What stands for an object."""
    name, config = entry["class_name"], entry.get("config")
    if not isinstance(name, str) or "config" not in entry:
        raise _Refused(f"an object must have a name and a configuration. Received: {entry!s:.200}")
    if name in ("__lambda__", "__typespec__"):
        raise _Refused(f"{name} is refused, for it can hold code")
    if name in VALUES:
        if name in ARRAYS:
            _check_array(config)
        return
    if "module" not in entry:
        raise _Refused(f"{name:.100} has no `module`; files that old are not read")
    if name == "function":
        _check_function(entry, custom_objects)
        return
    if not isinstance(config, dict):
        raise _Refused(f"{name:.100} must have a dict as configuration. Received: {config!s:.100}")
    registered = entry.get("registered_name", name)
    own = _registered(registered, custom_objects)
    if own is None:
        _check_class(entry["module"], name, registered)
        _check_files(name, config)
    elif getattr(own, "stands_for_others", False):  # under the name of what it has
        pass
    elif isinstance(own, type) and own.__name__ != name:
        raise _Refused(f"{registered} is a {own.__name__}. Received: {name:.100}")
    _check_tables(name, config)


def _check_files(name: Any, config: Any) -> None:
    for key in READ_FILES:
        if isinstance(config.get(key), str):
            raise _Refused(
                f"{name} would read a file: `{key}` must not be a string. "
                f"Received: {config[key]!r:.200}"
            )


def _check_tables(name: Any, config: Any) -> None:
    for key, most in TABLES.items():
        value = config.get(key)
        if key == "window_size" and isinstance(value, int):
            value = [value, 1 if name == "LocalAttention" else value]
        extents = value if isinstance(value, list) else [value]
        known = [abs(extent) for extent in extents if isinstance(extent, (int, float))]
        if math.prod(known) > most:
            raise _Refused(
                f"{name}: `{key}` must be at most {most}. Received: {config[key]!s:.100}"
            )
    if config.get("unroll") is True:
        raise _Refused(f"{name}: `unroll` must be False, for a long input would take long")


def _registered(name: Any, custom_objects: Mapping[str, Any] | None) -> Any:
    """What the user, or a module that the user imported, has registered under the name."""
    if not isinstance(name, str):
        return None
    return keras.saving.get_registered_object(name, custom_objects)


def _check_class(module: Any, name: Any, registered: Any) -> None:
    """A class of Keras's, found without importing anything."""
    found = _in_keras(module, name)
    if not isinstance(found, type):
        asked = f"{module}.{name}" if registered in (None, name) else registered
        raise _Refused(f"the class {asked!s:.200} is {_UNREGISTERED}")
    if not issubclass(found, KINDS):
        raise _Refused(f"{module}.{name:.100} is no part of a model")
    if issubclass(found, RUN_CODE):
        raise _Refused(
            f"{name} runs code that is in the file, or in another file that it names, and is "
            "refused"
        )
    if registered not in (None, name):
        raise _Refused(f"{name} is Keras's own. Received: registered_name={registered!s:.100}")


def _check_function(entry: Any, custom_objects: Mapping[str, Any] | None) -> None:
    name, module = entry["config"], entry["module"]
    if not isinstance(name, str):
        raise _Refused(
            "a function must be given by its name, for marshalled code is refused. "
            f"Received: {name!s:.100}"
        )
    if _registered(name, custom_objects) is not None:
        return
    inside = FUNCTIONS if module == "builtins" else [module] if module in FUNCTIONS else []
    if name in NOT_FUNCTIONS or not any(callable(_public(part, name)) for part in inside):
        raise _Refused(f"the function {module}.{name:.100} is {_UNREGISTERED}")


def _public(module: Any, name: Any) -> Any:
    """What a public module of Keras has under a name."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    return vars(sys.modules[module]).get(name)


def _in_keras(module: Any, name: Any) -> Any:
    """A class of Keras's: a public one, or of the private ones what functional models have."""
    if module in CLASSES:
        return _public(module, name)
    if module == FUNCTIONAL[0] or isinstance(module, str) and module.startswith("keras.src.ops."):
        found = _public(module, name) if module in sys.modules else None
        operation = isinstance(found, type) and issubclass(found, keras.Operation)
        return found if (module, name) == FUNCTIONAL or operation else None
    return None


def _check_array(config: Any) -> None:
    """A constant; a type can be as large as its name says."""
    dtype = config.get("dtype") if isinstance(config, dict) else None
    known = ("bool", "bfloat16", "float16", "float32", "float64", "uint8", "uint16", "uint32")
    if dtype not in (*known, "uint64", "int8", "int16", "int32", "int64"):
        raise _Refused(f"a constant must be of numbers. Received: dtype={dtype!s:.100}")


def _check_shape(shape: Any, key: Any) -> None:
    """Extents, or a nest of them; what is made for them takes memory that no weight shows."""
    waiting = [shape]
    while waiting:
        found = waiting.pop()
        inner = found.values() if isinstance(found, dict) else found
        if isinstance(found, (dict, list)):
            waiting += [each for each in inner if isinstance(each, (dict, list))]
            known = [abs(each) for each in inner if isinstance(each, (int, float))]
            if math.prod(known) > MOST_VALUES:
                raise _Refused(
                    f"`{key}` must have at most {MOST_VALUES} values. Received: {found!s:.100}"
                )


def _check_nodes(nodes: Any) -> None:
    """The calls of a layer in a functional model.

    Each has a symbolic tensor among its arguments: without one, Keras would compute at once.
    """
    if not isinstance(nodes, list):
        raise _Refused("`inbound_nodes` must be a list")
    for node in nodes:
        if not isinstance(node, dict) or set(node) != {"args", "kwargs"}:
            raise _Refused(f"a call must have `args` and `kwargs`. Received: {node!s:.100}")
        waiting = [node["args"], node["kwargs"]]
        while waiting:
            found = waiting.pop()
            if isinstance(found, dict):
                if found.get("class_name") == "__keras_tensor__":
                    break
                waiting += found.values()
            elif isinstance(found, list):
                waiting += found
        else:
            raise _Refused("a layer is called without a symbolic tensor, which runs it at once")


class _Refused(Exception):
    """Something in the configuration is not harmless."""
