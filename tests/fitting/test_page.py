"""The claim of docs/how_to/fine_tune.md: three lines from a table to a tuned, exported model."""

import csv
import pathlib

import numpy as np
import pytest

import keras_transformers
from tests.fitting.test_fitting import images, royal, sentences
from tests.loading.test_published import ANSWERING, publish
from tests.pretrained import folders
from tests.test_examples import ROOT

# Small models under the names that the page loads; of the ViT's head the classes are others.
NAMED = {
    "Helsinki-NLP/opus-mt-en-de": "translator",
    "sentence-transformers/all-MiniLM-L6-v2": "sentence_encoder",
    "google-bert/bert-base-uncased": "mask_filler",
    "google-bert/bert-base-cased": "mask_filler",
    "google/vit-base-patch16-224": "image_classifier",
}


def first_block():
    text = (ROOT / "docs" / "how_to" / "fine_tune.md").read_text(encoding="utf-8")
    return text[text.index("```python\n") :].removeprefix("```python\n").partition("```")[0]


@pytest.mark.slow
def test_three_lines_lead_to_a_tuned_exported_model(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    for name, kind in NAMED.items():
        pathlib.Path(name).mkdir(parents=True)
        publish(pathlib.Path(name), *ANSWERING[kind])
    texts = sentences(60)
    pathlib.Path("pairs.tsv").write_text("\n".join(f"{each}\t{each}" for each in texts))
    rows = [[i, t, label] for i, (t, label) in enumerate(zip(texts, royal(texts), strict=True))]
    with open("reviews.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text", "label"], *rows])
    names = {"king": "B-PER", "queen": "B-PER"}
    lines = [[f"{word} {names.get(word, 'O')}" for word in text.split()] for text in texts]
    pathlib.Path("train.conll").write_text("\n\n".join(map("\n".join, lines)))
    images(pathlib.Path("photos"), 50)
    stars = np.random.default_rng(0).integers(1, 6, 60)
    frame = pandas.DataFrame({"day": range(60), "body": texts, "stars": stars})
    exec(compile(first_block(), "fine_tune.md", "exec"), {"frame": frame})
    with folders.eagerly():
        answers = [
            keras_transformers.load(f"served_{name}").predict(raw)
            for name, raw in {
                "translator": "the king",
                "reviews": "the king",
                "stars": "the king",
                "tags": "the king",
                "photos": "photos/dark/0.png",
            }.items()
        ]
    assert isinstance(answers[0], str)
    assert set(answers[1]["probabilities"]) == {"plain", "royal"}
    assert set(answers[2]["probabilities"]) == set("12345")
    assert [word for word, tag, _ in answers[3] if tag in ("O", "B-PER")] == ["the", "king"]
    assert set(answers[4]["probabilities"]) == {"dark", "light"}
