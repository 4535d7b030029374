"""Claims about the recipe where images have several labels: from a table to a served model."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import keras_transformers
from keras_transformers import pretrained
from keras_transformers.training import score_labels
from recipes.lib.pages import examples
from tests.pretrained import folders
from tests.recipes.command import assert_last_line_is_true, command, run

COLOURS = ["red", "green", "blue"]
SEVERAL = ["--problem-type", "multi_label_classification"]
ALONE = """
import json, sys
import tensorflow as tf
found = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](
    image=tf.constant([open(path, "rb").read() for path in sys.argv[2:]])
)
assert not any(name.startswith(("keras_transformers", "recipes")) for name in sys.modules)
print(json.dumps({name: value.numpy().tolist() for name, value in found.items()
                  if value.dtype != tf.string}))
"""


def write(folder, number, seed=0):
    """Images with a square of each colour that is one of their labels; gives the labels."""
    rng = np.random.default_rng(seed)
    labels, lines = rng.random((number, 3)) < 0.4, ["file,labels"]
    for i, row in enumerate(labels):
        pixels = rng.integers(0, 60, (20, 20, 3), dtype="uint8")
        for colour in np.flatnonzero(row):
            top, left = rng.integers(0, 12, 2)
            pixels[top : top + 8, left : left + 8, colour] = 255
        (folder / f"{i}.png").write_bytes(tf.io.encode_png(pixels).numpy())
        lines.append(f'{i}.png,"{", ".join(np.array(COLOURS)[row])}"')
    lines.append("gone.png,red")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return labels


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The folder of a run that goes on from published weights of one class each."""
    folder = tmp_path_factory.mktemp("several")
    for name in ("data", "theirs"):
        (folder / name).mkdir()
    write(folder / "data", 90)
    model = folders.vit(folder / "theirs")
    model.build((None, 16, 16, 3))
    pretrained.save(model, folder / "theirs", ["a", "b", "c", "d"])
    options = ["--pretrained", folder / "theirs", "--dataset", folder / "data", *SEVERAL]
    options += ["--epochs", 2, "--warmup-steps", 2, "--mixup", 0.2, "--cutmix", 0.5]
    return folder / "run", run("vit", folder / "run", *options)


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.slow
def test_a_run_leaves_scores_of_labels_and_no_confusion(tuned):
    folder, metrics = tuned
    scores = {"test_exact_match", "test_micro_f1", "test_macro_f1", "test_mean_average_precision"}
    assert scores | {"valid_accuracy", "parameters", "seconds"} <= set(metrics)
    assert not {"test_top1", "valid_top1"} & set(metrics)
    assert {path.stem for path in (folder / "figures").iterdir()} == {
        "training_curves",
        "labels",
        "predictions_attention",
        "position_similarity",
        "patch_filters",
    }
    assert [row["class"] for row in rows_of(folder / "classes.tsv")] == sorted(COLOURS)


@pytest.mark.slow
def test_the_scores_are_those_of_the_predictions(tuned):
    folder, metrics = tuned
    rows = rows_of(folder / "predictions.tsv")

    def hot(column):
        return np.array([[name in row[column].split(", ") for name in COLOURS] for row in rows])

    again = score_labels(hot("predicted").astype(float), hot("labels").astype(int), COLOURS)
    for name in ("exact_match", "micro_f1", "macro_f1"):
        assert metrics[f"test_{name}"] == pytest.approx(getattr(again, name))


@pytest.mark.slow
def test_the_saved_model_gives_each_label_its_probability_with_tensorflow_alone(tuned):
    folder, _ = tuned
    paths = [str(folder.parent / "data" / f"{i}.png") for i in range(9)]
    command = [sys.executable, "-c", ALONE, str(folder / "saved_model"), *paths]
    result = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout)
    predictor = keras_transformers.load(folder)
    names = sorted(COLOURS)
    assert predictor.labels == names
    probabilities = np.array(found["probabilities"])
    assert found["present"] == (probabilities >= 0.5).tolist()
    for answer, row in zip(predictor.predict(paths), probabilities, strict=True):
        np.testing.assert_allclose(list(answer["probabilities"].values()), row, atol=1e-6)
        assert answer["labels"] == [n for n, p in zip(names, row, strict=True) if p >= 0.5]
    normal = predictor.preprocessing.normalize(
        [predictor.preprocessing.decode(tf.io.read_file(path)) for path in paths]
    )
    logits = np.asarray(predictor.model(normal), "float64")
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-logits)), atol=1e-5)


@pytest.mark.slow
def test_what_is_published_has_the_same_labels(tuned):
    folder, _ = tuned
    config = json.loads((folder / "published" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    path = folder.parent / "data" / "0.png"
    published, ours = (keras_transformers.load(each) for each in (folder / "published", folder))
    assert published.predict(path)["probabilities"] == pytest.approx(
        ours.predict(path)["probabilities"], abs=1e-5
    )


@pytest.mark.slow
def test_the_run_ends_with_the_line_that_uses_it(tuned):
    assert_last_line_is_true(tuned[0])


@pytest.mark.slow
def test_the_page_of_a_run_has_images_of_its_test_set(tuned):
    pixels = examples.pictures(tuned[0])
    assert 1 < len(pixels) <= examples.NUMBER and pixels[0].shape == (20, 20, 3)


def test_a_table_that_cannot_be_used_ends_in_a_sentence(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"file": "a.png", "width": 3}\n')
    result = command("swin", tmp_path / "run", "--smoke", "--dataset", tmp_path, *SEVERAL)
    assert result.returncode != 0 and "Traceback" not in result.stderr
    assert "labels.jsonl, line 1: there is no column for labels" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["vit", "swin"])
def test_several_labels_are_learned(recipe, tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data", 600)
    options = ["--dataset", tmp_path / "data", "--epochs", 25, "--minutes", "None", *SEVERAL]
    options += ["--batch-size", 64, "--warmup-steps", 20, "--erasing", 0, "--image-size", 16]
    more = ["--patch-size", 4] if recipe == "vit" else ["--window-size", 2]
    metrics = run(recipe, tmp_path / "run", *options, *more)
    assert metrics["test_micro_f1"] > 0.9 and metrics["test_mean_average_precision"] > 0.9
    (tmp_path / "new").mkdir()
    labels = write(tmp_path / "new", 20, seed=1)
    predictor = keras_transformers.load(tmp_path / "run")
    answers = predictor.predict([tmp_path / "new" / f"{i}.png" for i in range(20)])
    found = np.array([[name in answer["labels"] for name in COLOURS] for answer in answers])
    assert (found == labels).mean() > 0.9
