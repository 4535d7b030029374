"""What is to be answered: lines, columns of tables, fields of JSON lines, images."""

import dataclasses
import glob
import hashlib
import json
import lzma
import pathlib
import zlib

from keras_transformers.predictors import Refused
from keras_transformers.tables.files import PACKED

LISTS = (".txt", ".tsv", ".jsonl")  # each also packed; other names are lines, or images
MARK = b"\xef\xbb\xbf"  # of byte order


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing to be answered.

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

    Args:
        files: Tuple of paths.
        takes: "text" or "image", what the rows are for.
        column: Of `.tsv` files: its number, from 1, or its name in the first line.
        field: Of `.jsonl` files; by default what is taken.
    """

    files: tuple
    takes: str
    column: str = "1"
    field: str | None = None

    def __iter__(self):
        alone = len(self.files) == 1
        for index, path in enumerate(self.files, 1):
            if self._is_image(path):
                # Whole, for a worker may be at work in another folder.
                yield Row(index, str(path), str(path.absolute()))
                continue
            for number, content, line in self._of_file(path):
                shown = line if isinstance(content, Refused) else None
                yield Row(number, None if alone else str(path), content, shown)

    def identity(self):
        """What changes when the rows do: the files, their sizes, when they were written.

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
            "column": self.column,
            "field": self.field,
        }

    def _is_image(self, path):
        return self.takes == "image" and _ending(path) not in LISTS

    def _of_file(self, path):
        """Numbers, contents and lines of a file of lines."""
        lines, take = _lines(path), self._line
        if _ending(path) == ".jsonl":
            take = self._json
        elif _ending(path) == ".tsv":
            column, head = self._column(path, lines)
            take = lambda line: self._cell(line, column)  # noqa: E731
            if head:
                next(lines)
        for number, line in lines:
            content = take(line)
            if self.takes == "image" and not isinstance(content, Refused):
                content = _beside(path, content)
            yield number, content, line

    def _line(self, line):
        return line

    def _json(self, line):
        field = self.field or self.takes
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            return Refused("must be an object in JSON.")
        if self.takes == "question_and_context" and self.field is None:
            return found
        return found[field] if field in found else Refused(f"must have the field {field!r}.")

    def _column(self, path, lines):
        """The position of the column, from 0, and whether the first line is a head."""
        if self.column.isdecimal() and int(self.column):
            return int(self.column) - 1, False
        names = next(_lines(path), (0, b""))[1].decode("utf-8", "replace").split("\t")
        if self.column not in names:
            raise ValueError(
                f"--column must be a number from 1, or a name in the first line of {path}: "
                f"{', '.join(names)[:200]}. Received: {self.column}"
            )
        return names.index(self.column), True

    def _cell(self, line, column):
        cells = line.split(b"\t")
        if column < len(cells):
            return cells[column]
        return Refused(f"must have {column + 1} columns, separated by tabs.")


def find(pattern, takes, column="1", field=None):
    """The rows of a file, of all files that a pattern fits, or of all in a folder and those in it.

    Args:
        pattern: Path or pattern; or a tuple of several, in their order.
        takes, column, field: See `Rows`.

    Raises:
        FileNotFoundError: If there are none.
    """
    patterns = pattern if isinstance(pattern, tuple) else (pattern,)
    files = tuple(file for each in patterns for file in _files(each))
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


def _ending(path):
    """The ending that says what a file is, without that of a packer."""
    return path.with_suffix("").suffix if path.suffix in PACKED else path.suffix


def _lines(path):
    """Numbers, from 1, and lines of a file, bytes without their ends."""
    try:
        with PACKED.get(path.suffix, open)(path, "rb") as file:
            for number, line in enumerate(file, 1):
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, line.removeprefix(MARK) if number == 1 else line
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path} cannot be read to its end: {error}") from None


def _beside(path, name):
    """The path of an image that is named in a list, from the folder of which it is seen."""
    try:
        name = name.decode() if isinstance(name, bytes) else name
        return str(path.parent.absolute() / name)
    except (UnicodeError, TypeError):
        return Refused("must be the path of a file, in UTF-8.")
