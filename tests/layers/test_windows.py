"""Claims about windows: cutting, shifting, masking, and attention inside them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keras import ops

from keras_transformers.layers import (
    GridRelativeBias,
    LogGridBias,
    PatchMerging,
    SelfAttention,
    SwinBlock,
    WindowAttention,
    merge_windows,
    partition_windows,
    shifted_window_mask,
)
from tests.contract import POLICIES, assert_close, check_layer, to_numpy

RNG = np.random.default_rng(7)
SIDES = st.tuples(st.integers(1, 5), st.integers(1, 5))


@given(SIDES, SIDES)
def test_merging_undoes_partition(window, numbers):
    x = RNG.normal(size=(2, window[0] * numbers[0], window[1] * numbers[1], 3)).astype("float32")
    windows = partition_windows(ops.convert_to_tensor(x), window)
    assert tuple(windows.shape) == (2 * np.prod(numbers), np.prod(window), 3)
    assert_close(merge_windows(windows, window, x.shape[1:3]), x, 0)


@given(SIDES, SIDES, st.data())
def test_the_mask_is_nearness_in_the_image_by_brute_force(window, numbers, data):
    whole = [side * number for side, number in zip(window, numbers, strict=True)]
    shift = [data.draw(st.integers(0, side - 1)) for side in window]
    real = [data.draw(st.integers(1, side)) for side in whole]
    mask = np.asarray(to_numpy(shifted_window_mask(whole, window, shift, real)))
    # Which token of the image lies where in the shifted grid, in windows.
    positions = np.stack(np.meshgrid(*map(np.arange, whole), indexing="ij"), axis=-1)
    positions = np.roll(positions, [-step for step in shift], axis=(0, 1))
    cut = positions.reshape(numbers[0], window[0], numbers[1], window[1], 2)
    cut = cut.transpose(0, 2, 1, 3, 4).reshape(np.prod(numbers), -1, 2)
    for windows, seen in zip(cut, mask, strict=True):
        for i, query in enumerate(windows):
            for j, key in enumerate(windows):
                near = np.all(np.abs(query - key) < window)
                # Neighbours in the unrolled image: not brought together by the roll.
                together = all(
                    abs(a - b) < side and (a < step) == (b < step)
                    for a, b, side, step in zip(query, key, window, shift, strict=True)
                )
                assert seen[i, j] == (near and together and np.all(key < real))


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("policies", [POLICIES])
def test_contract_of_attention(cosine, policies):
    x = RNG.normal(size=(10, 6, 14)).astype("float32")
    check_layer(lambda **kw: WindowAttention(7, (3, 2), cosine, **kw), (x,), policies=policies)


@pytest.mark.parametrize(
    "options",
    [
        {"num_heads": 7, "window_size": 3, "shift": 1},
        {
            "mixer": WindowAttention(7, 3, cosine=True),
            "shift": (1, 2),
            "norm_first": False,
            "layer_scale": 0.3,
        },
        {"num_heads": 7, "mask_padding": False, "window_size": (2, 3)},
    ],
)
def test_contract_of_a_block(options):
    x = RNG.normal(size=(2, 7, 5, 14)).astype("float32")
    check_layer(lambda **kw: SwinBlock(mlp_dim=11, **options, **kw), (x,))


@pytest.mark.parametrize("norm_first", [True, False])
def test_contract_of_merging(norm_first):
    x = RNG.normal(size=(2, 7, 6, 5)).astype("float32")
    check_layer(lambda **kw: PatchMerging(norm_first, **kw), (x,))


def test_window_attention_is_masked_attention_to_the_whole_grid():
    """Against one softmax over all tokens of the image, in float64."""
    grid, window, shift, heads, width = (6, 4), (3, 2), (1, 1), 2, 8
    block = SwinBlock(heads, window, mlp_dim=9, shift=shift)
    x = RNG.normal(size=(2, *grid, width)).astype("float32")
    block(x)
    tokens = np.prod(grid)
    positions = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 2)
    moved = (positions - shift) % grid  # where a token lies in the shifted grid
    same = np.all((moved // window)[:, None] == (moved // window)[None], axis=-1)
    wrapped = positions < shift
    same &= np.all(wrapped[:, None] == wrapped[None], axis=-1)
    attention = block.mixer
    table = np.asarray(to_numpy(attention.position.table))
    offset = (moved % window)[:, None] - (moved % window)[None] + np.array(window) - 1
    bias = table[offset[..., 0] * (2 * window[1] - 1) + offset[..., 1]].transpose(2, 0, 1)

    flat = np.float64(x).reshape(2, tokens, width)
    normed = (flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + 1e-5)

    def project(dense):
        kernel, b = (np.asarray(to_numpy(w)) for w in (dense.kernel, dense.bias))
        return np.einsum("btw,whd->bhtd", normed, kernel) + b[:, None]

    query, key, value = map(
        project, (attention.query_dense, attention.key_dense, attention.value_dense)
    )
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(width / heads) + bias
    weights = np.exp(np.where(same, scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    output = np.asarray(to_numpy(attention.output_dense.kernel))
    expected = flat + np.einsum("bhtd,hdw->btw", weights @ value, output)
    expected = expected.reshape(x.shape)
    block.feed_forward.output_dense.kernel.assign(np.zeros((9, width)))  # leaves the first equation
    found = block(x)
    assert_close(found, expected, 1e-5)


def test_padding_has_no_influence():
    block = SwinBlock(2, 4, mlp_dim=9, shift=2)
    x = RNG.normal(size=(1, 5, 6, 8)).astype("float32")
    alone, weights = block(x, return_attention_scores=True)
    seen = shifted_window_mask((8, 8), 4, 2, (5, 6))
    hidden = np.logical_not(to_numpy(seen))
    assert np.all(np.asarray(to_numpy(weights)).transpose(0, 2, 3, 1)[hidden] == 0)
    unmasked = SwinBlock(2, 4, mlp_dim=9, shift=2, mask_padding=False)
    unmasked(x)
    unmasked.set_weights(block.get_weights())
    assert np.abs(to_numpy(unmasked(x)) - to_numpy(alone)).max() > 1e-4


def test_a_window_as_large_as_the_grid_is_ordinary_attention():
    block = SwinBlock(2, (3, 4), mlp_dim=9, shift=1)
    x = RNG.normal(size=(2, 3, 4, 8)).astype("float32")
    block(x)
    attention = SelfAttention(2, position=GridRelativeBias((3, 4)))
    tokens = block.mixer_norm(x.reshape(2, 12, 8))
    attention(tokens)
    attention.set_weights(block.mixer.get_weights())
    found, _ = block._in_windows(block.mixer_norm(x))
    assert_close(ops.reshape(found, (2, 12, 8)), attention(tokens), 1e-5)


def test_merging_joins_neighbours_in_the_authors_order():
    x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    layer = PatchMerging()
    seen = []
    layer.build(x.shape)
    layer.norm = lambda y: seen.append(to_numpy(y)) or y
    layer(x)
    assert seen[0][0, 0, 0].tolist() == [0, 4, 1, 5]


def test_the_offsets_of_the_second_version_are_logarithms():
    term = LogGridBias((3, 3))
    # 8 |o| / (M - 1) + 1 = 1, 5, 9 for offsets 0, 1, 2.
    expected = np.log2([9, 5, 1, 5, 9]) / 3 * [-1, -1, 0, 1, 1]
    assert_close(term._offsets[:5, 1], expected, 1e-6)


def test_a_table_loads_at_another_window_size():
    term, larger = GridRelativeBias((3, 3)), GridRelativeBias((5, 4))
    for layer in (term, larger):
        layer.build((None, 2, None, 4))
    rows, columns = np.meshgrid(np.arange(-2, 3), np.arange(-2, 3), indexing="ij")
    linear = np.stack([rows + 10.0 * columns, columns], axis=-1).reshape(-1, 2)
    larger.assign_resized(linear.astype("float32"), (3, 3))
    middle = np.asarray(to_numpy(larger.table)).reshape(9, 7, 2)
    assert np.abs(middle[4, 3]).max() < 1e-5  # no offset stays none
    assert abs(middle[5, 3, 0] - 5 / 9) < 0.05  # nine rows where there were five


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SwinBlock(2, 3, 8, shift=3), "`shift` must be .* less than `window_size`"),
        (lambda: SwinBlock(2, mlp_dim=8), "`window_size` must be given"),
        (lambda: SwinBlock(2, mixer=WindowAttention(2, 3), mlp_dim=8), "`num_heads` must be left"),
        (
            lambda: SwinBlock(window_size=3, mixer=WindowAttention(2, 3), mlp_dim=8),
            "`window_size` must be left out beside `mixer`",
        ),
        (lambda: SwinBlock(3, 3, 8)(np.ones((1, 3, 3, 8))), "`num_heads` must divide"),
        (lambda: SwinBlock(2, 3, 8)(np.ones((1, 9, 8))), "must have shape"),
        (lambda: WindowAttention(2, 3)(np.ones((1, 8, 8))), "`x` must be of shape"),
        (lambda: PatchMerging()(np.ones((1, 8, 8))), "must have shape"),
        (lambda: LogGridBias((0, 2)), "positive integers"),
    ],
)
def test_errors_say_what_was_expected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
