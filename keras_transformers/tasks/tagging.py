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
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    in_two,
    learned,
    split_parts,
    with_adapter,
)
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import LENGTHS, Saving, Served, bounded, lengths_for
from keras_transformers.tasks.text_predictor import TextPredictor, text_of
from keras_transformers.text import TaggedCorpus, WordAligner, bucketed_texts, read_tagged, words_of
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.words import given_words
from keras_transformers.training import score_tags, token_learning


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
        super().__init__("text_tagger", model, tf.TensorSpec([None], tf.string, name="text"))
        self.lengths = lengths_for("TextTagger", model, tokenizer, lengths, LENGTHS)
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
        self.tokenizer, self.padding = tokenizer, padding_of(model)
        self._aligner = WordAligner(tokenizer, self.lengths[-1])
        self.labels = [str(label) for label in labels]

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        text, cut = bounded(text, self.lengths[-1])
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
            lambda ids: tag(rounds.padded(ids, self.lengths, self.padding)), aligned.ids, results
        )
        first = aligned.firsts.flat_values
        there, text = first >= 0, tf.cast(aligned.firsts.value_rowids(), tf.int32)
        where = tf.stack([text, tf.maximum(first, 0)], axis=1)
        named = tf.gather(tf.constant(self.labels), tf.gather_nd(found["tag"], where))
        probability = tf.where(there, tf.gather_nd(found["probability"], where), 0.0)
        cut = words.with_values(~there & (aligned.pieces.flat_values > 0))
        return _Tags(
            words.with_values(tf.where(there, named, "")),
            words.with_values(probability),
            tf.reduce_any(cut, axis=1),
        )

    def _tag(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """The best tag of each position of padded rows, in as many columns as the longest has."""
        probabilities = tf.nn.softmax(tf.cast(self.model(ids, training=False), tf.float32))
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
        found = self._tagged(given_words(words), self.compiled_rounds).tags.to_list()
        return [[tag.decode() for tag in sentence] for sentence in found]


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

    That has `words`, dicts of `word`, `tag`, `probability`, `start` and `end`, so that a word is
    `text[start:end]`; `entities`, where tags mark such: dicts of `text`, with blanks for other
    white space, `type`, `probability`, the mean of its words', `start` and `end`; and `truncated`.
    A word has the tag "" if it is behind what the model takes, or no piece of its vocabulary.

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
        words, tags = ([text_of(each) for each in row[name][:number]] for name in ("words", "tags"))
        probabilities = row["probabilities"][:number].tolist()
        if not details:
            return [list(each) for each in zip(words, tags, probabilities, strict=True)]
        starts, ends = (row[name][:number].tolist() for name in ("starts", "ends"))
        names = ("word", "tag", "probability", "start", "end")
        columns = (words, tags, probabilities, starts, ends)
        found = [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]
        answer = {"words": found, "truncated": bool(row["truncated"])}
        if mark_entities(self.labels or tags):
            answer["entities"] = [_entity(each, found) for each in entities_of(tags)]
        return answer


def _entity(entity: Entity, words: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of the words of an entity."""
    there = words[entity.start : entity.end]
    start, end = there[0]["start"], there[-1]["end"]
    text, probability = "", 0.0
    for each in there:
        text = text.ljust(each["start"] - start) + each["word"]
        probability += each["probability"] / len(there)
    about = {"text": text, "type": entity.type, "probability": probability}
    return {**about, "start": start, "end": end}


TAGGING = "tagging"  # the kind of problem
LONGEST = 512  # ids of a sentence; what is longer is cut, and counted
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
        return cls(published.held_text_model(has_labels=True))

    def served(self) -> Any:
        of = self.held
        return TextTagger(of.model, of.tokenizer, of.labels or (), **of.options)

    def fit(
        self, data: Any, valid: Any, asked: Asked, problem_type: str | None = None
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on sentences and a tag for each of their words.

        The label of a word stands at its first piece; the others are not scored.

        Args:
            data, valid: What `text.read_tagged` reads; `valid` None holds some out.
            asked: See there.
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
        train, watched = in_two(asked, train, watched, TaggedCorpus.split)
        held = self._with_head(labels)
        numbers = asked.numbers(len(train), "text")
        parts = [_Rows.of(held, each) for each in (train, watched)]
        if asked.verbose:
            for part, name in zip(parts, ("to learn from", "to watch by"), strict=True):
                part.tell(name, _longest(held))
        boundaries, size = boundaries_for(parts[0].ids.row_lengths().numpy(), numbers.batch_size)
        boundaries = within((*boundaries, _longest(held)), _longest(held))
        size = max(size, boundaries[-1])
        history = learned(
            held.model,
            lambda epoch: parts[0].batches(boundaries, size, asked.seed, epoch),
            parts[1].batches(boundaries, size),
            numbers,
            asked,
            **token_learning(UNSCORED),
        )
        return TextTaggerFitting(held), history

    def _labels(self, train: TaggedCorpus) -> list[str]:
        """The tags to learn: those that the tagger knows, if the data have no others."""
        found, known = train.classes(), self.held.labels
        if isinstance(self.held.model.head, TaggingHead) and {*found} <= {*(known or ())}:
            return list(known or ())
        if len(found) < 2:
            raise ValueError(
                f"{train.summary()}. There is nothing to tell apart: all words have one tag."
            )
        return found

    def _with_head(self, labels: list[str]) -> Held:
        """What is held, with a model for these tags: a new head unless it has one."""
        of = self.held
        if isinstance(of.model.head, TaggingHead) and list(of.labels or ()) == labels:
            return with_adapter(of, False)
        model = of.model.transferred(head=TaggingHead(len(labels)))
        lengths = {key: of.options[key] for key in ("lengths",) if key in of.options}
        held = dataclasses.replace(of, model=model, labels=labels, options=lengths)
        return with_adapter(held, True)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Accuracy of words, and where tags mark entities their F1, see `training.score_tags`.

        Words without a tag, which the model cannot see, are wrong; `untagged` says how many.

        Raises:
            ValueError: If no tag of the data is one that the model gives.
        """
        corpus, known = read_tagged(data, columns), self.held.labels or ()
        if not {*corpus.classes()} & {*known}:
            raise ValueError(
                f"evaluate: {corpus.name} must have some of the model's tags, {', '.join(known)}. "
                f"It has {', '.join(corpus.classes())}"
            )
        found = self.served().tags(corpus.words)
        words, untagged = sum(map(len, found)), sum(tags.count("") for tags in found)
        counts = {"rows": len(corpus), "words": words, "untagged": untagged}
        return {**score_tags(found, corpus.tags).numbers(), **counts}


def _longest(held: Held) -> int:
    most = getattr(held.model, "most_positions", None) or LONGEST
    return int(min(most, (held.options.get("lengths") or (LONGEST,))[-1]))


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Sentences as ids, and the number of its tag for each that begins a word."""

    ids: tf.RaggedTensor
    labels: tf.RaggedTensor
    number: int
    padding: int
    cut: int  # sentences
    without: int  # words that have no piece

    @classmethod
    def of(cls, held: Held, corpus: TaggedCorpus) -> Self:
        numbers = {tag: number for number, tag in enumerate(held.labels or ())}
        tags = [numbers[tag] for sentence in corpus.tags for tag in sentence]
        words = given_words(corpus.words)
        found = WordAligner(held.tokenizer, _longest(held))(words)
        first, pieces = (each.flat_values.numpy() for each in (found.firsts, found.pieces))
        starts = found.ids.row_starts().numpy()[words.value_rowids().numpy()]
        labels = np.full(int(found.ids.row_splits[-1]), UNSCORED, "int32")
        labels[(starts + first)[first >= 0]] = np.array(tags, "int32")[first >= 0]
        cut = words.with_values(tf.constant((first < 0) & (pieces > 0)))
        return cls(
            found.ids,
            found.ids.with_values(tf.constant(labels)),
            len(corpus),
            held.model.padding_id,
            int(np.sum(tf.reduce_any(cut, axis=1))),
            int((pieces == 0).sum()),
        )

    def tell(self, name: str, longest: int) -> None:
        """Prints what is not learned, if there is such."""
        if self.cut:
            print(f"{self.cut:,} sentences {name} are cut at {longest} tokens")
        if self.without:
            print(f"{self.without:,} words {name} are no piece of the vocabulary")

    def batches(
        self, boundaries: tuple[int, ...], size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        """Ids and labels, both padded."""
        rows = np.arange(self.number)
        batches = bucketed_texts(self.ids, rows, boundaries, size, seed, epoch, self.padding)

        def labelled(
            ids: tf.Tensor, row: tf.Tensor, real: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            labels = tf.gather(self.labels, row).to_tensor(UNSCORED, shape=tf.shape(ids))
            return ids, tf.where(real[:, None] > 0, labels, UNSCORED)

        return batches.map(labelled)


TASKS = (Task(TextTagger, TextTaggerPredictor, TextTaggerFitting, output="tags"),)
