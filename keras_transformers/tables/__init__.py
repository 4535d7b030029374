"""Tables: rows of columns in files or in memory, read with care, and what was left out counted.

Columns of a file are separated by tabs, with no quotes; or a file `.csv` has commas and quotes
(semicolons, where the first line has no comma), one `.jsonl` an object in each line, and one
`.parquet`, `.arrow` or `.tfrecord` columns with names. Text is in UTF-8 and may be packed, `.gz`
or `.xz`. A byte order mark and Windows line ends do no harm.
"""

from keras_transformers.tables.accounts import account
from keras_transformers.tables.columns import LABELS, PAIRS, TEXTS, Chosen, Column
from keras_transformers.tables.files import ENDINGS, ending, read_bytes
from keras_transformers.tables.patterns import files_of, fitting_files, is_pattern
from keras_transformers.tables.rows import (
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
    "PAIRS",
    "TEXTS",
    "Chosen",
    "Column",
    "account",
    "ending",
    "files_of",
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
