"""Claims about the language model: published numbers, packed rows, padding, decoding."""

import functools
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.generation import BeamSearch, Greedy, Sampling, generate
from keras_transformers.models import ClassificationHead, LanguageModel
from keras_transformers.models.decoding import log_probabilities
from keras_transformers.training import SmoothedCrossEntropy, token_cross_entropy
from tests.contract import (
    POLICIES,
    assert_close,
    check_layer,
    number_of_parameters,
    randomised,
    to_numpy,
)
from tests.published import assign, attention, golden_weights, norm, split, under

GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "text.npz")
VOCAB, SIZES = 43, {"hidden_dim": 24, "num_heads": 4, "mlp_dim": 29, "num_layers": 2}
RNG = np.random.default_rng(4)
IDS = RNG.integers(4, VOCAB, (3, 11)).astype("int32")
IDS[1, 7:], IDS[2, 3:] = 0, 0
START, LENGTH = 1, 14
STYLES = pytest.mark.parametrize("style", ["gpt2", "modern"])
GROUPED = {"gpt2": {}, "modern": {"num_key_value_heads": 2}}
SEARCHES = {
    "greedy": Greedy(),
    "beam": BeamSearch(3, n_best=2),
    "sampling": Sampling(top_k=5, num_samples=2, seed=3),
}
# Every style and every search once; which of them meet changes nothing.
SEARCH_OF_STYLE = pytest.mark.parametrize(
    "style, search",
    [("gpt2", SEARCHES["beam"]), ("modern", SEARCHES["sampling"]), ("modern", SEARCHES["greedy"])],
    ids=["gpt2-beam", "modern-sampling", "modern-greedy"],
)


def make(style="gpt2", **changes):
    settings = {**SIZES, "max_length": 17, "style": style, **GROUPED[style]}
    return LanguageModel.from_variant("small", VOCAB, **{**settings, **changes})


def random(style="gpt2", **changes):
    """A built model all of whose weights are random."""
    return randomised(make(style, **changes), (None, None))


def run(model, inputs):
    return to_numpy(model(inputs, training=False))


@STYLES
def test_contract(style):
    check_layer(lambda **kwargs: make(style, **kwargs), (IDS,), policies=POLICIES)


# ------------------------------------------------------------------- published implementations


def from_gpt2(weights):
    """GPT-2 of transformers, whose kernels are stored as ours are, under our names."""

    def conv(name):
        return {"kernel": weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}

    table = {
        "embedding/token_embedding/token_embedding": weights["transformer.wte.weight"],
        "embedding/position_embedding/position_embedding": weights["transformer.wpe.weight"],
        **under("norm", norm(weights, "transformer.ln_f")),
    }
    for i in range(SIZES["num_layers"]):
        layer = f"transformer.h.{i}"
        parts = split(conv(f"{layer}.attn.c_attn"), 3)
        output = conv(f"{layer}.attn.c_proj")
        table |= under(
            f"decoder_{i}",
            {
                **under("mixer", attention(*parts, output, SIZES["num_heads"])),
                **under("mixer_norm", norm(weights, f"{layer}.ln_1")),
                **under("feed_forward/hidden", conv(f"{layer}.mlp.c_fc")),
                **under("feed_forward/output", conv(f"{layer}.mlp.c_proj")),
                **under("feed_forward_norm", norm(weights, f"{layer}.ln_2")),
            },
        )
    return table


