"""Claims about a detector whose queries refer to points of the image."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import (
    ConditionalDecoderBlock,
    DecoderBlock,
    EncoderBlock,
    FirstConditionalDecoderBlock,
)
from keras_transformers.models import DETR, LearnedQueries, ReferenceQueries
from tests.contract import ON_JAX, assert_close, to_numpy
from tests.models.small_detr import FOCAL, IMAGES, make, patches, random


def made(**changes):
    return make(queries="references", criterion=FOCAL, **changes)


def test_numbers_make_a_first_block_and_others():
    kinds = [FirstConditionalDecoderBlock, ConditionalDecoderBlock, ConditionalDecoderBlock]
    for model in (
        made(num_decoder_layers=3),
        DETR(3, patches(), 16, 2, 11, (1, 3), ReferenceQueries(5)),
        made(num_decoder_layers=3, norm_first=True),
    ):
        assert [type(block) for block in model.decoder_blocks] == kinds
        assert type(model.queries) is ReferenceQueries and model.queries.num_queries == 5
    assert model.encoder_norm is not None


def test_boxes_are_found_around_the_points_that_queries_refer_to():
    model = random(made(backbone=patches()), *IMAGES.shape)
    last = model.heads.box_head.layers[-1]
    last.kernel.assign(0 * last.kernel)
    last.bias.assign([0.0, 0.0, 1.0, -1.0])
    network = model.queries.reference_network
    points = 1 / (1 + np.exp(-to_numpy(network(model.queries.embedding[None]))))
    found = to_numpy(model(IMAGES))
    for boxes in (found["boxes"], found["auxiliary_boxes"][:, 0]):  # no block moves them
        assert_close(boxes[:, :, :2], np.repeat(points, 2, axis=0), 1e-5)
        sizes = 1 / (1 + np.exp([-1.0, 1.0]))
        assert_close(boxes[:, :, 2:], np.broadcast_to(sizes, (2, 5, 2)).astype("float32"), 1e-6)


def test_queries_in_another_order_give_answers_in_that_order():
    model = random(made(backbone=patches()), *IMAGES.shape)
    found, order = to_numpy(model(IMAGES)), [3, 0, 4, 1, 2]
    model.queries.embedding.assign(to_numpy(model.queries.embedding.value)[order])
    again = to_numpy(model(IMAGES))
    for name in ("logits", "boxes"):
        assert_close(again[name], found[name][:, order], 1e-5)


def test_it_is_saved_and_goes_on_to_another_task(tmp_path):
    model = random(made(backbone=patches()), *IMAGES.shape)
    expected = model(IMAGES)
    model.save(tmp_path / "model.keras")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(IMAGES), expected, 0)
    other = model.transferred(num_classes=4)
    assert other(IMAGES)["logits"].shape[-1] == 4
    assert_close(other.queries.embedding, model.queries.embedding, 0)


@pytest.mark.skipif(ON_JAX, reason="it is called eagerly")
def test_every_weight_is_trained():
    model = random(made(backbone=patches(), dropout=0.0), *IMAGES.shape)
    model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    targets = {"labels": np.array([[0, -1], [2, 1]]), "boxes": np.full((2, 2, 4), 0.3, "float32")}
    before = {weight.path: to_numpy(weight) for weight in model.trainable_weights}
    model.fit(IMAGES, targets, batch_size=2, verbose=0)
    same = {w.path for w in model.trainable_weights if np.array_equal(before[w.path], to_numpy(w))}
    # The first block's queries have no content yet, and all the same values.
    first = "decoder_0/mixer"
    assert not {path for path in same if first not in path and "key" not in path}


def blocks(*kinds):
    return [kind(num_heads=2, mlp_dim=11) for kind in kinds]


def test_blocks_may_be_given_whole():
    given = blocks(EncoderBlock, FirstConditionalDecoderBlock, ConditionalDecoderBlock)
    numbers = DETR(3, patches(), 16, 2, 11, (1, 2), ReferenceQueries(5))
    model = DETR(3, patches(), 16, num_layers=(1, 2), queries=ReferenceQueries(5), blocks=given)
    for each in (numbers, model):
        each.build(IMAGES.shape)
    names = ({w.path.split("/", 1)[1] for w in each.weights} for each in (numbers, model))
    assert len({frozenset(each) for each in names}) == 1


@pytest.mark.parametrize(
    ("queries", "kinds", "message"),
    [
        (
            ReferenceQueries(5),
            (EncoderBlock, ConditionalDecoderBlock, lambda **kw: DecoderBlock(causal=False, **kw)),
            "a ConditionalDecoderBlock, for `queries` that refer to points, .* DecoderBlock$",
        ),
        (
            LearnedQueries(5),
            (EncoderBlock, ConditionalDecoderBlock),
            "a DecoderBlock that is not causal .* Received: EncoderBlock, Conditional",
        ),
        (ReferenceQueries(5), (EncoderBlock,), "must be a pair .* Received: EncoderBlock$"),
    ],
)
def test_blocks_and_queries_that_do_not_fit_are_refused(queries, kinds, message):
    with pytest.raises(ValueError, match=message):
        DETR(3, patches(), 16, queries=queries, blocks=blocks(*kinds))
