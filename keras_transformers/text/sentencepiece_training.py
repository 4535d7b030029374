"""What SentencePiece is told when it learns a vocabulary, and what its refusals mean."""

import io
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras_transformers.annotations import StrPath
from keras_transformers.extras import needed_by

PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3
SPECIAL = 4  # ids that are no text
LOSSLESS = {
    "byte_fallback": True,
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "allow_whitespace_only_pieces": True,
    "user_defined_symbols": ["\n"],
}
MOST_MARKS = 1024  # the marks of languages and tags have ids below it
LANGUAGE = re.compile("<2([A-Za-z0-9_-]+)>")
TAG = re.compile("<[A-Za-z][A-Za-z0-9_-]*>")
NORMALIZATIONS = {"none": "identity"}
NORMALIZATIONS |= {name: name for name in ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")}
# SentencePiece writes U+2581 for a space. One in the text becomes U+0010 1, and U+0010 is doubled.
ESCAPES = (("2581", "10 31"), ("10", "10 10"))


def escapes(folder: StrPath) -> dict[str, str]:
    """Writes the two files of rules that SentencePiece escapes U+2581 by; their options."""
    files = {}
    for name, step in (("normalization_rule_tsv", 1), ("denormalization_rule_tsv", -1)):
        path = pathlib.Path(folder, name)
        path.write_text("".join("\t".join(rule[::step]) + "\n" for rule in ESCAPES))
        files[name] = str(path)
    return files


def without_paths(proto: bytes) -> bytes:
    """The model without the names of files that rules were read from, which differ each time."""
    with needed_by("SentencePieceTokenizer.train"):
        from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(proto)  # type: ignore[attr-defined]
    for rules in (model.normalizer_spec, model.denormalizer_spec):
        rules.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def training_advice(message: str, vocab_size: int) -> str:
    """SentencePiece's refusal in a sentence that says what to do."""
    if limit := re.search(r"value <= (\d+)", message):
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} is more than this text "
            f"supports; use {limit[1]} or fewer, or more text."
        )
    if vocab_size <= SPECIAL:
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} leaves no room for text beside "
            "the four special ids; use at least a few hundred."
        )
    if "smaller than required_chars" in message:
        need = re.search(r"required_chars. *\d+ vs (\d+)", message)
        least = f" at least {need[1]}" if need else " a larger one"
        return (
            f"SentencePieceTokenizer.train: vocab_size={vocab_size} is less than the number of "
            f"different characters; use{least}, or character_coverage below 1."
        )
    return f"SentencePieceTokenizer.train failed: {message}"


def check_choices(model_type: str, normalization: str) -> None:
    """ValueError if one of the two is unknown."""
    if model_type not in ("unigram", "bpe"):
        raise ValueError(
            "SentencePieceTokenizer.train: `model_type` must be 'unigram' or 'bpe'. "
            f"Received: {model_type!r}"
        )
    if normalization not in NORMALIZATIONS:
        raise ValueError(
            "SentencePieceTokenizer.train: `normalization` must be one of "
            f"{', '.join(NORMALIZATIONS)}. Received: {normalization!r}"
        )


def control_symbols(codes: Sequence[str], tags: Sequence[str]) -> list[str]:
    """The marks of languages, and the tags; ValueError if one is there twice, or is none.

    They are control symbols, as START is: what people write never becomes one. Symbols that a text
    can hold would let it choose its language.
    """
    others = list(tags)
    wrong = isinstance(tags, str) or len(set(others)) < len(others)
    if wrong or not all(map(TAG.fullmatch, others)) or {"<pad>", "<s>", "<unk>"} & {*others}:
        raise ValueError(
            "SentencePieceTokenizer.train: `tags` must be a list of marks as '<bt>', a letter "
            f"first, each once, and no special token. Received: {tags!r}"
        )
    return [*_symbols_of_languages(codes), *others]


def _symbols_of_languages(codes: Sequence[str]) -> list[str]:
    symbols = [f"<2{code}>" for code in codes]
    wrong = [symbol for symbol in symbols if not LANGUAGE.fullmatch(symbol)]
    if isinstance(codes, str) or wrong or len(set(symbols)) < len(symbols):
        raise ValueError(
            "SentencePieceTokenizer.train: `languages` must be a list of codes of letters, digits, "
            f"_ and -, each once. Received: {codes!r}"
        )
    return symbols


def marks_of_languages(pieces: Iterable[str], first: int) -> dict[str, int]:
    """Code of a language -> id of its mark, of pieces whose ids begin with `first`."""
    found = ((LANGUAGE.fullmatch(piece), number) for number, piece in enumerate(pieces, first))
    return {match[1]: number for match, number in found if match}


def trained(
    strings: Iterable[Any],
    vocab_size: int,
    settings: Mapping[str, Any],
    options: Callable[[str], dict[str, Any]],
) -> bytes:
    """The proto of a SentencePiece model; `options` takes a folder for what must be in files."""
    with needed_by("SentencePieceTokenizer.train"):
        import sentencepiece

    model = io.BytesIO()
    try:
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(strings),
                model_writer=model,
                vocab_size=vocab_size,
                pad_id=PAD_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_id=UNKNOWN_ID,
                max_sentence_length=1 << 20,
                num_threads=1,  # more threads make the pieces depend on timing
                minloglevel=2,
                **settings,
                **options(folder),
            )
    except (RuntimeError, OSError) as error:
        raise ValueError(training_advice(str(error), vocab_size)) from None
    return model.getvalue()