def from_llama(weights):
    """Llama of transformers under our names."""
    width, heads = SIZES["hidden_dim"], SIZES["num_heads"]
    table = {
        "embedding/token_embedding/token_embedding": weights["model.embed_tokens.weight"],
        "norm/scale": weights["model.norm.weight"],
    }
    for i in range(SIZES["num_layers"]):
        layer = f"model.layers.{i}"
        kernels = {
            name: weights[f"{layer}.{name}.weight"].T
            for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        }
        query, key, value = (
            kernel.reshape(width, -1, width // heads) for kernel in kernels.values()
        )
        output = weights[f"{layer}.self_attn.o_proj.weight"].T
        table |= under(
            f"decoder_{i}",
            {
                "mixer/query/kernel": query,
                "mixer/key/kernel": key,
                "mixer/value/kernel": value,
                "mixer/attention_output/kernel": output.reshape(heads, -1, width),
                "mixer_norm/scale": weights[f"{layer}.input_layernorm.weight"],
                "feed_forward/gate/kernel": weights[f"{layer}.mlp.gate_proj.weight"].T,
                "feed_forward/hidden/kernel": weights[f"{layer}.mlp.up_proj.weight"].T,
                "feed_forward/output/kernel": weights[f"{layer}.mlp.down_proj.weight"].T,
                "feed_forward_norm/scale": weights[f"{layer}.post_attention_layernorm.weight"],
            },
        )
    return table


@pytest.mark.parametrize(
    ("family", "style", "convert"), [("gpt2", "gpt2", from_gpt2), ("llama", "modern", from_llama)]
)
def test_logits_are_those_of_hugging_faces_models(family, style, convert):
    model = make(style, max_length=15)
    model.build((None, None))
    weights = golden_weights(GOLDEN, family)
    expected = weights.pop("logits")
    assign(model, convert(weights))
    real = GOLDEN["ids"] != 0
    assert_close(run(model, GOLDEN["ids"])[real], expected[real], 1e-4)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("small", 124_439_808),
        ("medium", 354_823_168),
        ("large", 774_030_080),
        ("xl", 1_557_611_200),
    ],
)
def test_parameters_are_as_many_as_those_of_gpt2(name, exact):
    assert number_of_parameters(LanguageModel.from_variant(name), (None, None)) == exact


# --------------------------------------------------------------------------------- properties


@STYLES
def test_the_future_cannot_alter_the_past(style):
    model = random(style)
    changed = IDS[:1].copy()
    changed[:, 6:] = 5
    before, after = run(model, IDS[:1]), run(model, changed)
    assert np.array_equal(before[:, :6], after[:, :6])
    assert np.abs(before[:, 6:] - after[:, 6:]).max() > 1e-3


@STYLES
def test_padding_on_either_side_changes_nothing(style):
    model, row = random(style), IDS[1, :7]
    alone = run(model, row[None])
    assert_close(run(model, np.pad(row, (0, 3))[None])[:, :7], alone, 1e-5)
    assert_close(run(model, np.pad(row, (3, 0))[None])[:, 3:], alone, 1e-5)


@STYLES
def test_loss_of_a_packed_row_is_the_sum_of_the_losses_of_its_texts(style):
    model = random(style)
    texts = [IDS[0, :6], IDS[1, :5], IDS[2, :3]]

    def nats(inputs, labels):
        losses, _ = token_cross_entropy(ops.array(labels), model(inputs, training=False))
        return float(ops.sum(losses))

    row, labels, segments = np.zeros((3, 1, 13), "int32")
    position = 0
    for number, text in enumerate(texts):
        part = slice(position, position + len(text) - 1)
        row[:, part], labels[:, part], segments[:, part] = text[:-1], text[1:], number + 1
        position = part.stop
    apart = sum(nats(text[None, :-1], text[None, 1:]) for text in texts)
    assert nats({"ids": row, "segments": segments}, labels) == pytest.approx(apart, rel=1e-5)


@pytest.mark.slow
def test_it_learns_with_fit():
    model = make("modern", dropout=0.0, attention_dropout=0.0)
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.0), jit_compile=True)
    ids = (np.arange(12) + RNG.integers(0, 5, (64, 1))).astype("int32") % 7 + 4
    history = model.fit(ids[:, :-1], ids[:, 1:], epochs=30, batch_size=32, verbose=0).history
    assert history["loss"][-1] < 0.3 < history["loss"][0]


# ------------------------------------------------------------------------------------ decoding


PROMPT = np.array([[5, 7, 9, 4, 3], [6, 8, 0, 0, 0], [3, 4, 5, 0, 0]])


def scored(model, tokens, first=0):
    """Log-probability of the tokens of a text from `first` on, by one pass over all of them."""
    ids = np.pad(tokens[:-1], (1, 0), constant_values=START)[None]
    logits = ops.log_softmax(ops.cast(model(ids, training=False), "float32"))
    chosen = to_numpy(logits)[0, np.arange(len(tokens)), tokens]
    return float(chosen[first:][tokens[first:] != 0].sum())


