"""Files of human translators: formats to translate, cleaning of sentence pairs, and glossaries.

Formats are plain text, Markdown, HTML, subtitles, messages of programs (PO), XLIFF and DOCX. A file
is written back as it was read, byte for byte, except for what is translated.

Cleaning drops sentence pairs that a model should not learn from; each reason is a filter. Such
noise is described by Khayrallah and Koehn 2018 (https://aclanthology.org/W18-2709), the shared
tasks of Koehn et al. 2018 and 2020 (https://aclanthology.org/W18-6453,
https://aclanthology.org/2020.wmt-1.78), Moses' `clean-corpus-n.perl`, Bicleaner's hard rules
(Sánchez-Cartagena et al. 2018, https://aclanthology.org/W18-6488) and OpusFilter (Aulamo et al.
2020, https://aclanthology.org/2020.acl-demos.20). The default filters drop little: unusual texts of
a user interface or a book stay.
"""

from keras_transformers.localization.file_translation import (
    FileTranslator,
    SentenceSplitter,
    read_file,
)
from keras_transformers.localization.glossary import Glossary
from keras_transformers.localization.marks import Mark, Segment
from keras_transformers.localization.markup import HtmlFile, MarkdownFile
from keras_transformers.localization.pair_cleaner import (
    CleaningReport,
    Judged,
    PairCleaner,
    default_filters,
)
from keras_transformers.localization.pair_filters import (
    SCRIPTS,
    Brackets,
    Copies,
    Duplicates,
    Empty,
    Encoding,
    FewLetters,
    LanguageMatch,
    LengthRatio,
    Own,
    PairFilter,
    Placeables,
    Quotes,
    Scripts,
    TooLong,
    TooShort,
    damaged,
    repaired,
    script_of,
)
from keras_transformers.localization.text_file import PlainText, PoFile, Subtitles, TextFile
from keras_transformers.localization.xml_files import DocxFile, XliffFile

__all__ = [
    "SCRIPTS",
    "Brackets",
    "CleaningReport",
    "Copies",
    "DocxFile",
    "Duplicates",
    "Empty",
    "Encoding",
    "FewLetters",
    "FileTranslator",
    "Glossary",
    "HtmlFile",
    "Judged",
    "LanguageMatch",
    "LengthRatio",
    "Mark",
    "MarkdownFile",
    "Own",
    "PairCleaner",
    "PairFilter",
    "Placeables",
    "PlainText",
    "PoFile",
    "Quotes",
    "Scripts",
    "Segment",
    "SentenceSplitter",
    "Subtitles",
    "TextFile",
    "TooLong",
    "TooShort",
    "XliffFile",
    "damaged",
    "default_filters",
    "read_file",
    "repaired",
    "script_of",
]
