"""Files with a word and its tag in each row, as of the shared tasks of CoNLL."""

import collections
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from keras_transformers.annotations import StrPath
from keras_transformers.tables import Chosen, ending, read_bytes

DOCUMENT = "-DOCSTART-"  # the word of a row that begins a document
COMMENT = "#"
ENDINGS = (".conll", ".conllu")
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
    >>> from keras_transformers.text.conll import is_conll
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
        return kind in (*ENDINGS, ".txt")
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
    >>> from keras_transformers.text.conll import read_conll
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
