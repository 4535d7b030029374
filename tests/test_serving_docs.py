"""Claims about docs/how_to/serve.md: servers would read its requests."""

import base64
import functools
import json
import pathlib
import re
import shlex

import keras
import pytest

pytest.importorskip("tensorflow_serving")
if keras.backend.backend() != "tensorflow":
    pytest.skip("the page is about SavedModels", allow_module_level=True)

import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import prediction_log_pb2
from tensorflow_serving.config import model_server_config_pb2

from tests.test_pages import blocks, in_own_process, run_page

pytestmark = pytest.mark.slow  # the page exports three models

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how_to" / "serve.md"


def keep_requests(page):
    """`run_page`, and the two requests of the page as files."""
    named = run_page(page)
    pathlib.Path("request").write_bytes(named["request"].SerializeToString())
    pathlib.Path("body.json").write_text(named["body"], encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the page has run, in a process of its own."""
    folder = tmp_path_factory.mktemp("page")
    in_own_process(keep_requests, PAGE, folder)
    return folder


@functools.cache
def loaded(folder, name):
    """A model as a server takes it up: of the highest version."""
    import tensorflow_text  # noqa: F401  registers the tokenizer's ops

    versions = [int(path.name) for path in (folder / "models" / name).iterdir()]
    return tf.saved_model.load(str(folder / "models" / name / str(max(versions))))


def answer_request(model, request):
    """Answers a `PredictRequest`: tensors by their names, those that were asked for."""
    run = model.signatures[request.model_spec.signature_name or "serving_default"]
    given = {name: tf.constant(tf.make_ndarray(x)) for name, x in request.inputs.items()}
    wanted = list(request.output_filter) or run.structured_outputs
    return {name: x for name, x in run(**given).items() if name in wanted}


def answer_body(model, body):
    """Answers the body of a REST request in rows, as the server's documentation says."""
    asked = json.loads(body)
    run = model.signatures[asked.get("signature_name", "serving_default")]
    (name,) = run.structured_input_signature[1]  # one input: rows are its values, without its name
    values = [
        base64.b64decode(row["b64"]) if isinstance(row, dict) else row.encode()
        for row in asked["instances"]
    ]
    found = {key: x.numpy().tolist() for key, x in run(**{name: tf.constant(values)}).items()}
    rows = [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]
    return json.loads(json.dumps({"predictions": rows}, default=bytes.decode))


@pytest.mark.slow
def test_the_request_by_grpc_is_answered(folder):
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest.FromString((folder / "request").read_bytes())
    found = answer_request(loaded(folder, "translator"), request)
    assert list(found) == ["translation"] and found["translation"].shape == (1,)


def test_images_go_through_json(folder):
    body = (folder / "body.json").read_text(encoding="utf-8")
    (row,) = answer_body(loaded(folder, "classifier"), body)["predictions"]
    assert row["label"].startswith("class ") and len(row["probabilities"]) == 10


def test_bodies_of_the_curl_commands_are_answered(folder):
    """Of both signatures, with one answer for each text."""
    words = [word for block in blocks(PAGE, "bash") for word in shlex.split(block, comments=True)]
    bodies = [word for word in words if word.startswith("{")]
    model = loaded(folder, "translator")
    found = [answer_body(model, body)["predictions"] for body in bodies]
    assert [len(each) for each in found] == [2, 1]
    assert found[0][0]["translation"] == found[1][0]["translation"]


def test_warm_up_requests_are_read_and_answered(folder):
    path = folder / "models" / "translator" / "1" / "assets.extra" / "tf_serving_warmup_requests"
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    model = loaded(folder, "translator")
    sizes = []
    for record in records:
        log = prediction_log_pb2.PredictionLog.FromString(record)
        found = answer_request(model, log.predict_log.request)
        sizes.append(found["translation"].shape[0])
    assert sizes == [1, 2]


def test_the_list_of_models_is_one_that_the_server_reads(folder):
    (models,) = [each for each in blocks(PAGE, "protobuf") if "model_config_list" in each]
    read = text_format.Parse(models, model_server_config_pb2.ModelServerConfig())
    for config in read.model_config_list.config:
        assert (folder / config.base_path.removeprefix("/")).is_dir()
        labelled = set(config.version_labels.values())
        assert labelled <= set(config.model_version_policy.specific.versions)


def test_batches_are_no_larger_than_a_round():
    from keras_transformers.tasks.rounds import LARGEST_BATCH

    (parameters,) = [each for each in blocks(PAGE, "protobuf") if "max_batch_size" in each]
    fields = dict(re.findall(r"^(\w+) \{ value: (\d+) \}$", parameters, re.MULTILINE))
    assert len(fields) == len(parameters.splitlines())  # all of them wrapped integers
    assert int(fields["max_batch_size"]) == LARGEST_BATCH
