"""A `tokenizer.json` of whatever kind, with what the files beside it say of its tokens."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformers.pretrained.files import write_json
from keras_transformers.pretrained.piece_tokenizers import (
    class_with_languages,
    languages_of,
    said_of,
)
from keras_transformers.pretrained.tokenizer_settings import (
    CLASSES,
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

# Classes without a token that a text begins with: decoding starts with padding.
START_WITH_PADDING = ("T5Tokenizer", "PegasusTokenizer")


def read_fast(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str,
    languages: tuple[str, str] | None = None,
) -> FastTokenizer:  # fmt: skip
    """The tokenizer of `tokenizer.json`, as the class that follows this file alone reads it.

    Args:
        folder, settings, languages: As for `read_pieces`.
        fast: The content of the file.
        name: The published class; that of a translator of many languages says which there are.

    Raises:
        ValueError: If it is broken, or holds a part that no version of the file has, or there are
            no such languages.
    """
    from keras_transformers.text import FastTokenizer  # only who tokenizes needs TensorFlow

    try:
        definition, roles, numbers = _definition(folder, settings, fast, name)
        asked = languages_of(name, settings, languages)
        if asked is not None:  # those that a smaller vocabulary has left
            tokens = {code: token for code, token in asked["tokens"].items() if token in numbers}
            asked["tokens"] = tokens
        return FastTokenizer(definition, **roles, languages=asked)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{folder / TOKENIZER} is damaged: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{folder / TOKENIZER}: {error}") from None


def _definition(
    folder: pathlib.Path, settings: dict[str, Any], fast: Any, name: str
) -> tuple[dict[str, Any], dict[str, str | None], dict[str, int]]:
    vocab = fast["model"]["vocab"]
    numbers = (
        {piece: number for number, (piece, _) in enumerate(vocab)}
        if isinstance(vocab, list)
        else dict(vocab)
    )
    in_file = {entry["id"]: entry for entry in fast.get("added_tokens") or []}
    in_file |= {int(i): {**e, "id": int(i)} for i, e in _decoder(settings).items()}
    defaults = defaults_of(name, CLASSES.get(name, FAST))
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
    if name in START_WITH_PADDING:
        roles["start"] = roles["padding"]
    elif not _begins(fast.get("post_processor")):
        roles["start"] = None  # named, but the published code puts it before no text
    return definition, roles, numbers


def _begins(post_processor: Any) -> bool:
    """Whether the file puts something before a text."""
    from keras_transformers.text.templates import read_template

    return bool(read_template(post_processor).before)


def _decoder(settings: dict[str, Any]) -> dict[str, Any]:
    found = settings.get("added_tokens_decoder") or {}
    return {
        number: entry if isinstance(entry, dict) else {"content": entry}
        for number, entry in found.items()
    }


def write_fast(tokenizer: FastTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes `tokenizer.json`; what belongs into `tokenizer_config.json`, a dict."""
    definition = json.loads(tokenizer.definition)
    write_json(folder, TOKENIZER, definition)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if tokenizer.start is not None and tokenizer.start == tokenizer.padding:
        # Only the class says so. PEGASUS has a second token that stands for hidden sentences.
        is_pegasus = "<mask_2>" in json.dumps(definition, ensure_ascii=False)
        settings = {"tokenizer_class": START_WITH_PADDING[is_pegasus]}
    if tokenizer.languages is not None:
        name = class_with_languages(tokenizer.languages)
        settings = {"tokenizer_class": name, **said_of(name, tokenizer.languages)}
    for role, keys in ROLES.items():
        token = getattr(tokenizer, role)
        if token is not None:
            settings[keys[0]] = token
    return settings
