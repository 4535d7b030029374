"""Texts from files, with labels or without, and with everything that is left out counted."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.label_lists import numbered
from keras_transformers.splits import held_out
from keras_transformers.tables import (
    LABELS,
    TEXTS,
    Chosen,
    account,
    ending,
    files_of,
    read_bytes,
    read_rows,
)
from keras_transformers.tables import NAMED_ENDINGS as TABLES

ENDINGS = (".txt", ".txt.gz")


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
        if file.name.endswith(ENDINGS) and file.is_file():
            try:
                texts.append(_document(file))
            except ValueError:
                left_out["empty, broken or not in UTF-8"] += 1
    corpus = TextCorpus(path.name, texts, left_out=dict(left_out))
    return corpus.checked(f"{path} must hold {' or '.join(ENDINGS)} files in UTF-8")


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
