"""Files of lines, plain or gzip, read with care."""

import collections
import gzip
import pathlib
import zlib


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


def decoded_lines(path, columns, layout):
    """The lines of a file that have so many columns, and how many were left out for what reason.

    Args:
        path: The file, in UTF-8. A byte order mark and Windows line ends do no harm.
        columns: Number of columns, separated by tabs.
        layout: What a line holds, for messages.

    Returns:
        A list of lists of str, and a `collections.Counter` of reason -> number of lines.

    Raises:
        FileNotFoundError, ValueError: As `read_bytes`, or if the file is empty.
    """
    left_out, rows = collections.Counter(), []
    data = read_bytes(path, f"a file of {layout} lines")
    lines = data.removeprefix(b"\xef\xbb\xbf").splitlines()
    for line in lines:
        try:
            found = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            left_out["with invalid UTF-8"] += 1
            continue
        if not "".join(found).strip():
            left_out["blank"] += 1
        elif len(found) != columns:
            few, many = "without a tab", "with more than two columns"
            left_out[few if len(found) < columns else many] += 1
        else:
            rows.append(found)
    if not lines:
        raise ValueError(f"{path} is empty; give a file of {layout} lines.")
    return rows, left_out
