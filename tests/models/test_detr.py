"""Claims about the detection Transformer."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.models import DETR, ProposalQueries
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, compiled, to_numpy
from tests.models.small_detr import IMAGES, KINDS, RNG, function, make, patches, random

# The first block's queries are zeros, so that its values are all the same, wherever it looks.
NO_GRADIENT = ["key/bias"]
NO_GRADIENT += [
    f"decoder_0/mixer/{name}"
    for name in (
        "query/kernel",
        "query/bias",
        "key/kernel",
        "value/kernel",
        "attention_output/kernel",
    )
]
NO_GRADIENT += ["decoder_0/mixer_norm/gamma"]


@pytest.mark.parametrize(
    "kind",
    [
        "proposals",
        pytest.param("learned", marks=pytest.mark.slow),
        pytest.param("anchors", marks=pytest.mark.slow),
    ],
)
def test_contract(kind):
    # In low precision other positions may be the best; and on JAX it takes minutes.
    policies = POLICIES if kind == "learned" and not ON_JAX else {}
    exempt = NO_GRADIENT if kind == "learned" else ["key/bias"]
    check_layer(
        lambda **kwargs: make(kind, **kwargs), (IMAGES,), no_gradient=exempt, policies=policies
    )


def test_a_mask_of_padding_is_an_input_of_graphs_and_compiled_functions_too():
    mask = np.ones(IMAGES.shape[:-1], bool)
    mask[1, :, 32:] = False
    inputs, model = {"images": IMAGES, "padding_mask": mask}, make("proposals")
    expected = model(inputs)
    assert_close(compiled(model)(inputs), expected, 1e-5)
    symbols = {name: keras.Input(x.shape[1:], dtype=str(x.dtype)) for name, x in inputs.items()}
    found = model(symbols)
    assert {name: x.shape[1:] for name, x in found.items()} == {
        name: tuple(x.shape[1:]) for name, x in expected.items()
    }
    shapes = model.compute_output_shape({name: x.shape for name, x in symbols.items()})
    assert shapes == {name: tuple(x.shape) for name, x in found.items()}


# --- properties


@pytest.mark.parametrize("kind", ["learned", "anchors"])
def test_queries_have_no_order(kind):
    model, order = random(make(kind), *IMAGES.shape), np.array([3, 0, 4, 1, 2])
    expected = to_numpy(model(IMAGES))
    for weight in (model.queries.embedding, getattr(model.queries, "anchor_embedding", None)):
        if weight is not None:
            weight.assign(ops.take(weight, order, axis=0))
    for name, found in to_numpy(model(IMAGES)).items():
        assert_close(found, np.take(expected[name], order, axis=-2), 1e-5)
        assert np.abs(np.diff(found, axis=-2)).max() > 1e-2  # they differ


PADDED = pytest.mark.parametrize("kind", ["proposals"] if ON_JAX else KINDS)


@PADDED
def test_what_stands_at_padding_has_no_influence(kind):
    model = random(make(kind, patches()), None, None, None, 3)
    mask = np.zeros((2, 32, 56), bool)
    mask[0, :24, :48] = mask[1, :16, :16] = True  # the second has fewer positions than queries
    noise, picture = RNG.normal(size=(2, 2, 32, 56, 3)).astype("float32")
    other, run = np.where(mask[..., None], picture, 99 * noise), function(model)
    expected = run({"images": picture, "padding_mask": mask})
    assert_close(run({"images": other, "padding_mask": mask}), expected, 1e-5)
    unmasked = to_numpy(run({"images": other, "padding_mask": np.ones_like(mask)})["logits"])
    assert np.abs(unmasked - to_numpy(expected["logits"])).max() > 1e-2


@PADDED
def test_boxes_are_shares_of_the_picture_however_much_padding_is_around_it(kind):
    model = random(make(kind, patches()), None, None, None, 3)
    picture = RNG.normal(size=(1, 24, 40, 3)).astype("float32")
    run = function(model)
    expected = to_numpy(run(picture))
    padded = np.pad(picture, ((0, 0), (0, 8), (0, 16), (0, 0)))
    mask = np.zeros((1, 32, 56), bool)
    mask[:, :24, :40] = True
    found = to_numpy(run({"images": padded, "padding_mask": mask}))
    for name in ("logits", "boxes"):
        assert_close(found[name], expected[name], 1e-5)
    there = np.ones((1, 24, 40), bool)
    assert_close(run({"images": picture, "padding_mask": there})["boxes"], found["boxes"], 1e-5)


def test_a_picture_has_the_same_answers_in_any_batch():
    model = random(make("proposals"), *IMAGES.shape)
    run = function(model)
    whole = to_numpy(run(IMAGES))
    for i in range(2):
        alone = to_numpy(run(IMAGES[i : i + 1]))
        for name, found in alone.items():
            assert_close(found, whole[name][i : i + 1], 1e-5)


def test_proposals_are_the_surest_positions_and_lie_around_their_middles():
    model = make("proposals", patches(), num_queries=4)
    random(model, None, None, None, 3)
    head = model.proposal_heads.box_head.layers[-1]
    head.set_weights([0 * weight for weight in head.get_weights()])  # moves nothing
    images = RNG.normal(size=(1, 24, 40, 3)).astype("float32")
    found = to_numpy(function(model)(images))
    boxes, sure = found["auxiliary_boxes"][0, 0], found["auxiliary_logits"][0, 0].max(-1)
    assert (np.diff(sure) <= 0).all()
    middles = {(2 * x + 1, 2 * y + 1) for x in range(5) for y in range(3)}  # of 10ths and 6ths
    assert_close(boxes[:, :2] * [10, 6], (boxes[:, :2] * [10, 6]).round(), 1e-4)
    assert {tuple(box) for box in (boxes[:, :2] * [10, 6]).round()} <= middles
    assert_close(boxes[:, 2:], np.full((4, 2), 0.2, "float32"), 1e-5)
    assert len({tuple(box) for box in boxes.round(4).tolist()}) == 4
    every = to_numpy(function(make_like(model, queries=ProposalQueries(15)))(images))[
        "auxiliary_logits"
    ][0, 0]
    assert_close(np.sort(every.max(-1))[::-1][:4], sure, 1e-5)


def make_like(model, **changes):
    """Another model with the weights of one, but for the queries."""
    other = DETR.from_config({**model.get_config(), **changes})
    other.build((None, None, None, 3))
    weights = {weight.path.split("/", 1)[1]: weight for weight in model.weights}
    for weight in other.weights:
        name = weight.path.split("/", 1)[1]
        if name != "queries/embedding":
            weight.assign(weights[name])
    return other


@pytest.mark.parametrize("kind", ["anchors", "proposals"])
def test_boxes_start_where_they_are_and_are_moved_by_every_block(kind):
    model = make(kind, num_decoder_layers=3)
    found = to_numpy(model(IMAGES))
    layers = np.concatenate([found["auxiliary_boxes"], found["boxes"][:, None]], axis=1)
    assert layers.shape[1] == (4 if kind == "proposals" else 3)
    assert np.abs(np.diff(layers, axis=1)).max() < 0.01  # before any training
    if kind == "anchors":
        anchors = 1 / (1 + np.exp(-to_numpy(model.queries.anchor_embedding.value)))
        assert np.abs(found["boxes"] - anchors).max() < 0.03
    random(model, *IMAGES.shape)
    assert np.abs(np.diff(to_numpy(model(IMAGES))["auxiliary_boxes"], axis=1)).max() > 0.01


def test_at_first_focal_classes_are_rare_and_softmax_ones_even():
    shares = 1 / (1 + np.exp(-to_numpy(make("proposals")(0 * IMAGES)["logits"])))
    assert shares.mean() < 0.05
    assert make("learned")(0 * IMAGES)["logits"].shape[-1] == 4  # and "no object"


# --- training


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["learned", "proposals"])
def test_two_pictures_are_learned_by_heart_with_fit_alone(kind):
    images = np.zeros((2, 32, 48, 3), "float32")
    images[0, 4:20, 8:24] = images[1, 10:26, 30:46] = images[1, 2:8, 2:14] = 1.0
    targets = {
        "labels": np.array([[0, -1], [0, 2]]),
        "boxes": np.float32(
            [
                [[16 / 48, 12 / 32, 16 / 48, 16 / 32], [np.nan] * 4],
                [[38 / 48, 18 / 32, 16 / 48, 16 / 32], [8 / 48, 5 / 32, 12 / 48, 6 / 32]],
            ]
        ),
    }
    # Most of the time is compilation: one layer will do.
    model = make(kind, patches(), dropout=0.0, num_decoder_layers=1)
    model.compile(keras.optimizers.Adam(3e-3), jit_compile=True)
    inputs = {"images": images, "padding_mask": np.ones(images.shape[:-1], bool)}
    history = model.fit(inputs, targets, epochs=60, batch_size=2, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0]


# --- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(hidden_dim=20), "`hidden_dim` must be a multiple of 8.*20"),
        (lambda: make(num_heads=3), "`num_heads` must divide `hidden_dim`=16"),
        (lambda: make(num_queries=0), "`num_queries` must be a positive integer"),
        (lambda: make(num_decoder_layers=0), "`num_layers` must be a positive integer"),
        (lambda: make(queries="boxes"), "`queries` must be one of learned, .*'boxes'"),
        (lambda: make(criterion={"classification": "hinge"}), "`classification` must be"),
        (lambda: make(backbone="20"), "must be one of mini, 18, 34, 50, 101.*'20'"),
        (lambda: make(backbone=keras.layers.Dense(3)), "`backbone` must be a Keras model, a "),
        (lambda: DETR.from_variant("R18"), "must be one of mini, R50, R101.*'R18'"),
        (lambda: make()(IMAGES[0]), r"`images` must have shape \(batch, .*\(33, 50, 3\)"),
        (
            lambda: make("proposals", num_queries=13)(IMAGES),
            r"at least `num_queries`=13 positions.*\(2, 12, 16\)",
        ),
        (
            lambda: make()({"images": IMAGES, "padding_mask": np.ones((2, 33, 50, 1), bool)}),
            r"`padding_mask` must have shape \(batch, height, width\).*\(2, 33, 50, 1\)",
        ),
        (lambda: make()({"images": IMAGES, "mask": IMAGES}), "a dict of `images` and `padding_m"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_pictures_of_weight_zero_are_not_learned_from():
    model = random(make("learned", patches()), 2, 33, 50, 3)
    model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    targets = {"labels": np.array([[0, -1], [2, 1]]), "boxes": np.full((2, 2, 4), 0.3, "float32")}
    before = [to_numpy(weight) for weight in model.trainable_weights]
    model.fit(IMAGES, targets, sample_weight=np.zeros(2), batch_size=2, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert_close(weight, old, 0)
    found = {
        weights: model.evaluate(IMAGES, targets, sample_weight=np.array(weights), verbose=0)
        for weights in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (2.0, 5.0))
    }
    assert found[1.0, 0.0] + found[0.0, 1.0] == pytest.approx(found[1.0, 1.0], rel=1e-5)
    linear = 2 * found[1.0, 0.0] + 5 * found[0.0, 1.0]
    assert found[2.0, 5.0] == pytest.approx(linear, rel=1e-5)
