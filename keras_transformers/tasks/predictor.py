"""The base of predictors: things as people hold them in, plain Python out."""

import collections
import dataclasses
import itertools
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath
from keras_transformers.tasks.registry import predictor_of

SHOWN = 60  # characters of what was received, in a message
_first_process: dict[str, int] = {}  # the first to call `check_process`; forks have it, too


@dataclasses.dataclass(frozen=True)
class Refused:
    """Stands in the place of an answer.

    Args:
        reason: What is wrong with the item, to be read after its name: "must be text ...".

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
        owner: Function for the message.

    Raises:
        RuntimeError: If another process, whose copy this one is, was the first to call this.
    """
    process = os.getpid()
    if process != (first := _first_process.setdefault("id", process)):
        raise RuntimeError(
            f"{owner}: this process must not be a fork of one that has loaded a model, because "
            "TensorFlow waits forever in it; load the model in this process alone, or start it "
            f'by "spawn". Received: process {process}, forked from {first}'
        )


class Predictor:
    """What all predictors share: requests of raw things, answers in plain Python.

    `keras_transformers.load` makes the fitting one of a folder.

    Args:
        run: Function from a string tensor `(batch,)` to a dict of tensors, batch first: an object
            of `keras_transformers.export`, or the signature of a SavedModel.
        labels: Names of the classes in the order of the model's, or None.
        parts: Dict of "model", "tokenizer" and "preprocessing", where there are such, to a function
            without arguments that gives it; and "fitting", of what learns, see
            `keras_transformers.fitting`.
        source: What they are read from, for messages.

    Attributes:
        kind: "translator", "text_generator", "mask_filler", "text_classifier", "text_regressor",
            "text_tagger", "sentence_encoder", "question_answerer", "image_classifier",
            "image_encoder", "array_classifier", "zero_shot_classifier", "detector" or "segmenter".
        takes: "text" or "image".
        also_takes: What its function takes besides, a tuple.
        may_take: What some functions of the kind take besides, a tuple.
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
    rows = 1024  # of a request, where nothing else is said
    _drawing: Any = None  # what holds the seed of samples, where that is not what runs
    _seed: int | None = None  # in place of its own
    _number_cut = 0  # texts that were longer than the model reads

    def __init__(
        self,
        run: Callable[..., Any],
        labels: Sequence[str] | None = None,
        parts: Mapping[str, Callable[[], Any]] | None = None,
        source: Any = "this object",
    ) -> None:
        check_process("load")
        self._run = run
        named = None if labels is None else [str(label) for label in labels]
        self.labels: list[str] | Any = named  # None where there are no classes
        self._parts, self.source = dict(parts or {}), source
        self._made: dict[str, Any] = {}

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of "model", "tokenizer" and "preprocessing" there are; none is read for this."""
        return tuple(n for n in ("model", "tokenizer", "preprocessing") if n in self._parts)

    @property
    def model(self) -> Any:
        """The Keras model, read when first used; AttributeError where there is none."""
        return self._part("model")

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, read when first used; AttributeError where there is none."""
        return self._part("tokenizer")

    @property
    def preprocessing(self) -> Any:
        """The `vision.Preprocessing`, read when first used; AttributeError where there is none."""
        return self._part("preprocessing")

    def predict(
        self, raw: Any, batch_size: int | None = None, verbose: int = 0, details: bool = False
    ) -> Any:
        """Answers for one thing, or for many.

        Args:
            raw: One thing, or a list, tuple, array or other iterable of them. A text is a str or
                UTF-8 bytes. An image is the path of a file, the bytes of one, an array of bytes
                `(height, width)` or `(height, width, channels)`, or a Pillow image; an array of
                four axes is many images.
            batch_size: Rows of a request; by default 1,024 texts or 64 images.
            verbose: 1 shows a progress bar.
            details: Whether everything that the model says is wanted, in a dict, where the answer
                is a string, a vector, or only what the model is sure of. Dicts stay as they are.

        Returns:
            The answer to one thing, or a list of answers in the order of the things; see the class.

        A warning says how many texts were cut because they are longer than the model reads.

        Raises:
            ValueError: If a thing is no text or no image; the message has its number.
        """
        items, alone = self._several(raw)
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
        """The answers one by one, as `predict` gives them; bad items are answered by a `Refused`.

        Args:
            items: Iterable of things.
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
            yield from self._request(part, details, first)
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
        """Trains the model on data; what it answers from then on, it has learned.

        A classifier whose classes are not those of the data gets a new head for these, as does an
        encoder of sentences or images, or a language model or a filler of masks whose data have
        labels; the predictor is then of another `kind`. Translators learn from pairs of source and
        target, language models and fillers of masks from texts, classifiers from texts or images
        and their labels. Where texts are lists of words, or a file is `.conll`, tags of words are
        learned.

        AdamW trains all weights. Peak of the learning rate, epochs and batch follow from the number
        of examples, see `training.fine_tuning_numbers`; after a warm-up the rate decays to 0.
        Training stops when the validation loss has not become lower for two epochs, and the weights
        of the best epoch stay.

        Args:
            data: Path of a `.tsv`, `.csv`, `.jsonl` or `.parquet` file, or a pattern of several, as
                "shards/*.jsonl", of at most 1 GiB together; of a folder of images by
                class; of a text file; a DataFrame, a Hugging Face dataset, a `tf.data.Dataset`, a
                dict of columns, a tuple of them, or an iterable of tuples or dicts. See
                `tables.read_rows` for which columns are taken. A dict or a folder with `train` and
                `validation`, or other usual names of these, has both parts; nothing is learned
                from its test set.
            valid: What to watch by, the same; None holds a part of `data` out: a tenth, from 50 to
                1,000 rows and at most a fifth, by the hashes of the texts or images, see
                `splits.held_out`.
            columns: Names, or positions from 0, of the two columns (or of the one).
            epochs, learning_rate, batch_size: Other numbers than by the rule.
            seed: Of what is held out, the order, and dropout.
            callbacks: More of Keras's callbacks.
            verbose: As of `model.fit`; 0 also says nothing of what was read.
            **options: Of classifiers `problem_type`, `label_separator`, `class_weights`, of images
                `augmentation`; of translators `label_smoothing`. For texts
                `problem_type="tagging"` says that blanks stand between words and between their
                tags, or that a file has a word and its tag in each row, see `text.read_tagged`.

        Returns:
            The history: a dict of lists with a number for each epoch.

        Raises:
            ValueError: If nothing in the data is usable, or there is no model that learns here.
            FileNotFoundError: If there is no such file.
            TypeError: If `data` is none of those, or there is no such option.
        """
        asked = {
            "columns": columns,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "seed": seed,
            "callbacks": tuple(callbacks),
            "verbose": verbose,
        }
        fitted, history = self.fitting_for("fit").trained(data, valid, asked, options)
        self.become(fitted)
        found: dict[str, list[float]] = history
        return found

    def evaluate(self, data: Any, *, columns: Any = None) -> dict[str, float]:
        """Scores on labelled data, as `fit` takes them.

        Returns:
            Dict of numbers: BLEU and chrF of translators; accuracy and macro F1 of classifiers, or
            F1s where there can be several labels; accuracy of words, and F1 of entities, of
            taggers; errors and correlation where a number is found; perplexity and accuracy per
            token of language models and fillers of masks. Of classifiers also `rows`;
            `of_unknown_classes`, the rows whose class the model does not know, which count as
            errors; and `left_out`, the rows that cannot be scored at all.
        """
        scores: dict[str, float] = self.fitting_for("evaluate").evaluate(data, columns)
        return scores

    def quantize(self, mode: str = "int8") -> Self:
        """Stores the weights of dense layers and tables in fewer bits.

        Those of "int8" and "int4" are not trained any more: `add_lora` beside it, before or after,
        and the next `fit` trains adapters and a new head alone (QLoRA). What has adapters is
        quantised no more, unless `training.merge` and `training.remove_lora` make it plain. `fit`
        trains weights of "bfloat16" and "float16" in float32, and stores them as before.

        Args:
            mode: One of those of `precision.in_precision`: "int8", ...

        Returns:
            Itself.

        Raises:
            ValueError: If there is no such mode, or the model is quantised or has adapters.
        """
        self.become(self.fitting_for("quantize").quantized(mode))
        return self

    def add_lora(self, rank: int = 8, **options: Any) -> Self:
        """Makes the next `fit` train low-rank adapters instead of all weights.

        They are made then, for a new head comes first, which is trained beside them; what is fitted
        after that trains the same ones, with the same classes. `save` keeps them apart, `export`
        merges them into the weights that it writes, unless these are quantised.

        Args:
            rank: Of the adapters.
            **options: Of `training.add_lora`: `alpha`, `dropout`, `targets` ...

        Returns:
            Itself.

        Raises:
            TypeError: If there is no such option.
            ValueError: If a number is out of range, or the model has an adapter of that name
                (`fit` goes on with it), a merged one, or Keras's own LoRA.
        """
        self.become(self.fitting_for("add_lora").adapted(rank, options))
        return self

    def save(self, folder: StrPath) -> pathlib.Path:
        """Writes all that `load` needs to give this predictor again, to go on learning, too.

        Args:
            folder: Path of the folder.

        Returns:
            The path.
        """
        path: pathlib.Path = self.fitting_for("save").save(folder)
        return path

    def export(self, folder: StrPath, **options: Any) -> pathlib.Path:
        """Writes what answers, for processes without this library: by default a SavedModel.

        Active adapters are merged into the kernels that are written. Beside quantised kernels they
        stay apart, and a warning says so.

        Args:
            folder: Path of the folder.
            **options: Of `save` of the exporter: `version`, `warmup`, and of most `format`,
                "saved_model", "litert" or "onnx".

        Returns:
            The folder of what was written.
        """
        path: pathlib.Path = self.fitting_for("export").export(folder, **options)
        return path

    def fitting_for(self, asked: str) -> Any:
        """The object of `keras_transformers.fitting` behind this predictor."""
        if "fitting" not in self._parts:
            raise ValueError(
                f"{asked}: {self!r} has no model that learns. Load the folder of a run, published "
                "weights, or a folder that `save` has written; a SavedModel cannot change."
            )
        if "fitting" not in self._made:
            self._made["fitting"] = self._parts["fitting"]()
        return self._made["fitting"]

    def become(self, fitted: Any) -> None:
        """Answers from now on with another model, and as one of its kind."""
        served = fitted.served()
        self.__class__ = predictor_of(served.kind)
        self._run, self.labels = served, served.labels
        self._parts, self._made = _parts_of(fitted), {}

    def _request(self, items: list[Any], details: bool, first: int) -> list[Any]:
        """A list of answers, or `Refused`s, for a list of things, the first of this number."""
        answers = [self._tried(item) for item in items]
        good = [i for i, answer in enumerate(answers) if not isinstance(answer, Refused)]
        if good:
            found = self._found([answers[i] for i in good], details, first)
            for i, answer in zip(good, found, strict=True):
                if isinstance(answer, Refused):
                    answer = Refused(f"{answer.reason} {received(items[i])}")
                answers[i] = answer
        return answers

    def _tried(self, item: Any) -> Any:
        """The string of a thing, or a `Refused`."""
        try:
            return self._encoded(_of_numpy(item))
        except ValueError as error:
            return Refused(str(error))

    def _found(self, strings: list[Any], details: bool, first: int) -> list[Any]:
        """The answers to strings; halves a request that fails, until its bad rows are found."""
        check_process("predict")
        drawing: Any = self._drawing or self._run
        first_row = getattr(drawing, "first_row", None)
        if first_row is not None:  # of a search with a seed, which would draw alike in each request
            first_row.assign(first)
            if self._seed is not None:
                drawing.seed.assign(self._seed)
        try:
            found = self._run(self._request_of(strings), *self._besides(len(strings)))
        except tf.errors.InvalidArgumentError as error:
            if len(strings) == 1:
                return [Refused(self._failure(error))]
            half = len(strings) // 2
            before = self._found(strings[:half], details, first)
            return before + self._found(strings[half:], details, first + half)
        finally:
            if first_row is not None:
                first_row.assign(0)
        found = {name: np.asarray(values) for name, values in found.items()}
        if "truncated" in found:
            self._number_cut += int(np.count_nonzero(found["truncated"]))
        rows = [{name: found[name][i] for name in found} for i in range(len(strings))]
        return [self._answer(row, details) for row in rows]

    def _several(self, raw: Any) -> tuple[Any, bool]:
        """A list of things, or another iterable of them, and whether it was one thing alone."""
        raw = _of_numpy(raw)
        if self._is_one(raw):
            return [raw], True
        return raw, False

    def _is_one(self, raw: Any) -> bool:
        """Whether it is one thing: a hook, for what is no plain value."""
        return isinstance(raw, str | bytes | bytearray | dict | set) or not hasattr(raw, "__iter__")

    def _encoded(self, item: Any) -> Any:
        """The string that the model takes for a thing: a hook; ValueError says what is wrong."""
        raise NotImplementedError

    def _request_of(self, strings: list[Any]) -> tf.Tensor:
        """The tensor that the model takes for a list of what `_encoded` gives: a hook."""
        return tf.constant(strings, tf.string)

    def _besides(self, number: int) -> tuple[tf.Tensor, ...]:
        """What the model takes besides, for so many strings: a hook."""
        return ()

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        """The answer in plain Python, from a dict of arrays: a hook."""
        raise NotImplementedError

    def _failure(self, error: Exception) -> str:
        """Why the model refused a string: a hook."""
        return f"was refused by the model: {str(error).strip().splitlines()[0]}"

    def _part(self, name: str) -> Any:
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
    predictor: Predictor = predictor_of(served.kind)(
        served, served.labels, _parts_of(fitted), source
    )
    return predictor


