"""Sentence pairs that should not be learned from: each reason a filter, and an account of them all.

What is known of such noise: Khayrallah and Koehn 2018 (https://aclanthology.org/W18-2709), the
shared tasks of Koehn et al. 2018 and 2020 (https://aclanthology.org/W18-6453,
https://aclanthology.org/2020.wmt-1.78), Moses' `clean-corpus-n.perl`, Bicleaner's hard rules
(Sánchez-Cartagena et al. 2018, https://aclanthology.org/W18-6488) and OpusFilter (Aulamo et al.
2020, https://aclanthology.org/2020.acl-demos.20). Defaults drop little: what a user interface or a
book has that looks odd and is right should stay.
"""

from keras_transformers.text.cleaning.cleaner import Judged, PairCleaner, default_filters
from keras_transformers.text.cleaning.duplicates import Duplicates
from keras_transformers.text.cleaning.encoding import Encoding, damaged, repaired
from keras_transformers.text.cleaning.filters import (
    Copies,
    Empty,
    FewLetters,
    LengthRatio,
    Own,
    PairFilter,
    TooLong,
    TooShort,
)
from keras_transformers.text.cleaning.markup import Brackets, Placeables, Quotes
from keras_transformers.text.cleaning.report import CleaningReport
from keras_transformers.text.cleaning.writing import SCRIPTS, LanguageMatch, Scripts, script_of

__all__ = [
    "SCRIPTS",
    "Brackets",
    "CleaningReport",
    "Copies",
    "Duplicates",
    "Empty",
    "Encoding",
    "FewLetters",
    "Judged",
    "LanguageMatch",
    "LengthRatio",
    "Own",
    "PairCleaner",
    "PairFilter",
    "Placeables",
    "Quotes",
    "Scripts",
    "TooLong",
    "TooShort",
    "damaged",
    "default_filters",
    "repaired",
    "script_of",
]
