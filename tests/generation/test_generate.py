"""Claims about decoding with a model: the cache, prompts, limits, and what gets compiled."""

import contextlib
import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Constraints,
    Greedy,
    Request,
    Sampling,
    coverage_penalty,
    decode,
    generate,
    generate_all,
    length_penalty,
)
from keras_transformers.inspection import attention_maps
from keras_transformers.layers import DecoderBlock, PositionalEncoding, TokenEmbedding
from keras_transformers.layers.attention.cache import visible_slots
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
    sizes = {"hidden_dim": 22, "num_heads": 2, "mlp_dim": 17, "num_layers": 2}
    model = Transformer.from_variant("base", VOCAB, **sizes, norm_first=norm_first)
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
    for position in range(3):
        tokens, scores = beam["tokens"][:, position], beam["scores"][:, position]
        real = scores > -1e8  # a prompt up to the end leaves no second sequence
        expected = score(whole_pass()(SOURCE, tokens), tokens)
        penalty = ops.convert_to_numpy(length_penalty(beam["lengths"][:, position], 0.6))
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


# ------------------------------------------------------------------- sampling and coverage


def test_a_seed_gives_the_same_tokens_and_compiles_nothing_new():
    model = shared_model()
    first = generate(model, SOURCE, search=Sampling(seed=1), max_length=LENGTH)
    number = len(model._generators)
    again = generate(model, SOURCE, search=Sampling(seed=1), max_length=LENGTH)
    other = generate(model, SOURCE, search=Sampling(seed=2), max_length=LENGTH)
    free = [generate(model, SOURCE, search=Sampling(), max_length=LENGTH) for _ in range(2)]
    assert len(model._generators) == number
    np.testing.assert_array_equal(again["tokens"], first["tokens"])
    assert np.any(other["tokens"] != first["tokens"])
    assert np.any(free[0]["tokens"] != free[1]["tokens"])
    expected = score(whole_pass()(SOURCE, first["tokens"]), first["tokens"])
    np.testing.assert_allclose(first["scores"], expected, atol=1e-4)


def test_the_coverage_penalty_counts_what_the_last_block_attends_to():
    search = BeamSearch(3, length_penalty=0.6, coverage_penalty=0.8, n_best=3)
    model = shared_model()
    result = generate(model, SOURCE, search=search, max_length=LENGTH)
    for position in range(3):
        tokens = result["tokens"][:, position]
        target = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        *_, last = attention_maps(
            model, {"source": SOURCE, "target": target}, match="cross_attention"
        ).values()
        attended = last.mean(axis=1) * (tokens != 0)[..., None]  # each chosen token's step
        covered = np.where(SOURCE != 0, attended.sum(axis=1), 1.0)
        lengths = result["lengths"][:, position]
        expected = score(whole_pass()(SOURCE, tokens), tokens)
        np.testing.assert_allclose(result["log_probabilities"][:, position], expected, atol=1e-4)
        expected = expected / ops.convert_to_numpy(length_penalty(lengths, 0.6))
        expected += ops.convert_to_numpy(coverage_penalty(covered, 0.8))
        np.testing.assert_allclose(result["scores"][:, position], expected, atol=1e-4)


# --------------------------------------------------------------- many sentences, any length


def sentences(number, longest, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, number)
    return [np.append(rng.integers(3, VOCAB, length - 1), END) for length in lengths]


@pytest.mark.parametrize(
    "search",
    [BeamSearch(2, n_best=2), Sampling(seed=3), Greedy(Constraints(max_ratio=0.6))],
    ids=["beam", "sampling", "constrained greedy"],
)
def test_any_number_of_sentences_come_back_in_order_as_each_gives_alone(search):
    sources = sentences(23, 11)
    lengths, options = (4, 8, 11), {"batch_size": 5, "max_length": 9, "verbose": 0}
    together = generate_all(shared_model(), sources, search, lengths, **options)
    assert together["lengths"].max() == together["tokens"].shape[-1]
    for number in (0, 7, 22):
        source = sources[number : number + 1]
        alone = generate_all(shared_model(), source, search, lengths, **options)
        size = alone["tokens"].shape[-1]
        if not isinstance(search, Sampling) or number == 0:  # each has its own random numbers
            received = together["tokens"][number, ..., :size]
            np.testing.assert_array_equal(received, alone["tokens"][0])
            np.testing.assert_allclose(together["scores"][number], alone["scores"][0], atol=1e-4)


def test_a_thousand_sentences_compile_once_for_each_bucket():
    model, traces = make(), []
    step = model.decode_step
    model.decode_step = lambda *arguments: traces.append(arguments[0].shape) or step(*arguments)
    generate_all(model, sentences(1000, 15), lengths=(8, 16), batch_size=64, verbose=0)
    number = len(traces)
    assert len(model._generators) == 2
    generate_all(model, sentences(50, 15, seed=1), lengths=(8, 16), batch_size=64, verbose=0)
    assert len(model._generators) == 2 and len(traces) == number


