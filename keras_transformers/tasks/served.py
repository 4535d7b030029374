"""The base of exporters: raw requests in, signatures of a SavedModel out."""

import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

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
from keras_transformers.text import framed

# What a SavedModel consists of.
PARTS = (PROGRAM, "fingerprint.pb", "variables", "assets", "assets.extra")
LENGTHS = (32, 64, 128, 256, 512)  # of texts, in ids, where nothing else is said


class Saving(TypedDict, total=False):
    """Arguments of `Served.save`, besides the path."""

    version: int | None
    warmup: Sequence[Sequence[str | bytes]]


class Signature(NamedTuple):
    """One function of raw requests, for processes with XLA and for all others.

    Attributes:
        compiled: The `tf.function` that XLA compiles.
        portable: The `tf.function` that runs wherever TensorFlow's own kernels run.
    """

    compiled: Any
    portable: Any


class Saved(tf.Module):
    """The object that a SavedModel holds: what its signatures read, and nothing else.

    The model itself is no attribute: TensorFlow would trace it once more, with inputs of its own.

    Args:
        name: Name of the object, for TensorFlow.
        model: The model, whose variables are saved.
        resources: Dict of names to tokenizers, variables and other objects of TensorFlow.
    """

    def __init__(self, name: str, model: Any, resources: Mapping[str, Any]) -> None:
        super().__init__(name=name)
        self.weights = [variable.value for variable in model.variables]
        self.resources = dict(resources)


