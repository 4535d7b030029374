"""Safetensors files: opened with suspicion, and written with a checksum."""

import hashlib
import json
import pathlib
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath
from keras_transformers.saving.archive import PICKLES
from keras_transformers.saving.hdf5 import Entry
from keras_transformers.saving.strict_json import parse_json

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
