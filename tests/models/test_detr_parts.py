"""Claims about the parts of the detection Transformer: backbone, queries, blocks, criterion."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.detection import SetCriterion
from keras_transformers.layers import DecoderBlock, EncoderBlock, GatedFeedForward
from keras_transformers.models import (
    DETR,
    AnchorQueries,
    FeatureMap,
    LearnedQueries,
    ProposalQueries,
    Swin,
    ViT,
)
from tests.contract import ON_JAX, assert_close, to_numpy
from tests.models.small_detr import IMAGES, KINDS, RNG, function, make, patches, small_backbone

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


# --- parts in the place of numbers


def blocks(**kwargs):
    """Pre-norm, with gated networks."""
    settings = {"num_heads": 2, "feed_forward": GatedFeedForward(11, "silu"), "norm_first": True}
    settings |= {"norm": keras.layers.RMSNormalization(), **kwargs}
    return EncoderBlock(**settings), DecoderBlock(**settings, causal=False)


def same_weights(model, other):
    for each in (model, other):
        each.build((None, 33, 50, 3))
    of = {weight.path.split("/", 1)[1]: weight for weight in model.weights}
    weights = {weight.path.split("/", 1)[1]: weight for weight in other.weights}
    assert of.keys() == weights.keys()
    for path, weight in weights.items():
        weight.assign(of[path])


def test_numbers_are_the_paper_and_at_most_ten():
    parameters = inspect.signature(DETR).parameters
    assert len(parameters) - 1 == 10 and "kwargs" in parameters
    by_numbers, by_name = DETR(91), DETR.from_variant("R50")
    for model in (by_numbers, by_name):
        assert len(model.encoder_blocks) == len(model.decoder_blocks) == 6
        for block in (*model.encoder_blocks, *model.decoder_blocks):
            assert (block.num_heads, block.mlp_dim, block.dropout) == (8, 2048, 0.1)
            assert not block.norm_first
        assert type(model.queries) is LearnedQueries and model.queries.num_queries == 100
        assert model.encoder_norm is None and model.feature_map.max_wavelength == 10000.0


@pytest.mark.parametrize("kind", KINDS)
def test_flat_keywords_and_parts_make_the_same_model(kind):
    flat = {**KINDS[kind], "feature": "stride_8", "max_wavelength": 30.0}
    model = make(backbone=small_backbone(), **flat)
    of_kind = {"anchors": AnchorQueries, "proposals": ProposalQueries}
    parts = {"num_heads": 2, "mlp_dim": 11}
    if flat.get("norm_first"):
        norm = keras.layers.LayerNormalization(epsilon=1e-5)
        settings = {**parts, "dropout": 0.1, "norm_first": True, "norm": norm}
        parts = {"blocks": (EncoderBlock(**settings), DecoderBlock(**settings, causal=False))}
    other = DETR(
        3,
        FeatureMap(small_backbone(), "stride_8", 30.0),
        16,
        num_layers=(1, 2),
        queries=of_kind.get(flat.get("queries"), LearnedQueries)(5),
        criterion=flat.get("criterion"),
        **parts,
    )
    same_weights(model, other)
    run, other = function(model), function(other)
    assert_close(other(IMAGES), run(IMAGES), 0)


def test_blocks_of_ones_own_are_copied_saved_and_trained(tmp_path):
    given = blocks()
    model = DETR(
        3, small_backbone(), 16, num_layers=(1, 2), queries=ProposalQueries(5), blocks=given
    )
    found = model(IMAGES)
    assert not any(block is each for block in model.encoder_blocks for each in given)
    assert not given[0].built and model.encoder_norm is not None
    for block in (*model.encoder_blocks, *model.decoder_blocks):
        assert type(block.feed_forward) is GatedFeedForward and block.norm_first
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.get_config()["blocks"] == model.get_config()["blocks"]
    assert_close(again(IMAGES), found, 0)
    other = model.transferred(num_classes=4)
    assert other(IMAGES)["logits"].shape[-1] == 5  # and "no object"
    assert_close(other.decoder_blocks[1].weights[0], model.decoder_blocks[1].weights[0], 0)


@keras.saving.register_keras_serializable("tests")
class GridQueries(AnchorQueries):
    """A user's kind: boxes that stand on a grid, and are not learned."""

    def start(self, memory, heads):
        side = int(self.num_queries**0.5)
        middle = (np.arange(side) + 0.5) / side
        y, x = np.meshgrid(middle, middle, indexing="ij")
        boxes = np.stack([x, y, 0 * x + 1 / side, 0 * y + 1 / side], axis=-1).reshape(1, -1, 4)
        start = super().start(memory, heads)
        logits = ops.convert_to_tensor(np.log(boxes / (1 - boxes)).astype("float32"))
        return start._replace(boxes=ops.broadcast_to(logits, ops.shape(start.boxes)))


