"""Tables in files: rows of columns, read with care, and an account of what was left out.

Columns are separated by tabs, with no quotes; or a file `.csv` has commas and quotes (semicolons,
where the first line has no comma), and one `.jsonl` an object in each line. Every kind may be
packed, `.gz`, and is in UTF-8. A byte order mark and Windows line ends do no harm.
"""

import collections
import contextlib
import csv
import gzip
import io
import json
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from keras_transformers.annotations import StrPath

MARK = b"\xef\xbb\xbf"  # of byte order
ENDINGS = (".tsv", ".csv", ".jsonl")  # of tables; files of other names have tabs, too
LABELS = ("labels", "label", "classes", "class")  # names of the column that has them


def read_bytes(path: StrPath, kind: str) -> bytes:
    """The bytes of a file, unpacked where its name ends in `.gz`.

    Args:
        path: The file.
        kind: What it should hold, for messages.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or is no whole gzip file.
    """
    path = pathlib.Path(path)
    check_file(path, kind)
    with _opened(path) as file:
        return file.read()


def check_file(path: pathlib.Path, kind: str) -> None:
    """FileNotFoundError if there is no such file; `kind` says what it should hold."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give {kind}.")


def ending(path: StrPath) -> str:
    """The ending that says what a file is, in lower case, without that of gzip."""
    path = pathlib.Path(path)
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def read_table(
    path: StrPath, columns: Sequence[Sequence[str]], layout: str
) -> tuple[list[tuple[int, list[Any]]], collections.Counter[str]]:
    r"""The rows of a table of two columns, and how many were left out for what reason.

    The first line may name the columns, in any order; without names they are in that of `columns`.

    Args:
        path: The file.
        columns: For each column a tuple of the names that it may have.
        layout: What a line holds, for messages.

    Returns:
        List of `(line, values)`: the number of the line, from 1, and the value of each column, str,
        of `LABELS` in JSON also a list of str; and a `collections.Counter` of reason -> rows.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is empty, or has another column than those.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import LABELS, read_table
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.csv"
    >>> _ = path.write_text('label,text\nanimal,"a cat, a dog"\n\n', encoding="utf-8")
    >>> read_table(path, (("text",), LABELS), "text and class")
    ([(2, ['a cat, a dog', 'animal'])], Counter({'blank': 1}))
    """
    rows: list[tuple[int, list[Any]]] = []
    left_out: collections.Counter[str] = collections.Counter()
    for line, values in table_rows(path, columns, layout):
        if isinstance(values, str):
            left_out[values] += 1
        else:
            rows.append((line, values))
    return rows, left_out


def table_rows(
    path: StrPath, columns: Sequence[Sequence[str]], layout: str, after: int = 0
) -> Iterator[tuple[int, Any]]:
    r"""The rows of a table one by one, which are never in memory together.

    Args:
        path, columns, layout: As for `read_table`.
        after: Number of a line; only what stands behind it is given. What is passed over is not
            taken apart, but by commas.

    Yields:
        `(line, values)`; or `(line, reason)`, a str, where the row is to be left out.

    Raises:
        FileNotFoundError, ValueError: As `read_table`, where a file breaks off also after some
            rows.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import table_rows
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.tsv"
    >>> _ = path.write_text("a cat\teine Katze\na dog\n", encoding="utf-8")
    >>> list(table_rows(path, (("source",), ("target",)), "source TAB target"))
    [(1, ['a cat', 'eine Katze']), (2, 'without a tab')]
    """
    path = pathlib.Path(path)
    check_file(path, f"a file of {layout} lines")
    kind = ending(path)
    with _opened(path) as file:
        if not file.peek(1):
            raise ValueError(f"{path} is empty; give a file of {layout} lines.")
        if kind == ".jsonl":
            yield from _of_objects(path, _lines(file), columns, after)
            return
        comma = kind == ".csv"
        cells = _between_commas(path, file) if comma else _between_tabs(_lines(file), after)
        yield from _in_order(path, cells, columns, "comma" if comma else "tab", after)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[io.BufferedReader]:
    """A file to be read, unpacked where its name ends in `.gz`, without a byte order mark."""
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            if file.read(len(MARK)) != MARK:
                file.seek(0)
            yield cast(io.BufferedReader, file)  # or what has its methods
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole gzip file ({error}).") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}).") from None


def _lines(file: io.BufferedReader) -> Iterator[bytes]:
    return (line for part in file for line in part.splitlines())


def account(**counts: Mapping[str, int]) -> str:
    """The end of a sentence about what was read, from dicts of reason -> number.

    Example:
    >>> from keras_transformers.tables import account
    >>> account(left_out={"blank": 2, "empty": 1}, repaired={})
    '; left out: 2 blank, 1 empty'
    """
    text = ""
    for what, reasons in counts.items():
        if any(reasons.values()):
            listed = ", ".join(f"{n:,} {reason}" for reason, n in reasons.items() if n)
            text += f"; {what.replace('_', ' ')}: {listed}"
    return text


def _between_tabs(lines: Iterable[bytes], after: int) -> Iterator[tuple[int, list[str] | str]]:
    """Numbers of lines, and the cells of each or why it is left out; of the first line always."""
    for line, content in enumerate(lines, 1):
        if 1 < line <= after:
            continue
        try:
            yield line, content.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"


def _between_commas(
    path: StrPath, file: io.BufferedReader
) -> Iterator[tuple[int, list[str] | str]]:
    """As `_between_tabs`; a row may go on over several lines, inside quotes."""
    start = file.tell()
    first = file.readline()
    file.seek(start)
    text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
    between = ";" if b";" in first and b"," not in first else ","  # as spreadsheets in Europe
    reader, line = csv.reader(text, delimiter=between, strict=True, skipinitialspace=True), 1
    try:
        for cells in reader:
            yield line, cells if _is_unicode("".join(cells)) else "with invalid UTF-8"
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: no row of a CSV file ({error}).") from None


def _in_order(
    path: StrPath,
    rows: Iterable[tuple[int, list[str] | str]],
    columns: Sequence[Sequence[str]],
    separator: str,
    after: int,
) -> Iterator[tuple[int, Any]]:
    """Rows with a value for each column, by the names in the first line, if they stand there."""
    positions, known = list(range(len(columns))), {name for column in columns for name in column}
    least = min(2, len(columns))  # names in the first line; a single one can be a text
    many = f"with more than {['no', 'one', 'two', 'three'][len(columns)]} column"
    many += "s" if len(columns) > 1 else ""
    for line, cells in rows:
        named = line == 1 and not isinstance(cells, str)
        if named and sum(_plain(cell) in known for cell in cells) >= least:
            positions = _positions(path, line, [_plain(cell) for cell in cells], columns)
        elif line <= after:
            continue
        elif isinstance(cells, str):
            yield line, cells
        elif not "".join(cells).strip():
            yield line, "blank"
        elif len(cells) != len(columns):
            yield line, f"without a {separator}" if len(cells) < len(columns) else many
        else:
            yield line, [cells[position] for position in positions if position is not None]


def _of_objects(
    path: StrPath, lines: Iterable[bytes], columns: Sequence[Sequence[str]], after: int
) -> Iterator[tuple[int, Any]]:
    """As `_in_order`, of JSON."""
    for line, content in enumerate(lines, 1):
        if line <= after:
            continue
        try:
            found = json.loads(content.decode("utf-8"))
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"
        except (ValueError, RecursionError):
            yield line, "that are no objects in JSON" if content.strip() else "blank"
        else:
            yield line, _of_object(path, line, found, columns)


def _of_object(path: StrPath, line: int, found: Any, columns: Sequence[Sequence[str]]) -> Any:
    """The value for each column, or why there is none."""
    if not isinstance(found, dict):
        return "that are no objects in JSON"
    positions, values = _positions(path, line, list(found), columns), list(found.values())
    values = [None if position is None else _text(values[position]) for position in positions]
    for names, value in zip(columns, values, strict=True):
        if value is None or isinstance(value, list) and names is not LABELS:
            return f"without text for {names[0]!r}"
    return values


def _text(value: Any) -> Any:
    """A str or a list of str of what JSON holds; whole numbers are names, too. None of others."""
    if isinstance(value, list):
        values = [_text(each) for each in value]
        return values if all(isinstance(each, str) for each in values) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and _is_unicode(value) else None


def _is_unicode(text: str) -> bool:
    """Whether there is no half of a surrogate pair in it, as for a byte that is no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(name: str) -> str:
    return name.strip().lower()


def _positions(
    path: StrPath, line: int, names: Sequence[str], columns: Sequence[Sequence[str]]
) -> list[int | None]:
    """The position of each column among names, None where it is not there.

    Raises:
        ValueError: If a name is that of no column, or two are those of one.
    """
    positions: list[int | None] = [None] * len(columns)
    for position, name in enumerate(names):
        column = next((i for i, each in enumerate(columns) if name in each), None)
        if column is None or positions[column] is not None:
            wanted = " and ".join(each[0] for each in columns)
            what = "there is no such column as" if column is None else "another column is already"
            raise ValueError(f"{path}, line {line}: {what} {name!r}; the columns are {wanted}.")
        positions[column] = position
    return positions
