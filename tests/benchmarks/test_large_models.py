"""Claims about folders of random weights, and about the benchmark of large models."""

import numpy as np
import pytest

from benchmarks import large_folders
from benchmarks.large_models import NAMES
from keras_transformers import pretrained
from tests.contract import to_numpy
from tests.recipes.command import run


@pytest.mark.parametrize("kind", large_folders.CONFIGS)
def test_a_folder_is_a_published_one_of_weights_that_are_all_used(kind, tmp_path):
    size = large_folders.write(tmp_path, kind, small=True)
    model = pretrained.load(tmp_path)
    bytes_of_each = {large_folders.NLLB: 4, large_folders.LLAMA: 2}[kind]
    assert size == bytes_of_each * model.count_params()
    assert not model.unused_tensors
    for weight in model.weights:
        assert np.std(to_numpy(weight)) > 0, weight.path
