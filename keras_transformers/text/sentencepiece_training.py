"""What SentencePiece is told when it learns a vocabulary, and what its refusals mean."""

import pathlib
import re

from keras_transformers.annotations import StrPath

SPECIAL = 4  # ids that are no text: padding, START, END, unknown
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