def _parts_of(fitted: Any) -> dict[str, Callable[[], Any]]:
    """Returns the parts of the predictor of such an object."""
    held = fitted.held
    named = {"model": held.model, "tokenizer": held.tokenizer, "preprocessing": held.preprocessing}
    parts = {name: _giving(part) for name, part in named.items() if part is not None}
    return {**parts, "fitting": _giving(fitted)}


def _giving(part: Any) -> Callable[[], Any]:
    return lambda: part


def _of_numpy(thing: Any) -> Any:
    """The NumPy array of any library's, and what is in an array of no axes."""
    thing = np.asarray(thing) if hasattr(thing, "__array__") else thing
    return thing.item() if getattr(thing, "ndim", None) == 0 else thing


def received(thing: Any) -> str:
    """How a message shows what it was given."""
    text = repr(thing)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f"Received: {text} ({type(thing).__name__})"


def named_probabilities(row: dict[str, Any], labels: Sequence[str] | None) -> dict[str, Any]:
    """The most probable class and all, from `label`, `probability` and `probabilities`.

    Where there can be several, the list `labels` has those of `present`.
    """
    names = labels or [str(i) for i in range(len(row["probabilities"]))]
    if len(set(names)) < len(names):  # as ImageNet's two cranes; each keeps its probability
        times = collections.Counter(names)
        names = [f"{name} ({i})" if times[name] > 1 else name for i, name in enumerate(names)]
    answer = {
        "label": row["label"].decode(),
        "probability": float(row["probability"]),
        "probabilities": dict(zip(names, row["probabilities"].tolist(), strict=True)),
    }
    if "present" in row:
        there = zip(names, row["present"], strict=True)
        answer["labels"] = [name for name, present in there if present]
    return answer