@SEARCH_OF_STYLE
def test_scores_are_those_of_one_pass_over_the_text(style, search):
    """So what was cached, step by step and in advance, equals what was not."""
    model = random(style)
    options = {"max_length": LENGTH, "prompt_scores": True}
    result = generate(model, prompt=PROMPT, search=search, **options)
    name = "log_probabilities" if isinstance(search, BeamSearch) else "scores"
    for tokens, score in zip(
        result["tokens"].reshape(-1, LENGTH), result[name].reshape(-1), strict=True
    ):
        assert scored(model, tokens) == pytest.approx(score, abs=1e-4)


@SEARCH_OF_STYLE
def test_taking_in_the_prompt_at_once_changes_nothing(style, search, monkeypatch, uncompiled):
    model = random(style)
    at_once = generate(model, prompt=PROMPT, search=search, max_length=LENGTH)
    with monkeypatch.context() as patch:
        patch.delattr(LanguageModel, "prefill")
        step_by_step = generate(random(style), prompt=PROMPT, search=search, max_length=LENGTH)
    np.testing.assert_array_equal(at_once["tokens"], step_by_step["tokens"])
    np.testing.assert_allclose(at_once["scores"], step_by_step["scores"], atol=1e-4)
    # Unless it is asked for, the prompt does not count.
    name = "log_probabilities" if isinstance(search, BeamSearch) else "scores"
    for prompt, texts, scores in zip(PROMPT, at_once["tokens"], at_once[name], strict=True):
        for tokens, score in zip(texts.reshape(-1, LENGTH), scores.reshape(-1), strict=True):
            expected = scored(model, tokens, np.count_nonzero(prompt))
            assert expected == pytest.approx(score, abs=1e-4)


@STYLES
def test_greedy_tokens_are_those_found_without_a_cache(style):
    model, tokens = random(style), list(PROMPT[2, :3])
    while len(tokens) < LENGTH and 2 not in tokens:
        logits = run(model, np.array([[START, *tokens]]))[0, -1]
        logits[0] = -np.inf  # padding is never chosen
        tokens.append(int(logits.argmax()))
    found = generate(model, prompt=PROMPT[2:], max_length=LENGTH)["tokens"][0]
    assert found[: len(tokens)].tolist() == tokens


@pytest.mark.parametrize(
    "style, search",
    [("gpt2", SEARCHES["greedy"]), ("modern", SEARCHES["beam"])],
    ids=["gpt2-greedy", "modern-beam"],
)
def test_padding_and_company_do_not_change_what_is_written(style, search, uncompiled):
    model = random(style)
    together = generate(model, prompt=PROMPT, search=search, max_length=LENGTH)["tokens"]
    left = np.array([[5, 7, 9, 4, 3], [0, 0, 0, 6, 8], [0, 0, 3, 4, 5]])
    padded_left = generate(model, prompt=left, search=search, max_length=LENGTH)["tokens"]
    np.testing.assert_array_equal(padded_left, together)
    for row, tokens in zip(PROMPT, together, strict=True):
        alone = generate(model, prompt=row[row != 0][None], search=search, max_length=LENGTH)
        np.testing.assert_array_equal(alone["tokens"][0], tokens)


def test_an_end_in_a_prompt_ends_nothing():
    """GPT-2 begins its texts with it; `generate` of transformers goes on too."""
    prompt = np.array([[5, 7, 2, 0], [6, 8, 9, 4]])
    result = generate(random(), prompt=prompt, max_length=LENGTH)
    assert result["lengths"][0] > 3
    np.testing.assert_array_equal(result["tokens"][0, :3], prompt[0, :3])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_it_writes_in_fewer_bits(precision):
    from keras_transformers.precision import in_precision

    model = in_precision(random("modern"), precision)
    result = generate(model, prompt=PROMPT, max_length=LENGTH)
    assert np.array_equal(result["tokens"][:, :2], PROMPT[:, :2])
    assert np.isfinite(result["scores"]).all()