class Served:
    """A function of raw requests by a model, which `save` writes as a SavedModel.

    A subclass has `answer(*request, rounds)`: it reads a request (one tensor for each of
    `requests`), encodes it, runs the model in `rounds`, and returns a dict of tensors whose first
    axis is the batch. A call in Python is compiled by XLA. A SavedModel has two signatures with the
    same inputs, outputs and variables: `serving_default`, which runs wherever TensorFlow's own
    kernels run, and `xla`. No more of a text is read than `bounded` says.

    Args:
        name: Name of the exporter, for TensorFlow and for messages.
        model: The model. Its weights are shared, not copied.
        *requests: `tf.TensorSpec` of each input.

    Attributes:
        name, model, requests: As given.
        kind: Kind of the task, see `tasks.registry`.
        labels: Names of the classes, a list, or None.
        tokenizer: The tokenizer, or None.
        lengths: Lengths in ids to which texts are padded; what exceeds the last is cut.
        padding: Id that fills shorter rows.
        seed, first_row: If a seed draws the samples: the seed, and the number of a request's first
            row, as variables; else None.
    """

    kind: str | None = None
    labels: list[str] | None = None
    tokenizer: Any = None
    lengths: tuple[int, ...] = ()
    padding: int = 0
    seed: tf.Variable | None = None
    first_row: tf.Variable | None = None

    def __init__(self, name: str, model: Any, *requests: tf.TensorSpec) -> None:
        self.name, self.model, self.requests = name, model, requests
        self.compiled_rounds, self.portable_rounds = CompiledRounds(), PortableRounds()
        self.signature = self.make_signature(self.answer, requests)

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        """Answers a request: the hook of a subclass.

        Args:
            *arguments: The tensors of a request, and last the `Rounds` that compute.
        """
        raise NotImplementedError

    def make_signature(
        self, answer: Callable[..., dict[str, tf.Tensor]], requests: Sequence[tf.TensorSpec]
    ) -> Signature:
        """Returns the signature of a function.

        Args:
            answer: Function of the tensors of a request, and of the `Rounds` that compute.
            requests: `tf.TensorSpec` of each input.
        """

        def traced(rounds: Rounds) -> Any:
            def serve(*tensors: tf.Tensor) -> dict[str, tf.Tensor]:
                shaped = []
                # A server does not look at shapes, and TensorFlow takes for granted what a
                # signature says of them. So each tensor passes an operation whose shape is unknown
                # until it runs. An error names that operation.
                for tensor, declared in zip(tensors, requests, strict=True):
                    name = f"request/{declared.name}"
                    named = tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=None, name=name)
                    shaped.append(tf.ensure_shape(named, declared.shape))
                return answer(*shaped, rounds)

            return tf.function(serve, input_signature=tuple(requests), autograph=False)

        return Signature(traced(self.compiled_rounds), traced(self.portable_rounds))

    def make_seed(self, search: Any) -> None:
        """Makes `seed` and `first_row` if a search draws its samples by a seed.

        Another seed then traces nothing anew. A caller who sends several requests says where each
        begins, so that no two of them draw the same numbers.
        """
        if is_seeded(search):
            self.first_row = tf.Variable(0, trainable=False, name="first_row")
            self.seed = tf.Variable(search.seed, trainable=False, dtype=tf.int64, name="seed")

    def row_numbers(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the numbers of the rows of a request, int32 `(batch,)`."""
        numbers = tf.range(tf.cast(ids.nrows(), tf.int32))
        return numbers if self.first_row is None else numbers + self.first_row

    def run_texts(
        self,
        text: tf.Tensor,
        rounds: Rounds,
        compute: Callable[[tf.Tensor], dict[str, tf.Tensor]],
        results: dict[str, tf.TensorSpec],
    ) -> dict[str, tf.Tensor]:
        """Tokenizes texts and computes from their ids, rows of similar length together.

        Args:
            text: Strings `(batch,)`.
            rounds: The `Rounds` that compute.
            compute: Function of padded ids, int32 `(rows, length)`, which becomes a program.
            results: Names and shapes of what `compute` returns.

        Returns:
            The results of all rows, and `truncated`, bool `(batch,)`.
        """
        text, is_shortened = bounded(text, self.longest)
        ids, is_cut = framed(self.tokenizer, text, self.longest)
        program = rounds.program(compute)
        outputs = rounds.run_by_length(
            lambda ids: program(rounds.padded(ids, self.lengths, self.padding)), ids, results
        )
        return {**outputs, "truncated": is_cut | is_shortened}

    def __call__(self, *requests: Values | tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch: a dict of tensors, compiled by XLA; see the class."""
        self._check_requests(requests)
        return self.signature.compiled(*requests)

    def portable(self, *requests: Values | tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers a batch without XLA, as `serving_default` does."""
        self._check_requests(requests)
        return self.signature.portable(*requests)

    def _check_requests(self, requests: tuple[Any, ...]) -> None:
        """Raises a ValueError if a request has another shape than is declared."""
        check_process(type(self).__name__)
        for request, declared in zip(requests, self.requests, strict=True):
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

    @property
    def longest(self) -> int:
        """The longest text, in ids, that is not cut."""
        return self.lengths[-1]

    def predict(self, raw: Any, **options: Any) -> Any:
        """Answers in plain Python for one thing or many, see `predictors.Predictor.predict`."""
        return predictor_of(self.kind)(self, self.labels).predict(raw, **options)

    def further_signatures(self) -> dict[str, Signature]:
        """Returns further signatures of the SavedModel by their names: a hook."""
        return {}

    def further_signature(self, name: str) -> Signature:
        """Returns a further signature.

        Raises:
            AttributeError: If there is none of that name.
        """
        signatures = self.further_signatures()
        if name not in signatures:
            raise AttributeError(f"{type(self).__name__} has no signature {name!r}.")
        return signatures[name]

    def resources(self) -> dict[str, Any]:
        """Returns what the signatures read besides the weights, by names: a hook."""
        named = {"tokenizer": self.tokenizer, "seed": self.seed, "first_row": self.first_row}
        return {name: resource for name, resource in named.items() if resource is not None}

    def description(self) -> dict[str, Any]:
        """Returns what a SavedModel says of itself, a dict for JSON: a hook."""
        package = sys.modules[__name__.partition(".")[0]]
        return {"kind": self.kind, "labels": self.labels, "version": package.__version__}

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
        if hasattr(self.tokenizer, "check_exportable"):
            self.tokenizer.check_exportable()
        records = warm_up_records([request.name for request in self.requests], warmup)
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
        saved = Saved(self.name, self.model, self.resources())
        signatures = {"serving_default": self.signature.portable, "xla": self.signature.compiled}
        for name, signature in self.further_signatures().items():
            signatures[name] = signature.portable
        tf.saved_model.save(saved, str(path), signatures=signatures)
        (path / "assets.extra").mkdir(exist_ok=True)
        (path / "assets.extra" / "keras_transformers.json").write_text(
            json.dumps(self.description(), indent=2) + "\n", encoding="utf-8"
        )
        if records:
            write_warm_up(path, records)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
