"""Claims about SavedModels of quantised models: they hold and multiply few bits."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import keras_transformers
from keras_transformers import export
from keras_transformers.models import ViT
from keras_transformers.precision import in_precision
from keras_transformers.vision import Preprocessing
from tests.contract import to_numpy

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype="uint8")


def products(path):
    """The types of both factors of every product in the functions of a SavedModel."""
    program = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    functions = program.meta_graphs[0].graph_def.library.function
    nodes = [node for each in functions for node in each.node_def if "MatMul" in node.op]
    return [tf.as_dtype(node.attr["T"].type or node.attr["Ta"].type).name for node in nodes]


@pytest.mark.parametrize(
    ("precision", "share"), [("int8", 0.3), pytest.param("int4", 0.25, marks=pytest.mark.slow)]
)
def test_a_saved_classifier_is_small_and_loads(precision, share, tmp_path):
    model = ViT(2, 8, 4, hidden_dim=96, num_heads=3, mlp_dim=192, num_layers=1)
    model.build((None, 8, 8, 3))
    few = in_precision(model, precision)
    preprocessing = Preprocessing(8)
    path = export.image_classifier(few, tmp_path / "few", ["cat", "dog"], preprocessing)
    variables = path / "variables" / "variables.data-00000-of-00001"
    assert variables.stat().st_size < share * 4 * model.count_params()
    kernels = [each for each in few.weights if each.path.endswith("kernel")]
    assert len(kernels) == 8
    if precision == "int8":  # once in every program
        assert products(path).count("int8") % len(kernels) == 0 < products(path).count("int8")
    found = keras_transformers.load(path).predict(list(PIXELS))
    expected = tf.nn.softmax(few(preprocessing.normalize(PIXELS), training=False))
    received = [[each["probabilities"][name] for name in ("cat", "dog")] for each in found]
    np.testing.assert_allclose(received, to_numpy(expected), atol=1e-3)
