"""The base of predictors, which take texts and images and give plain Python."""

import collections
import dataclasses
import itertools
import os
import pathlib
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath
from keras_transformers.tasks.registry import predictor_of

SHOWN = 60  # most characters of a received value in a message
_first_process: dict[str, int] = {}  # the first process to call `check_process`; forks copy it


@dataclasses.dataclass(frozen=True)
class Refused:
    """Stands in the place of an answer to a bad item.

    Args:
        reason: The mistake in the item, to be read after its name: "must be text ...".

    Example:
    >>> from keras_transformers.predictors import Refused
    >>> Refused("must be text (str or UTF-8 bytes). Received: None").reason[:12]
    'must be text'
    """

    reason: str


def check_process(owner: str) -> None:
    """Checks that this process was not forked from one that has called this before.

    TensorFlow's threads are not copied by a fork: the child would wait for them forever.

    Args:
        owner: Name of the calling function, for the message.

    Raises:
        RuntimeError: If this process is a fork of one that has called this function.
    """
    process = os.getpid()
    first = _first_process.setdefault("id", process)
    if process != first:
        raise RuntimeError(
            f"{owner}: this process must not be a fork of one that has loaded a model, because "
            "TensorFlow waits forever in it; load the model in this process alone, or start it "
            f'by "spawn". Received: process {process}, forked from {first}'
        )


