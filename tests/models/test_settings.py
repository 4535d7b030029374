"""Claims about what a model knows of what it was made with."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformers.layers import EncoderBlock
from keras_transformers.models import (
    DETR,
    ClassificationHead,
    LanguageModel,
    Swin,
    TextEncoder,
    Transformer,
    ViT,
)

SIZES = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 9, "num_layers": 1}


@keras.saving.register_keras_serializable("tests")
class Small(ViT):
    """A user's model with an argument of its own, and one that means something else."""

    def __init__(self, groups, hidden_dim=4, **kwargs):
        super().__init__(groups, hidden_dim=2 * hidden_dim, **kwargs)


def vit(**changes):
    return ViT(**{"num_classes": 5, "image_size": 8, "patch_size": 4, **SIZES, **changes})


def test_a_configuration_has_every_argument_with_its_default():
    config = vit().get_config()
    expected = {"pooling": "token", "num_heads": 2, "block": None, "embedding": None}
    assert expected.items() <= config.items()
    assert config["image_size"] == [8, 8]
    assert config["problem_type"] is None


def test_numbers_of_numpy_are_written_as_those_of_python():
    config = LanguageModel(np.int64(31), **{**SIZES, "mlp_dim": np.int32(9)}).get_config()
    assert type(config["vocab_size"]) is int and type(config["mlp_dim"]) is int


def test_activations_are_written_by_name():
    block = EncoderBlock(2, 9, activation=keras.activations.relu)
    model = TextEncoder(31, 8, num_layers=1, block=block)
    assert model.get_config()["block"]["config"]["activation"] == "relu"


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        vit().configuration.hidden_dim = 3


def test_a_class_that_comes_from_a_model_has_the_models_settings():
    config = Small(5, image_size=8, patch_size=4, num_heads=2, mlp_dim=9, num_layers=1).get_config()
    assert "groups" not in config
    assert config["num_classes"] == 5 and config["hidden_dim"] == 8


def test_python_says_which_argument_is_missing_or_too_much():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'num_classes'"):
        ClassificationHead()
    with pytest.raises(TypeError, match="multiple values for argument 'hidden_dim'"):
        LanguageModel(31, 8, hidden_dim=8)


@pytest.mark.parametrize(
    ("model", "keyword"),
    [
        (Transformer, "norm_first"),
        (LanguageModel, "style"),
        (TextEncoder, "num_classes"),
        (ViT, "drop_path"),
        (Swin, "mask_padding"),
        (DETR, "num_queries"),
    ],
)
def test_a_keyword_of_a_variant_is_told_where_it_belongs(model, keyword):
    rule = f"`{keyword}` is a keyword of {model.__name__}.from_variant, which makes the parts"
    with pytest.raises(ValueError, match=rule):
        model(7, **{keyword: 1})


@pytest.mark.parametrize("kind", [TextEncoder, LanguageModel])
def test_the_weights_of_a_head_come_behind_those_of_the_blocks(kind):
    """Files of optimizers, and lists of `get_weights`, have this order."""
    model = kind(31, **SIZES, head=ClassificationHead(3))
    model.build((None, None))
    parts = [weight.path.split("/")[1] for weight in model.weights]
    first = parts.index("head")
    assert first > 0
    assert set(parts[first:]) == {"head"}
