"""Claims about exports to LiteRT and ONNX, and about what stands beside them."""

import functools
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_transformers
from keras_transformers.detection import best_answers
from keras_transformers.export import (
    Detector,
    ImageClassifier,
    ImageEncoder,
    SentenceEncoder,
    TextClassifier,
    detector,
    image_classifier,
    image_encoder,
    sentence_encoder,
    text_classifier,
)
from keras_transformers.models import DETR, PVT, MViT, Swin, TextEncoder, ViT
from keras_transformers.tasks.conversion import image_settings
from keras_transformers.text import SentencePieceTokenizer, WordPieceTokenizer
from keras_transformers.vision import Preprocessing
from tests.export import by_hand, examples

for runtime in ("ai_edge_litert", "tf2onnx", "onnxruntime"):
    pytest.importorskip(runtime)

BOTH = pytest.mark.parametrize("format", ["litert", "onnx"])
RNG = np.random.default_rng(0)
CLASSES = ["cat", "dog", "eel"]
PREPROCESSING = Preprocessing((8, 12), 3, (0.2, 0.3, 0.4), 0.3)
PIXELS = RNG.integers(0, 256, (5, 8, 12, 3), dtype="uint8")
WORDS = "the cat sat on a mat and saw the dog run to an old house by the sea".split()
LINES = [" ".join(np.random.default_rng(i).choice(WORDS, 2 + i % 9)) for i in range(70)]
TEXTS = ["The old cat, by the sea!", "", "a [MASK] sat\ton Élan's 海 mat", " ".join(WORDS * 3)]
WORDPIECE = WordPieceTokenizer.train([*LINES, "elan's ! ,"], 70)
PIECES = SentencePieceTokenizer.train(LINES, 37)
TEXT = {"hidden_dim": 24, "num_heads": 2, "mlp_dim": 29, "num_layers": 1}


def random(model, shape, scale=0.3):
    model.build(shape)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape) * scale for w in model.get_weights()])
    return model


VIT = {"hidden_dim": 12, "num_heads": 2, "mlp_dim": 17, "num_layers": 1}


def vit(classes=3):
    return random(ViT(classes, (8, 12), 4, **VIT), (None, 8, 12, 3))


@functools.cache
def classifier():
    head = {"head": "classification", "num_classes": 3, "pooling": "mean"}
    model = TextEncoder.from_variant("base", WORDPIECE.vocab_size, **head, **TEXT)
    return random(model, (None, None))


@functools.cache
def encoder():
    return random(TextEncoder.from_variant("base", 37, style="modern", **TEXT), (None, None))


def foreign(folder, *raw):
    """What a process says that has neither TensorFlow nor Keras nor us."""
    command = [sys.executable, "-P", by_hand.__file__, str(folder), *map(str, raw)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def text(strings):
    return [string.decode() for string in strings.numpy()]


def settings(folder):
    return json.loads((folder / "preprocessing.json").read_text())


# -------------------------------------------------------------------------------------- images

# The first blocks of a Swin have 4 x 6 positions, so that the windows of the second are shifted.
PYRAMIDS = {
    "vit": lambda: ViT(3, (8, 12), 4, **VIT),
    "swin": lambda: Swin(3, (8, 12), 2, 8, (2, 1, 1, 1), (1, 2, 4, 8), window_size=2, version=2),
    "pvt": lambda: PVT(3, (8, 12), (4, 6, 9, 10), (1, 1, 1, 1), (1, 2, 3, 5)),
    "mvit": lambda: MViT(3, (8, 12), 8, (1, 1, 1, 1)),
    "swin1": lambda: Swin(3, (8, 12), 2, 8, (2, 1, 1, 1), (1, 2, 4, 8), window_size=3),
}
LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("swin", "pvt", "mvit", "swin1")]


