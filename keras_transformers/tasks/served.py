"""The base of exporters, which turn a model into the signatures of a SavedModel."""

import json
import pathlib
import shutil
import sys
import tempfile
import warnings
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

PARTS = (PROGRAM, "fingerprint.pb", "variables", "assets", "assets.extra")  # of a SavedModel
LENGTHS = (32, 64, 128, 256, 512)  # of texts, in ids, by default


class Saving(TypedDict, total=False):
    """Arguments of `Served.save` without the path."""

    version: int | None
    warmup: Sequence[Sequence[str | bytes]]


class Signature(NamedTuple):
    """One function of raw requests, for processes with XLA and for all others.

    Attributes:
        compiled: The `tf.function` whose programs XLA compiles.
        portable: The `tf.function` that runs wherever TensorFlow's own kernels run.
    """

    compiled: Any
    portable: Any


class Saved(tf.Module):
    """The object that a SavedModel holds: the variables of the model, and the resources.

    The model itself is no attribute: TensorFlow would trace it once more, with inputs of its own.
    Constants of a signature, such as the names of classes, stand in its graph.

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
    axis is the batch. XLA compiles the model in a call in Python. A SavedModel has two signatures
    with the same inputs, outputs and variables: `serving_default`, which runs wherever TensorFlow's
    own kernels run, and `xla`. The `further_signatures` run without XLA, too. `bounded` cuts very
    long texts.

    Args:
        name: Name of the exporter, for TensorFlow and for messages.
        model: The model. Its weights are shared, not copied.
        *requests: `tf.TensorSpec` of each input.

    Attributes:
        name, model, requests: As given.
        kind: Kind of the task, see `tasks.registry`.
        labels: Names of the classes, a list, or None.
        tokenizer: The tokenizer, or None.
        lengths: Lengths in ids to which texts are padded; longer texts are cut.
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
    _predictor: Any = None  # keeps what it has compiled for other settings

    def __init__(self, name: str, model: Any, *requests: tf.TensorSpec) -> None:
        self.name = name
        self.model = model
        self.requests = requests
        self.compiled_rounds = CompiledRounds()
        self.portable_rounds = PortableRounds()
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
                # A server does not check shapes, and TensorFlow relies on those of the signature.
                # So each tensor passes an operation whose shape is unknown until it runs. An error
                # names that operation.
                for tensor, declared in zip(tensors, requests, strict=True):
                    name = f"request/{declared.name}"
                    named = tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=None, name=name)
                    shaped.append(tf.ensure_shape(named, declared.shape))
                return answer(*shaped, rounds)

            return tf.function(serve, input_signature=tuple(requests), autograph=False)

        return Signature(traced(self.compiled_rounds), traced(self.portable_rounds))

    def make_seed(self, search: Any) -> None:
        """Makes `seed` and `first_row` if a search draws its samples by a seed.

        So another seed traces nothing anew. A caller who sends several requests sets the number of
        the first row of each, so that no two of them draw the same numbers.
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
            results: Names and `tf.TensorSpec`s of the outputs of `compute`.

        Returns:
            The results of all rows, and `truncated`, bool `(batch,)`.
        """
        ids, truncated = self.frame_texts(text)
        program = rounds.program(compute)
        outputs = rounds.run_by_length(
            lambda ids: program(rounds.padded(ids, self.lengths, self.padding)), ids, results
        )
        return {**outputs, "truncated": truncated}

    def frame_texts(self, text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Tokenizes texts, puts their marks around them, and returns which were cut, bool."""
        text, is_shortened = bounded(text, self.longest)
        ids, is_cut = framed(self.tokenizer, text, self.longest)
        return ids, is_cut | is_shortened

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
        if len(requests) != len(self.requests):
            names = ", ".join(f"`{declared.name}`" for declared in self.requests)
            raise TypeError(
                f"{type(self).__name__}: expected {names}. Received: {len(requests)} arguments"
            )
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
        """Length of the longest text, in ids, that is not cut."""
        return self.lengths[-1]

    def predict(self, raw: Any, **options: Any) -> Any:
        """Answers one item or many in plain Python, see `predictors.Predictor.predict`."""
        if self._predictor is None:
            self._predictor = predictor_of(self.kind)(self, self.labels)
        return self._predictor.predict(raw, **options)

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
        """Returns the objects that the signatures read, without the weights, by name: a hook."""
        named = {"tokenizer": self.tokenizer, "seed": self.seed, "first_row": self.first_row}
        return {name: resource for name, resource in named.items() if resource is not None}

    def call_deprecated(
        self, method: str, signature: str, inputs: Sequence[tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Answers by a further signature, and warns that a method of this object will go.

        Args:
            method: Name of the method.
            signature: Name of the signature.
            inputs: Its inputs.
        """
        warnings.warn(
            f"{type(self).__name__}.{method} goes in version 0.4; use "
            f'`further_signature("{signature}").compiled`.',
            FutureWarning,
            stacklevel=3,
        )
        answer: dict[str, tf.Tensor] = self.further_signature(signature).compiled(*inputs)
        return answer

    def as_module(self) -> Saved:
        """Returns the object that a SavedModel holds.

        A `tf.Module` of your own that calls this exporter needs it as an attribute.
        """
        return Saved(self.name, self.model, self.resources())

    def description(self) -> dict[str, Any]:
        """Returns the description in a SavedModel, a dict for JSON: a hook."""
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

        It replaces an earlier SavedModel in the folder as a whole: if the process is killed, the
        folder holds the earlier one, the new one or none, but no mixture. Other files stay.

        Args:
            path: Folder to write.
            version: Optional positive integer: writes `path/version`, the layout of a server's
                model folder.
            warmup: Requests that TensorFlow Serving sends itself before it answers others, each a
                list of texts or of encoded images (bytes). Give such as users send, of several
                lengths and sizes. An exporter with several inputs takes none. Needs
                tensorflow-serving-api, the extra `serving`.
            format: "saved_model"; a `Convertible` has others.

        Returns:
            The folder that holds `saved_model.pb`, a `pathlib.Path`.

        Raises:
            ValueError: If `version` is not a positive integer, a request of `warmup` is no list or
                empty, TensorFlow's ops lack something that the tokenizer does, the exporter has no
                such `format`, or the folder holds an export of another format. Then nothing is
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
        """Writes the SavedModel, its description and the records for warming up."""
        saved = self.as_module()
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
    """Removes a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def bounded(text: tf.Tensor, longest: int, end: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts texts to the bytes that `longest` tokens may need, and returns which were cut, bool.

    No more is tokenized: SentencePiece's time grows with the square of a run of unknown characters.

    Args:
        text: Strings `(batch,)`.
        longest: Most tokens of a text that are used.
        end: Whether the end of a text stays, not its beginning.
    """
    size = tf.strings.length(text)
    limit = max(1 << 16, 64 * longest)
    start = tf.maximum(size - limit, 0) if end else tf.zeros_like(size)
    return tf.strings.substr(text, start, tf.fill(tf.shape(size), limit)), size > limit


def joined_past_ends(tokenizer: Tokenizer, ids: tf.Tensor, padding: int) -> tf.Tensor:
    """Joins ids to strings. END vanishes like other marks, but the text behind it stays.

    `detokenize` drops everything from the first END on. But a prompt may contain END, as may a text
    whose masks are filled.

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
    """Converts a list of str, which may be empty, to a tensor.

    Raises:
        TypeError: If `texts` is one str, which would be a list of its characters.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(
            "Expected a list of texts; for one alone, use `predict` or [text]. "
            f"Received: {texts[:60]!r}"
        )
    return tf.constant(list(texts), tf.string, shape=[len(texts)])


def lengths_within(model: Any, usual: Sequence[int]) -> tuple[int, ...]:
    """Returns increasing lengths, as far as the model has positions."""
    longest = min(getattr(model, "most_positions", None) or usual[-1], usual[-1])
    return (*(length for length in usual if length < longest), longest)


def lengths_up_to(longest: int | None, usual: Sequence[int], factor: int = 2) -> tuple[int, ...]:
    """Returns increasing lengths: the usual ones, then times `factor`, and last `longest`.

    Args:
        longest: The longest length; None for the usual lengths.
        usual: Increasing lengths.
        factor: Factor from one further length to the next.
    """
    if longest is None:
        return tuple(usual)
    lengths = list(usual)
    while lengths[-1] < longest:
        lengths.append(factor * lengths[-1])
    return (*(length for length in lengths if length < longest), longest)


def lengths_for(
    owner: str,
    model: Any,
    tokenizer: Tokenizer,
    lengths: Sequence[int] | None,
    usual: Sequence[int],
    name: str = "lengths",
) -> tuple[int, ...]:
    """Returns the lengths that texts are padded to, as a tuple.

    Args:
        owner: Name of the exporter, for messages.
        model: The model. If it has `most_positions`, no length may exceed them.
        tokenizer: The tokenizer, all of whose ids the model must know.
        lengths: The user's lengths. None for `usual`, and further lengths up to the positions of
            the model, so that no text is cut that it can read.
        usual: Increasing lengths.
        name: Name of the argument.

    Raises:
        ValueError: If the lengths do not increase from 1 on, or the model is too small for them or
            for the tokenizer.
    """
    vocab, _ = vocabularies_of(model)
    if vocab is not None and tokenizer.vocab_size > vocab:
        raise ValueError(
            f"{owner}: `tokenizer` must have at most as many pieces as the model's vocabulary, "
            f"{vocab}. Received: {tokenizer.vocab_size}"
        )
    positions = getattr(model, "most_positions", None)
    if lengths is None:
        return lengths_up_to(positions, usual)
    lengths = tuple(lengths)
    if not lengths or any(a >= b for a, b in zip((0, *lengths), lengths, strict=False)):
        raise ValueError(f"{owner}: `{name}` must increase, from 1 on. Received: {lengths}")
    if positions is not None and lengths[-1] > positions:
        raise ValueError(
            f"{owner}: `{name}` must be at most {positions}, the number of the model's positions. "
            f"Received: {lengths}"
        )
    return lengths


class Conversion(Saving, total=False):
    """Arguments of `Convertible.save` without the path."""

    format: Format


class Convertible(Served):
    """A `Served` whose arithmetic is also a program of tensors, see `_program`."""

    def _program(self) -> tuple[Program, dict[str, Any], Tokenizer | None]:
        """Returns the program, its entries of `preprocessing.json`, and the tokenizer or None."""
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
            version, warmup: For a SavedModel, see `Served.save`.
            format: "saved_model", or "litert" or "onnx" for a file that takes and gives tensors,
                see `keras_transformers.tasks.conversion`.

        Returns:
            The folder with the written files, a `pathlib.Path`.
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
    """Makes the records of the file with which a server warms up.

    The first request to a signature loads, optimises and traces it. A server that has answered
    these requests has done so. Give requests as users send them, of several lengths and sizes.

    Args:
        input_names: Names of the signatures' inputs; with several, there must be no requests.
        requests: Lists of str or bytes, each one request.
        signatures: Names of the signatures that get every request. A server with XLA that answers
            by `xla` needs that here too; a server without XLA would not start with it.

    Returns:
        List of serialised `PredictionLog`s, empty if there are no requests.

    Raises:
        ImportError: If there are requests and tensorflow-serving-api is not installed.
        ValueError: If `requests` or a request is a single str or bytes, or a request is empty or
            holds other items.
    """
    if isinstance(requests, str | bytes):
        raise ValueError(
            "`warmup` must be a list of requests, each a list of texts or of encoded images. "
            f"Received: {requests!r:.60}"
        )
    requests = list(requests)
    for number, request in enumerate(requests):
        fits = isinstance(request, list | tuple) and len(request)
        if not fits or not all(isinstance(item, str | bytes) for item in request):
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
    make_log = _log_maker()
    pairs = [(request, signature) for request in requests for signature in signatures]
    return [make_log(*input_names, *pair).SerializeToString() for pair in pairs]


def write_warm_up(path: pathlib.Path, records: Sequence[bytes]) -> None:
    """Writes the records of `warm_up_records` into the SavedModel in `path`, a `pathlib.Path`."""
    with tf.io.TFRecordWriter(str(path / WARM_UP_FILE)) as writer:
        for record in records:
            writer.write(record)


def _log_maker() -> Callable[..., Any]:
    """Returns a function that makes a `PredictionLog`."""
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        raise ImportError(
            "`warmup` needs tensorflow-serving-api: pip install 'keras_transformers[serving]'"
        ) from None

    def make_log(input_name: str, request: Sequence[str | bytes], signature: str) -> Any:
        message = predict_pb2.PredictRequest()
        message.model_spec.signature_name = signature
        message.inputs[input_name].CopyFrom(tf.make_tensor_proto(list(request), tf.string))
        log = prediction_log_pb2.PredictLog(request=message)
        return prediction_log_pb2.PredictionLog(predict_log=log)

    return make_log
