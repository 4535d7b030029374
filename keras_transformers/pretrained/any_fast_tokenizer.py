"""A `tokenizer.json` of whatever kind, with what the files beside it say of its tokens."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformers.pretrained.files import write_json
from keras_transformers.pretrained.tokenizer_settings import (
    FAST,
    NAMED,
    TOKENIZER,
    added_tokens,
    content_of,
    defaults_of,
)

if TYPE_CHECKING:
    from keras_transformers.text.fast import FastTokenizer

# Which tokens of `tokenizer_config.json` have a role of ours, the first that is there.
ROLES = {
    "start": ("bos_token", "cls_token"),
    "end": ("eos_token", "sep_token"),
    "padding": ("pad_token",),
    "mask": ("mask_token",),
}


def read_fast(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str
) -> FastTokenizer:
    """The tokenizer of `tokenizer.json`, as the class that follows this file alone reads it.

    Raises:
        ValueError: If it is broken, or holds a part that no version of the file has.
    """
    from keras_transformers.text import FastTokenizer  # only who tokenizes needs TensorFlow

    try:
        definition, roles = _definition(folder, settings, fast, name)
        return FastTokenizer(definition, **roles)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{folder / TOKENIZER} is damaged: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{folder / TOKENIZER}: {error}") from None


def _definition(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str
) -> tuple[dict[str, Any], dict[str, str | None]]:
    vocab = fast["model"]["vocab"]
    numbers = (
        {piece: number for number, (piece, _) in enumerate(vocab)}
        if isinstance(vocab, list)
        else dict(vocab)
    )
    in_file = {entry["id"]: entry for entry in fast.get("added_tokens") or []}
    in_file |= {int(i): {**e, "id": int(i)} for i, e in _decoder(settings).items()}
    defaults = defaults_of(name, FAST)
    settings = {key: value for key, value in settings.items() if key != "added_tokens_decoder"}
    tokens = added_tokens(folder, settings, defaults, numbers, list(in_file.values()))
    for token in tokens:
        numbers.setdefault(token.content, len(numbers))
    added = [{"id": numbers[token.content], **dataclasses.asdict(token)} for token in tokens]
    definition = {**fast, "added_tokens": sorted(added, key=lambda token: token["id"])}
    named = {key: content_of(settings.get(key, defaults.get(key))) for key in NAMED}
    roles = {
        role: next((named[key] for key in keys if named[key] in numbers), None)
        for role, keys in ROLES.items()
    }
    return definition, roles


def _decoder(settings: dict[str, Any]) -> dict[str, Any]:
    found = settings.get("added_tokens_decoder") or {}
    return {
        number: entry if isinstance(entry, dict) else {"content": entry}
        for number, entry in found.items()
    }


def write_fast(tokenizer: FastTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes `tokenizer.json`; what belongs into `tokenizer_config.json`, a dict."""
    import json

    write_json(folder, TOKENIZER, json.loads(tokenizer.definition))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for role, keys in ROLES.items():
        token = getattr(tokenizer, role)
        if token is not None:
            settings[keys[0]] = token
    return settings
