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
from keras_transformers.localization.marks import (
    Mark,
    Parts,
    Segment,
    Shown,
    add_unseen,
    fits,
    joined,
)
from keras_transformers.localization.markup import HtmlFile, MarkdownFile
from keras_transformers.localization.text_file import PlainText, PoFile, Subtitles, TextFile
from keras_transformers.localization.xml_files import DocxFile, XliffFile

Ask: TypeAlias = Callable[[list[str]], Sequence[str | None]]
Request: TypeAlias = tuple[Parts, tuple[str, ...]]  # a sentence, and those before it

_LINE_END = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
MOST_PAIRS = 100  # of a sentence, whose words are searched for in its translation
_SPACED = re.compile(r"([\s,;:.!?)\]]*)(.*?)([\s(\[]*)\Z", re.DOTALL)
_BULLET = re.compile(r"\A[^\w\s]+\s+")  # a dash, or another sign that stands for itself
_FILLED = "item"  # stands for a mark while sentences are split


class SentenceSplitter:
    """Splits texts into sentences, by the package `sentencex`.

    Args:
        language: Code of their language, which has abbreviations of its own.

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
        """Returns the sentences of a text, each with the white space behind it."""
        sentences = list(self._segment(self.language, text))
        return sentences if "".join(sentences) == text else [text]


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence to translate, and the white space and marks around it.

    Args:
        before: White space and marks before it.
        core: The sentence itself; empty if there is nothing to translate.
        behind: White space and marks behind it.

    Example:
    >>> from keras_transformers.localization.file_translation import sentences
    >>> [one.core for one in sentences((" One. Two.",), lambda text: [text[:6], text[6:]])]
    [('One.',), ('Two.',)]
    """

    before: Parts
    core: Parts
    behind: Parts


def sentences(parts: Parts, split: Callable[[str], list[str]]) -> list[Sentence]:
    """Returns the sentences of parts, in their order; together they are the parts."""
    for i, part in enumerate(parts):
        if _is(part, "end"):
            ending = Sentence((), (), (part,))
            return [*_sentences(parts[:i], split), ending, *sentences(parts[i + 1 :], split)]
    return _sentences(parts, split)


def _sentences(parts: Parts, split: Callable[[str], list[str]]) -> list[Sentence]:
    """Returns the sentences of parts without an "end"."""
    visible = [
        part if isinstance(part, str) else {"alone": _FILLED, "break": " "}.get(part.kind, "")
        for part in parts
    ]
    cuts = list(itertools.accumulate(map(len, split("".join(visible)))))[:-1]
    rows: list[list[str | Mark]] = [[]]
    at = 0
    for part, text in zip(parts, visible, strict=True):
        while cuts and (at > cuts[0] or at == cuts[0] and not _closes(part)):
            cuts.pop(0)
            rows.append([])
        if isinstance(part, str):
            rest = part
            while cuts and at + len(rest) > cuts[0]:
                cut = cuts.pop(0) - at
                rows[-1].append(rest[:cut])
                rows.append([])
                at, rest = at + cut, rest[cut:]
            rows[-1].append(rest)
            at += len(rest)
        else:
            rows[-1].append(part)
            at += len(text)
    return [_peeled(joined(row)) for row in rows if row]


def _closes(part: str | Mark) -> bool:
    return isinstance(part, Mark) and part.kind in ("close", "soft", "break")


def _peeled(parts: Parts) -> Sentence:
    """Returns a sentence without the white space, bullets and marks around its words."""
    if not any(part.isalpha() for part in _letters(parts)):
        return Sentence((), (), parts)
    core = list(parts)
    before: list[str | Mark] = []
    behind: list[str | Mark] = []
    while _peel(core, 0, before) or _peel(core, -1, behind) or _peel_pair(core, before, behind):
        pass
    return Sentence(joined(before), joined(core), joined(behind[::-1]))


def _peel(core: list[str | Mark], side: int, peeled: list[str | Mark]) -> bool:
    """Moves white space, or a mark around no words, from a side; False if there is none."""
    part = core[side]
    if isinstance(part, str):
        rest = _BULLET.sub("", part.lstrip()) if side == 0 else part.rstrip()
        if rest == part:
            return False
        peeled.append(part[: len(part) - len(rest)] if side == 0 else part[len(rest) :])
        core[side] = rest
        if not rest:
            core.pop(side)
        return True
    is_free = _is(part, "break", "soft") or part.kind == "alone" and part.shown is None
    if is_free or _pair(part) is not None and [*map(_pair, core)].count(part.pair) == 1:
        peeled.append(core.pop(side))
        return True
    return False


