"""Claims about blocks that are computed twice: the same weights as if they were computed once."""

import keras
import numpy as np
import pytest

from keras_transformers import layers
from tests.every_model import IMAGES, MODELS, trained

# Its steps are not blocks.
NAMES = [name for name in MODELS if name != "recurrent"]


def difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_training_is_the_same_with_dropout_and_all(name):
    once, _ = trained(name)
    again, _ = trained(name, layers.rematerialized_blocks())
    assert difference(once, again) < 1e-5


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"jit_compile": False}, 1e-5),
        pytest.param(
            {"precision": "mixed_bfloat16", "jit_compile": False}, 1e-5, marks=pytest.mark.slow
        ),
        # XLA leaves out other roundings to bfloat16 in the second pass than in the first.
        pytest.param({"precision": "mixed_bfloat16"}, 2e-2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_it_is_the_same_without_xla_and_in_mixed_precision(options, bound):
    once, _ = trained("vit", **options)
    again, _ = trained("vit", layers.rematerialized_blocks(), **options)
    assert difference(once, again) < bound


def test_blocks_can_be_chosen_by_name(monkeypatch):
    made = []
    remat = keras.remat
    monkeypatch.setattr(keras, "remat", lambda function: made.append(function) or remat(function))

    def blocks(scope):
        made.clear()
        with scope:
            model = MODELS["vit"](0.3)
        model(IMAGES, training=True)
        return len(made)

    assert blocks(keras.RematScope(mode="list_of_layers", layer_names=["encoder_1"])) == 1
    assert blocks(layers.rematerialized_blocks()) == 2


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="exports are TensorFlow's")
def test_a_model_of_such_blocks_can_be_exported(tmp_path):
    import tensorflow as tf

    inputs = keras.Input((7, 16))
    with layers.rematerialized_blocks():
        outputs = layers.EncoderBlock(2, 19, dropout=0.3, name="encoder_0")(inputs)
    module = tf.Module()
    module.model = keras.Model(inputs, outputs)
    serve = tf.function(module.model, input_signature=[tf.TensorSpec((None, 7, 16))])
    tf.saved_model.save(module, str(tmp_path), signatures=serve.get_concrete_function())
    assert (tmp_path / "saved_model.pb").is_file()


def test_names_of_other_layers_are_not_those_of_blocks():
    names = layers.rematerialized_blocks().layer_names
    blocks = ("encoder_0", "decoder_11", "stage_3_block_12", "encoder_block", "swin_block_4")
    others = ("encoder_norm", "attention", "feed_forward", "dense_1", "embedding_0", "dropout_1")
    assert all(name in names for name in blocks)
    assert not any(name in names for name in others)
