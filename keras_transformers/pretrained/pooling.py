"""How a published sentence encoder makes one vector of the vectors of tokens."""

import json
import pathlib
from typing import Any

from keras_transformers.annotations import StrPath
from keras_transformers.pretrained.files import MOST_JSON, read_json
from keras_transformers.pretrained.names import find
from keras_transformers.pretrained.tokenizer_settings import lower_case, read_settings

MODULES, SETTINGS = "modules.json", "sentence_bert_config.json"
POOLING = pathlib.Path("1_Pooling", "config.json")
LENGTHS = (32, 64, 128, 256, 512)  # to which shorter texts are padded
OURS = {"mean": "mean", "cls": "token"}
OLDER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def load_pooling(folder: StrPath) -> dict[str, Any]:
    """The arguments with which `export.SentenceEncoder` answers as `sentence_transformers` does.

    Args:
        folder: Path of the folder, or its name on the hub, with `modules.json`, or with
            `1_Pooling/config.json` alone; of one with neither there is nothing to say.

    Returns:
        A dict of `pooling` ("mean" or "token") and `normalize`, and of `lengths` where long texts
        are cut; empty without such files.

    Raises:
        ValueError: If it has other modules than a transformer, its pooling and a normalisation, or
            pools otherwise.

    Example:
    >>> import json, pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> (folder / "1_Pooling").mkdir()
    >>> asked = {"embedding_dimension": 384, "pooling_mode": "cls"}
    >>> _ = (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
    >>> pretrained.load_pooling(folder)
    {'pooling': 'token', 'normalize': True}
    """
    folder = find(folder, weights=False)
    if not (folder / MODULES).is_file():
        if not (folder / POOLING).is_file():
            return {}
        return {"pooling": _pooling(folder, POOLING), "normalize": True}
    modules = _modules(folder)
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ValueError(
            f"{folder / MODULES} must have the modules Transformer, Pooling and, if need be, "
            f"Normalize. Received: {', '.join(kinds) or 'none'}"
        )
    if modules[0][1]:
        raise ValueError(
            f"{folder / MODULES}: the Transformer must lie in the folder itself. "
            f"Received: {modules[0][1]!r}"
        )
    found = {
        "pooling": _pooling(folder, pathlib.Path(modules[1][1], "config.json")),
        "normalize": kinds[2:] == ["Normalize"],
    }
    return found | _limits(folder)


def _modules(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Names of the classes, and the paths."""
    where = folder / MODULES
    try:
        text = where.read_bytes()[:MOST_JSON].decode("utf-8-sig")
        found = [(entry["type"], entry.get("path", "")) for entry in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{where} must be a list of modules, with `type` and `path`.") from None
    for kind, path in found:
        parts = pathlib.PurePosixPath(str(path)).parts
        if str(path).startswith("/") or ".." in parts:
            raise ValueError(f"{where}: a module must lie in the folder. Received: {path!r}")
        if not str(kind).startswith("sentence_transformers."):
            raise ValueError(
                f"{where}: modules must be of sentence_transformers. Received: {kind!r}"
            )
    return [(kind.rpartition(".")[2], path) for kind, path in found]


def _pooling(folder: pathlib.Path, path: StrPath) -> str:
    asked = read_json(folder, path)
    modes = asked.get("pooling_mode")
    if modes is None:
        older = [mode for name, mode in OLDER.items() if asked.get(name) is True]
        modes = older or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in OURS:
        raise ValueError(
            f"{folder / path} must ask for the mean or the first token (cls). "
            f"Received: {', '.join(map(str, modes))}"
        )
    return OURS[modes[0]]


def _limits(folder: pathlib.Path) -> dict[str, Any]:
    """Of the transformer: how long texts may be."""
    if not (folder / SETTINGS).is_file():
        return {}
    asked = read_json(folder, SETTINGS)
    if asked.get("do_lower_case") and not lower_case(folder, read_settings(folder)):
        raise ValueError(
            f"{folder / SETTINGS}: with a tokenizer of upper and lower case, `do_lower_case` must "
            "be false. Received: true"
        )
    longest = asked.get("max_seq_length")
    if longest is None:
        return {}
    if not isinstance(longest, int) or longest < 3:
        raise ValueError(
            f"{folder / SETTINGS}: `max_seq_length` must be an integer, 3 or more. "
            f"Received: {longest!r}"
        )
    return {"lengths": (*(length for length in LENGTHS if length < longest), longest)}
