"""Claims about the comparison of a model with what its published configuration can express."""

import keras
import pytest

from keras_transformers import pretrained
from keras_transformers.layers import EncoderBlock, FeedForward, SelfAttention
from keras_transformers.models import ClassificationHead, TextEmbedding, TextEncoder
from keras_transformers.pretrained.bert import BERT
from keras_transformers.pretrained.family import settings_of


def norm():
    return keras.layers.LayerNormalization(epsilon=1e-12)


def block(**changes):
    parts = {"mixer": SelfAttention(2), "feed_forward": FeedForward(24, "gelu"), "norm": norm()}
    return EncoderBlock(**{**parts, **changes})


def bert(**changes):
    embedding = TextEmbedding(31, 12, max_length=9, token_types=2, norm=norm())
    parts = {"embedding": embedding, "block": block(), "num_layers": 2}
    model = TextEncoder(**{**parts, **changes})
    model.build((None, None))
    return model


def test_a_model_is_compared_with_one_that_has_no_weights():
    model = bert(head=ClassificationHead(3))
    config, arguments = BERT.describe(model)
    expected = BERT.make({**arguments, **BERT.configuration.fixed})
    assert config["hidden_act"] == "gelu"
    assert not expected.built
    assert not any(layer.weights for layer in expected.encoder_blocks)
    assert dict(settings_of(expected)) == dict(settings_of(model))


@pytest.mark.parametrize(
    "changes",
    [
        {"block": EncoderBlock(2, 24, activation="gelu", norm=norm())},
        {"block": [block(), block()]},
        {"block": block(mixer=SelfAttention(2, dropout=0.1, kernel_initializer="zeros", seed=3))},
        {"block": block(drop_path=0.2, dropout=0.1, name="mine")},
    ],
)
def test_numbers_names_rates_and_starting_values_make_no_difference(changes, tmp_path):
    again = pretrained.load(pretrained.save(bert(**changes), tmp_path, family="bert"))
    assert len(again.encoder_blocks) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"block": [block(), block(mixer=SelfAttention(2, use_bias=False))]},
            r"encoder_blocks\[1\].mixer.use_bias=True. Received: False",
        ),
        ({"block": block(layer_scale=0.1)}, r"\[0\].layer_scale=None. Received: 0.1"),
        ({"head": ClassificationHead(3, use_bias=False)}, "head.use_bias=True. Received: False"),
        ({"head": keras.layers.Dense(3)}, "head=None. Received: Dense"),
    ],
)
def test_a_message_names_the_part_the_setting_and_both_values(changes, message, tmp_path):
    with pytest.raises(ValueError, match=f"save: models of type bert must have .*{message}"):
        pretrained.save(bert(**changes), tmp_path, family="bert")


def test_a_new_argument_of_a_layer_is_compared_without_a_line_in_a_family(monkeypatch, tmp_path):
    get_config = SelfAttention.get_config

    def with_new_argument(layer):
        return {**get_config(layer), "new_argument": layer.built}

    def without_new_argument(kind, config):
        return kind(**{name: value for name, value in config.items() if name != "new_argument"})

    monkeypatch.setattr(SelfAttention, "get_config", with_new_argument)
    monkeypatch.setattr(SelfAttention, "from_config", classmethod(without_new_argument))
    message = r"encoder_blocks\[0\].mixer.new_argument=False. Received: True"
    with pytest.raises(ValueError, match=message):
        pretrained.save(bert(), tmp_path, family="bert")
