"""Tables in files: rows of columns, read with care, and an account of what was left out.

Columns are separated by tabs, with no quotes; or a file `.csv` has commas and quotes (semicolons,
where the first line has no comma), and one `.jsonl` an object in each line. Every kind may be
packed, `.gz`, and is in UTF-8. A byte order mark and Windows line ends do no harm.
"""

import collections
import csv
import gzip
import io
import json
import pathlib
import zlib

ENDINGS = (".tsv", ".csv", ".jsonl")  # of tables; files of other names have tabs, too
LABELS = ("labels", "label", "classes", "class")  # names of the column that has them


def read_bytes(path, kind):
    """The bytes of a file, unpacked where its name ends in `.gz`.

    Args:
        path: The file.
        kind: What it should hold, for messages.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or is no whole gzip file.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give {kind}.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from None
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path} is not a whole gzip file ({error}).") from None
    return data


def ending(path):
    """The ending that says what a file is, in lower case, without that of gzip."""
    path = pathlib.Path(path)
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def read_table(path, columns, layout):
    """The rows of a table of two columns, and how many were left out for what reason.

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
    >>> _ = path.write_text('label,text\\nanimal,"a cat, a dog"\\n\\n', encoding="utf-8")
    >>> read_table(path, (("text",), LABELS), "text and class")
    ([(2, ['a cat, a dog', 'animal'])], Counter({'blank': 1}))
    """
    data = read_bytes(path, f"a file of {layout} lines").removeprefix(b"\xef\xbb\xbf")
    if not data:
        raise ValueError(f"{path} is empty; give a file of {layout} lines.")
    kind, left_out, rows = ending(path), collections.Counter(), []
    if kind == ".jsonl":
        found = _of_objects(path, data, columns)
    else:
        cells = _between_commas(path, data) if kind == ".csv" else _between_tabs(data)
        found = _in_order(path, cells, columns, "comma" if kind == ".csv" else "tab")
    for line, values in found:
        if isinstance(values, str):
            left_out[values] += 1
        else:
            rows.append((line, values))
    return rows, left_out


def account(**counts):
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


def _between_tabs(data):
    """Numbers of lines, and the cells of each or why it is left out."""
    for line, content in enumerate(data.splitlines(), 1):
        try:
            yield line, content.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"


def _between_commas(path, data):
    """As `_between_tabs`; a row may go on over several lines, inside quotes."""
    text = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
    first = data.splitlines()[0]
    between = ";" if b";" in first and b"," not in first else ","  # as spreadsheets in Europe
    reader, line = csv.reader(text, delimiter=between, strict=True, skipinitialspace=True), 1
    try:
        for cells in reader:
            yield line, cells if _is_unicode("".join(cells)) else "with invalid UTF-8"
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: no row of a CSV file ({error}).") from None


def _in_order(path, rows, columns, separator):
    """Rows with a value for each column, by the names in the first line, if they stand there."""
    places, known = list(range(len(columns))), {name for column in columns for name in column}
    for line, cells in rows:
        if isinstance(cells, str):
            yield line, cells
        elif line == 1 and sum(_plain(cell) in known for cell in cells) > 1:
            places = _places(path, line, [_plain(cell) for cell in cells], columns)
        elif not "".join(cells).strip():
            yield line, "blank"
        elif len(cells) != len(columns):
            few, many = f"without a {separator}", "with more than two columns"
            yield line, few if len(cells) < len(columns) else many
        else:
            yield line, [cells[place] for place in places]


def _of_objects(path, data, columns):
    """As `_in_order`, of JSON."""
    for line, content in enumerate(data.splitlines(), 1):
        try:
            found = json.loads(content.decode("utf-8"))
        except UnicodeDecodeError:
            yield line, "with invalid UTF-8"
        except (ValueError, RecursionError):
            yield line, "that are no objects in JSON" if content.strip() else "blank"
        else:
            yield line, _of_object(path, line, found, columns)


def _of_object(path, line, found, columns):
    """The value for each column, or why there is none."""
    if not isinstance(found, dict):
        return "that are no objects in JSON"
    places, values = _places(path, line, list(found), columns), list(found.values())
    values = [None if place is None else _text(values[place]) for place in places]
    for names, value in zip(columns, values, strict=True):
        if value is None or isinstance(value, list) and names is not LABELS:
            return f"without text for {names[0]!r}"
    return values


def _text(value):
    """A str or a list of str of what JSON holds; whole numbers are names, too. None of others."""
    if isinstance(value, list):
        values = [_text(each) for each in value]
        return values if all(isinstance(each, str) for each in values) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and _is_unicode(value) else None


def _is_unicode(text):
    """Whether there is no half of a surrogate pair in it, as for a byte that is no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(name):
    return name.strip().lower()


def _places(path, line, names, columns):
    """The place of each column among names, None where it is not there.

    Raises:
        ValueError: If a name is that of no column, or two are those of one.
    """
    places = [None] * len(columns)
    for place, name in enumerate(names):
        column = next((i for i, each in enumerate(columns) if name in each), None)
        if column is None or places[column] is not None:
            wanted = " and ".join(each[0] for each in columns)
            what = "there is no such column as" if column is None else "another column is already"
            raise ValueError(f"{path}, line {line}: {what} {name!r}; the columns are {wanted}.")
        places[column] = place
    return places
