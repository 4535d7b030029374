"""`tokenizer.json`, the file of Hugging Face's fast tokenizers, where it is BERT's or GPT-2's."""

import pathlib
from typing import Any

from keras_transformers.pretrained.tokenizer_settings import END, TOKENIZER

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


def in_order(found: Any, where: Any) -> list[str]:
    """The pieces of a JSON vocabulary in the order of their ids."""
    numbers = list(found.values())
    if not all(isinstance(number, int) for number in numbers) or sorted(numbers) != list(
        range(len(numbers))
    ):
        raise ValueError(f"{where} must number its pieces 0, 1, 2 ...")
    return sorted(found, key=found.get)


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