def test_a_kind_of_queries_of_ones_own_needs_one_class(tmp_path):
    model = DETR(3, patches(), 16, 2, 11, 1, GridQueries(9))
    found = to_numpy(model(IMAGES))
    middles = [1 / 6, 1 / 2, 5 / 6]
    expected = [[x, y, 1 / 3, 1 / 3] for y in middles for x in middles]
    assert np.abs(found["boxes"] - np.float32(expected)).max() < 0.02  # before any training
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.queries) is GridQueries
    assert_close(again(IMAGES), found, 0)


def given_blocks(**changes):
    return lambda: DETR(3, small_backbone(), 16, **{"blocks": blocks(), **changes})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (given_blocks(num_heads=2), "`num_heads` must be left out beside `blocks`.*num_heads=2"),
        (given_blocks(mlp_dim=3), "`mlp_dim` must be left out beside `blocks`, which has its own"),
        (given_blocks(dropout=0.2), "`dropout` must be left out beside `blocks`.*dropout=0.2"),
        (given_blocks(blocks=blocks()[::-1]), "a pair of an EncoderBlock and.*DecoderBlock, Enc"),
        (given_blocks(blocks=blocks()[:1]), "a pair of an EncoderBlock and a.*: EncoderBlock$"),
        (given_blocks(blocks=blocks()[0]), "a pair of an EncoderBlock and a.*: EncoderBlock$"),
        (
            given_blocks(blocks=(blocks()[0], DecoderBlock(2, 11))),
            r"a DecoderBlock that is not causal \(`causal=False`\)",
        ),
        (given_blocks(blocks=("a", "b")), "`blocks` must be a Layer. Received: 'a'"),
        (lambda: make(blocks=blocks()), "`num_heads` must be left out beside `blocks`"),
        (lambda: make(num_layers=2), "`num_encoder_layers` must be left out beside `num_layers`"),
        (
            lambda: make(backbone=FeatureMap(patches()), feature="a"),
            "from_variant: `feature` must be left out beside `backbone`, which has its own.*='a'",
        ),
        (
            lambda: DETR.from_variant("mini", queries=9, num_queries=9),
            "`num_queries` must be left out beside `queries`",
        ),
        (lambda: make(num_querys=9), "DETR.from_variant: `num_querys` is no argument"),
        (lambda: make(d_model=16), "`d_model` is called `hidden_dim` here. Received: d_model=16"),
        (lambda: DETR(3, num_layers=(1, 2, 3)), r"or a pair of those.*\[1, 2, 3\]"),
        (lambda: DETR(3, num_layers=(1, 0)), "`num_layers` must be a positive integer.*0"),
        (lambda: DETR(3, queries=0), "`queries` must be a positive integer. Received: 0"),
        (
            lambda: DETR(3, "mini", queries="anchors"),
            "`queries` must be an ObjectQueries.*'anchors",
        ),
        (lambda: AnchorQueries(2.5), "`num_queries` must be a positive integer. Received: 2.5"),
        (lambda: FeatureMap("50"), "`backbone` must be a Keras model, a `FeatureMap`.*'50'"),
    ],
)
def test_a_part_and_what_makes_it_are_not_given_both(call, message):
    with pytest.raises(ValueError, match=message):
        call()
