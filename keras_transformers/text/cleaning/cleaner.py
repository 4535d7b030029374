"""Filters, one after the other, over a stream of sentence pairs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from keras_transformers.text.cleaning.duplicates import Duplicates
from keras_transformers.text.cleaning.encoding import Encoding, damaged, repaired
from keras_transformers.text.cleaning.filters import (
    Copies,
    Empty,
    FewLetters,
    LengthRatio,
    Pair,
    PairFilter,
    TooLong,
    TooShort,
)
from keras_transformers.text.cleaning.markup import Brackets, Placeables, Quotes
from keras_transformers.text.cleaning.report import CleaningReport

REPAIRABLE = "pairs with encoding damage could be repaired"
REPAIRED = "pairs were repaired"


class Judged(NamedTuple):
    """A pair, repaired where that was asked for, and why it is dropped; None if it stays.

    Of a row without two texts, both are empty.
    """

    source: str
    target: str
    reason: str | None


def default_filters() -> list[PairFilter]:
    """The filters that suit most corpora, in their order: what is cheap and certain comes first.

    Not among them: filters of scripts and languages, as a corpus does not say what its are; and of
    near duplicates, which are no errors: "Files" beside "files" and "Page 2" teach something, too.

    Example:
    >>> from keras_transformers.text.cleaning import default_filters
    >>> [each.name for each in default_filters()][:4]
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
        repair: Whether damage to the encoding is undone before a pair is judged.
        examples: Most pairs of a reason that `report` shows.

    Attributes:
        report: The `CleaningReport` of the last `clean`.

    Raises:
        ValueError: If two filters have one name.

    Example:
    >>> from keras_transformers.text.cleaning import PairCleaner
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
        names = [each.name for each in self.filters]
        if len(set(names)) < len(names):
            raise ValueError(
                f"PairCleaner: each of `filters` must have a name of its own. Received: {names}"
            )
        self.report = CleaningReport(names, examples)

    @property
    def unfitted(self) -> bool:
        """Whether a filter has to see the corpus before `clean`."""
        return any(each.unfitted for each in self.filters)

    def fitted(self, rows: Iterable[Sequence[str] | str]) -> Self:
        """A cleaner whose filters know what they learn from a corpus.

        Args:
            rows: As for `clean`; gone through once where a filter learns, more often where several
                do. An iterator can be gone through once.
        """
        others = [each for each in self.filters if not each.unfitted]
        filters: list[PairFilter] = []
        for each in self.filters:
            if each.unfitted:
                judged = type(self)(others, self.repair, 0).clean(rows)
                each = each.fitted((x.source, x.target) for x in judged if x.reason is None)
            filters.append(each)
        return type(self)(filters, self.repair, self.examples)

    def clean(self, rows: Iterable[Sequence[str] | str]) -> Iterator[Judged]:
        """Judges each row, in order.

        Args:
            rows: `(source, target)`; or a str, why a row was left out before, which is counted.
        """
        filters = [each.started() for each in self.filters]
        self.report = report = CleaningReport([each.name for each in self.filters], self.examples)
        for row in rows:
            if isinstance(row, str):
                report.add(None, row)
                yield Judged("", "", row)
                continue
            pair = self._repaired((row[0].strip(), row[1].strip()))
            reason = next((each.name for each in filters if not each.keeps(*pair)), None)
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