def _peel_pair(core: list[str | Mark], before: list[str | Mark], behind: list[str | Mark]) -> bool:
    """Moves a pair around the whole sentence; False if there is none."""
    first, last = core[0], core[-1]
    if not (_is(first, "open") and _is(last, "close")) or _pair(first) != _pair(last):
        return False
    before.append(core.pop(0))
    behind.append(core.pop())
    return True


def _letters(parts: Parts) -> Iterator[str]:
    return itertools.chain.from_iterable(part for part in parts if isinstance(part, str))


def _pair(part: str | Mark) -> int | None:
    return part.pair if isinstance(part, Mark) and part.kind in ("open", "close") else None


def _is(part: str | Mark, *kinds: str) -> bool:
    return isinstance(part, Mark) and part.kind in kinds


class FileTranslator:
    r"""Translates the segments of files, all at once.

    There are three ways to translate a sentence with markup. If one fails, the next is tried:

    1. With a tag for each mark. The translation must have all of them, well nested.
    2. Without the tags of pairs, and the words inside each pair as a text of their own, whose
       translation must be in the sentence's translation exactly once.
    3. In the pieces between its marks.

    So a file never breaks. `counts` has the number of sentences for each way.

    Args:
        ask: Function that translates a list of texts; it returns None for a text that fails.
        split: Function that returns the sentences of a text, see `SentenceSplitter`.
        context: Number of previous sentences of the same file that stand before each sentence, as
            `core.words.in_context` writes them.

    Attributes:
        counts: Counter of sentences and segments.

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
        self._answers: dict[str, str | None] = {}

    def translate(self, files: Sequence[TextFile]) -> list[list[Parts | None]]:
        """Returns a translation of each segment of each file; None if it stays as it is.

        A segment that can have a translation, as in a PO file, gets none unless all of its
        sentences could be translated.
        """
        rows = [
            [sentences(segment.parts, self._split) for segment in file.segments] for file in files
        ]
        requests = [request for row in rows for request in self._requests(row)]
        answers, waiting = self._translated(requests), iter(requests)
        translations: list[list[Parts | None]] = []
        for file, file_rows in zip(files, rows, strict=True):
            translations.append([])
            for segment, row in zip(file.segments, file_rows, strict=True):
                cores = [answers.get(next(waiting)) if x.core else () for x in row]
                translations[-1].append(self._translation(segment, row, cores))
        self.counts["segments"] += sum(map(len, translations))
        self.counts["segments left as they are"] += sum(x.count(None) for x in translations)
        return translations

    def _translation(
        self, segment: Segment, row: list[Sentence], answers: list[Parts | None]
    ) -> Parts | None:
        """Returns the translation of a segment from those of its sentences, and counts them."""
        missing = answers.count(None)
        self.counts["sentences"] += sum(bool(sentence.core) for sentence in row)
        self.counts["sentences left as they are"] += missing
        if missing == len(row) or missing and segment.present is not None:
            return None
        parts: list[str | Mark] = []
        for sentence, answer in zip(row, answers, strict=True):
            core = sentence.core if answer is None else answer
            parts += [*sentence.before, *core, *sentence.behind]
        return joined(parts)

    def _requests(self, segments: list[list[Sentence]]) -> Iterator[Request]:
        """Yields the sentences of a file, each with those before it."""
        previous: tuple[str, ...] = ()
        for sentence in itertools.chain.from_iterable(segments):
            if sentence.core:
                yield sentence.core, previous
                if self._context:
                    previous = (*previous, _bare(sentence.core))[-self._context :]

    def _translated(self, requests: list[Request]) -> dict[Request, Parts | None]:
        """Returns translations of sentences, by any of the ways."""
        waiting = list(dict.fromkeys(requests))
        done: dict[Request, Parts | None] = {}
        ways = [
            ("with tags", _with_tags),
            ("with markup found again", _without_pairs),
            ("in pieces", _in_pieces),
        ]
        for name, way in ways:
            trials = {sentence: _add_context(sentence[1], way(sentence[0])) for sentence in waiting}
            self._learn(text for texts, _ in trials.values() for text in texts)
            for sentence, (texts, read) in trials.items():
                answers = [self._answers[text] for text in texts]
                parts = read([answer or "" for answer in answers]) if all(answers) else None
                if parts is not None:
                    done[sentence] = parts
                    if any(isinstance(part, Mark) and _visible(part) for part in sentence[0]):
                        self.counts[f"sentences with markup, translated {name}"] += 1
            waiting = [sentence for sentence in waiting if sentence not in done]
        return done

    def _learn(self, texts: Iterable[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self._answers]
        if new:
            for text, answer in zip(new, self._ask(new), strict=True):
                if answer is not None and [answer] != without_context([text]):
                    answer = _LINE_END.sub(" ", answer)
                self._answers[text] = answer


Way: TypeAlias = tuple[list[str], Callable[[list[str]], Parts | None]]


def _add_context(previous: Sequence[str], way: Way) -> Way:
    """Returns a way whose texts stand behind previous sentences, if there are any."""
    texts, read = way
    return ([in_context(text, previous) for text in texts] if previous else texts), read


def _visible(mark: Mark) -> bool:
    return mark.kind not in ("break", "soft")


def _with_tags(core: Parts) -> Way:
    sentence = Shown.create(core)
    return [sentence.text], lambda answers: sentence.read(answers[0].strip())


def _without_pairs(core: Parts) -> Way:
    """Returns the way that puts tags around the translation of the words inside each pair."""
    pairs = _pairs(core)
    if not pairs:
        return [], lambda answers: None
    full, tags = Shown.create(core), {}
    for token, mark in full.tokens:
        tags[mark.pair, mark.kind] = token

    def read(answers: list[str]) -> Parts | None:
        edits = []
        for depth, ((pair, words), answer) in enumerate(zip(pairs, answers[1:], strict=True)):
            span = _once(answer.strip(), answers[0]) or _once(words, answers[0])
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
    """Returns the numbers of the whole pairs, by their beginnings, and the words inside.

    The list is empty if there are more than `MOST_PAIRS`. Pairs can contain one another, so reading
    the words of all of them would take time that grows with the square of their number.
    """
    ends: dict[int, int] = {}
    for i, part in enumerate(core):
        if isinstance(part, Mark) and part.kind == "close":
            ends.setdefault(part.pair, i)
    begins = [i for i, part in enumerate(core) if isinstance(part, Mark) and part.kind == "open"]
    if len(begins) > MOST_PAIRS:
        return []
    pairs = []
    for i in begins:
        pair = cast(Mark, core[i]).pair
        words = _bare(core[i + 1 : ends[pair]]).strip() if pair in ends else ""
        if not words:
            return []
        pairs.append((pair, words))
    return pairs


def _bare(parts: Parts) -> str:
    """Returns the text that a translator reads, without the tags of pairs."""
    return Shown.create(joined([part for part in parts if not _is(part, "open", "close")])).text


def _once(words: str, text: str) -> tuple[int, int] | None:
    """Returns the span of words in a text, if it has them exactly once."""
    pattern = rf"(?<!\w){re.escape(words)}(?!\w)"
    spans = [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
    spans = [
        (start, end)
        for start, end in spans
        # A combining mark belongs to the word that it stands in.
        if not set(text[max(start - 1, 0) : start] + text[end : end + 1]) & marks()
    ]
    return spans[0] if len(spans) == 1 else None


def _in_pieces(core: Parts) -> Way:
    """Returns the way by the texts between marks; it fails if a sentence has no mark."""
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
        all_parts: list[str | Mark] = []
        rest = iter(answers)
        for i, run in enumerate(runs):
            source = joined(run)
            if i % 2 or not texts[i // 2][1]:
                all_parts += source
                continue
            before, _, behind = texts[i // 2]
            parts = (before + next(rest).strip() + behind,)
            all_parts += add_unseen(parts, source) if fits(parts, source) else source
        return joined(all_parts)

    return [text for _, text, _ in texts if text], read


def _spaced(parts: Parts) -> tuple[str, str, str]:
    """Returns a text, if it has letters, between the white space, signs and brackets around it."""
    whole = Shown.create(parts).text
    match = _SPACED.match(whole)
    if not match or not any(letter.isalpha() for letter in match[2]):
        return whole, "", ""
    return match[1], match[2], match[3]


FORMATS: tuple[type[TextFile], ...] = (
    *(PlainText, MarkdownFile, HtmlFile, PoFile, XliffFile, Subtitles, DocxFile),
)
BY_SUFFIX = {suffix: kind for kind in FORMATS for suffix in kind.suffixes}


def read_file(path: str | os.PathLike[str], again: bool = False) -> TextFile:
    """Reads a file to translate, by the end of its name.

    Args:
        path: Path of the file.
        again: If True, texts that have a translation already are translated, too.

    Raises:
        ValueError: If there is no class for such names, or the file is damaged.
        FileNotFoundError: If there is no such file.

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
