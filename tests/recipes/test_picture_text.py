"""Claims about the recipe that fuses pictures and sentences."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops

from recipes import picture_text
from tests.recipes.command import run


def test_a_sentence_is_true_or_false_of_its_picture():
    labels = np.random.default_rng(0).integers(0, 10, 3000)
    texts, truths = picture_text.sentences(labels, seed=1)
    assert 0.45 < truths.mean() < 0.55
    for label, text, truth in zip(labels, texts, truths, strict=True):
        denied = "not" in text.split() or text.startswith("no ")
        (name,) = [name for name in picture_text.CALLED if text.endswith(f" {name}")]
        assert ((label in picture_text.CALLED[name]) != denied) == truth
    # Neither the picture nor the sentence alone tells.
    for kind in ({text for text in texts if "not" in text}, set(texts)):
        share = np.mean([truth for text, truth in zip(texts, truths, strict=True) if text in kind])
        assert 0.4 < share < 0.6


@pytest.mark.slow
def test_a_run_leaves_the_whole_folder_and_a_model_of_bytes_and_text(tmp_path):
    run("picture_text", tmp_path, "--smoke")
    figures = {"training_curves.png", "predictions_attention.png"}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == figures
    serve = tf.saved_model.load(str(tmp_path / "saved_model")).signatures["serving_default"]
    png = tf.io.encode_png(np.zeros((40, 28, 1), "uint8"))
    texts = tf.constant(["this is a bag", "this is not a bag"])
    found = serve(image=tf.stack([png, png]), text=texts)["probability"]
    assert found.shape == (2,)
    assert np.all((found > 0) & (found < 1))
