"""Claims about the recipes for texts: from data to a scored, served model; no bad input taken."""

import csv

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizers' ops

from recipes import text_classification
from recipes.lib.options import configure
from tests.recipes.command import assert_last_line_is_true, run

COMMON = {"config.json", "metrics.json", "history.csv", "model.keras", "saved_model", "figures"}


def inside(folder):
    return {path.name for path in folder.iterdir()}


def rows(path, delimiter="\t"):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def serve(folder, sentences):
    loaded = tf.saved_model.load(str(folder / "saved_model"))
    return loaded.signatures["serving_default"](text=tf.constant(sentences))


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return folder, run("language_model", folder, "--smoke")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("masked")
    return folder, run("masked_language_model", folder, "--smoke")


@pytest.fixture(scope="module")
def classified(tmp_path_factory, pretrained):
    folder = tmp_path_factory.mktemp("classified")
    arguments = ["--smoke", "--pretrained", pretrained[0], "--compare"]
    arguments += ["--layer-decay", 0.8, "--unfreeze-every", 0.5, "--track", "tensorboard"]
    return folder, run("text_classification", folder, *arguments)


@pytest.mark.slow
def test_a_language_model_leaves_the_whole_folder(language):
    folder, metrics = language
    assert {"seconds", "parameters"} <= set(metrics)
    assert inside(folder) == COMMON | {"tokenizer.model", "samples.txt", "test_texts.tsv"}
    assert inside(folder / "figures") == {"training_curves.png", "attention.png"}
    assert metrics["real_token_share"] > 0.98
    (row,) = rows(folder / "test_texts.tsv")
    assert float(row["bits_per_byte"]) == pytest.approx(metrics["test_bits_per_byte"])


@pytest.mark.slow
def test_scores_of_a_language_model_follow_from_one_another(language):
    metrics = language[1]
    nats = np.log(metrics["test_perplexity_per_token"]) * metrics["test_tokens"]
    assert metrics["test_bits_per_byte"] == pytest.approx(nats / np.log(2) / metrics["test_bytes"])
    assert np.log(metrics["test_perplexity_per_word"]) == pytest.approx(
        nats / metrics["test_words"]
    )


@pytest.mark.slow
def test_the_run_ends_with_the_line_that_uses_it(language):
    assert_last_line_is_true(language[0], repeatable=False)


@pytest.mark.slow
def test_the_saved_model_goes_on_with_a_prompt(language):
    result = serve(language[0], ["ROMEO.\n", ""])
    assert result["text"][0].numpy().startswith(b"ROMEO.\n")


@pytest.mark.slow
def test_a_masked_language_model_leaves_the_whole_folder(pretrained):
    folder, metrics = pretrained
    assert {"seconds", "parameters"} <= set(metrics)
    assert inside(folder) == COMMON | {"vocab.txt", "samples.tsv"}
    samples = rows(folder / "samples.tsv")
    served = serve(folder, [row["text"] for row in samples])["text"].numpy()
    assert [text.decode() for text in served] == [row["filled"] for row in samples]
    assert_last_line_is_true(folder)


@pytest.mark.slow
def test_a_classifier_leaves_the_whole_folder(classified):
    folder, metrics = classified
    assert {"seconds", "parameters"} <= set(metrics)
    assert inside(folder) == COMMON | {"vocab.txt", "runs.tsv", "classes.tsv"}
    assert inside(folder / "figures") == {"training_curves.png", "confusion.png"}
    assert [row["start"] for row in rows(folder / "runs.tsv")] == ["pretrained", "scratch"]
    assert {"pretrained_test_macro_f1", "scratch_test_accuracy"} <= set(metrics)
    result = serve(folder, ["To be, or not to be"])
    model = keras.models.load_model(folder / "model.keras")
    assert result["probabilities"].shape == (1, model.head.num_classes)
    assert_last_line_is_true(folder)


@pytest.mark.slow
def test_each_model_of_a_run_has_curves_of_its_own_in_the_tracker(classified):
    folder, _ = classified
    curves = folder / "tensorboard"
    assert {path.name for path in curves.iterdir()} == {"pretrained-1", "scratch-1", "results"}
    assert inside(curves / "scratch-1") == {"train", "validation"}
    optimizer = keras.models.load_model(folder / "model.keras").optimizer
    if optimizer.depths is not None:  # the pre-trained one was better
        assert optimizer.layer_decay == 0.8


@pytest.mark.slow
def test_pretraining_is_taken_over(pretrained, classified):
    encoder = keras.models.load_model(pretrained[0] / "model.keras")
    config = configure(text_classification.Config, pretrained=str(pretrained[0]))
    size = encoder.get_config()["vocab_size"]
    started = text_classification.build_model(config, 3, size, "pretrained")
    table = started.token_embedding.get_weights()[0]
    np.testing.assert_array_equal(table, encoder.token_embedding.get_weights()[0])
    scratch = text_classification.build_model(config, 3, size, "scratch")
    assert np.abs(scratch.token_embedding.get_weights()[0] - table).max() > 1e-3


@pytest.mark.slow
def test_own_labelled_files_are_learnt_from(tmp_path):
    lines = [f"{word} number {i}\t{word}\n" for i in range(40) for word in ("cat", "rose")]
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.tsv").write_text("".join(lines) + "broken\n", encoding="utf-8")
    arguments = ["--smoke", "--vocab-size", 60, "--epochs", 8, "--learning-rate", 5e-3]
    for name in ("train", "valid", "test"):
        arguments += [f"--{name}", tmp_path / f"{name}.tsv"]
    metrics = run("text_classification", tmp_path / "run", *arguments)
    assert metrics["scratch_test_accuracy"] > 0.9
