"""The translation of files, sentence by sentence, which keeps their marks.

`read_file` chooses the format, and `SentenceSplitter` finds the sentences.
"""

import collections
import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

from keras_transformers.core.words import in_context, marks, without_context
from keras_transformers.localization.marks import Mark, Parts, Shown, add_unseen, fits, joined
from keras_transformers.localization.markup import HtmlFile, MarkdownFile
from keras_transformers.localization.text_file import PlainText, PoFile, Subtitles, TextFile
from keras_transformers.localization.xml_files import DocxFile, XliffFile

Ask: TypeAlias = Callable[[list[str]], Sequence[str | None]]
Asked: TypeAlias = tuple[Parts, tuple[str, ...]]  # a sentence, and those before it

_LINE_END = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
MOST_PAIRS = 100  # of a sentence, whose words are looked for in its translation
_SPACED = re.compile(r"([\s,;:.!?)\]]*)(.*?)([\s(\[]*)\Z", re.DOTALL)
_BULLET = re.compile(r"\A[^\w\s]+\s+")  # a dash, or another sign that stands for itself
_FILLED = "item"  # what stands for a mark while sentences are split


class SentenceSplitter:
    """Splits texts into sentences, by the package `sentencex`.

    Args:
        language: Code of their language; it says which abbreviations there are.

    Raises:
        ImportError: If `sentencex` is not installed.

    Example:
    >>> from keras_transformers.localization import SentenceSplitter  # doctest: +SKIP
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
    >>> from keras_transformers.localization.file_translation import sentences
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


class FileTranslator:
    r"""Translates the segments of files, all at once.

    A sentence with markup is asked for in three ways, the next where the one before fails:

    1. with a tag for each mark; what comes back must have all of them, well nested;
    2. without those of pairs, and the words inside each pair for themselves, which then must stand
       in the sentence's translation once;
    3. in the pieces between its marks.

    So a file never breaks; `counts` says how often each way was taken.

    Args:
        ask: Function that translates a list of texts; None for one that it cannot translate.
        split: Function that gives the sentences of a text, see `SentenceSplitter`.
        context: How many previous sentences of the same file stand before each that is asked for,
            as `contexts.in_context` writes them.

    Attributes:
        counts: Counter of what was done.

    Example:
    >>> from keras_transformers.localization import FileTranslator, PlainText
    >>> file = PlainText(b"Open the door.\n")
    >>> translator = FileTranslator(lambda texts: [text.upper() for text in texts], lambda x: [x])
    >>> file.rebuilt(translator.translate([file])[0])
    b'OPEN THE DOOR.\n'
    """

    def __init__(self, ask: Ask, split: Callable[[str], list[str]], context: int = 0) -> None:
        self._ask, self._split, self._context = ask, split, context
        self.counts: collections.Counter[str] = collections.Counter()
        self._known: dict[str, str | None] = {}

    def translate(self, files: Sequence[TextFile]) -> list[list[Parts | None]]:
        """A translation of each segment of each file; None where it stays as it is.

        A segment that has a translation of its own, as in a PO file, gets none unless all of its
        sentences could be translated.
        """
        segments = [segment for file in files for segment in file.segments]
        split = [sentences(segment.parts, self._split) for segment in segments]
        cores = [each.core for row in split for each in row if each.core]
        sizes = [sum(bool(each.core) for each in row) for row in split]
        asked = self._behind(files, cores, sizes)
        done, sentence = self._translated(asked), iter(asked)
        found: list[Parts | None] = []
        for segment, row in zip(segments, split, strict=True):
            new = [done.get(next(sentence)) if each.core else () for each in row]
            missing = sum(each is None for each in new)
            self.counts["sentences"] += sum(bool(each.core) for each in row)
            self.counts["sentences left as they are"] += missing
            if missing == len(row) or missing and segment.present is not None:
                found.append(None)
            else:
                found.append(joined([x for pair in zip(row, new, strict=True) for x in _of(*pair)]))
        self.counts["segments"] += len(segments)
        self.counts["segments left as they are"] += found.count(None)
        rest = iter(found)
        return [[next(rest) for _ in file.segments] for file in files]

    def _behind(
        self, files: Sequence[TextFile], cores: list[Parts], sizes: list[int]
    ) -> list[Asked]:
        """Sentences with those before them in their file; how many each segment has."""
        if not self._context:
            return [(core, ()) for core in cores]
        each, of_segment = iter(cores), iter(sizes)
        found: list[Asked] = []
        for file in files:
            previous: tuple[str, ...] = ()
            for core in itertools.islice(
                each, sum(itertools.islice(of_segment, len(file.segments)))
            ):
                found.append((core, previous))
                previous = (*previous, _bare(core))[-self._context :]
        return found

    def _translated(self, sentences: list[Asked]) -> dict[Asked, Parts | None]:
        """Translations of sentences, by any of the ways."""
        waiting = list(dict.fromkeys(sentences))
        done: dict[Asked, Parts | None] = {}
        ways = [("with tags", _tagged), ("with markup found again", _found), ("in pieces", _pieces)]
        for name, way in ways:
            asked = {sentence: _after(sentence[1], way(sentence[0])) for sentence in waiting}
            self._learn(text for texts, _ in asked.values() for text in texts)
            for sentence, (texts, read) in asked.items():
                answers = [self._known[text] for text in texts]
                parts = read([answer or "" for answer in answers]) if all(answers) else None
                if parts is not None:
                    done[sentence] = parts
                    if any(isinstance(part, Mark) and _visible(part) for part in sentence[0]):
                        self.counts[f"sentences with markup, translated {name}"] += 1
            waiting = [sentence for sentence in waiting if sentence not in done]
        return done

    def _learn(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            for text, answer in zip(new, self._ask(new), strict=True):
                if answer is not None and [answer] != without_context([text]):
                    answer = _LINE_END.sub(" ", answer)
                self._known[text] = answer


Way: TypeAlias = tuple[list[str], Callable[[list[str]], Parts | None]]


def _after(previous: Sequence[str], way: Way) -> Way:
    """A way whose texts stand behind previous sentences, if there are such."""
    texts, read = way
    return ([in_context(text, previous) for text in texts] if previous else texts), read


def _of(sentence: Sentence, new: Parts | None) -> Parts:
    return (*sentence.before, *(sentence.core if new is None else new), *sentence.behind)


def _visible(mark: Mark) -> bool:
    return mark.kind not in ("break", "soft")


def _tagged(core: Parts) -> Way:
    shown = Shown.create(core)
    return [shown.text], lambda answers: shown.read(answers[0].strip())


def _found(core: Parts) -> Way:
    """The way by the words inside of pairs: tags are put around what they became."""
    pairs = _pairs(core)
    if not pairs:
        return [], lambda answers: None
    full, tags = Shown.create(core), {}
    for token, mark in full.tokens:
        tags[mark.pair, mark.kind] = token

    def read(answers: list[str]) -> Parts | None:
        edits = []
        for depth, ((pair, words), answer) in enumerate(zip(pairs, answers[1:], strict=True)):
            spans = [_once(each, answers[0]) for each in (answer.strip(), words)]
            span = next(filter(None, spans), None)
            if span is None:
                return None
            start, end = span
            edits.append((start, 1, -end, depth, tags[pair, "open"]))
            edits.append((end, 0, -start, -depth, tags[pair, "close"]))
        text = answers[0]
        for at, *_, tag in sorted(edits, reverse=True):
            text = text[:at] + tag + text[at:]
        return full.read(text.strip())

    return [_bare(core), *(words for _, words in pairs)], read


def _pairs(core: Parts) -> list[tuple[int, str]]:
    """Numbers of the pairs that are whole, by their beginnings, and the words inside.

    The list is empty if there are more than `MOST_PAIRS`: pairs can contain one another, so that
    reading the words of all of them would take time that grows with the square of their number.
    """
    ends: dict[int, int] = {}
    for i, part in enumerate(core):
        if isinstance(part, Mark) and part.kind == "close":
            ends.setdefault(part.pair, i)
    begins = [i for i, part in enumerate(core) if isinstance(part, Mark) and part.kind == "open"]
    if len(begins) > MOST_PAIRS:
        return []
    found = []
    for i in begins:
        pair = cast(Mark, core[i]).pair
        words = _bare(core[i + 1 : ends[pair]]).strip() if pair in ends else ""
        if not words:
            return []
        found.append((pair, words))
    return found


def _bare(parts: Parts) -> str:
    """What a translator reads without the tags of pairs."""
    kept = [part for part in parts if isinstance(part, str) or part.kind not in ("open", "close")]
    return Shown.create(joined(kept)).text


def _once(words: str, text: str) -> tuple[int, int] | None:
    """Where words stand in a text, if they do once."""
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    spans = [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
    spans = [
        (start, end)
        for start, end in spans
        # A combining mark belongs to the word that it stands in.
        if not set(text[max(start - 1, 0) : start] + text[end : end + 1]) & marks()
    ]
    return spans[0] if len(spans) == 1 else None


def _pieces(core: Parts) -> Way:
    """The way by the texts between marks; it fails where a sentence has no mark."""
    runs: list[list[str | Mark]] = [[]]  # texts with breaks, and marks by turns
    for part in core:
        if isinstance(part, Mark) and _visible(part):
            runs += [[part], []]
        else:
            runs[-1].append(part)
    if len(runs) == 1:
        return [], lambda answers: None
    texts = [_spaced(joined(run)) for run in runs[::2]]

    def read(answers: list[str]) -> Parts | None:
        found: list[str | Mark] = []
        rest = iter(answers)
        for i, run in enumerate(runs):
            source = joined(run)
            if i % 2 or not texts[i // 2][1]:
                found += source
                continue
            before, _, behind = texts[i // 2]
            parts = (before + next(rest).strip() + behind,)
            found += add_unseen(parts, source) if fits(parts, source) else source
        return joined(found)

    return [text for _, text, _ in texts if text], read


def _spaced(parts: Parts) -> tuple[str, str, str]:
    """What stands before a text, the text if it has letters, and what stands behind it.

    That is white space, the end of a bracket before it, the beginning of one behind it.
    """
    whole = Shown.create(parts).text
    found = _SPACED.match(whole)
    if not found or not any(letter.isalpha() for letter in found[2]):
        return whole, "", ""
    return found[1], found[2], found[3]


FORMATS: tuple[type[TextFile], ...] = (
    *(PlainText, MarkdownFile, HtmlFile, PoFile, XliffFile, Subtitles, DocxFile),
)
BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}


def read_file(path: str | os.PathLike[str], again: bool = False) -> TextFile:
    """Reads a file to translate, by the end of its name.

    Args:
        path: Of the file.
        again: Whether what has a translation already is translated, too.

    Raises:
        ValueError: If there is no class for such names, or the file is damaged.
        FileNotFoundError: If it is not there.

    Example:
    >>> from keras_transformers.localization import read_file
    >>> read_file("letter.pdf")
    Traceback (most recent call last):
    ...
    ValueError: letter.pdf: must end in .docx, .htm, .html, .markdown, .md, .po, .pot, ...
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in BY_SUFFIX:
        raise ValueError(f"{path}: must end in {', '.join(sorted(BY_SUFFIX))}.")
    return BY_SUFFIX[suffix](pathlib.Path(path).read_bytes(), str(path), again)
