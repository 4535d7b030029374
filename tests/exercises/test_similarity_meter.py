"""Claims about the exercise of a new task."""

import json

import numpy as np
import pytest

import keras_transformers
from keras_transformers.models import TextEncoder
from keras_transformers.tasks import registry
from keras_transformers.tasks.predictor_folder import Held
from keras_transformers.text import SentencePieceTokenizer, framed
from tests.exercises.similarity_meter import SimilarityFitting, SimilarityMeter

LINES = ["a cat sat on a mat", "a dog ran to the sea", "the mat is by the sea"]
PAIRS = [("a cat", "a mat"), ("the sea", "the sea"), ("a dog ran to the sea", "")]


@pytest.fixture
def registered(monkeypatch):
    """The one line that a new task needs."""
    monkeypatch.setattr(
        registry, "MODULES", (*registry.MODULES, "tests.exercises.similarity_meter")
    )
    registry.all_tasks.cache_clear()
    yield
    registry.all_tasks.cache_clear()


@pytest.fixture(scope="module")
def meter():
    tokenizer = SentencePieceTokenizer.train(LINES * 9, vocab_size=24)
    return SimilarityMeter(TextEncoder.from_variant("tiny", 24), tokenizer, lengths=(8, 32))


def cosines(meter, pairs):
    """Returns the similarities by NumPy."""
    means = []
    for side in zip(*pairs, strict=True):
        ids, _ = framed(meter.tokenizer, list(side), 32)
        rows = [np.asarray(meter.model(row[None]))[0] for row in ids]
        means.append(np.stack([row.astype("float64").mean(axis=0) for row in rows]))
    first, second = (mean / np.linalg.norm(mean, axis=1, keepdims=True) for mean in means)
    return (first * second).sum(axis=1)


def test_similarity_is_the_cosine_of_mean_vectors(meter, registered):
    np.testing.assert_allclose(meter.predict(PAIRS), cosines(meter, PAIRS), atol=1e-5)
    assert meter.predict(("a cat", "a cat")) == pytest.approx(1, abs=1e-5)


def test_a_saved_model_of_a_new_task_is_loaded_by_its_kind(meter, registered, tmp_path):
    folder = meter.save(tmp_path / "saved")
    loaded = keras_transformers.load(folder)
    assert loaded.kind == "similarity_meter"
    np.testing.assert_allclose(loaded.predict(PAIRS), cosines(meter, PAIRS), atol=1e-5)
    (folder / "assets.extra" / "keras_transformers.json").unlink()  # its output tells the kind
    assert keras_transformers.load(folder).kind == "similarity_meter"


def test_a_predictor_of_a_new_task_is_saved_and_scored(meter, registered, tmp_path):
    fitted = SimilarityFitting(Held(meter.model, meter.tokenizer, options={"lengths": (8, 32)}))
    folder = fitted.save(tmp_path / "predictor")
    assert json.loads((folder / "predictor.json").read_text())["kind"] == "similarity_meter"
    loaded = keras_transformers.load(folder)
    np.testing.assert_allclose(loaded.predict(PAIRS), cosines(meter, PAIRS), atol=1e-5)
    rows = [(*pair, value) for pair, value in zip(PAIRS, cosines(meter, PAIRS), strict=True)]
    assert loaded.evaluate(rows)["correlation"] == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="a similarity_meter does not learn here"):
        loaded.fit(rows)
    with pytest.raises(ValueError, match="item 1 must be a pair of texts. Received: 'a'"):
        loaded.predict([("a", "b"), "a"])
