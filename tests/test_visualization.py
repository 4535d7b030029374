"""Claims about the pictures: they are written, and refuse what does not fit."""

import matplotlib.image
import numpy as np
import pytest

from keras_transformers.visualization import (
    attention_heat_map,
    position_similarity,
    training_curves,
)


def test_every_name_of_a_history_gets_a_panel(tmp_path):
    history = {"loss": [3.0, 2.0], "val_loss": [3.0, 2.5], "val_bleu": [1.0, 2.0]}
    narrow = matplotlib.image.imread(training_curves(history, tmp_path / "a.png", ["loss"]))
    wide = matplotlib.image.imread(training_curves(history, tmp_path / "b.png"))
    assert wide.shape[1] > 1.8 * narrow.shape[1]


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
