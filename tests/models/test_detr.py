"""Claims about the detection Transformer."""

import functools
import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.detection import SetCriterion
from keras_transformers.models import DETR, ResNet, Swin, ViT
from tests.contract import (
    ON_JAX,
    POLICIES,
    assert_close,
    check_layer,
    compiled,
    number_of_parameters,
    to_numpy,
)
from tests.published import assign, attention, dense, norm, random_images, random_weights, under

RNG = np.random.default_rng(4)
IMAGES = RNG.normal(size=(2, 33, 50, 3)).astype("float32")  # 3 x 4 positions of 16 x 16 pixels
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "detr.npz")
FOCAL = {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0}
KINDS = {
    "learned": {},
    "anchors": {"queries": "anchors", "norm_first": True},
    "proposals": {"queries": "proposals", "norm_first": True, "criterion": FOCAL},
    "proposals, softmax": {"queries": "proposals", "max_wavelength": 20.0},
}
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


def small_backbone(**kwargs):
    settings = {"hidden_dim": 4, "num_layers": (1, 1, 1), "bottleneck": False}
    settings |= {"stem": "convolutions", "norm": "group", "name": "backbone"}
    return ResNet(None, **settings, **kwargs)


def make(kind="learned", backbone=None, **changes):
    settings = {
        "hidden_dim": 16,
        "num_heads": 2,
        "mlp_dim": 11,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "num_queries": 5,
    }
    dtype = {"dtype": changes["dtype"]} if "dtype" in changes else {}
    backbone = small_backbone(**dtype) if backbone is None else backbone
    return DETR(3, backbone, **{**settings, **KINDS[kind], **changes})


def random(model, *shape):
    """Built, with weights that are far from zero, so that boxes and classes differ."""
    if not model.built:
        model.build(shape)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if "norm" not in weight.path:
            fan = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 4
            weight.assign(rng.normal(size=weight.shape) * (2 / fan) ** 0.5)
    return model


def function(model):
    """The model, as a whole where every operation is compiled."""
    return compiled(model) if ON_JAX else model


def patches(side=8, width=13):
    """A backbone whose positions see the pixels of their own patch alone."""
    images = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(width, side, side, activation="tanh")(images)
    return keras.Model(images, x, name="backbone")


