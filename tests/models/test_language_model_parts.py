"""Claims about language models of parts: blocks in turn, heads with a table or a cap."""

import keras
import numpy as np
import pytest

from keras_transformers.generation import BeamSearch, generate
from keras_transformers.layers import DecoderBlock, EncoderBlock
from keras_transformers.models import LanguageHead, LanguageModel, TextEmbedding, TextEncoder
from keras_transformers.precision import in_precision
from keras_transformers.training import LinearCrossEntropy, SmoothedCrossEntropy
from tests.contract import assert_close, randomised, to_numpy
from tests.writers import writer_of_all_parts

IDS = np.random.default_rng(0).integers(3, 31, (3, 11)).astype("int32")


@pytest.fixture(scope="module")
def writer():
    keras.utils.set_random_seed(1)
    return randomised(writer_of_all_parts(), (None, None))


def test_blocks_are_copies_of_the_given_ones_in_turn():
    given = [DecoderBlock(2, 13, norm_first=True), DecoderBlock(4, 11, norm_first=True)]
    model = LanguageModel(num_layers=4, block=given, embedding=TextEmbedding(31, 12, 9))
    model.build((None, None))
    assert [block.mlp_dim for block in model.decoder_blocks] == [13, 11, 13, 11]
    again = LanguageModel.from_config(model.get_config())
    assert [block.mlp_dim for block in again.decoder_blocks] == [13, 11, 13, 11]
    encoder = TextEncoder(
        num_layers=2,
        block=[EncoderBlock(2, 13), EncoderBlock(2, 11)],
        embedding=TextEmbedding(31, 12, 9),
    )
    assert [block.mlp_dim for block in encoder.encoder_blocks] == [13, 11]
    with pytest.raises(ValueError, match="`block` must be one, or as many as divide num_layers=4"):
        LanguageModel(num_layers=4, block=given + given[:1], embedding=TextEmbedding(31, 12, 9))


def test_a_cap_bends_the_logits_of_the_heads_table(writer):
    plain = writer_of_all_parts(soft_cap=None)
    plain.build((None, None))
    plain.set_weights(writer.get_weights())
    logits, expected = to_numpy(writer(IDS)), to_numpy(plain(IDS))
    assert np.abs(logits).max() <= 4 < np.abs(expected).max()
    assert_close(logits, 4 * np.tanh(expected / 4), 1e-5)


def test_it_is_saved_with_all_its_parts(writer, tmp_path):
    writer.save(tmp_path / "x.keras")
    again = keras.models.load_model(tmp_path / "x.keras")
    np.testing.assert_array_equal(to_numpy(again(IDS)), to_numpy(writer(IDS)))


def test_scores_of_tokens_one_by_one_are_those_of_one_pass(writer):
    """So what was cached of windows, norms and turned keys equals what was not."""
    given = {"prompt": IDS[:, :4], "start_id": None, "max_length": 13, "end_id": 2}
    found = generate(writer, **given, search=BeamSearch(3))
    for tokens, score in zip(found["tokens"], found["log_probabilities"], strict=True):
        logits = to_numpy(writer(np.array(tokens)[None]))[0].astype("float64")
        scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        written = [i for i in range(4, 13) if tokens[i] != 0]
        expected = sum(scores[i - 1, tokens[i]] for i in written)
        assert score == pytest.approx(expected, abs=1e-4)


def test_log_probabilities_are_by_the_logits_that_the_model_gives(writer):
    """Which its cap has bent."""
    logits = to_numpy(writer(IDS[:, :-1])).astype("float64")
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.take_along_axis(expected, IDS[:, 1:, None], -1)[..., 0]
    assert_close(to_numpy(writer.log_probabilities(IDS)), expected, 1e-4)


def test_a_capped_model_trains_with_the_loss_that_makes_no_logits():
    """Which falls back to logits: the cap stands between them and the table."""
    losses = []
    for loss in (LinearCrossEntropy(0.0), SmoothedCrossEntropy(0.0)):
        keras.utils.set_random_seed(2)
        model = writer_of_all_parts()
        model.compile("sgd", loss, run_eagerly=True)
        losses.append(model.evaluate(IDS[:, :-1], IDS[:, 1:], verbose=0))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_it_writes_in_fewer_bits(writer):
    copy = in_precision(writer, "int8")
    assert {str(copy.token_embedding.weights[i].dtype) for i in (0, 2)} == {"int8"}  # both tables
    assert_close(to_numpy(copy(IDS)), to_numpy(writer(IDS)), 0.5)


def test_a_cap_must_be_positive():
    with pytest.raises(ValueError, match="`soft_cap` must be positive. Received: -1"):
        LanguageHead(-1)
