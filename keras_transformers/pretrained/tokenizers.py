"""Tokenizers of published folders, read and written."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import TYPE_CHECKING, Any, cast

from keras_transformers.core.types import StrPath
from keras_transformers.pretrained.files import find, read_json, write_json
from keras_transformers.pretrained.tokenizer_settings import (
    BYTE_PAIRS,
    CLASSES,
    END,
    FAST,
    GENERIC,
    MARIAN,
    NAMED,
    OF_FAIRSEQ,
    SENTENCE_PIECES,
    SETTINGS,
    SIGLIP,
    TOKENIZER,
    WORD_PIECES,
    added_tokens,
    check_settings,
    class_of,
    class_with,
    class_with_languages,
    content_of,
    defaults_of,
    in_order,
    languages_of,
    lower_case,
    read_pieces,
    read_settings,
    read_siglip,
    said_of,
    write_added,
    write_pieces,
    write_siglip,
)

if TYPE_CHECKING:
    from keras_transformers.text.byte_pairs import BytePairTokenizer
    from keras_transformers.text.fast import FastTokenizer
    from keras_transformers.text.published_pieces import (
        FairseqTokenizer,
        MarianTokenizer,
        PieceTokenizer,
    )
    from keras_transformers.text.wordpiece import WordPieceTokenizer


START = "<|startoftext|>"
WORDS = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)


def definition_of(folder: pathlib.Path) -> dict[str, Any]:
    """What `tokenizer.json` would say, of `vocab.json` and `merges.txt`.

    Text is normalised, made lower-case and cut into words without the spaces between them; the last
    piece of a word says so (Radford et al. 2021, https://arxiv.org/abs/2103.00020, section 2.4).

    Raises:
        FileNotFoundError, ValueError: As `BytePairTokenizer.load`.
    """
    from keras_transformers.text import BytePairTokenizer

    vocab, pairs = BytePairTokenizer.read(folder / "vocab.json", folder / "merges.txt")
    marks = [[mark, vocab.get(mark, -1)] for mark in (END, START)]
    spaces = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
    split = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": True}
    of_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [{"type": "NFC"}, spaces, {"type": "Lowercase"}],
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, {**of_bytes, "use_regex": True}],
        },
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": marks[0],
            "cls": marks[1],
            "trim_offsets": False,
            "add_prefix_space": False,
        },
        "decoder": {**of_bytes, "use_regex": True},
        "model": {
            "type": "BPE",
            "unk_token": END,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "</w>",
            "vocab": vocab,
            "merges": [list(pair) for pair in pairs],
        },
    }


NEEDED = {
    WORD_PIECES: f"vocab.txt or {TOKENIZER}",
    BYTE_PAIRS: f"vocab.json and merges.txt, or {TOKENIZER}",
    MARIAN: "source.spm, target.spm and vocab.json",
    SIGLIP: "spiece.model",
    SENTENCE_PIECES: "spiece.model or sentencepiece.bpe.model",
}


def load_tokenizer(
    folder: StrPath, languages: tuple[str, str] | None = None, revision: str | None = None
) -> PieceTokenizer | WordPieceTokenizer | BytePairTokenizer | FastTokenizer:
    r"""The tokenizer of a published folder; its ids are those of the published one.

    Tokens that were added to the vocabulary are found as they are written. A `tokenizer.json` of
    any kind is read, with ids identical to those of the package `tokenizers`. Without it, what is
    not imitated exactly - another class, another way to split - is refused by name.

    Args:
        folder: Path of the folder. Marian: `source.spm`, `target.spm`, `vocab.json`; BERT,
            DistilBERT and ELECTRA: `vocab.txt` or `tokenizer.json`; GPT-2, RoBERTa, BART and
            CLIP: `vocab.json` and `merges.txt`, or `tokenizer.json`; XLM-R, mBART and NLLB:
            `sentencepiece.bpe.model` or `tokenizer.json`; M2M-100: `sentencepiece.bpe.model` and
            `vocab.json`; PEGASUS, T5 and mT5: `spiece.model` or `tokenizer.json`; SigLIP:
            `spiece.model`. Beside them `tokenizer_config.json` and `added_tokens.json` are read,
            and of `config.json` whose tokenizer it is. Or a name on the hub, "organization/model",
            see `pretrained.find`.
        languages: Codes of the language of the texts and of that to translate to, as the published
            tokenizer calls them, for translators of many languages: ("eng_Latn", "fra_Latn"). By
            default what `tokenizer_config.json` says.
        revision: Branch, tag or commit of a name; by default "main".

    Returns:
        A `text.PieceTokenizer`, of which Marian's, XLM-R's and SigLIP's have classes of their own
        (a translator's is that of the source; `for_targets()` gives the other), a
        `text.WordPieceTokenizer` or a `text.BytePairTokenizer`; of a `tokenizer.json` that is
        neither BERT's nor GPT-2's, a `text.FastTokenizer`.

    Raises:
        FileNotFoundError: If the files are missing.
        ValueError: If they are broken, hold a tokenizer of another kind, or it has no such
            languages.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers import pretrained
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    >>> _ = (folder / "vocab.txt").write_text("\n".join(pieces))
    >>> pretrained.load_tokenizer(folder).tokenize(["the cat"], start=True, end=True).to_list()
    [[2, 5, 6, 3]]
    """
    folder = find(folder, revision, weights=False)
    there = {path.name for path in folder.iterdir()}
    settings = read_settings(folder)
    name = class_of(folder, settings)
    fast = read_json(folder, TOKENIZER) if TOKENIZER in there else {}
    kind = _kind(there, fast, name)
    if kind == BYTE_PAIRS and settings.get("add_prefix_space") and begins_with_blank(fast):
        kind = FAST  # as of RoBERTa's taggers, whose texts begin with a blank
    if kind is None:
        raise FileNotFoundError(
            f"{folder} must have a tokenizer: {'; '.join(NEEDED.values())}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )
    check_settings(folder, settings, kind, name)
    if kind == FAST:
        fast = fast or definition_of(folder)
        return read_fast(folder, settings, fast, name or "", languages)
    if kind == SENTENCE_PIECES:
        return read_pieces(folder, there, settings, fast, name, languages)
    if languages is not None:
        raise ValueError(
            f"{folder}: `languages` must be None for a tokenizer of {kind}. Received: {languages}"
        )
    reads = {WORD_PIECES: _word_pieces, BYTE_PAIRS: _byte_pairs, MARIAN: _marian}
    reads |= {SIGLIP: read_siglip}
    return cast(Any, reads[kind])(folder, there, settings, fast, name)


def _kind(there: set[str], fast: Any, name: str | None) -> str | None:
    """What kind of tokenizer the class and the files make; None if none."""
    kind = CLASSES.get(name or "")
    if kind == SENTENCE_PIECES and fast and name != "M2M100Tokenizer":
        # Today's files have no model of SentencePiece any more.
        return kind if any(each.endswith(".model") for each in there) else FAST
    if kind is not None:
        return kind
    if fast:
        return WORD_PIECES if is_berts(fast) else BYTE_PAIRS if is_gpt2s(fast) else FAST
    if name in GENERIC:
        return None
    files = (({"source.spm", "vocab.json"}, MARIAN), ({"vocab.txt"}, WORD_PIECES))
    files += (({"vocab.json", "merges.txt"}, BYTE_PAIRS), ({"spiece.model"}, SENTENCE_PIECES))
    files += (({OF_FAIRSEQ}, SENTENCE_PIECES),)  # which numbers it as one of several classes does
    return next((kind for needed, kind in files if needed <= there), None)


def _require(folder: pathlib.Path, there: set[str], kind: str, *choices: Any) -> None:
    if not any(needed <= there for needed in choices):
        raise FileNotFoundError(
            f"{folder} must have {NEEDED[kind]}, for a tokenizer of {kind}. "
            f"Received: {', '.join(sorted(there)) or 'none'}"
        )


def _marian(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None
) -> MarianTokenizer:
    from keras_transformers.text import MarianTokenizer, SentencePieceTokenizer
    from keras_transformers.text.published_pieces import SPECIAL

    _require(folder, there, MARIAN, {"source.spm", "vocab.json"})
    apart = settings.get("separate_vocabs", False)
    vocab = in_order(read_json(folder, "vocab.json"), folder / "vocab.json")
    target_vocab = None
    if apart:
        target_vocab = in_order(read_json(folder, "target_vocab.json"), folder)
    source, target = (
        SentencePieceTokenizer.read(folder / name)
        for name in ("source.spm", "target.spm" if "target.spm" in there else "source.spm")
    )
    numbers = {piece: number for number, piece in enumerate(vocab)}
    tokens = added_tokens(folder, settings, defaults_of(name, MARIAN), numbers)
    tokens = [token for token in tokens if token.content not in SPECIAL]
    if apart and tokens:
        raise ValueError(
            f"{folder}: with `separate_vocabs` there must be no added tokens. "
            f"Received: {[token.content for token in tokens][:5]}"
        )
    return MarianTokenizer(source, vocab, target, target_vocab, added_tokens=tokens)


def _word_pieces(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None
) -> WordPieceTokenizer:
    from keras_transformers.text import WordPieceTokenizer
    from keras_transformers.text.wordpiece import SPECIAL

    _require(folder, there, WORD_PIECES, {"vocab.txt"}, {TOKENIZER})
    longest = 100
    if fast:
        model = the_model(folder, fast, "WordPiece")
        settings, longest = as_bert(folder, fast, model, settings, name in GENERIC)
        vocab = in_order(model["vocab"], folder / TOKENIZER)
    else:
        vocab = WordPieceTokenizer.read(folder / "vocab.txt")
    numbers = {piece: number for number, piece in enumerate(vocab)}
    defaults = defaults_of(name, WORD_PIECES)
    tokens = added_tokens(folder, settings, defaults, numbers, fast.get("added_tokens"))
    tokens = [token for token in tokens if token.content not in SPECIAL or token.normalized]
    try:
        return WordPieceTokenizer(vocab, lower_case(folder, settings), longest, tokens)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _byte_pairs(
    folder: pathlib.Path, there: set[str], settings: dict[str, Any], fast: Any, name: str | None
) -> BytePairTokenizer:
    from keras_transformers.text import BytePairTokenizer

    _require(folder, there, BYTE_PAIRS, {"vocab.json", "merges.txt"}, {TOKENIZER})
    if fast:
        vocab, pairs = as_gpt2(folder, fast)
    else:
        vocab, pairs = BytePairTokenizer.read(folder / "vocab.json", folder / "merges.txt")
    defaults = defaults_of(name, BYTE_PAIRS)
    tokens = added_tokens(folder, settings, defaults, vocab, fast.get("added_tokens"))
    named = {"bos_token": END, "eos_token": END, **defaults}
    named |= {key: content_of(settings[key]) for key in named if content_of(settings.get(key))}
    start, end = named["bos_token"], named["eos_token"]
    if end not in vocab and end not in {token.content for token in tokens}:
        raise ValueError(
            f"{folder / SETTINGS}: `eos_token` must name a token of the vocabulary. "
            f"Received: {end!r}"
        )
    if start not in vocab and start not in {token.content for token in tokens}:
        start = end
    try:
        return BytePairTokenizer(vocab, pairs, tokens, start, end, named.get("pad_token"))
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


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
        text.MarianTokenizer: _write_marian,
        text.FairseqTokenizer: _fairseq,
        text.SiglipTokenizer: write_siglip,
        text.PieceTokenizer: write_pieces,
        text.WordPieceTokenizer: _write_word_pieces,
        text.BytePairTokenizer: _write_byte_pairs,
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


def _write_word_pieces(tokenizer: WordPieceTokenizer, folder: pathlib.Path) -> dict[str, Any]:
    tokenizer.save(folder / "vocab.txt")
    return {"tokenizer_class": "BertTokenizer", "do_lower_case": tokenizer.lower_case}


def _write_byte_pairs(tokenizer: BytePairTokenizer, folder: pathlib.Path) -> dict[str, Any]:
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


def _write_marian(tokenizer: MarianTokenizer, folder: pathlib.Path) -> dict[str, Any]:
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


# Of byte pairs: what puts marks before and after a text, or does nothing to its ids.
POST_PROCESSORS = (None, "ByteLevel", "TemplateProcessing", "RobertaProcessing")


def model_type(fast: Any) -> str | None:
    """The type of the model in `tokenizer.json`; older files do not say it."""
    model = fast.get("model") or {}
    if "type" in model:
        return model["type"]
    return "BPE" if "merges" in model else "WordPiece" if "vocab" in model else None


def is_berts(fast: Any) -> bool:
    """Whether `tokenizer.json` splits and cuts as `text.WordPieceTokenizer` does."""
    model = fast.get("model") or {}
    normalizer, before = (fast.get(name) or {} for name in ("normalizer", "pre_tokenizer"))
    lower = normalizer.get("lowercase", True)
    return (
        model_type(fast) == "WordPiece"
        and (normalizer.get("type"), before.get("type")) == ("BertNormalizer", "BertPreTokenizer")
        and normalizer.get("clean_text", True)
        and normalizer.get("handle_chinese_chars", True)
        and normalizer.get("strip_accents") in (None, lower)
        and (model.get("unk_token", "[UNK]"), model.get("continuing_subword_prefix", "##"))
        == ("[UNK]", "##")
        and (model.get("vocab") or {}).get("[PAD]") == 0
        and {"[UNK]", "[CLS]", "[SEP]", "[MASK]"} <= (model.get("vocab") or {}).keys()
    )


def is_gpt2s(fast: Any) -> bool:
    """Whether `tokenizer.json` splits and cuts as `text.BytePairTokenizer` does."""
    vocab = (fast.get("model") or {}).get("vocab")
    if model_type(fast) != "BPE" or not isinstance(vocab, dict):
        return False
    try:
        as_gpt2(pathlib.Path(), fast)
    except ValueError:
        return False
    return END in vocab or any(t["content"] == END for t in fast.get("added_tokens") or [])


def as_bert(
    folder: pathlib.Path, fast: Any, model: dict[str, Any], settings: dict[str, Any], generic: bool
) -> tuple[dict[str, Any], int]:
    """Settings and most characters of a word by `tokenizer.json`, if that splits as BERT does.

    The published classes of BERT's kind follow `tokenizer_config.json` and others this file; where
    the two do not agree, nobody can tell which was meant.
    """
    normalizer = fast.get("normalizer") or {}
    by_file = {
        "do_lower_case": normalizer.get("lowercase", True),
        "strip_accents": normalizer.get("strip_accents"),
    }
    longest = model.get("max_input_chars_per_word", 100)
    expected: dict[str, Any] = {
        "normalizer": (normalizer.get("type"), ("BertNormalizer",)),
        "normalizer.clean_text": (normalizer.get("clean_text", True), (True,)),
        "normalizer.handle_chinese_chars": (normalizer.get("handle_chinese_chars", True), (True,)),
        "pre_tokenizer": ((fast.get("pre_tokenizer") or {}).get("type"), ("BertPreTokenizer",)),
        "model.unk_token": (model.get("unk_token", "[UNK]"), ("[UNK]",)),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix", "##"), ("##",)),
    }
    if not generic:
        lower = settings.get("do_lower_case", True)
        accents = settings.get("strip_accents")
        expected |= {
            "normalizer.lowercase": (by_file["do_lower_case"], (lower,)),
            "normalizer.strip_accents": (by_file["strip_accents"], (accents, lower)),
            "model.max_input_chars_per_word": (longest, (100,)),
        }
    _expect(folder, expected)
    return {**settings, **(by_file if generic else {})}, longest


def as_gpt2(folder: pathlib.Path, fast: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Pieces and pairs of `tokenizer.json`, if that splits as GPT-2 does."""
    model = the_model(folder, fast, "BPE")
    before, after = fast.get("pre_tokenizer") or {}, fast.get("post_processor") or {}
    template = after.get("single") if after.get("type") == "TemplateProcessing" else None
    template = [part for part in template or [] if "Sequence" not in part]
    nothing = (None, "")
    _expect(
        folder,
        {
            "normalizer": (fast.get("normalizer"), (None,)),
            "pre_tokenizer": (before.get("type"), ("ByteLevel",)),
            "pre_tokenizer.use_regex": (before.get("use_regex", True), (True,)),
            "pre_tokenizer.add_prefix_space": (before.get("add_prefix_space", True), (False,)),
            "post_processor": (after.get("type"), POST_PROCESSORS),
            "post_processor.single": (template, ([],)),
            "model.dropout": (model.get("dropout"), (None, 0.0)),
            "model.continuing_subword_prefix": (model.get("continuing_subword_prefix"), nothing),
            "model.end_of_word_suffix": (model.get("end_of_word_suffix"), nothing),
            "model.byte_fallback": (model.get("byte_fallback", False), (False,)),
            "model.ignore_merges": (model.get("ignore_merges", False), (False,)),
        },
    )
    merges = model.get("merges", [])
    pairs: list[Any] = [tuple(p.split(" ") if isinstance(p, str) else p) for p in merges]
    return model["vocab"], pairs


def begins_with_blank(fast: Any) -> bool:
    """Whether `tokenizer.json` has byte pairs of texts before which a blank is put."""
    before = fast.get("pre_tokenizer") or {}
    return before.get("type") == "ByteLevel" and bool(before.get("add_prefix_space", True))


def the_model(folder: pathlib.Path, fast: Any, kind: str) -> dict[str, Any]:
    """The model of `tokenizer.json`; ValueError for another kind."""
    model = fast.get("model") or {}
    if model_type(fast) != kind or not isinstance(model.get("vocab"), dict):
        raise ValueError(
            f"{folder / TOKENIZER}: the model must be of type {kind}. "
            f"Received: {model_type(fast)!r}"
        )
    return model


def _expect(folder: pathlib.Path, expected: Any) -> None:
    """ValueError for a value in `tokenizer.json` that is none of those it may be."""
    for name, (value, values) in expected.items():
        if value not in values:
            raise ValueError(
                f"{folder / TOKENIZER}: `{name}` must be {values[0]!r}, as for the published "
                f"class. Received: {value!r}"
            )


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
    from keras_transformers.text.tokenizers import read_template

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
    tokens = (tokenizer.start, tokenizer.end, tokenizer.padding, tokenizer.mask)
    for keys, token in zip(ROLES.values(), tokens, strict=True):
        if token is not None:
            settings[keys[0]] = token
    return settings
