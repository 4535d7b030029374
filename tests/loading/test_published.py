"""Claims about `load` of published weights: the model's head says what answers."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import models, pretrained, vision
from tests.pretrained import folders
from tests.slow import slow_except

TEXT = (None, None)
PICTURE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


def bert(head=None, **options):
    return functools.partial(folders.bert, head=head, **options), TEXT


def dinov2(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.ViT.from_variant("S/4", None, **folders.PICTURES, layer_scale=1.0, registers=2)


def vit_without_classes(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    return models.ViT(None, **folders.PICTURES)


def masked_autoencoder(folder):
    pretrained.save_preprocessing(vision.Preprocessing(16, crop=False), folder)
    encoder = models.ViT(None, **folders.PICTURES)
    return models.MAE(encoder, decoder_dim=8, decoder_heads=2, decoder_layers=1)


ANSWERING = {
    "mask_filler": bert("masked_language"),
    "text_classifier": bert("classification", num_classes=2),
    "text_tagger": bert("tagging", num_classes=3),
    "sentence_encoder": bert(),
    "image_classifier": folders.MADE["vit"],
    "translator": folders.MADE["translation"],
    "text_generator": folders.MADE["language_model"],
    "detector": folders.MADE["detr"],
}
OFTEN = ("mask_filler", "text_classifier", "sentence_encoder", "image_classifier")
TRIED = [pytest.param(kind, marks=() if kind in OFTEN else pytest.mark.slow) for kind in ANSWERING]


WITHOUT_CLASSES = {"vit": vit_without_classes, "dinov2": dinov2, "mae": masked_autoencoder}


def publish(folder, make, shape, classes=None):
    model = make(folder)
    model.build(shape)
    return pretrained.save(model, folder, classes)


@pytest.mark.parametrize("kind", TRIED)
def test_a_published_folder_answers(kind, tmp_path):
    loaded = keras_transformers.load(publish(tmp_path, *ANSWERING[kind]))
    assert loaded.kind == kind
    raw = PICTURE if loaded.takes == "image" else "the [MASK] and the queen"
    answers = loaded.predict([raw, raw])
    assert json.loads(json.dumps(answers)) == answers and answers[0] == answers[1]
    assert loaded.model.count_params() > 0
    assert getattr(loaded, "tokenizer" if loaded.takes == "text" else "preprocessing")


def test_classes_have_their_published_names(tmp_path):
    names = ["cat", "dog", "rose", "tree"]
    loaded = keras_transformers.load(publish(tmp_path, *folders.MADE["vit"], names))
    assert loaded.labels == names
    assert list(loaded.predict(PICTURE)["probabilities"]) == names


@pytest.mark.parametrize("name", WITHOUT_CLASSES)
def test_a_model_of_images_without_classes_answers_with_its_features(name, tmp_path):
    loaded = keras_transformers.load(publish(tmp_path, WITHOUT_CLASSES[name], (None, 16, 16, 3)))
    assert (loaded.kind, loaded.labels) == ("image_encoder", None)
    pixels = loaded.preprocessing.normalize(loaded.preprocessing.resize(tf.constant(PICTURE)))[None]
    expected = np.asarray(loaded.model.represent(pixels))[0]
    np.testing.assert_allclose(loaded.predict(PICTURE), expected, atol=1e-4)
    with pytest.raises(ValueError, match="evaluate: an encoder of images has no classes"):
        loaded.evaluate([(PICTURE, "cat")])


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token"])
def test_a_sentence_encoder_pools_as_published(mode, tmp_path):
    folder = publish(tmp_path, *bert())
    (folder / "1_Pooling").mkdir()
    asked = {"word_embedding_dimension": 16, f"pooling_mode_{mode}": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(asked))
    loaded = keras_transformers.load(folder)
    ids = loaded.tokenizer.tokenize(["the king"], start=True, end=True).to_tensor()
    vectors = np.asarray(loaded.model(ids))[0]
    expected = vectors.mean(0) if mode == "mean_tokens" else vectors[0]
    expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(loaded.predict("the king"), expected, atol=1e-5)


def test_another_pooling_is_refused(tmp_path):
    folder = publish(tmp_path, *bert())
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(ValueError, match="must ask for the mean or the first token.*: max"):
        keras_transformers.load(folder)


@pytest.mark.parametrize(
    ("make", "shape", "what"), [(*bert("tagging", num_classes=1), "TextEncoder with a TaggingHead")]
)
def test_a_model_without_an_answer_is_refused(make, shape, what, tmp_path):
    with pytest.raises(ValueError, match=f"{what}, which answers no text and no image"):
        keras_transformers.load(publish(tmp_path, make, shape))


def segformer(folder):
    pretrained.save_preprocessing(vision.Preprocessing(32, crop=False), folder)
    heads = {"num_heads": (1, 1, 2, 2), "reductions": (4, 2, 1, 1), "mlp_ratios": (2, 2, 2, 2)}
    stages = {"hidden_dims": (4, 4, 6, 6), "num_layers": (1, 1, 1, 1)}
    return models.SegFormer(3, models.PVT(None, 32, **stages, **heads, norm_epsilon=1e-5), 9)


SPANS = bert("question_answering")
QUESTION = ("Who is it?", "it is the king and the queen")
UNLEARNING = {  # kind -> what makes it, what it is built for, what it answers to
    "detector": (*folders.MADE["detr"], (PICTURE,), {}),
    "segmenter": (segformer, (None, 32, 32, 3), (PICTURE,), {}),
    "zero_shot_classifier": (folders.clip, None, (PICTURE,), {"labels": ["cat", "dog"]}),
    "question_answerer": (*SPANS, (QUESTION,), {}),
}


@pytest.mark.parametrize("kind", slow_except(UNLEARNING.keys(), "detector"))
def test_what_does_not_learn_here_is_saved_exported_and_quantised(kind, tmp_path):
    make, shape, arguments, options = UNLEARNING[kind]
    model = make(tmp_path)
    if shape is not None:
        model.build(shape)
    loaded = keras_transformers.load(pretrained.save(model, tmp_path))
    expected = loaded.predict(*arguments, **options, details=True)
    again = keras_transformers.load(loaded.save(tmp_path / "saved"))
    assert (again.kind, again.labels) == (kind, loaded.labels)
    assert_same(again.predict(*arguments, **options, details=True), expected)
    exported = keras_transformers.load(loaded.export(tmp_path / "exported"))
    assert exported.kind == kind
    assert_same(exported.predict(*arguments, **options, details=True), expected)
    for name, values in {"fit": ([],), "evaluate": ([],), "add_lora": ()}.items():
        with pytest.raises(ValueError, match=f"{name}: a {kind} does not learn here. Its `model`"):
            getattr(loaded, name)(*values)
    assert loaded.quantize("int8").predict(*arguments, **options, details=True)


def assert_same(answer, expected):
    """The same numbers within float32's rounding, and the same words."""
    if isinstance(expected, dict):
        assert answer.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(answer[name], value)
    elif isinstance(expected, list | tuple):
        assert len(answer) == len(expected)
        for one, other in zip(answer, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert answer == pytest.approx(expected, abs=1e-3)
    else:
        assert answer == expected


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_model_of_any_channels_is_loaded_with_as_many(channels, tmp_path):
    preprocessing = vision.Preprocessing(16, channels, crop=False)
    pretrained.save_preprocessing(preprocessing, tmp_path)
    model = models.ViT(4, **folders.PICTURES)
    model.build((None, 16, 16, channels))
    folder = pretrained.save(model, tmp_path)
    assert pretrained.load_preprocessing(folder) == preprocessing
    image = np.random.default_rng(1).integers(0, 256, (20, 30, channels), np.uint8)
    loaded = keras_transformers.load(folder)
    pixels = preprocessing.normalize(preprocessing.resize(tf.constant(image)))[None]
    expected = tf.nn.softmax(model(pixels, training=False))[0]
    found = loaded.predict(image if channels != 1 else image[..., 0])
    np.testing.assert_allclose(list(found["probabilities"].values()), expected, atol=1e-4)


def test_means_of_another_number_of_channels_are_refused(tmp_path):
    model = models.ViT(4, **folders.PICTURES)
    model.build((None, 16, 16, 1))
    folder = pretrained.save(model, tmp_path)
    settings = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.5] * 3, "size": 16}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"`image_mean` must have a number for each .* 1 channels"):
        pretrained.load_preprocessing(folder)
    settings["image_mean"] = [0.4] * 3  # as transformers has them by default: they serve any number
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    assert pretrained.load_preprocessing(folder).mean == (0.4,)
