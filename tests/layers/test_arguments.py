"""Claims about constructors: what they take for numbers, and what they say of a mistake."""

import json

import keras
import numpy as np
import pytest

from keras_transformers import layers, models
from keras_transformers.layers import EncoderBlock, MultiHeadAttention, SelfAttention

SIZES = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 13, "num_layers": 1}


def encoder(**arguments):
    numbers = {"num_heads": 2, "mlp_dim": 8, "name": "block"}
    return EncoderBlock(**{**numbers, **arguments})


@pytest.mark.parametrize(
    "make",
    [
        lambda n: layers.MultiHeadAttention(n(2), n(3), n(5), num_key_value_heads=n(1)),
        lambda n: layers.SelfAttention(2, position=layers.RelativePositionBias(n(8), n(9))),
        lambda n: layers.SelfAttention(2, position=layers.ShawRelativePosition(n(3))),
        lambda n: layers.LocalAttention(n(2), n(3)),
        lambda n: layers.LinearAttention(n(2)),
        lambda n: layers.EncoderBlock(n(2), n(13), np.float32(0.5), drop_path=np.float32(0.25)),
        lambda n: layers.DecoderBlock(n(2), n(13)),
        lambda n: layers.FeedForward(n(13)),
        lambda n: layers.GatedFeedForward(n(13)),
        lambda n: layers.MLPMixing(n(13), n(9)),
        lambda n: layers.RandomSynthesizer(n(2), n(9), n(3)),
        lambda n: layers.ConvolutionMixing(n(3), n(2)),
        lambda n: layers.LSTMMixing(n(5)),
        lambda n: layers.AttentionPooling(n(2), n(13)),
        lambda n: models.ViT(n(3), 8, 4, n(8), n(2), n(13), n(1)),
        lambda n: models.Transformer(n(11), n(8), n(2), n(13), n(1)),
        lambda n: models.TextEncoder(n(11), n(8), n(2), n(13), n(1), max_length=n(9)),
        lambda n: models.LanguageModel(n(11), n(8), n(2), n(13), n(1)),
    ],
)
def test_numpys_numbers_are_taken_and_serialised(make):
    theirs, ours = make(np.int64).get_config(), make(int).get_config()
    assert json.loads(json.dumps({**theirs, "name": ""})) == {**ours, "name": ""}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncoderBlock(0, 8, name="block"), "`num_heads` must be a positive integer.* 0"),
        (lambda: EncoderBlock(2, 16.0, name="block"), "`mlp_dim` must be a positive .*: 16.0"),
        (lambda: EncoderBlock(True, 8, name="block"), "`num_heads` must be a positive .* True"),
        (lambda: EncoderBlock(2, name="block"), "`mlp_dim` must be a positive integer.* None"),
        (lambda: EncoderBlock(mlp_dim=8, name="block"), "`num_heads` must be .*: None"),
        (lambda: encoder(norm=keras.layers.LayerNormalization), "`norm` must .*, where a class "),
        (lambda: encoder(mixer=SelfAttention), r"`mixer` .*`SelfAttention\(...\)`, where a class"),
        (lambda: encoder(feed_forward=lambda x: x), "`feed_forward` must be a Layer.*function"),
        (lambda: encoder(norm="rms"), "`norm` must be a Layer. Received: 'rms'"),
        (lambda: encoder(dropout=50), r"`dropout` must be a rate in \[0, 1\). Received: 50"),
        (lambda: encoder(dropout=-0.1), r"`dropout` must be a rate in \[0, 1\)"),
        (lambda: encoder(mixer=SelfAttention(2)), "`num_heads` must be left out beside `mixer`"),
        (
            lambda: encoder(mlp_dim=None, feed_forward=layers.FeedForward(7), activation="gelu"),
            "`activation` must be left out beside `feed_forward`.*: 'gelu'",
        ),
        (lambda: encoder(drop_path="0.1"), "`drop_path` must be a rate in .*'0.1'"),
    ],
)
def test_a_block_says_at_once_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=f"EncoderBlock 'block': {message}"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SelfAttention(2, dropout=50),
        lambda: layers.FeedForward(8, dropout=50),
        lambda: layers.GatedFeedForward(8, dropout=50),
        lambda: layers.MLPMixing(8, dropout=50),
        lambda: layers.RandomSynthesizer(2, dropout=50),
        lambda: layers.ConvolutionMixing(3, 2, dropout=50),
        lambda: layers.DecoderBlock(2, 8, dropout=50),
        lambda: layers.SwinBlock(2, 3, 8, dropout=50),
        lambda: layers.DropPath(50),
        lambda: models.ViT.from_variant("B/16", 3, **SIZES, dropout=50),
        lambda: models.Transformer(11, **SIZES, dropout=50),
        lambda: models.TextEncoder(11, **SIZES, dropout=50),
        lambda: models.LanguageModel(11, **SIZES, dropout=50),
    ],
)
def test_a_rate_of_50_is_refused_where_it_is_given(make):
    with pytest.raises(ValueError, match=r"must be a rate in \[0, 1\). Received: 50"):
        make()


