"""All that is reported of translations: scores, and where they are wrong."""

import collections
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_transformers.extras import needed_by
from keras_transformers.placeables import kept_placeables
from keras_transformers.training.scripts import bleu_tokenizer
from keras_transformers.training.translation import bleu_metric
from keras_transformers.words import words_of

LENGTHS = (2, 5, 10, 20, 40)  # words of a source: groups up to these, and one beyond
FREQUENCIES = (0, 5, 50, 500)  # times that a word stands in what was learned from
REPEATED = 3  # times that the same words follow each other
EAST_ASIAN = ("zh", "ja-mecab", "char", "ko-mecab")
_REPETITION = re.compile(rf"(\b\w+\b(?:\W+\b\w+\b){{0,3}})(?:\W+\1\b){{{REPEATED - 1},}}")


@dataclasses.dataclass(frozen=True)
class TranslationReport:
    """What `report_translations` finds.

    Attributes:
        scores: "bleu", "chrf", "chrf++" and "ter" in percent, of the corpus.
        signatures: sacreBLEU's, by the same names.
        by_length: A dict for each group of sources, by their words: "words", "sentences", "bleu"
            and "chrf".
        by_frequency: A dict for each group of the references' words, by how often they stand in
            what was learned from: "seen", "words", and "found", how many of them stand in the
            translation, too; empty if that is not known.
        placeables: Kind -> `(kept, expected)`, see `placeables.kept_placeables`.
        faults: Number of translations that are "empty", "copied" (equal to a source that its
            reference is not equal to), "repeating" (the same one to four words three times in a
            row), "short" or "long" (less than half, more than twice of the reference's characters).

    Example:
    >>> from keras_transformers.training import report_translations
    >>> report = report_translations(["der Hund", "ja"], ["the dog", "yes"], ["der Hund", "yes"])
    >>> type(report).__name__, report.faults["copied"]
    ('TranslationReport', 1)
    """

    scores: dict[str, float]
    signatures: dict[str, str]
    by_length: list[dict[str, Any]]
    by_frequency: list[dict[str, Any]]
    placeables: dict[str, tuple[int, int]]
    faults: dict[str, int]


def translation_metrics(tokenize: str) -> dict[str, Any]:
    """sacreBLEU's metrics by name: "bleu", "chrf", "chrf++" (Popović 2017), "ter" (Snover 2006).

    Args:
        tokenize: sacreBLEU's tokenizer for BLEU; TER takes its rules for Chinese and Japanese where
            BLEU takes such a tokenizer.

    Example:
    >>> from keras_transformers.training.translation_report import translation_metrics
    >>> list(translation_metrics("13a"))
    ['bleu', 'chrf', 'chrf++', 'ter']
    """
    bleu = bleu_metric(tokenize)
    with needed_by("scoring translations"):
        from sacrebleu.metrics import CHRF, TER

    asian = tokenize in EAST_ASIAN
    ter = TER(normalized=asian, asian_support=asian)
    return {"bleu": bleu, "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": ter}


def report_translations(
    sources: Sequence[str],
    references: Sequence[str],
    translations: Sequence[str],
    word_counts: Mapping[str, int] | None = None,
    tokenize: str | None = None,
) -> TranslationReport:
    """Scores translations by all that people report, and says where they are wrong.

    Args:
        sources, references, translations: Lists of str of one length.
        word_counts: How often words stand in the targets that were learned from, see `count_words`.
        tokenize: sacreBLEU's tokenizer; by default that of `bleu_tokenizer`.

    Raises:
        ValueError: If the lists differ in length or are empty, or there is no such tokenizer.
        ImportError: If sacreBLEU, or what its tokenizer needs, is not installed.

    Example:
    >>> from keras_transformers.training import report_translations
    >>> report = report_translations(["Öffne a"], ["open a"], ["open a"])
    >>> round(report.scores["chrf++"]), report.faults["copied"]
    (100, 0)
    """
    sizes = {len(sources), len(references), len(translations)}
    if len(sizes) != 1 or not sources:
        raise ValueError(
            "report_translations: `sources`, `references` and `translations` must be as long as "
            f"each other and not empty. Received: {len(sources)}, {len(references)}, "
            f"{len(translations)}"
        )
    metrics = translation_metrics(tokenize or bleu_tokenizer(references))
    whole = {
        name: metric.corpus_score(translations, [references]).score
        for name, metric in metrics.items()
    }
    triples = list(zip(sources, references, translations, strict=True))
    return TranslationReport(
        scores=whole,
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        by_length=_by_length(triples, {name: metrics[name] for name in ("bleu", "chrf")}),
        by_frequency=_by_frequency(triples, word_counts),
        placeables=kept_placeables(triples),
        faults={name: sum(map(has, triples)) for name, has in FAULTS.items()},
    )


def count_words(texts: Sequence[str]) -> collections.Counter[str]:
    """How often each word stands in texts, case ignored.

    Marks such as the vowel signs of Indic scripts belong to their words; in scripts without spaces
    between words each character counts as one.

    Example:
    >>> from keras_transformers.training import count_words
    >>> count_words(["A cat", "a dog"])["a"]
    2
    """
    return collections.Counter(word for text in texts for word in _words(text))


def _words(text: str) -> list[str]:
    return [word.casefold() for word in words_of(text) if word[0].isalnum()]


FAULTS: dict[str, Callable[[tuple[str, str, str]], bool]] = {
    "empty": lambda x: not x[2].strip() and bool(x[1].strip()),
    "copied": lambda x: x[2].strip() == x[0].strip() != x[1].strip(),
    "repeating": lambda x: bool(_REPETITION.search(x[2])) and not _REPETITION.search(x[1]),
    "short": lambda x: 0 < 2 * len(x[2].strip()) < len(x[1].strip()),
    "long": lambda x: len(x[2].strip()) > 2 * len(x[1].strip()),
}


def _groups(limits: Sequence[int]) -> list[str]:
    """Names of the groups up to each limit, and of the one beyond."""
    first = [0, *(limit + 1 for limit in limits)]
    pairs = zip(first, limits, strict=False)
    names = [str(low) if low == high else f"{low}-{high}" for low, high in pairs]
    return [*names, f"{first[-1]}+"]


def _group(number: int, limits: Sequence[int]) -> int:
    return sum(number > limit for limit in limits)


def _by_length(
    triples: Sequence[tuple[str, str, str]], metrics: Mapping[str, Any]
) -> list[dict[str, Any]]:
    found = collections.defaultdict(list)
    for triple in triples:
        found[_group(len(triple[0].split()), LENGTHS)].append(triple)
    rows = []
    for group, name in enumerate(_groups(LENGTHS)):
        if group in found:
            _, references, translations = zip(*found[group], strict=True)
            scores = {
                key: metric.corpus_score(translations, [references]).score
                for key, metric in metrics.items()
            }
            rows.append({"words": name, "sentences": len(references), **scores})
    return rows


def _by_frequency(
    triples: Sequence[tuple[str, str, str]], word_counts: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    if word_counts is None:
        return []
    words, found = collections.Counter[int](), collections.Counter[int]()
    for _, reference, translation in triples:
        has = collections.Counter(_words(translation))
        for word, count in collections.Counter(_words(reference)).items():
            group = _group(word_counts.get(word, 0), FREQUENCIES)
            words[group] += count
            found[group] += min(count, has[word])
    return [
        {"seen": name, "words": words[group], "found": found[group]}
        for group, name in enumerate(_groups(FREQUENCIES))
        if words[group]
    ]
