"""Claims about the encoder-decoder Transformer."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    CausalSelfAttention,
    ConvolutionMixing,
    RotaryEmbedding,
    SelfAttention,
)
from keras_transformers.models import Transformer
from keras_transformers.training import SmoothedCrossEntropy
from tests.contract import POLICIES, assert_close, check_layer, to_numpy

VOCAB, TARGET_VOCAB, WIDTH, HEADS, HIDDEN, BATCH = 31, 37, 22, 2, 13, 3
SIZES = {"hidden_dim": WIDTH, "num_heads": HEADS, "mlp_dim": HIDDEN, "num_layers": 1}
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (BATCH, 7)).astype("int32")
TARGET = RNG.integers(3, VOCAB, (BATCH, 5)).astype("int32")
SOURCE[1, 4:], TARGET[2, 3:] = 0, 0
INPUTS = {"source": SOURCE, "target": TARGET}
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def make(norm_first=False, **settings):
    """A model that is built and whose weights, biases and norms included, are all random."""
    settings = {**SIZES, "norm_first": norm_first, **settings}
    model = Transformer.from_variant("base", VOCAB, **settings)
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=weight.shape) / 3 for weight in model.get_weights()])
    return model


def call(model, source, target, **others):
    inputs = {"source": np.asarray(source), "target": np.asarray(target), **others}
    return to_numpy(model(inputs, training=False))


# --------------------------------------------------------------------- contract and sizes


@pytest.mark.parametrize(
    ("settings", "policies"),
    [
        ({}, POLICIES),
        (
            {
                "norm_first": True,
                "target_vocab_size": TARGET_VOCAB,
                "num_layers": 2,
                "num_decoder_layers": 1,
                "attention_dropout": 0.1,
                "activation": "gelu",
            },
            {},  # checking them all once more takes long
        ),
    ],
    ids=["post-norm", "every setting"],
)
def test_contract(settings, policies):
    def make_model(**kwargs):
        return Transformer.from_variant("base", VOCAB, **{**SIZES, **settings}, **kwargs)

    check_layer(make_model, (INPUTS,), policies=policies)


def parameters(vocab_size, hidden_dim, mlp_dim, num_layers, norm_first=False, **_):
    """Counts the weights of the paper's equations, with biases, norms and one tied table."""
    attention = 4 * (hidden_dim**2 + hidden_dim)
    feed_forward = 2 * hidden_dim * mlp_dim + mlp_dim + hidden_dim
    norm = 2 * hidden_dim
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    closing = 2 * norm if norm_first else 0
    return vocab_size * hidden_dim + num_layers * (encoder + decoder) + closing


@NORM_FIRST
@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_number_of_parameters_is_that_of_the_formula(num_layers, norm_first):
    model = make(norm_first, num_layers=num_layers)
    assert model.count_params() == parameters(VOCAB, WIDTH, HIDDEN, num_layers, norm_first)


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_variants_have_the_size_that_the_paper_reports(name, millions):
    config = Transformer.from_variant(name, 37_000).get_config()  # nothing is allocated
    # Table 3 of Vaswani et al. 2017.
    assert parameters(**config) == pytest.approx(millions * 1e6, rel=0.04)
    layers, width, heads, hidden, dropout = {
        "base": (6, 512, 8, 2048, 0.1),
        "big": (6, 1024, 16, 4096, 0.3),
    }[name]
    assert (config["num_layers"], config["hidden_dim"]) == (layers, width)
    assert (config["num_heads"], config["mlp_dim"]) == (heads, hidden)
    assert config["dropout"] == dropout


def test_a_variant_can_be_changed():
    model = Transformer.from_variant("tiny", VOCAB, dropout=0.4, norm_first=True)
    assert model.get_config()["dropout"] == 0.4
    assert model.get_config()["hidden_dim"] == 128
    model.build({"source": (None, None), "target": (None, None)})
    sizes = {"hidden_dim": 128, "mlp_dim": 512, "num_layers": 2}
    assert model.count_params() == parameters(VOCAB, **sizes, norm_first=True)


# ----------------------------------------------------------------------------- properties


@NORM_FIRST
def test_padding_adds_nothing(norm_first):
    model = make(norm_first)
    padded = call(model, np.pad(SOURCE, ((0, 0), (0, 4))), np.pad(TARGET, ((0, 0), (0, 3))))
    assert_close(padded[:, : TARGET.shape[1]], call(model, SOURCE, TARGET), 1e-6)


