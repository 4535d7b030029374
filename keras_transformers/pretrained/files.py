"""The files of a published folder, which are never executed, and names on the hub."""

import json
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_transformers.core.types import Array, StrPath
from keras_transformers.saving.model import entries, open_tensors
from keras_transformers.saving.untrusted_files import parse_json

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


NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
# Names of the hub's first years, without an organization, of families that are known here. Another
# word alone is a folder's, mistyped or of another place: nobody is asked for it.
OLD_NAME = re.compile(
    r"gpt2(-medium|-large|-xl)?|distilgpt2|t5-(small|base|large|3b|11b)|distilroberta-base"
    r"|(bert|distilbert|roberta|xlm-roberta)-(base|large)(-\w+)*"
)
# A revision is a branch, a tag or a commit; a branch may have slashes in it.
REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w./-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")
# What is read here: weights without code in them, and the files of settings and tokenizers.
WEIGHT_PATTERNS = ("model.safetensors", "model-*-of-*.safetensors")
SETTINGS = ("*.json", "*.txt", "*.model", "*.spm")
UNWANTED = ("onnx/*", "openvino/*", "coreml/*", "*.bin.index.json", "README.txt", "training_args*")
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def find(name: StrPath, revision: str | None = None, weights: bool = True) -> pathlib.Path:
    """The folder of a published model, by its path or by its name on the Hugging Face hub.

    Looked for in this order: a local folder; the user's cache, as `huggingface_hub` lays it out
    (`HF_HUB_CACHE`, or `hub` in `HF_HOME`); the hub itself, if the package `huggingface_hub` is
    installed and the environment does not say `HF_HUB_OFFLINE`. Of the hub, safetensors and the
    files of settings and tokenizers are downloaded, nothing that could be executed.

    What may be a mistyped path is never asked of the hub: a word without an organization, but for
    the hub's oldest names ("gpt2", "bert-base-uncased"), and "runs/model" where there is a folder
    `runs`.

    Args:
        name: Path of a folder, or "organization/model".
        revision: Branch, tag or commit of a name; by default "main". Of no meaning to a folder,
            and refused there.
        weights: Whether a model is needed; of a tokenizer or settings alone no weights are fetched.

    Returns:
        Path of the folder.

    Raises:
        FileNotFoundError: If there is neither such a folder nor such a name; the message says which
            command fetches it.
        ValueError: If `revision` is given with a folder, or is none.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = tempfile.mkdtemp()
    >>> pretrained.find(folder) == pathlib.Path(folder)
    True
    """
    path = pathlib.Path(name)
    if revision is not None and not REVISION.fullmatch(revision):
        raise ValueError(
            f"load: `revision` must be a branch, a tag or a commit. Received: {revision!r}"
        )
    if path.is_dir():
        if revision is not None:
            raise ValueError(
                f"load: `revision` must be None for a folder, which {name} is. "
                f"Received: {revision!r}"
            )
        return path
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise FileNotFoundError(f"load: there is no folder {name}.")
    return _cached(name, revision, weights) or _downloaded(name, revision, weights)


def _check_asked(name: str) -> None:
    """FileNotFoundError for what the hub is not asked for, because it may be a mistyped path."""
    organization, _, model = name.rpartition("/")
    if not organization and not OLD_NAME.fullmatch(model):
        raise FileNotFoundError(
            f"load: there is no folder {name}, and no such model in {cache_folder()}; a name on "
            'the hub is "organization/model".'
        )
    if organization and pathlib.Path(organization).is_dir():
        raise FileNotFoundError(
            f"load: there is no folder {name}, only {organization}, and no such model in "
            f"{cache_folder()}; `hf download {name}` fetches it if it is a name on the hub."
        )