@pytest.mark.parametrize(
    "kind",
    [
        "proposals",
        pytest.param("learned", marks=[pytest.mark.slow] if ON_JAX else []),
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


# ------------------------------------------------------------- the published implementation


def from_huggingface(weights, heads=3):
    """Their weights by our paths."""

    def convolution(name):
        kernel = weights[f"{name}.convolution.weight"].transpose(2, 3, 1, 0)
        theirs = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}
        theirs["moving_variance"] = "running_var"
        parts = {k: weights[f"{name}.normalization.{v}"] for k, v in theirs.items()}
        return {"convolution/kernel": kernel, **under("norm", parts)}

    def block(name, parts):
        table = {
            **under("feed_forward/hidden", dense(weights, f"{name}.mlp.fc1")),
            **under("feed_forward/output", dense(weights, f"{name}.mlp.fc2")),
            **under("feed_forward_norm", norm(weights, f"{name}.final_layer_norm")),
        }
        for theirs, ours in parts.items():
            projections = [dense(weights, f"{name}.{theirs}.{part}_proj") for part in "qkvo"]
            table |= under(ours, attention(*projections, heads))
            table |= under(f"{ours}_norm", norm(weights, f"{name}.{theirs}_layer_norm"))
        return table

    start = "model.backbone.model"
    table = under("backbone/stem_0", convolution(f"{start}.embedder.embedder"))
    for stage, layer in ((0, 0), (1, 0), (1, 1), (2, 0), (3, 0)):
        theirs = f"{start}.encoder.stages.{stage}.layers.{layer}"
        ours = f"backbone/stage_{stage}_block_{layer}"
        for i in range(3):
            table |= under(f"{ours}/convolution_{i}", convolution(f"{theirs}.layer.{i}"))
        if layer == 0:
            table |= under(f"{ours}/short_cut", convolution(f"{theirs}.shortcut"))
    projection = "model.input_projection"
    table["input_projection/kernel"] = weights[f"{projection}.weight"][:, :, 0, 0].T
    table["input_projection/bias"] = weights[f"{projection}.bias"]
    across = {"self_attn": "mixer", "encoder_attn": "cross_attention"}
    for i in range(2):
        name = f"model.encoder.layers.{i}"
        table |= under(f"encoder_{i}", block(name, {"self_attn": "mixer"}))
        table |= under(f"decoder_{i}", block(f"model.decoder.layers.{i}", across))
    table |= under("decoder_norm", norm(weights, "model.decoder.layernorm"))
    table["query_embedding"] = weights["model.query_position_embeddings.weight"]
    table |= under("class_head", dense(weights, "class_labels_classifier"))
    for i, name in enumerate(("hidden_0", "hidden_1", "output")):
        table |= under(f"box_head/{name}", dense(weights, f"bbox_predictor.layers.{i}"))
    return table


@functools.cache
def published():
    """Our model with their weights."""
    backbone = ResNet(None, hidden_dim=4, num_layers=(1, 2, 1, 1), norm="frozen", name="backbone")
    model = DETR(
        5,
        backbone,
        hidden_dim=24,
        num_heads=3,
        mlp_dim=20,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_queries=7,
    )
    model.build((None, None, None, 3))
    weights = random_weights(json.loads(str(GOLDEN["shapes"])))
    for key in weights:  # as make_detr has it
        sharper = ("q_proj.weight", "k_proj.weight", "query_position_embeddings.weight")
        weights[key] *= 3 if key.endswith(sharper) else 1
    assign(model, from_huggingface(weights))
    mask = np.zeros((3, 96, 160), bool)
    for one, (height, width) in zip(mask, GOLDEN["sizes"], strict=True):
        one[:height, :width] = True
    return model, 5 * random_images((96, 160), 3) * mask[..., None], mask


def test_classes_boxes_and_losses_of_all_layers_are_those_of_transformers():
    model, images, mask = published()
    found = function(model)({"images": images, "padding_mask": mask})
    for name in ("logits", "boxes", "auxiliary_logits", "auxiliary_boxes"):
        assert_close(found[name], GOLDEN[name], 1e-4)
    targets = {"labels": GOLDEN["labels"], "boxes": GOLDEN["true_boxes"]}
    assert_close(model.compute_loss(y=targets, y_pred=found), GOLDEN["loss"], 1e-4)


def test_without_a_mask_they_are_those_of_transformers_too():
    model, images, _ = published()
    found = function(model)(images)
    assert_close(found["logits"], GOLDEN["unmasked_logits"], 1e-4)
    assert_close(found["boxes"], GOLDEN["unmasked_boxes"], 1e-4)


@pytest.mark.parametrize(("name", "expected"), [("R50", 41_524_768), ("R101", 60_464_672)])
def test_the_number_of_parameters_is_the_published_one(name, expected):
    """The paper's 41 and 60 million; it does not count batch norms, which are frozen."""
    model = DETR.from_variant(name)
    number_of_parameters(model, (None, None, None, 3))
    count = {weight.path: int(np.prod(weight.shape)) for weight in model.weights}
    batch_norms = {path for path in count if "backbone" in path and "/norm/" in path}
    assert sum(count.values()) - sum(count[path] for path in batch_norms) == expected
    trained = {weight.path for weight in model.trainable_weights}
    assert trained == count.keys() - batch_norms


# ----------------------------------------------------------------------------- properties


@pytest.mark.parametrize("kind", ["learned", "anchors"])
def test_queries_have_no_order(kind):
    model, order = random(make(kind), *IMAGES.shape), np.array([3, 0, 4, 1, 2])
    expected = to_numpy(model(IMAGES))
    for weight in (model.query_embedding, model.anchor_embedding):
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
    head = model.proposal_box_head.layers[-1]
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
    every = to_numpy(function(make_like(model, num_queries=15))(images))["auxiliary_logits"][0, 0]
    assert_close(np.sort(every.max(-1))[::-1][:4], sure, 1e-5)


def make_like(model, **changes):
    """Another model with the weights of one, but for the queries."""
    other = DETR.from_config({**model.get_config(), **changes})
    other.build((None, None, None, 3))
    weights = {weight.path.split("/", 1)[1]: weight for weight in model.weights}
    for weight in other.weights:
        name = weight.path.split("/", 1)[1]
        if name != "query_embedding":
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
        anchors = 1 / (1 + np.exp(-to_numpy(model.anchor_embedding.value)))
        assert np.abs(found["boxes"] - anchors).max() < 0.03
    random(model, *IMAGES.shape)
    assert np.abs(np.diff(to_numpy(model(IMAGES))["auxiliary_boxes"], axis=1)).max() > 0.01


def test_at_first_focal_classes_are_rare_and_softmax_ones_even():
    shares = 1 / (1 + np.exp(-to_numpy(make("proposals")(0 * IMAGES)["logits"])))
    assert shares.mean() < 0.05
    assert make("learned")(0 * IMAGES)["logits"].shape[-1] == 4  # and "no object"


# ------------------------------------------------------------------------------ backbones

BACKBONES = {
    "swin": lambda: Swin(
        None,
        image_size=64,
        hidden_dim=6,
        num_layers=(1, 1, 1, 1),
        num_heads=(1, 2, 3, 4),
        window_size=2,
    ),
    "vit": lambda: ViT(
        None, image_size=64, patch_size=16, hidden_dim=12, num_heads=3, mlp_dim=7, num_layers=1
    ),
    "vit, mean": lambda: ViT(
        None,
        image_size=64,
        patch_size=16,
        hidden_dim=12,
        num_heads=3,
        mlp_dim=7,
        num_layers=1,
        pooling="mean",
    ),
    "functional": patches,
    "sequential": lambda: keras.Sequential([keras.layers.Conv2D(5, 16, 16)]),
}


@pytest.mark.parametrize("name", ["sequential"] if ON_JAX else BACKBONES)
def test_any_backbone_will_do(name, tmp_path):
    backbone, images = BACKBONES[name](), RNG.normal(size=(1, 64, 64, 3)).astype("float32")
    model = make(backbone=backbone, num_queries=4)
    assert model.backbone is backbone
    expected = model(images)
    assert tuple(expected["boxes"].shape) == (1, 4, 4)
    model.save(tmp_path / "model.keras")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(images), expected, 0)
    moved = model(images[:, ::-1])
    assert np.abs(to_numpy(moved["logits"]) - to_numpy(expected["logits"])).max() > 1e-6


