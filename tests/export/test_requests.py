"""Claims about requests as a server makes them: strange ones, and what it is told beforehand."""

import json
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

import keras_transformers
from keras_transformers import export
from tests.animations import animated_webp
from tests.export import examples
from tests.serving.answers import differences
from tests.serving.loader import as_lists

QUICK = ("text classifier", "mask filler", "sentence encoder", "image classifier, vit")


def _marked(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


OF_PIXELS = ("image classifier, vit", "image encoder", "detector")
EVERY, IMAGES = _marked(examples.MAKE), _marked(OF_PIXELS)
TEXTS = _marked(name for name in examples.MAKE if name not in OF_PIXELS)
SAMPLED = ("translator, sampling", "text generator, gpt2")  # by the number of the row
OF_IMAGES = ("image classifier, vit", "detector")
PNG, JPEG = examples.images()[0], examples.images()[-1]
PIXELS = np.random.default_rng(3).integers(0, 256, (40, 30, 3))
MEGABYTE = 1 << 20


class Saved:
    """An export, saved and loaded."""

    def __init__(self, name, folder):
        keras.utils.set_random_seed(3)
        served = examples.MAKE[name]()
        self.sampled = name in SAMPLED
        self.path, self.good = served.save(folder), examples.requests(served)[0][:3]
        self.loaded = tf.saved_model.load(str(self.path))
        self.serve = self.loaded.signatures["serving_default"]
        (self.input,) = self.serve.structured_input_signature[1]

    def ask(self, request):
        tensor = request if tf.is_tensor(request) else examples.as_tensor(request)
        return as_lists(self.serve(**{self.input: tensor}))

    def session(self):
        """A function of a NumPy array that is fed as TensorFlow Serving does: shapes unseen."""
        with tf.Graph().as_default():
            session = tf.compat.v1.Session()
            graph = tf.compat.v1.saved_model.load(session, ["serve"], str(self.path))
        signature = graph.signature_def["serving_default"]
        outputs = sorted(signature.outputs)
        options = config_pb2.CallableOptions(
            feed=[signature.inputs[self.input].name],
            fetch=[signature.outputs[name].name for name in outputs],
        )
        run = session._make_callable_from_options(options)  # `run` compares shapes before
        return lambda array: dict(zip(outputs, run(array), strict=True))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = Saved(name, tmp_path_factory.mktemp("saved"))
        return made[name]

    return get


def first_rows(result, count):
    """The first rows, of words without the padding that longer rows made."""
    found = {name: value[:count] for name, value in result.items()}
    words = max(found.get("number", [0])) if "words" in found else None
    return {
        name: [row[:words] if isinstance(row, list) else row for row in value]
        for name, value in found.items()
    }


def check_good_ones(served, request, result):
    """The good ones, first in a request, get what they get without the others."""
    alone, count = served.ask(served.good), len(served.good)
    assert all(len(value) == len(request) for value in result.values())
    if served.sampled:  # rows are numbered by their length
        return
    among = first_rows(result, count)
    assert not differences({"answers": [alone]}, {"answers": [among]})


@pytest.mark.parametrize("name", EVERY)
def test_no_row_and_one_row_are_answered(saved, name):
    served = saved(name)
    together = served.ask(served.good)
    assert all(value == [] for value in served.ask([]).values())
    alone = served.ask(served.good[:1])
    first = first_rows(together, 1)
    assert not differences({"answers": [first]}, {"answers": [alone]})


@pytest.mark.parametrize("name", EVERY)
def test_another_rank_is_refused_by_the_name_of_the_input(saved, name):
    served = saved(name)
    run = served.session()
    good = np.array(served.good, object)
    assert len(next(iter(run(good).values()))) == 3
    for wrong in (good[0], good[:, None]):
        complaint = f"request/{served.input} \\[.*is not compatible with expected shape"
        with pytest.raises(tf.errors.InvalidArgumentError, match=complaint):
            run(np.array(wrong, object))
        with pytest.raises((tf.errors.InvalidArgumentError, TypeError), match=served.input):
            served.ask(tf.constant(wrong, tf.string))


@pytest.mark.parametrize("name", TEXTS)
def test_bytes_that_are_no_text_harm_nobody(saved, name):
    served = saved(name)
    strange = [b"\xff\xfe", b"cat \x80 sat", b"\xed\xa0\x80", b"\x00", b"the\x00cat", b"\xf4\x90"]
    request = [*served.good, *strange]
    result = served.ask(request)
    check_good_ones(served, request, result)
    for name in ("translation", "continuation", "label"):
        for text in result.get(name, []):
            text.encode("latin-1").decode()  # is UTF-8


@pytest.mark.parametrize("name", TEXTS)
def test_a_megabyte_of_text_is_cut_off_in_good_time(saved, name):
    served = saved(name)
    words = "the cat sat on a mat " * (MEGABYTE // 21)
    request = [*served.good, words, "a" * MEGABYTE, "\u65e5" * (MEGABYTE // 3)]
    started = time.monotonic()
    result = served.ask(request)
    assert time.monotonic() - started < 60
    check_good_ones(served, request, result)
    assert result["truncated"][3:] == [True] * 3


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        (b"", "no JPEG, PNG, GIF, BMP or WebP"),
        (b"hello", "no JPEG, PNG, GIF, BMP or WebP"),
        (b"\x89PNG", "a broken file, or one cut off:. .PNG"),
        (PNG[:100], "a broken file, or one cut off:. .PNG"),
        (JPEG[:200], "a broken file, or one cut off:. .JPEG"),
        (JPEG[: len(JPEG) // 2], "a broken file, or one cut off:. .JPEG"),
        (b"GIF89a", "a broken file, or one cut off:. .GIF"),
        (b"BM123", "a broken file, or one cut off:. .BMP"),
        (animated_webp(), "an animation; animated WebP files are not read"),
    ],
    ids=["empty", "text", "PNG header", "PNG", "JPEG", "half a JPEG", "GIF", "BMP", "animation"],
)
def test_a_broken_image_is_named_by_its_number(saved, name, file, complaint):
    served = saved(name)
    request = [*served.good, file, *served.good]
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"image number\] \[3\].*{complaint}"):
        served.ask(request)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"image number\] \[3\]"):
        served.session()(np.array(request, object))
    served.ask(served.good)  # and the next request is answered


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_unusual_size_and_depth_are_taken(saved, name):
    served = saved(name)
    deep = tf.io.encode_png((PIXELS * 257).astype("uint16")).numpy()
    point = tf.io.encode_png(np.zeros((1, 1, 3), "uint8")).numpy()
    request = [*served.good, deep, point]
    result = served.ask(request)
    check_good_ones(served, request, result)
    shallow = served.ask([tf.io.encode_png(PIXELS.astype("uint8")).numpy()])
    ours = {name: value[3:4] for name, value in result.items()}
    assert not differences({"answers": [shallow]}, {"answers": [ours]}, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_image_of_64_million_points_is_taken(saved, name):
    served = saved(name)
    large = tf.io.encode_jpeg(np.zeros((8000, 8000, 3), "uint8")).numpy()
    request = [*served.good, large]
    check_good_ones(served, request, served.ask(request))


def test_warm_up_requests_are_what_a_server_reads_and_are_answered(tmp_path):
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    keras.utils.set_random_seed(3)
    served = examples.MAKE["sentence encoder"]()
    path = served.save(tmp_path, version=3, warmup=[["the cat"], ["a mat", b"the sea", ""]])
    assert path == tmp_path / "3"
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    serve = tf.saved_model.load(str(path)).signatures
    rows = []
    for record in tf.data.TFRecordDataset(str(file)):
        log = logs.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        assert list(request.inputs) == ["text"]
        text = tf.constant(tf.make_ndarray(request.inputs["text"]))
        rows.append(serve[request.model_spec.signature_name](text=text)["embedding"].shape[0])
    assert rows == [1, 3]
    predictor = keras_transformers.load(tmp_path)
    assert len(predictor.predict("the cat")) == served._width


@pytest.mark.parametrize(
    ("warmup", "received"),
    [
        ("the cat", "'the cat'"),
        ([["a mat"], "the cat"], "number 1, str 'the cat'"),
        ([[]], r"number 0, list \[\]"),
        ([["a mat"], [3]], r"number 1, list \[3\]"),
    ],
)
def test_warm_up_requests_that_are_none_leave_nothing_written(warmup, received, tmp_path):
    served = examples.MAKE["sentence encoder"]()
    with pytest.raises(ValueError, match=f"`warmup` must .*Received: {received}"):
        served.save(tmp_path / "new", warmup=warmup)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("version", [0, -1, "1", True, 1.5])
def test_a_version_is_a_positive_integer(version, tmp_path):
    served = examples.MAKE["sentence encoder"]()
    with pytest.raises(ValueError, match=f"`version` must be a positive integer.*{version!r}"):
        served.save(tmp_path / "new", version=version)
    assert not (tmp_path / "new").exists()


WHOLE = {  # function -> what it takes besides the path
    "translator": lambda s: (s.model, s.tokenizer),
    "text_generator": lambda s: (s.model, s.tokenizer),
    "text_classifier": lambda s: (s.model, s.tokenizer, s.labels),
    "text_tagger": lambda s: (s.model, s.tokenizer, s.labels),
    "mask_filler": lambda s: (s.model, s.tokenizer),
    "sentence_encoder": lambda s: (s.model, s.tokenizer),
    "image_classifier": lambda s: (s.model, s.labels),
    "image_encoder": lambda s: (s.model, s.preprocessing),
    "detector": lambda s: (s.model, s.labels, s.preprocessing),
}


@pytest.mark.parametrize("name", examples.ONE_OF_EACH)
def test_every_function_of_export_passes_version_and_warm_up_on(name, tmp_path, monkeypatch):
    served = examples.MAKE[name]()
    taken = []
    monkeypatch.setattr(type(served), "save", lambda self, path, **saving: taken.append(saving))
    model, *rest = WHOLE[served.kind](served)
    of_images = served.kind in ("image_classifier", "image_encoder", "detector")
    arguments = [model, tmp_path, *rest] if of_images else [model, rest[0], tmp_path, *rest[1:]]
    getattr(export, served.kind)(*arguments, version=2, warmup=[["a"]])
    assert taken == [{"version": 2, "warmup": [["a"]]}]


def test_a_file_of_tensors_takes_no_warm_up(tmp_path):
    served = examples.MAKE["image classifier, vit"]()
    with pytest.raises(ValueError, match='`version` and `warmup` are a server.*"?onnx'):
        export.image_classifier(served.model, tmp_path, served.labels, format="onnx", version=1)


def test_what_is_a_saved_model_only_refuses_other_formats(tmp_path):
    served = examples.MAKE["text tagger"]()
    rest = (served.model, served.tokenizer, tmp_path / "x", served.labels)
    with pytest.raises(ValueError, match='^TextTagger: `format` must be "saved_model", .*onnx'):
        export.text_tagger(*rest, format="onnx")
    assert not (tmp_path / "x").exists()


def test_what_is_written_says_what_it_is(saved):
    path = saved("image classifier, vit").path / "assets.extra" / "keras_transformers.json"
    about = json.loads(path.read_text())
    assert about["kind"] == "image_classifier" and about["labels"] == ["cat", "dog", "bird"]


def test_a_deprecated_method_answers_as_its_signature_and_warns():
    served = examples.MAKE["translator, greedy"]()
    texts = tf.constant(["a cat"])
    with pytest.warns(FutureWarning, match="Translator.with_tokens goes in version 0.4; use"):
        answer = served.with_tokens(texts)
    expected = served.further_signature("tokens").compiled(texts)
    assert answer["tokens"].numpy().tolist() == expected["tokens"].numpy().tolist()


def test_a_wrong_number_of_inputs_is_refused_with_their_names():
    served = examples.MAKE["translator, greedy"]()
    with pytest.raises(TypeError, match="Translator: expected `text`. Received: 0 arguments"):
        served.portable()


def test_an_exporter_compiles_other_settings_once():
    served = examples.MAKE["translator, beams"]()
    served.predict("a cat", n_best=2)
    changed = served._predictor._made["changed"]
    served.predict("a cat", n_best=2)
    assert len(changed) == 1 and served._predictor._made["changed"] is changed


def test_a_module_of_a_user_saves_an_exporter_in_it(tmp_path):
    served = examples.MAKE["text classifier"]()
    module = tf.Module()
    module.classifier = served.as_module()
    signature = [tf.TensorSpec([None], tf.string, name="text")]
    shout = tf.function(
        lambda text: served.signature.portable(tf.strings.lower(text)), input_signature=signature
    )
    tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": shout})
    loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    expected = served.portable(tf.constant(["a cat"]))
    answer = loaded(text=tf.constant(["A CAT"]))
    np.testing.assert_allclose(answer["probabilities"], expected["probabilities"], atol=1e-6)
