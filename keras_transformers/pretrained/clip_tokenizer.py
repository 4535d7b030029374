"""CLIP's byte pairs as a `tokenizer.json` has them, for folders that have older files alone."""

import pathlib
from typing import Any

from keras_transformers.pretrained.tokenizer_settings import END

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
