"""Claims about everything that reads rows: a file has the same rows, whoever reads it."""

import csv
import gzip
import json
import types

import pytest

from keras_transformers import tables
from keras_transformers.fitting import TranslatorFitting
from keras_transformers.shards import Shards
from keras_transformers.tasks.classes import targets_of
from keras_transformers.text import read_labelled, read_pairs, read_tagged, read_texts
from recipes.data import documents, translation
from recipes.data.pair_files import PairFiles
from recipes.lib import rows

PAIRS = [
    ("a cat", "eine Katze"),
    ('say "yes", please; now', 'sag "ja", bitte'),
    ("a cow", "eine Kuh"),
    ("a hen", "eine Henne"),
]
OTHERS = [(f"number {i}", f"Nummer {i}") for i in range(30)]


def evaluated(path):
    """The pairs of which each translation is found to be right."""
    known = dict(PAIRS)
    served = types.SimpleNamespace(translate=lambda sources: [known.get(x, "?") for x in sources])
    scores = TranslatorFitting.evaluate(types.SimpleNamespace(served=lambda: served), path)
    assert scores["bleu"] == pytest.approx(100)
    return PAIRS[: scores["rows"]]


def of(corpus):
    return [*zip(corpus.sources, corpus.targets, strict=True)]


def own_files(path, **extra):
    others = path.with_name("others.tsv")
    others.write_text("\n".join(map("\t".join, OTHERS)))
    given = {"train": others if extra else path, "valid": others, "test": others}
    return of(translation.load(**given, **extra).train)


# Who reads pairs: a function of a path, that returns them.
OF_PAIRS = {
    "text.read_pairs, so fit": lambda path: of(read_pairs(path)),
    "evaluate": evaluated,
    "shards": lambda path: [
        tuple(each.decode() for each in row) for row in Shards.find(path, tables.PAIRS).rows()
    ],
    "recipes.translation": own_files,
    "clean_pairs": lambda path: [tuple(pair) for pair in PairFiles((str(path),))],
}
# Who reads texts.
OF_TEXTS = {
    "text.read_texts, so fit": lambda path: read_texts(path).texts,
    "recipes.predict and back_translate": lambda path: [
        row.content for row in rows.find(str(path), "text", None)
    ],
    "recipes.language_model": lambda path: (
        documents.load_documents(train=path, valid=path, test=path).valid.texts
    ),
}
# Who reads texts with labels.
OF_LABELS = {
    "text.read_labelled": lambda path: _labelled(read_labelled(path)),
    "fit and evaluate": lambda path: _labelled(targets_of(path, None, None, None, None)),
    "recipes.text_classification": lambda path: _labelled(
        documents.load_labelled(train=path, valid=path, test=path).train
    ),
}


def _labelled(corpus):
    labels = corpus.labels if hasattr(corpus, "labels") else corpus.values
    return [(text, corpus.classes[i]) for text, i in zip(corpus.texts, labels, strict=True)]


def written(folder, names, table):
    """The rows in every kind of file; unknown keys change their order from line to line."""
    found = []
    for name, delimiter in (("a.csv", ","), ("b.csv", ";"), ("c.tsv", "\t")):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter).writerows([names, *table])
        found.append(name)
    (folder / "d.tsv").write_bytes((folder / "c.tsv").read_text("utf-8").encode("utf-16"))
    (folder / "e.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    told = [dict(zip(names, row, strict=True)) for row in table]
    lines = [row if i % 2 == 0 else dict(reversed(row.items())) for i, row in enumerate(told)]
    (folder / "f.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "g.json").write_text(json.dumps(lines))
    found += ["d.tsv", "e.csv.gz", "f.jsonl", "g.json"]
    return [folder / name for name in found]


@pytest.mark.parametrize("reader", OF_PAIRS)
def test_pairs_are_the_same_whoever_reads_them(reader, tmp_path):
    for path in written(tmp_path, ["source", "target"], PAIRS):
        assert OF_PAIRS[reader](path) == PAIRS, path.name


@pytest.mark.parametrize("reader", OF_PAIRS)
@pytest.mark.parametrize("nested", [False, True])
def test_unknown_keys_keep_their_order_whoever_reads_them(reader, nested, tmp_path):
    lines = [dict(zip(("en", "de"), row, strict=True)) for row in PAIRS]
    lines[1:] = [dict(reversed(row.items())) for row in lines[1:]]
    lines = [{"translation": row} if nested else row for row in lines]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "b.json").write_text(json.dumps(lines))
    for name in ("a.jsonl", "b.json"):
        assert OF_PAIRS[reader](tmp_path / name) == PAIRS, name


@pytest.mark.parametrize("reader", OF_TEXTS)
def test_texts_are_the_same_whoever_reads_them(reader, tmp_path):
    texts = [source for source, _ in PAIRS]
    for path in written(tmp_path, ["id", "text"], [(str(i), x) for i, x in enumerate(texts)]):
        assert OF_TEXTS[reader](path) == texts, path.name


@pytest.mark.parametrize("reader", OF_LABELS)
def test_labels_are_the_same_whoever_reads_them(reader, tmp_path):
    labelled = [(source, "ab"[i % 2]) for i, (source, _) in enumerate(PAIRS)]
    for path in written(tmp_path, ["text", "label"], labelled):
        assert OF_LABELS[reader](path) == labelled, path.name
    lines = [dict(zip(("words", "kind"), row, strict=True)) for row in labelled]
    lines[1:] = [dict(reversed(row.items())) for row in lines[1:]]
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert OF_LABELS[reader](tmp_path / "h.jsonl") == labelled


def test_tags_keep_their_place_whatever_the_order_of_unknown_keys(tmp_path):
    lines = [{"a": ["Ada", "lacht"], "b": ["B-PER", "O"]}, {"b": ["B-PER"], "a": ["Bo"]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_tagged(tmp_path / "a.jsonl").words == [["Ada", "lacht"], ["Bo"]]
