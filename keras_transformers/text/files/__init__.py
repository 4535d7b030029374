"""Files to translate: their texts, and how they are written with others."""

from keras_transformers.text.files.docx import DocxFile
from keras_transformers.text.files.formats import read_file
from keras_transformers.text.files.html import HtmlFile
from keras_transformers.text.files.markdown import MarkdownFile
from keras_transformers.text.files.parts import Mark, Segment
from keras_transformers.text.files.plain import PlainText, Subtitles
from keras_transformers.text.files.po import PoFile
from keras_transformers.text.files.sentences import SentenceSplitter
from keras_transformers.text.files.text_file import TextFile
from keras_transformers.text.files.translating import FileTranslator
from keras_transformers.text.files.xliff import XliffFile

__all__ = [
    "DocxFile",
    "FileTranslator",
    "HtmlFile",
    "MarkdownFile",
    "Mark",
    "PlainText",
    "PoFile",
    "Segment",
    "SentenceSplitter",
    "Subtitles",
    "TextFile",
    "XliffFile",
    "read_file",
]
