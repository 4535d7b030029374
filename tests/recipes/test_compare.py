"""Claims about `recipes.compare`."""

import dataclasses
import json
import sys

import pytest

from keras_transformers import training
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


def of_translation(folder, translations, references):
    name = write(folder, {"seed": translations[0]}, {"test_bleu": 1.0})
    rows = [("source", "reference", "translation")]
    rows += [(f"s{i}", *pair) for i, pair in enumerate(zip(references, translations, strict=True))]
    (folder / "translations.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    report = training.report_translations(references, references, translations)
    (folder / "report.json").write_text(
        json.dumps({"tokenizer": "13a", **dataclasses.asdict(report)})
    )
    return name


def test_translations_of_one_test_set_are_compared_by_chance_too(tmp_path, monkeypatch, capsys):
    references = [f"the cat is on table {i}" for i in range(40)]
    worse = [text.replace("table", "chair") if i % 2 else text for i, text in enumerate(references)]
    one = of_translation(tmp_path / "one", worse, references)
    other = of_translation(tmp_path / "other", references, references)
    figure = tmp_path / "errors.png"
    monkeypatch.setattr(sys, "argv", ["c", one, other, "--samples", "100", "--figure", str(figure)])
    compare.main()
    lines = capsys.readouterr().out.splitlines()
    (bleu,) = [i for i, line in enumerate(lines) if line.startswith("bleu ")]
    assert "+-" in lines[bleu] and lines[bleu + 1].split()[-3:] == ["p", "=", "0.010"]
    assert figure.read_bytes()[:4] == b"\x89PNG"
    third = of_translation(tmp_path / "third", worse[:30], references[:30])
    assert "other test sets" in compare.compare([one, third])
