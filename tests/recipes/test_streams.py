"""Claims about recipes on streams: a pattern of shards is one, and is trained on like files."""

import json

import numpy as np
import pytest

from recipes import text_classification
from recipes.data.documents import load_documents, load_labelled
from recipes.data.translation import load
from recipes.lib.options import configure
from tests.recipes.command import PRINTED, run

WORDS = "the cat sat on a mat and dog ran to its red house of stone".split()


def sentences(number, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 15))) for _ in range(number)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Shards, and files to validate by and to score on, for every recipe."""
    folder = tmp_path_factory.mktemp("data")
    for kind in ("pairs", "texts", "labelled"):
        (folder / kind).mkdir()
    for number, name in enumerate(["pairs/0", "pairs/1", "valid_pairs"]):
        lines = [f"{text}\t{text[::-1]}" for text in sentences(300, number)]
        (folder / f"{name}.tsv").write_text("\n".join([*lines[:9], "no tab", *lines[9:]]))
    for number in range(3):
        rows = [{"text": text, "url": 7} for text in sentences(300, number)]
        (folder / "texts" / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "valid.txt").write_text("\n".join(sentences(200, 7)))
    for number, name in enumerate(["labelled/0", "labelled/1", "valid_labelled"]):
        lines = [
            f"{text}\t{'xyz'[len(text) % (2 + number % 2)]}" for text in sentences(300, number)
        ]
        (folder / f"{name}.tsv").write_text("\n".join(lines))
    return folder


def files(folder, shards, valid):
    return {"train": f"{folder}/{shards}/*", "valid": folder / valid, "test": folder / valid}


def test_a_pattern_is_a_stream_of_which_a_sample_is_in_memory(folder):
    data = load(**files(folder, "pairs", "valid_pairs.tsv"))
    assert len(data.shards.parts) == 2 and len(data.train) == 600 and len(data.valid) == 300
    data = load_documents(**files(folder, "texts", "valid.txt"))
    assert len(data.shards.parts) == 3 and len(data.train) == 900
    assert load(train=folder / "pairs" / "0.tsv", valid=folder / "pairs" / "0.tsv",
                test=folder / "pairs" / "0.tsv").shards is None  # fmt: skip


def test_classes_are_looked_for_in_all_rows(folder, monkeypatch):
    monkeypatch.setattr("recipes.data.data_sets.SAMPLE", 2)  # which has not all of them
    data = load_labelled(**files(folder, "labelled", "valid_labelled.tsv"))
    assert data.train.classes == ["x", "y", "z"] and len(data.train) == 2
    block = next(data.shards.blocks())
    assert set(block.columns[1]) == {0, 1, 2} and isinstance(block.columns[0][0], bytes)


def test_a_share_of_a_stream_is_refused(folder, tmp_path):
    given = {
        name: str(path) for name, path in files(folder, "labelled", "valid_labelled.tsv").items()
    }
    given |= {"output": str(tmp_path), "smoke": True, "label_share": 0.5}
    with pytest.raises(ValueError, match="--label-share is for what is in memory"):
        text_classification.load_data(configure(text_classification.Config, **given))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "shards", "valid", "vocabulary"),
    [
        ("translation", "pairs", "valid_pairs.tsv", 45),
        ("language_model", "texts", "valid.txt", 275),
        ("masked_language_model", "texts", "valid.txt", 100),
        ("text_classification", "labelled", "valid_labelled.tsv", 100),
    ],
)
def test_recipes_train_on_streams(recipe, shards, valid, vocabulary, folder, tmp_path):
    options = [f"--{name}={path}" for name, path in files(folder, shards, valid).items()]
    run(recipe, tmp_path, "--smoke", f"--vocab-size={vocabulary}", *options)
    assert "a stream, of 4 batches an epoch" in PRINTED[tmp_path]
    assert [path.read_text() for path in tmp_path.glob("stream*.jsonl")]
    if recipe == "translation":
        assert "2 without a tab" in PRINTED[tmp_path]
