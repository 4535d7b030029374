"""Claims about folders of random weights, and about the benchmark of large models."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import large_folders
from keras_transformers import pretrained
from tests.contract import to_numpy


@pytest.mark.parametrize("kind", large_folders.CONFIGS)
def test_a_folder_is_a_published_one_whose_weights_are_all_used(kind, tmp_path):
    size = large_folders.write(tmp_path, kind, small=True)
    model = pretrained.load(tmp_path)
    assert size == {large_folders.NLLB: 4, large_folders.LLAMA: 2}[kind] * model.count_params()
    assert not model.unused_tensors
    for weight in model.weights:
        assert np.std(to_numpy(weight)) > 0, weight.path


@pytest.mark.slow
@pytest.mark.parametrize("kind", large_folders.CONFIGS)
def test_all_candidates_load_and_decode_a_small_folder(kind):
    pytest.importorskip("torch")
    pytest.importorskip("ctranslate2")
    command = [sys.executable, "-m", "benchmarks.large_models", "--smoke", "--rounds", "1"]
    result = subprocess.run([*command, "--model", kind], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
