"""The files of a published folder, read with suspicion: nothing in them is ever executed."""

import json
import pathlib

import numpy as np

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".msgpack", ".h5")
MOST_JSON = 64 << 20  # bytes; the largest vocabularies have some ten million
TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
TYPES |= {"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8"}
TYPES |= {"BOOL": "bool"}


def read_json(folder, name):
    """The JSON object in a file of the folder.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is too large, not JSON in UTF-8, or no object.
    """
    path = pathlib.Path(folder, name)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {name} in {folder}.")
    if path.stat().st_size > MOST_JSON:
        raise ValueError(f"{path} has more than {MOST_JSON >> 20} MiB, too much for a JSON file.")
    try:
        found = json.loads(path.read_bytes().decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON in UTF-8: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object. Received: a {type(found).__name__}")
    return found


class Tensors:
    """The tensors of `model.safetensors`, or of its shards, by name; read one at a time.

    Args:
        folder: Path of the folder.

    Raises:
        FileNotFoundError: If there are no such files.
        ValueError: If a file is no safetensors file, is cut, or its header does not fit its size;
            if a shard lies outside the folder; or if there is only a pickle.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._files, self._place = {}, {}
        for file, listed in self._shards().items():
            opened = _opened(self.folder / file)
            names = set(opened.keys())
            lacking = sorted(set(listed or names) - names)
            if lacking:
                raise ValueError(
                    f"{self.folder / INDEX} says that {file} holds {lacking[0]}, which it does not."
                )
            self._files[file] = opened
            self._place |= dict.fromkeys(listed or names, file)
        self.shapes = {}
        for name, file in self._place.items():
            part = self._files[file].get_slice(name)
            if part.get_dtype() not in TYPES:
                raise ValueError(
                    f"{self.folder / file}: {name} must be of type {', '.join(TYPES)}. "
                    f"Received: {part.get_dtype()}"
                )
            self.shapes[name] = tuple(part.get_shape())

    def _shards(self):
        """File -> names that the index says it holds, or None without an index."""
        if (self.folder / WEIGHTS).is_file():
            return {WEIGHTS: None}
        if not (self.folder / INDEX).is_file():
            raise self._without_weights()
        weight_map = read_json(self.folder, INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"{self.folder / INDEX} must have a `weight_map` of names to files.")
        shards = {}
        for name, file in weight_map.items():
            plain = isinstance(file, str) and file.endswith(".safetensors")
            if not plain or pathlib.PurePosixPath(file).name != file or "\\" in file:
                raise ValueError(
                    f"{self.folder / INDEX}: {name} must lie in a .safetensors file of the same "
                    f"folder. Received: {file!r}"
                )
            shards.setdefault(file, []).append(name)
        return shards

    def _without_weights(self):
        if not self.folder.is_dir():
            return FileNotFoundError(f"There is no folder {self.folder}.")
        pickles = sorted(p.name for p in self.folder.iterdir() if p.suffix in PICKLES)
        if pickles:
            return ValueError(
                f"{self.folder} has weights in {pickles[0]} only. Reading such a file can execute "
                f"what is in it, so it is refused; have it converted to {WEIGHTS} by somebody who "
                "trusts it."
            )
        return FileNotFoundError(f"There is no file {WEIGHTS} in {self.folder}.")

    def read(self, name):
        """A tensor as a NumPy array; floating ones in float32."""
        found = self._files[self._place[name]].get_tensor(name)
        return found.astype("float32", copy=False) if found.dtype.kind in "fV" else found


def _opened(path):
    """A safetensors file whose header has been checked."""
    import safetensors

    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with open(path, "rb") as file:
        first = file.read(8)
    if first[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"PK"):
        raise ValueError(
            f"{path} is a pickle under another name. Reading it could execute what is in it, so it "
            "is refused."
        )
    try:
        return safetensors.safe_open(path, framework="numpy")
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}.") from None


def write_tensors(folder, tensors):
    """Writes a dict of NumPy arrays as `model.safetensors`."""
    from safetensors.numpy import save_file

    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    save_file(tensors, pathlib.Path(folder, WEIGHTS), metadata={"format": "pt"})


def write_json(folder, name, content):
    """Writes a JSON file as the hub has them."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
    pathlib.Path(folder, name).write_text(text + "\n", encoding="utf-8")
