"""Claims about attention to a few points of several maps, and the blocks of Deformable DETR."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    DeformableAttention,
    DeformableDecoderBlock,
    DeformableEncoderBlock,
    sample_levels,
)
from tests.contract import ON_JAX, assert_close, check_layer, compiled, to_numpy

RNG = np.random.default_rng(0)
HEADS, WIDTH, POINTS = 3, 12, 2
SHAPES = np.array([[5, 7], [2, 3]], "int32")
POSITIONS = 41  # of both maps


def random(*shape):
    return RNG.normal(size=shape).astype("float32")


X, MAPS, CODES = random(2, 5, WIDTH), random(2, POSITIONS, 10), random(5, WIDTH)
AT = RNG.uniform(-0.1, 1.1, (2, 5, 2, 2)).astype("float32")
BOXES = np.concatenate([AT, RNG.uniform(0.1, 0.6, AT.shape)], -1).astype("float32")
MASK = np.arange(POSITIONS) < np.array([[41], [20]])
INPUTS = (X, MAPS, AT, SHAPES)


def made(layer, *shapes):
    layer.build(*shapes)
    layer.set_weights([RNG.normal(size=w.shape) / 2 for w in layer.weights])
    return layer


def interpolated(grid, x, y):
    """The value of `(rows, columns, dim)` at a point in positions, float64, zero outside."""
    total = np.zeros(grid.shape[-1])
    for row in range(grid.shape[0]):
        for column in range(grid.shape[1]):
            near = max(0, 1 - abs(x - column)) * max(0, 1 - abs(y - row))
            total += near * np.float64(grid[row, column])
    return total


def sampled(values, shapes, locations, weights):
    """`sample_levels`, one point after another."""
    batch, _, heads, dim = values.shape
    y = np.zeros((batch, locations.shape[1], heads, dim))
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    for index in np.ndindex(locations.shape[:-1]):
        image, query, head, level, _ = index
        rows, columns = shapes[level]
        grid = values[image, ends[level] - rows * columns : ends[level], head]
        point = np.float64(locations[index]) * (columns, rows) - 0.5
        found = interpolated(grid.reshape(rows, columns, dim), *point)
        y[image, query, head] += weights[index] * found
    return y


def samples():
    """Values, locations, some of them outside and on borders, and weights."""
    locations = RNG.uniform(-0.3, 1.3, (2, 5, HEADS, 2, POINTS, 2)).astype("float32")
    locations[0, 0, 0, 0] = [[0.0, 0.0], [1.0, 1.0]]
    locations[0, 0, 1, 1] = [[-9.0, 0.5], [1.5 / 3, 0.5 / 2]]  # far outside; on a position
    return random(2, POSITIONS, HEADS, 4), locations, random(*locations.shape[:-1])


def test_maps_are_interpolated_between_their_positions_and_zero_outside():
    values, locations, weights = samples()
    expected = sampled(values, SHAPES, locations, weights)
    found = to_numpy(
        sample_levels(*map(ops.convert_to_tensor, (values, SHAPES, locations, weights)))
    )
    np.testing.assert_allclose(found, expected, atol=2e-6)
    found = sample_levels(values, SHAPES.tolist(), locations, weights)
    np.testing.assert_allclose(to_numpy(found), expected, atol=2e-6)


def test_it_is_grid_sample_of_pytorch_gradients_too():
    torch = pytest.importorskip("torch")
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("gradients are taken with TensorFlow")
    given = samples()
    values, locations, weights = (torch.tensor(x, requires_grad=True) for x in given)
    y, start = 0, 0
    for level, (rows, columns) in enumerate(SHAPES.tolist()):
        grid = values[:, start : start + rows * columns].permute(0, 2, 3, 1)
        start += rows * columns
        at = 2 * locations[:, :, :, level].transpose(1, 2).flatten(0, 1) - 1
        found = torch.nn.functional.grid_sample(
            grid.reshape(-1, 4, rows, columns), at, align_corners=False
        )  # (batch * heads, dim, queries, points)
        found = found.unflatten(0, (2, HEADS)) * weights[:, :, :, level].transpose(1, 2)[:, :, None]
        y = y + found.sum(-1).permute(0, 3, 1, 2)
    y.square().sum().backward()
    ours = list(map(tf.constant, given))
    with tf.GradientTape() as tape:
        tape.watch(ours)
        sums = sample_levels(ours[0], SHAPES.tolist(), *ours[1:])
        loss = tf.reduce_sum(sums**2)
    assert_close(sums, y.detach().numpy(), 2e-6)
    # Where a point lies on a position, the derivative depends on the side that it is seen from.
    expected = [each.grad.numpy() for each in (values, locations, weights)]
    for one, other in zip(tape.gradient(loss, ours), expected, strict=True):
        assert_close(one, other, 1e-4 * np.abs(other).max())


@pytest.mark.parametrize("points", [AT, BOXES], ids=["points", "boxes"])
def test_queries_choose_points_and_weights_near_what_they_refer_to(points):
    layer = made(DeformableAttention(HEADS, 2, POINTS), X.shape, MAPS.shape)
    dense = {
        name: [np.float64(to_numpy(w)) for w in getattr(layer, f"{name}_dense").weights]
        for name in ("value", "offset", "weight", "output")
    }
    query = X + CODES
    offsets, weights, values = (
        each @ dense[name][0] + dense[name][1]
        for each, name in ((query, "offset"), (query, "weight"), (MAPS, "value"))
    )
    weights = np.exp(weights.reshape(2, 5, HEADS, 2 * POINTS))
    weights /= weights.sum(-1, keepdims=True)
    offsets = offsets.reshape(2, 5, HEADS, 2, POINTS, 2)
    unit = 1 / SHAPES[:, None, ::-1] if points is AT else points[:, :, None, :, None, 2:] / 4
    locations = points[:, :, None, :, None, :2] + offsets * unit
    values = (values * MASK[..., None]).reshape(2, POSITIONS, HEADS, -1)
    y = sampled(values, SHAPES, locations, weights.reshape(2, 5, HEADS, 2, POINTS))
    expected = y.reshape(2, 5, WIDTH) @ dense["output"][0] + dense["output"][1]
    found, scores = layer(
        X, MAPS, points, SHAPES, CODES, context_mask=MASK, return_attention_scores=True
    )
    np.testing.assert_allclose(to_numpy(found), expected, atol=2e-5)
    np.testing.assert_allclose(to_numpy(scores), weights.swapaxes(1, 2), atol=1e-6)


def test_a_new_one_looks_along_rays_and_weighs_all_alike():
    layer = DeformableAttention(4, 1, 2)
    layer.build((None, None, 8), (None, None, 8))
    offsets = to_numpy(layer.offset_dense.bias.value).reshape(4, 2, 2)
    rays = [[1, 0], [0, 1], [-1, 0], [0, -1]]
    np.testing.assert_allclose(offsets, [[ray, np.multiply(ray, 2)] for ray in rays], atol=1e-7)
    assert not to_numpy(layer.weight_dense.kernel).any()


def test_what_stands_at_padding_changes_nothing():
    layer = made(DeformableAttention(HEADS, 2, POINTS), X.shape, MAPS.shape)
    hidden = np.where(MASK[..., None], MAPS, np.nan)
    assert_close(*(layer(X, x, AT, SHAPES, context_mask=MASK) for x in (MAPS * 1, hidden)), 0)
    block = made(DeformableEncoderBlock(HEADS, 11, 2, POINTS), (2, POSITIONS, WIDTH))
    x, at = random(2, POSITIONS, WIDTH), RNG.uniform(size=(2, POSITIONS, 2, 2)).astype("float32")
    hidden = np.where(MASK[..., None], x, np.inf)
    found = [to_numpy(block(each, at, SHAPES, padding_mask=MASK)) for each in (x, hidden)]
    assert_close(*found, 0)


@pytest.mark.skipif(ON_JAX, reason="a graph of TensorFlow")
def test_under_xla_and_with_unknown_extents_it_is_the_same():
    import tensorflow as tf

    layer = made(DeformableAttention(HEADS, 2, POINTS), X.shape, MAPS.shape)
    expected = layer(*INPUTS)
    assert_close(compiled(layer, level_shapes=SHAPES.tolist())(*INPUTS[:3]), expected, 1e-5)

    @tf.function(
        input_signature=[tf.TensorSpec([None] * 3 + [10]), tf.TensorSpec([None] * 3 + [10])]
    )
    def run(large, small):
        maps = [tf.reshape(each, (tf.shape(each)[0], -1, 10)) for each in (large, small)]
        shapes = [[tf.shape(each)[1], tf.shape(each)[2]] for each in (large, small)]
        return layer(X, tf.concat(maps, axis=1), AT, level_shapes=shapes)

    large, small = MAPS[:, :35].reshape(2, 5, 7, 10), MAPS[:, 35:].reshape(2, 2, 3, 10)
    assert_close(run(large, small), expected, 1e-5)


def test_points_keep_their_precision_in_half_precision():
    layer = made(DeformableAttention(HEADS, 2, POINTS, dtype="bfloat16"), X.shape, MAPS.shape)
    near = AT + np.float32(1e-3)  # less than bfloat16 tells from AT
    one, other = (to_numpy(layer(X, 100 * MAPS, at, SHAPES)) for at in (AT, near))
    assert np.abs(one - other).max() > 0


def test_errors_say_what_was_expected():
    with pytest.raises(ValueError, match="`num_heads` must be a divisor of the width of `x`, 12"):
        DeformableAttention(5).build(X.shape, MAPS.shape)
    layer = made(DeformableAttention(HEADS, 2, POINTS), X.shape, MAPS.shape)
    with pytest.raises(
        ValueError, match=r"`reference_points` must be .*, 2, 2 or 4\).* \(2, 5, 2\)"
    ):
        layer(X, MAPS, AT[:, :, 0], SHAPES)
    with pytest.raises(ValueError, match="`level_shapes` must be of 2 maps. Received: 3 of them"):
        layer(X, MAPS, AT, np.ones((3, 2), "int32"))
    with pytest.raises(ValueError, match="`context` must have as many positions as `level_shapes`"):
        layer(X, MAPS, AT, level_shapes=[[5, 7], [2, 2]])
    with pytest.raises(ValueError, match="`num_points` must be a positive integer. Received: 0"):
        DeformableDecoderBlock(HEADS, 11, num_points=0)


@pytest.mark.parametrize(
    "kind", ["attention", pytest.param("encoder", marks=pytest.mark.slow), "decoder"]
)
def test_they_are_layers_like_others(kind):
    tokens, at = random(2, POSITIONS, WIDTH), RNG.uniform(size=(2, POSITIONS, 2, 2))
    make, inputs = {
        "attention": (lambda **kw: DeformableAttention(HEADS, 2, POINTS, **kw), INPUTS),
        "encoder": (
            lambda **kw: DeformableEncoderBlock(HEADS, 11, 2, POINTS, **kw),
            (tokens, at.astype("float32"), SHAPES),
        ),
        "decoder": (
            lambda **kw: DeformableDecoderBlock(HEADS, 11, 2, POINTS, **kw),
            (X, MAPS, BOXES, SHAPES),
        ),
    }[kind]
    check_layer(make, inputs)
