"""Which class reads a file."""

import os
import pathlib

from keras_transformers.text.files.docx import DocxFile
from keras_transformers.text.files.html import HtmlFile
from keras_transformers.text.files.markdown import MarkdownFile
from keras_transformers.text.files.plain import PlainText, Subtitles
from keras_transformers.text.files.po import PoFile
from keras_transformers.text.files.text_file import TextFile
from keras_transformers.text.files.xliff import XliffFile

FORMATS: tuple[type[TextFile], ...] = (
    *(PlainText, MarkdownFile, HtmlFile, PoFile, XliffFile, Subtitles, DocxFile),
)
BY_SUFFIX = {suffix: each for each in FORMATS for suffix in each.suffixes}


def read_file(path: str | os.PathLike[str], again: bool = False) -> TextFile:
    """Reads a file to translate, by the end of its name.

    Args:
        path: Of the file.
        again: Whether what has a translation already is translated, too.

    Raises:
        ValueError: If there is no class for such names, or the file is damaged.
        FileNotFoundError: If it is not there.

    Example:
    >>> from keras_transformers.text.files import read_file
    >>> read_file("letter.pdf")
    Traceback (most recent call last):
    ...
    ValueError: letter.pdf: must end in .docx, .htm, .html, .markdown, .md, .po, .pot, ...
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix not in BY_SUFFIX:
        raise ValueError(f"{path}: must end in {', '.join(sorted(BY_SUFFIX))}.")
    return BY_SUFFIX[suffix](pathlib.Path(path).read_bytes(), str(path), again)
