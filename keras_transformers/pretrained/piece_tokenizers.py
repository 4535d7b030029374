"""Published tokenizers that SentencePiece cuts: how each class numbers the pieces and its marks."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keras_transformers.pretrained.fast_tokenizer import in_order
from keras_transformers.pretrained.files import read_json, write_json
from keras_transformers.pretrained.language_codes import M2M_100, MBART, MBART_50, NLLB, WMT_21
from keras_transformers.pretrained.tokenizer_settings import (
    SENTENCE_PIECES,
    SETTINGS,
    added_tokens,
    defaults_of,
)

if TYPE_CHECKING:
    from keras_transformers.text.languages import Languages
    from keras_transformers.text.pieces import PieceTokenizer

OF_FAIRSEQ, OF_GOOGLE = "sentencepiece.bpe.model", "spiece.model"
NUMBERS = "vocab.json"  # of M2M-100
XLM_R = "XLMRobertaTokenizer"
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
PEGASUS_OFFSET, EXTRA_IDS = 103, 100
CODES = {"m2m100": M2M_100, "wmt21": WMT_21}
# What a function of pieces and settings gives: the vocabulary, in the order of its ids.
Numbering: TypeAlias = Callable[[list[str], dict[str, Any]], list[str]]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a published class lays out its tokenizer.

    Args:
        file: Name of the SentencePiece model.
        first: The pieces that this begins with.
        vocab: Its `Numbering`.
        special: Function of the settings that gives the special tokens besides named ones.
        codes: Codes of its languages, or None.
        source: The language of the texts where nothing is said.
        behind: Whether a language's token stands behind END.
    """

    file: str
    first: tuple[str, ...]
    vocab: Numbering
    special: Callable[[dict[str, Any]], Sequence[str]]
    codes: Sequence[str] | None = None
    source: str = ""
    behind: bool = False

    def codes_in(self, settings: dict[str, Any]) -> Sequence[str] | None:
        """Codes of its languages by the settings."""
        return CODES[settings["language_codes"]] if "language_codes" in settings else self.codes


def _of_fairseq(codes: Sequence[str] = (), source: str = "", behind: bool = False) -> Layout:
    """One that numbers as fairseq does: its marks, the pieces, the languages, and the mask."""
    return Layout(
        OF_FAIRSEQ,
        ("<unk>", "<s>", "</s>"),
        lambda pieces, settings: [*FAIRSEQ, *pieces[3:], *codes, "<mask>"],
        lambda settings: codes,
        codes or None,
        source,
        behind,
    )


def _m2m_tokens(settings: dict[str, Any]) -> list[str]:
    return [f"__{code}__" for code in CODES[settings.get("language_codes", "m2m100")]]


def _unknown(settings: dict[str, Any]) -> list[str]:
    return ["<mask_1>", *(f"<unk_{i}>" for i in range(2, PEGASUS_OFFSET))]


def _extra(settings: dict[str, Any]) -> list[str]:
    """Marks of T5 for what is left out of a text, the last one first."""
    return [f"<extra_id_{i}>" for i in reversed(range(settings.get("extra_ids", EXTRA_IDS)))]


LAYOUTS = {
    "MBartTokenizer": _of_fairseq(MBART, "en_XX", behind=True),
    "MBart50Tokenizer": _of_fairseq(MBART_50, "en_XX"),
    "NllbTokenizer": _of_fairseq(NLLB, "eng_Latn"),
    XLM_R: _of_fairseq(),
    "M2M100Tokenizer": Layout(
        OF_FAIRSEQ,
        (),
        lambda pieces, settings: [*settings["vocab"], *_m2m_tokens(settings)],
        _m2m_tokens,
        M2M_100,
        "en",
    ),
    "PegasusTokenizer": Layout(
        OF_GOOGLE,
        ("<pad>", "</s>"),
        lambda pieces, settings: [
            "<pad>", "</s>", "<mask_1>", "<mask_2>", *_unknown(settings)[1:], *pieces[2:]
        ],
        _unknown,
    ),
    "T5Tokenizer": Layout(
        OF_GOOGLE,
        ("<pad>", "</s>", "<unk>"),
        lambda pieces, settings: [*pieces, *_extra(settings)],
        _extra,
    ),
}  # fmt: skip


