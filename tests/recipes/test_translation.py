"""Claims about the recipes: from data to a scored, served model, and no bad input taken."""

import csv
import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops

import keras_transformers
from tests.recipes.command import ERRORS, PRINTED, assert_last_line_is_true, run


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, run("translation", folder, "--smoke")


def test_a_run_leaves_the_whole_folder(smoke):
    folder, metrics = smoke
    figures = {"training_curves", "cross_attention", "positions", "errors"}
    assert {path.stem for path in (folder / "figures").iterdir()} == figures
    assert json.loads((folder / "config.json").read_text())["dataset"] == "ui.en-de"
    assert {"seconds", "parameters", "test_bleu", "test_chrf"} <= set(metrics)
    with open(folder / "history.csv", newline="") as file:
        assert {"loss", "val_loss", "val_bleu", "val_chrf"} <= set(next(csv.DictReader(file)))


def test_what_a_run_prints_is_its_own(smoke):
    """Nothing of TensorFlow, CUDA and XLA, and no score that was not taken."""
    said = PRINTED[smoke[0]]
    assert said.splitlines()[0].startswith(f"{smoke[0]}: reads the data, trains for ")
    assert "Epoch 1/1  loss " in said and "Trained for " in said
    assert "val_rank" not in said and "\x08" not in said and "━" not in said
    assert not re.search(r"\b(inf|nan)\b", said)
    noise = r"(?i)^[IWEF]\d{4} |absl|cuda|onednn|xla|cpu_feature|rebuild tensorflow"
    assert not re.search(noise, said + ERRORS[smoke[0]], re.MULTILINE)


def test_most_positions_hold_real_tokens(smoke):
    assert smoke[1]["real_token_share"] > 0.8


def test_the_saved_model_gives_the_translations_of_the_run(smoke):
    folder, _ = smoke
    with open(folder / "translations.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    serve = tf.saved_model.load(str(folder / "saved_model")).signatures["serving_default"]
    result = serve(text=tf.constant([row["source"] for row in rows]))
    served = [text.decode() for text in result["translation"].numpy()]
    assert served == [row["translation"] for row in rows]


def test_the_run_ends_with_the_line_that_uses_it(smoke):
    assert_last_line_is_true(smoke[0])


def test_the_keras_file_holds_the_model(smoke):
    model = keras.models.load_model(smoke[0] / "model.keras")
    ids = np.array([[5, 6, 2]])
    assert model({"source": ids, "target": ids}).shape[-1] == 600
    assert model.optimizer.iterations > 0


@pytest.mark.slow
def test_several_directions_in_one_model(tmp_path):
    """From two embedded sets: scored by direction, served by the language that is asked for."""
    given = ("--smoke", "--dataset", "ui.en-de", "--dataset", "bible.en-es")
    metrics = run("translation", tmp_path, *given)
    for name in ("bleu", "chrf"):
        each = [metrics[f"test_{name}_{direction}"] for direction in ("en-de", "en-es")]
        assert metrics[f"test_{name}"] == pytest.approx(np.mean(each))
    reports = json.loads((tmp_path / "report.json").read_text())["directions"]
    assert reports["en-es"]["scores"]["chrf"] == metrics["test_chrf_en-es"]
    with open(tmp_path / "history.csv", newline="") as file:
        assert {"val_bleu_en-de", "val_chrf_en-es"} <= set(next(csv.DictReader(file)))
    with open(tmp_path / "translations.tsv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["direction"] for row in rows] == ["en-de"] * 64 + ["en-es"] * 64
    predictor = keras_transformers.load(tmp_path)
    assert predictor.target_languages == ("de", "es")
    for code in ("de", "es"):
        of_code = [row for row in rows if row["direction"].endswith(code)]
        answers = predictor.predict([row["source"] for row in of_code], target_language=code)
        same = [row["translation"] == each for row, each in zip(of_code, answers, strict=True)]
        assert np.mean(same) > 0.9  # XLA rounds otherwise, and this model hardly prefers anything
    with pytest.raises(ValueError, match="`fit` learns one language"):
        predictor.fit([("a", "b")] * 9)
    assert (tmp_path / "figures" / "errors.png").exists()
    assert_last_line_is_true(tmp_path)
