"""Tables in files: their rows, as cells or as dicts, and which column holds what.

`keras_transformers.tables` describes the formats. Parquet, Arrow and TFRecord files are no text;
their rows are records.
"""

import codecs
import collections
import contextlib
import csv
import dataclasses
import functools
import glob
import gzip
import io
import json
import lzma
import math
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, cast

from keras_transformers.core.types import StrPath

Records: TypeAlias = Iterator[Mapping[str, Any] | str]  # or why one is left out


def of_parquet(path: pathlib.Path, after: int = 0) -> Records:
    """The rows of a Parquet file behind the first so many; groups of rows are passed over whole."""
    with _whole(path, "Parquet") as arrow:
        with arrow.parquet.ParquetFile(path) as file:
            check_names_differ(str(path), file.schema_arrow.names)
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if after < size:
                    for batch in file.iter_batches(ROWS, [group]):
                        batch.validate(full=True)
                        yield from batch.slice(after).to_pylist()
                        after = max(after - batch.num_rows, 0)
                else:
                    after -= size


def of_arrow(path: pathlib.Path, after: int = 0) -> Records:
    """The rows of an Arrow file, or of a stream, as `save_to_disk` of `datasets` writes it."""
    with _whole(path, "Arrow") as arrow, arrow.memory_map(str(path)) as file:
        is_file = file.read(len(ARROW_FILE)) == ARROW_FILE
        file.seek(0)
        opened = arrow.ipc.open_file(file) if is_file else arrow.ipc.open_stream(file)
        check_names_differ(str(path), opened.schema.names)
        for batch in _batches_of_file(opened) if is_file else opened:
            batch.validate(full=True)  # or what a damaged file says of itself would be believed
            for start in range(min(after, batch.num_rows), batch.num_rows, ROWS):
                yield from batch.slice(start, ROWS).to_pylist()
            after = max(after - batch.num_rows, 0)


def _batches_of_file(opened: Any) -> Iterator[Any]:
    return (opened.get_batch(number) for number in range(opened.num_record_batches))


def of_examples(path: pathlib.Path, after: int = 0) -> Records:
    """The features of the `tf.train.Example`s of a TFRecord file, plain or gzip.

    They have no order of their own, and are sorted by their names.
    """
    import tensorflow as tf

    kind = "GZIP" if path.suffix == ".gz" else ""
    records = tf.data.TFRecordDataset(str(path), kind).skip(after)
    try:
        for record in records.as_numpy_iterator():
            try:
                features = tf.train.Example.FromString(record).features.feature
            except Exception:  # of protobuf, which has a class of its own in each version
                yield "that are no tf.train.Example"
            else:
                yield {name: _feature(features[name]) for name in sorted(features)}
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        reason = error.message.split("[Op")[0].strip()
        raise ValueError(f"{path} is not a whole TFRecord file ({reason}).") from None


ARROW_FILE = b"ARROW1"  # with which a file of Arrow begins, and a stream does not
ROWS = 1024  # that are made Python's at a time
OF_RECORDS = {
    ".parquet": of_parquet,
    ".arrow": of_arrow,
    ".tfrecord": of_examples,
    ".tfrecords": of_examples,
}


def _feature(feature: Any) -> Any:
    """The value of a feature, or a list of them where it has not one."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    return values[0] if len(values) == 1 else values


@contextlib.contextmanager
def _whole(path: pathlib.Path, kind: str) -> Iterator[Any]:
    """The package pyarrow; ValueError where it cannot read on."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            f"{path}: {kind} files need pyarrow: pip install 'keras_transformers[parquet]'"
        ) from error
    try:
        yield pyarrow
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} is not a whole {kind} file ({reason}).") from None


