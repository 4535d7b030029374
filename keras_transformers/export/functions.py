"""Exporters of texts as functions: an object of `export` and its `save` in one call."""

import pathlib
from collections.abc import Sequence
from typing import Literal, Unpack

import keras

from keras_transformers.core.types import ClassProblem, StrPath, Tokenizer
from keras_transformers.export.convertible import Conversion
from keras_transformers.export.mask_filler import MaskFiller
from keras_transformers.export.question_answerer import QuestionAnswerer
from keras_transformers.export.sentence_encoder import SentenceEncoder
from keras_transformers.export.served import Saving
from keras_transformers.export.text_classifier import TextClassifier
from keras_transformers.export.text_generator import TextGenerator
from keras_transformers.export.text_tagger import TextTagger
from keras_transformers.export.translation import Translator
from keras_transformers.generation import Shortlist
from keras_transformers.generation.request import Decodable
from keras_transformers.generation.search import Search
from keras_transformers.text.wordpiece import WordPieceTokenizer


def translator(
    model: Decodable,
    tokenizer: Tokenizer,
    path: StrPath,
    search: Search | None = None,
    source_lengths: Sequence[int] | None = None,
    shortlist: Shortlist | None = None,
    new_tokens: int | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a translator of raw text. See `Translator` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> path = export.translator(model, tokenizer, tempfile.mkdtemp(), source_lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['finished', 'score', 'translation', 'truncated']
    """
    made = Translator(model, tokenizer, search, source_lengths, shortlist, new_tokens)
    return made.save(path, **saving)


def text_generator(
    model: Decodable,
    tokenizer: Tokenizer,
    path: StrPath,
    search: Search | None = None,
    new_tokens: int = 128,
    prompt_lengths: Sequence[int] | None = None,
    stop_strings: str | Sequence[str] = (),
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a writer that continues raw text. See `TextGenerator` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.LanguageModel.from_variant("tiny", 14)
    >>> path = export.text_generator(
    ...     model, tokenizer, tempfile.mkdtemp(), new_tokens=5, prompt_lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['continuation', 'finished', 'text', 'truncated']
    """
    made = TextGenerator(model, tokenizer, search, new_tokens, prompt_lengths, stop_strings)
    return made.save(path, **saving)


def text_classifier(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    labels: Sequence[str],
    lengths: Sequence[int] | None = None,
    problem_type: ClassProblem | None = None,
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports a classifier of raw text. See `TextClassifier` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.TextEncoder.from_variant("tiny", 14, head="classification", num_classes=2)
    >>> path = export.text_classifier(
    ...     model, tokenizer, tempfile.mkdtemp(), ["cat", "dog"], lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['label', 'probabilities', 'probability', 'truncated']
    """
    return TextClassifier(model, tokenizer, labels, lengths, problem_type).save(path, **saving)


def mask_filler(
    model: keras.Model,
    tokenizer: WordPieceTokenizer,
    path: StrPath,
    lengths: Sequence[int] | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports what fills in `[MASK]`. See `MaskFiller` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = text.WordPieceTokenizer([*special, "a", "cat", "sat"])
    >>> model = models.TextEncoder.from_variant("tiny", 8, head="masked_language")
    >>> path = export.mask_filler(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a [MASK] sat"])))
    ['candidates', 'probabilities', 'text', 'truncated']
    """
    return MaskFiller(model, tokenizer, lengths).save(path, **saving)


def question_answerer(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    lengths: Sequence[int] | None = None,
    overlap: int | None = None,
    longest_answer: int = 15,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports what finds answers in texts. See `QuestionAnswerer` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "a", "cat"]
    >>> tokenizer = text.WordPieceTokenizer(words)
    >>> model = models.TextEncoder.from_variant("tiny", 8, head=models.SpanHead())
    >>> path = export.question_answerer(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(question_and_context=tf.constant([["Who?", "A cat."]])))
    ['answer', 'end', 'no_answer', 'score', 'start', 'truncated']
    """
    answerer = QuestionAnswerer(model, tokenizer, lengths, overlap, longest_answer)
    return answerer.save(path, **saving)


def sentence_encoder(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    pooling: Literal["mean", "token"] = "mean",
    normalize: bool = True,
    lengths: Sequence[int] | None = None,
    prompt: str = "",
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports an encoder from raw text to vectors. See `SentenceEncoder` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.TextEncoder.from_variant("tiny", 14)
    >>> path = export.sentence_encoder(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['embedding', 'truncated']
    """
    encoder = SentenceEncoder(model, tokenizer, pooling, normalize, lengths, prompt)
    return encoder.save(path, **saving)


def text_tagger(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    labels: Sequence[str],
    lengths: Sequence[int] | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a tagger of the words of raw text. See `TextTagger` and its `save`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.TextEncoder.from_variant("tiny", 14, head=models.TaggingHead(2))
    >>> path = export.text_tagger(model, tokenizer, tempfile.mkdtemp(), ["O", "B-CAT"], (8,))
    >>> (path / "saved_model.pb").exists()
    True
    """
    return TextTagger(model, tokenizer, labels, lengths).save(path, **saving)
