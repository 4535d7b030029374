"""Text encoders and decoders that learn classes, several labels, or a number."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import export
from keras_transformers.core.types import Array, ProblemType
from keras_transformers.data.columns import Chosen
from keras_transformers.fitting.base import (
    Asked,
    Fitted,
    class_scores,
    in_two,
    learned,
    parts_of,
    with_adapter,
)
from keras_transformers.fitting.held import Held
from keras_transformers.fitting.targets import Scale, Targets, row_weights, targets_of
from keras_transformers.fitting.text_tags import TAGGING, TextTaggerFitting
from keras_transformers.layers.adapters import adapter_of
from keras_transformers.models import ClassificationHead, LanguageModel
from keras_transformers.models.base import SEVERAL
from keras_transformers.text import bucketed_texts, framed
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.texts import holds_tags
from keras_transformers.training import classification_accuracy, classification_loss

LONGEST = 512  # ids of a text; what is longer is cut, and counted
REGRESSION = "regression"


class TextClassifierFitting(Fitted):
    """A classifier of texts, or a model that gives a number for each.

    Example:
    >>> from keras_transformers.fitting import TextClassifierFitting
    >>> TextClassifierFitting.kind
    'text_classifier'
    """

    kind = "text_classifier"
    choices = ("problem_type", "class_weights", "label_separator")

    def served(self) -> Any:
        of = self.held
        return export.TextClassifier(of.model, of.tokenizer, of.labels or (), **of.options)

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains as `fit` does, or where each word of a text has a tag, as `TextTaggerFitting`."""
        data, valid = parts_of(data, valid, asked.get("verbose", "auto"))
        data = list(data) if hasattr(data, "__next__") else data  # it is gone through twice
        problem = options.get("problem_type")
        if problem == TAGGING or problem is None and holds_tags(data, asked["columns"]):
            return TextTaggerFitting(self.held).trained(data, valid, asked, options)
        return super().trained(data, valid, asked, options)

    def fit(
        self,
        data: Any,
        valid: Any,
        asked: Asked,
        problem_type: ProblemType | None = None,
        class_weights: str | Mapping[str, float] | None = None,
        label_separator: str | None = None,
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on texts and their labels.

        Args:
            data, valid: What `text.read_labelled` reads; `valid` None holds some out.
            asked: See there.
            problem_type: "single_label_classification", "multi_label_classification" or
                "regression"; by default what the labels are: lists, or numbers with a point.
            class_weights: "balanced", or a dict from names to what a text of the class counts.
            label_separator: What stands between several labels in one str.

        Returns:
            The classifier, and the history.
        """
        data, valid = parts_of(data, valid, asked.verbose)
        train = targets_of(data, asked.columns, problem_type, label_separator, self.held.labels)
        watched = None
        if valid is not None:
            watched = targets_of(
                valid, asked.columns, train.problem_type, label_separator, train.classes, True
            )
        train, watched = in_two(asked, train, watched, Targets.split)
        held = dataclasses.replace(self._with_head(train), label_separator=label_separator)
        numbers = asked.numbers(len(train), "text")
        scale = _scale(held, train)
        parts = [_Rows.of(held, each, scale) for each in (train, watched)]
        weighted = dataclasses.replace(parts[0], weights=row_weights(train, class_weights))
        if asked.verbose and any(each.cut for each in parts):
            print(f"{parts[0].cut} texts to learn from, and {parts[1].cut} others, are cut at "
                  f"{_longest(held)} tokens")  # fmt: skip
        boundaries, size = boundaries_for(parts[0].ids.row_lengths().numpy(), numbers.batch_size)
        boundaries = within((*boundaries, _longest(held)), _longest(held))
        size = max(size, boundaries[-1])
        is_regression = train.problem_type == REGRESSION
        if is_regression and held.model is self.held.model:
            scale.take_out_of(held.model.head.classes)  # `fit` has folded one in before
        try:
            history = learned(
                held.model,
                lambda epoch: weighted.batches(boundaries, size, asked.seed, epoch),
                parts[1].batches(boundaries, size),
                numbers,
                asked,
                **_loss_and_metric(train.problem_type),
            )
        finally:  # a training that is interrupted leaves a model that answers in its own units
            if is_regression:
                scale.fold_into(held.model.head.classes)
        if is_regression:
            return TextRegressorFitting(held), history
        return TextClassifierFitting(held), history

    def _with_head(self, train: Targets) -> Held:
        """What is held, with a model for these targets: a new head unless it has one."""
        of, model = self.held, self.held.model
        lengths = {key: of.options[key] for key in ("lengths",) if key in of.options}
        labels = None if train.problem_type == REGRESSION else train.classes
        same = (
            isinstance(model.head, ClassificationHead)
            and (of.labels or None) == (labels or None)
            and (model.head.problem_type or train.problem_type) == train.problem_type
        )
        if same:
            return with_adapter(of, False)
        head = ClassificationHead(
            1 if labels is None else len(labels),
            self._pooling(),
            of.pooler_activation,
            problem_type=train.problem_type,
        )
        model = model.transferred(head=head)
        return with_adapter(
            dataclasses.replace(of, model=model, labels=labels, options=lengths), True
        )

    def _pooling(self) -> Any:
        """The pooling of a new head: the old one's, the sentence encoder's, or the usual."""
        old = getattr(self.held.model.head, "pooling", None)
        usual = "last" if isinstance(self.held.model, LanguageModel) else "token"
        return old or self.held.options.get("pooling", usual)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Scores classes, see `class_scores`."""
        problem: ProblemType = self.held.model.head.problem_type or "single_label_classification"
        separator = self.held.label_separator
        targets = targets_of(data, columns, problem, separator, self.held.labels, True, True)
        labels = targets.array() if problem == SEVERAL else np.array(targets.values)
        probabilities = self.served().probabilities(targets.texts)
        scores = class_scores(probabilities, labels, targets.classes or [])
        return {**scores, "left_out": sum(targets.corpus.left_out.values())}


class TextRegressorFitting(TextClassifierFitting):
    """A model that gives a number for each text.

    Example:
    >>> from keras_transformers.fitting import TextRegressorFitting
    >>> TextRegressorFitting.kind
    'text_regressor'
    """

    kind = "text_regressor"

    def served(self) -> Any:
        of = self.held
        return export.TextRegressor(of.model, of.tokenizer, **of.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Errors, and the correlation of what is found with what is right."""
        of = targets_of(data, columns, "regression", None, None)
        values, found = np.array(of.values), self.served().values(of.texts)
        varied = values.std() > 0 and found.std() > 0
        return {
            "mean_absolute_error": float(np.abs(found - values).mean()),
            "mean_squared_error": float(np.square(found - values).mean()),
            "correlation": float(np.corrcoef(found, values)[0, 1]) if varied else 0.0,
            "rows": len(of),
            "left_out": sum(of.corpus.left_out.values()),
        }


class EncoderFitting(TextClassifierFitting):
    """An encoder of sentences, which answers with vectors and learns classes.

    Example:
    >>> from keras_transformers.fitting import EncoderFitting
    >>> EncoderFitting.kind
    'sentence_encoder'
    """

    kind = "sentence_encoder"

    def served(self) -> Any:
        return export.SentenceEncoder(self.held.model, self.held.tokenizer, **self.held.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        raise ValueError(
            "evaluate: an encoder of sentences has no classes to be right or wrong about; "
            "`fit` gives it some."
        )


def _scale(held: Held, train: Targets) -> Scale:
    """That of numbers, where the last layer is trained, and so can take it in afterwards."""
    classes = held.model.head.classes
    if classes.quantization_mode or adapter_of(classes) or not classes.kernel.trainable:
        return Scale()
    return train.scale()


def _longest(held: Held) -> int:
    most = getattr(held.model, "most_positions", None) or LONGEST
    return int(min(most, (held.options.get("lengths") or (LONGEST,))[-1]))


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Texts as ids, with what is learned of each and what it counts."""

    ids: tf.RaggedTensor
    values: Array
    weights: Array
    padding: int
    cut: int

    @classmethod
    def of(cls, held: Held, part: Targets, scale: Scale) -> Self:
        ids, cut = framed(held.tokenizer, part.texts, _longest(held))
        values, weights = scale.scaled(part.array()), row_weights(part, None)
        return cls(ids, values, weights, held.model.padding_id, int(np.sum(cut)))

    def batches(
        self, boundaries: tuple[int, ...], size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        # Numbers of the rows, not labels, go through the buckets, which know integers only.
        rows = np.arange(len(self.values))
        batches = bucketed_texts(self.ids, rows, boundaries, size, seed, epoch, self.padding)
        values, weights = self.values, self.weights
        return batches.map(
            lambda ids, row, real: (ids, tf.gather(values, row), real * tf.gather(weights, row))
        )


def _loss_and_metric(problem_type: str) -> dict[str, Any]:
    if problem_type == REGRESSION:
        error = keras.metrics.MeanAbsoluteError("mean_absolute_error", dtype="float32")
        squared = keras.losses.MeanSquaredError(dtype="float32")
        return {"loss": squared, "weighted_metrics": [error]}
    problem: Any = problem_type
    return {
        "loss": classification_loss(problem),
        "weighted_metrics": [classification_accuracy(problem)],
    }
