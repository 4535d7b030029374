"""Claims about the text encoder: BERT's numbers, its heads, packed rows, padding, transfer."""

import pathlib

import keras
import numpy as np
import pytest

from keras_transformers.models import ClassificationHead, TaggingHead, TextEncoder
from keras_transformers.training import SmoothedCrossEntropy
from tests.contract import (
    POLICIES,
    assert_close,
    check_layer,
    number_of_parameters,
    randomised,
    to_numpy,
)
from tests.published import assign, attention, dense, golden_weights, norm, under

GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "text.npz")
VOCAB, SIZES = 43, {"hidden_dim": 24, "num_heads": 4, "mlp_dim": 29, "num_layers": 2}
RNG = np.random.default_rng(4)
IDS = RNG.integers(4, VOCAB, (3, 11)).astype("int32")
IDS[1, 7:], IDS[2, 3:] = 0, 0
TYPES = RNG.integers(0, 2, IDS.shape).astype("int32")
PLACES = np.array([[1, 4], [2, 3], [0, 1]], "int32")
HEADS = {
    None: {},
    "masked_language": {"head": "masked_language"},
    "classification": {"head": "classification", "num_classes": 5},
    "tagging": {"head": "tagging", "num_classes": 7},
}
STYLES = pytest.mark.parametrize("style", ["bert", "modern"])
KINDS = pytest.mark.parametrize("kind", HEADS)


def make(kind=None, **changes):
    return TextEncoder.from_variant(
        "base", VOCAB, **{**SIZES, "max_length": 17, **HEADS[kind], **changes}
    )


def random(kind=None, **changes):
    """A built model all of whose weights are random."""
    return randomised(make(kind, **changes), (None, None))


def run(model, inputs):
    return to_numpy(model(inputs, training=False))


@KINDS
def test_contract(kind):
    inputs = {"ids": IDS, "token_types": TYPES}
    if kind == "masked_language":
        inputs["masked_positions"] = PLACES
    policies = POLICIES if kind == "masked_language" else {}  # checking them all takes long
    check_layer(lambda **kwargs: make(kind, **kwargs), (inputs,), policies=policies)


def test_contract_of_the_modern_style():
    def make_model(**kwargs):
        return make("classification", style="modern", pooling="mean", **kwargs)

    check_layer(make_model, (IDS,))


# ------------------------------------------------------------------- published implementations


def from_bert(weights, kind):
    """BERT of transformers under our names."""
    table = {
        "embedding/token_embedding/token_embedding": weights[
            "bert.embeddings.word_embeddings.weight"
        ],
        "embedding/position_embedding/position_embedding": weights[
            "bert.embeddings.position_embeddings.weight"
        ],
        "embedding/token_type_embedding/token_embedding": weights[
            "bert.embeddings.token_type_embeddings.weight"
        ],
        **under("embedding/norm", norm(weights, "bert.embeddings.LayerNorm")),
    }
    for i in range(SIZES["num_layers"]):
        layer = f"bert.encoder.layer.{i}"
        parts = (
            dense(weights, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")
        )
        output = dense(weights, f"{layer}.attention.output.dense")
        table |= under(
            f"encoder_{i}",
            {
                **under("mixer", attention(*parts, output, SIZES["num_heads"])),
                **under("mixer_norm", norm(weights, f"{layer}.attention.output.LayerNorm")),
                **under("feed_forward/hidden", dense(weights, f"{layer}.intermediate.dense")),
                **under("feed_forward/output", dense(weights, f"{layer}.output.dense")),
                **under("feed_forward_norm", norm(weights, f"{layer}.output.LayerNorm")),
            },
        )
    return table | under("head", HEAD_WEIGHTS[kind](weights))


HEAD_WEIGHTS = {
    "masked_language": lambda weights: {
        **under("transform", dense(weights, "cls.predictions.transform.dense")),
        **under("norm", norm(weights, "cls.predictions.transform.LayerNorm")),
        "bias": weights["cls.predictions.bias"],
    },
    "classification": lambda weights: {
        **under("pooler", dense(weights, "bert.pooler.dense")),
        **under("classes", dense(weights, "classifier")),
    },
    "tagging": lambda weights: under("classes", dense(weights, "classifier")),
}


@pytest.mark.parametrize("kind", HEAD_WEIGHTS)
def test_logits_are_those_of_hugging_faces_bert(kind):
    model = make(kind, max_length=15)
    model.build((None, None))
    weights = golden_weights(GOLDEN, kind)
    expected = weights.pop("logits")
    assign(model, from_bert(weights, kind))
    inputs = {"ids": GOLDEN["ids"], "token_types": GOLDEN["token_types"]}
    logits, real = run(model, inputs), GOLDEN["ids"] != 0
    if kind == "classification":
        assert_close(logits, expected, 1e-4)
    else:  # at padding both may say what they like
        assert_close(logits[real], expected[real], 1e-4)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("tiny", 4_385_920),
        ("mini", 11_170_560),
        ("small", 28_763_648),
        ("medium", 41_373_184),
        ("base", 109_482_240),
        ("large", 335_141_888),
    ],
)
def test_parameters_are_as_many_as_published(name, exact):
    model = TextEncoder.from_variant(name, head="classification", num_classes=1)
    found = number_of_parameters(model, (None, None))
    # The published numbers count a pooler, and no class.
    assert found - (model.embedding.hidden_dim + 1) == exact


def test_a_modern_model_of_a_size_has_about_as_many_parameters():
    bert, modern = (TextEncoder.from_variant("tiny", 31, style=s) for s in ("bert", "modern"))
    for model in (bert, modern):
        model.build((None, None))
    blocks = [
        sum(block.count_params() for block in model.encoder_blocks) for model in (bert, modern)
    ]
    assert blocks[1] == pytest.approx(blocks[0], rel=0.02)


