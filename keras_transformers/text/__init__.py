"""Tokenizers, in the TensorFlow graph too, texts from files, and batches of few shapes."""

from keras_transformers.localization.glossary import Glossary
from keras_transformers.text.batching import (
    bucketed,
    bucketed_texts,
    bucketing,
    encode_pairs,
    encoder_of_documents,
    encoder_of_labelled,
    encoder_of_pairs,
    framed,
    real_token_share,
    row_of_labels,
)
from keras_transformers.text.byte_pairs import BytePairTokenizer
from keras_transformers.text.corpus import Mixture, PairCorpus, read_pairs
from keras_transformers.text.cutting import AddedToken
from keras_transformers.text.fast import FastTokenizer
from keras_transformers.text.masking import masked, word_dropout
from keras_transformers.text.packing import (
    balanced_lengths,
    packed,
    packed_documents,
    sliding_windows,
)
from keras_transformers.text.published_pieces import (
    FairseqTokenizer,
    MarianTokenizer,
    PieceTokenizer,
    SiglipTokenizer,
)
from keras_transformers.text.sentence_pieces import SentencePieceTokenizer
from keras_transformers.text.subword_sampling import SubwordSampler
from keras_transformers.text.texts import (
    TaggedCorpus,
    TextCorpus,
    read_documents,
    read_labelled,
    read_tagged,
    read_texts,
)
from keras_transformers.text.tokenizers import Languages
from keras_transformers.text.trimming import (
    Coverage,
    TrimmedTokenizer,
    coverage,
    train_of_fitting_size,
    trim_tokenizer,
)
from keras_transformers.text.wordpiece import WordPieceTokenizer
from keras_transformers.text.words import (
    Alignment,
    Offsets,
    WordAligner,
    Words,
    with_offsets,
    words_of,
)

__all__ = [
    "AddedToken",
    "Alignment",
    "BytePairTokenizer",
    "Coverage",
    "FairseqTokenizer",
    "FastTokenizer",
    "Glossary",
    "Languages",
    "MarianTokenizer",
    "Mixture",
    "Offsets",
    "PairCorpus",
    "PieceTokenizer",
    "SentencePieceTokenizer",
    "SiglipTokenizer",
    "SubwordSampler",
    "TaggedCorpus",
    "TextCorpus",
    "TrimmedTokenizer",
    "WordAligner",
    "WordPieceTokenizer",
    "Words",
    "balanced_lengths",
    "bucketed",
    "bucketed_texts",
    "bucketing",
    "coverage",
    "encode_pairs",
    "encoder_of_documents",
    "encoder_of_labelled",
    "encoder_of_pairs",
    "framed",
    "masked",
    "packed",
    "packed_documents",
    "read_documents",
    "read_labelled",
    "read_pairs",
    "read_tagged",
    "read_texts",
    "real_token_share",
    "row_of_labels",
    "sliding_windows",
    "word_dropout",
    "train_of_fitting_size",
    "trim_tokenizer",
    "with_offsets",
    "words_of",
]
