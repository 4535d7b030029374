"""Requests that TensorFlow Serving sends itself before it answers others."""

import tensorflow as tf

NAME = "tf_serving_warmup_requests"  # fixed by TensorFlow Serving, as its folder is


def write_warm_up(path, input_name, requests, signatures=("serving_default",)):
    """Writes `assets.extra/tf_serving_warmup_requests` into a SavedModel.

    The first request to a signature loads, optimises and traces; a server that has answered these
    has that behind it. Give what users send: several lengths and sizes.

    Args:
        path: `pathlib.Path` of the SavedModel.
        input_name: Name of the signatures' input.
        requests: Lists of str or bytes, each one request.
        signatures: Those that are sent every request. A server with XLA that is asked for `xla`
            wants that here too; one without would not start.

    Raises:
        ImportError: If tensorflow-serving-api is not installed.
        ValueError: If a request is a single str or bytes, or empty.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2
    except ImportError:
        raise ImportError(
            "`warmup` needs tensorflow-serving-api: pip install 'keras_transformers[serving]'"
        ) from None
    with tf.io.TFRecordWriter(str(path / "assets.extra" / NAME)) as writer:
        for number, request in enumerate(requests):
            if isinstance(request, str | bytes) or not len(request):
                raise ValueError(
                    "`warmup` must be lists of texts or of encoded images. "
                    f"Received: number {number}, {type(request).__name__} {request!r:.60}"
                )
            for signature in signatures:
                message = predict_pb2.PredictRequest()
                message.model_spec.signature_name = signature
                message.inputs[input_name].CopyFrom(
                    tf.make_tensor_proto(list(request), tf.string)
                )
                log = prediction_log_pb2.PredictionLog(
                    predict_log=prediction_log_pb2.PredictLog(request=message)
                )
                writer.write(log.SerializeToString())
