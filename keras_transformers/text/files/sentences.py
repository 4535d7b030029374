"""Sentences of texts, with all that stands between and around them."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator

from keras_transformers.text.files.parts import Mark, Parts, joined

_BULLET = re.compile(r"\A[^\w\s]+\s+")  # a dash, or another sign that stands for itself
_FILLED = "item"  # what stands for a mark while sentences are split


class SentenceSplitter:
    """Splits texts into sentences, by the package `sentencex`.

    Args:
        language: Code of their language; it says which abbreviations there are.

    Raises:
        ImportError: If `sentencex` is not installed.

    Example:
    >>> from keras_transformers.text.files import SentenceSplitter  # doctest: +SKIP
    >>> SentenceSplitter("en")("Ask Dr. Smith.  Then go.")  # doctest: +SKIP
    ['Ask Dr. Smith.  ', 'Then go.']
    """

    def __init__(self, language: str = "en") -> None:
        try:
            import sentencex
        except ImportError:
            raise ImportError(
                "SentenceSplitter: sentences are split by sentencex: "
                "pip install 'keras_transformers[documents]'"
            ) from None
        self.language = language
        self._segment = sentencex.segment

    def __call__(self, text: str) -> list[str]:
        """The sentences of a text, each with the white space behind it."""
        found = list(self._segment(self.language, text))
        return found if "".join(found) == text else [text]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence: what a translator is asked for, and what stands before and behind it.

    Args:
        before: White space and marks.
        core: The sentence itself; empty where there is nothing to translate.
        behind: White space and marks.

    Example:
    >>> from keras_transformers.text.files.sentences import sentences
    >>> [each.core for each in sentences((" One. Two.",), lambda text: [text[:6], text[6:]])]
    [('One.',), ('Two.',)]
    """

    before: Parts
    core: Parts
    behind: Parts


def sentences(parts: Parts, split: Callable[[str], list[str]]) -> list[Sentence]:
    """The sentences of parts, in their order; together they are the parts."""
    for i, part in enumerate(parts):
        if _is(part, "end"):
            ending = Sentence((), (), (part,))
            return [*_sentences(parts[:i], split), ending, *sentences(parts[i + 1 :], split)]
    return _sentences(parts, split)


def _sentences(parts: Parts, split: Callable[[str], list[str]]) -> list[Sentence]:
    """The same of parts in which no "end" is."""
    visible = [
        part if isinstance(part, str) else {"alone": _FILLED, "break": " "}.get(part.kind, "")
        for part in parts
    ]
    cuts = list(itertools.accumulate(map(len, split("".join(visible)))))[:-1]
    found: list[list[str | Mark]] = [[]]
    at = 0
    for part, shown in zip(parts, visible, strict=True):
        while cuts and (at > cuts[0] or at == cuts[0] and not _closes(part)):
            cuts.pop(0)
            found.append([])
        if isinstance(part, str):
            rest = part
            while cuts and at + len(rest) > cuts[0]:
                cut = cuts.pop(0) - at
                found[-1].append(rest[:cut])
                found.append([])
                at, rest = at + cut, rest[cut:]
            found[-1].append(rest)
            at += len(rest)
        else:
            found[-1].append(part)
            at += len(shown)
    return [_peeled(joined(each)) for each in found if each]


def _closes(part: str | Mark) -> bool:
    return isinstance(part, Mark) and part.kind in ("close", "soft", "break")


def _peeled(parts: Parts) -> Sentence:
    """A sentence without what stands around its words."""
    core = list(parts)
    before: list[str | Mark] = []
    behind: list[str | Mark] = []
    if not any(part.isalpha() for part in _letters(parts)):
        return Sentence((), (), parts)
    while True:
        pairs = [_pair(part) for part in core]
        for side, end, kept in ((0, "lstrip", before), (-1, "rstrip", behind)):
            part = core[side]
            if isinstance(part, str):
                rest = getattr(part, end)()
                if side == 0:
                    rest = _BULLET.sub("", rest)
                if rest == part:
                    continue
                blank = part[: len(part) - len(rest)] if side == 0 else part[len(rest) :]
                kept.append(blank)
                core[side] = rest
                if not rest:
                    core.pop(side)
                break
            if _is(part, "break", "soft") or part.kind == "alone" and part.shown is None:
                kept.append(core.pop(side))
                break
            if part.kind in ("open", "close") and pairs.count(part.pair) == 1:
                kept.append(core.pop(side))
                break
        else:
            around = _is(core[0], "open") and _is(core[-1], "close")
            if not around or pairs[0] != pairs[-1]:
                return Sentence(joined(before), joined(core), joined(behind[::-1]))
            before.append(core.pop(0))
            behind.append(core.pop())


def _letters(parts: Parts) -> Iterator[str]:
    return itertools.chain.from_iterable(part for part in parts if isinstance(part, str))


def _pair(part: str | Mark) -> int | None:
    return part.pair if isinstance(part, Mark) and part.kind in ("open", "close") else None


def _is(part: str | Mark, *kinds: str) -> bool:
    return isinstance(part, Mark) and part.kind in kinds
