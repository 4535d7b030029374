"""Claims about docs/how_to/watch_and_search.md: a killed search continues."""

import pathlib

import keras
import pytest

from tests.test_examples import python_blocks
from tests.test_pages import run_page

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how_to" / "watch_and_search.md"


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="recipes run on TensorFlow")
def test_the_search_is_short_and_continues_when_it_was_killed(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    blocks = list(python_blocks(PAGE.read_text(encoding="utf-8")))
    (search,) = [code for _, code in blocks if "optuna" in code]
    assert len(search.splitlines()) <= 30
    named = run_page(PAGE)
    study = named["study"]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2
    again = named["optuna"].load_study(study_name="vit", storage="sqlite:///search.db")
    assert again.best_value == study.best_value == max(trial.value for trial in study.trials)
    assert (tmp_path / "runs" / "search" / "1" / "saved_model").is_dir()