MARK = b"\xef\xbb\xbf"  # of byte order
WIDE_MARKS = {  # the longer ones first: that of UTF-32 begins like that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
ENDINGS = (".tsv", ".csv", ".jsonl", *OF_RECORDS)  # of tables; files of other names have tabs, too
# A .json file that a user names is read; in a folder it may be anything, and is passed over.
NAMED_ENDINGS = (*ENDINGS, ".json")
UNPACKED, TIMES_UNPACKED = 64 << 20, 100  # bytes of a packed file; text has 3 to 20 times its size
PACKED: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
NO_TEXT = "with invalid UTF-8"
NO_OBJECT = "that are no objects in JSON"
CHUNK = 65_536  # bytes that are converted, or looked at, at a time
LONGEST_FIELD = 2**30  # characters of a cell in quotes; Python's csv module allows 131,072
LONGEST_RECORD = 2**24  # bytes of a row in which `is_quoted` looks for the closing quotation mark
# A cell of a table that is quoted as `csv.writer` does it, and a row of such cells.
CELL = rb'(?:"[^"]*(?:""[^"]*)*"|[^"\t]*)'
QUOTED_ROW = re.compile(CELL + rb"(?:\t" + CELL + rb")*")


class Unusable(str):
    """The reason why a row is left out, together with what the row holds.

    Args:
        reason: In words that follow a number of rows.
        content: The bytes of the row.
    """

    content: bytes

    def __new__(cls, reason: str, content: bytes = b"") -> Self:
        text = super().__new__(cls, reason)
        text.content = content
        return text


# The number of a row, and its cells; or why it is left out.
Row: TypeAlias = tuple[int, list[str] | Mapping[str, Any] | str]


def read_bytes(path: StrPath, kind: str) -> bytes:
    r"""The text of a file in UTF-8, unpacked where its name ends in `.gz` or `.xz`.

    A byte order mark is not part of the text. Where it is one of UTF-16 or UTF-32, the text is
    converted to UTF-8.

    Args:
        path: The file.
        kind: What it should hold, for messages.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is no whole packed file, or has more than 100 times its
            size and 64 MiB when it is unpacked.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import read_bytes
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = path.write_text("one\tuno\n", encoding="utf-16")
    >>> read_bytes(path, "a table")
    b'one\tuno\n'
    """
    with opened_text(path, kind) as file:
        if pathlib.Path(path).suffix not in PACKED:
            return file.read()
        most = UNPACKED + TIMES_UNPACKED * pathlib.Path(path).stat().st_size
        content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(
                f"{path} must have at most {most} B when it is unpacked, {TIMES_UNPACKED} times "
                f"its size and {UNPACKED >> 20} MiB; unpack it first if it may be larger."
            )
        return content


@contextlib.contextmanager
def opened(path: StrPath, kind: str) -> Iterator[io.BufferedReader]:
    """A file to be read from its beginning, otherwise as `read_bytes`, but not converted."""
    path = checked(path, kind)
    try:
        with cast(io.BufferedReader, PACKED.get(path.suffix, open)(path, "rb")) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        packed = "xz" if path.suffix == ".xz" else "gzip"
        raise ValueError(f"{path} is not a whole {packed} file ({error}).") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}).") from error


@contextlib.contextmanager
def opened_text(path: StrPath, kind: str) -> Iterator[io.BufferedReader]:
    """A text file to be read in UTF-8 from behind its byte order mark, as `read_bytes` does."""
    with opened(path, kind) as file:
        start = file.peek(4)[:4]
        wide = [mark for mark in WIDE_MARKS if start.startswith(mark)]
        if wide:
            file.read(len(wide[0]))
            yield io.BufferedReader(_InUtf8(path, file, WIDE_MARKS[wide[0]]))
            return
        if start.startswith(MARK):
            file.read(len(MARK))
        yield file


class _InUtf8(io.RawIOBase):
    """A file in UTF-16 or UTF-32 that is read in UTF-8.

    Half a surrogate pair becomes bytes that are no UTF-8, so that its row is left out.
    """

    def __init__(self, path: StrPath, file: io.BufferedReader, encoding: str) -> None:
        self._path, self._file = path, file
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        content = b"more"
        while content and not self._rest:
            content = self._file.read(CHUNK)
            try:
                text = self._decoder.decode(content, final=not content)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{self._path} is not whole text in {error.encoding} ({error.reason})."
                ) from None
            self._rest = text.encode("utf-8", "surrogatepass")
        number = min(len(buffer), len(self._rest))
        buffer[:number] = self._rest[:number]
        self._rest = self._rest[number:]
        return number


def checked(path: StrPath, kind: str) -> pathlib.Path:
    """The path; FileNotFoundError if there is no such file, in words of what it should hold."""
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give {kind}.")
    return path


def ending(path: StrPath) -> str:
    """The ending that says what a file is, in lower case, without that of a packer.

    Example:
    >>> from keras_transformers.tables import ending
    >>> ending("pairs.TSV.gz")
    '.tsv'
    """
    path = pathlib.Path(path)
    return (path.with_suffix("") if path.suffix in PACKED else path).suffix.lower()


