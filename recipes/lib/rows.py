"""Rows to answer: lines, columns of tables, fields of objects, images."""

import dataclasses
import glob
import hashlib
import json
import pathlib
from collections.abc import Mapping

from keras_transformers.data.table_files import (
    NO_OBJECT,
    NO_TEXT,
    OF_RECORDS,
    opened,
    opened_text,
    plain,
    rows_of_file,
)
from keras_transformers.predictors import Refused
from keras_transformers.tables import NAMED_ENDINGS, PAIRS, TEXTS, ending

LISTS = (".txt", ".tsv", ".csv", ".jsonl")  # of images; files with other names are images
# Files whose texts stand between marks, which `recipes.translate_files` knows; and others.
MARKED_UP = (".docx", ".html", ".htm", ".xhtml", ".po", ".pot", ".srt", ".xlf", ".xliff")
NO_LINES = (*MARKED_UP, ".sdlxliff", ".pdf", ".xls", ".xlsx", ".ods", ".odt", ".doc", ".zip")
# Names of the column that is read if nothing else is said.
USUAL_NAMES = {
    "text": (*TEXTS.names, *PAIRS[0].names),
    "image": ("image", "file", "file_name", "filename", "path"),
}
QUESTION = "question_and_context"
REASONS = {
    NO_TEXT: "must be text in UTF-8.",
    NO_OBJECT: "must be an object in JSON.",
    "blank": "must be an object in JSON.",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One text or image to answer.

    Args:
        number: Of its line in the file, or of its image among all, from 1.
        file: Name of the file; None where there is but one, of lines.
        content: Text or image as a predictor takes it, or a `Refused`.
        shown: What stands there, where `content` does not say it.
    """

    number: int
    file: str | None
    content: object
    shown: object = None


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of files, in their order.

    Tables are read as `keras_transformers.tables` reads them. Any other file has a text, or the
    path of an image, in each line.

    Args:
        files: Tuple of paths.
        takes: "text" or "image", what the rows are for.
        column: Of tables: its number, from 1, or its name. By default the one that the first line
            calls "text" or by another usual name; without such a line the first. Questions have two
            columns, "question" and "context".
        field: Of JSON lines, instead of `column`; by default what is taken.
    """

    files: tuple
    takes: str
    column: str | None = None
    field: str | None = None

    def __iter__(self):
        alone = len(self.files) == 1
        for index, path in enumerate(self.files, 1):
            if self._is_image(path):
                # Whole, for a worker may be at work in another folder.
                yield Row(index, str(path), str(path.absolute()))
                continue
            for number, content, line in self._of_file(path):
                if self.takes == "image" and not isinstance(content, Refused):
                    content = _beside(path, content)
                shown = _shown(line) if isinstance(content, Refused) else None
                yield Row(number, None if alone else str(path), content, shown)

    def identity(self):
        """Returns a dict that changes with the rows: the files, their sizes and times.

        Raises:
            ValueError: If a file is gone.
        """
        try:
            stats = [(str(path), path.stat()) for path in self.files]
        except OSError as error:
            raise ValueError(f"{error.filename}: {error.strerror}.") from None
        files = [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]
        return {
            "files": len(files),
            "bytes": sum(size for _, size, _ in files),
            "written": hashlib.sha256(json.dumps(files).encode()).hexdigest(),
            "column": self.column or "1",
            "field": self.field,
        }

    def _is_image(self, path):
        return self.takes == "image" and ending(path) not in LISTS

    def _of_file(self, path):
        """Yields numbers, contents and lines of a file: a table, or texts in lines."""
        if ending(path) in NAMED_ENDINGS:
            yield from self._of_table(path)
            return
        for number, line in _lines(path):
            yield number, line, line

    def _of_table(self, path):
        if _is_empty(path):
            return
        position = key = names = None
        for number, cells in rows_of_file(path, self.takes):
            if isinstance(cells, str):
                reason = REASONS.get(cells, "must be a row that can be read.")
                yield number, Refused(reason), getattr(cells, "content", "")
            elif isinstance(cells, Mapping):
                key = key or self._key(path, cells)
                yield number, self._value(cells, key), cells
            elif self.takes == QUESTION and self.column is None:
                if names is None:
                    names = [plain(cell) for cell in cells]
                    if {"question", "context"} <= {*names}:
                        continue
                    names = ["question", "context"]
                yield number, dict(zip(names, cells, strict=False)), cells
            else:
                if position is None:
                    position, is_header = self._position(path, cells)
                    if is_header:
                        continue
                yield number, _cell(cells, position), cells

    def _key(self, path, row):
        """Returns the key of the answered value, from the first row that is a dict."""
        if self.field is not None:
            return self.field
        if self.column is None:
            return self.takes
        if not self.column.isdecimal():
            return self.column
        keys = list(row)
        number = int(self.column)
        # Objects in JSON lines have no order that a user would count by.
        has_order = ending(path) in OF_RECORDS
        return keys[number - 1] if has_order and number <= len(keys) else self.takes

    def _value(self, row, key):
        if self.takes == QUESTION and key == self.takes:
            return row
        return row[key] if key in row else Refused(f"must have the field {key!r}.")

    def _position(self, path, cells):
        """Returns the position of the column, from 0, and whether the first row has names."""
        if self.column is None:
            usual = USUAL_NAMES.get(self.takes, ())
            positions = [i for i, cell in enumerate(cells) if plain(cell) in usual]
            return (positions[0], True) if positions else (0, False)
        if self.column.isdecimal() and int(self.column):
            return int(self.column) - 1, False
        names = [cell.strip() for cell in cells]
        if self.column not in names:
            raise ValueError(
                f"--column must be a number from 1, or a name in the first line of {path}: "
                f"{', '.join(names)[:200]}. Received: {self.column}"
            )
        return names.index(self.column), True


def find(pattern, takes, column=None, field=None):
    """Finds the rows of a file, of all files that match a pattern, or of all files in a folder.

    Args:
        pattern: Path or pattern; or a tuple of several, in their order.
        takes, column, field: See `Rows`.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If a file for texts is of a kind that has no lines.
    """
    patterns = pattern if isinstance(pattern, tuple) else (pattern,)
    files = tuple(file for each in patterns for file in _files(each))
    for path in files:
        if takes != "image" and ending(path) in NO_LINES:
            advice = (
                "recipes.translate_files reads it"
                if ending(path) in MARKED_UP
                else (f"give lines of text, or a table: {', '.join(NAMED_ENDINGS)}")
            )
            raise ValueError(f"{path} does not have a text in each line; {advice}.")
    return Rows(files, takes, column, field)


def _files(pattern):
    path = pathlib.Path(pattern)
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = path.rglob("*")
    else:
        files = map(pathlib.Path, glob.glob(pattern, recursive=True))
    files = sorted(file for file in files if file.is_file() and not file.name.startswith("."))
    if not files:
        raise FileNotFoundError(f"there is no file {pattern}.")
    return files


def _is_empty(path):
    with opened(path, "a table") as file:
        return not file.peek(1)


def _lines(path):
    """Yields numbers, from 1, and lines of a file, bytes without their ends."""
    try:
        with opened_text(path, "a file of lines") as file:
            if b"\0" in file.peek(1):
                raise ValueError("it holds no text in UTF-8, or in UTF-16 with its mark.")
            for number, line in enumerate(file, 1):
                yield number, line.removesuffix(b"\n").removesuffix(b"\r")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read to its end: {error}") from None


def _cell(cells, position):
    """Returns the cell at a position; the first cell of a blank line is empty."""
    cells = cells or [""]
    if position < len(cells):
        return cells[position]
    return Refused(f"must have {position + 1} columns.")


def _shown(row):
    """Returns a row as the list of bad rows shows it."""
    if isinstance(row, list):
        return "\t".join(row)
    return json.dumps(row, ensure_ascii=False, default=str) if isinstance(row, Mapping) else row


def _beside(path, name):
    """Returns the path of an image that a list names, relative to the folder of the list."""
    try:
        name = name.decode() if isinstance(name, bytes) else name
        return str(path.parent.absolute() / name)
    except (UnicodeError, TypeError):
        return Refused("must be the path of a file, in UTF-8.")
