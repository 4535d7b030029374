"""SigLIP's tokenizer of a folder, read and written."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformers.pretrained.piece_tokenizers import OF_GOOGLE
from keras_transformers.pretrained.tokenizer_settings import (
    SIGLIP,
    added_tokens,
    content_of,
    defaults_of,
)

if TYPE_CHECKING:
    from keras_transformers.text.siglip import SiglipTokenizer


def read_siglip(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None
) -> SiglipTokenizer:
    """The tokenizer of `spiece.model`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is broken.
    """
    from keras_transformers.text import SentencePieceTokenizer, SiglipTokenizer
    from keras_transformers.text.sentence_pieces import SentencePieces

    if OF_GOOGLE not in there:
        raise FileNotFoundError(
            f"{folder} must have {OF_GOOGLE}, for a tokenizer of {SIGLIP}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )
    proto = SentencePieceTokenizer.read(folder / OF_GOOGLE)
    model = SentencePieces("load_tokenizer", proto)
    pieces = model.names(range(model.size))
    defaults = defaults_of(name, SIGLIP)
    # A name alone stands for the default, which says more of it.
    said = {k: v for k, v in settings.items() if v != content_of(defaults.get(k))}
    numbers = {piece: number for number, piece in enumerate(pieces)}
    try:
        tokens = added_tokens(folder, said, defaults, numbers)
        return SiglipTokenizer(proto, pieces, tokens, settings.get("do_lower_case", True))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def write_siglip(tokenizer: SiglipTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes `spiece.model`; what belongs into `tokenizer_config.json`, a dict."""
    (folder / OF_GOOGLE).write_bytes(tokenizer.proto)
    return {"tokenizer_class": "SiglipTokenizer", "do_lower_case": tokenizer.lower_case}
