"""The files of a published folder, read with suspicion: nothing in them is ever executed."""

import json
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath
from keras_transformers.saving.strict_json import parse_json
from keras_transformers.saving.tensor_file import entries, open_tensors

CONFIG = "config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER = "tokenizer_config.json"
CHAT_TEMPLATES = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt", ".msgpack", ".h5")
MOST_VALUES = 1 << 22  # of a tensor, in memory beside the model
MOST_JSON = 64 << 20  # bytes; the largest vocabularies have some ten million


def read_json(folder: StrPath, name: StrPath) -> dict[str, Any]:
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
    return parse_json(path.read_bytes(), MOST_JSON, path, containers=math.inf)


def has_chat_template(folder: StrPath) -> bool:
    """Whether it says how the turns of a conversation become one text."""
    if any(pathlib.Path(folder, name).exists() for name in CHAT_TEMPLATES):
        return True
    there = pathlib.Path(folder, TOKENIZER).is_file()
    return there and read_json(folder, TOKENIZER).get("chat_template") is not None


class Tensors:
    """The tensors of `model.safetensors`, or of its shards, by name; read one at a time.

    Args:
        folder: Path of the folder.
        file: Name of another file that holds all of them.

    Raises:
        FileNotFoundError: If there are no such files.
        ValueError: If a file is no safetensors file, is cut, or its header does not fit its size;
            if a shard lies outside the folder; or if there is only a pickle.
    """

    def __init__(self, folder: StrPath, file: str = WEIGHTS) -> None:
        self.folder, self.file = pathlib.Path(folder), file
        self._position: dict[str, str] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for shard, listed in self._shards().items():
            inside = entries(open_tensors(self.folder / shard))
            names = set(inside)
            lacking = sorted(set(listed or names) - names)
            if lacking:
                raise ValueError(
                    f"{self.folder / INDEX} says that {shard} holds {lacking[0]}, which it does "
                    "not."
                )
            self._position |= dict.fromkeys(listed or names, shard)
            self.shapes |= {name: inside[name][0] for name in listed or names}

    def _shards(self) -> dict[str, list[str] | None]:
        """File -> names that the index says it holds, or None without an index."""
        if (self.folder / self.file).is_file():
            return {self.file: None}
        if self.file != WEIGHTS or not (self.folder / INDEX).is_file():
            raise self._without_weights()
        weight_map = read_json(self.folder, INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"{self.folder / INDEX} must have a `weight_map` of names to files.")
        shards: dict[str, Any] = {}
        for name, file in weight_map.items():
            plain = isinstance(file, str) and file.endswith(".safetensors")
            if not plain or pathlib.PurePosixPath(file).name != file or "\\" in file:
                raise ValueError(
                    f"{self.folder / INDEX}: {name} must lie in a .safetensors file of the same "
                    f"folder. Received: {file!r}"
                )
            shards.setdefault(file, []).append(name)
        return shards

    def _without_weights(self) -> Exception:
        if not self.folder.is_dir():
            return FileNotFoundError(f"There is no folder {self.folder}.")
        pickles = sorted(p.name for p in self.folder.iterdir() if p.suffix in PICKLES)
        if pickles:
            return ValueError(
                f"{self.folder} has weights in {pickles[0]} only. Reading such a file can execute "
                f"what is in it, so it is refused; have it converted to {self.file} by somebody "
                "who trusts it."
            )
        return FileNotFoundError(f"There is no file {self.file} in {self.folder}.")

    def read(self, name: str, rows: slice | None = None) -> Array:
        """A tensor as a NumPy array, or some of its rows, in the file's type."""
        import safetensors

        # Opened anew each time: what of a file has been read stays in memory while it is open.
        with safetensors.safe_open(self.folder / self._position[name], "numpy") as file:
            return file.get_tensor(name) if rows is None else file.get_slice(name)[rows]

    def parts(self, name: str) -> Iterator[Array]:
        """A tensor as the rows that are read at once, one part after the other."""
        shape = self.shapes[name]
        if math.prod(shape) <= MOST_VALUES:
            yield self.read(name)
            return
        step = max(1, MOST_VALUES // math.prod(shape[1:]))
        for start in range(0, shape[0], step):
            yield self.read(name, slice(start, min(start + step, shape[0])))


def write_tensors(folder: pathlib.Path, tensors: dict[str, Array], file: str = WEIGHTS) -> None:
    """Writes a dict of NumPy arrays as a safetensors file."""
    from safetensors.numpy import save_file

    tensors = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    save_file(tensors, pathlib.Path(folder, file), metadata={"format": "pt"})


def write_json(folder: pathlib.Path, name: str, content: Any) -> None:
    """Writes a JSON file as the hub has them."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
    pathlib.Path(folder, name).write_text(text + "\n", encoding="utf-8")
