"""Claims about `load`: what a folder is, and what is said of those that are nothing."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, models
from keras_transformers.tasks import loading
from keras_transformers.vision import Preprocessing
from tests.export import examples
from tests.loading.saved import save_shouter
from tests.slow import slow_except
from tests.test_imports import IN_RECIPES_EXTRA, run_without

ABOUT = {"kind": "translator", "labels": None, "version": "0.1.0"}


@pytest.fixture(scope="module")
def shouter(tmp_path_factory):
    return save_shouter(tmp_path_factory.mktemp("saved"), about=ABOUT)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """The folder of a run that classifies images, as far as `load` looks at it."""
    folder = tmp_path_factory.mktemp("run")
    model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    model.build((None, 28, 28, 1))
    preprocessing = Preprocessing(28, 1, 0.25, 0.5)
    export.image_classifier(model, folder / "saved_model", ["Katze", "Hund"], preprocessing)
    model.save(folder / "model.keras")
    settings = {"image_size": [28, 28], "channels": 1, "mean": [0.25], "std": [0.5]}
    (folder / "preprocessing.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text("{}")
    return folder


def test_a_saved_model_says_what_it_is(classifier):
    about = classifier / "saved_model" / "assets.extra" / "keras_transformers.json"
    assert json.loads(about.read_text()) == {
        "kind": "image_classifier",
        "labels": ["Katze", "Hund"],
        "version": keras_transformers.__version__,
    }


def test_the_folder_of_a_run_has_all_its_parts(classifier):
    loaded = keras_transformers.load(classifier)
    assert (loaded.kind, loaded.labels) == ("image_classifier", ["Katze", "Hund"])
    image = np.random.default_rng(0).integers(0, 256, (28, 28, 1), np.uint8)
    answer = loaded.predict(image)
    assert set(answer["probabilities"]) == {"Katze", "Hund"}
    pixels = loaded.preprocessing.normalize(tf.constant(image)[None])
    expected = tf.nn.softmax(loaded.model(pixels))[0]
    np.testing.assert_allclose([*answer["probabilities"].values()], expected, atol=1e-5)
    with pytest.raises(AttributeError, match="has no tokenizer"):
        _ = loaded.tokenizer


def test_a_saved_model_alone_answers_as_its_run(classifier):
    loaded = keras_transformers.load(classifier / "saved_model")
    image = np.full((28, 28), 77, np.uint8)
    assert loaded.predict(image) == keras_transformers.load(classifier).predict(image)
    with pytest.raises(AttributeError, match="saved_model has no model"):
        _ = loaded.model


def test_exported_objects_answer_as_what_they_export(classifier):
    model = keras_transformers.load(classifier).model
    served = export.ImageClassifier(model, ["Katze", "Hund"], Preprocessing(28, 1, 0.25, 0.5))
    image = np.full((28, 28), 77, np.uint8)
    expected = keras_transformers.load(classifier).predict(image)
    assert served.predict(image)["label"] == expected["label"]


def test_without_a_note_the_outputs_say_what_it_is(classifier, tmp_path):
    folder = shutil.copytree(classifier / "saved_model", tmp_path / "saved")
    shutil.rmtree(folder / "assets.extra")
    loaded = keras_transformers.load(folder)
    answer = loaded.predict(np.zeros((9, 9), "uint8"))
    assert loaded.labels is None and set(answer["probabilities"]) == {"0", "1"}
    assert answer["label"] in ("Katze", "Hund")
    assert keras_transformers.load(save_shouter(tmp_path / "text")).kind == "translator"


def test_one_sentence_gives_one_string(shouter):
    assert keras_transformers.load(str(shouter)).predict("Öffne die Tür") == "ÖFFNE DIE TÜR"


def test_of_versions_the_newest_number_is_taken(shouter, tmp_path):
    for version in ("2", "10", "latest"):
        shutil.copytree(shouter, tmp_path / version)
    (tmp_path / "11").mkdir()
    assert str(tmp_path / "10") in repr(keras_transformers.load(tmp_path))


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ([], "must be the folder of a run, .* published weights, .* SavedModel.* It has: nothing"),
        (["notes.txt"], "It has: notes.txt"),
        (["config.json", "figures"], "a run that has left no saved_model: it is not finished"),
        (["config.json", "pytorch_model.bin"], "pickle|model_type"),
    ],
)
def test_other_folders_are_refused_in_a_sentence(files, advice, tmp_path):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=advice):
        keras_transformers.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        keras_transformers.load(tmp_path / "nowhere")


def test_signatures_that_there_are_not_are_refused(shouter):
    with pytest.raises(ValueError, match="one of those of .*: serving_default. Received: 'xla'"):
        keras_transformers.load(shouter, signature="xla")


@pytest.mark.parametrize(
    "about", ["{", "[]", {"labels": []}, {"kind": "poet"}, {"kind": "detector"}]
)
def test_a_damaged_note_is_refused(about, tmp_path):
    with pytest.raises(ValueError, match="keras_transformers.json"):
        keras_transformers.load(save_shouter(tmp_path / "saved", about=about))


def test_a_program_is_read_once_by_whoever_comes_first(shouter, monkeypatch):
    folders, load = [], tf.saved_model.load

    def counted(folder):
        folders.append(folder)
        return load(folder)

    monkeypatch.setattr(tf.saved_model, "load", counted)
    predictor, read = loading.begin(shouter)
    assert predictor.kind == "translator" and predictor.parts == () and folders == []
    assert predictor.predict("open") == "OPEN"
    read()
    assert predictor.predict("shut") == "SHUT" and len(folders) == 1


@pytest.mark.parametrize("make", slow_except(examples.MAKE, "translator, greedy"))
def test_a_signature_that_is_read_alone_answers_as_the_whole_saved_model(make, tmp_path):
    served = make()
    folder = served.save(tmp_path / "served")
    whole = tf.saved_model.load(str(folder))
    read, request = set(), examples.as_tensor(examples.requests(served)[0][:5])
    for signature, run in whole.signatures.items():
        specs = run.structured_input_signature[1]
        if any(spec.dtype != tf.string or spec.shape.rank != 1 for spec in specs.values()):
            continue
        program = loading._Program(folder, [*whole.signatures], signature, tuple(specs))
        expected, found = run(**dict.fromkeys(specs, request)), program(*[request] * len(specs))
        assert expected.keys() == found.keys()
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key])
        assert [*program._loaded.signatures] == [signature]
        read.add(signature)
    assert {"serving_default", "xla"} <= read


def test_another_signature_is_read_with_all_others_when_it_is_used(tmp_path):
    folder = examples.MAKE["translator, greedy"]().save(tmp_path / "served")
    predictor, read = loading.begin(folder)
    read()
    program = vars(predictor)["loaded"]
    assert [*program._loaded.signatures] == ["serving_default"]
    first, text = program["serving_default"], tf.constant(["the cat"])
    answer = first(text=text)
    assert len(predictor.score(["the cat"], ["the dog"])) == 1
    assert set(program._loaded.signatures) == set(program) > {"serving_default", "score"}
    for run in (first, program["serving_default"]):  # the first keeps its variables
        for key, value in run(text=text).items():
            np.testing.assert_array_equal(value, answer[key])
    with pytest.raises(KeyError):
        program["no such signature"]


def test_a_damaged_or_foreign_saved_model_is_refused(shouter, tmp_path):
    damaged = shutil.copytree(shouter, tmp_path / "damaged")
    (damaged / "saved_model.pb").write_bytes(b"no program")
    with pytest.raises(ValueError, match="saved_model.pb is damaged"):
        keras_transformers.load(damaged)
    other = tf.Module()
    other.f = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None], name="x")])
    tf.saved_model.save(other, str(tmp_path / "other"), signatures=other.f)
    with pytest.raises(ValueError, match="of keras_transformers.export. It makes y of x"):
        keras_transformers.load(tmp_path / "other")


def test_images_need_no_tensorflow_text_and_texts_say_that_they_do(classifier, shouter):
    code = f"""
import keras_transformers, numpy as np
loaded = keras_transformers.load({str(classifier)!r})
print(loaded.predict(np.zeros((9, 9), "uint8"))["label"] in loaded.labels)
try:
    keras_transformers.load({str(shouter)!r})
except ImportError as error:
    print("install tensorflow-text" in str(error))
"""
    assert run_without(IN_RECIPES_EXTRA, code).split() == ["True", "True"]