def test_stages_change_nothing_but_the_cost():
    sources, search = sentences(13, 8), BeamSearch(2)
    options = {"lengths": (8,), "batch_size": 8, "max_length": 9, "verbose": 0}
    whole = generate_all(shared_model(), sources, search, **options)
    halved = generate_all(shared_model(), sources, search, stages=3, **options)
    np.testing.assert_array_equal(halved["tokens"], whole["tokens"])
    np.testing.assert_allclose(halved["scores"], whole["scores"], atol=1e-4)


def test_no_sentence_gives_nothing():
    assert len(generate_all(shared_model(), [], verbose=0)["tokens"]) == 0


@pytest.mark.parametrize(
    ("sources", "lengths", "message"),
    [
        ([[3, 2], []], None, r"at least one integer id, .*Received: number 1, .*shape \(0,\)"),
        ([[3.5]], None, "number 0, float64"),
        ([[3, 0, 2]], None, r"number 0, int64 of shape \(3,\), with a 0"),
        ([[3] * 9], (4, 8), r"`lengths` must increase up to the longest source, 9.*\(4, 8\)"),
        ([[3]], (8, 8), r"`lengths` must increase.*\(8, 8\)"),
        ([[3], [VOCAB]], None, "ids of `sources` must be from 0 to 12. Received: 13"),
        ([[-2]], None, "ids of `sources` must be from 0 to 12. Received: -2"),
    ],
)
def test_sources_and_lengths_that_do_not_fit_are_refused(sources, lengths, message):
    with pytest.raises(ValueError, match=f"generate_all: .*{message}"):
        generate_all(shared_model(), sources, lengths=lengths, verbose=0)


# ---------------------------------------------------------------------- decoder-only models


class Decoder(keras.Model):
    """A decoder-only model with one block, as small as its interface allows."""

    def __init__(self):
        super().__init__()
        self.embedding = TokenEmbedding(VOCAB, 22)
        self.positions = PositionalEncoding()
        self.block = DecoderBlock(2, 17, norm_first=True)

    def call(self, ids):
        return self.embedding.logits(self.block(self.positions(self.embedding(ids))))

    def start_decoding(self, source, beams, max_length):
        return self.block.start_cache(ops.shape(source)[0], beams, max_length), None

    def decode_step(self, ids, index, state, shared, back_pointers):
        x = self.embedding(ids)
        x = self.positions(x, positions=ops.broadcast_to(index, ops.shape(ids)))
        slots = None if back_pointers is None else back_pointers.slots
        visible = visible_slots(index, state, ids.shape[1], slots)
        x, cache, _ = self.block.step(x, state, index, visible)
        return self.embedding.logits(x), cache


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
def test_a_decoder_only_model_continues_its_prompts(search):
    model = Decoder()
    model(np.ones((1, 3), "int32"))
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=weight.shape) * 0.6 for weight in model.weights])
    result = generate(model, prompt=PROMPT[:2], search=search, max_length=LENGTH)
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


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("source", "prompt", "message"),
    [
        (SOURCE[0], None, r"`source` must be integer ids of shape.*int32 of shape \(5,\)"),
        (SOURCE / 1, None, "`source` must be integer ids.*float64"),
        (SOURCE, PROMPT[:2], r"`prompt` must be .* of shape \(3, at most 7\).*\(2, 2\)"),
        (SOURCE, PROMPT[0], r"`prompt` must be integer ids of shape.*\(2,\)"),
        (SOURCE, np.ones((BATCH, LENGTH + 1), int), r"`prompt` must be .* of shape.*\(3, 8\)"),
        (SOURCE, np.int32(4), r"`prompt` must be integer ids of shape.*int32 of shape \(\)"),
        (SOURCE, PROMPT / 2, r"`prompt` must be integer ids.*float64 of shape \(3, 2\)"),
        (SOURCE, [[4], [4, 5], [4]], "`prompt` must be integer ids.*rows of different lengths"),
        (SOURCE + VOCAB, None, "ids of `source` must be from 0 to 12. Received: "),
        (-SOURCE, None, "ids of `source` must be from 0 to 12. Received: -"),
        (SOURCE, PROMPT + 9, "ids of `prompt` must be from 0 to 12. Received: 13"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(source, prompt, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(shared_model(), source, prompt, max_length=LENGTH)


@pytest.mark.parametrize("prompt", [5, [5, 6], [[[5]]], "a cat", [[5.5]]], ids=str)
def test_a_prompt_alone_is_checked_as_one_with_a_source(prompt):
    with pytest.raises(ValueError, match="generate: `prompt` must be integer ids of shape .batch"):
        generate(Decoder(), prompt=prompt, max_length=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "`max_length` must be at least 1. Received: 0"),
        ({"start_id": VOCAB}, f"ids of `start_id` must be from 0 to {VOCAB - 1}"),
        ({"start_id": -3}, f"ids of `start_id` must be from 0 to {VOCAB - 1}"),
    ],
)
def test_limits_and_marks_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(shared_model(), SOURCE, **options)
    with pytest.raises(ValueError, match=f"generate_all: {message}"):
        generate_all(shared_model(), [[3, 4]], verbose=0, **options)


def test_lengths_relative_to_a_source_need_one():
    search = Greedy(Constraints(max_ratio=2.0))
    with pytest.raises(ValueError, match="without `source`, `min_ratio` and `max_ratio`"):
        generate(Decoder(), prompt=PROMPT, search=search, max_length=LENGTH)
