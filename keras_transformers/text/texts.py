"""Texts from files: without labels, with a label, or with a tag for each word (CoNLL).

Everything that is left out is counted.
"""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.core.types import StrPath
from keras_transformers.data.labels import OUTSIDE, numbered
from keras_transformers.data.splits import held_out
from keras_transformers.data.table_files import (
    LABELS,
    TEXTS,
    Chosen,
    Column,
    ending,
    files_of,
    read_bytes,
)
from keras_transformers.data.table_files import NAMED_ENDINGS as TABLES
from keras_transformers.data.tables import account, holds_lists, read_rows

TEXT_ENDINGS = (".txt", ".txt.gz")


@dataclasses.dataclass(frozen=True)
class TextCorpus:
    """Texts, the class of each where there are classes, and an account of what was left out.

    Args:
        name: Where the texts come from, for messages.
        texts: List of str.
        labels: Number of the class of each text, or a list of numbers where it can have several, or
            None.
        classes: Names of the classes, or None.
        left_out: Dict of reason -> number of texts left out.
        noted: The same of texts that were kept.

    Example:
    >>> from keras_transformers.text import TextCorpus
    >>> TextCorpus.labelled("toy", [("a cat", "animal"), ("", "plant")]).summary()
    'toy: 1 texts of 1 classes, 2 words; left out: 1 empty'
    """

    name: str
    texts: list[str]
    labels: list[Any] | None = None
    classes: list[str] | None = None
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    noted: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def labelled(
        cls,
        name: str,
        pairs: Iterable[tuple[str, str | Sequence[str]]],
        classes: Sequence[str] | None = None,
        left_out: Mapping[str, int] | None = None,
        separator: str | None = None,
        keeps_unknown: bool = False,
    ) -> Self:
        """Makes a corpus of an iterable of (text, name of its class).

        Args:
            name: Where the texts come from, for messages.
            pairs: Iterable of (str, str); or of (str, list of str) where there can be several.
            classes: Names of the classes; by default those that occur, sorted. A text of another
                class is left out, and counted.
            left_out: Dict of reason -> number of texts that were left out before.
            separator: What stands between the names where a text can have several classes, or none;
                None for one class each.
            keeps_unknown: See `label_lists.numbered`.

        Raises:
            ValueError: If no text is usable, or none has a class.
        """
        pairs = ((text.strip(), label) for text, label in pairs)
        found = numbered(pairs, classes, separator, left_out, keeps_unknown)
        corpus = cls(name, found.things, found.labels, found.classes, found.left_out, found.noted)
        if found.things and not found.classes:
            raise ValueError(f"{corpus.summary()}. There is nothing to learn: no text has a class.")
        return corpus.checked("each line must hold a text, a tab and its class, in UTF-8")

    def checked(self, advice: str) -> Self:
        """The corpus itself; ValueError if there is nothing in it."""
        if not self.texts:
            raise ValueError(f"{self.summary()}. There is nothing to learn from: {advice}.")
        return self

    def sample(self, number: int, seed: int = 0) -> Self:
        """`number` of the texts, drawn at random without repetition, in their order."""
        if number >= len(self):
            return self
        return self.select(np.sort(np.random.default_rng(seed).permutation(len(self))[:number]))

    def select(self, positions: Iterable[int]) -> Self:
        """The texts at these positions, as a corpus."""
        positions = list(positions)
        labels = None if self.labels is None else [self.labels[position] for position in positions]
        return dataclasses.replace(
            self, texts=[self.texts[position] for position in positions], labels=labels
        )

    def split(self, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: what is learned from, and what `splits.held_out` chooses.

        By the texts; where each has one class, the same share of every class. What was left out is
        told by the whole.
        """
        alone = self.classes is not None and all(isinstance(i, int) for i in self.labels or [None])
        chosen = held_out(self.texts, seed, self.labels if alone else None)
        first, second = (self.select(np.flatnonzero(part)) for part in (~chosen, chosen))
        return (
            dataclasses.replace(first, left_out={}, noted={}),
            dataclasses.replace(second, left_out={}, noted={}),
        )

    def summary(self) -> str:
        """One line: how much there is, what was left out, and what is worth a look."""
        words = sum(len(text.split()) for text in self.texts)
        of = f" of {len(self.classes)} classes" if self.classes is not None else ""
        line = f"{self.name}: {len(self):,} texts{of}, {words:,} words"
        return line + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)


def read_labelled(
    data: Any,
    classes: Sequence[str] | None = None,
    separator: str | None = None,
    columns: Chosen = None,
) -> TextCorpus:
    r"""Reads a file of `text TAB class` lines in UTF-8, plain or gzip (`.gz`).

    Or a `.csv`, `.jsonl` or `.parquet` file, or what is in memory, whose columns are `text` and
    `labels` (or `label`, `classes`, `class`), have other usual names, or are two. Blank lines,
    lines without a tab or with more than one, invalid UTF-8, empty texts and classes that are not
    in `classes` are left out and counted.

    Args:
        data: Path of the file, a DataFrame, a dataset, a list of pairs ...; see `tables.read_rows`.
        classes: Names of the classes, for a validation or test set: those of the training set.
        separator: See `TextCorpus.labelled`.
        columns: Names, or positions from 0, of text and label, where they have others.

    Returns:
        A `TextCorpus` with labels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as such, or holds no usable line.
        TypeError: If `data` is no table.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.text import read_labelled
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.tsv"
    >>> _ = path.write_text("a cat\tanimal\na rose\tplant\n", encoding="utf-8")
    >>> read_labelled(path).classes
    ['animal', 'plant']
    """
    rows = read_rows(data, (TEXTS, LABELS), "text TAB class", columns).without_names()
    pairs = ((text, label) for _, (text, label) in rows.kept)
    return TextCorpus.labelled(rows.name, pairs, classes, rows.left_out, separator)


def read_documents(path: StrPath) -> TextCorpus:
    r"""Reads a text file, or several, each one document: `.txt`, plain or gzip, in UTF-8.

    Of several, files that are empty, broken or not UTF-8 are left out and counted; files with other
    names are passed over. Windows line ends become "\n".

    Args:
        path: The file, the folder, or a pattern such as "books/*.txt".

    Returns:
        A `TextCorpus` without labels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a single file cannot be read, or nothing usable is found.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.text import read_documents
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.txt"
    >>> _ = path.write_text("A cat sat.", encoding="utf-8")
    >>> read_documents(path).texts
    ['A cat sat.']
    """
    path = pathlib.Path(path)
    files = sorted(path.rglob("*")) if path.is_dir() else files_of(path)
    if files == [path]:
        return TextCorpus(path.name, [_document(path)])
    left_out: collections.Counter[str] = collections.Counter()
    texts = []
    for file in files:
        if file.name.endswith(TEXT_ENDINGS) and file.is_file():
            try:
                texts.append(_document(file))
            except ValueError:
                left_out["empty, broken or not in UTF-8"] += 1
    corpus = TextCorpus(path.name, texts, left_out=dict(left_out))
    return corpus.checked(f"{path} must hold {' or '.join(TEXT_ENDINGS)} files in UTF-8")


def read_texts(data: Any, columns: Chosen = None) -> TextCorpus:
    """Reads texts without labels: documents, or the column of a table.

    Args:
        data: A text file or a folder of them, see `read_documents`; a list of texts; or any table
            with a column `text`, see `tables.read_rows`.
        columns: Name, or position from 0, of the column, where it has another.

    Returns:
        A `TextCorpus` without labels.

    Raises:
        FileNotFoundError, ValueError, TypeError: As those two.

    Example:
    >>> from keras_transformers.text import read_texts
    >>> read_texts(["A cat sat.", ""]).summary()
    'the list: 1 texts, 3 words; left out: 1 blank'
    """
    if isinstance(data, str | pathlib.PurePath) and (
        pathlib.Path(data).is_dir() or ending(files_of(data)[0]) not in TABLES
    ):
        return read_documents(data)
    rows = read_rows(data, (TEXTS,), "texts", columns)
    texts = [text.strip() for _, (text,) in rows.kept]
    kept, left_out = [text for text in texts if text], collections.Counter(rows.left_out)
    left_out["empty"] += len(texts) - len(kept)
    corpus = TextCorpus(rows.name, kept, left_out=dict(+left_out))
    return corpus.checked("each row must hold a text")


def _document(path: pathlib.Path) -> str:
    try:
        text = read_bytes(path, "a text file").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"{error.reason} at byte {error.start}"
        raise ValueError(f"{path} is not in UTF-8 ({where}).") from None
    text = text.replace("\r\n", "\n")
    if not text.strip():
        raise ValueError(f"{path} is empty; give a text file.")
    return text


WORDS = Column(("tokens", "words", "text", "sentence"), "labels")
TAGS = Column(("tags", "ner_tags", "labels", "label"), "labels")


@dataclasses.dataclass(frozen=True)
class TaggedCorpus:
    """Sentences, a tag for each of their words, and an account of what was left out.

    Args:
        name: Where they come from, for messages.
        words: A list of str for each sentence.
        tags: The same, of as many.
        left_out: Dict of reason -> number of sentences left out.
        noted: The same of what was kept.

    Example:
    >>> from keras_transformers.text import TaggedCorpus
    >>> corpus = TaggedCorpus("toy", [["Angela", "smiles"]], [["B-PER", "O"]])
    >>> corpus.summary(), corpus.classes()
    ('toy: 1 sentences of 2 words, 2 tags', ['O', 'B-PER'])
    """

    name: str
    words: list[list[str]]
    tags: list[list[str]]
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    noted: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.words)

    def classes(self) -> list[str]:
        """The tags that occur, sorted, "O" first."""
        found = {tag for sentence in self.tags for tag in sentence}
        if all(tag.isdecimal() for tag in found):
            return sorted(found, key=int)
        return sorted(found, key=lambda tag: (tag != OUTSIDE, tag))

    def summary(self) -> str:
        """One line: how much there is, what was left out, and what is worth a look."""
        words = sum(map(len, self.words))
        line = (
            f"{self.name}: {len(self):,} sentences of {words:,} words, {len(self.classes())} tags"
        )
        return line + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)

    def select(self, positions: Iterable[int]) -> Self:
        """The sentences at these positions, as a corpus."""
        chosen = list(positions)
        words, tags = ([each[i] for i in chosen] for each in (self.words, self.tags))
        return dataclasses.replace(self, words=words, tags=tags)

    def split(self, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: what is learned from, and what `splits.held_out` chooses by the words."""
        chosen = held_out([" ".join(words) for words in self.words], seed)
        first, second = (
            dataclasses.replace(self.select(np.flatnonzero(part)), left_out={}, noted={})
            for part in (~chosen, chosen)
        )
        return first, second

    def within(self, classes: Sequence[str]) -> Self:
        """The sentences whose tags are all among these; the others are left out, and counted."""
        known = set(classes)
        there = [i for i, tags in enumerate(self.tags) if known.issuperset(tags)]
        left_out = collections.Counter(self.left_out)
        left_out["with a tag that is not in the training set"] += len(self) - len(there)
        return dataclasses.replace(self.select(there), left_out=dict(+left_out)).checked()

    def checked(self) -> Self:
        """The corpus itself; ValueError if there is nothing in it."""
        if not self.words:
            raise ValueError(
                f"{self.summary()}. There is nothing to learn from: each row must hold words and "
                "as many tags, or a word and its tag with a blank line between sentences."
            )
        return self


def read_tagged(data: Any, columns: Chosen = None) -> TaggedCorpus:
    r"""Reads sentences with a tag for each word.

    Args:
        data: The path of a file with a word and its tag in each row, see `read_conll`: a
            `.conll`, `.conllu` or `.txt` file, or a `.tsv` file of that kind. Or a table, see
            `tables.read_rows`, with columns `tokens` and `tags` (or `ner_tags`, `labels`): lists of
            str, or texts in which blanks stand between words and between tags. Numbers for tags are
            known by their names where a Hugging Face dataset has such.
        columns: Names, or positions from 0, of words and tags, where they have others.

    Returns:
        A `TaggedCorpus`. Rows that are empty, or whose words and tags are not as many, are left out
        and counted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as such, or holds no usable sentence.
        TypeError: If `data` is no table.

    Example:
    >>> from keras_transformers.text import read_tagged
    >>> whole, broken = (["Hi", "Bo"], ["O", "B-PER"]), (["Hi"], [])
    >>> read_tagged([whole, broken]).summary()
    'the list: 1 sentences of 2 words, 2 tags; left out: 1 with other numbers of words and tags'
    """
    noted: dict[str, int] = {}
    if isinstance(data, str | pathlib.PurePath) and is_conll(data):
        name = pathlib.Path(data).name
        pairs, left_out, noted = read_conll(data, columns)
    else:
        rows = read_rows(data, (WORDS, TAGS), "words TAB tags", columns)
        name, left_out = rows.name, rows.left_out
        pairs = [(_parts(words), _parts(tags)) for _, (words, tags) in rows.kept]
    kept = []
    for words, tags in pairs:
        if not words and not tags:
            left_out["empty"] += 1
        elif len(words) != len(tags):
            left_out["with other numbers of words and tags"] += 1
        elif not all(tag.strip() for tag in tags):
            left_out["with an empty tag"] += 1
        else:
            kept.append((words, [tag.strip() for tag in tags]))
    both = [words for words, _ in kept], [tags for _, tags in kept]
    return TaggedCorpus(name, *both, left_out=dict(+left_out), noted=noted).checked()


def holds_tags(data: Any, columns: Chosen = None) -> bool:
    """Whether what is to be learned is a tag for each word: a `.conll` file, or lists of words.

    Example:
    >>> from keras_transformers.text.texts import holds_tags
    >>> tagged = [{"tokens": ["a"], "tags": ["O"]}]
    >>> [holds_tags(data) for data in (tagged, [{"text": "a", "label": "b"}], "a.conll")]
    [True, False, True]
    """
    if isinstance(data, str | pathlib.PurePath) and ending(data) in CONLL_ENDINGS:
        return True
    return holds_lists(data, WORDS, columns)


def _parts(cell: str | list[str]) -> list[str]:
    return cell.split() if isinstance(cell, str) else cell


DOCUMENT = "-DOCSTART-"  # the word of a row that begins a document
COMMENT = "#"
CONLL_ENDINGS = (".conll", ".conllu")
# Columns of CoNLL-U, the format of Universal Dependencies, and the position of the part of speech.
CONLL_U, PART_OF_SPEECH = 10, 3
NO_WORD = re.compile(r"\d+[-.]\d+")  # the number of a range of words, or of an empty node
# Pairs of words and tags, of a sentence each; why sentences are left out; what is worth knowing.
Sentences = tuple[list[tuple[list[str], list[str]]], collections.Counter[str], dict[str, int]]


def is_conll(path: StrPath) -> bool:
    r"""Whether a file has a word a row, and not a text.

    A `.conll`, `.conllu` or `.txt` file has. A `.tsv` file has unless the first cell of a row has
    several words, or the first row says `text`, `tokens` or the like.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.text.texts import is_conll
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = path.write_text("Angela\tB-PER\nMerkel\tI-PER\n\nHi\tO\n")
    >>> is_conll(path)
    True
    >>> _ = path.write_text("Angela Merkel\tB-PER I-PER\nHi\tO\n")
    >>> is_conll(path)
    False
    """
    kind = ending(path)
    if kind != ".tsv":
        return kind in (*CONLL_ENDINGS, ".txt")
    rows = [row for row in (line.split("\t") for line in _lines(path)) if len(row) > 1]
    named = bool(rows) and rows[0][0].strip().lower() in ("text", "sentence", "tokens", "words")
    return not named and not any(len(row[0].split()) > 1 for row in rows)


def read_conll(path: StrPath, columns: Chosen = None) -> Sentences:
    r"""The sentences of a file with a word and its tag in each row.

    Columns are separated by tabs, or, where most rows have none, by blanks. A blank line ends a
    sentence; a row of `-DOCSTART-` does, and is passed over. A row that begins with `#` is a
    comment, and counted, if it has not as many columns as most; or if `#` stands alone and has a
    tag that no other row has.

    If the first of three columns or more counts the words of each sentence, the words are in the
    second one, as in GermEval and in Universal Dependencies. Of a file with the ten columns of the
    latter the tag is the part of speech (UPOS). Rows whose number is a range ("3-4") or has a point
    ("8.1") repeat other words, or are not in the text: they are passed over, and counted.

    Args:
        path: The file, which may be packed, `.gz`.
        columns: Positions of word and tag, from 0, or from the last as -1; by default `(0, -1)`,
            or as said above.

    Returns:
        List of `(words, tags)`; a Counter of reason -> sentences that are left out: those with a
        row that has not as many columns as most, or not in UTF-8; and a dict of what was kept, but
        is worth knowing.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or `columns` are no two positions.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.text.texts import read_conll
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.conll")
    >>> _ = path.write_text("-DOCSTART- -X- O\n\nAngela NNP B-PER\nsmiles VBZ O\n")
    >>> read_conll(path)[0]
    [(['Angela', 'smiles'], ['B-PER', 'O'])]
    """
    word, tag = _positions(path, columns)
    rows = _rows(path)
    widths = collections.Counter(len(row) for row in rows if row)
    width = widths.most_common(1)[0][0] if widths else 0
    if width < 2 or not all(-width <= each < width for each in (word, tag)):
        raise ValueError(
            f"{path}: rows must have a word and its tag, separated by blanks or a tab. Most have "
            f"{width} columns; `columns` are {(word, tag)}."
        )
    is_counted = width > 2 and _counts_words(rows, width)
    if is_counted and columns is None:
        word = 1
        tag = PART_OF_SPEECH if width == CONLL_U else tag
    whole = [row for row in rows if len(row) == width]
    known = {row[tag].strip() for row in whole if row[0][:1] != COMMENT}
    kept, left_out = [], collections.Counter[str]()
    noted = collections.Counter[str]()
    for sentence in _sentences(rows):
        there = [row for row in sentence if not _is_comment(row, width, tag, known)]
        noted["lines of comments passed over"] += len(sentence) - len(there)
        if is_counted:
            number = len(there)
            there = [row for row in there if not NO_WORD.fullmatch(row[0])]
            noted["rows of no word of their own passed over"] += number - len(there)
        if any(len(row) != width for row in there):
            left_out["with a row of more or fewer columns than most"] += 1
        elif any("\ufffd" in row[word] + row[tag] for row in there):
            left_out["with invalid UTF-8"] += 1
        elif there:
            kept.append(([row[word] for row in there], [row[tag] for row in there]))
    return kept, left_out, dict(+noted)


def _counts_words(rows: list[list[str]], width: int) -> bool:
    """True if the first cell of each row is the number of the word in its sentence.

    Numbers begin with 0 or 1 in each sentence, or go on from one sentence to the next. Rows that
    have another number of columns do not count.
    """
    last = 0
    any_number = False
    for sentence in _sentences(rows):
        numbers = [row[0] for row in sentence if len(row) == width and row[0] != COMMENT]
        numbers = [number for number in numbers if not NO_WORD.fullmatch(number)]
        if not all(number.isdecimal() for number in numbers):
            return False
        if not numbers:
            continue
        first = int(numbers[0])
        follows = list(range(first, first + len(numbers)))
        if [int(number) for number in numbers] != follows or first not in (0, 1, last + 1):
            return False
        last = follows[-1]
        any_number = True
    return any_number


def _rows(path: StrPath) -> list[list[str]]:
    """The cells of each line; none of lines that end a sentence."""
    lines = _lines(path)
    tabs = 2 * sum("\t" in line for line in lines) > sum(map(bool, lines))
    separator = re.compile("\t" if tabs else "[ \t]+")
    ends = [not line.strip() or line.startswith(DOCUMENT) for line in lines]
    return [
        [] if end else separator.split(line.strip(" \t"))
        for line, end in zip(lines, ends, strict=True)
    ]


def _is_comment(row: list[str], width: int, tag: int, known: set[str]) -> bool:
    """Whether a row is one, by its number of columns and the tags of other rows."""
    alone = row[0].partition(" ")[0] == COMMENT
    return row[0][:1] == COMMENT and (len(row) != width or alone and row[tag] not in known)


def _sentences(rows: list[list[str]]) -> Iterator[list[list[str]]]:
    sentence: list[list[str]] = []
    for row in [*rows, []]:
        if row:
            sentence.append([cell.strip() for cell in row])
        elif sentence:
            yield sentence
            sentence = []


def _lines(path: StrPath) -> list[str]:
    """The lines of a file, in which what is no UTF-8 has become U+FFFD.

    Only line feeds end one: a word may hold other characters that Unicode calls line ends.
    """
    text = read_bytes(path, "a file with a word and its tag in each row")
    found = text.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")
    if not any(line.strip() for line in found):
        raise ValueError(f"{path} is empty; give a file with a word and its tag in each row.")
    return found


def _positions(path: StrPath, columns: Chosen) -> tuple[int, int]:
    if columns is None:
        return 0, -1
    given: Sequence[Any] = [columns] if isinstance(columns, str | int) else list(columns)
    if len(given) != 2 or not all(type(each) is int for each in given):
        raise ValueError(
            f"{pathlib.Path(path).name}: `columns` must be two positions, of word and tag, such as "
            f"(0, -1). Received: {columns!r}"
        )
    return given[0], given[1]