def rows_of_file(path: StrPath, layout: str, after: int = 0) -> Iterator[Row]:
    """The rows of a table of any kind, numbered from 1, which are never in memory together.

    A `.json` file with a list of objects is the exception: it is in memory as a whole.

    Args:
        path: The file.
        layout: What a row holds, for messages.
        after: Number of a row; what stands before it and itself is passed over, but for the first
            row that can be used, which says in what order the columns are. Lines are then not
            taken apart, and groups of Parquet not read.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, is empty, or breaks off, which may be after some rows.
        ImportError: If it is a Parquet or Arrow file and pyarrow is not installed.
    """
    kind = ending(path)
    if kind in OF_RECORDS:
        records = OF_RECORDS[kind](checked(path, f"a file of {layout} rows"), after)
        yield from enumerate(records, after + 1)
        return
    with opened_text(path, f"a file of {layout} lines") as file:
        if not file.peek(1):
            raise ValueError(f"{path} is empty; give a file of {layout} lines.")
        if kind == ".csv":
            yield from _quoted_rows(path, file, _delimiter(path))
        elif kind == ".json":
            yield from _rows_of_json(path, file, after)
        elif kind == ".jsonl":
            yield from _rows_of_lines(file, _of_object, after)
        elif is_quoted(path):
            yield from _quoted_rows(path, file, "\t")
        else:
            yield from _rows_of_lines(file, _between_tabs, after)


def _rows_of_lines(
    file: io.BufferedReader,
    read: Callable[[bytes], list[str] | Mapping[str, Any] | str],
    after: int,
) -> Iterator[Row]:
    """Rows of a line each: the first one that can be used, and those behind `after`."""
    is_first = True
    lines = (line for part in file for line in part.splitlines())
    for number, content in enumerate(lines, 1):
        if number > after or is_first:
            cells = read(content)
            is_first = is_first and isinstance(cells, str)
            yield number, cells


def _between_tabs(content: bytes) -> list[str] | str:
    try:
        return content.decode("utf-8").split("\t")
    except UnicodeDecodeError:
        return Unusable(NO_TEXT, content)


