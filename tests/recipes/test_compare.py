"""Claims about `recipes.compare`."""

import json
import sys

import pytest

from recipes import compare


def write(folder, config, metrics):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return str(folder)


def test_options_that_differ_and_all_metrics_stand_side_by_side(tmp_path, monkeypatch, capsys):
    shared = {"epochs": 3, "sizes": [1, 2], "dataset": "mine"}
    one = write(tmp_path / "one", shared | {"dropout": 0.1}, {"bleu": 21.75, "parameters": 1003008})
    other = write(tmp_path / "other", shared, {"bleu": 7.0, "chrf": 1.25})
    monkeypatch.setattr(sys, "argv", ["compare.py", one, other])
    compare.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [one, other]
    assert lines[1:] == [
        ["dropout", "0.1"],
        [],
        ["bleu", "21.75", "7"],
        ["parameters", "1003008"],
        ["chrf", "1.25"],
    ]


@pytest.mark.parametrize(("number", "advice"), [(1, "two runs or more"), (2, "no metrics.json")])
def test_what_cannot_be_compared_is_said(number, advice, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["compare.py", *[str(tmp_path)] * number])
    with pytest.raises(SystemExit) as refused:
        compare.main()
    assert str(refused.value).startswith("recipes.compare: ") and advice in str(refused.value)
