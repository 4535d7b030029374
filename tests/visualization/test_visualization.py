"""Claims about the pictures: they are written, and refuse what does not fit."""

import matplotlib.image
import numpy as np
import pytest

from keras_transformers.visualization import (
    attention_heat_map,
    confusion_matrix,
    grid_position_similarity,
    images_side_by_side,
    images_with_attention,
    images_with_boxes,
    learning_rate_range,
    most_confused,
    patch_filters,
    position_bias,
    position_similarity,
    training_curves,
)


def test_every_name_of_a_history_gets_a_panel(tmp_path):
    history = {"loss": [3.0, 2.0], "val_loss": [3.0, 2.5], "val_bleu": [1.0, 2.0]}
    narrow = matplotlib.image.imread(training_curves(history, tmp_path / "a.png", ["loss"]))
    wide = matplotlib.image.imread(training_curves(history, tmp_path / "b.png"))
    assert wide.shape[1] > 1.8 * narrow.shape[1]


def test_a_range_test_is_drawn_with_what_is_known(tmp_path):
    rates, losses = np.geomspace(1e-5, 1, 9), [3, 3, 2.9, 2.5, 2, 1.8, 2, np.nan, 1e9]
    plain = learning_rate_range(rates, losses, tmp_path / "a.png")
    whole = learning_rate_range(rates, losses, tmp_path / "b.png", losses, 1e-3)
    sizes = [path.stat().st_size for path in (plain, whole)]
    assert 1000 < sizes[0] < sizes[1]
    assert learning_rate_range([0.1], [np.nan], tmp_path / "c.png").is_file()
    for wrong in (([], []), ([0.0], [1.0]), ([0.1, 0.2], [1.0]), ([0.1], [1.0, 2.0])):
        with pytest.raises(ValueError, match="`rates` must be positive"):
            learning_rate_range(*wrong, tmp_path / "d.png")


def test_a_heat_map_grows_with_its_tokens(tmp_path):
    sizes = []
    for number in (3, 11):
        tokens = [f"token{i}" for i in range(number)]
        path = attention_heat_map(np.eye(number), tokens, tokens, tmp_path / "map.png")
        sizes.append(matplotlib.image.imread(path).shape[1])
    assert sizes[1] > 1.5 * sizes[0]


def test_tokens_that_do_not_fit_the_weights_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"shape \(1, 2\).*Received: shape \(2, 2\)"):
        attention_heat_map(np.eye(2), ["a"], ["b", "c"], tmp_path / "map.png")


def test_positions_are_drawn_in_a_folder_that_is_made(tmp_path):
    assert position_similarity(np.eye(5), tmp_path / "new" / "positions.png").is_file()
    assert position_bias(np.eye(3), [-1, 0, 1], tmp_path / "bias.png").is_file()


def test_a_confusion_matrix_grows_with_its_classes(tmp_path):
    sizes = []
    for number in (3, 11):
        classes = [f"class{i}" for i in range(number)]
        path = confusion_matrix(np.eye(number, dtype=int), classes, tmp_path / "counts.png")
        sizes.append(matplotlib.image.imread(path).shape[0])
    assert sizes[1] > 1.5 * sizes[0]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_drawn_beside_their_attention(channels, tmp_path):
    images, maps = np.zeros((5, 8, 8, channels)), np.ones((5, 2, 2))
    titles = [str(i) for i in range(5)]
    assert images_with_attention(images, maps, titles, tmp_path / "a.png").is_file()
    with pytest.raises(ValueError, match="5 images, 4 maps, 5 titles"):
        images_with_attention(images, maps[:4], titles, tmp_path / "b.png")


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_filters_of_any_number_of_channels_are_drawn(channels, tmp_path):
    filters = np.random.default_rng(0).normal(size=(4, 4, channels, 20))
    assert patch_filters(filters, tmp_path / "filters.png").is_file()


def test_pictures_stand_in_columns_as_many_as_there_are(tmp_path):
    columns = {"one": np.zeros((3, 4, 4, 3)), "other": np.ones((3, 4, 4, 3))}
    path = images_side_by_side(columns, tmp_path / "columns.png", across=2)
    assert path.stat().st_size > 1000
    columns["other"] = columns["other"][:2]
    with pytest.raises(ValueError, match="as many images each.*\\[3, 2\\]"):
        images_side_by_side(columns, tmp_path / "columns.png")


def test_found_and_true_boxes_have_colours_of_their_own(tmp_path):
    black, box = np.zeros((20, 30, 3)), np.array([[4, 4, 16, 16]])
    nothing = np.zeros((0, 4))

    def colours(found, true):
        path = images_with_boxes([black], [(found, [0.5] * len(found))], [true], tmp_path / "b.png")
        picture = matplotlib.image.imread(path)[..., :3]
        orange = (picture[..., 0] > 0.9) & (picture[..., 2] < 0.2)
        blue = (picture[..., 2] > 0.9) & (picture[..., 0] < 0.2)
        return bool(orange.any()), bool(blue.any())

    assert colours(box, nothing) == (True, False)
    assert colours(nothing, box) == (False, True)
    with pytest.raises(ValueError, match="Received: 1 images, 0 found, 1 true"):
        images_with_boxes([black], [], [box], tmp_path / "b.png")


def test_the_tiles_of_a_grid_are_as_many_as_its_patches(tmp_path):
    path = grid_position_similarity(
        np.random.default_rng(0).normal(size=(12, 5)), (3, 4), tmp_path / "grid.png"
    )
    assert path.is_file()


def test_a_confusion_matrix_of_many_classes_stays_small_and_names_the_most_confused(tmp_path):
    number = 1000
    counts = np.diag(np.full(number, 50))
    counts[7, 290] = 9
    names = [f"class {i} of ${'x' * 100}$" for i in range(number)]  # too long, and no formula
    picture = matplotlib.image.imread(confusion_matrix(counts, names, tmp_path / "counts.png"))
    assert max(picture.shape[:2]) < 3000
    assert {7, 290} <= set(most_confused(counts, 40))


def test_the_most_confused_classes_are_those_of_the_largest_counts_off_the_diagonal():
    counts = np.random.default_rng(0).permutation(400).reshape(20, 20).astype("uint64")
    pairs = sorted((counts[i, j], i, j) for i in range(20) for j in range(20) if i != j)[::-1]
    for most in (2, 5, 11):
        expected = list(dict.fromkeys(k for _, *pair in pairs for k in pair))[:most]
        assert most_confused(counts, most) == sorted(expected)
    assert most_confused(counts, 20) == list(range(20))


def test_a_heat_map_of_many_tokens_stays_small(tmp_path):
    tokens = [f"token{i}" for i in range(700)]
    path = attention_heat_map(np.ones((2, 700)), tokens[:2], tokens, tmp_path / "map.png")
    assert max(matplotlib.image.imread(path).shape[:2]) <= 3600