# -------------------------------------------------------------------------------------- errors


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="LanguageModel: `style` must be one of gpt2, modern.*'x'"):
        LanguageModel.from_variant("small", VOCAB, **SIZES, style="x")
    with pytest.raises(ValueError, match="`num_key_value_heads` must divide `num_heads`=4.*3"):
        make(num_key_value_heads=3)
    with pytest.raises(ValueError, match=r"`ids` must be at most max_length=17 long.*\(1, 18\)"):
        make()(np.ones((1, 18), "int32"))
    with pytest.raises(ValueError, match="`max_length` must be at most the model's, 17.*40"):
        generate(random(), prompt=PROMPT, max_length=40)
    with pytest.raises(ValueError, match="must be one of tiny, .*xl. Received: 'huge'"):
        LanguageModel.from_variant("huge")


@pytest.mark.parametrize("length", [5, 64, 150])
def test_a_prompt_of_a_length_that_nobody_knows_when_tracing_scores_the_same(length):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends always know lengths")
    model = LanguageModel.from_variant("tiny", 101)
    model(np.ones((1, 2), "int32"))
    ids = np.random.default_rng(0).integers(3, 101, (3, length)).astype("int32")
    x, following = model.norm(model.embedding(ids, np.arange(length)[None])), np.roll(ids, -1, 1)
    specs = [tf.TensorSpec([None, None, 128]), tf.TensorSpec([None, None], tf.int32)]
    score = functools.partial(log_probabilities, model.token_embedding.logits)
    for compiled in (False, True):
        unknown = tf.function(score, input_signature=specs, jit_compile=compiled)
        found, expected = unknown(x, following), score(x, following)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


# ------------------------------------------------------------------------- log-probabilities


@STYLES
@pytest.mark.parametrize("side", ["left", "right"])
def test_log_probabilities_are_those_of_each_token_after_those_before_it(style, side):
    """Longer than the positions whose logits are in memory together, on either side of padding."""
    model = random(style, max_length=150)
    rows = [RNG.integers(3, VOCAB, length).astype("int32") for length in (141, 64, 2, 1)]
    short = [141 - len(row) for row in rows]
    pads = [(number, 0) if side == "left" else (0, number) for number in short]
    ids = np.stack([np.pad(row, pad) for row, pad in zip(rows, pads, strict=True)])
    found = to_numpy(model.log_probabilities(ids))
    assert found.shape == (4, 140) and found.dtype == "float32"
    for row, pad, values in zip(rows, pads, found, strict=True):
        expected = np.zeros(140)
        if len(row) > 1:
            logits = run(model, row[None, :-1])[0].astype("float64")
            logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
            real = slice(pad[0], pad[0] + len(row) - 1)
            expected[real] = logits[np.arange(len(row) - 1), row[1:]]
        assert_close(values, expected, 2e-4)


def test_log_probabilities_of_padding_outside_the_vocabulary_are_none():
    model = random(padding_id=-1)
    ids = np.array([[5, 0, 7, 9], [6, 0, -1, -1]])
    found = to_numpy(model.log_probabilities(ids))
    assert not found[1, 1:].any()
    assert_close(found[1, :1], to_numpy(model.log_probabilities(ids[1:, :2]))[0], 1e-5)
    assert (found[0] < 0).all()


def test_a_start_with_the_id_of_padding_stands_before_the_first_token():
    model, ids = random(), np.array([[0, 5, 7, 0], [0, 6, 8, 9]])
    found = to_numpy(model.log_probabilities(ids))
    logits = run(model, ids[:, :-1]).astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = np.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
    assert_close(found, np.where(ids[:, 1:] == 0, 0, expected), 1e-4)


def test_log_probabilities_need_logits_of_the_vocabulary():
    model = make(head=ClassificationHead(3, "last"))
    with pytest.raises(ValueError, match="`head` must make logits of .* for tokens to have prob"):
        model.log_probabilities(IDS)
    with pytest.raises(ValueError, match=r"`ids` must be at most max_length=17 long.*\(1, 18\)"):
        make().log_probabilities(np.ones((1, 19), "int32"))
