"""Texts from files, with labels or without, and with everything that is left out counted."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_transformers.annotations import StrPath
from keras_transformers.label_lists import numbered
from keras_transformers.tables import LABELS, account, read_bytes, read_table

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

        Raises:
            ValueError: If no text is usable, or none has a class.
        """
        pairs = ((text.strip(), label) for text, label in pairs)
        found = numbered(pairs, classes, separator, left_out)
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
        positions = np.sort(np.random.default_rng(seed).permutation(len(self))[:number])
        labels = None if self.labels is None else [self.labels[position] for position in positions]
        return dataclasses.replace(
            self, texts=[self.texts[position] for position in positions], labels=labels
        )

    def summary(self) -> str:
        """One line: how much there is, what was left out, and what is worth a look."""
        words = sum(len(text.split()) for text in self.texts)
        of = f" of {len(self.classes)} classes" if self.classes is not None else ""
        line = f"{self.name}: {len(self):,} texts{of}, {words:,} words"
        return line + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)


def read_labelled(
    path: StrPath, classes: Sequence[str] | None = None, separator: str | None = None
) -> TextCorpus:
    r"""Reads a file of `text TAB class` lines in UTF-8, plain or gzip (`.gz`).

    Or a `.csv` or `.jsonl` file, whose columns are `text` and `labels` (or `label`, `classes`,
    `class`); see `keras_transformers.tables`. Blank lines, lines without a tab or with more than
    one, invalid UTF-8, empty texts and classes that are not in `classes` are left out and counted.

    Args:
        path: The file.
        classes: Names of the classes, for a validation or test set: those of the training set.
        separator: See `TextCorpus.labelled`.

    Returns:
        A `TextCorpus` with labels.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as such, or holds no usable line.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.text import read_labelled
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.tsv"
    >>> _ = path.write_text("a cat\tanimal\na rose\tplant\n", encoding="utf-8")
    >>> read_labelled(path).classes
    ['animal', 'plant']
    """
    rows, left_out = read_table(path, (("text",), LABELS), "text TAB class")
    pairs = ((text, label) for _, (text, label) in rows)
    return TextCorpus.labelled(pathlib.Path(path).name, pairs, classes, left_out, separator)


def read_documents(path: StrPath) -> TextCorpus:
    r"""Reads a text file, or a folder of them, each one document: `.txt`, plain or gzip, in UTF-8.

    Of a folder, files that are empty, broken or not UTF-8 are left out and counted; other names are
    passed over. Windows line ends become "\n".

    Args:
        path: The file or folder.

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
    if not path.is_dir():
        return TextCorpus(path.name, [_document(path)])
    left_out: collections.Counter[str] = collections.Counter()
    texts = []
    for file in sorted(path.rglob("*")):
        if file.name.endswith(ENDINGS) and file.is_file():
            try:
                texts.append(_document(file))
            except ValueError:
                left_out["empty, broken or not in UTF-8"] += 1
    corpus = TextCorpus(path.name, texts, left_out=dict(left_out))
    return corpus.checked(f"the folder must hold {' or '.join(ENDINGS)} files in UTF-8")


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
