"""Claims about a Transformer that is made of parts: its table, positions and blocks."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers import models, pretrained
from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    FourierMixing,
    GatedFeedForward,
    PositionalEncoding,
    PositionEmbedding,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
    ShawRelativePosition,
    TokenEmbedding,
    gelu_tanh,
)
from keras_transformers.models import Transformer
from tests.contract import assert_close, check_layer, to_numpy

VOCAB, TARGET_VOCAB, WIDTH, HEADS, HIDDEN, BATCH = 31, 37, 22, 2, 13, 3
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (BATCH, 7)).astype("int32")
TARGET = RNG.integers(3, VOCAB, (BATCH, 5)).astype("int32")
SOURCE[1, 4:], TARGET[2, 3:] = 0, 0
INPUTS = {"source": SOURCE, "target": TARGET}
SHAPES = {"source": (None, None), "target": (None, None)}
BIASES = (RelativePositionBias(8, 6), RelativePositionBias(8, 6, bidirectional=False))


def t5_like(positions=BIASES, of_mixers=(None, None), **changes):
    """A small T5, of version 1.1: its norms, gates and heads, and one bias for each stack."""
    heads = {"key_dim": 5, "use_bias": False, "score": "dot"}
    block = {
        "feed_forward": GatedFeedForward(HIDDEN, gelu_tanh, use_bias=False),
        "norm": keras.layers.RMSNormalization(epsilon=1e-6),
        "norm_first": True,
    }
    return Transformer(
        num_layers=(2, 3),
        embedding=TokenEmbedding(VOCAB, WIDTH, scale=False),
        positions=positions,
        encoder_block=EncoderBlock(
            mixer=SelfAttention(HEADS, position=of_mixers[0], **heads), **block
        ),
        decoder_block=DecoderBlock(
            mixer=CausalSelfAttention(HEADS, position=of_mixers[1], **heads),
            cross_attention=CrossAttention(HEADS, **heads),
            **block,
        ),
        **changes,
    )


def with_weights(model):
    """The model, built, and all its weights random."""
    model.build(SHAPES)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 3 for weight in model.get_weights()])
    return model


def call(model, source=SOURCE, target=TARGET, **others):
    inputs = {"source": np.asarray(source), "target": np.asarray(target), **others}
    return to_numpy(model(inputs, training=False))


def assert_steps_give_the_whole(model, beams=2):
    """Decoding token by token gives the logits of the whole."""
    targets = RNG.integers(3, VOCAB, (BATCH, beams, 5)).astype("int32")
    whole = call(model, np.repeat(SOURCE, beams, 0), targets.reshape(-1, 5))
    whole = whole.reshape(BATCH, beams, 5, -1)
    state, shared = model.start_decoding(ops.convert_to_tensor(SOURCE), beams, max_length=7)
    for index in range(5):
        ids = ops.convert_to_tensor(targets[:, :, index])
        logits, state = model.decode_step(ids, index, state, shared)
        assert_close(logits, whole[:, :, index], 1e-5)


# ------------------------------------------------------------------- a bias that blocks share


@pytest.mark.slow
def test_contract_of_a_small_t5():
    check_layer(lambda **kwargs: t5_like(**kwargs), (INPUTS,), policies={"mixed_bfloat16": 6e-2})


def test_the_blocks_of_a_stack_share_one_bias():
    model = with_weights(t5_like())
    tables = [weight for weight in model.weights if "relative_bias" in weight.path]
    assert [tuple(table.shape) for table in tables] == [(8, HEADS)] * 2
    for side, table, blocks in zip(("source", "target"), tables, (2, 3), strict=True):
        assert getattr(model, f"{side}_positions").table is table
        assert f"{side}_positions" in table.path
        assert len(getattr(model, f"{'en' if side == 'source' else 'de'}coder_blocks")) == blocks


def test_a_shared_bias_is_that_of_blocks_which_have_the_same_one_each():
    shared = with_weights(t5_like())
    apart = t5_like(positions=None, of_mixers=BIASES)
    apart.build(SHAPES)
    values = {weight.path.split("/", 1)[1]: weight for weight in shared.weights}
    for weight in apart.weights:
        path = weight.path.split("/", 1)[1]
        if path.endswith("relative_bias"):
            side = "source" if path.startswith("encoder") else "target"
            path = f"{side}_positions/relative_bias"
        weight.assign(values[path])
    assert_close(call(shared), call(apart), 1e-5)


def test_with_a_shared_bias_padding_adds_nothing_and_steps_give_the_whole():
    model = with_weights(t5_like())
    whole = call(model)
    assert_close(call(model, np.pad(SOURCE, ((0, 0), (0, 4)))), whole, 1e-5)
    assert_steps_give_the_whole(model)
    assert_steps_give_the_whole(model, beams=1)


def test_one_bias_can_serve_both_stacks():
    model = with_weights(t5_like(positions=RelativePositionBias(8, 6)))
    assert model.source_positions is model.target_positions
    assert sum("relative_bias" in weight.path for weight in model.weights) == 1
    assert_steps_give_the_whole(model)


def test_a_bias_can_be_for_one_stack_and_an_encoding_for_the_other():
    model = with_weights(t5_like(positions=(PositionalEncoding(layout="halves"), BIASES[1])))
    assert sum("relative_bias" in weight.path for weight in model.weights) == 1
    assert_steps_give_the_whole(model)


def test_a_table_of_positions_can_be_shared_or_one_for_each_side():
    one = with_weights(t5_like(positions=PositionEmbedding(11)))
    two = with_weights(t5_like(positions=(PositionEmbedding(11), PositionEmbedding(7))))
    assert two.count_params() == one.count_params() + 7 * WIDTH
    assert_steps_give_the_whole(two)


# --------------------------------------------------------------------------- numbers or parts


def test_parts_and_the_keywords_that_make_them_are_the_same_model():
    attention = {"num_heads": HEADS, "dropout": 0.2}
    block = {
        "mlp_dim": HIDDEN,
        "dropout": 0.3,
        "activation": "gelu",
        "norm_first": True,
        "norm": keras.layers.LayerNormalization(epsilon=1e-5),
    }
    parts = Transformer(
        num_layers=(2, 1),
        dropout=0.3,
        embedding=(
            TokenEmbedding(VOCAB, WIDTH, scale=False),
            TokenEmbedding(TARGET_VOCAB, WIDTH, scale=False, logits_bias=True),
        ),
        positions=PositionalEncoding(layout="halves"),
        encoder_block=EncoderBlock(mixer=SelfAttention(**attention), **block),
        decoder_block=DecoderBlock(
            mixer=CausalSelfAttention(**attention),
            cross_attention=CrossAttention(**attention),
            **block,
        ),
    )
    keywords = Transformer.from_variant(
        "tiny", VOCAB, hidden_dim=WIDTH, num_heads=HEADS, mlp_dim=HIDDEN, num_layers=2,
        num_decoder_layers=1, dropout=0.3, attention_dropout=0.2, norm_first=True,
        activation="gelu", target_vocab_size=TARGET_VOCAB, positions="halves", norm_epsilon=1e-5,
        logits_bias=True, scale_embedding=False,
    )  # fmt: skip
    parts, keywords = with_weights(parts), with_weights(keywords)
    paths = [
        [weight.path.split("/", 1)[1] for weight in each.weights] for each in (parts, keywords)
    ]
    assert paths[0] == paths[1]
    assert_close(call(parts), call(keywords), 0)
    for model in (parts, keywords):
        for each in (*model.encoder_blocks, *model.decoder_blocks):
            assert each.dropout == 0.3 and each.mixer.dropout == 0.2
            assert each.mixer_norm.epsilon == 1e-5
        assert model.encoder_norm.epsilon == model.decoder_norm.epsilon == 1e-5


def test_numbers_are_those_of_the_base_model():
    keywords, numbers = Transformer.from_variant("base", VOCAB), Transformer(VOCAB)
    config = {**keywords.get_config(), "name": None}
    assert config == {**numbers.get_config(), "name": None}


def test_a_norm_closes_a_stack_of_pre_norm_blocks_alone():
    model = Transformer(VOCAB, WIDTH, HEADS, HIDDEN, 1)
    assert model.encoder_norm is None and model.decoder_norm is None
    pre = EncoderBlock(HEADS, HIDDEN, norm_first=True, norm=keras.layers.RMSNormalization())
    model = Transformer(VOCAB, WIDTH, HEADS, HIDDEN, 1, encoder_block=pre)
    assert isinstance(model.encoder_norm, keras.layers.RMSNormalization)
    assert model.decoder_norm is None


def test_a_variant_takes_objects_in_the_place_of_its_sizes():
    model = Transformer.from_variant(
        "tiny", embedding=TokenEmbedding(VOCAB, WIDTH), num_heads=HEADS
    )
    assert model.target_embedding.hidden_dim == WIDTH
    block = EncoderBlock(HEADS, HIDDEN), DecoderBlock(HEADS, HIDDEN)
    model = Transformer.from_variant("tiny", VOCAB, encoder_block=block[0], decoder_block=block[1])
    assert len(model.encoder_blocks) == 2 and model.encoder_blocks[0].mlp_dim == HIDDEN
    model = Transformer.from_variant("tiny", VOCAB, encoder_block=block[0])
    assert model.decoder_blocks[0].mlp_dim == 512


NOT_ALL = {"embedding": TokenEmbedding(VOCAB, WIDTH), "num_heads": HEADS, "num_layers": 1}
WRONG = {
    "no vocabulary": (lambda: Transformer(), "`vocab_size` must be a positive integer.*None"),
    "vocab_size": (
        lambda: Transformer(VOCAB, **NOT_ALL),
        "Transformer: `vocab_size` must be left out beside `embedding`, which has its own.*=31",
    ),
    "hidden_dim": (
        lambda: Transformer(hidden_dim=8, **NOT_ALL),
        "`hidden_dim` must be left out beside `embedding`, which has its own.*hidden_dim=8",
    ),
    "num_heads": (
        lambda: t5_like(num_heads=2),
        "`num_heads` must be left out beside `decoder_block`, which has its own.*num_heads=2",
    ),
    "depths": (
        lambda: Transformer(VOCAB, num_layers=(2, 0)),
        "`num_layers` must be a positive integer. Received: 0",
    ),
    "widths": (
        lambda: Transformer(embedding=(TokenEmbedding(5, 8), TokenEmbedding(5, 16))),
        "`embedding` must have the same `hidden_dim`. Received: 8 and 16",
    ),
    "paddings": (
        lambda: Transformer(embedding=(TokenEmbedding(5, 8), TokenEmbedding(5, 8, padding_id=4))),
        "`embedding` must have the same `padding_id`. Received: 0 and 4",
    ),
    "no table": (
        lambda: Transformer(embedding=keras.layers.Embedding(5, 8)),
        "`embedding` must be a TokenEmbedding. Received: <Embedding",
    ),
    "a decoder's block": (
        lambda: Transformer(VOCAB, encoder_block=DecoderBlock(2, 8)),
        "`encoder_block` must be an EncoderBlock. Received: <DecoderBlock",
    ),
    "a set": (
        lambda: Transformer(VOCAB, decoder_block=DecoderBlock(2, 8, causal=False)),
        "`decoder_block` must be causal. Received: one with causal=False",
    ),
    "positions by name": (
        lambda: Transformer(VOCAB, positions="learned"),
        "`positions` must be one of 'sinusoidal' or a Layer. Received: 'learned'",
    ),
    "positions of the query": (
        lambda: Transformer(VOCAB, positions=ShawRelativePosition()),
        "`positions` must be a layer that takes `positions`, or a term.*Received: ShawRelative",
    ),
    "turned positions": (
        lambda: Transformer(VOCAB, positions=RotaryEmbedding()),
        "any other term is the `position` of a mixer. Received: RotaryEmbedding",
    ),
    "twice as wide": (
        lambda: with_weights(t5_like(positions=PositionalEncoding(combine="concat"))),
        "`positions` must be a layer that keeps the width. Received: PositionalEncoding",
    ),
    "no heads": (
        lambda: with_weights(
            Transformer(
                VOCAB,
                positions=BIASES[0],
                encoder_block=EncoderBlock(None, 8, mixer=FourierMixing()),
            )
        ),
        "`positions` must be no bias for the blocks, for a FourierMixing has no heads",
    ),
    "a keyword of the table": (
        lambda: Transformer.from_variant("tiny", embedding=TokenEmbedding(5, 8), padding_id=3),
        "`padding_id` must be left out beside `embedding`, which has its own.*padding_id=3",
    ),
    "a keyword of blocks": (
        lambda: Transformer.from_variant(
            "tiny", VOCAB, encoder_block=EncoderBlock(2, 8), norm_first=True
        ),
        "`norm_first` must be left out beside `encoder_block`, which has its own",
    ),
    "an unknown keyword": (
        lambda: Transformer.from_variant("tiny", VOCAB, pre_layer=True),
        "Transformer.from_variant: `pre_layer` is no argument. Received: pre_layer=True",
    ),
    "another's word": (
        lambda: Transformer.from_variant("tiny", VOCAB, attn_dropout=0.1),
        "Transformer.from_variant: `attn_dropout` is called `attention_dropout` here",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_errors_name_what_was_expected_and_received(kind):
    make, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------------------ written models


def marian_like(**changes):
    settings = {
        "hidden_dim": WIDTH, "num_heads": HEADS, "mlp_dim": HIDDEN, "num_layers": 1,
        "positions": "halves", "norm_epsilon": 1e-5, "logits_bias": True, **changes,
    }  # fmt: skip
    model = models.Transformer.from_variant("base", VOCAB, **settings)
    model.build(SHAPES)
    return model


def test_what_is_written_as_published_is_read_from_the_parts(tmp_path):
    pretrained.save(marian_like(num_decoder_layers=2, attention_dropout=0.25), tmp_path)
    loaded = pretrained.load(tmp_path)
    assert len(loaded.encoder_blocks) == 1 and len(loaded.decoder_blocks) == 2
    assert loaded.decoder_blocks[1].cross_attention.dropout == 0.25
    other = SelfAttention(HEADS, position=RotaryEmbedding(), key_dim=6)
    for changes, message in (
        ({"encoder_mixer": other}, r"encoder_blocks\[0\].mixer.key_dim=None. Received: 6"),
        ({"positions": "sinusoidal"}, "source_positions.layout='halves'. Received: 'pairs'"),
        ({"norm_first": True}, "norm_first=False. Received: True"),
        ({"norm_epsilon": 1e-6}, "norm.epsilon=1e-05. Received: 1e-06"),
        ({"logits_bias": False}, "logits_bias=True. Received: False"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrained.save(marian_like(**changes), tmp_path, family="marian")
