"""The base of exporters: raw requests in, signatures of a SavedModel out."""

import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath, Tokenizer, Values
from keras_transformers.generation.request import vocabularies_of
from keras_transformers.tasks.conversion import (
    PROGRAM,
    Format,
    Program,
    check_format,
    refuse_other_exports,
    write_converted,
)
from keras_transformers.tasks.predictor import check_process
from keras_transformers.tasks.registry import predictor_of
from keras_transformers.tasks.rounds import CompiledRounds, PortableRounds, Rounds, is_seeded

# What a SavedModel consists of.
PARTS = (PROGRAM, "fingerprint.pb", "variables", "assets", "assets.extra")
LENGTHS = (32, 64, 128, 256, 512)  # of texts, in ids, where nothing else is said


class Saving(TypedDict, total=False):
    """Arguments of `Served.save`, besides the path."""

    version: int | None
    warmup: Sequence[Sequence[str | bytes]]


class Served(tf.Module):
    """A function of raw requests, for processes with XLA and for all others.

    A subclass has `_answer(request, rounds)`, or, with several inputs, `_answer(first, second,
    rounds)`, which gives a dict of tensors whose first axis is the batch's. Called in Python it is
    compiled by XLA. Saved, it has two signatures with the same inputs, outputs and variables:
    `serving_default`, which runs wherever TensorFlow's own kernels run, and `xla`. Of a text no
    more is read than `bounded` says.

    Args:
        name: What it is, for TensorFlow.
        *requests: `tf.TensorSpec` of each input.
    """

    kind: str | None = None  # one of `predictors.KINDS`
    # Of samples by a seed: the number of a request's first row, and the seed.
    first_row: tf.Variable | None = None
    seed: tf.Variable | None = None

    def __init__(self, name: str, *requests: tf.TensorSpec) -> None:
        super().__init__(name=name)
        self._requests = requests
        self._rounds, self._portable_rounds = CompiledRounds(), PortableRounds()
        self._compiled = self._traced(self._rounds)
        self._portable = self._traced(self._portable_rounds)

    def _traced(self, rounds: Rounds) -> Any:
        def answer(*requests: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._answer(*map(_as_declared, requests, self._requests), rounds)

        return tf.function(answer, input_signature=self._requests, autograph=False)

    def _hold(self, model: Any) -> None:
        """Keeps a built model as `_model`, and its variables for the SavedModel.

        Out of TensorFlow's sight, which would trace the model once more, with inputs of its own.
        """
        self._model_of = lambda: model
        self._variables = [variable.value for variable in model.variables]

    @property
    def _model(self) -> Any:
        return self._model_of()

    def _hold_seed(self, search: Any) -> None:
        """Makes the seed of samples a variable, and the number of a request's first row.

        So another seed traces nothing anew, and who asks in several requests says where each
        begins, so that none is drawn like another.
        """
        if is_seeded(search):
            self.first_row = tf.Variable(0, trainable=False, name="first_row")
            self.seed = tf.Variable(search.seed, trainable=False, dtype=tf.int64, name="seed")

    def _row_numbers(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Numbers of the rows of a request, int32 `(batch,)`."""
        numbers = tf.range(tf.cast(ids.nrows(), tf.int32))
        return numbers if self.first_row is None else numbers + self.first_row

    def __call__(self, *requests: Values | tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch: a dict of tensors, compiled by XLA; see `_answer`."""
        return self._compiled(*self._checked(requests))

    def portable(self, *requests: Values | tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch without XLA, as `serving_default` does."""
        return self._portable(*self._checked(requests))

    def _checked(self, requests: tuple[Any, ...]) -> tuple[Any, ...]:
        check_process(type(self).__name__)
        for request, declared in zip(requests, self._requests, strict=True):
            shape = tf.TensorShape(request.shape if tf.is_tensor(request) else np.shape(request))
            if not shape.is_compatible_with(declared.shape):
                expected = "strings of shape (batch,)"
                if declared.dtype != tf.string:
                    sides = ", ".join(str(side or "any") for side in declared.shape[1:])
                    expected = f"{declared.dtype.name} of shape (batch, {sides})"
                raise ValueError(
                    f"{type(self).__name__}: `{declared.name}` must be {expected}. "
                    f"Received: shape {shape}"
                )
        return requests

    def _more_signatures(self) -> dict[str, Any]:
        """A hook: what a SavedModel does besides, a dict of name -> `tf.function`."""
        return {}

    def _more_about(self) -> dict[str, Any]:
        """A hook: what a SavedModel says of itself besides, a dict that JSON can hold."""
        return {}

    @property
    def labels(self) -> list[str] | None:
        """Names of the classes, a list, or None."""
        labels = getattr(self, "_labels", None)
        return None if labels is None else [label.decode() for label in labels.numpy()]

    @property
    def longest(self) -> int:
        """The longest text, in ids, that is not cut."""
        return self._lengths[-1]

    def predict(self, raw: Any, **options: Any) -> Any:
        """Answers in plain Python for one thing or many, see `predictors.Predictor.predict`."""
        return predictor_of(self.kind)(self, self.labels).predict(raw, **options)

    def save(
        self,
        path: StrPath,
        version: int | None = None,
        warmup: Sequence[Sequence[str | bytes]] = (),
        format: Literal["saved_model"] = "saved_model",
    ) -> pathlib.Path:
        """Writes a SavedModel with the signatures `serving_default` and `xla`.

        It replaces a SavedModel that is there, whole: if the process is killed, the folder holds
        the earlier one, the new one or none, but no mixture. Other files in the folder stay.

        Args:
            path: Folder to write.
            version: Optional positive integer: writes `path/version`, the layout of a server's
                model folder.
            warmup: Requests, each a list of texts or of encoded images (bytes), that TensorFlow
                Serving sends itself before it answers others: what users send, several lengths and
                sizes; none where there are several inputs. Needs tensorflow-serving-api, the extra
                `serving`.
            format: "saved_model"; a `Convertible` has others.

        Returns:
            The folder that holds `saved_model.pb`, a `pathlib.Path`.

        Raises:
            ValueError: If `version` is not a positive integer, a request of `warmup` is no list or
                empty, the tokenizer does what TensorFlow's ops cannot, there is no such `format`
                of this exporter, or the folder holds an export of another format. Then nothing is
                written.
            ImportError: If there is `warmup` and tensorflow-serving-api is not installed, or the
                tokenizer needs tensorflow-text.
        """
        if format != "saved_model":
            raise ValueError(
                f'{type(self).__name__}: `format` must be "saved_model", the only one that this '
                f"exporter writes. Received: {format!r}"
            )
        tokenizer = getattr(self, "_tokenizer", None)
        if tokenizer is not None and hasattr(tokenizer, "check_exportable"):
            tokenizer.check_exportable()
        records = warm_up_records([each.name for each in self._requests], warmup)
        if version is not None and (type(version) is not int or version < 1):
            raise ValueError(
                f"{type(self).__name__}: `version` must be a positive integer. "
                f"Received: {version!r}"
            )
        path = pathlib.Path(path) if version is None else pathlib.Path(path, str(version))
        refuse_other_exports(type(self).__name__, path, "saved_model")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=path) as unfinished:
            self._write_saved_model(pathlib.Path(unfinished), records)
            for name in PARTS:
                _remove(path / name)
            for name in reversed(PARTS):  # the program last: without it there is no SavedModel
                written = pathlib.Path(unfinished, name)
                if written.exists():
                    written.rename(path / name)
        return path

    def _write_saved_model(self, path: pathlib.Path, records: list[Any]) -> None:
        signatures = {"serving_default": self._portable, "xla": self._compiled}
        signatures |= self._more_signatures()
        tf.saved_model.save(self, str(path), signatures=signatures)
        package = sys.modules[__name__.partition(".")[0]]
        about = {"kind": self.kind, "labels": self.labels, "version": package.__version__}
        about |= self._more_about()
        (path / "assets.extra").mkdir(exist_ok=True)
        (path / "assets.extra" / "keras_transformers.json").write_text(
            json.dumps(about, indent=2) + "\n", encoding="utf-8"
        )
        if records:
            write_warm_up(path, records)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _as_declared(request: tf.Tensor, declared: tf.TensorSpec) -> tf.Tensor:
    """The request, which fails by its name if it has another shape than its `tf.TensorSpec`.

    A server does not look at shapes, and TensorFlow takes for granted what a signature says of
    them. So it goes through an op whose shape is unknown until it runs; the error names that op.
    """
    name = f"request/{declared.name}"
    named = tf.raw_ops.PlaceholderWithDefault(input=request, shape=None, name=name)
    return tf.ensure_shape(named, declared.shape)


def bounded(text: tf.Tensor, longest: int, end: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Texts of as many bytes as `longest` tokens may need, and which were cut, bool.

    No more is read: SentencePiece's time grows with the square of a run of unknown characters.

    Args:
        text: Strings `(batch,)`.
        longest: Most tokens that are used of a text.
        end: Whether the end of a text is kept, not its beginning.
    """
    size, most = tf.strings.length(text), max(1 << 16, 64 * longest)
    start = tf.maximum(size - most, 0) if end else tf.zeros_like(size)
    return tf.strings.substr(text, start, tf.fill(tf.shape(size), most)), size > most


def joined_past_ends(tokenizer: Tokenizer, ids: tf.Tensor, padding: int) -> tf.Tensor:
    """Joins ids to strings; END vanishes like other marks, and what stands behind it stays.

    `detokenize` drops all from the first END on. But a prompt may contain END, as may a text whose
    masks are filled.

    Args:
        tokenizer: Tokenizer whose `detokenize` joins them.
        ids: Integers `(batch, length)`.
        padding: Padding of `ids`, which need not be the tokenizer's.

    Returns:
        Strings `(batch,)`.
    """
    is_shown = (ids != padding) & (ids != tokenizer.end_id)
    return tokenizer.detokenize(tf.ragged.boolean_mask(ids, is_shown))


def strings(texts: Sequence[str | bytes]) -> tf.Tensor:
    """A list of str, which may be empty, as a tensor.

    Raises:
        TypeError: If it is one str, which would be a list of its characters.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(
            "Expected a list of texts; for one alone, use `predict` or [text]. "
            f"Received: {texts[:60]!r}"
        )
    return tf.constant(list(texts), tf.string, shape=[len(texts)])


def lengths_within(model: Any, usual: Sequence[int]) -> tuple[int, ...]:
    """Increasing lengths, as far as the model has positions."""
    most = min(getattr(model, "most_positions", None) or usual[-1], usual[-1])
    return (*(length for length in usual if length < most), most)


def lengths_up_to(most: int | None, usual: Sequence[int], factor: int = 2) -> tuple[int, ...]:
    """Returns increasing lengths, from the usual ones on times `factor`, the last of them `most`.

    Args:
        most: The longest length; None for the usual lengths.
        usual: Increasing lengths.
        factor: Factor from one further length to the next.
    """
    if most is None:
        return tuple(usual)
    lengths = list(usual)
    while lengths[-1] < most:
        lengths.append(factor * lengths[-1])
    return (*(length for length in lengths if length < most), most)


def lengths_for(
    owner: str,
    model: Any,
    tokenizer: Tokenizer,
    lengths: Sequence[int] | None,
    usual: Sequence[int],
    name: str = "lengths",
) -> tuple[int, ...]:
    """The lengths that texts are padded to, as a tuple.

    Args:
        owner: For messages: who asks.
        model: Whose `most_positions`, where it has such, hold the longest.
        tokenizer: Whose ids must all be the model's.
        lengths: What was given; None for `usual`, and from there on doubled, as far as the model
            has positions: nothing that it can read is cut.
        usual: Increasing lengths.
        name: Name of the argument.

    Raises:
        ValueError: If they do not increase from 1 on, or the model is too small for them or for the
            tokenizer.
    """
    vocab, _ = vocabularies_of(model)
    if vocab is not None and tokenizer.vocab_size > vocab:
        raise ValueError(
            f"{owner}: `tokenizer` must have at most as many pieces as the model's vocabulary, "
            f"{vocab}. Received: {tokenizer.vocab_size}"
        )
    most = getattr(model, "most_positions", None)
    if lengths is None:
        return lengths_up_to(most, usual)
    lengths = tuple(lengths)
    if not lengths or any(a >= b for a, b in zip((0, *lengths), lengths, strict=False)):
        raise ValueError(f"{owner}: `{name}` must increase, from 1 on. Received: {lengths}")
    if most is not None and lengths[-1] > most:
        raise ValueError(
            f"{owner}: `{name}` must be at most {most}, the number of the model's positions. "
            f"Received: {lengths}"
        )
    return lengths


class Conversion(Saving, total=False):
    """Arguments of `Convertible.save`, besides the path."""

    format: Format


class Convertible(Served):
    """A `Served` whose arithmetic is also a program of tensors, see `_program`."""

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer | None]:
        """The program, what `preprocessing.json` says of its input, and the tokenizer if any."""
        raise NotImplementedError

    def save(
        self,
        path: StrPath,
        version: int | None = None,
        warmup: Sequence[Sequence[str | bytes]] = (),
        format: Format = "saved_model",
    ) -> pathlib.Path:
        """Writes a SavedModel, see `Served.save`, or a file for another runtime.

        Args:
            path: Folder to write.
            version, warmup: Of a SavedModel, see `Served.save`.
            format: "saved_model", or "litert" or "onnx": then tensors go in and out; see
                `keras_transformers.tasks.conversion`.

        Returns:
            The folder of what was written, a `pathlib.Path`.
        """
        check_format(self.name, format, version, warmup)
        if format == "saved_model":
            return super().save(path, version, warmup)
        refuse_other_exports(self.name, pathlib.Path(path), format)
        program, settings, tokenizer = self._program()
        return write_converted(program, format, path, settings, tokenizer)


WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"  # fixed by TensorFlow Serving


def warm_up_records(
    input_names: Sequence[str],
    requests: Sequence[Sequence[str | bytes]],
    signatures: Sequence[str] = ("serving_default",),
) -> list[bytes]:
    """The records of the file with which a server warms up.

    The first request to a signature loads, optimises and traces; a server that has answered these
    has that behind it. Give what users send: several lengths and sizes.

    Args:
        input_names: Names of the signatures' inputs; there must be one for requests to be made.
        requests: Lists of str or bytes, each one request.
        signatures: Those that are sent every request. A server with XLA that is asked for `xla`
            wants that here too; one without would not start.

    Returns:
        List of serialised `PredictionLog`s, empty if there are no requests.

    Raises:
        ImportError: If there are requests and tensorflow-serving-api is not installed.
        ValueError: If `requests` or one of them is a single str or bytes, or a request is empty or
            has something else in it.
    """
    if isinstance(requests, str | bytes):
        raise ValueError(
            "`warmup` must be a list of requests, each a list of texts or of encoded images. "
            f"Received: {requests!r:.60}"
        )
    requests = list(requests)
    for number, request in enumerate(requests):
        fits = isinstance(request, list | tuple) and len(request)
        if not fits or not all(isinstance(each, str | bytes) for each in request):
            raise ValueError(
                "`warmup` must have requests that are lists, not empty, of texts or of encoded "
                f"images. Received: number {number}, {type(request).__name__} {request!r:.60}"
            )
    if not requests:
        return []
    if len(input_names) != 1:
        raise ValueError(
            f"`warmup` must be empty for requests of {' and '.join(input_names)}. "
            f"Received: {len(requests)}"
        )
    log = _log()
    pairs = [(request, signature) for request in requests for signature in signatures]
    return [log(*input_names, *pair).SerializeToString() for pair in pairs]


def write_warm_up(path: pathlib.Path, records: Sequence[bytes]) -> None:
    """Writes the records of `warm_up_records` into the SavedModel in `path`, a `pathlib.Path`."""
    with tf.io.TFRecordWriter(str(path / WARM_UP_FILE)) as writer:
        for record in records:
            writer.write(record)


def _log() -> Callable[..., Any]:
    """What makes a `PredictionLog`."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        raise ImportError(
            "`warmup` needs tensorflow-serving-api: pip install 'keras_transformers[serving]'"
        ) from None

    def log(input_name: str, request: Sequence[str | bytes], signature: str) -> Any:
        message = predict_pb2.PredictRequest()
        message.model_spec.signature_name = signature
        message.inputs[input_name].CopyFrom(tf.make_tensor_proto(list(request), tf.string))
        answered = prediction_log_pb2.PredictLog(request=message)
        return prediction_log_pb2.PredictionLog(predict_log=answered)

    return log
