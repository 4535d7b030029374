"""Claims about docs/tuning.md: its blocks run, in order."""

import pathlib

import keras
import pytest

from tests.test_examples import python_blocks

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tuning.md"


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="recipes run on TensorFlow")
def test_blocks_of_the_page_run_in_order_and_a_killed_search_continues(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    blocks = list(python_blocks(PAGE.read_text(encoding="utf-8")))
    (search,) = [code for _, code in blocks if "optuna" in code]
    assert len(search.splitlines()) <= 30
    named = {"__name__": "tuning"}
    for line, code in blocks:
        # Empty lines in front, so that an error names the line of the page.
        exec(compile("\n" * line + code, PAGE, "exec"), named)
    study = named["study"]
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2
    again = named["optuna"].load_study(study_name="vit", storage="sqlite:///search.db")
    assert again.best_value == study.best_value == max(trial.value for trial in study.trials)
    assert (tmp_path / "runs" / "search" / "1" / "saved_model").is_dir()
