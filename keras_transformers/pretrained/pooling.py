"""Pooling of published sentence encoders."""

import itertools
import json
import pathlib
from typing import Any

from keras_transformers.core.types import StrPath
from keras_transformers.pretrained.files import MOST_JSON, find, read_json
from keras_transformers.pretrained.tokenizer_settings import lower_case, read_settings

MODULES, SETTINGS = "modules.json", "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
POOLING = pathlib.Path("1_Pooling", "config.json")
SHORTEST, LONGEST = 32, 1 << 17  # to which texts are padded, in steps of a factor of 2
# Of the transformer; others are for chats, for images, or for vectors of every token.
SETTLED: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction", "fill-mask"),
    "module_output_name": ("token_embeddings",),
    "processing_kwargs": ({},),
    "query_length": (),
    "document_length": (),
    "query_expansion": (),
}
OURS = {"mean": "mean", "cls": "token"}
OLDER = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def load_pooling(folder: StrPath, prompt: str | None = None) -> dict[str, Any]:
    """The arguments with which `export.SentenceEncoder` answers as `sentence_transformers` does.

    Args:
        folder: Path of the folder, or its name on the hub, with `modules.json`, or with
            `1_Pooling/config.json` alone; of one with neither there is nothing to say.
        prompt: Name of one of the `prompts` of `config_sentence_transformers.json`, which is put in
            front of every text, for instance "query"; by default its `default_prompt_name`, mostly
            none. Other prefixes, as a model's card has them, are `prompt` of
            `export.SentenceEncoder`.

    Returns:
        A dict of `pooling` ("mean" or "token") and `normalize`, of `lengths` where long texts are
        cut, and of `prompt` where there is one; empty without such files.

    Raises:
        ValueError: If it has other modules than a transformer, its pooling and a normalisation,
            pools otherwise or without the tokens of the prompt, or has no prompt of that name.

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
            return {"prompt": text} if (text := _prompt(folder, prompt)) else {}
        asked = {"pooling": _pooling(folder, POOLING), "normalize": True}
        return asked | _prompt_of(folder, POOLING, prompt)
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
    path = pathlib.Path(modules[1][1], "config.json")
    found = {"pooling": _pooling(folder, path), "normalize": kinds[2:] == ["Normalize"]}
    return found | _limits(folder) | _prompt_of(folder, path, prompt)


def _modules(folder: pathlib.Path) -> list[tuple[str, str]]:
    """Names of the classes, and the paths."""
    where = folder / MODULES
    try:
        text = where.read_bytes()[:MOST_JSON].decode("utf-8-sig")
        found = [(entry["type"], entry.get("path", "")) for entry in json.loads(text)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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


def _prompt(folder: pathlib.Path, name: str | None) -> str:
    """The text of a prompt, or of the default one."""
    asked = read_json(folder, PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompts = {"query": "", "document": ""} if asked else {}
    prompts |= {key: text or "" for key, text in (asked.get("prompts") or {}).items()}
    chosen = asked.get("default_prompt_name") if name is None else name
    if chosen is None:
        return ""
    if chosen not in prompts:
        what = "`default_prompt_name`" if name is None else "`prompt`"
        raise ValueError(
            f"{folder / PROMPTS}: {what} must be one of {', '.join(prompts) or 'none'}. "
            f"Received: {chosen!r}"
        )
    return str(prompts[chosen])


def _prompt_of(folder: pathlib.Path, path: StrPath, name: str | None) -> dict[str, Any]:
    """A prompt as an argument, none if it is empty."""
    text = _prompt(folder, name)
    if text and read_json(folder, path).get("include_prompt", True) is False:
        raise ValueError(
            f"{folder / path}: with the prompt {text!r}, `include_prompt` must be true. "
            "Received: false"
        )
    return {"prompt": text} if text else {}


def _limits(folder: pathlib.Path) -> dict[str, Any]:
    """Of the transformer: how long texts may be."""
    asked = read_json(folder, SETTINGS) if (folder / SETTINGS).is_file() else {}
    for name, values in SETTLED.items():
        if asked.get(name) is not None and asked[name] not in values:
            expected = " or ".join(map(repr, (None, *values)))
            raise ValueError(
                f"{folder / SETTINGS}: `{name}` must be {expected}. Received: {asked[name]!r}"
            )
    if asked.get("do_lower_case") and not lower_case(folder, read_settings(folder)):
        raise ValueError(
            f"{folder / SETTINGS}: with a tokenizer of upper and lower case, `do_lower_case` must "
            "be false. Received: true"
        )
    longest = asked.get("max_seq_length")
    if longest is None:
        longest = read_settings(folder).get("model_max_length")
        if not isinstance(longest, int) or longest > LONGEST:  # a number for "as long as you like"
            return {}
    if not isinstance(longest, int) or longest < 3:
        raise ValueError(
            f"{folder / SETTINGS}: `max_seq_length` must be an integer, 3 or more. "
            f"Received: {longest!r}"
        )
    powers = (SHORTEST << i for i in range(LONGEST.bit_length()))
    return {"lengths": (*itertools.takewhile(lambda length: length < longest, powers), longest)}
