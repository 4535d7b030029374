"""Text classification and regression: a class, several labels or a number for a raw text."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, ClassProblem, ProblemType, StrPath, Tokenizer
from keras_transformers.data.table_files import Chosen
from keras_transformers.generation.request import padding_of
from keras_transformers.layers.adapters import adapter_of
from keras_transformers.models import ClassificationHead, LanguageModel
from keras_transformers.models.base import SEVERAL
from keras_transformers.tasks.classes import (
    REGRESSION,
    Classes,
    Scale,
    Targets,
    row_weights,
    targets_of,
)
from keras_transformers.tasks.conversion import Program, _of_ids, of_texts
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    class_scores,
    in_two,
    learned,
    split_parts,
    with_adapter,
)
from keras_transformers.tasks.predictor import named_probabilities
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import (
    LENGTHS,
    Conversion,
    Convertible,
    Served,
    lengths_for,
    strings,
)
from keras_transformers.tasks.tagging import TAGGING, TextTaggerFitting
from keras_transformers.tasks.text_predictor import TextPredictor
from keras_transformers.text import bucketed_texts, framed
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.texts import holds_tags
from keras_transformers.training import classification_accuracy, classification_loss


class TextClassifier(Convertible):
    """A trained encoder, its tokenizer and its class names as one function of raw text.

    It takes UTF-8 strings `(batch,)` and gives a dict of `label` string, `probability` float32 and
    `truncated` bool, each `(batch,)`, and `probabilities` float32 `(batch, classes)`; where a text
    can have several labels, also `present` bool `(batch, classes)`, and `label` is the most
    probable. For XLA texts are sorted by length and padded to a few lengths and batch sizes, each
    compiled when it is first met; what `save` writes can be called without XLA, see `Served`. The
    model's weights are shared, not copied.

    Args:
        model: A `models.TextEncoder` with `head="classification"`, or any model from ids `(batch,
            length)`, 0 = padding, to logits `(batch, classes)`.
        tokenizer: A `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`; the model sees
            START, the text's ids and END.
        labels: Names of the classes, one for each logit; two for a single logit, which is the
            second one's.
        lengths: Lengths in ids, START and END included, to which texts are padded; what exceeds the
            last is cut off, and said so in `truncated`. By default those of 32, 64, 128, 256 and
            512 for which the model has positions.
        problem_type: "single_label_classification" (probabilities sum to 1) or
            "multi_label_classification" (each label by itself); by default the model's, or the
            first. A single logit always is by itself.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, the tokenizer
            has ids that are none of the model's, the labels are not as many as the logits, or the
            model's `problem_type` is "regression".

    Example:
    >>> from keras_transformers.export import TextClassifier
    >>> from keras_transformers.models import TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = TextEncoder.from_variant("tiny", 14, head="classification", num_classes=2)
    >>> classifier = TextClassifier(model, tokenizer, ["cat", "dog"], lengths=(8,))
    >>> classifier.probabilities(["a cat", ""]).shape
    (2, 2)
    """

    kind = "text_classifier"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Sequence[int] | None = None,
        problem_type: ClassProblem | None = None,
    ) -> None:
        super().__init__("text_classifier", model, tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("TextClassifier", model, tokenizer, lengths, LENGTHS)
        width = model(tf.ones((1, 2), tf.int32), training=False).shape[-1]
        self._classes = Classes("TextClassifier", model, width, labels, problem_type)
        self.tokenizer, self.padding = tokenizer, padding_of(model)
        self.labels = self._classes.names
        self.lengths = lengths

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer]:
        program = text_program(self.model, self.tokenizer, self.longest, self._classes)
        settings = of_texts(self.model, self.tokenizer, self.longest, labels=self.labels)
        return program, settings, self.tokenizer

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        results = {"probabilities": tf.TensorSpec([None, len(self._classes)], tf.float32)}
        outputs = self.run_texts(text, rounds, self._classify, results)
        answer = self._classes.named_answer(outputs["probabilities"])
        return answer | {"truncated": outputs["truncated"]}

    def _classify(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.model(ids, training=False)
        return {"probabilities": self._classes.probabilities(logits)}

    def probabilities(self, texts: Sequence[str]) -> Array:
        """Class probabilities `(n, classes)`, NumPy float32, of a list of str."""
        return self(strings(texts))["probabilities"].numpy()


class TextRegressor(Served):
    """A trained encoder and its tokenizer as one function from raw text to a number.

    It takes UTF-8 strings `(batch,)` and gives a dict of `value` float32 and `truncated` bool, each
    `(batch,)`. Texts are padded as by `TextClassifier`.

    Args:
        model: A `models.TextEncoder` whose head has one class and problem type "regression", or any
            model from ids `(batch, length)` to `(batch, 1)`.
        tokenizer: As for `TextClassifier`.
        lengths: As for `TextClassifier`.

    Raises:
        ValueError: If the model gives more than a number, the lengths do not increase or exceed the
            model's positions, or the tokenizer has ids that are none of the model's.

    Example:
    >>> from keras_transformers.export import TextRegressor
    >>> from keras_transformers.models import ClassificationHead, TextEncoder
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> head = ClassificationHead(1, problem_type="regression")
    >>> model = TextEncoder.from_variant("tiny", 14, head=head)
    >>> TextRegressor(model, tokenizer, lengths=(8,)).values(["a cat", ""]).shape
    (2,)
    """

    kind = "text_regressor"

    def __init__(
        self, model: keras.Model, tokenizer: Tokenizer, lengths: Sequence[int] | None = None
    ) -> None:
        super().__init__("text_regressor", model, tf.TensorSpec([None], tf.string, name="text"))
        lengths = lengths_for("TextRegressor", model, tokenizer, lengths, LENGTHS)
        shape = model(tf.ones((1, 2), tf.int32), training=False).shape
        if tuple(shape) != (1, 1):
            raise ValueError(
                "TextRegressor: `model` must give one number for each text, (batch, 1). Received: "
                f"output of shape {tuple(shape)} for one text"
            )
        self.tokenizer, self.padding = tokenizer, padding_of(model)
        self.lengths = lengths

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        results = {"value": tf.TensorSpec([None], tf.float32)}
        return self.run_texts(text, rounds, self._compute_value, results)

    def _compute_value(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"value": tf.cast(self.model(ids, training=False)[:, 0], tf.float32)}

    def values(self, texts: Sequence[str]) -> Array:
        """Numbers `(n,)`, NumPy float32, of a list of str."""
        return self(strings(texts))["value"].numpy()


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


class TextClassifierPredictor(TextPredictor):
    """Classifies texts: a dict of `label`, `probability`, `probabilities` and `truncated`.

    `probabilities` is a dict from the name of each class; where the names are not known, from "0",
    "1", ... Where a text can have several labels, `labels` is the list of those that it has.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextClassifierPredictor
    >>> def classify(text):
    ...     return {"label": tf.constant(["cat"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]]), "truncated": tf.constant([False])}
    >>> TextClassifierPredictor(classify, ["cat", "dog"]).predict("miaow")["probabilities"]
    {'cat': 0.75, 'dog': 0.25}
    """

    kind = "text_classifier"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        answer = named_probabilities(row, self.labels)
        return answer | {"truncated": bool(row["truncated"])}


class TextRegressorPredictor(TextPredictor):
    """Gives a number for a text: a float; with `details` a dict of `value` and `truncated`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextRegressorPredictor
    >>> stars = lambda text: {"value": tf.constant([4.5])}
    >>> TextRegressorPredictor(stars).predict("Well made.")
    4.5
    """

    kind = "text_regressor"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        value = float(row["value"])
        return {"value": value, "truncated": bool(row["truncated"])} if details else value


LONGEST = 512  # ids of a text; what is longer is cut, and counted


class TextClassifierFitting(Fitted):
    """A classifier of texts, or a model that gives a number for each.

    Example:
    >>> from keras_transformers.fitting import TextClassifierFitting
    >>> TextClassifierFitting.kind
    'text_classifier'
    """

    kind = "text_classifier"
    choices = ("problem_type", "class_weights", "label_separator")

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        head = getattr(published.model, "head", None)
        if not isinstance(head, ClassificationHead) or _gives_number(head):
            return None
        return cls(published.held_text_model(has_labels=True))

    def served(self) -> Any:
        of = self.held
        return TextClassifier(of.model, of.tokenizer, of.labels or (), **of.options)

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains as `fit` does, or where each word of a text has a tag, as `TextTaggerFitting`."""
        data, valid = split_parts(data, valid, asked.get("verbose", "auto"))
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
        data, valid = split_parts(data, valid, asked.verbose)
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

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        head = getattr(published.model, "head", None)
        if not isinstance(head, ClassificationHead) or not _gives_number(head):
            return None
        return cls(published.held_text_model())

    def served(self) -> Any:
        of = self.held
        return TextRegressor(of.model, of.tokenizer, **of.options)

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


def _gives_number(head: ClassificationHead) -> bool:
    return bool(head.problem_type == REGRESSION and head.num_classes == 1)


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


def text_program(model: Any, tokenizer: Tokenizer, longest: int, classes: Classes) -> Program:
    """Framed ids, padded with the model's id -> classes."""

    def answer(ids: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return _of_ids("text_classifier", model, tokenizer, longest, answer, "probabilities")


TASKS = (
    Task(TextClassifier, TextClassifierPredictor, TextClassifierFitting),
    Task(TextRegressor, TextRegressorPredictor, TextRegressorFitting, output="value"),
)