@pytest.mark.parametrize("padding_id", [VOCAB - 1, -1])
def test_padding_can_be_any_id(padding_id):
    """The same numbers, whatever id stands for padding; a negative one is no token's."""
    settings = {"logits_bias": True, "positions": "halves", "scale_embedding": False}
    model, other = make(**settings), make(padding_id=padding_id, **settings)
    inputs = [np.minimum(ids, VOCAB - 2) for ids in (SOURCE, TARGET)]
    source, target = (np.where(ids == 0, padding_id, ids) for ids in inputs)
    # The third target is padded, and what stands there may be anything.
    assert_close(call(other, source, target)[:2], call(model, *inputs)[:2], 1e-6)
    padded = np.pad(source, ((0, 0), (0, 4)), constant_values=padding_id)
    assert_close(call(other, padded, target), call(other, source, target), 1e-6)


def test_a_bias_of_the_logits_is_added():
    model = make(logits_bias=True)
    variable = model.target_embedding.bias
    expected, bias = call(model, SOURCE, TARGET), to_numpy(variable)
    variable.assign(np.zeros(VOCAB))
    assert_close(call(model, SOURCE, TARGET) + bias, expected, 1e-5)


@NORM_FIRST
def test_a_batch_of_one_is_a_batch_of_many(norm_first):
    model = make(norm_first)
    whole = call(model, SOURCE, TARGET)
    for row in range(BATCH):
        one = slice(row, row + 1)
        assert_close(call(model, SOURCE[one], TARGET[one]), whole[one], 1e-5)
        words = SOURCE[one][:, SOURCE[row] != 0]  # without any padding
        assert_close(call(model, words, TARGET[one]), whole[one], 1e-5)


@NORM_FIRST
@given(cut=st.integers(1, TARGET.shape[1] - 1))
def test_later_target_tokens_cannot_alter_earlier_logits_by_a_single_bit(norm_first, cut):
    model, changed = make(norm_first), TARGET.copy()
    changed[:, cut:] = (changed[:, cut:] + 11) % VOCAB
    before, after = call(model, SOURCE, TARGET), call(model, SOURCE, changed)
    np.testing.assert_array_equal(after[:, :cut], before[:, :cut])
    assert np.any(after[:, cut:] != before[:, cut:])


@NORM_FIRST
def test_pairs_packed_into_one_row_do_not_see_each_other(norm_first):
    model = make(norm_first)
    pairs = [([5, 9, 4], [7, 3]), ([11, 6], [8, 13, 20])]
    row = {"source": [], "target": [], "source_segments": [], "target_segments": []}
    for number, pair in enumerate(pairs, 1):
        for side, ids in zip(("source", "target"), pair, strict=True):
            row[side] += ids
            row[f"{side}_segments"] += [number] * len(ids)
    row = {name: np.array([ids + [0, 0]]) for name, ids in row.items()}  # and padding
    packed, start = call(model, **row)[0], 0
    for source, target in pairs:
        expected = call(model, [source], [target])[0]
        assert_close(packed[start : start + len(target)], expected, 1e-5)
        start += len(target)
    assert np.isfinite(packed).all()


def test_source_and_target_may_have_vocabularies_of_their_own():
    shared, separate = make(), make(target_vocab_size=TARGET_VOCAB)
    assert call(shared, SOURCE, TARGET).shape == (*TARGET.shape, VOCAB)
    assert call(separate, SOURCE, TARGET).shape == (*TARGET.shape, TARGET_VOCAB)
    assert separate.count_params() == shared.count_params() + TARGET_VOCAB * WIDTH
    assert shared.source_embedding is shared.target_embedding
    assert np.isfinite(call(separate, SOURCE, np.full((BATCH, 1), TARGET_VOCAB - 1))).all()


@NORM_FIRST
def test_decoding_step_by_step_gives_the_logits_of_the_whole(norm_first):
    model, beams = make(norm_first, num_layers=2), 2
    targets = RNG.integers(3, VOCAB, (BATCH, beams, 5)).astype("int32")
    whole = call(model, np.repeat(SOURCE, beams, 0), targets.reshape(-1, 5))
    whole = whole.reshape(BATCH, beams, 5, VOCAB)
    state, shared = model.start_decoding(ops.convert_to_tensor(SOURCE), beams, max_length=7)
    for index in range(5):
        ids = ops.convert_to_tensor(targets[:, :, index])
        logits, state = model.decode_step(ids, index, state, shared)
        assert_close(logits, whole[:, :, index], 1e-5)


