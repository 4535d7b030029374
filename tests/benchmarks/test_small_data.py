"""Claims about the benchmark of small labelled sets."""

import pathlib

import keras
import pytest

from benchmarks import small_data

if keras.backend.backend() != "tensorflow":
    pytest.skip("it measures on TensorFlow", allow_module_level=True)


@pytest.mark.slow
def test_every_way_runs_and_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(small_data, "FOLDER", tmp_path)
    small_data.main("images", None, minutes=10, smoke=True)
    shown = capsys.readouterr().out
    for way in small_data.WAYS["images"]:
        assert f"100 | {way} | 1" in shown
    assert not list(pathlib.Path(tmp_path).iterdir())


def test_each_size_is_measured_with_the_first_seed_before_others_are_repeated():
    for part in small_data.WAYS:
        found = list(small_data.plan(part, smoke=False))
        assert len(found) == len(set(found))
        first = [size for size, _, seed in found if seed == 1]
        assert list(dict.fromkeys(first)) == list(small_data.EPOCHS[part])
