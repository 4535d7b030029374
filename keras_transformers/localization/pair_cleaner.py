"""A cleaner that applies filters to a stream of sentence pairs, and its report.

The report counts what was read, what stays, and what was dropped for which reason, with examples.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_transformers.localization.pair_filters import (
    Brackets,
    Copies,
    Duplicates,
    Empty,
    Encoding,
    FewLetters,
    LengthRatio,
    Pair,
    PairFilter,
    Placeables,
    Quotes,
    TooLong,
    TooShort,
    damaged,
    repaired,
)

REPAIRABLE = "pairs with encoding damage could be repaired"
REPAIRED = "pairs were repaired"


class Judged(NamedTuple):
    """A pair, repaired if the cleaner repairs, and the reason why it is dropped, or None.

    Both texts are empty for a row without two texts.
    """

    source: str
    target: str
    reason: str | None


def default_filters() -> list[PairFilter]:
    """Returns the filters that suit most corpora, the cheap and certain ones first.

    Filters of scripts and languages are not among them, because a corpus does not name its own.
    Neither are near duplicates, for they are no errors: "Files" beside "files" teaches something.

    Example:
    >>> from keras_transformers.localization import default_filters
    >>> [judge.name for judge in default_filters()][:4]
    ['empty side', 'encoding damage', 'too short', 'too long']
    """
    return [
        Empty(),
        Encoding(),
        TooShort(),
        TooLong(),
        FewLetters(),
        Copies(),
        Placeables("tag"),
        Placeables("placeholder"),
        Placeables("address"),
        Placeables("number", overlap=0.5, alone=4),
        Brackets(),
        Quotes(),
        Duplicates(),
        LengthRatio(),
    ]


class PairCleaner:
    """Judges sentence pairs by filters, in their order: the first that drops a pair is the reason.

    Nothing but the hashes of duplicates and the counts of `report` is in memory.

    Args:
        filters: `PairFilter`s; by default `default_filters()`. One that learns from the corpus, as
            `LengthRatio`, should stand behind those of duplicates: then a second run over what
            stays drops nothing.
        repair: If True, damage to the encoding is undone before a pair is judged.
        examples: Most examples that `report` shows for a reason.

    Attributes:
        report: The `CleaningReport` of the last `clean`.

    Raises:
        ValueError: If two filters have one name.

    Example:
    >>> from keras_transformers.localization import PairCleaner
    >>> pairs = [("a cat", "eine Katze"), ("a dog", "ein Hund"), ("a cat", "eine Katze")]
    >>> cleaner = PairCleaner().fitted(pairs)
    >>> [pair.source for pair in cleaner.clean(pairs) if pair.reason is None]
    ['a cat', 'a dog']
    >>> cleaner.report.dropped["duplicate"]
    1
    """

    def __init__(
        self, filters: Sequence[PairFilter] | None = None, repair: bool = False, examples: int = 3
    ) -> None:
        self.filters = default_filters() if filters is None else list(filters)
        self.repair, self.examples = repair, examples
        names = [judge.name for judge in self.filters]
        if len(set(names)) < len(names):
            raise ValueError(
                f"PairCleaner: each of `filters` must have a name of its own. Received: {names}"
            )
        self.report = CleaningReport(names, examples)

    @property
    def unfitted(self) -> bool:
        """True if a filter has to see the corpus before `clean`."""
        return any(judge.unfitted for judge in self.filters)

    def fitted(self, rows: Iterable[Sequence[str] | str]) -> Self:
        """Returns a cleaner whose filters have learned from a corpus.

        Args:
            rows: As for `clean`. They are read once for each filter that learns, and an iterator
                can be read once only.
        """
        ready = [judge for judge in self.filters if not judge.unfitted]
        filters: list[PairFilter] = []
        for judge in self.filters:
            if judge.unfitted:
                rest = type(self)(ready, self.repair, 0).clean(rows)
                judge = judge.fitted((x.source, x.target) for x in rest if x.reason is None)
            filters.append(judge)
        return type(self)(filters, self.repair, self.examples)

    def clean(self, rows: Iterable[Sequence[str] | str]) -> Iterator[Judged]:
        """Judges each row, in order.

        Args:
            rows: `(source, target)`; or a str, the reason why a row was left out before.
        """
        filters = [judge.started() for judge in self.filters]
        names = [judge.name for judge in self.filters]
        self.report = report = CleaningReport(names, self.examples)
        for row in rows:
            if isinstance(row, str):
                report.add(None, row)
                yield Judged("", "", row)
                continue
            pair = self._repaired((row[0].strip(), row[1].strip()))
            reason = next((judge.name for judge in filters if not judge.keeps(*pair)), None)
            if reason == Encoding.name and not any(damaged(repaired(text)) for text in pair):
                report.noted[REPAIRABLE] += 1
            report.add(pair, reason)
            yield Judged(*pair, reason)

    def _repaired(self, pair: Pair) -> Pair:
        if not self.repair or not any(map(damaged, pair)):
            return pair
        fixed = (repaired(pair[0]).strip(), repaired(pair[1]).strip())
        self.report.noted[REPAIRED] += fixed != pair
        return fixed


QUANTILES = {"shortest": 0.0, "median": 0.5, "95 %": 0.95, "longest": 1.0}
SHOWN = 80  # characters of an example
Counts = dict[str, collections.Counter[int]]


def _sides() -> dict[str, Counts]:
    units = ("characters", "words")
    return {side: {unit: collections.Counter() for unit in units} for side in ("source", "target")}


@dataclasses.dataclass
class CleaningReport:
    """The account of a `PairCleaner`, which grows as pairs are judged.

    Args:
        reasons: Names of reasons, in the order of the table.
        examples: Most pairs that are shown for each.

    Attributes:
        read: Number of rows.
        kept: Number of pairs that stay.
        dropped: Reason -> number.
        shown: Reason -> its first pairs.
        noted: Remark -> number of pairs.
        lengths: "read" or "kept" -> side -> unit -> counts of lengths.

    Example:
    >>> from keras_transformers.localization import CleaningReport
    >>> report = CleaningReport()
    >>> report.add(("a cat", "eine Katze"), None)
    >>> report.add(("a cat", ""), "empty side")
    >>> report.read, report.kept, dict(report.dropped)
    (2, 1, {'empty side': 1})
    """

    reasons: Sequence[str] = ()
    examples: int = 3

    def __post_init__(self) -> None:
        self.read, self.kept = 0, 0
        self.dropped: collections.Counter[str] = collections.Counter(dict.fromkeys(self.reasons, 0))
        self.shown: dict[str, list[tuple[str, str]]] = {}
        self.noted: collections.Counter[str] = collections.Counter()
        self.lengths = {"read": _sides(), "kept": _sides()}

    def add(self, pair: tuple[str, str] | None, reason: str | None) -> None:
        """Counts a row.

        Args:
            pair: Source and target; None for a row without two texts.
            reason: Why the row is dropped; None if it stays.
        """
        self.read += 1
        if pair is not None:
            lengths = [(len(text), len(text.split())) for text in pair]
            for which in ("read", "kept")[: 2 if reason is None else 1]:
                _count(self.lengths[which], lengths)
        if reason is None:
            self.kept += 1
            return
        self.dropped[reason] += 1
        examples = self.shown.setdefault(reason, [])
        if pair is not None and len(examples) < self.examples:
            examples.append(pair)

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as JSON writes it."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": {
                reason: {
                    "pairs": number,
                    "share": number / max(self.read, 1),
                    "examples": [list(pair) for pair in self.shown.get(reason, [])],
                }
                for reason, number in self.dropped.items()
            },
            "noted": dict(self.noted),
            "lengths": {
                which: {
                    side: {unit: _summary(counts) for unit, counts in units.items()}
                    for side, units in sides.items()
                }
                for which, sides in self.lengths.items()
            },
        }

    def markdown(self) -> str:
        """Returns the report as tables in Markdown, with examples."""
        dropped = self.read - self.kept
        lines = [
            f"{self.read:,} rows read, {self.kept:,} stay, {dropped:,} "
            f"({_percent(dropped, self.read)}) dropped.",
            "",
            "| reason | pairs | share |",
            "|---|---:|---:|",
        ]
        lines += [
            f"| {reason} | {number:,} | {_percent(number, self.read)} |"
            for reason, number in self.dropped.items()
        ]
        for what, number in self.noted.items():
            lines += ["", f"{number:,} {what}."] if number else []
        lines += [""]
        lines += [f"| lengths | mean | {' | '.join(QUANTILES)} |", "|---|" + "---:|" * 5]
        for which, sides in self.lengths.items():
            for side, units in sides.items():
                for unit, counts in units.items():
                    numbers = (f"{value:,.4g}" for value in _summary(counts).values())
                    lines.append(f"| {side}, {unit}, {which} | {' | '.join(numbers)} |")
        for reason, pairs in self.shown.items():
            if pairs:
                lines += ["", f"{reason}:", ""]
                lines += [f"- {_short(source)} ‖ {_short(target)}" for source, target in pairs]
        return "\n".join(lines) + "\n"


def _count(sides: dict[str, Counts], lengths: Sequence[tuple[int, int]]) -> None:
    for units, (characters, words) in zip(sides.values(), lengths, strict=True):
        units["characters"][characters] += 1
        units["words"][words] += 1


def _summary(counts: collections.Counter[int]) -> dict[str, float]:
    """Returns the mean and the quantiles of counted numbers; an empty dict if there are none."""
    if not counts:
        return {}
    numbers, weights = list(counts), list(counts.values())
    shares = list(QUANTILES.values())
    quantiles = np.quantile(numbers, shares, weights=weights, method="inverted_cdf").tolist()
    mean = float(np.average(numbers, weights=weights))
    return {"mean": mean, **dict(zip(QUANTILES, quantiles, strict=True))}


def _percent(number: int, total: int) -> str:
    return f"{100 * number / max(total, 1):.2f} %"


def _short(text: str) -> str:
    text = " ".join(text.split())
    text = "".join(x if x.isprintable() else f"\\x{ord(x):02x}" for x in text)
    text = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
    return f"`{text}`" if "`" not in text else f"`` {text} ``"
