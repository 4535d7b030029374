"""Text classification and regression, and how models learn from texts without labels."""

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, ClassProblem, ProblemType, StrPath, Tokenizer
from keras_transformers.data.table_files import LABELS, Chosen
from keras_transformers.data.tables import names_column
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
from keras_transformers.tasks.conversion import Program, id_program, text_settings
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    attach_adapter,
    bucket_texts,
    class_scores,
    counted,
    hold_out_part,
    longest_text,
    replace_head,
    split_parts,
    train_model,
    uncompiled,
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
from keras_transformers.text import TextCorpus, bucketed_texts, framed, read_texts
from keras_transformers.text.texts import holds_tags
from keras_transformers.text.tokenizers import in_marks, marks_of
from keras_transformers.training import classification_accuracy, classification_loss, token_learning


class TextClassifier(Convertible):
    """A trained encoder, its tokenizer and its class names as one function of raw text.

    It takes UTF-8 strings `(batch,)` and gives a dict of `label` string, `probability` float32 and
    `truncated` bool, each `(batch,)`, and `probabilities` float32 `(batch, classes)`; where a text
    can have several labels, also `present` bool `(batch, classes)`, and `label` is the most
    probable. For XLA texts are sorted by length and padded to a few lengths and batch sizes, each
    compiled when it is first used; the SavedModel that `save` writes can be called without XLA, see
    `Served`. The model's weights are shared, not copied.

    Args:
        model: A `models.TextEncoder` with `head="classification"`, or any model from ids `(batch,
            length)`, 0 = padding, to logits `(batch, classes)`.
        tokenizer: A `text.WordPieceTokenizer` or `text.SentencePieceTokenizer`; the model sees
            START, the text's ids and END.
        labels: Names of the classes, one for each logit. A single logit can have two names; it
            belongs to the second.
        lengths: Lengths in ids, START and END included, to which texts are padded; a longer text is
            cut, and `truncated` tells so. By default those of 32, 64, 128, 256 and 512 for which
            the model has positions.
        problem_type: "single_label_classification" (probabilities sum to 1) or
            "multi_label_classification" (each label has its own probability); by default the
            model's, or the first. A single logit always has its own probability.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, the tokenizer
            has ids that the model does not know, the labels are not as many as the logits, or the
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
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.labels = self._classes.names
        self.lengths = lengths

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer]:
        program = text_program(self.model, self.tokenizer, self.longest, self._classes)
        settings = text_settings(self.model, self.tokenizer, self.longest, labels=self.labels)
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
        """Returns the class probabilities of a list of str, `(n, classes)`, NumPy float32."""
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
            model's positions, or the tokenizer has ids that the model does not know.

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
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.lengths = lengths

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        results = {"value": tf.TensorSpec([None], tf.float32)}
        return self.run_texts(text, rounds, self._compute_value, results)

    def _compute_value(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"value": tf.cast(self.model(ids, training=False)[:, 0], tf.float32)}

    def values(self, texts: Sequence[str]) -> Array:
        """Returns the numbers for a list of str, `(n,)`, NumPy float32."""
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

    `probabilities` is a dict from the name of each class, or from "0", "1", ... if the names are
    not known. If a text can have several labels, `labels` lists the labels that it has.

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
        return cls(published.read_text_model(has_labels=True))

    def served(self) -> Any:
        held = self.held
        return TextClassifier(held.model, held.tokenizer, held.labels or (), **held.options)

    def trained(
        self, data: Any, valid: Any, asked: Mapping[str, Any], options: Mapping[str, Any]
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains as `fit` does, or as `TextTaggerFitting` if each word of a text has a tag."""
        data, valid = split_parts(data, valid, asked.get("verbose", "auto"))
        data = list(data) if hasattr(data, "__next__") else data  # data are read twice
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
            data, valid: As `text.read_labelled` reads them; with None, a part of `data` is `valid`.
            asked: Settings of the training.
            problem_type: "single_label_classification", "multi_label_classification" or
                "regression"; by default it follows from the labels, see `classes.problem_of`.
            class_weights: "balanced", or a dict from names to the weight of a text of the class.
            label_separator: Separator of several labels in one str.

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
        train, watched = hold_out_part(asked, train, watched, Targets.split)
        held = dataclasses.replace(self._prepare_head(train), label_separator=label_separator)
        numbers = asked.numbers(len(train), "text")
        scale = _scale(held, train)
        train_rows = _Rows.encode(held, train, scale)
        train_rows = dataclasses.replace(train_rows, weights=row_weights(train, class_weights))
        watched_rows = _Rows.encode(held, watched, scale)
        longest = longest_text(held)
        if asked.verbose and (train_rows.num_cut or watched_rows.num_cut):
            print(
                f"{train_rows.num_cut} texts to learn from, and {watched_rows.num_cut} others, are "
                f"cut at {longest} tokens"
            )
        lengths = train_rows.ids.row_lengths().numpy()
        boundaries, tokens = bucket_texts(lengths, numbers.batch_size, longest, longest)
        is_regression = train.problem_type == REGRESSION
        if is_regression and held.model is self.held.model:
            scale.take_out_of(held.model.head.classes)  # an earlier `fit` has folded a scale in
        try:
            history = train_model(
                held.model,
                lambda epoch: train_rows.batches(boundaries, tokens, asked.seed, epoch),
                watched_rows.batches(boundaries, tokens),
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

    def _prepare_head(self, train: Targets) -> Held:
        """Returns the model to train, which gets a new head unless its own has these labels."""
        held = self.held
        old_head = held.model.head
        labels = None if train.problem_type == REGRESSION else train.classes
        if isinstance(old_head, ClassificationHead) and (held.labels or None) == (labels or None):
            if old_head.problem_type in (None, train.problem_type):
                return attach_adapter(held, False)
        head = ClassificationHead(
            1 if labels is None else len(labels),
            self._pooling(),
            held.pooler_activation,
            problem_type=train.problem_type,
        )
        return replace_head(held, head, labels)

    def _pooling(self) -> Any:
        """Returns the pooling of a new head: of the old head, of the exporter, or the usual."""
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
        return cls(published.read_text_model())

    def served(self) -> Any:
        return TextRegressor(self.held.model, self.held.tokenizer, **self.held.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns errors, and the correlation of predicted with true numbers."""
        targets = targets_of(data, columns, "regression", None, None)
        true = np.array(targets.values)
        predicted = self.served().values(targets.texts)
        correlation = 0.0
        if true.std() > 0 and predicted.std() > 0:
            correlation = float(np.corrcoef(predicted, true)[0, 1])
        return {
            "mean_absolute_error": float(np.abs(predicted - true).mean()),
            "mean_squared_error": float(np.square(predicted - true).mean()),
            "correlation": correlation,
            "rows": len(targets),
            "left_out": sum(targets.corpus.left_out.values()),
        }


def _gives_number(head: ClassificationHead) -> bool:
    return bool(head.problem_type == REGRESSION and head.num_classes == 1)


def _scale(held: Held, train: Targets) -> Scale:
    """Returns the scale of numbers if the last layer is trained, so that it can be folded in."""
    classes = held.model.head.classes
    if classes.quantization_mode or adapter_of(classes) or not classes.kernel.trainable:
        return Scale()
    return train.scale()


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Texts as ids, with the labels or number and the weight of each text."""

    ids: tf.RaggedTensor
    values: Array
    weights: Array
    padding: int
    num_cut: int

    @classmethod
    def encode(cls, held: Held, targets: Targets, scale: Scale) -> Self:
        """Encodes texts; the weight of each is 1."""
        ids, is_cut = framed(held.tokenizer, targets.texts, longest_text(held))
        values = scale.scaled(targets.array())
        weights = row_weights(targets, None)
        return cls(ids, values, weights, held.model.padding_id, int(np.sum(is_cut)))

    def batches(
        self, boundaries: tuple[int, ...], tokens: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        """Returns batches of padded ids, values and weights."""
        # Numbers of the rows, not labels, go through the buckets, which take integers only.
        rows = np.arange(len(self.values))
        batches = bucketed_texts(self.ids, rows, boundaries, tokens, seed, epoch, self.padding)
        values = self.values
        weights = self.weights
        return batches.map(
            lambda ids, row, real: (ids, tf.gather(values, row), real * tf.gather(weights, row))
        )


def _loss_and_metric(problem_type: str) -> dict[str, Any]:
    """Returns the arguments of `model.compile` for a kind of labels."""
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
    """Returns the program from ids, with marks and padding, to classes."""

    def answer(ids: tf.Tensor, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return classes.answer(classes.probabilities(logits))

    return id_program("text_classifier", model, tokenizer, longest, answer, "probabilities")


FEW = 10  # fewer texts are cut into pieces, of which some are held out
LONGEST_ROW = 256  # positions of a row, in which texts stand one behind the other


class UnlabelledTextFitting(TextClassifierFitting):
    """The base of models that learn from texts alone, and classes from texts with labels."""

    def _rows(self, corpus: TextCorpus) -> tf.data.Dataset:
        """Returns all texts, with their marks, as one dataset element of ragged ids."""
        tokenizer = self.held.tokenizer
        ids = tokenizer.tokenize(tf.constant(corpus.texts, tf.string))
        return tf.data.Dataset.from_tensors(in_marks(ids, self._marks()))

    def _marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids before and behind a text."""
        return marks_of(self.held.tokenizer)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        """Returns batches of rows of tokens: the hook of a subclass."""
        raise NotImplementedError

    def _length(self) -> int:
        """Returns the length of a row of tokens."""
        return int(
            min(getattr(self.held.model, "most_positions", None) or LONGEST_ROW, LONGEST_ROW)
        )

    def fit(  # type: ignore[override]
        self, data: Any, valid: Any, asked: Asked, **options: Any
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on texts, or as `TextClassifierFitting` if the texts have labels."""
        data, valid = split_parts(data, valid, asked.verbose)
        if options or names_column(data, LABELS, asked.columns):
            return super().fit(data, valid, asked, **options)
        train = read_texts(data, asked.columns)
        watched = None
        if valid is None:
            train = in_parts(train, self._length())
        else:
            watched = read_texts(valid, asked.columns)
        train, watched = hold_out_part(asked, train, watched, TextCorpus.split)
        rows = [self._rows(corpus) for corpus in (train, watched)]
        numbers = asked.numbers(len(train), "text")
        size = min(numbers.batch_size, 8)  # rows, each of which holds several texts
        held = attach_adapter(self.held, False)
        history = train_model(
            held.model,
            lambda epoch: self._batches(rows[0], size, asked.seed, epoch),
            self._batches(rows[1], size),
            numbers,
            asked,
            **token_learning(padding_of(held.model), model=held.model),
        )
        return type(self)(held), history

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns the perplexity per token, and the share of tokens that are predicted right."""
        corpus = read_texts(data, columns)
        model = self.held.model
        model.compile(**token_learning(padding_of(model), model=model), jit_compile=False)
        batches = counted(self._batches(self._rows(corpus), 8))
        try:
            scores = model.evaluate(batches, verbose=0, return_dict=True)
        finally:
            uncompiled(model)
        perplexity = math.exp(scores["cross_entropy"])
        return {"perplexity": perplexity, "accuracy": scores["accuracy"], "rows": len(corpus)}


def in_parts(corpus: TextCorpus, words: int) -> TextCorpus:
    """Cuts a corpus of fewer than ten texts into pieces, so that some can be held out.

    Args:
        corpus: Texts without labels.
        words: Number of words of a piece.

    Example:
    >>> from keras_transformers.tasks.text_classification import in_parts
    >>> from keras_transformers.text import TextCorpus
    >>> in_parts(TextCorpus("toy", ["to be or not to be"]), words=4).texts
    ['to be or not ', 'to be']
    """
    if len(corpus) >= FEW:
        return corpus
    pieces = []
    for text in corpus.texts:
        found_words = re.findall(r"\s*\S+\s*", text)
        for start in range(0, len(found_words), words):
            pieces.append("".join(found_words[start : start + words]))
    return dataclasses.replace(corpus, texts=pieces)


TASKS = (
    Task(TextClassifier, TextClassifierPredictor, TextClassifierFitting),
    Task(TextRegressor, TextRegressorPredictor, TextRegressorFitting, output="value"),
)
