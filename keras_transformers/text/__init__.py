"""Tokenizers, in the TensorFlow graph too, texts from files, and batches of few shapes."""

from keras_transformers.text.added_tokens import AddedToken
from keras_transformers.text.batching import bucketed, encode_pairs, real_token_share
from keras_transformers.text.byte_pairs import BytePairTokenizer
from keras_transformers.text.corpus import PairCorpus, read_pairs
from keras_transformers.text.coverage import Coverage, coverage
from keras_transformers.text.documents import packed_documents
from keras_transformers.text.fairseq import FairseqTokenizer
from keras_transformers.text.fast import FastTokenizer
from keras_transformers.text.glossary import Glossary
from keras_transformers.text.labelled import bucketed_texts, framed
from keras_transformers.text.languages import Languages
from keras_transformers.text.marian import MarianTokenizer
from keras_transformers.text.masking import masked
from keras_transformers.text.mixtures import Mixture
from keras_transformers.text.offsets import Offsets, with_offsets
from keras_transformers.text.packing import balanced_lengths, packed
from keras_transformers.text.pieces import PieceTokenizer
from keras_transformers.text.siglip import SiglipTokenizer
from keras_transformers.text.streaming import (
    bucketing,
    encoder_of_documents,
    encoder_of_labelled,
    encoder_of_pairs,
    row_of_labels,
)
from keras_transformers.text.subword_sampling import SubwordSampler
from keras_transformers.text.tagged import TaggedCorpus, read_tagged
from keras_transformers.text.texts import TextCorpus, read_documents, read_labelled, read_texts
from keras_transformers.text.tokenizers import SentencePieceTokenizer
from keras_transformers.text.trimming import TrimmedTokenizer, trim_tokenizer
from keras_transformers.text.vocabulary_size import train_of_fitting_size
from keras_transformers.text.windows import sliding_windows
from keras_transformers.text.word_dropout import word_dropout
from keras_transformers.text.wordpiece import WordPieceTokenizer
from keras_transformers.text.words import Alignment, WordAligner, Words, words_of

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
