"""Models and weights in files: saved, and loaded all or not at all, also from untrusted files.

Keras looks up classes and functions by the module and the name in the file, and imports the module.
Here nothing is imported for a file: each name must be Keras's own and made to be saved, or the
program that loads the file must have registered it.
"""

import hashlib
import json
import math
import pathlib
import shutil
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import h5py
import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, StrPath
from keras_transformers.saving.untrusted_files import (
    CONFIG,
    METADATA,
    PICKLES,
    WEIGHTS,
    Archive,
    Entry,
    Layout,
    parse_json,
    within,
)

HDF5, TENSORS, MODEL = ".weights.h5", ".safetensors", ".keras"
OPTIMIZER = "optimizer/"


def save_weights(model: keras.Model, path: StrPath) -> None:
    """Writes a model's weights.

    Args:
        model: A built model.
        path: Path of the file. `.weights.h5` is Keras's own format, with the optimizer's state;
            `.safetensors` has the weights alone, under their paths, and a checksum by which
            `load_weights` finds a single wrong bit.

    Raises:
        ValueError: If the path ends otherwise, the model is not built, or two of its weights have
            the same path.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import models, saving
    >>> model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors")
    >>> saving.save_weights(model, path)
    >>> saving.load_weights(model, path)
    """
    path = _checked(model, path, "save_weights", (HDF5, TENSORS))
    if path.name.endswith(HDF5):
        model.save_weights(path, overwrite=True)
        return
    weights, arrays = _by_path(model), _arrays_by_path(model)
    tensors = {name: ops.convert_to_numpy(weight) for name, weight in weights.items()}
    save_with_checksum(path, tensors | arrays)


def load_weights(model: keras.Model, path: StrPath) -> None:
    """Gives a model the weights of a file that somebody else may have written.

    Names, shapes and types of all of them are compared with the model's before the first is read.
    A file that is refused leaves the model as it was. The optimizer's state, which Keras's files
    may have too, is not touched; `load_model` restores it.

    Args:
        model: A built model.
        path: Path of a `.weights.h5` or `.keras` file of Keras's, or of a `.safetensors` file of
            `save_weights`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the path ends otherwise, the model is not built, the file is damaged or not
            what Keras or `save_weights` writes, or a weight is missing, surplus, or of another
            shape or type; the message names it.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import models, saving
    >>> model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    >>> model.build((None, None))
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.weights.h5")
    >>> saving.save_weights(model, path)
    >>> saving.load_weights(model, path)
    """
    path = _checked(model, path, "load_weights", (HDF5, TENSORS, MODEL))
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.name.endswith(TENSORS):
        _load_tensors(model, path)
    elif path.name.endswith(HDF5):
        _load_hdf5(model, path, f"{path}")
    else:
        with Archive(path) as archive, tempfile.TemporaryDirectory() as folder:
            alone = pathlib.Path(folder, WEIGHTS)
            with open(alone, "wb") as file:
                shutil.copyfileobj(archive.open(WEIGHTS), file)
            _load_hdf5(model, alone, f"{path}: {WEIGHTS}")


