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
    small_data.main("images", smoke=True)
    shown = capsys.readouterr().out
    for way in small_data.WAYS["images"]:
        assert f"100 | {way} | 1" in shown
    assert not list(pathlib.Path(tmp_path).iterdir())


def test_no_run_is_planned_twice_and_every_size_has_three_seeds_but_the_largest():
    for part, sizes in small_data.EPOCHS.items():
        found = list(small_data.plan(part, smoke=False))
        assert len(found) == len(set(found))
        seeds = {size: {seed for other, _, seed in found if other == size} for size in sizes}
        assert list(map(len, seeds.values())) == [3, 3, 1]
        assert {name for _, name, _ in found} == {small_data.HEAD_ALONE, *small_data.WAYS[part]}
