"""Requests that TensorFlow Serving sends itself before it answers others."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

FILE = "assets.extra/tf_serving_warmup_requests"  # fixed by TensorFlow Serving


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
    with tf.io.TFRecordWriter(str(path / FILE)) as writer:
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
