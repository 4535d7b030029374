"""Claims about decoding with a model: the cache, prompts, limits, and what gets compiled."""

import contextlib
import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import BeamSearch, Greedy, generate, length_penalty
from keras_transformers.models import Transformer
from tests.contract import compiled, to_numpy

VOCAB, BATCH, START, END, LENGTH = 13, 3, 1, 2, 7
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (BATCH, 5)).astype("int32")
SOURCE[1, 3:] = 0
PROMPT = np.array([[4, 9], [7, 0], [0, 0]])
BEAM = BeamSearch(3, length_penalty=0.6, n_best=3)


def make(norm_first=True, seed=38):
    """A random model, with weights so large that what it chooses depends on what it reads."""
    model = Transformer(
        VOCAB, hidden_dim=22, num_heads=2, mlp_dim=17, num_layers=2, norm_first=norm_first
    )
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(seed)

    def value(weight):
        noise = rng.normal(size=weight.shape)
        if weight.path.endswith(("beta", "bias", "gamma")):
            return noise / 10 + weight.path.endswith("gamma")
        return noise * (0.4 if weight.path.endswith("embedding") else 0.6)

    model.set_weights([value(weight) for weight in model.weights])
    return model


@functools.cache
def shared_model(norm_first=True):
    """One model for the tests that leave it as it is, so that each search compiles once."""
    return make(norm_first, seed=38 if norm_first else 30)  # seeds whose outputs are not dull


@functools.cache
def whole_pass(norm_first=True):
    """Log-probabilities of all next tokens, by one pass over the whole target: no cache."""
    model = compiled(shared_model(norm_first))

    def log_probabilities(source, tokens):
        tokens = np.asarray(tokens)
        target = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        inputs = {"source": source, "target": target.astype("int32")}
        logits = model(keras.tree.map_structure(ops.convert_to_tensor, inputs))
        return to_numpy(ops.log_softmax(logits, axis=-1))

    return log_probabilities


def score(log_probabilities, tokens):
    """Log-probability of each row of `tokens` up to END."""
    chosen = np.take_along_axis(log_probabilities, tokens[..., None], axis=-1)[..., 0]
    return np.sum(np.where(tokens != 0, chosen, 0), axis=-1)