@BOTH
@pytest.mark.parametrize("name", ["vit", *LONG])
def test_a_classifier_gives_the_models_answers_for_batches_of_any_size(name, format, tmp_path):
    model = random(PYRAMIDS[name](), (None, 8, 12, 3))
    path = image_classifier(model, tmp_path / "x", CLASSES, PREPROCESSING, format=format)
    assert settings(path).get("flex_ops", []) == []
    for batch in (1, 5):
        logits = model(PREPROCESSING.normalize(PIXELS[:batch]), training=False)
        expected = tf.nn.softmax(logits).numpy()
        found = by_hand.run(path / settings(path)["file"], {"pixels": PIXELS[:batch]})
        np.testing.assert_allclose(found["probabilities"], expected, atol=1e-4)
        np.testing.assert_allclose(found["probability"], expected.max(1), atol=1e-4)
        assert found["label"].tolist() == expected.argmax(1).tolist()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Images of several shapes and kinds."""
    folder = tmp_path_factory.mktemp("files")
    files = [folder / f"{i}.png" for i in range(4)]
    for file, shape in zip(files, ((31, 47, 3), (7, 5), (20, 20, 4), (101, 67, 3)), strict=True):
        Image.fromarray(RNG.integers(0, 256, shape, dtype="uint8")).save(file)
    return files


@BOTH
def test_files_are_classified_by_hand_as_by_us(format, files, tmp_path):
    path = image_classifier(vit(), tmp_path / "x", CLASSES, PREPROCESSING, format=format)
    ours = ImageClassifier(vit(), CLASSES, PREPROCESSING)
    expected = ours(tf.constant([file.read_bytes() for file in files]))
    found = foreign(path, *files)
    assert found["label"] == text(expected["label"])
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-4)


@BOTH
def test_images_are_encoded_by_hand_as_by_us(format, files, tmp_path):
    path = image_encoder(vit(None), tmp_path / "x", PREPROCESSING, format=format)
    assert settings(path).get("flex_ops", []) == [] and "labels" not in settings(path)
    ours = ImageEncoder(vit(None), PREPROCESSING)
    for some in (files, files[:1]):  # another batch
        expected = ours.portable(tf.constant([file.read_bytes() for file in some]))["embedding"]
        found = by_hand.answers(path, some)
        assert found.keys() == {"embedding"}
        np.testing.assert_allclose(found["embedding"], expected, atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"channels": 1},
        {"crop": False, "method": "bicubic"},
        {"resized": 19, "method": "bicubic"},
        {"resized": (13, 17)},
    ],
    ids=str,
)
def test_pixels_are_ours_but_for_ties_and_the_grey_of_colours(changes, files):
    preprocessing = Preprocessing((8, 12), **changes)
    about = json.loads(json.dumps(image_settings(preprocessing, CLASSES)))
    for file in files:
        found, _ = by_hand.image(about, file)
        expected = preprocessing.decode(file.read_bytes()).numpy()
        difference = np.abs(found.astype(int) - expected)
        assert difference.max() <= 1
        assert preprocessing.channels == 1 or (difference == 0).mean() > 0.99


@functools.cache
def detr(queries):
    sizes = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 23, "num_queries": 5}
    changes = {"queries": queries, "norm_first": True, "num_layers": 1, **sizes}
    model = DETR.from_variant("R50", 3, backbone="mini", **changes)
    return random(model, (None, 64, 64, 3), 0.1)


DETECTION = (CLASSES, Preprocessing(64, method="bicubic"), 0.3)


@functools.cache
def ours(queries, *files):
    served = Detector(detr(queries), *DETECTION)
    found = served(tf.constant([file.read_bytes() for file in files]))
    return {name: value.numpy() for name, value in found.items()}


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("queries", ["proposals", "learned", "anchors"])
def test_boxes_are_found_by_hand_as_by_us(queries, format, files, tmp_path):
    path = detector(detr(queries), tmp_path / "x", *DETECTION, format=format)
    assert settings(path).get("flex_ops", []) == []
    expected, found = ours(queries, *files), by_hand.answers(path, files)
    assert found["label"] == [[name.decode() for name in row] for row in expected["label"]]
    assert found["number"] == expected["number"].tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-4)
    extents = np.array([Image.open(file).size * 2 for file in files])[:, None]
    np.testing.assert_allclose(found["boxes"] * extents, expected["boxes"], atol=1e-2)


def test_the_best_class_is_found_without_a_look_at_bits():
    """`keras.ops.argmax` looks for -0.0 by `Bitcast`, which LiteRT and ONNX lack."""
    found = tf.function(lambda x, b: best_answers(x, b)).get_concrete_function(
        tf.TensorSpec((None, 5, 4)), tf.TensorSpec((None, 5, 4))
    )
    assert not {op.type for op in found.graph.get_operations()} & {"Bitcast", "BitwiseAnd"}


# --------------------------------------------------------------------------------------- texts


@BOTH
def test_texts_are_classified_by_hand_as_by_us(format, tmp_path):
    path = text_classifier(classifier(), WORDPIECE, tmp_path / "x", CLASSES, (8, 16), format=format)
    assert settings(path).get("flex_ops", []) == []
    expected = TextClassifier(classifier(), WORDPIECE, CLASSES, (8, 16))(tf.constant(TEXTS))
    found = foreign(path, *TEXTS)
    assert found["label"] == text(expected["label"])
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-4)


@BOTH
@pytest.mark.parametrize(
    ("pooling", "normalize"), [pytest.param("mean", True, marks=pytest.mark.slow), ("token", False)]
)
def test_sentences_are_encoded_by_hand_as_by_us(pooling, normalize, format, tmp_path):
    options = (pooling, normalize, (8, 16))
    path = sentence_encoder(encoder(), PIECES, tmp_path / "x", *options, format=format)
    expected = SentenceEncoder(encoder(), PIECES, *options).encode(TEXTS)
    found = by_hand.answers(path, TEXTS)["embedding"]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert settings(path)["pooling"] == pooling and settings(path)["normalized"] == normalize
    one = by_hand.answers(path, TEXTS[:1])["embedding"]  # another length, another batch
    np.testing.assert_allclose(one, expected[:1], atol=1e-4)


def test_one_folder_holds_exports_of_one_format(tmp_path):
    served = examples.MAKE["image classifier, vit"]()
    served.save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"saved holds saved_model.pb, an export of another"):
        served.save(tmp_path / "saved", format="onnx")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").touch()
    with pytest.raises(ValueError, match=r"onnx holds model.onnx, an export of another format"):
        served.save(tmp_path / "onnx")


def test_an_export_replaces_the_one_before_and_nothing_else(tmp_path):
    served = examples.MAKE["image classifier, vit"]()
    for name in ("notes.txt", "assets.extra/tf_serving_warmup_requests", "variables/old"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("old")
    served.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "assets",
        "assets.extra",
        "fingerprint.pb",
        "notes.txt",
        "saved_model.pb",
        "variables",
    ]
    assert not (tmp_path / "assets.extra" / "tf_serving_warmup_requests").exists()
    assert not (tmp_path / "variables" / "old").exists()
    next((tmp_path / "variables").glob("variables.data*")).unlink()
    with pytest.raises(ValueError, match="is damaged, or files of it are missing: .*variables"):
        keras_transformers.load(tmp_path)
    served.save(tmp_path / "versions" / "00000123")
    assert keras_transformers.load(tmp_path / "versions").predict(np.zeros((8, 8, 3), "uint8"))