def cache_folder() -> pathlib.Path:
    """Where `huggingface_hub` keeps what it has downloaded."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return pathlib.Path(os.path.expanduser(os.path.expandvars(os.environ[variable])))
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    # Where there is no home directory, this names a folder that is not there.
    return pathlib.Path(os.path.expanduser(os.path.expandvars(home)), "hub")


def _cached(name: str, revision: str | None, weights: bool) -> pathlib.Path | None:
    """The snapshot of a revision in the cache, None where it is not there or lacks files."""
    folder = cache_folder() / f"models--{name.replace('/', '--')}"
    commit = revision or "main"
    reference = folder / "refs" / commit
    if not COMMIT.fullmatch(commit):
        if not reference.is_file():
            return None
        commit = reference.read_text(encoding="utf-8").strip()
        if not COMMIT.fullmatch(commit):
            raise ValueError(f"{reference} must hold a commit. Received: {commit[:50]!r}")
    snapshot = folder / "snapshots" / commit
    # Other programs leave snapshots of a file or two, and interrupted ones some shards.
    there = {path.name for path in snapshot.iterdir()} if snapshot.is_dir() else set()
    whole = "config.json" in there and (not weights or _shards(snapshot, there) <= there)
    return snapshot if whole else None


def _shards(snapshot: pathlib.Path, there: set[str]) -> set[str]:
    """Names of the files with weights."""
    if INDEX in there and WEIGHTS not in there:
        return set(read_json(snapshot, INDEX).get("weight_map", {"": WEIGHTS}).values())
    return {WEIGHTS}


def _downloaded(name: str, revision: str | None, weights: bool) -> pathlib.Path:
    _check_asked(name)
    at = "" if revision is None else f" --revision {revision}"
    missing = f"load: there is no folder {name}, and no such model in {cache_folder()}"
    command = f"hf download {name}{at}"
    if any(os.environ.get(each, "").upper() in ("1", "ON", "YES", "TRUE") for each in OFFLINE):
        raise FileNotFoundError(f"{missing}; run `{command}` where there is a network.")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        install = 'pip install "keras_transformers[hub]"'
        raise FileNotFoundError(
            f"{missing}; run `{install}` to have it downloaded from the hub."
        ) from None
    try:
        wanted = [*SETTINGS, *(WEIGHT_PATTERNS if weights else ())]
        folder = snapshot_download(
            name, revision=revision, allow_patterns=wanted, ignore_patterns=list(UNWANTED)
        )
    except Exception as error:  # whatever a network gives
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise FileNotFoundError(
            f"{missing}, and it could not be downloaded ({reason}); run `{command}` where there is "
            "a network."
        ) from error
    return pathlib.Path(folder)


MOST_CLASSES = 1 << 20


def class_names(folder: StrPath) -> list[str]:
    """Names of the classes of a published model, a list in the order of its logits.

    Args:
        folder: Path of the folder.

    Raises:
        FileNotFoundError: If there is no `config.json`.
        ValueError: If it does not name classes.

    Example:
    >>> import tempfile
    >>> from keras_transformers import models, pretrained
    >>> model = models.ViT.from_variant("Ti/16", 2, image_size=32, num_layers=1)
    >>> model.build((None, 32, 32, 3))
    >>> pretrained.class_names(pretrained.save(model, tempfile.mkdtemp(), classes=["cat", "dog"]))
    ['cat', 'dog']
    """
    folder = find(folder, weights=False)
    return classes_of(read_json(folder, CONFIG), f"{folder / CONFIG}")


def classes_of(config: dict[str, Any], where: Any) -> list[str]:
    """Names of the classes of a configuration; `where` is its file, for messages."""
    named = config.get("id2label")
    if named is None:
        number = config.get("num_labels", 2)
        if not isinstance(number, int) or not 0 < number <= MOST_CLASSES:
            raise ValueError(
                f"{where}: `num_labels` must be from 1 to {MOST_CLASSES}. Received: {number!r}"
            )
        return [f"LABEL_{i}" for i in range(number)]
    try:
        return [str(named[str(i)]) for i in range(len(named))]
    except (KeyError, TypeError):
        raise ValueError(
            f"{where}: `id2label` must map '0', '1', ... to names. Received: {str(named)[:100]}"
        ) from None