class Predictor:
    """The base of all predictors: requests of raw items, answers in plain Python.

    `keras_transformers.load` makes the predictor of a folder.

    Args:
        run: Function from a string tensor `(batch,)` to a dict of tensors, batch first: an object
            of `keras_transformers.export`, or the signature of a SavedModel.
        labels: Names of the classes in the model's order, or None.
        parts: Functions without arguments that return a part, by its name: "model", "tokenizer",
            "preprocessing", and "fitting", an object of `keras_transformers.fitting`.
        source: The folder or object that the parts come from, for messages.

    Attributes:
        kind: "translator", "text_generator", "mask_filler", "text_classifier", "text_regressor",
            "text_tagger", "sentence_encoder", "question_answerer", "image_classifier",
            "image_encoder", "array_classifier", "zero_shot_classifier", "detector" or "segmenter".
        takes: "text" or "image".
        also_takes: Names of the further inputs of its function.
        may_take: Names of the inputs that only some functions of this kind have.
        labels: As given.

    Example:
    >>> from keras_transformers.predictors import SentenceEncoderPredictor
    >>> lengths = lambda text: {"embedding": tf.cast(tf.strings.length(text), tf.float32)[:, None]}
    >>> SentenceEncoderPredictor(lengths).predict(["to be", "or"])
    [[5.0], [2.0]]
    """

    kind: str | None = None
    takes: str | None = None
    also_takes: tuple[str, ...] = ()
    may_take: tuple[str, ...] = ()
    rows = 1024  # of a request, by default
    _drawing: Any = None  # the object with the seed of samples, if it is not `_run`
    _seed: int | None = None  # in place of that object's own seed
    _number_cut = 0  # texts that were longer than the model reads
    # Of a SavedModel: languages to choose from, number of previous sentences, and its signatures.
    languages: tuple[str, ...] = ()
    previous: int = 0
    loaded: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(
        self,
        run: Callable[..., Any],
        labels: Sequence[str] | None = None,
        parts: Mapping[str, Callable[[], Any]] | None = None,
        source: Any = "this object",
    ) -> None:
        check_process("load")
        self._run = run
        names = None if labels is None else [str(label) for label in labels]
        self.labels: list[str] | Any = names  # None if there are no classes
        self._parts = dict(parts or {})
        self.source = source
        self._made: dict[str, Any] = {}

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts, of "model", "tokenizer" and "preprocessing"; this reads none."""
        return tuple(n for n in ("model", "tokenizer", "preprocessing") if n in self._parts)

    @property
    def model(self) -> Any:
        """The Keras model, read when first used; AttributeError if there is none."""
        return self._part("model")

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, read when first used; AttributeError if there is none."""
        return self._part("tokenizer")

    @property
    def preprocessing(self) -> Any:
        """The `vision.Preprocessing`, read when first used; AttributeError if there is none."""
        return self._part("preprocessing")

    def predict(
        self, raw: Any, batch_size: int | None = None, verbose: int = 0, details: bool = False
    ) -> Any:
        """Answers one item, or many.

        A warning says how many texts were cut because they are longer than the model reads.

        Args:
            raw: One item, or a list, tuple, array or other iterable of items. A text is a str or
                UTF-8 bytes. An image is the path of a file, the bytes of one, an array of bytes
                `(height, width)` or `(height, width, channels)`, or a Pillow image; an array of
                four axes is many images.
            batch_size: Rows of a request; by default 1,024 texts or 64 images.
            verbose: 1 shows a progress bar.
            details: Whether an answer is a dict of all outputs of the model, instead of a string, a
                vector, or the outputs that the model is sure of. Other dicts stay as they are.

        Returns:
            The answer to one item, or a list of answers in the order of the items; see the class.

        Raises:
            ValueError: If an item is no text or no image; the message has its number.
        """
        items, alone = self._list_items(raw)
        answers: list[Any] = []
        cut_before = self._number_cut
        for answer in self.each(items, batch_size, verbose, details):
            if isinstance(answer, Refused):
                raise ValueError(f"predict: item {len(answers)} {answer.reason}")
            answers.append(answer)
        if self._number_cut > cut_before:
            warnings.warn(
                f"predict: {self._number_cut - cut_before} of {len(answers)} texts are longer than "
                "the model reads, and were cut. With `details=True` the answers say which.",
                stacklevel=2,
            )
        return answers[0] if alone else answers

    def each(
        self,
        items: Iterable[Any],
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
    ) -> Iterator[Any]:
        """Yields the answers of `predict` one by one; a bad item is answered by a `Refused`.

        Args:
            items: Iterable of items.
            batch_size, verbose, details: As `predict` takes them.

        Yields:
            An answer or a `Refused` for each item, in their order.

        Raises:
            ValueError: If `batch_size` is not positive.
        """
        size = self.rows if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"predict: `batch_size` must be positive. Received: {batch_size}")
        number = len(items) if isinstance(items, Sized) else None
        bar = keras.utils.Progbar(number, unit_name="row") if verbose else None
        items = iter(items)
        first = 0
        while part := list(itertools.islice(items, size)):
            yield from self._answer_items(part, details, first)
            first += len(part)
            if bar:
                bar.add(len(part))

    def fit(
        self,
        data: Any,
        valid: Any = None,
        *,
        columns: Any = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        callbacks: Sequence[Any] = (),
        verbose: Any = "auto",
        **options: Any,
    ) -> dict[str, list[float]]:
        """Trains the model on data; the predictor then answers with the trained model.

        Translators learn from pairs of source and target, language models and fillers of masks from
        texts, and classifiers from texts or images and their labels. If texts are lists of words,
        or a file is `.conll`, the model learns tags of words.

        A classifier gets a new head if its classes are not those of the data. So does an encoder of
        sentences or images, and a language model or a filler of masks if the data have labels; the
        predictor is then of another `kind`.

        AdamW trains all weights. The peak of the learning rate, the epochs and the batch size
        follow from the number of examples, see `training.fine_tuning_numbers`. After a warm-up the
        rate decays to 0. Training stops if the validation loss has not become lower for two epochs,
        and the weights of the best epoch stay.

        Args:
            data: Path of a `.tsv`, `.csv`, `.jsonl` or `.parquet` file, or a pattern of several, as
                "shards/*.jsonl", of at most 1 GiB together; of a folder of images by
                class; of a text file; a DataFrame, a Hugging Face dataset, a `tf.data.Dataset`, a
                dict of columns, a tuple of them, or an iterable of tuples or dicts. See
                `tables.read_rows` for the columns. A dict or a folder with `train` and
                `validation`, or other usual names of these, has both parts; its test set is not
                used.
            valid: Data for validation, in the same forms. With None, a part of `data` is held out:
                a tenth, from 50 to 1,000 rows and at most a fifth, by the hashes of the texts or
                images, see `splits.held_out`.
            columns: Names, or positions from 0, of the two columns (or of the one).
            epochs, learning_rate, batch_size: Numbers in place of those that follow from the data.
            seed: Seed of the part that is held out, the order, and dropout.
            callbacks: Further callbacks of Keras.
            verbose: As `model.fit` takes it; 0 also prints nothing about the data.
            **options: `problem_type`, `label_separator` and `class_weights` for classifiers,
                `augmentation` for classifiers of images, `label_smoothing` for translators. For
                texts, `problem_type="tagging"` means that blanks stand between words and between
                their tags, or that a file has a word and its tag in each row, see
                `text.read_tagged`.

        Returns:
            The history: a dict of lists with a number for each epoch.

        Raises:
            ValueError: If nothing in the data is usable, or the predictor has no model that learns.
            FileNotFoundError: If there is no such file.
            TypeError: If `data` has another type, or there is no such option.
        """
        settings = {
            "columns": columns,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "seed": seed,
            "callbacks": tuple(callbacks),
            "verbose": verbose,
        }
        fitted, history = self.fitting_for("fit").trained(data, valid, settings, options)
        self.become(fitted)
        numbers: dict[str, list[float]] = history
        return numbers

    def evaluate(self, data: Any, *, columns: Any = None) -> dict[str, float]:
        """Scores the model on labelled data, in the forms that `fit` takes.

        Returns:
            Dict of numbers: BLEU and chrF for translators; accuracy and macro F1 for classifiers,
            or F1s if there can be several labels; accuracy of words and F1 of entities for taggers;
            errors and correlation for regressors; perplexity and accuracy per token for language
            models and fillers of masks. Classifiers also give `rows`; `of_unknown_classes`, the
            rows whose class the model does not know, which count as errors; and `left_out`, the
            rows that cannot be scored at all.
        """
        scores: dict[str, float] = self.fitting_for("evaluate").evaluate(data, columns)
        return scores

    def quantize(self, mode: str = "int8") -> Self:
        """Stores the weights of dense layers and tables in fewer bits.

        Weights in "int8" and "int4" are not trained any more. With `add_lora`, called before or
        after this, the next `fit` trains adapters and a new head alone (QLoRA). A model that has
        adapters is not quantised; first call `training.merge` and `training.remove_lora`. `fit`
        trains weights in "bfloat16" and "float16" in float32, and stores them as before.

        Args:
            mode: A mode of `precision.in_precision`: "int8", ...

        Returns:
            This predictor.

        Raises:
            ValueError: If there is no such mode, or the model is quantised or has adapters.
        """
        self.become(self.fitting_for("quantize").quantized(mode))
        return self

    def add_lora(self, rank: int = 8, **options: Any) -> Self:
        """Makes the next `fit` train low-rank adapters instead of all weights.

        The next `fit` makes the adapters, after a new head, which is trained beside them. A later
        `fit` with the same classes trains the same adapters. `save` keeps them apart. `export`
        merges them into the weights that it writes, unless these are quantised.

        Args:
            rank: Rank of the adapters.
            **options: Options of `training.add_lora`: `alpha`, `dropout`, `targets` ...

        Returns:
            This predictor.

        Raises:
            TypeError: If there is no such option.
            ValueError: If a number is out of range, or the model has an adapter of that name
                (`fit` goes on with it), a merged one, or Keras's own LoRA.
        """
        self.become(self.fitting_for("add_lora").adapted(rank, options))
        return self

    def save(self, folder: StrPath) -> pathlib.Path:
        """Writes a folder from which `load` makes this predictor again, which can learn further.

        Args:
            folder: Path of the folder.

        Returns:
            The path.
        """
        path: pathlib.Path = self.fitting_for("save").save(folder)
        return path

    def export(self, folder: StrPath, **options: Any) -> pathlib.Path:
        """Writes a program that runs without this library: by default a SavedModel.

        Active adapters are merged into the kernels that are written. Beside quantised kernels they
        stay apart, and a warning says so.

        Args:
            folder: Path of the folder.
            **options: Options of the exporter's `save`: `version`, `warmup`, and for most exporters
                `format`, "saved_model", "litert" or "onnx".

        Returns:
            The folder that holds the program.
        """
        path: pathlib.Path = self.fitting_for("export").export(folder, **options)
        return path

    def fitting_for(self, owner: str) -> Any:
        """Returns the object of `keras_transformers.fitting` behind this predictor.

        Args:
            owner: Name of the calling function, for messages.
        """
        if "fitting" not in self._parts:
            raise ValueError(
                f"{owner}: {self!r} has no model that learns. Load the folder of a run, published "
                "weights, or a folder that `save` has written; a SavedModel cannot change."
            )
        if "fitting" not in self._made:
            self._made["fitting"] = self._parts["fitting"]()
        return self._made["fitting"]

    def become(self, fitted: Any) -> None:
        """Changes to another model and its kind."""
        served = fitted.served()
        self.__class__ = predictor_of(served.kind)
        self._run = served
        self.labels = served.labels
        self._parts = _parts_of(fitted)
        self._made = {}

    def _answer_items(self, items: list[Any], details: bool, first: int) -> list[Any]:
        """Returns answers or `Refused`s for items; `first` is the number of the first item."""
        answers = [self._encode_or_refuse(item) for item in items]
        good = [i for i, answer in enumerate(answers) if not isinstance(answer, Refused)]
        if good:
            good_answers = self._answer_strings([answers[i] for i in good], details, first)
            for i, answer in zip(good, good_answers, strict=True):
                if isinstance(answer, Refused):
                    answer = Refused(f"{answer.reason} {received(items[i])}")
                answers[i] = answer
        return answers

    def _encode_or_refuse(self, item: Any) -> Any:
        """Returns the string of an item, or a `Refused`."""
        try:
            return self._encoded(_as_numpy(item))
        except ValueError as error:
            return Refused(str(error))

    def _answer_strings(self, strings: list[Any], details: bool, first: int) -> list[Any]:
        """Answers strings; halves a request that fails, until its bad rows are found."""
        check_process("predict")
        drawing: Any = self._drawing or self._run
        first_row = getattr(drawing, "first_row", None)
        if first_row is not None:  # of a search with a seed, which would draw alike in each request
            first_row.assign(first)
            if self._seed is not None:
                drawing.seed.assign(self._seed)
        try:
            inputs = (self._request_of(strings), *self._further_inputs(len(strings)))
            outputs = self._run(*inputs)
        except tf.errors.InvalidArgumentError as error:
            if len(strings) == 1:
                return [Refused(self._failure(error))]
            half = len(strings) // 2
            before = self._answer_strings(strings[:half], details, first)
            return before + self._answer_strings(strings[half:], details, first + half)
        finally:
            if first_row is not None:
                first_row.assign(0)
        outputs = {name: np.asarray(values) for name, values in outputs.items()}
        if "truncated" in outputs:
            self._number_cut += int(np.count_nonzero(outputs["truncated"]))
        rows = [{name: outputs[name][i] for name in outputs} for i in range(len(strings))]
        return [self._answer(row, details) for row in rows]

    def _list_items(self, raw: Any) -> tuple[Any, bool]:
        """Returns an iterable of items, and whether `raw` was one item alone."""
        raw = _as_numpy(raw)
        if self._is_one(raw):
            return [raw], True
        return raw, False

    def _is_one(self, raw: Any) -> bool:
        """Returns True for one item, False for an iterable of items: a hook."""
        return isinstance(raw, str | bytes | bytearray | dict | set) or not hasattr(raw, "__iter__")

    def _encoded(self, item: Any) -> Any:
        """Returns the string that the model takes for an item; ValueError says why not: a hook."""
        raise NotImplementedError

    def _request_of(self, strings: list[Any]) -> tf.Tensor:
        """Returns the tensor that the model takes for a list of strings: a hook."""
        return tf.constant(strings, tf.string)

    def _further_inputs(self, number: int) -> tuple[tf.Tensor, ...]:
        """Returns the further inputs of the model for this number of strings: a hook."""
        return ()

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        """Makes an answer in plain Python from a dict of arrays: a hook."""
        raise NotImplementedError

    def _failure(self, error: Exception) -> str:
        """Returns the reason why the model refused a string: a hook."""
        return f"was refused by the model: {str(error).strip().splitlines()[0]}"

    def _part(self, name: str) -> Any:
        """Returns a part, read when it is first used."""
        check_process(f"predictor.{name}")
        if name not in self._parts:
            raise AttributeError(f"{self.source} has no {name}.")
        if name not in self._made:
            self._made[name] = self._parts[name]()
        return self._made[name]

    def __repr__(self) -> str:
        classes = "" if self.labels is None else f", {len(self.labels)} classes"
        return f"<{type(self).__name__} of {self.source}{classes}>"


