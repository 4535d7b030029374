"""Claims about layers that are given to other layers, and come back from files."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    EncoderBlock,
    GeneralScore,
    LSTMMixing,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.layers.parts import serialized
from tests.contract import ON_JAX, assert_close

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")


@pytest.mark.skipif(ON_JAX, reason="Keras reads files alike, and each load takes seconds")
@pytest.mark.parametrize(
    "mixer",
    [SelfAttention(2, score=GeneralScore(), position=RotaryEmbedding()), LSTMMixing(grid=(2, 3))],
    ids=["attention", "lstm"],
)
def test_a_stack_of_parts_can_be_loaded_again_and_again(mixer, tmp_path):
    x = y = keras.Input(X.shape[1:])
    for _ in range(6):
        y = EncoderBlock(None, 13, mixer=mixer)(y)
    model = keras.Model(x, y)
    model.save(tmp_path / "model.keras")
    for _ in range(4):
        loaded = keras.models.load_model(tmp_path / "model.keras")
        assert_close(loaded(X), model(X), 0)


def test_marks_of_shared_objects_are_left_out():
    """While it loads a file, Keras puts them on what came to lie where something else had lain."""
    config = {"config": {"score": {"shared_object_id": 7, "config": {}}, "sizes": [1, (2, 3)]}}
    expected = {"config": {"score": {"config": {}}, "sizes": [1, (2, 3)]}}
    assert serialized({**config, "shared_object_id": 7}) == expected