# --------------------------------------------------------------------------------- properties


@STYLES
@KINDS
def test_padding_on_either_side_changes_nothing(kind, style):
    model, row = random(kind, style=style), IDS[1, :7]
    alone = run(model, row[None])
    right = run(model, np.pad(row, (0, 3))[None])
    left = run(model, np.pad(row, (3, 0))[None])
    if kind == "classification":
        assert_close(np.concatenate([right, left]), np.concatenate([alone, alone]), 1e-5)
        return
    assert_close(right[:, :7], alone, 1e-5)
    assert_close(left[:, 3:], alone, 1e-5)


@STYLES
def test_the_mean_of_real_tokens_does_not_mind_padding(style):
    model, row = random("classification", style=style, pooling="mean"), IDS[1, :7]
    for padding in ((0, 3), (3, 0)):
        padded = run(model, np.pad(row, padding)[None])
        assert_close(padded, run(model, row[None]), 1e-5)


@STYLES
@pytest.mark.parametrize("kind", [None, "masked_language", "tagging"])
def test_texts_of_a_packed_row_do_not_see_one_another(kind, style):
    model, first, second = random(kind, style=style), IDS[0, :5], IDS[1, :4]
    packed = run(
        model,
        {
            "ids": np.concatenate([first, second, [0, 0]])[None],
            "segments": np.array([[1] * 5 + [2] * 4 + [0, 0]]),
        },
    )
    assert_close(packed[:, :5], run(model, first[None]), 1e-5)
    assert_close(packed[:, 5:9], run(model, second[None]), 1e-5)


def test_logits_at_masked_positions_are_those_of_the_whole_row():
    model = random("masked_language")
    everywhere = run(model, IDS)
    some = run(model, {"ids": IDS, "masked_positions": PLACES})
    assert_close(some, np.take_along_axis(everywhere, PLACES[..., None], 1), 1e-5)


def test_token_types_matter():
    model = random("tagging")
    different = run(model, {"ids": IDS, "token_types": 1 - TYPES})
    assert np.abs(run(model, {"ids": IDS, "token_types": TYPES}) - different).max() > 1e-2


# ------------------------------------------------------------------------------------ transfer


@STYLES
def test_another_head_starts_from_the_same_encoder(style):
    model = random("masked_language", style=style)
    other = model.transferred(head=ClassificationHead(3))
    assert_close(to_numpy(other.encode(IDS)), to_numpy(model.encode(IDS)), 0)
    assert run(other, IDS).shape == (3, 3)
    same = other.transferred(dropout=0.3)
    assert_close(run(same, IDS), run(other, IDS), 0)
    assert same.get_config()["dropout"] == 0.3
    assert {block.dropout for block in same.encoder_blocks} == {0.3}


def test_a_head_of_other_classes_is_otherwise_the_same():
    model = random("classification", pooling="mean", problem_type="multi_label_classification")
    other = model.transferred(num_classes=2)
    assert run(other, IDS).shape == (3, 2)
    assert other.head.pooling == "mean" and other.problem_type == model.problem_type
    with pytest.raises(ValueError, match="`num_classes` must be left out, for the head has no"):
        random("masked_language").transferred(num_classes=2)


def test_a_model_without_weights_has_nothing_to_transfer():
    with pytest.raises(ValueError, match="`transferred` must be called on a built model"):
        make("tagging").transferred(head=TaggingHead(3))


def test_another_body_is_refused():
    with pytest.raises(ValueError, match="cannot take over embedding/token_embedding.* of shape"):
        random("tagging").transferred(hidden_dim=28)


@pytest.mark.slow
def test_it_learns_what_was_masked_with_fit():
    model = make("masked_language", dropout=0.0)
    model.compile(keras.optimizers.Adam(3e-3), SmoothedCrossEntropy(0.0), jit_compile=True)
    ids = RNG.integers(4, 9, (64, 11)).astype("int32")
    ids[:, 5] = ids[:, 2]  # so that what is hidden can be read elsewhere
    hidden, labels = ids.copy(), ids[:, 5:6]
    hidden[:, 5] = 3
    inputs = {"ids": hidden, "masked_positions": np.full((64, 1), 5, "int32")}
    history = model.fit(inputs, labels, epochs=60, batch_size=32, verbose=0).history
    assert history["loss"][-1] < 0.3 < history["loss"][0]


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "`num_layers` must be a positive integer.*0"),
        ({"num_heads": 5}, "`num_heads` must divide `hidden_dim`=24.*5"),
        ({"head": "qa"}, "`head` must be one of None, masked_language.*'qa'"),
        ({"style": "xlnet"}, "`style` must be one of bert, modern.*'xlnet'"),
        ({"pooling": "max"}, "`pooling` must be one of token, mean.*'max'"),
        ({"head": "tagging"}, "`num_classes` must be given for head='tagging'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"TextEncoder: {message}"):
        make(**changes)


def test_inputs_that_do_not_fit_are_refused():
    model = make()
    with pytest.raises(ValueError, match=r"TextEncoder 'text_encoder.*at most max_length=17.*18"):
        model(np.ones((1, 18), "int32"))
    with pytest.raises(ValueError, match=r"`inputs` must be ids.*Received: \['ids', 'source'\]"):
        model({"ids": IDS, "source": IDS})
    with pytest.raises(ValueError, match="`token_types` must be left out"):
        make(style="modern")({"ids": IDS, "token_types": TYPES})
    with pytest.raises(ValueError, match="must be one of tiny, .*large. Received: 'huge'"):
        TextEncoder.from_variant("huge")
