"""Claims about exported segmenters: image bytes in, a class for every pixel of each image out."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import export, models, predictors, pretrained
from keras_transformers.vision import Preprocessing

LABELS = ["sky", "road", "tree"]
SIZES = ((45, 30), (20, 61))
FRAME = Preprocessing((32, 40), mean=0.4, std=0.2, crop=False)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(4)
    heads = {"num_heads": (1, 1, 2, 2), "reductions": (4, 2, 1, 1), "mlp_ratios": (2, 2, 2, 2)}
    stages = {"hidden_dims": (4, 4, 6, 6), "num_layers": (1, 1, 1, 1)}
    encoder = models.PVT(None, 32, **stages, **heads, norm_epsilon=1e-5)
    model = models.SegFormer(3, encoder, decoder_dim=9)
    model.build((None, 32, 40, 3))
    model.classifier.kernel.assign(3 * model.classifier.kernel)
    return model


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(1)
    pixels = [rng.integers(0, 256, (*size, 3), "uint8") for size in SIZES]
    return tf.stack([tf.io.encode_png(each) for each in pixels])


def expected(model, image):
    """What the published post-processing computes: logits at the image's size, their argmax."""
    pixels = FRAME.decode(image)[None]
    logits = model(FRAME.normalize(pixels), training=False)
    size = tf.io.decode_png(image).shape[:2]
    return np.argmax(tf.image.resize(logits, size)[0], axis=-1)


def test_every_image_gets_a_map_of_its_own_size(model, images):
    found = export.Segmenter(model, LABELS, FRAME).portable(images)
    assert found["size"].numpy().tolist() == [list(size) for size in SIZES]
    for row, ours, (height, width) in zip(images, found["map"].numpy(), SIZES, strict=True):
        assert ours.shape == (45, 61)
        theirs = expected(model, row)
        assert np.mean(ours[:height, :width] == theirs) > 0.999  # a tie may fall otherwise
        assert len(np.unique(theirs)) > 1
        assert (ours[height:] == -1).all() and (ours[:, width:] == -1).all()


@pytest.mark.slow
def test_a_saved_segmenter_answers_in_plain_python(model, images, tmp_path):
    segmenter = export.Segmenter(model, LABELS, FRAME)
    found = segmenter(images)
    np.testing.assert_array_equal(found["map"], segmenter.portable(images)["map"])
    loaded = keras_transformers.load(segmenter.save(tmp_path))
    assert loaded.kind == "segmenter" and loaded.labels == LABELS
    answer = loaded.predict(images[0].numpy())
    assert json.loads(json.dumps(answer)) == answer
    assert answer["map"] == found["map"].numpy()[0, :45, :30].tolist()
    shares = answer["shares"]
    assert set(shares) <= set(LABELS) and abs(sum(shares.values()) - 1) < 1e-6
    assert list(shares.values()) == sorted(shares.values(), reverse=True)


def test_a_published_folder_answers(model, images, tmp_path):
    pretrained.save(model, tmp_path, LABELS)
    pretrained.save_preprocessing(FRAME, tmp_path)
    loaded = keras_transformers.load(tmp_path)
    assert loaded.kind == "segmenter" and loaded.labels == LABELS
    assert isinstance(loaded.model, models.SegFormer)


def test_what_does_not_fit_is_refused(model):
    with pytest.raises(ValueError, match="a name for each of the model's 3 classes. Received: 2"):
        export.Segmenter(model, LABELS[:2], FRAME)
    with pytest.raises(ValueError, match="must squeeze the whole image"):
        export.Segmenter(model, LABELS, Preprocessing(32))


def test_maps_are_padded_in_proportion_to_the_images(model):
    """A high and a wide image of a few bytes in one request took 1 GiB."""
    segmenter = export.Segmenter(model, LABELS, FRAME)
    high, wide = (tf.io.encode_png(tf.zeros((*s, 1), tf.uint8)) for s in ((8000, 1), (1, 8000)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="send images of such different"):
        segmenter.portable(tf.stack([high, wide]))
    found = segmenter.portable(tf.stack([wide, wide]))
    assert found["map"].shape == (2, 1, 8000) and np.all(found["map"] >= 0)
    loaded = predictors.SegmenterPredictor(segmenter.portable, LABELS)
    answers = loaded.predict([high.numpy(), wide.numpy()])
    assert [np.shape(answer["map"]) for answer in answers] == [(8000, 1), (1, 8000)]
