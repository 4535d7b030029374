"""Tokenizers written as the folders of published ones have them."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

from keras_transformers.annotations import StrPath
from keras_transformers.pretrained.any_fast_tokenizer import write_fast
from keras_transformers.pretrained.files import write_json
from keras_transformers.pretrained.piece_tokenizers import OF_FAIRSEQ, write_pieces
from keras_transformers.pretrained.siglip_tokenizer import write_siglip
from keras_transformers.pretrained.tokenizer_settings import (
    BYTE_PAIRS,
    SETTINGS,
    class_with,
    write_added,
)

if TYPE_CHECKING:
    from keras_transformers.text.byte_pairs import BytePairTokenizer
    from keras_transformers.text.fairseq import FairseqTokenizer
    from keras_transformers.text.fast import FastTokenizer
    from keras_transformers.text.marian import MarianTokenizer
    from keras_transformers.text.pieces import PieceTokenizer
    from keras_transformers.text.wordpiece import WordPieceTokenizer


def save_tokenizer(
    tokenizer: PieceTokenizer | WordPieceTokenizer | BytePairTokenizer | FastTokenizer,
    folder: StrPath,
) -> pathlib.Path:
    """Writes a tokenizer as Hugging Face's `transformers` reads it.

    Args:
        tokenizer: A `text.MarianTokenizer`, `text.PieceTokenizer`, `text.WordPieceTokenizer`,
            `text.BytePairTokenizer`, `text.FairseqTokenizer`, `text.SiglipTokenizer` or
            `text.FastTokenizer`.
        folder: Path of the folder.

    Returns:
        The path, a `pathlib.Path`.

    Raises:
        ValueError: If it is of another kind, or no published class numbers its pieces so.

    Example:
    >>> import tempfile
    >>> from keras_transformers import pretrained
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"])
    >>> folder = pretrained.save_tokenizer(tokenizer, tempfile.mkdtemp())
    >>> sorted(path.name for path in folder.iterdir())
    ['tokenizer_config.json', 'vocab.txt']
    """
    from keras_transformers import text  # only who tokenizes needs TensorFlow

    writers: dict[type, Any] = {  # those first that are PieceTokenizers too
        text.MarianTokenizer: _marian,
        text.FairseqTokenizer: _fairseq,
        text.SiglipTokenizer: write_siglip,
        text.PieceTokenizer: write_pieces,
        text.WordPieceTokenizer: _word_pieces,
        text.BytePairTokenizer: _byte_pairs,
        text.FastTokenizer: write_fast,
    }
    write = next((write for kind, write in writers.items() if isinstance(tokenizer, kind)), None)
    if write is None:
        raise ValueError(
            "save_tokenizer: `tokenizer` must be a "
            f"{', '.join(kind.__name__ for kind in writers)}. Received: {type(tokenizer).__name__}"
        )
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = write(tokenizer, folder)
    if getattr(tokenizer, "added_tokens", ()):  # those of `tokenizer.json` are in it
        settings["added_tokens_decoder"] = write_added(tokenizer)
    write_json(folder, SETTINGS, settings)
    return folder


def _word_pieces(tokenizer: WordPieceTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    tokenizer.save(folder / "vocab.txt")
    return {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lower_case}


def _byte_pairs(tokenizer: BytePairTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    tokenizer.save(folder / "vocab.json", folder / "merges.txt")
    settings: dict[str, Any] = {"bos_token": tokenizer.start, "eos_token": tokenizer.end}
    if tokenizer.padding is not None:
        settings |= {"cls_token": tokenizer.start, "sep_token": tokenizer.end}
        settings["pad_token"] = tokenizer.padding
    settings["tokenizer_class"] = class_with(BYTE_PAIRS, settings.keys())
    return settings


def _fairseq(tokenizer: FairseqTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    (folder / OF_FAIRSEQ).write_bytes(tokenizer.proto)
    return {"tokenizer_class": "XLMRobertaTokenizer"}


def _marian(tokenizer: MarianTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    targets = tokenizer.for_targets()
    apart = targets.vocab != tokenizer.vocab
    for each, proto, vocab in (
        (tokenizer, "source.spm", "vocab.json"),
        (targets, "target.spm", "target_vocab.json" if apart else None),
    ):
        (folder / proto).write_bytes(each.proto)
        if vocab is not None:
            write_json(folder, vocab, {piece: i for i, piece in enumerate(each.vocab)})
    return {"tokenizer_class": "MarianTokenizer", "separate_vocabs": apart}