def layout_of(model: keras.Model, optimizer: bool = True) -> dict[str, Entry]:
    """What Keras would write of a model: dict of path -> `(shape, dtype)`, as `Layout.entries`."""
    skipped = [] if optimizer else _optimizers(model)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, WEIGHTS)
        with _shapes_alone():
            keras.saving.save_weights(model, path, objects_to_skip=skipped)
        found = {}

        def take(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                found[name] = item.shape, item.attrs.get("dtype", item.dtype.name)

        with h5py.File(path, "r") as file:
            file.visititems(take)
    return found


def check_same(expected: dict[str, Entry], found: dict[str, Entry], where: Any) -> None:
    """Raises ValueError that names the first weight that is missing, surplus or another."""
    expected, found = _without_numbered(expected, found)
    for name, (shape, dtype) in expected.items():
        if name not in found:
            raise ValueError(f"{where}: the weight {name} is missing.")
        if found[name] != (shape, dtype):
            raise ValueError(
                f"{where}: the weight {name} must have shape {shape} and type {dtype}. "
                f"Received: {found[name][0]}, {found[name][1]}"
            )
    surplus = sorted(set(found) - set(expected))
    if surplus:
        raise ValueError(
            f"{where}: the model has no weight {surplus[0]:.200}; {len(surplus)} such in all."
        )


def _without_numbered(
    expected: dict[str, Entry], found: dict[str, Entry]
) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """Both without the adapters that version 0.2.0 wrote, which their layers check themselves."""
    prefixes = {name.partition(":")[0].rpartition("/")[0] + "/" for name in expected if ":" in name}
    numbered = tuple(prefix for prefix in prefixes if f"{prefix}0" in found)
    if not numbered:
        return expected, found
    return _without(expected, numbered), _without(found, numbered)


def _without(entries: dict[str, Entry], prefixes: tuple[str, ...]) -> dict[str, Entry]:
    return {name: entry for name, entry in entries.items() if not name.startswith(prefixes)}


def _load_hdf5(model: keras.Model, path: pathlib.Path, where: Any) -> None:
    layout, expected = Layout(path, path.stat().st_size, where), layout_of(model, optimizer=False)
    found = {
        name: entry
        for name, entry in layout.entries.items()
        if name in expected or not name.startswith(OPTIMIZER)
    }
    check_same(expected, found, where)
    model.load_weights(path, objects_to_skip=_optimizers(model))


def _load_tensors(model: keras.Model, path: pathlib.Path) -> None:
    opened = open_tensors(path)
    found = entries(opened)
    layers = _layers_with_arrays(model)
    # Version 0.2.0 wrote the variables of the active adapter alone.
    is_old = any(f"{name}/lora_scale" in found for name in layers)
    weights = _by_path(model, with_adapters=is_old)
    arrays = {} if is_old else _arrays_by_path(model)
    expected = {
        name: (tuple(weight.shape), keras.backend.standardize_dtype(weight.dtype))
        for name, weight in (weights | arrays).items()
    }
    check_same(expected, found, path)
    verify(opened, path)
    for name, weight in weights.items():
        weight.assign(opened.get_tensor(name))
    for name, layer in {} if is_old else layers.items():
        keys = [key for key in arrays if key.startswith(f"{name}/")]
        layer.load_own_variables(
            {key.removeprefix(f"{name}/"): opened.get_tensor(key) for key in keys}
        )
    for layer in model._flatten_layers():
        calibrated = f"is_{layer.quantization_mode}_calibrated"
        if hasattr(layer, calibrated):  # by GPTQ or AWQ, as what is saved is
            setattr(layer, calibrated, True)


def _checked(
    model: keras.Model, path: StrPath, caller: str, endings: tuple[str, ...]
) -> pathlib.Path:
    path = pathlib.Path(path)
    if not path.name.endswith(endings):
        raise ValueError(
            f"{caller}: `path` must end in {', '.join(endings)}. Received: {path.name}"
        )
    if not model.built:
        raise ValueError(f"{caller}: `model` must be built; call it, or its `build`, first.")
    return path


def _by_path(model: keras.Model, with_adapters: bool = False) -> dict[str, keras.Variable]:
    """Weights by their path inside the model, whose own name a second one would not share.

    Those of layers with arrays, that is of adapters, are among the arrays.
    """
    skipped = {
        id(weight)
        for layer in ([] if with_adapters else _layers_with_arrays(model).values())
        for weight in layer.weights
    }
    found = {}
    for weight in (weight for weight in model.weights if id(weight) not in skipped):
        name = weight.path.removeprefix(f"{model.name}/")
        if name in found:
            raise ValueError(
                f"{model.name}: two weights are called {name}; give their layers other names."
            )
        found[name] = weight
    return found


def _layers_with_arrays(model: keras.Model) -> dict[str, Any]:
    """Path -> layer of those that name all arrays of theirs by `named_arrays`: adapters."""
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "named_arrays")]
    found = {
        layer.a.path.removeprefix(f"{model.name}/").rpartition("/")[0]: layer for layer in layers
    }
    if len(found) < len(layers):
        raise ValueError(f"{model.name}: two layers have one path; give them other names.")
    return found


def _arrays_by_path(model: keras.Model) -> dict[str, Array]:
    """Path -> array of the layers that have them."""
    return {
        f"{name}/{key}": array
        for name, layer in _layers_with_arrays(model).items()
        for key, array in layer.named_arrays().items()
    }


def _optimizers(model: keras.Model) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)
    return [] if optimizer is None else [optimizer]


