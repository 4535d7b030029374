"""Claims about `generate`: prompts, limits, what is compiled, and what is refused."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import (
    BeamSearch,
    Boundaries,
    Constraints,
    Greedy,
    Request,
    Sampling,
    Speculative,
    coverage_penalty,
    decode,
    generate,
    generate_all,
    length_penalty,
)
from keras_transformers.inspection import attention_maps
from keras_transformers.layers import PositionEmbedding
from keras_transformers.models import LanguageModel, RecurrentTranslator, Transformer
from tests.generation.model import (
    BATCH,
    BEAM,
    END,
    LENGTH,
    PROMPT,
    SOURCE,
    START,
    VOCAB,
    Decoder,
    make,
    score,
    shared_model,
    whole_pass,
)
from tests.slow import slow_except


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


# ------------------------------------------------------------------------- END in a prompt

PROMPT_WITH_END = np.array([[END, 5, 6], [4, END, 0], [4, END, END]])
PROMPT_SIZES = (3, 2, 3)


def greedy_by_whole_passes(prompt, length):
    """Greedy search without a cache: the whole target once more for each token."""
    rows = []
    for source, row in zip(SOURCE, prompt, strict=True):
        tokens = [token for token in row if token]
        while len(tokens) < length:
            padded = np.array([tokens + [0] * (length - len(tokens))])
            following = whole_pass()(source[None], padded)[0, len(tokens)]
            tokens.append(1 + int(np.argmax(following[1:])))  # padding is never chosen
            if tokens[-1] == END:
                break
        rows.append(tokens + [0] * (length - len(tokens)))
    return rows


@pytest.mark.parametrize(
    "search",
    [Greedy(), BEAM, BeamSearch(3, 1.0, normalization="length"), Sampling(seed=2)],
    ids=["greedy", "beam", "beam of transformers", "sampling"],
)
def test_a_prompt_with_end_is_continued(search):
    result = generate(shared_model(), SOURCE, PROMPT_WITH_END, search, max_length=LENGTH)
    several = result["tokens"].reshape(BATCH, -1, LENGTH).swapaxes(0, 1)
    for tokens in several:
        for row, prompt, size in zip(tokens, PROMPT_WITH_END, PROMPT_SIZES, strict=True):
            assert row[:size].tolist() == prompt[:size].tolist()
            rest = row[size:][row[size:] != 0]
            assert len(rest) and END not in rest[:-1]
            assert len(rest) == LENGTH - size or rest[-1] == END
    if isinstance(search, Greedy):
        expected = greedy_by_whole_passes(PROMPT_WITH_END, LENGTH)
        np.testing.assert_array_equal(result["tokens"], expected)
    chosen = np.arange(LENGTH) >= np.array(PROMPT_SIZES)[:, None]
    name = "log_probabilities" if isinstance(search, BeamSearch) else "scores"
    received = result[name].reshape(BATCH, -1).swapaxes(0, 1)
    for tokens, scores in zip(several, received, strict=True):
        logp = np.take_along_axis(whole_pass()(SOURCE, tokens), tokens[..., None], axis=-1)[..., 0]
        expected = np.sum(np.where(chosen & (tokens != 0), logp, 0), axis=-1)
        np.testing.assert_allclose(scores, expected, atol=1e-4)


# ------------------------------------------------------------------ padding before a source


@pytest.mark.parametrize("search", [Greedy(), BEAM], ids=["greedy", "beam"])
@pytest.mark.parametrize("kind", ["transformer", "recurrent"])
def test_padding_before_a_source_is_as_padding_behind_it(kind, search):
    model = shared_model()
    if kind == "recurrent":
        model = RecurrentTranslator(VOCAB, embedding_dim=12, hidden_dim=16)
    left = np.stack([np.roll(row, np.sum(row == 0)) for row in SOURCE])
    assert np.any(left != SOURCE)
    behind, before = (
        generate(model, ids, search=search, max_length=LENGTH) for ids in (SOURCE, left)
    )
    for name, value in behind.items():
        np.testing.assert_array_equal(before[name], value)


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
        ({"max_length": 0}, "`max_length` must be an integer of at least 1. Received: 0"),
        ({"start_id": VOCAB}, f"ids of `start_id` must be from 0 to {VOCAB - 1}"),
        ({"start_id": -3}, f"ids of `start_id` must be from 0 to {VOCAB - 1}"),
    ],
)
def test_limits_and_marks_that_mean_nothing_are_refused(options, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(shared_model(), SOURCE, **options)
    with pytest.raises(ValueError, match=f"generate_all: {message}"):
        generate_all(shared_model(), [[3, 4]], verbose=0, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end_id": VOCAB}, f"`end_id` must be from 0 to {VOCAB - 1} and not padding, 0. .*: 13"),
        ({"end_id": -1}, "`end_id` must be from 0 to 12 and not padding, 0. Received: -1"),
        ({"end_id": 0}, "`end_id` must be from 0 to 12 and not padding, 0. Received: 0"),
        ({"end_id": 2.5}, "`end_id` must be from 0 to 12 and not padding, 0. Received: 2.5"),
        ({"search": Greedy(Constraints(boundaries=Boundaries((99,))))}, "`ends` .*Received: 99"),
        ({"search": BeamSearch(constraints=Constraints(boundaries=Boundaries((0,))))}, "`ends` "),
        ({"max_length": 2.5}, "`max_length` must be an integer of at least 1. Received: 2.5"),
        ({"max_length": True}, "`max_length` must be an integer of at least 1. Received: True"),
        ({"start_id": 1.5}, "`start_id` must be an integer. Received: 1.5"),
    ],
)
def test_an_end_that_never_comes_and_fractions_are_refused(options, message):
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(shared_model(), SOURCE, **options)
    with pytest.raises(ValueError, match=f"generate_all: {message}"):
        generate_all(shared_model(), [[3, 4]], verbose=0, **options)


def test_one_of_several_ends_may_be_padding():
    search = Greedy(Constraints(boundaries=Boundaries((0, END))))
    alone = generate(shared_model(), SOURCE, max_length=LENGTH)
    found = generate(shared_model(), SOURCE, search=search, max_length=LENGTH, end_id=0)
    np.testing.assert_array_equal(found["tokens"], alone["tokens"])


def test_ids_for_a_model_without_an_encoder_are_a_prompt():
    model = LanguageModel(VOCAB, 16, num_heads=2, mlp_dim=24, num_layers=1)
    message = "a model without an encoder takes its ids as `prompt`.*LanguageModel"
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(model, [[5, 7]])
    with pytest.raises(ValueError, match=f"generate: {message}"):
        generate(model, [[5, 7]], [[4]], max_length=5)
    with pytest.raises(ValueError, match=f"generate_all: {message}"):
        generate_all(model, [[5, 7]], verbose=0)
    none = np.zeros((1, 0), "int32")
    found = generate(model, none, [[4]], max_length=5)
    np.testing.assert_array_equal(
        found["tokens"], generate(model, prompt=[[4]], max_length=5)["tokens"]
    )


def test_coverage_of_a_model_without_an_encoder_is_refused():
    model = LanguageModel(VOCAB, 16, num_heads=2, mlp_dim=24, num_layers=1)
    search = BeamSearch(2, coverage_penalty=0.2)
    with pytest.raises(
        ValueError, match="BeamSearch: `coverage_penalty` must be 0 .*Received: 0.2"
    ):
        generate(model, prompt=[[4]], search=search, max_length=5)


@pytest.mark.parametrize(
    "search",
    [
        Greedy(),
        *(
            pytest.param(search, marks=pytest.mark.slow)
            for search in (BEAM, Sampling(seed=1), BeamSearch(2, 1.0, normalization="length"))
        ),
    ],
    ids=["greedy", "beam", "sampling", "length"],
)
def test_logits_that_are_no_numbers_raise_an_error(search):
    model = make()
    model.set_weights([np.full(w.shape, np.nan, "float32") for w in model.get_weights()])
    for run, ids in ((generate, SOURCE), (generate_all, [[3, 4], [5, 6, 7]])):
        options = {} if run is generate else {"verbose": 0}
        with pytest.raises(ValueError, match=f"{run.__name__}: the model's logits must be"):
            run(model, ids, search=search, max_length=LENGTH, **options)


# ------------------------------------------------------------------------------- positions


@functools.cache
def with_a_table():
    """A model with 11 learned positions."""
    table = PositionEmbedding(11)
    block = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 24, "num_layers": 1}
    return Transformer(vocab_size=VOCAB, **block, positions=(PositionEmbedding(17), table))


@pytest.mark.parametrize(
    "search", slow_except({"greedy": Greedy(), "beam": BEAM, "draft": Speculative}, "greedy")
)
def test_nothing_is_decoded_past_a_table_of_positions(search):
    model = with_a_table()
    if search is Speculative:
        plain = Transformer(VOCAB, hidden_dim=16, num_heads=2, mlp_dim=24, num_layers=1)
        model, search = plain, Speculative(model, 3)
    assert with_a_table().most_decodable == 11
    assert generate(model, SOURCE, search=search)["tokens"].shape[-1] == 11  # not 20
    assert generate_all(model, SOURCE[:1], search, verbose=0)["lengths"].max() <= 11
    assert generate(model, SOURCE, search=search, max_length=11)["tokens"].shape[-1] == 11
    with pytest.raises(ValueError, match="`max_length` must be at most the model's, 11.*: 12"):
        generate(model, SOURCE, search=search, max_length=12)


@pytest.mark.parametrize("positions", [[[0, 11]], [[-1, 3]]], ids=str)
def test_positions_outside_a_table_are_refused(positions):
    layer = PositionEmbedding(11)
    with pytest.raises(ValueError, match="PositionEmbedding .*`positions` must be from 0 to 10"):
        layer(np.zeros((1, 2, 4), "float32"), positions=ops.convert_to_tensor(positions, "int32"))


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="sizes are known on JAX")
def test_a_limit_that_only_the_call_knows_is_asserted():
    import tensorflow as tf

    ids = tf.TensorSpec((None, None), "int32")

    @tf.function(input_signature=[ids, ids])
    def run(source, forced):
        request = Request(forced, START, END)
        return decode(with_a_table(), source, Greedy(), request, stages=None)["tokens"]

    generate(with_a_table(), SOURCE)  # builds
    assert run(SOURCE, np.zeros((BATCH, 11), "int32")).shape == (BATCH, 11)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="at most .* positions of the model, 11"
    ):
        run(SOURCE, np.zeros((BATCH, 12), "int32"))


def test_lengths_relative_to_a_source_need_one():
    search = Greedy(Constraints(max_ratio=2.0))
    with pytest.raises(ValueError, match="without `source`, `min_ratio` and `max_ratio`"):
        generate(Decoder(), prompt=PROMPT, search=search, max_length=LENGTH)
