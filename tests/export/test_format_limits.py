"""Claims about what LiteRT and ONNX take and what they refuse."""

import dataclasses
import importlib.util
import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.export import detector, image_classifier, sentence_encoder
from keras_transformers.models import DETR, TextEncoder, ViT
from keras_transformers.precision import in_precision
from keras_transformers.tasks import conversion
from keras_transformers.text import MarianTokenizer, SentencePieceTokenizer
from keras_transformers.vision import Preprocessing
from tests.export import by_hand

for runtime in ("ai_edge_litert", "tf2onnx", "onnxruntime"):
    pytest.importorskip(runtime)

BOTH = pytest.mark.parametrize("format", ["litert", "onnx"])
CLASSES = ["cat", "dog", "eel"]
PREPROCESSING = Preprocessing((8, 12), 3, (0.2, 0.3, 0.4), 0.3)
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 12, 3), dtype="uint8")


def vit():
    model = ViT(3, (8, 12), 4, hidden_dim=12, num_heads=2, mlp_dim=17, num_layers=1)
    model.build((None, 8, 12, 3))
    return model


def test_the_exact_gelu_loads_in_onnx(tmp_path):
    import onnx

    path = image_classifier(vit(), tmp_path / "x", CLASSES, PREPROCESSING, format="onnx")
    model = onnx.load(path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    kinds = {node.op_type for node in model.graph.node}
    assert "Erf" in kinds and "Erfc" not in kinds


@pytest.mark.parametrize("precision", ["float16", "int8", "int4"])
def test_onnx_takes_models_in_fewer_bits_and_litert_refuses_them(precision, tmp_path):
    model = in_precision(vit(), precision)
    options = (model, tmp_path / "x", CLASSES, PREPROCESSING)
    expected = tf.nn.softmax(
        tf.cast(model(PREPROCESSING.normalize(PIXELS), training=False), tf.float32)
    )
    path = image_classifier(*options, format="onnx")
    found = by_hand.run(path / "model.onnx", {"pixels": PIXELS})
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-2)
    with pytest.raises(ValueError, match=f"float32, and this one computes in {precision}; export"):
        image_classifier(*options, format="litert")


@BOTH
@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
def test_bfloat16_is_refused_and_a_float32_copy_taken(policy, format, tmp_path):
    keras.config.set_dtype_policy(policy)
    try:
        model = vit()
    finally:
        keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match=f"image_classifier: ViT.*{format}.*bfloat16.*in_precis"):
        image_classifier(model, tmp_path / "x", CLASSES, PREPROCESSING, format=format)
    assert not (tmp_path / "x").exists()
    if policy == "mixed_bfloat16":
        copy = in_precision(model, "float32")
        image_classifier(copy, tmp_path / "x", CLASSES, PREPROCESSING, format=format)


# ------------------------------------------------------------------------------------ refusals


class Computing(keras.Model):
    """Logits of pixels by any function."""

    def __init__(self, function):
        super().__init__()
        self.function, self.dense = function, keras.layers.Dense(3)

    def call(self, x):
        return self.dense(self.function(x))


def test_an_op_that_litert_lacks_is_named_beside_the_file(tmp_path):
    model = Computing(lambda x: tf.expand_dims(tf.linalg.det(x[:, :3, :3, 0]), 1))
    path = image_classifier(model, tmp_path / "x", CLASSES, PREPROCESSING, format="litert")
    about = json.loads((path / "preprocessing.json").read_text())
    assert about["flex_ops"] == ["MatrixDeterminant"]


@BOTH
def test_what_does_not_convert_is_refused_in_a_sentence(format, tmp_path):
    def in_python(x):
        x = tf.numpy_function(np.sin, [tf.reduce_mean(x, axis=(1, 2))], tf.float32)
        return tf.ensure_shape(x, (None, 3))

    message = f'image_classifier: Computing .* `format`="{format}": .* for TensorFlow\'s PyFunc'
    model = Computing(in_python)
    with pytest.raises(ValueError, match=message):
        image_classifier(model, tmp_path / "x", CLASSES, PREPROCESSING, format=format)
    assert not (tmp_path / "x").exists()


def test_a_file_that_gives_other_answers_is_refused(tmp_path, monkeypatch):
    wrong = {"probabilities": np.full((2, 3), 0.4, "float32")}
    onnx = dataclasses.replace(conversion.CONVERTERS["onnx"], run=lambda content, inputs: wrong)
    monkeypatch.setitem(conversion.CONVERTERS, "onnx", onnx)
    with pytest.raises(ValueError, match="onnxruntime gives other `probabilities`, with differen"):
        image_classifier(vit(), tmp_path / "x", CLASSES, PREPROCESSING, format="onnx")
    assert not (tmp_path / "x").exists()


def test_what_does_not_fit_is_refused(tmp_path, monkeypatch):
    options = (vit(), tmp_path / "x", CLASSES, PREPROCESSING)
    choices = 'must be one of "saved_model", "litert", "onnx". Received: \'tflite\''
    with pytest.raises(ValueError, match=f"image_classifier: `format` {choices}"):
        image_classifier(*options, format="tflite")
    with pytest.raises(ValueError, match=f"detector: `format` {choices}"):
        detector(DETR.from_variant("mini", 3), *options[1:3], Preprocessing(32), format="tflite")
    pieces = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    pieces = MarianTokenizer(pieces.proto, pieces.pieces(range(14)))
    encoder = TextEncoder(14, hidden_dim=8, num_heads=2, mlp_dim=11, num_layers=1)
    with pytest.raises(ValueError, match="must be a WordPieceTokenizer or.*MarianTokenizer"):
        sentence_encoder(encoder, pieces, tmp_path / "x", format="onnx")
    monkeypatch.setattr(conversion, "LARGEST", 100)
    with pytest.raises(ValueError, match="its weights take 0.0 GB, and such a file holds less"):
        image_classifier(*options, format="litert")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs the package tf2onnx; install .*\[onnx\]"):
        image_classifier(*options, format="onnx")


def test_nothing_of_the_converters_is_imported_before_it_is_needed():
    code = (
        "import sys, keras_transformers.export\n"
        "print({'tf2onnx', 'onnx', 'onnxruntime', 'ai_edge_litert'} & set(sys.modules))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stderr