# ------------------------------------------------------------------------------- training


@pytest.mark.slow
@NORM_FIRST
def test_it_can_learn_one_batch_by_heart(norm_first):
    model = Transformer.from_variant(
        "base",
        VOCAB,
        hidden_dim=32,
        num_heads=2,
        mlp_dim=64,
        num_layers=1,
        dropout=0.0,
        norm_first=norm_first,
    )
    loss = SmoothedCrossEntropy(label_smoothing=0.0)
    model.compile(keras.optimizers.Adam(3e-3), loss, jit_compile=True)
    labels = np.roll(TARGET, -1, axis=1) * (TARGET != 0)
    first = last = float(model.train_on_batch(INPUTS, labels))
    for _ in range(299):
        last = float(model.train_on_batch(INPUTS, labels))
        if last < first / 10:
            break
    assert last < first / 10


@pytest.mark.slow
def test_it_trains_in_mixed_precision():
    model = Transformer(VOCAB, **SIZES, dtype="mixed_float16")
    model.compile("adam", SmoothedCrossEntropy())  # compiling takes longer than what is tested
    assert np.isfinite(model.train_on_batch(INPUTS, TARGET))
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_dropout_acts_in_training_only():
    model = make(dropout=0.3)
    assert_close(model(INPUTS, training=False), model(INPUTS), 0)
    assert np.any(to_numpy(model(INPUTS, training=True)) != to_numpy(model(INPUTS)))


# --------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", ["vocab_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers"])
@pytest.mark.parametrize("size", [0, 1.5])
def test_sizes_that_are_not_positive_are_refused(name, size):
    with pytest.raises(ValueError, match=f"Transformer: `{name}` must be a positive.*: {size}"):
        Transformer(**{"vocab_size": VOCAB, **SIZES, name: size})


def test_errors_name_what_was_expected_and_received():
    with pytest.raises(ValueError, match="Transformer: `num_heads` must divide.*22.*num_heads=3"):
        Transformer(VOCAB, **{**SIZES, "num_heads": 3})
    with pytest.raises(ValueError, match="must be one of tiny, .*big. Received: 'huge'"):
        Transformer.from_variant("huge", VOCAB)
    with pytest.raises(ValueError, match=r"'source' and 'target'.*\['source'\]"):
        make()({"source": SOURCE})
    with pytest.raises(ValueError, match="both 'source_segments' and 'target_segments'.*Received"):
        make()({**INPUTS, "source_segments": SOURCE})


# --------------------------------------------------------------------------------- mixers


ROTARY = {
    "positions": None,
    "encoder_mixer": SelfAttention(HEADS, key_dim=6, position=RotaryEmbedding()),
    "decoder_mixer": CausalSelfAttention(
        HEADS, key_dim=6, position=RotaryEmbedding(), num_key_value_heads=1
    ),
}


def test_contract_with_mixers():
    def make_model(**kwargs):
        return Transformer.from_variant("base", VOCAB, **SIZES, **ROTARY, **kwargs)

    check_layer(make_model, (INPUTS,))


def test_with_rotary_positions_padding_adds_nothing_and_steps_give_the_whole():
    model = make(num_layers=2, **ROTARY)
    whole = call(model, SOURCE, TARGET)
    assert_close(call(model, np.pad(SOURCE, ((0, 0), (0, 4))), TARGET), whole, 1e-6)
    state, shared = model.start_decoding(ops.convert_to_tensor(SOURCE), 1, max_length=7)
    for index in range(TARGET.shape[1]):
        ids = ops.convert_to_tensor(TARGET[:, index : index + 1])
        logits, state = model.decode_step(ids, index, state, shared)
        assert_close(logits[:, 0], whole[:, index], 1e-5)


def test_a_convolution_can_be_the_encoders_mixer_with_padding_but_not_with_packed_rows():
    model = make(encoder_mixer=ConvolutionMixing(3, HEADS))
    whole = call(model, SOURCE, TARGET)
    assert_close(call(model, np.pad(SOURCE, ((0, 0), (0, 4))), TARGET), whole, 1e-6)
    with pytest.raises(ValueError, match="`attention_mask` must be left out, for Convolution"):
        call(model, SOURCE, TARGET, source_segments=SOURCE, target_segments=TARGET)