@pytest.mark.parametrize(
    ("make", "theirs", "ours"),
    [
        (EncoderBlock, {"num_heads": 2, "intermediate_dim": 8}, "mlp_dim"),
        (EncoderBlock, {"nhead": 2, "mlp_dim": 8}, "num_heads"),
        (layers.DecoderBlock, {"num_heads": 2, "dim_feedforward": 8}, "mlp_dim"),
        (layers.DecoderBlock, {"num_heads": 2, "mlp_dim": 8, "normalize_first": 1}, "norm_first"),
        (SelfAttention, {"num_heads": 2, "key_value_num_heads": 1}, "num_key_value_heads"),
        (SelfAttention, {"num_heads": 2, "head_dim": 1}, "key_dim"),
        (layers.CrossAttention, {"num_heads": 2, "kdim": 2}, "key_dim"),
        (layers.FeedForward, {"mlp_dim": 8, "hidden_act": "relu"}, "activation"),
        (layers.SwinBlock, {"num_heads": 2, "window_size": 3, "d_ff": 8}, "mlp_dim"),
    ],
)
def test_words_of_other_libraries_are_told_in_ours(make, theirs, ours):
    word = next(name for name in theirs if name not in ("num_heads", "mlp_dim", "window_size"))
    message = f"{make.__name__}: `{word}` is called `{ours}` here. Received: {word}="
    with pytest.raises(ValueError, match=message):
        make(**theirs)


@pytest.mark.parametrize("word", ["hidden_dim", "d_model"])
def test_the_width_is_no_argument_of_a_block(word):
    with pytest.raises(
        ValueError, match=f"`{word}` is .*the width of a block is that of its input"
    ):
        EncoderBlock(2, 8, **{word: 16})


def test_a_number_is_refused_beside_the_part_in_its_place():
    with pytest.raises(ValueError, match="`num_heads` must be left out beside `mixer`.*=2"):
        EncoderBlock(2, 8, mixer=SelfAttention(2))
    network = layers.FeedForward(7)
    with pytest.raises(ValueError, match="`mlp_dim` must be left out beside `feed_forward`.*=7"):
        EncoderBlock(2, 7, feed_forward=network)
    block = EncoderBlock(mixer=SelfAttention(2), feed_forward=network)
    block.build((None, 5, 8))
    assert (block.mixer.num_heads, block.feed_forward.mlp_dim) == (2, 7)


def test_in_a_decoder_a_number_of_heads_makes_the_attention_that_is_not_given():
    own, across = layers.CausalSelfAttention(2), layers.CrossAttention(4)
    for heads, parts in ((4, {"mixer": own}), (2, {"cross_attention": across})):
        block = layers.DecoderBlock(heads, 8, **parts)
        block.build((None, 5, 8), (None, 3, 8))
        assert (block.mixer.num_heads, block.cross_attention.num_heads) == (2, 4)
        again = layers.DecoderBlock.from_config(block.get_config())
        assert again.get_config() == block.get_config()
    with pytest.raises(ValueError, match="`num_heads` must be left out beside `mixer`"):
        layers.DecoderBlock(2, 8, mixer=own, cross_attention=across)
    with pytest.raises(ValueError, match="`num_heads` must be given, for .* `context`"):
        layers.DecoderBlock(None, 8, mixer=own).build((None, 5, 8), (None, 3, 8))
    with pytest.raises(ValueError, match="`context` must be given"):
        layers.DecoderBlock(2, 8, cross_attention=across).build((None, 5, 8))


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("attention_dropout", "mixer=SelfAttention"),
        ("attn_dropout", "mixer=SelfAttention"),
        ("qkv_bias", "mixer=SelfAttention"),
        ("layer_norm_eps", "norm=LayerNormalization"),
    ],
)
def test_a_block_tells_whose_argument_that_of_a_part_is(word, part):
    message = f"EncoderBlock: `{word}` is .*give a block `{part}"
    with pytest.raises(ValueError, match=message):
        EncoderBlock(2, 8, **{word: 0.1})


def test_the_sixth_argument_of_kerass_attention_is_told_apart():
    with pytest.raises(ValueError, match="`score` must be .*`output_shape`, Keras's sixth"):
        MultiHeadAttention(2, 4, 4, 0.0, True, 8)
