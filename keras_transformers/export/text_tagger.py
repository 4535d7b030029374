"""SavedModels that give each word of a raw text its tag."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_transformers.core.types import Tokenizer
from keras_transformers.export.rounds import Rounds
from keras_transformers.export.served import LENGTHS, Served, bounded, lengths_for
from keras_transformers.generation.request import padding_of
from keras_transformers.text import WordAligner, words_of
from keras_transformers.text.words import given_words


class _Tags(NamedTuple):
    """What is said of words, ragged `(texts, words)`, and of texts."""

    tags: tf.RaggedTensor
    probabilities: tf.RaggedTensor
    truncated: tf.Tensor


class TextTagger(Served):
    """A model with a `TaggingHead`, its tokenizer and its tags as one function of raw text.

    It takes UTF-8 strings `(batch,)`, which it splits into words as `text.words_of` does, and gives
    a dict of `words` and `tags` string, `probabilities` float32, and `starts` and `ends` int32,
    where each word stands in the text, in characters: each `(batch, words)`, behind the last word
    of a text "" and 0; `number` int32, how many words there are; and `truncated` bool, whether the
    end of the text was cut off; both `(batch,)`. The tag of a word is that of its first piece. A
    word that has no piece, or stands behind what the model takes, has the tag "" and probability 0.

    For XLA lengths and batch sizes are few, as in `TextClassifier`; weights are shared.

    Args:
        model: A `models.TextEncoder` or `models.LanguageModel` with `TaggingHead`, or any model
            from ids `(batch, length)` to logits `(batch, length, tags)`.
        tokenizer: Any tokenizer of `keras_transformers.text`.
        labels: Names of the tags, one for each logit.
        lengths: Lengths in ids, marks included, to which texts are padded; what exceeds the last is
            cut off. By default those of 32, 64, 128, 256 and 512 for which the model has positions.

    Raises:
        ValueError: If the lengths do not increase, exceed the model's positions or leave no room
            for words, the tokenizer has ids that are none of the model's, the model does not give
            at least two logits for each token, or the labels are not as many.

    Example:
    >>> from keras_transformers.export import TextTagger
    >>> from keras_transformers.models import TaggingHead, TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = TextEncoder.from_variant("tiny", 14, head=TaggingHead(2))
    >>> tagger = TextTagger(model, tokenizer, ["O", "B-CAT"], lengths=(8,))
    >>> found = tagger(["a cat", ""])
    >>> found["words"].numpy().tolist(), found["number"].numpy().tolist()
    ([[b'a', b'cat'], [b'', b'']], [2, 0])
    """

    kind = "text_tagger"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Sequence[int] | None = None,
    ) -> None:
        super().__init__("text_tagger", tf.TensorSpec([None], tf.string, name="text"))
        self._lengths = lengths_for("TextTagger", model, tokenizer, lengths, LENGTHS)
        shape = tuple(model(tf.ones((1, 2), tf.int32), training=False).shape)
        if shape[:2] != (1, 2) or len(shape) != 3 or shape[2] < 2:
            raise ValueError(
                "TextTagger: `model` must give two logits or more for each token, as with a "
                f"TaggingHead. It gives {shape} for ids (1, 2)"
            )
        if len(labels) != shape[2]:
            raise ValueError(
                f"TextTagger: `labels` must have a name for each of {shape[2]} logits. "
                f"Received: {len(labels)}"
            )
        self._hold(model)
        self._tokenizer, self._padding = tokenizer, padding_of(model)
        self._aligner = WordAligner(tokenizer, self._lengths[-1])
        self._labels = tf.constant([str(label) for label in labels], tf.string)

    def _answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, cut = bounded(text, self._lengths[-1])
        found = words_of(text)
        tagged = self._tagged(found.words, rounds)
        return {
            "words": found.words.to_tensor(""),
            "tags": tagged.tags.to_tensor(""),
            "probabilities": tagged.probabilities.to_tensor(0.0),
            "starts": found.starts.to_tensor(0),
            "ends": found.ends.to_tensor(0),
            "number": tf.cast(found.words.row_lengths(), tf.int32),
            "truncated": tagged.truncated | cut,
        }

    def _tagged(self, words: tf.RaggedTensor, rounds: Rounds) -> _Tags:
        """The tags of words as they are given, ragged `(texts, None)`."""
        aligned = self._aligner(words)
        results = {
            "tag": tf.TensorSpec([None, self.longest], tf.int32),
            "probability": tf.TensorSpec([None, self.longest], tf.float32),
        }
        tag = rounds.program(self._tag)
        found = rounds.run_by_length(
            lambda ids: tag(rounds.padded(ids, self._lengths, self._padding)), aligned.ids, results
        )
        first = aligned.firsts.flat_values
        there, text = first >= 0, tf.cast(aligned.firsts.value_rowids(), tf.int32)
        where = tf.stack([text, tf.maximum(first, 0)], axis=1)
        named = tf.gather(self._labels, tf.gather_nd(found["tag"], where))
        probability = tf.where(there, tf.gather_nd(found["probability"], where), 0.0)
        cut = words.with_values(~there & (aligned.pieces.flat_values > 0))
        return _Tags(
            words.with_values(tf.where(there, named, "")),
            words.with_values(probability),
            tf.reduce_any(cut, axis=1),
        )

    def _tag(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best tag of each position of padded rows, in as many columns as the longest has."""
        probabilities = tf.nn.softmax(tf.cast(self._model(ids, training=False), tf.float32))
        found = {
            "tag": tf.argmax(probabilities, axis=-1, output_type=tf.int32),
            "probability": tf.reduce_max(probabilities, axis=-1),
        }
        missing = [[0, 0], [0, self.longest - tf.shape(ids)[1]]]
        return {name: tf.pad(value, missing) for name, value in found.items()}

    def tags(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        """The tags of sentences that are given word by word, lists of str; "" as above.

        Example:
        >>> from keras_transformers.export import TextTagger
        >>> from keras_transformers.models import TaggingHead, TextEncoder
        >>> from keras_transformers.text import SentencePieceTokenizer
        >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
        >>> model = TextEncoder.from_variant("tiny", 14, head=TaggingHead(2))
        >>> tagger = TextTagger(model, tokenizer, ["O", "O"], lengths=(8,))
        >>> tagger.tags([["a", "cat"], ["a"]])
        [['O', 'O'], ['O']]
        """
        found = self._tagged(given_words(words), self._rounds).tags.to_list()
        return [[tag.decode() for tag in sentence] for sentence in found]
