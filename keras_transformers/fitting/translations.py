"""Translators, and others that write one text for another, learn from pairs."""

import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers import export
from keras_transformers.data.columns import Chosen
from keras_transformers.data.streams import orders
from keras_transformers.fitting.base import Asked, Fitted, in_two, learned, parts_of, with_adapter
from keras_transformers.text import PairCorpus, bucketed, read_pairs
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.tokenizers import cutter_of_targets, in_marks
from keras_transformers.training import score_translations, token_learning

LONGEST = 4096  # ids on a side, where the model has no last position
CHUNK = 8192  # pairs that are gathered at a time


class TranslatorFitting(Fitted):
    """A translator, or another model that writes one text for another.

    Example:
    >>> from keras_transformers.fitting import TranslatorFitting
    >>> TranslatorFitting.kind
    'translator'
    """

    kind = "translator"
    choices = ("label_smoothing",)

    def served(self) -> Any:
        return export.Translator(self.held.model, self.held.tokenizer, **self.held.options)

    def fit(
        self, data: Any, valid: Any, asked: Asked, label_smoothing: float = 0.1
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on pairs of source and target.

        Args:
            data, valid: What `text.read_pairs` reads; `valid` None holds some out.
            asked: See there.
            label_smoothing: Share of each token that is moved to the others.

        Returns:
            Itself, and the history.
        """
        data, valid = parts_of(data, valid, asked.verbose)
        train = read_pairs(data, columns=asked.columns)
        watched = None if valid is None else read_pairs(valid, columns=asked.columns)
        train, watched = in_two(asked, train, watched, PairCorpus.split)
        numbers = asked.numbers(len(train), "text")
        ids = [self._ids(corpus, asked) for corpus in (train, watched)]
        counts = [len(_lengths(each)) for each in ids]  # in the graph they would be tensors
        lengths = _lengths(ids[0])
        boundaries, tokens = boundaries_for(lengths, numbers.batch_size)
        most = self._longest()
        boundaries = within(
            (*boundaries, max(int(lengths.max()), int(_lengths(ids[1]).max()))), most
        )
        tokens, padding = max(tokens, boundaries[-1]), self.held.model.padding_id

        def batches(part: int, seed: int | None = None, epoch: Any = None) -> tf.data.Dataset:
            of = ids[part]
            chunks = orders(counts[part], CHUNK, seed, epoch)
            pairs = chunks.map(lambda rows: {side: tf.gather(of[side], rows) for side in of})
            return bucketed(pairs.unbatch(), boundaries, tokens, padding)

        held = with_adapter(self.held, False)
        history = learned(
            held.model,
            lambda epoch: batches(0, asked.seed, epoch),
            batches(1),
            numbers,
            asked,
            **token_learning(padding, label_smoothing, held.model),
        )
        return TranslatorFitting(held), history

    def _longest(self) -> int:
        """Most ids on a side of a pair; longer pairs are left out, and counted."""
        return int(getattr(self.held.model, "most_positions", None) or LONGEST)

    def _ids(self, corpus: PairCorpus, asked: Asked) -> dict[str, tf.RaggedTensor]:
        """Ids with the marks that the model knows; pairs that are too long are left out."""
        tokenizer = self.held.tokenizer
        targets = cutter_of_targets(tokenizer)
        marks = {"source": self._source_marks(), "target": self.served().target_marks}
        texts = {"source": (tokenizer, corpus.sources), "target": (targets, corpus.targets)}
        found = {}
        for side, (of, strings) in texts.items():
            ids = of.tokenize(tf.constant(strings, tf.string))
            found[side] = in_marks(ids, marks[side])
        kept = _lengths(found) <= self._longest()
        if not kept.all():
            warnings.warn(
                f"{corpus.name}: {(~kept).sum():,} pairs of over {self._longest()} tokens on a "
                "side are left out",
                stacklevel=2,
            )
            found = {side: tf.ragged.boolean_mask(ids, kept) for side, ids in found.items()}
        if not kept.any():
            raise ValueError(f"{corpus.name}: no pair has at most {self._longest()} tokens a side.")
        return found

    def _source_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokenizer = self.held.tokenizer
        found: tuple[tuple[int, ...], tuple[int, ...]] = getattr(
            tokenizer, "source_marks", ((), (tokenizer.end_id,))
        )
        return found

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """BLEU and chrF of translations by the search that answers."""
        corpus = read_pairs(data, columns=columns)
        translations = self.served().translate(corpus.sources)
        bleu, chrf, _ = score_translations(translations, corpus.targets)
        return {"bleu": bleu, "chrf": chrf, "rows": len(corpus)}


def _lengths(ids: dict[str, tf.RaggedTensor]) -> Any:
    """Places that each pair takes in a row: those of its longer side, START not counted."""
    return np.maximum(ids["source"].row_lengths(), ids["target"].row_lengths() - 1)
