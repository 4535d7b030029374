"""Files to translate, by the path of version 0.2: see `keras_transformers.localization`."""

from keras_transformers.localization import (
    DocxFile,
    FileTranslator,
    HtmlFile,
    Mark,
    MarkdownFile,
    PlainText,
    PoFile,
    Segment,
    SentenceSplitter,
    Subtitles,
    TextFile,
    XliffFile,
    read_file,
)

__all__ = [
    "DocxFile",
    "FileTranslator",
    "HtmlFile",
    "Mark",
    "MarkdownFile",
    "PlainText",
    "PoFile",
    "Segment",
    "SentenceSplitter",
    "Subtitles",
    "TextFile",
    "XliffFile",
    "read_file",
]