def read_pieces(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None,
    languages: tuple[str, str] | None,
) -> PieceTokenizer:  # fmt: skip
    """The tokenizer of a folder with a SentencePiece model.

    Args:
        folder: Its path.
        there: Names of its files.
        settings: What `read_settings` gives.
        fast: The content of `tokenizer.json`, empty where there is none.
        name: The published class, one of `LAYOUTS`.
        languages: Codes of the source's and the target's language, in place of the settings'.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is broken, or there are no such languages.
    """
    from keras_transformers.text import (
        FairseqTokenizer,
        Languages,
        PieceTokenizer,
        SentencePieceTokenizer,
    )

    if name not in LAYOUTS:
        raise ValueError(
            f"{folder}: {SETTINGS} or config.json must name the class of the tokenizer, one of "
            f"{', '.join(LAYOUTS)}. Received: {name!r}"
        )
    layout = LAYOUTS[name]
    needed = {layout.file, NUMBERS} if name == "M2M100Tokenizer" else {layout.file}
    if not needed <= there:
        raise FileNotFoundError(
            f"{folder} must have {' and '.join(sorted(needed))}, for a {name}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )
    proto = SentencePieceTokenizer.read(folder / layout.file)
    pieces = _pieces(proto)
    if tuple(pieces[: len(layout.first)]) != layout.first:
        raise ValueError(
            f"{folder / layout.file}: the first pieces must be {', '.join(layout.first)}, for a "
            f"{name}. Received: {', '.join(pieces[: len(layout.first)])}"
        )
    if NUMBERS in needed:
        settings["vocab"] = in_order(read_json(folder, NUMBERS), folder / NUMBERS)
    try:
        asked = languages_of(name, settings, languages)
        vocab = layout.vocab(pieces, settings)
        numbers = {piece: number for number, piece in enumerate(vocab)}
        defaults, listing = defaults_of(name, SENTENCE_PIECES), _listing(layout, settings)
        tokens = added_tokens(folder, listing, defaults, numbers, fast.get("added_tokens"))
        if name == XLM_R:
            tokens.sort(key=lambda token: numbers.get(token.content, len(numbers)))
            return FairseqTokenizer(proto, [each for each in tokens if each.content not in FAIRSEQ])
        return PieceTokenizer(proto, vocab, tokens, Languages(**asked) if asked else None)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _listing(layout: Layout, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with all special tokens in the one list that `added_tokens` reads."""
    settings, extra = dict(settings), [*layout.special(settings)]
    for name in ("extra_special_tokens", "additional_special_tokens"):
        more = settings.pop(name, None) or []
        extra += more.values() if isinstance(more, dict) else more
    unread = {"vocab", "mask_token_sent", "language_codes"}
    kept = {key: value for key, value in settings.items() if key not in unread}
    return {**kept, "extra_special_tokens": extra}


def languages_of(
    name: str | None, settings: dict[str, Any], languages: tuple[str, str] | None
) -> dict[str, Any] | None:
    """Arguments of `text.Languages` for a published class; None where it has none.

    Args:
        name, settings, languages: As for `read_pieces`.

    Raises:
        ValueError: If languages are asked for where there are none.
    """
    layout = LAYOUTS.get(name or "")
    codes = None if layout is None else layout.codes_in(settings)
    if layout is None or codes is None:
        if languages is not None:
            raise ValueError(
                f"`languages` must be None for such a tokenizer. Received: {languages}"
            )
        return None
    pattern = "__{}__" if layout is LAYOUTS["M2M100Tokenizer"] else "{}"
    source, target = languages or (settings.get("src_lang"), settings.get("tgt_lang"))
    return {
        "tokens": {code: pattern.format(code) for code in codes},
        "source": source or layout.source,
        "target": target,
        "behind": settings.get("legacy_behaviour", False) or layout.behind,
    }


def class_with_languages(languages: Languages) -> str:
    """The published class of a `tokenizer.json` that has such languages; ValueError if none."""
    for name, layout in LAYOUTS.items():
        either = name == "NllbTokenizer"  # its first version had the token behind END
        known = languages.tokens.keys() <= {*(layout.codes or ())}
        if name != "M2M100Tokenizer" and known and (either or layout.behind == languages.behind):
            return name
    raise ValueError(
        "save_tokenizer: the languages must be those of a published class, MBartTokenizer, "
        f"MBart50Tokenizer or NllbTokenizer. Received: {', '.join(languages.tokens)}"
    )


def said_of(name: str, languages: Languages) -> dict[str, Any]:
    """What `tokenizer_config.json` must say of the languages of a published class."""
    said: dict[str, Any] = {"src_lang": languages.source, "tgt_lang": languages.target}
    return said | ({"legacy_behaviour": languages.behind} if name == "NllbTokenizer" else {})


def _pieces(proto: bytes) -> list[str]:
    from keras_transformers.text.sentence_pieces import SentencePieces

    model = SentencePieces("load_tokenizer", proto)
    return model.names(range(model.size))


def write_pieces(tokenizer: PieceTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the files of a tokenizer; returns what `tokenizer_config.json` must say.

    Raises:
        ValueError: If no published class numbers its pieces so.
    """
    vocab, languages = list(tokenizer.get_config()["vocab"]), tokenizer.languages
    pieces = _pieces(tokenizer.proto)
    for name, layout in LAYOUTS.items():
        settings: dict[str, Any] = {"tokenizer_class": name}
        if name == "T5Tokenizer":
            settings["extra_ids"] = sum(piece.startswith("<extra_id_") for piece in vocab)
        if name == "M2M100Tokenizer":
            if languages is None or not vocab[-1].startswith("__"):
                continue
            if len(languages.tokens) == len(WMT_21):
                settings["language_codes"] = "wmt21"
            settings["vocab"] = vocab[: -len(languages.tokens)]
        if layout.vocab(pieces, settings) != vocab:
            continue
        if languages is not None:
            settings |= said_of(name, languages)
        numbered = settings.pop("vocab", None)
        if numbered is not None:
            write_json(folder, NUMBERS, {piece: i for i, piece in enumerate(numbered)})
        (folder / layout.file).write_bytes(tokenizer.proto)
        return settings
    raise ValueError(
        f"save_tokenizer: the vocabulary must be numbered as in one of {', '.join(LAYOUTS)}."
    )
