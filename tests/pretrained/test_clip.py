"""Claims about CLIP's folders: the tokenizer is the published one, and images find their texts."""

import json

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, pretrained
from keras_transformers.predictors import Refused
from keras_transformers.pretrained.folder import FAMILIES
from tests.pretrained import folders
from tests.pretrained.test_bad_folders import edit
from tests.serving.answers import ask, differences
from tests.serving.loader import as_lists
from tests.text import scripts

TEXTS = [*scripts.TEXTS, *scripts.fuzzed(50), "a photo of a Cat's dog", "a <|endoftext|> b"]
PICTURES = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3), np.uint8)
FILES = [tf.io.encode_png(picture).numpy() for picture in PICTURES]
LABELS = ["cat", "a dog in a photo", "Café, at night"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    model = folders.clip(folder)
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(scale=0.5, size=w.shape) for w in model.get_weights()])
    return pretrained.save(model, folder)


@pytest.fixture(scope="module")
def loaded(folder):
    return keras_transformers.load(folder)


@pytest.fixture
def quickly():
    with folders.eagerly():
        yield


def test_ids_are_those_of_the_published_tokenizer(folder, tmp_path):
    hf = pytest.importorskip("transformers")
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    assert type(theirs).__name__ == "CLIPTokenizer"
    expected = theirs(TEXTS)["input_ids"]
    tokenizer = pretrained.load_tokenizer(folder)
    assert tokenizer.tokenize(TEXTS, start=True, end=True).to_list() == expected
    in_graph = tf.function(lambda text: tokenizer.tokenize(text, start=True, end=True))
    assert in_graph(tf.constant(TEXTS)).to_list() == expected
    pretrained.save_tokenizer(tokenizer, tmp_path / "ours")
    assert hf.AutoTokenizer.from_pretrained(tmp_path / "ours")(TEXTS)["input_ids"] == expected
    theirs.save_pretrained(tmp_path / "theirs")
    again = pretrained.load_tokenizer(tmp_path / "theirs")
    assert again.tokenize(TEXTS, start=True, end=True).to_list() == expected


def expected_probabilities(loaded, texts):
    model, preprocessing = loaded.model, loaded.preprocessing
    ids = loaded.tokenizer.tokenize(texts, start=True, end=True).to_tensor(-1)
    pixels = tf.stack([preprocessing.resize(tf.constant(each)) for each in PICTURES])
    logits = model({"images": preprocessing.normalize(pixels), "ids": ids})
    return np.asarray(model.probabilities(logits))


def test_images_are_classified_by_texts(loaded, quickly):
    answers = loaded.predict(list(PICTURES), labels=LABELS)
    found = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(found, expected_probabilities(loaded, LABELS), atol=1e-5)
    assert [answer["label"] for answer in answers] == [LABELS[i] for i in np.argmax(found, 1)]
    one = loaded.predict(PICTURES[0], labels=["cat", "dog"], template="a photo of a {}.")
    assert list(one["probabilities"]) == ["cat", "dog"]
    texts = ["a photo of a cat.", "a photo of a dog."]
    probabilities = expected_probabilities(loaded, texts)[0]
    np.testing.assert_allclose(list(one["probabilities"].values()), probabilities, atol=1e-5)
    good, bad = loaded.each([PICTURES[0], b"no image"], labels=["cat", "dog"])
    assert good["label"] in ("cat", "dog") and isinstance(bad, Refused)


def test_labels_are_a_list_of_texts(loaded):
    for labels in ((), "cat", [3]):
        with pytest.raises(ValueError, match="`labels` must be a list of the names of the classes"):
            loaded.predict(PICTURES[0], labels=labels)
    with pytest.raises(ValueError, match="`template` must have a {}. Received: 'a photo'"):
        loaded.against(["cat"], "a photo")


def test_raw_images_and_texts_become_vectors(loaded, quickly):
    served = export.ZeroShotClassifier(loaded.model, loaded.tokenizer, loaded.preprocessing)
    images, texts = served.encode_images(FILES), served.encode_texts([*LABELS, "cat " * 99])
    assert images.shape == (2, 8) and texts.shape == (4, 8)
    found = np.asarray(loaded.model.probabilities(loaded.model.logits(images, texts[:3])))
    np.testing.assert_allclose(found, expected_probabilities(loaded, LABELS), atol=1e-5)
    answer = served(tf.constant(FILES), [*LABELS, "cat " * 99])
    assert answer["truncated"].numpy().tolist() == [False, False, False, True]


def _latin(each):
    return (each.encode() if isinstance(each, str) else each).decode("latin-1")


@pytest.mark.slow
def test_a_saved_model_takes_images_and_texts_without_xla(loaded, tmp_path):
    served = export.ZeroShotClassifier(loaded.model, loaded.tokenizer, loaded.preprocessing)
    requests = [{"image": FILES[:2], "text": LABELS}, {"image": [], "text": LABELS[:1]}]
    with pytest.raises(ValueError, match="`warmup` must be empty for requests of image and text"):
        served.save(tmp_path / "model", warmup=[["cat"]])
    served.save(tmp_path / "model")
    texts = [{k: [_latin(each) for each in v] for k, v in each.items()} for each in requests]
    (tmp_path / "requests.json").write_text(json.dumps(texts))
    (answers,) = ask([tmp_path], without_xla=True)
    assert answers.get("without_xla")
    compiled = [
        served(tf.constant(each["image"], tf.string, shape=[len(each["image"])]), each["text"])
        for each in requests
    ]
    assert not differences({"answers": [as_lists(each) for each in compiled]}, answers)
    again = keras_transformers.load(tmp_path / "model")
    assert again.kind == "zero_shot_classifier"
    expected = loaded.predict(PICTURES[0], labels=LABELS)
    found = again.predict(PICTURES[0], labels=LABELS)
    assert found["label"] == expected["label"]
    np.testing.assert_allclose(found["probability"], expected["probability"], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": 3}, "`text_config` must be a dict. Received: 3"),
        ({"vision_config": {"image_size": [16, 24]}}, "`image_size` must be a positive integer"),
        ({"vision_config": {"hidden_act": "abs"}}, "`vision_config`: `hidden_act` must be one of"),
        ({"text_config": {"eos_token_id": [3]}}, "`eos_token_id` must be an integer, 0 or more"),
        ({"projection_dim": 9}, "projection_dim=9, vision_config.hidden_size=16, the tensor vis"),
        ({"architectures": ["CLIPForImageClassification"]}, "must have one of CLIPModel"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder, tmp_path, changes, message):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    edit(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(tmp_path)


def test_the_settings_of_the_first_files_stand_in_place_of_the_others():
    read = FAMILIES["clip"].configuration.read
    said = {"text_config": {"hidden_size": 64}, "vision_config": {"hidden_size": 64}}
    found = read({**said, "text_config_dict": {"num_hidden_layers": 3}}, "config.json")
    assert [found["text_encoder"][name] for name in ("hidden_dim", "num_layers")] == [512, 3]
    assert found["image_encoder"]["hidden_dim"] == 64
    assert read({**said, "text_config_dict": {}}, "")["text_encoder"]["hidden_dim"] == 512


def test_a_model_that_clip_cannot_say_is_not_written(tmp_path):
    from tests.models.test_dual_encoder import by_sigmoid, by_softmax

    with pytest.raises(ValueError, match="a part with `end_id`. Received: LastPooling in"):
        pretrained.save(by_sigmoid(), tmp_path)
    with pytest.raises(ValueError, match="image_encoder.embedding.antialias=False. Received: T"):
        pretrained.save(by_softmax(), tmp_path)
