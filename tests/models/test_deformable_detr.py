"""Claims about Deformable DETR."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    DecoderBlock,
    DeformableDecoderBlock,
    DeformableEncoderBlock,
    EncoderBlock,
)
from keras_transformers.models import DeformableDETR, FeatureMaps, LearnedQueries
from tests.contract import ON_JAX, assert_close, compiled, number_of_parameters, to_numpy
from tests.models.small_detr import IMAGES, patches, random, small_backbone

MASK = np.ones((2, 33, 50), bool)
MASK[1, 25:] = MASK[1, :, 40:] = False
TARGETS = {"labels": np.array([[0, -1], [2, 1]]), "boxes": np.full((2, 2, 4), 0.3, "float32")}


def make(queries="points", backbone=None, **changes):
    settings = {"hidden_dim": 32, "num_heads": 2, "mlp_dim": 11, "num_points": 3, "num_queries": 5}
    settings |= {"num_encoder_layers": 1, "num_decoder_layers": 2, "num_levels": 3}
    backbone = small_backbone() if backbone is None else backbone
    settings |= {"backbone": backbone, "queries": queries, **changes}
    return DeformableDETR.from_variant("R50", 3, **settings)


@pytest.mark.parametrize(
    ("queries", "layers"), [pytest.param("refined", 1, marks=pytest.mark.slow), ("proposals", 2)]
)
def test_padding_of_images_changes_nothing(queries, layers):
    model = random(make(queries), *IMAGES.shape)
    given = {"images": IMAGES, "padding_mask": MASK}
    found = to_numpy(model(given))
    assert found["auxiliary_boxes"].shape == (2, layers, 5, 4)
    other = np.where(MASK[..., None], IMAGES, np.nan).astype("float32")
    assert_close(model({"images": other, "padding_mask": MASK}), found, 0)
    # The first image, which has no padding, is what it is alone.
    alone = to_numpy(model(IMAGES[:1]))
    for name, value in alone.items():
        assert_close(value, found[name][:1], 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("queries", ["points", "proposals"])
def test_xla_computes_and_trains_it(queries):
    model = random(make(queries, dropout=0.0), *IMAGES.shape)
    given = {"images": IMAGES, "padding_mask": MASK}
    assert_close(compiled(model)(given), model(given), 1e-4)
    model.compile(keras.optimizers.SGD(0.0), jit_compile=True)
    expected = model.compute_loss(y=TARGETS, y_pred=model(given, training=True))
    history = model.fit(given, TARGETS, batch_size=2, epochs=2, verbose=0)
    np.testing.assert_allclose(history.history["loss"], float(expected), rtol=1e-4)


def test_every_block_moves_the_boxes_of_the_one_before():
    model = random(make("refined", num_decoder_layers=3), *IMAGES.shape)
    for i, heads in enumerate(model.heads):
        last = heads.box_head.layers[-1]
        last.kernel.assign(0 * last.kernel)
        last.bias.assign([0.1 * (i + 1), 0.0, -0.5, 0.25])
    dense, width = model.queries.reference_dense, 32
    points = to_numpy(dense(model.queries.embedding.value[None, :, :width]))
    found = to_numpy(model(IMAGES))
    boxes = np.concatenate([found["auxiliary_boxes"], found["boxes"][:, None]], axis=1)
    logits = np.pad(points, ((0, 0), (0, 0), (0, 2)))
    for layer, moved in enumerate((0.1, 0.3, 0.6)):
        expected = logits + np.array([moved, 0, -0.5 * (layer + 1), 0.25 * (layer + 1)])
        expected = np.repeat(1 / (1 + np.exp(-expected)), 2, axis=0).astype("float32")
        assert_close(boxes[:, layer], expected, 1e-5)


def test_a_proposal_lies_around_the_middle_of_its_position():
    backbone = patches(16, 13)
    model = random(make("proposals", backbone, num_levels=2, num_queries=4), *IMAGES.shape)
    last = model.proposal_heads.box_head.layers[-1]
    last.kernel.assign(0 * last.kernel)
    last.bias.assign(0 * last.bias)
    images = IMAGES[:, :32, :48]  # 2 x 3 positions, and 1 x 2 of those
    boxes = to_numpy(model(images))["auxiliary_boxes"][:, 0]
    middles = {(x, y, 0.05) for x in (1 / 6, 0.5, 5 / 6) for y in (0.25, 0.75)}
    middles |= {(x, 0.5, 0.1) for x in (0.25, 0.75)}
    known = np.array([(x, y, size, size) for x, y, size in middles])
    distance = np.abs(boxes[:, :, None] - known).max(-1)
    assert distance.min(-1).max() < 1e-5
    for each in distance.argmin(-1):  # every position once
        assert len(set(each)) == 4


@pytest.mark.skipif(ON_JAX, reason="it is called eagerly")
@pytest.mark.parametrize("queries", [pytest.param("refined", marks=pytest.mark.slow), "proposals"])
def test_every_weight_is_trained(queries):
    model = random(make(queries, dropout=0.0), *IMAGES.shape)
    model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    before = {weight.path: to_numpy(weight) for weight in model.trainable_weights}
    model.fit(IMAGES, TARGETS, batch_size=2, verbose=0)
    same = {w.path for w in model.trainable_weights if np.array_equal(before[w.path], to_numpy(w))}
    assert not {path for path in same if not path.endswith("mixer/key/bias")}


def test_proposals_are_trained_for_objects_of_any_class():
    model = random(make("proposals"), *IMAGES.shape)
    found = {name: keras.ops.convert_to_tensor(x) for name, x in model(IMAGES).items()}
    layers = [
        keras.ops.moveaxis(found[f"auxiliary_{name}"][:, :1], 1, 0) for name in ("logits", "boxes")
    ]
    twice = [keras.ops.concatenate([each, each]) for each in layers]
    labels = np.minimum(TARGETS["labels"], 0)
    of_any = model.criterion(*layers, labels, TARGETS["boxes"])
    as_named = model.criterion(*layers, TARGETS["labels"], TARGETS["boxes"])
    assert_close(model._loss(*twice, TARGETS, None), of_any + as_named, 1e-5)


def test_it_is_saved_and_goes_on_to_another_task(tmp_path):
    model = random(make("refined"), *IMAGES.shape)
    expected = model(IMAGES)
    model.save(tmp_path / "model.keras")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(IMAGES), expected, 0)
    other = model.transferred(num_classes=4)
    assert other(IMAGES)["logits"].shape[-1] == 4
    assert_close(other.queries.embedding, model.queries.embedding, 0)


def test_levels_that_the_backbone_lacks_are_made_of_its_last_map():
    model = make(num_levels=4, features=["stride_8", "stride_16"])
    model.build((None, 64, 96, 3))
    maps = model.levels(model.feature_map(np.zeros((1, 64, 96, 3), "float32")))
    assert [tuple(x.shape[1:]) for x in maps] == [(8, 12, 32), (4, 6, 32), (2, 3, 32), (1, 2, 32)]


def test_published_sizes_have_as_many_parameters():
    sizes = {"points": 40_175_905, "proposals": 41_287_769}
    for queries, size in sizes.items():
        model = DeformableDETR.from_variant("R50", queries=queries)
        assert number_of_parameters(model, (None, 224, 224, 3)) == size


def blocks(*kinds, **changes):
    return [kind(num_heads=2, mlp_dim=11, **changes) for kind in kinds]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"blocks": blocks(EncoderBlock, DecoderBlock)},
            "a pair of a DeformableEncoderBlock and a .* Received: EncoderBlock, DecoderBlock",
        ),
        (
            {"blocks": blocks(DeformableEncoderBlock, DeformableDecoderBlock, num_levels=2)},
            "must have num_levels=4, as `backbone` has. Received: 2",
        ),
        ({"blocks": blocks(DeformableEncoderBlock), "num_heads": 2}, "`num_heads` must be left"),
        ({"queries": LearnedQueries(5)}, "`queries` must be"),
        ({"hidden_dim": 40}, "`hidden_dim` must be a multiple of 32, the groups"),
        ({"backbone": 3}, "`backbone` must be a Keras model, a `FeatureMaps` of one"),
        ({"num_layers": (1, 2, 3)}, "DeformableDETR: `num_layers` must be a number, or a pair"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        DeformableDETR(**{"num_classes": 3, "backbone": patches(), "hidden_dim": 32, **changes})


def test_maps_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match="`features` must be some of stride_4, .* \\['stride_5'"):
        make(features=["stride_5"]).build(IMAGES.shape)
    with pytest.raises(ValueError, match="as many as `num_levels`=1, or less. Received: 2 of them"):
        make(features=["stride_8", "stride_16"], num_levels=1).build(IMAGES.shape)
    with pytest.raises(ValueError, match="`num_levels` must be a positive integer"):
        FeatureMaps(patches(), num_levels=0)
    with pytest.raises(ValueError, match="at least `num_queries`=99 positions on the maps"):
        make("proposals", num_queries=99)(IMAGES)
