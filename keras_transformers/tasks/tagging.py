"""Tagging: a tag for each word of a raw text, and the entities that tags mark."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.data.labels import Entity, entities_of, mark_entities
from keras_transformers.data.table_files import Chosen
from keras_transformers.generation.request import padding_of
from keras_transformers.models import TaggingHead
from keras_transformers.tasks.classes import named_labels
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    attach_adapter,
    bucket_texts,
    hold_out_part,
    longest_text,
    replace_head,
    split_parts,
    train_model,
)
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import LENGTHS, Saving, Served, bounded, lengths_for
from keras_transformers.tasks.text_predictor import TextPredictor, text_of
from keras_transformers.text import TaggedCorpus, WordAligner, bucketed_texts, read_tagged, words_of
from keras_transformers.text.words import given_words
from keras_transformers.training import score_tags, token_learning


class _Tags(NamedTuple):
    """Tags of words and their probabilities, ragged `(texts, words)`, and which texts were cut."""

    tags: tf.RaggedTensor
    probabilities: tf.RaggedTensor
    truncated: tf.Tensor


class TextTagger(Served):
    """A model with a `TaggingHead`, its tokenizer and its tags as one function of raw text.

    It takes UTF-8 strings `(batch,)`, which it splits into words as `text.words_of` does. It gives
    a dict of `words` and `tags` string, `probabilities` float32, and `starts` and `ends` int32, the
    characters of each word in the text. Each is `(batch, words)`, with "" and 0 behind the last
    word of a text. Further outputs, both `(batch,)`, are `number` int32, the number of words, and
    `truncated` bool, whether the end of the text was cut off. The tag of a word is the tag of its
    first piece. A word that has no piece, or that was cut off, has the tag "" and probability 0.

    For XLA lengths and batch sizes are few, as in `TextClassifier`; weights are shared.

    Args:
        model: A `models.TextEncoder` or `models.LanguageModel` with `TaggingHead`, or any model
            from ids `(batch, length)` to logits `(batch, length, tags)`.
        tokenizer: Any tokenizer of `keras_transformers.text`.
        labels: Names of the tags, one for each logit.
        lengths: Lengths in ids, marks included, to which texts are padded; longer texts are cut. By
            default those of 32, 64, 128, 256 and 512 for which the model has positions.

    Raises:
        ValueError: If the lengths do not increase, exceed the model's positions or leave no room
            for words, the tokenizer has ids that the model does not know, the model does not give
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
        super().__init__("text_tagger", model, tf.TensorSpec([None], tf.string, name="text"))
        self.lengths = lengths_for("TextTagger", model, tokenizer, lengths, LENGTHS)
        shape = tuple(model(tf.ones((1, 2), tf.int32), training=False).shape)
        if shape[:2] != (1, 2) or len(shape) != 3 or shape[2] < 2:
            raise ValueError(
                "TextTagger: `model` must give two logits or more for each token, as with a "
                f"TaggingHead. It gives {shape} for ids (1, 2)"
            )
        self.labels = named_labels("TextTagger", labels, shape[2], f"{shape[2]} logits")
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self._aligner = WordAligner(tokenizer, self.longest)

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, is_shortened = bounded(text, self.longest)
        split = words_of(text)
        tagged = self._tag_words(split.words, rounds)
        return {
            "words": split.words.to_tensor(""),
            "tags": tagged.tags.to_tensor(""),
            "probabilities": tagged.probabilities.to_tensor(0.0),
            "starts": split.starts.to_tensor(0),
            "ends": split.ends.to_tensor(0),
            "number": tf.cast(split.words.row_lengths(), tf.int32),
            "truncated": tagged.truncated | is_shortened,
        }

    def _tag_words(self, words: tf.RaggedTensor, rounds: Rounds) -> _Tags:
        """Tags words, strings `(texts, None)`."""
        aligned = self._aligner(words)
        results = {
            "tag": tf.TensorSpec([None, self.longest], tf.int32),
            "probability": tf.TensorSpec([None, self.longest], tf.float32),
        }
        tag = rounds.program(self._tag)
        outputs = rounds.run_by_length(
            lambda ids: tag(rounds.padded(ids, self.lengths, self.padding)), aligned.ids, results
        )
        first = aligned.firsts.flat_values
        has_piece = first >= 0
        text = tf.cast(aligned.firsts.value_rowids(), tf.int32)
        positions = tf.stack([text, tf.maximum(first, 0)], axis=1)
        named = tf.gather(tf.constant(self.labels), tf.gather_nd(outputs["tag"], positions))
        probability = tf.gather_nd(outputs["probability"], positions)
        is_cut = words.with_values(~has_piece & (aligned.pieces.flat_values > 0))
        return _Tags(
            words.with_values(tf.where(has_piece, named, "")),
            words.with_values(tf.where(has_piece, probability, 0.0)),
            tf.reduce_any(is_cut, axis=1),
        )

    def _tag(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the best tag of each position, padded to `longest` columns."""
        probabilities = tf.nn.softmax(tf.cast(self.model(ids, training=False), tf.float32))
        tag = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        probability = tf.reduce_max(probabilities, axis=-1)
        missing = [[0, 0], [0, self.longest - tf.shape(ids)[1]]]
        return {"tag": tf.pad(tag, missing), "probability": tf.pad(probability, missing)}

    def tags(self, words: Sequence[Sequence[str]]) -> list[list[str]]:
        """Tags sentences that are lists of words; a word that the model cannot see gets "".

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
        tagged = self._tag_words(given_words(words), self.compiled_rounds)
        return [[tag.decode() for tag in sentence] for sentence in tagged.tags.to_list()]


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


class TextTaggerPredictor(TextPredictor):
    """Tags the words of a text: a list of `[word, tag, probability]`; with `details` a dict.

    The dict has `words`, dicts of `word`, `tag`, `probability`, `start` and `end`, so that a word
    is `text[start:end]`; `entities`, if the tags mark entities, dicts of `text`, with blanks for
    other white space, `type`, `probability`, the mean over its words, `start` and `end`; and
    `truncated`. A word has the tag "" if it was cut off, or has no piece in the vocabulary.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextTaggerPredictor
    >>> def tag(text):
    ...     words, tags = tf.constant([["Bo", "sat"]]), tf.constant([["B", "O"]])
    ...     probabilities, number = tf.constant([[0.75, 0.5]]), tf.constant([2])
    ...     return {"words": words, "tags": tags, "probabilities": probabilities, "number": number}
    >>> TextTaggerPredictor(tag).predict("Bo sat")
    [['Bo', 'B', 0.75], ['sat', 'O', 0.5]]
    """

    kind = "text_tagger"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        number = int(row["number"])
        words = [text_of(word) for word in row["words"][:number]]
        tags = [text_of(tag) for tag in row["tags"][:number]]
        probabilities = row["probabilities"][:number].tolist()
        if not details:
            return [list(triple) for triple in zip(words, tags, probabilities, strict=True)]
        starts = row["starts"][:number].tolist()
        ends = row["ends"][:number].tolist()
        names = ("word", "tag", "probability", "start", "end")
        columns = zip(words, tags, probabilities, starts, ends, strict=True)
        tagged_words = [dict(zip(names, values, strict=True)) for values in columns]
        answer = {"words": tagged_words, "truncated": bool(row["truncated"])}
        if mark_entities(self.labels or tags):
            answer["entities"] = [_describe_entity(e, tagged_words) for e in entities_of(tags)]
        return answer


def _describe_entity(entity: Entity, words: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the words of an entity to its text, and returns it with its type and probability."""
    words = words[entity.start : entity.end]
    start = words[0]["start"]
    text = ""
    probability = 0.0
    for word in words:
        text = text.ljust(word["start"] - start) + word["word"]
        probability += word["probability"] / len(words)
    return {
        "text": text,
        "type": entity.type,
        "probability": probability,
        "start": start,
        "end": words[-1]["end"],
    }


TAGGING = "tagging"  # the kind of problem
UNSCORED = -1  # the label of positions that are no word's first piece


class TextTaggerFitting(Fitted):
    """A tagger of the words of texts.

    Example:
    >>> from keras_transformers.fitting import TextTaggerFitting
    >>> TextTaggerFitting.kind
    'text_tagger'
    """

    kind = "text_tagger"
    choices = ("problem_type",)

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        head = getattr(published.model, "head", None)
        # ELECTRA's discriminator gives each token one number: whether it was exchanged.
        if not isinstance(head, TaggingHead) or head.num_classes == 1:
            return None
        return cls(published.read_text_model(has_labels=True))

    def served(self) -> Any:
        held = self.held
        return TextTagger(held.model, held.tokenizer, held.labels or (), **held.options)

    def fit(
        self, data: Any, valid: Any, asked: Asked, problem_type: str | None = None
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on sentences and a tag for each of their words.

        The label of a word stands at its first piece; its other pieces are not scored.

        Args:
            data, valid: As `text.read_tagged` reads them; with None, a part of `data` is `valid`.
            asked: Settings of the training.
            problem_type: "tagging", or None.

        Returns:
            The tagger, and the history.

        Raises:
            ValueError: If `problem_type` is another, or all words have one tag.
        """
        if problem_type not in (None, TAGGING):
            raise ValueError(
                f"fit: `problem_type` of a text_tagger must be {TAGGING!r}. "
                f"Received: {problem_type!r}"
            )
        data, valid = split_parts(data, valid, asked.verbose)
        train = read_tagged(data, asked.columns)
        labels = self._labels(train)
        watched = None if valid is None else read_tagged(valid, asked.columns).within(labels)
        train, watched = hold_out_part(asked, train, watched, TaggedCorpus.split)
        held = self._prepare_head(labels)
        numbers = asked.numbers(len(train), "text")
        train_rows = _Rows.encode(held, train)
        watched_rows = _Rows.encode(held, watched)
        longest = longest_text(held)
        if asked.verbose:
            train_rows.report("to learn from", longest)
            watched_rows.report("to watch by", longest)
        lengths = train_rows.ids.row_lengths().numpy()
        boundaries, tokens = bucket_texts(lengths, numbers.batch_size, longest, longest)
        history = train_model(
            held.model,
            lambda epoch: train_rows.batches(boundaries, tokens, asked.seed, epoch),
            watched_rows.batches(boundaries, tokens),
            numbers,
            asked,
            **token_learning(UNSCORED),
        )
        return TextTaggerFitting(held), history

    def _labels(self, train: TaggedCorpus) -> list[str]:
        """Returns the tags to learn: the tagger's own, if the data have no others."""
        tags = train.classes()
        old_tags = list(self.held.labels or ())
        if isinstance(self.held.model.head, TaggingHead) and set(tags) <= set(old_tags):
            return old_tags
        if len(tags) < 2:
            raise ValueError(
                f"{train.summary()}. There is nothing to tell apart: all words have one tag."
            )
        return tags

    def _prepare_head(self, labels: list[str]) -> Held:
        """Returns the model to train, which gets a new head unless its own has these tags."""
        held = self.held
        if isinstance(held.model.head, TaggingHead) and list(held.labels or ()) == labels:
            return attach_adapter(held, False)
        return replace_head(held, TaggingHead(len(labels)), labels)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns the accuracy of words, and the F1 of entities, see `training.score_tags`.

        A word that the model cannot see has no tag, and counts as an error; `untagged` is the
        number of such words.

        Raises:
            ValueError: If no tag of the data is one that the model gives.
        """
        corpus = read_tagged(data, columns)
        labels = self.held.labels or ()
        if not set(corpus.classes()) & set(labels):
            raise ValueError(
                f"evaluate: {corpus.name} must have some of the model's tags, {', '.join(labels)}. "
                f"It has {', '.join(corpus.classes())}"
            )
        predicted = self.served().tags(corpus.words)
        return {
            **score_tags(predicted, corpus.tags).numbers(),
            "rows": len(corpus),
            "words": sum(map(len, predicted)),
            "untagged": sum(tags.count("") for tags in predicted),
        }


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Sentences as ids, and for each id that begins a word the number of the word's tag."""

    ids: tf.RaggedTensor
    labels: tf.RaggedTensor
    number: int
    padding: int
    num_cut: int  # sentences that are too long
    num_without_piece: int  # words that have no piece

    @classmethod
    def encode(cls, held: Held, corpus: TaggedCorpus) -> Self:
        """Encodes the words of a corpus."""
        numbers = {tag: number for number, tag in enumerate(held.labels or ())}
        tags = [numbers[tag] for sentence in corpus.tags for tag in sentence]
        words = given_words(corpus.words)
        aligned = WordAligner(held.tokenizer, longest_text(held))(words)
        first = aligned.firsts.flat_values.numpy()
        pieces = aligned.pieces.flat_values.numpy()
        starts = aligned.ids.row_starts().numpy()[words.value_rowids().numpy()]
        labels = np.full(int(aligned.ids.row_splits[-1]), UNSCORED, "int32")
        labels[(starts + first)[first >= 0]] = np.array(tags, "int32")[first >= 0]
        is_cut = words.with_values(tf.constant((first < 0) & (pieces > 0)))
        return cls(
            aligned.ids,
            aligned.ids.with_values(tf.constant(labels)),
            len(corpus),
            held.model.padding_id,
            int(np.sum(tf.reduce_any(is_cut, axis=1))),
            int((pieces == 0).sum()),
        )

    def report(self, name: str, longest: int) -> None:
        """Prints how many sentences and words are not learned."""
        if self.num_cut:
            print(f"{self.num_cut:,} sentences {name} are cut at {longest} tokens")
        if self.num_without_piece:
            print(f"{self.num_without_piece:,} words {name} are no piece of the vocabulary")

    def batches(
        self, boundaries: tuple[int, ...], tokens: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        """Returns batches of ids and labels, both padded."""
        rows = np.arange(self.number)
        batches = bucketed_texts(self.ids, rows, boundaries, tokens, seed, epoch, self.padding)

        def add_labels(
            ids: tf.Tensor, row: tf.Tensor, real: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            labels = tf.gather(self.labels, row).to_tensor(UNSCORED, shape=tf.shape(ids))
            return ids, tf.where(real[:, None] > 0, labels, UNSCORED)

        return batches.map(add_labels)


TASKS = (Task(TextTagger, TextTaggerPredictor, TextTaggerFitting, output="tags"),)