def eager_loops(eager=True):
    """Makes loops call their Python bodies once a turn, as TensorFlow does by itself."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.disable_jit(eager)
    return contextlib.nullcontext()


def uncached(norm_first, search, source, max_length):
    """The same search over steps that run the whole model anew."""
    log_probabilities = whole_pass(norm_first)
    beams, rows = search.beams, np.repeat(source, search.beams, axis=0)

    def step(ids, index, state):
        place = int(index)
        tokens = to_numpy(state["tokens"]).reshape(-1, max_length)
        if place:  # what the search chose last
            tokens[:, place - 1] = to_numpy(ids).reshape(-1)
        with eager_loops(False):
            logits = log_probabilities(rows, tokens)[:, place]
        state = {"tokens": ops.convert_to_tensor(tokens.reshape(-1, beams, max_length))}
        return ops.convert_to_tensor(logits.reshape(-1, beams, VOCAB)), state

    state = {"tokens": ops.zeros((len(source), beams, max_length), "int32")}
    forced = ops.zeros((len(source), max_length), "int32")
    with eager_loops():
        result = search(step, state, forced, START, END)
    return to_numpy(result)


# ------------------------------------------------------------------------ cache and scores


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_decoding_with_the_cache_is_decoding_without_token_for_token(norm_first, search):
    model = shared_model(norm_first)
    received = generate(model, SOURCE, search=search, max_length=LENGTH)
    expected = uncached(norm_first, search, SOURCE, LENGTH)
    np.testing.assert_array_equal(received["tokens"], expected["tokens"])
    np.testing.assert_array_equal(received["lengths"], expected["lengths"])
    np.testing.assert_allclose(received["scores"], expected["scores"], atol=1e-4)
    assert len(np.unique(received["tokens"])) > 3  # see `shared_model`


@pytest.mark.parametrize("prompt", [None, PROMPT], ids=["free", "prompted"])
def test_scores_are_the_log_probabilities_that_the_model_gives_by_teacher_forcing(prompt):
    greedy = generate(shared_model(), SOURCE, prompt, max_length=LENGTH)
    expected = score(whole_pass()(SOURCE, greedy["tokens"]), greedy["tokens"])
    np.testing.assert_allclose(greedy["scores"], expected, atol=1e-4)
    beam = generate(shared_model(), SOURCE, prompt, BEAM, max_length=LENGTH)
    for place in range(3):
        tokens, scores = beam["tokens"][:, place], beam["scores"][:, place]
        real = scores > -1e8  # a prompt up to the end leaves no second sequence
        expected = score(whole_pass()(SOURCE, tokens), tokens)
        penalty = ops.convert_to_numpy(length_penalty(beam["lengths"][:, place], 0.6))
        np.testing.assert_allclose(scores[real], (expected / penalty)[real], atol=1e-4)


def test_greedy_takes_the_most_probable_token_of_the_whole_pass():
    tokens = generate(shared_model(), SOURCE, max_length=LENGTH)["tokens"]
    log_probabilities = whole_pass()(SOURCE, tokens)
    log_probabilities[..., 0] = -np.inf  # padding is no token
    best = np.argmax(log_probabilities, axis=-1)
    np.testing.assert_array_equal(tokens, np.where(tokens != 0, best, 0))


# ------------------------------------------------------------------------------ properties


def test_a_beam_of_one_is_greedy():
    greedy = generate(shared_model(), SOURCE, max_length=LENGTH)
    beam = generate(shared_model(), SOURCE, search=BeamSearch(1, 0.0), max_length=LENGTH)
    np.testing.assert_array_equal(beam["tokens"], greedy["tokens"])
    np.testing.assert_allclose(beam["scores"], greedy["scores"], rtol=1e-5)


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
def test_neither_padding_nor_the_rest_of_the_batch_changes_a_translation(search):
    whole = generate(shared_model(), SOURCE, search=search, max_length=LENGTH)
    alone = generate(shared_model(), SOURCE[1:2, :3], search=search, max_length=LENGTH)
    np.testing.assert_array_equal(alone["tokens"][0], whole["tokens"][1])
    np.testing.assert_allclose(alone["scores"][0], whole["scores"][1], atol=1e-4)


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
def test_outputs_begin_with_their_prompts(search):
    result = generate(shared_model(), SOURCE, PROMPT, search, max_length=LENGTH)
    tokens = result["tokens"].reshape(BATCH, -1, LENGTH)
    assert np.all(tokens[0, :, :2] == [4, 9])
    assert np.all(tokens[1, :, 0] == 7)
    free = generate(shared_model(), SOURCE, search=search, max_length=LENGTH)
    np.testing.assert_array_equal(result["tokens"][2], free["tokens"][2])


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
def test_tokens_stop_at_the_end_or_at_the_limit(search):
    result = generate(shared_model(), SOURCE, search=search, max_length=LENGTH)
    assert result["tokens"].shape[-1] == LENGTH
    assert result["tokens"].dtype == result["lengths"].dtype == "int32"
    assert result["scores"].dtype == "float32"
    for tokens in result["tokens"].reshape(-1, LENGTH):
        length = np.count_nonzero(tokens)
        assert np.all(tokens[:length] != 0)
        assert length == LENGTH or tokens[length - 1] == END
        assert END not in tokens[: length - 1]
    np.testing.assert_array_equal(result["lengths"], np.count_nonzero(result["tokens"], axis=-1))


def test_the_limit_is_twice_the_source_and_ten_unless_told_otherwise():
    assert generate(shared_model(), SOURCE)["tokens"].shape == (BATCH, 2 * SOURCE.shape[1] + 10)


# ----------------------------------------------------------------- compiled once, never stale


def test_a_second_call_compiles_nothing():
    model, traces = make(), []
    step = model.decode_step

    def counted(*arguments):
        traces.append(None)
        return step(*arguments)

    model.decode_step = counted
    generate(model, SOURCE, max_length=LENGTH)
    once = len(traces)
    assert once > 0
    generate(model, SOURCE[::-1], max_length=LENGTH)
    generate(model, SOURCE, PROMPT, max_length=LENGTH)
    generate(model, SOURCE, search=Greedy(), max_length=LENGTH)
    assert len(traces) == once
    generate(model, SOURCE[:, :4], max_length=LENGTH)  # a new shape does compile
    assert len(traces) > once


def test_new_weights_are_seen_and_saving_still_works(tmp_path):
    model = make()
    before = generate(model, SOURCE, max_length=LENGTH)
    model.set_weights(make(seed=2).get_weights())
    after = generate(model, SOURCE, max_length=LENGTH)
    assert np.any(before["tokens"] != after["tokens"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = generate(loaded, SOURCE, max_length=LENGTH)
    np.testing.assert_array_equal(again["tokens"], after["tokens"])
    np.testing.assert_array_equal(again["scores"], after["scores"])


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("source", "prompt", "message"),
    [
        (SOURCE[0], None, r"`source` must be integer ids of shape.*int32 of shape \(5,\)"),
        (SOURCE / 1, None, "`source` must be integer ids.*float64"),
        (SOURCE, PROMPT[:2], r"`prompt` must be of shape \(3, at most 7\).*\(2, 2\)"),
        (SOURCE, PROMPT[0], r"`prompt` must be of shape.*\(2,\)"),
        (SOURCE, np.ones((BATCH, LENGTH + 1), int), r"`prompt` must be of shape.*\(3, 8\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(source, prompt, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(shared_model(), source, prompt, max_length=LENGTH)