def is_quoted(path: StrPath) -> bool:
    r"""True if a table with tabs is quoted as `csv.writer` and spreadsheets do it.

    In such a table a cell with a quotation mark begins and ends with one, and those inside it are
    doubled. All cells must follow this rule. In addition, one of them must have doubled marks, a
    tab or a line end inside, or all cells of two rows or more must be in quotes. In any other table
    quotation marks are part of the text.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.data.table_files import is_quoted
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = path.write_text('"He said ""Hi"" to us"\tone\n')
    >>> is_quoted(path)
    True
    >>> _ = path.write_text('"He said ""Hi"" to us"\t"One" or two\n')
    >>> is_quoted(path)
    False
    """
    state = os.stat(checked(path, "a table"))
    return _is_quoted(os.path.abspath(path), state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _is_quoted(path: str, size: int, changed: int) -> bool:
    """Does the work of `is_quoted`; `size` and `changed` tell versions of a file apart."""
    if not _has_quotation_marks(path):
        return False
    needs_quotes, all_in_quotes = False, True
    rows = 0
    for record in _records(path):
        content = record.rstrip(b"\r\n")
        if not content.strip():
            continue
        rows += 1
        if b'"' not in content:
            all_in_quotes = False
            continue
        if not QUOTED_ROW.fullmatch(content):
            return False
        for cell in filter(None, re.findall(CELL, content)):
            in_quotes = cell.startswith(b'"')
            all_in_quotes = all_in_quotes and in_quotes
            special = (b'""', b"\t", b"\n", b"\r")
            needs_quotes |= in_quotes and any(mark in cell[1:-1] for mark in special)
    return needs_quotes or all_in_quotes and rows > 1


def _has_quotation_marks(path: str) -> bool:
    with contextlib.suppress(ValueError), opened_text(path, "a table") as file:
        while content := file.read(CHUNK):
            if b'"' in content:
                return True
    return False


def _records(path: str) -> Iterator[bytes]:
    """Lines, joined until the number of quotation marks is even; of a broken file those before."""
    lines: list[bytes] = []
    marks = length = 0
    with contextlib.suppress(ValueError), opened_text(path, "a table") as file:
        for line in file:
            lines.append(line)
            marks += line.count(b'"')
            length += len(line)
            if marks % 2 == 0 or length > LONGEST_RECORD:
                yield b"".join(lines)
                lines = []
                marks = length = 0
    if lines:
        yield b"".join(lines)


def _delimiter(path: StrPath) -> str:
    """The mark between the cells of a `.csv` file: a comma, a semicolon or a tab.

    It is the one that gives most of the first rows the same number of cells, two or more. Commas
    that all stand between digits are decimal marks where semicolons do as well. If no mark does so
    for most rows, the first line decides.
    """
    text = _beginning(path)
    shares = {mark: _equal_share(text, mark) for mark in (",", ";", "\t")}
    best = max(shares, key=lambda mark: shares[mark])
    is_decimal = re.search(r"(?<!\d),|,(?!\d)", text) is None
    if best == "," and is_decimal and shares[";"] == shares[","] > 0:
        return ";"
    if shares[best] > 0.5:
        return best
    first = text.partition("\n")[0]
    return ";" if ";" in first and "," not in first else ","


def _beginning(path: StrPath) -> str:
    """The first lines of a file; nothing where it breaks off in them."""
    try:
        with opened_text(path, "a table") as file:
            content = file.read(CHUNK)
    except ValueError:
        return ""
    if len(content) == CHUNK:
        content = content[: content.rfind(b"\n") + 1]
    return content.decode("utf-8", "replace")


def _equal_share(text: str, mark: str) -> float:
    """The share of rows with the most frequent number of cells; 0 where that is one cell."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
    try:
        widths = collections.Counter(len(row) for row in rows if row)
    except csv.Error:
        return 0.0
    if not widths:
        return 0.0
    width, number = widths.most_common(1)[0]
    return number / widths.total() if width > 1 else 0.0


def _quoted_rows(path: StrPath, file: io.BufferedReader, delimiter: str) -> Iterator[Row]:
    """Rows, each of which may go on over several lines inside quotes."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
    has_spaces = delimiter != "\t"  # behind the delimiter, before an opening quotation mark
    reader = csv.reader(text, delimiter=delimiter, strict=True, skipinitialspace=has_spaces)
    line = 1
    try:
        for cells in reader:
            content = delimiter.join(cells)
            if is_unicode(content):
                yield line, cells
            else:
                yield line, Unusable(NO_TEXT, content.encode("utf-8", "surrogateescape"))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: no row of a CSV file ({error}).") from None


def _rows_of_json(path: StrPath, file: io.BufferedReader, after: int) -> Iterator[Row]:
    """The objects of a `.json` file: one in each line, or all in one list."""
    advice = "give an object in each line, or one list of objects"
    start = file.peek(1).lstrip()
    if not start.startswith(b"["):
        first, *rest = start.split(b"\n", 1)
        if rest and first.strip().endswith((b"{", b"[", b",")):
            raise ValueError(f"{path}: an object in JSON over several lines is no table; {advice}.")
        yield from _rows_of_lines(file, _of_object, after)
        return
    try:
        objects = json.loads(file.read().decode("utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ValueError(f"{path} is no list in JSON ({error}); {advice}.") from None
    for number, row in enumerate(objects, 1):
        yield number, row if isinstance(row, dict) else Unusable(NO_OBJECT, str(row).encode())


def _of_object(content: bytes) -> dict[str, Any] | str:
    try:
        found = json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        return Unusable(NO_TEXT, content)
    except (ValueError, RecursionError):
        return Unusable(NO_OBJECT if content.strip() else "blank", content)
    return found if isinstance(found, dict) else Unusable(NO_OBJECT, content)


IN_MEMORY = 2**30  # bytes of the files of a pattern, as they lie on the disk


def is_pattern(path: StrPath) -> bool:
    """Whether a path is a pattern, and no file or folder that is called so.

    Example:
    >>> from keras_transformers.tables import is_pattern
    >>> is_pattern("shards/*.jsonl"), is_pattern("pairs.tsv")
    (True, False)
    """
    return glob.has_magic(str(path)) and not pathlib.Path(path).exists()


def fitting_files(pattern: StrPath) -> list[pathlib.Path]:
    """The files that a pattern fits, sorted by name; none that begin with a dot.

    Args:
        pattern: Such as "shards/*.jsonl" or "shards/**/*.tsv.gz".

    Raises:
        FileNotFoundError: If there are none.

    Example:
    >>> import pathlib, tempfile
    >>> from keras_transformers.tables import fitting_files
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.tsv", "a.tsv", "a.txt"):
    ...     (folder / name).touch()
    >>> [path.name for path in fitting_files(folder / "*.tsv")]
    ['a.tsv', 'b.tsv']
    """
    found = sorted(map(pathlib.Path, glob.glob(str(pattern), recursive=True)))
    files = [path for path in found if path.is_file() and path.name[0] != "."]
    if not files:
        raise FileNotFoundError(f"No file fits {pattern}.")
    return files


def files_of(path: StrPath) -> list[pathlib.Path]:
    """The files of a pattern, of which all rows are to be in memory; or the path alone.

    Raises:
        FileNotFoundError: If there are none.
        ValueError: If they are too large together.

    Example:
    >>> from keras_transformers.tables import files_of
    >>> [path.name for path in files_of("data/pairs.tsv")]
    ['pairs.tsv']
    """
    if not is_pattern(path):
        return [pathlib.Path(path)]
    files = fitting_files(path)
    size = sum(file.stat().st_size for file in files)
    if size > IN_MEMORY:
        raise ValueError(
            f"The {len(files):,} files that fit {path} have {size / 2**30:.1f} GiB; what is read "
            f"into memory must have at most {IN_MEMORY / 2**30:g} GiB. `shards.Shards` reads more, "
            "as a stream."
        )
    return files


Chosen: TypeAlias = str | int | Sequence[str | int] | None  # names of columns, or their positions


@dataclasses.dataclass(frozen=True)
class Column:
    """What is wanted of a table, and the names under which it is looked for.

    Args:
        names: In lower case; the first is what messages call it.
        holds: "text"; "labels", a text, a number or a list of them; or "anything".

    Example:
    >>> from keras_transformers.tables import Column
    >>> Column(("source", "src")).name
    'source'
    """

    names: tuple[str, ...]
    holds: Literal["text", "labels", "anything"] = "text"

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.names[0]

    def value(self, given: Any) -> Any:
        """What a cell holds: a str, for labels also a list of str; None where there is none."""
        if self.holds == "anything":
            return None if missing(given) else given
        found = text_of(given)
        return None if isinstance(found, list) and self.holds != "labels" else found


LABELS = Column(("labels", "label", "classes", "class", "category", "sentiment", "score"), "labels")
TEXTS = Column(("text", "sentence", "review", "content", "comment", "message", "document"))
PAIRS = (
    Column(("source", "src", "input")),
    Column(("target", "tgt", "trg", "translation", "output", "summary")),
)


def text_of(value: Any) -> Any:
    """A str, or a list of str, of what a cell holds; numbers are names, too. None of others."""
    if isinstance(value, str):
        return value if is_unicode(value) else None
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        values = [text_of(each) for each in value]
        return values if all(isinstance(each, str) for each in values) else None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None


def missing(value: Any) -> bool:
    """Whether a cell is empty: None, or NaN as pandas has it."""
    return value is None or isinstance(value, float) and math.isnan(value)


def is_unicode(text: str) -> bool:
    """Whether there is no half of a surrogate pair in it, as for a byte that is no UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def plain(name: Any) -> str:
    """The name of a column as it is compared."""
    return str(name).strip().lower()


def chosen_columns(chosen: Chosen, columns: Sequence[Column]) -> list[str | int] | None:
    """What a user said of the columns, as a list with an entry for each; None if nothing.

    Raises:
        ValueError: If they are not as many as the columns that are wanted.
    """
    if chosen is None:
        return None
    listed = [chosen] if isinstance(chosen, str | int) else list(chosen)
    if len(listed) != len(columns):
        wanted = " and ".join(each.name for each in columns)
        raise ValueError(
            f"`columns` must have a name or a position for each of {wanted}. Received: {chosen!r}"
        )
    return listed


def is_header(cells: Sequence[str], columns: Sequence[Column]) -> bool:
    """True if the first line of a file names columns.

    It does if as many of its cells are known names as columns are wanted. One name is enough if it
    is a name of the labels, which are the last column, as in `image_id,label`: no class is called
    "label".
    """
    names = [plain(cell) for cell in cells]
    labels = columns[-1].names if columns[-1].holds == "labels" else ()
    if len(names) >= len(columns) and not set(names).isdisjoint(labels):
        return True
    known = {name for column in columns for name in column.names}
    return sum(name in known for name in names) >= len(columns)


def has_usual_name(names: Sequence[Any], columns: Sequence[Column]) -> bool:
    """True if one of the names of a table is a usual name of one of the columns."""
    usual = {name for column in columns for name in column.names}
    return any(plain(name) in usual for name in names)


def check_names_differ(where: str, names: Sequence[Any]) -> None:
    """Raises a ValueError if two columns of a table have the same name.

    Args:
        where: The table, for messages.
        names: The names of all its columns.
    """
    listed = [str(name) for name in names]
    repeated = [name for name in dict.fromkeys(listed) if listed.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{where}: more than one column is called {repeated[0]!r}; give each a name of its "
            f"own. The columns are {', '.join(listed)}."
        )


def positions_of(
    where: str, names: Sequence[str], columns: Sequence[Column], chosen: list[str | int] | None
) -> list[int | None]:
    """The position of each column among names, None where it is not there.

    Columns that are wanted are found by their names; where none of the names is known and there
    are as many as are wanted, they are in that order. All others are passed over, but one that
    says which part a row belongs to: rows to test with would be trained on.

    Args:
        where: File and line, for messages.
        names: Those of the columns there.
        columns: What is wanted.
        chosen: What the user said, see `chosen_columns`.

    Raises:
        ValueError: If a chosen column is not there, two have names of the same, or one is "split".
    """
    if chosen is not None:
        return [_chosen_position(where, names, each) for each in chosen]
    if "split" in map(plain, names):
        raise ValueError(
            f"{where}: the column 'split' is not followed; give a file for each part, or say with "
            f"`columns` which to take whatever its part. The columns are {', '.join(names)}."
        )
    positions: list[int | None] = [None] * len(columns)
    for position, name in enumerate(map(plain, names)):
        for i, column in enumerate(columns):
            if name not in column.names:
                continue
            if positions[i] is not None:
                raise ValueError(
                    f"{where}: another column is already {column.name!r} beside {name!r}; say "
                    f"which with `columns`. The columns are {', '.join(map(str, names))}."
                )
            positions[i] = position
    if len(names) == len(columns) and not has_usual_name(names, columns):
        return list(range(len(columns)))
    return positions


def _chosen_position(where: str, names: Sequence[str], chosen: str | int) -> int:
    if isinstance(chosen, int) and -len(names) <= chosen < len(names):
        return chosen % len(names)
    exact = [i for i, name in enumerate(names) if str(name).strip() == str(chosen).strip()]
    found = exact or [i for i, name in enumerate(names) if plain(name) == plain(chosen)]
    if len(found) != 1 or isinstance(chosen, int):
        raise ValueError(
            f"{where}: there is no column {chosen!r} of `columns`, or more than one; the columns "
            f"are {', '.join(map(str, names))}."
        )
    return found[0]


def chosen_key(where: str, keys: Sequence[Any], chosen: str | int) -> Any:
    """The key of a chosen column in rows that are dicts, by the keys of the first one.

    Another row may have a key that the first one lacks, so that a name stays as it is.

    Raises:
        ValueError: If it is a position, and there are not as many keys.
    """
    if isinstance(chosen, int):
        return keys[_chosen_position(where, keys, chosen)]
    alike = [key for key in keys if plain(key) == plain(chosen)]
    return alike[0] if chosen not in keys and len(alike) == 1 else chosen


def not_found(
    where: str, names: Sequence[Any], columns: Sequence[Column], positions: Sequence[int | None]
) -> ValueError:
    """The error for a table that lacks columns."""
    pairs = zip(columns, positions, strict=True)
    lacking = [column for column, position in pairs if position is None]
    wanted = "; ".join(f"{each.name} ({', '.join(each.names)})" for each in lacking)
    return ValueError(
        f"{where}: there is no column for {wanted}; the columns are "
        f"{', '.join(map(str, names)) or 'none'}. Say which with `columns`, for instance "
        f"columns={tuple(map(str, names[: len(columns)]))!r}."
    )


def flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row in which the texts of `translation`, a dict by language, stand by themselves."""
    inner = row.get("translation")
    return {**inner} if isinstance(inner, Mapping) else row
