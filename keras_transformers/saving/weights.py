"""Weights of a model in HDF5 and safetensors files: saved, and loaded all or not at all."""

import hashlib
import json
import pathlib
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import Any

import h5py
import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, StrPath
from keras_transformers.saving.untrusted_files import (
    PICKLES,
    WEIGHTS,
    Archive,
    Entry,
    Layout,
    parse_json,
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
