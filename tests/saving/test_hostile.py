"""Claims about hostile files: every one is refused in a sentence, and nothing else happens."""

import json
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.saving import hostile

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Dict of name -> `Hostile`."""
    folder = tmp_path_factory.mktemp("hostile")
    return {each.name: each for each in hostile.files(folder)}


@pytest.fixture(scope="module")
def model():
    return hostile.victim()


@pytest.mark.parametrize("name", hostile.names())
def test_hostile_file_is_refused_and_nothing_happens(name, corpus, model, monkeypatch):
    each = corpus[name]
    folder = each.path.parent
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    content, before = sorted(folder.rglob("*")), model.get_weights()
    with pytest.raises(ValueError) as refusal:
        each.load(model)
    assert re.search(each.why, str(refusal.value))
    assert str(each.path) in str(refusal.value) and "\n" not in str(refusal.value)
    assert sorted(folder.rglob("*")) == content  # no canary
    assert "keras_cv" not in sys.modules
    for weight, was in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, was)


def test_hostile_files_take_neither_time_nor_memory(corpus):
    folder = next(iter(corpus.values())).path.parent
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of memory cannot be reset here")
    result = subprocess.run(
        [sys.executable, "-m", "tests.saving.hostile", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert len(found) == len(corpus)
    for name, seconds, grown, sentence in found:
        assert sentence is not None, name
        assert seconds < 5 and grown < 200 << 20, (name, seconds, grown)


def test_canary_is_one_that_keras_wakes(corpus, monkeypatch):
    """The refusals mean something: Keras imports the package that the file names."""
    each = corpus["module that is imported"]
    monkeypatch.syspath_prepend(each.path.parent)
    canary = each.path.parent / "canary"
    with pytest.raises(TypeError):
        keras.models.load_model(each.path)
    sung, _ = canary.exists(), sys.modules.pop("keras_cv", None)
    canary.unlink(missing_ok=True)
    assert sung