class _shapes_alone:
    """A context in which this thread's HDF5 arrays are written without their values.

    So Keras itself says under which paths it keeps a model's weights, in no time and no space.
    """

    _one_at_a_time = threading.RLock()

    def __enter__(self) -> None:
        self._one_at_a_time.acquire()
        self.original, thread = h5py.Group.create_dataset, threading.get_ident()

        def create_dataset(
            group: Any,
            name: Any,
            shape: Any = None,
            dtype: Any = None,
            data: Any = None,
            **options: Any,
        ) -> Any:
            if data is not None and threading.get_ident() == thread:
                data = np.asarray(data)
                return self.original(group, name, data.shape, data.dtype)
            return self.original(group, name, shape, dtype, data, **options)

        h5py.Group.create_dataset = create_dataset

    def __exit__(self, *_: object) -> None:
        h5py.Group.create_dataset = self.original
        self._one_at_a_time.release()


TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
TYPES |= {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}
TYPES |= {"U64": "uint64", "U32": "uint32", "U16": "uint16", "BOOL": "bool"}
MOST_HEADER = 4 << 20  # bytes; a tensor takes some hundred
CHECKSUM = "keras_transformers.sha256"


def open_tensors(path: pathlib.Path) -> Any:
    """A safetensors file whose header has been checked: `safetensors.safe_open`'s.

    The library checks that the header fits the file's size, and that the tensors lie in it one
    after the other without a gap. What it lets pass, a name that is there twice, is refused here.

    Args:
        path: A `pathlib.Path`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no safetensors file, is cut, or its header does not fit it.
    """
    import safetensors

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file:
        first = file.read(8)
        length = struct.unpack("<Q", first)[0] if len(first) == 8 else 0
        if not 2 <= length <= min(MOST_HEADER, path.stat().st_size - 8):
            # Only now: a header of 640 bytes begins with the two bytes of a pickle.
            if first[:2] in (*PICKLES, b"PK"):
                raise ValueError(
                    f"{path} is a pickle under another name. Reading it could execute what is in "
                    "it, so it is refused."
                )
            raise ValueError(
                f"{path} is not a whole safetensors file: its header cannot have {length} bytes."
            )
        where = f"{path} is not a whole safetensors file: its header"
        header = parse_json(file.read(length), MOST_HEADER, where)
    try:
        opened = safetensors.safe_open(path, framework="numpy")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}.") from None
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] not in TYPES:
            raise ValueError(
                f"{path}: {name:.200} must be of type {', '.join(TYPES)}. "
                f"Received: {entry['dtype']}"
            )
    return opened


def entries(opened: Any) -> dict[str, Entry]:
    """Dict of name -> `(shape, dtype)` of an opened file."""
    found = {}
    for name in opened.keys():  # noqa: SIM118 - it is no dict
        part = opened.get_slice(name)
        found[name] = tuple(part.get_shape()), TYPES[part.get_dtype()]
    return found


def save_with_checksum(path: StrPath, tensors: dict[str, Array]) -> None:
    """Writes a dict of NumPy arrays, and their checksum."""
    from safetensors.numpy import save_file

    tensors = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    metadata = {CHECKSUM: _checksum(tensors, tensors.__getitem__)}
    save_file(tensors, pathlib.Path(path), metadata=metadata)


def verify(opened: Any, path: StrPath) -> None:
    """ValueError unless the tensors are those that the checksum was made of."""
    expected = (opened.metadata() or {}).get(CHECKSUM)
    if expected is None:
        raise ValueError(
            f"{path} has no checksum (`{CHECKSUM}` of its metadata), which `save_weights` writes."
        )
    if _checksum(opened.keys(), opened.get_tensor) != expected:
        raise ValueError(f"{path} is damaged: its checksum is another than when it was written.")


def _checksum(names: Iterable[str], read: Callable[[str], Array]) -> str:
    """SHA-256 of names, types, shapes and values, one tensor at a time."""
    digest = hashlib.sha256()
    for name in sorted(names):
        tensor = read(name)
        head = json.dumps([name, tensor.dtype.name, list(tensor.shape)])
        digest.update(head.encode() + b"\n")
        digest.update(np.ascontiguousarray(tensor).reshape(-1).view("uint8").data)
    return digest.hexdigest()


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
