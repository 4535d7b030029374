"""Claims about `load` of published weights: the model's head says what answers."""

import functools
import json

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import models, pretrained, vision
from tests.pretrained import folders

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