def predictor_for(fitted: Any, source: Any) -> Predictor:
    """Returns the predictor that answers by an object of `keras_transformers.fitting`.

    Args:
        fitted: The object.
        source: The folder that it was read from, for messages.
    """
    served = fitted.served()
    make = predictor_of(served.kind)
    predictor: Predictor = make(served, served.labels, _parts_of(fitted), source)
    return predictor


def _parts_of(fitted: Any) -> dict[str, Callable[[], Any]]:
    """Returns the parts of a predictor that answers by an object of `fitting`."""
    held = fitted.held
    named = {"model": held.model, "tokenizer": held.tokenizer, "preprocessing": held.preprocessing}
    parts = {name: _make_getter(part) for name, part in named.items() if part is not None}
    return {**parts, "fitting": _make_getter(fitted)}


def _make_getter(part: Any) -> Callable[[], Any]:
    """Returns a function that returns a part."""
    return lambda: part


def _as_numpy(value: Any) -> Any:
    """Converts an array of any library to NumPy, and an array without axes to its element."""
    if hasattr(value, "__array__"):
        value = np.asarray(value)
    return value.item() if getattr(value, "ndim", None) == 0 else value


def received(value: Any) -> str:
    """Returns the end of a message, which shows the received value and its type."""
    text = repr(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f"Received: {text} ({type(value).__name__})"


def named_probabilities(row: dict[str, Any], labels: Sequence[str] | None) -> dict[str, Any]:
    """Returns the most probable class, and the probabilities of all classes by their names.

    If there can be several labels, `labels` lists those that are present.
    """
    names = labels or [str(i) for i in range(len(row["probabilities"]))]
    if len(set(names)) < len(names):  # as ImageNet's two cranes; each keeps its probability
        counts = collections.Counter(names)
        names = [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(names)]
    answer = {
        "label": row["label"].decode(),
        "probability": float(row["probability"]),
        "probabilities": dict(zip(names, row["probabilities"].tolist(), strict=True)),
    }
    if "present" in row:
        pairs = zip(names, row["present"], strict=True)
        answer["labels"] = [name for name, is_present in pairs if is_present]
    return answer
