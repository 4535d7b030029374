"""What texts are written in, and what follows from it for their scores and their vocabulary."""

import collections
import importlib.util
import re
from collections.abc import Sequence
from typing import Literal

MOST_READ = 5000  # texts, from all over the list
SHARE = 0.2  # of the letters in a script, from which on texts count as written in it
# Scripts whose words have no spaces between them, and those of Europe.
SCRIPTS = {
    "han": "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "without spaces": (
        "\u0e00-\u0eff"  # Thai, Lao
        "\u0f00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Tibetan, Burmese
        "\u1780-\u17ff\u19e0-\u19ff\u1950-\u19df"  # Khmer, Tai Le
    ),
    "european": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f\u1e00-\u1fff",
}
_LETTERS = {name: re.compile(f"[{inside}]") for name, inside in SCRIPTS.items()}


def _shares(texts: Sequence[str]) -> dict[str, float]:
    """Dict of script -> share of the letters, and "other"."""
    read = "".join(texts[:: max(len(texts) // MOST_READ, 1)])
    counts = collections.Counter(
        {name: len(pattern.findall(read)) for name, pattern in _LETTERS.items()}
    )
    others = re.sub("|".join(pattern.pattern for pattern in _LETTERS.values()), "", read)
    counts["other"] = sum(map(str.isalpha, others))
    letters = max(counts.total(), 1)
    return {name: count / letters for name, count in counts.items()}


def bleu_tokenizer(references: Sequence[str]) -> str:
    """The tokenizer of sacreBLEU that suits what references are written in.

    BLEU counts words, which "13a" finds by the spaces between them. Chinese gets "zh", Japanese
    "ja-mecab" where MeCab is installed (`pip install sacrebleu[ja]`), and "char", which counts
    characters, stands in for it and serves Thai, Lao, Burmese, Tibetan and Khmer. All others get
    "13a". Scores by one tokenizer say nothing about scores by another.

    Args:
        references: List of str.

    Example:
    >>> from keras_transformers.training import bleu_tokenizer
    >>> bleu_tokenizer(["eine Katze"]), bleu_tokenizer(["我喜欢猫。"]), bleu_tokenizer(["ฉันรักแมว"])
    ('13a', 'zh', 'char')
    """
    share = _shares(references)
    east_asian = share["han"] + share["kana"]
    if max(east_asian, share["without spaces"]) < SHARE:
        return "13a"
    if share["without spaces"] > east_asian:
        return "char"
    if share["kana"] < SHARE * east_asian:  # a name or two
        return "zh"
    installed = all(importlib.util.find_spec(name) for name in ("MeCab", "ipadic"))
    return "ja-mecab" if installed else "char"


def text_normalization(*sides: Sequence[str]) -> Literal["nmt_nfkc", "none"]:
    """How a SentencePiece vocabulary should change the characters of texts: a rule's name.

    "nmt_nfkc", SentencePiece's own, where all sides are in Latin, Greek or Cyrillic script. It
    makes "," of a full-width comma and drops joiners of zero width, so that what a model writes
    cannot have them; texts in other scripts get "none".

    Args:
        *sides: Lists of str, each in a language of its own.

    Example:
    >>> from keras_transformers.training import text_normalization
    >>> text_normalization(["a cat"], ["eine Katze"]), text_normalization(["a cat"], ["我喜欢猫。"])
    ('nmt_nfkc', 'none')
    """
    others = (sum(_shares(side).values()) - _shares(side)["european"] for side in sides)
    return "nmt_nfkc" if all(share < SHARE for share in others) else "none"
