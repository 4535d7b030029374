"""Claims about the cache: it changes no token and no score, and takes the memory that is said."""

import contextlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Greedy,
    Request,
    decode,
    generate,
    length_penalty,
)
from keras_transformers.models import Transformer
from tests.contract import to_numpy
from tests.generation.model import (
    BEAM,
    END,
    LENGTH,
    PROMPT,
    SOURCE,
    START,
    VOCAB,
    Decoder,
    score,
    shared_model,
    whole_pass,
)


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

    def step(ids, index, state, shared, back_pointers):
        position = int(index)
        tokens = to_numpy(state["tokens"])
        if back_pointers is not None:
            tokens = np.take_along_axis(tokens, to_numpy(back_pointers.parents)[..., None], axis=1)
        tokens = tokens.reshape(-1, max_length)
        if position:  # what the search chose last
            tokens[:, position - 1] = to_numpy(ids).reshape(-1)
        with eager_loops(False):
            logits = log_probabilities(rows, tokens)[:, position]
        state = {"tokens": ops.convert_to_tensor(tokens.reshape(-1, beams, max_length))}
        return ops.convert_to_tensor(logits.reshape(-1, beams, VOCAB)), state

    state = {"tokens": ops.zeros((len(source), beams, max_length), "int32")}
    forced = ops.zeros((len(source), max_length), "int32")
    with eager_loops():
        result = search(step, state, Request(forced, START, END))
    return to_numpy(result)


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
    options = {"max_length": LENGTH, "prompt_scores": True}
    greedy = generate(shared_model(), SOURCE, prompt, **options)
    expected = score(whole_pass()(SOURCE, greedy["tokens"]), greedy["tokens"])
    np.testing.assert_allclose(greedy["scores"], expected, atol=1e-4)
    beam = generate(shared_model(), SOURCE, prompt, BEAM, **options)
    for position in range(3):
        tokens, scores = beam["tokens"][:, position], beam["scores"][:, position]
        real = scores > -1e8  # a prompt up to the end leaves no second sequence
        expected = score(whole_pass()(SOURCE, tokens), tokens)
        penalty = ops.convert_to_numpy(length_penalty(beam["lengths"][:, position], 0.6))
        np.testing.assert_allclose(scores[real], (expected / penalty)[real], atol=1e-4)


@pytest.mark.parametrize("dtype, search", [("bfloat16", Greedy()), ("int8", BEAM)])
def test_a_cache_in_fewer_bits_changes_scores_by_its_rounding_only(dtype, search):
    found = generate(shared_model(), SOURCE, search=search, max_length=LENGTH, cache_dtype=dtype)
    tokens, scores = found["tokens"], found["scores"]
    if search is BEAM:
        tokens, scores = tokens[:, 0], found["log_probabilities"][:, 0]
    np.testing.assert_allclose(scores, score(whole_pass()(SOURCE, tokens), tokens), atol=0.1)


def test_a_cache_is_held_in_no_other_type():
    with pytest.raises(ValueError, match=r"`cache_dtype` must be None or one of .* 'int4'"):
        generate(shared_model(), SOURCE, max_length=LENGTH, cache_dtype="int4")


def test_greedy_takes_the_most_probable_token_of_the_whole_pass():
    tokens = generate(shared_model(), SOURCE, max_length=LENGTH)["tokens"]
    log_probabilities = whole_pass()(SOURCE, tokens)
    log_probabilities[..., 0] = -np.inf  # padding is no token
    best = np.argmax(log_probabilities, axis=-1)
    np.testing.assert_array_equal(tokens, np.where(tokens != 0, best, 0))


# ---------------------------------------------------------------------- decoder-only models


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
def test_a_decoder_only_model_continues_its_prompts(search):
    model = Decoder()
    model(np.ones((1, 3), "int32"))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape) * 0.6 for weight in model.weights])
    options = {"max_length": LENGTH, "prompt_scores": True}
    result = generate(model, prompt=PROMPT[:2], search=search, **options)
    assert np.all(result["tokens"].reshape(2, -1, LENGTH)[0, :, :2] == [4, 9])
    tokens = result["tokens"].reshape(2, -1, LENGTH)[:, 0]
    target = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    expected = score(to_numpy(ops.log_softmax(model(target))), tokens)
    name = "scores" if search == Greedy() else "log_probabilities"
    np.testing.assert_allclose(result[name].reshape(2, -1)[:, 0], expected, atol=1e-4)


# ---------------------------------------------------------------------------------- memory


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX tells what memory XLA takes")
@pytest.mark.parametrize("beams", [1, 4])
def test_the_caches_take_the_memory_that_their_formula_says(beams):
    import jax

    model = Transformer(VOCAB, hidden_dim=64, num_heads=2, mlp_dim=64, num_layers=2)
    model.build({"source": (None, None), "target": (None, None)})
    search = Greedy() if beams == 1 else BeamSearch(beams)
    batch, source_length = 8, 16

    def temporaries(max_length):
        def run(source, forced):
            return decode(model, source, search, Request(forced, START, END))

        ids = (np.ones((batch, size), "int32") for size in (source_length, max_length))
        return jax.jit(run).lower(*ids).compile().memory_analysis().temp_size_in_bytes

    def formula(max_length):
        heads, dims = 2, 32 + 32
        return 2 * 4 * batch * heads * dims * (beams * max_length + source_length)

    grown = temporaries(1024) - temporaries(256)
    assert grown == pytest.approx(formula(1024) - formula(256), rel=0.25)