def test_features_of_a_vit_are_its_patches():
    model = BACKBONES["vit"]()
    images = RNG.normal(size=(2, 64, 32, 3)).astype("float32")
    model(images)
    found = model.features(images)
    assert list(found) == ["stride_16"]
    assert tuple(found["stride_16"].shape) == (2, 4, 2, 12)
    tokens = model.norm(model.encode(images))[:, 1:]  # without the class token
    assert_close(ops.reshape(found["stride_16"], (2, 8, 12)), tokens, 0)


def test_the_feature_is_the_last_unless_another_is_named():
    model = make(feature="stride_8")
    model.build(IMAGES.shape)
    assert model.input_projection.kernel.shape[0] == 8
    last = make()
    last.build(IMAGES.shape)
    assert last.input_projection.kernel.shape[0] == 16
    with pytest.raises(ValueError, match="`feature` must be one of stride_4, .*'stride_32'"):
        make(feature="stride_32")(IMAGES)


def test_backbones_of_a_name_are_residual_networks():
    for name, frozen in (("mini", "group"), ("18", "frozen"), ("50", "frozen")):
        settings = DETR(3, name).backbone.get_config()
        assert settings["norm"] == frozen and settings["num_classes"] is None


def test_a_criterion_may_be_given_whole():
    criterion = SetCriterion("focal", class_cost=2.0, box_weight=3.0)
    model = make(criterion=criterion)
    assert model.criterion == criterion
    assert DETR.from_config(model.get_config()).criterion == criterion


@pytest.mark.skipif(ON_JAX, reason="it compiles every operation for every size")
def test_pictures_of_any_size_are_taken():
    model = make("proposals")
    for size in ((32, 48), (64, 32), (47, 33)):
        assert tuple(model(np.zeros((1, *size, 3), "float32"))["boxes"].shape) == (1, 5, 4)


@pytest.mark.skipif(ON_JAX, reason="XLA there wants shapes")
def test_a_graph_of_unknown_sizes_computes_the_same():
    import tensorflow as tf

    model = make("learned")
    expected = model(IMAGES)
    run = tf.function(model, input_signature=[tf.TensorSpec((None, None, None, 3))])
    assert_close(run(IMAGES), expected, 1e-5)


# ------------------------------------------------------------------------------- training


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


# --------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(hidden_dim=20), "`hidden_dim` must be a multiple of 8.*20"),
        (lambda: make(num_heads=3), "`num_heads` must divide `hidden_dim`=16"),
        (lambda: make(num_queries=0), "`num_queries` must be a positive integer"),
        (lambda: make(num_decoder_layers=0), "`num_decoder_layers` must be a positive integer"),
        (lambda: make(queries="boxes"), "`queries` must be one of learned, .*'boxes'"),
        (lambda: make(criterion={"classification": "hinge"}), "`classification` must be"),
        (lambda: make(backbone="20"), "must be one of mini, 18, 34, 50, 101.*'20'"),
        (lambda: make(backbone=keras.layers.Dense(3)), "`backbone` must be a Keras model or"),
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
