"""Tables: rows of columns in files or in memory, read with care, and what was left out counted.

Columns of a file are separated by tabs. Quotation marks are part of the text, unless the whole file
is quoted as `csv.writer` and spreadsheets do it. A file `.csv` has commas, semicolons or tabs and
quotes; one `.jsonl` an object in each line; one `.json` the same, or a list of objects; and one
`.parquet`, `.arrow` or `.tfrecord` columns with names. Text is in UTF-8, or in UTF-16 with its byte
order mark, and may be packed, `.gz` or `.xz`. A byte order mark and Windows line ends do no harm.

Columns whose names are not known are taken in their order. Where rows are dicts or objects, it is
the order of the first row for all of them.
"""

from keras_transformers.data.table_files import (
    ENDINGS,
    LABELS,
    NAMED_ENDINGS,
    PAIRS,
    TEXTS,
    Chosen,
    Column,
    ending,
    files_of,
    fitting_files,
    is_pattern,
    read_bytes,
)
from keras_transformers.data.tables import (
    account,
    first_keys,
    holds_lists,
    names_column,
    read_rows,
    read_table,
    rows_of,
    table_rows,
)

__all__ = [
    "ENDINGS",
    "LABELS",
    "NAMED_ENDINGS",
    "PAIRS",
    "TEXTS",
    "Chosen",
    "Column",
    "account",
    "ending",
    "files_of",
    "first_keys",
    "fitting_files",
    "is_pattern",
    "holds_lists",
    "names_column",
    "read_bytes",
    "read_rows",
    "read_table",
    "rows_of",
    "table_rows",
]
