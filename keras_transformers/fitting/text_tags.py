"""Text encoders and decoders that learn a tag for each word."""

import dataclasses
from typing import Any, Self

import numpy as np
import tensorflow as tf

from keras_transformers import export
from keras_transformers.data.columns import Chosen
from keras_transformers.fitting.base import (
    Answering,
    Asked,
    Fitted,
    in_two,
    learned,
    parts_of,
    with_adapter,
)
from keras_transformers.fitting.held import Held
from keras_transformers.models import TaggingHead
from keras_transformers.text import TaggedCorpus, WordAligner, bucketed_texts, read_tagged
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.words import given_words
from keras_transformers.training import score_tags, token_learning

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

    def served(self) -> Any:
        of = self.held
        return export.TextTagger(of.model, of.tokenizer, of.labels or (), **of.options)

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
        data, valid = parts_of(data, valid, asked.verbose)
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


class QuestionAnswererFitting(Answering):
    """A model that marks the answer to a question in a text.

    Example:
    >>> from keras_transformers.fitting import QuestionAnswererFitting
    >>> QuestionAnswererFitting.kind
    'question_answerer'
    """

    kind = "question_answerer"

    def served(self) -> Any:
        of = self.held
        return export.QuestionAnswerer(of.model, of.tokenizer, **of.options)
