"""Claims about the recipes' texts: embedded sets, TensorFlow Datasets, own files."""

import pytest
import tensorflow_datasets as tfds

from recipes.data import documents

TOYS = "text_toys"  # TFDS seeks files beside a builder's module, and fails where that is in none


class ToyReviews(tfds.core.GeneratorBasedBuilder):
    """Sixty labelled texts, one empty and one without a label; no validation split."""

    __module__ = TOYS
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "text": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=["bad", "good"]),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in ("train", "test")}

    def _generate_examples(self, split):
        for number in range(58):
            yield number, {"text": f"{split} {number}", "label": number % 2}
        yield 58, {"text": " ", "label": 0}
        yield 59, {"text": "unlabelled", "label": -1}


class ToyPictures(ToyReviews):
    """No text at all."""

    __module__ = TOYS

    def _info(self):
        features = {"label": tfds.features.ClassLabel(num_classes=2)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _generate_examples(self, split):
        yield 0, {"label": 1}


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_embedded_documents_share_nothing_between_splits(name):
    data = documents.load_documents(name)
    train, valid, test = (set(corpus.texts) for corpus in data.corpora().values())
    assert train and valid and test
    assert not train & valid and not train & test and not valid & test


def test_embedded_passages_are_labelled():
    data = documents.load_labelled()
    assert all(len(corpus.labels) == len(corpus) for corpus in data.corpora().values())
    assert data.train.classes == data.test.classes and len(data.train.classes) == 36


def test_a_labelled_set_of_tensorflow_datasets_is_read_and_split(tmp_path):
    data = documents.load_labelled("tfds:toy_reviews", data_dir=tmp_path)
    assert data.train.classes == ["bad", "good"]
    assert (len(data.train), len(data.valid), len(data.test)) == (46, 12, 58)
    assert data.test.left_out == {"empty or without a label": 2}
    for text, label in zip(data.test.texts, data.test.labels, strict=True):
        assert int(text.split()[1]) % 2 == label


def test_a_set_of_texts_needs_no_labels(tmp_path):
    data = documents.load_documents("tfds:toy_reviews", data_dir=tmp_path)
    assert data.train.labels is None
    assert "train 7" in data.train.texts or "train 7" in data.valid.texts


def test_sets_without_text_are_refused(tmp_path):
    with pytest.raises(ValueError, match="tfds:toy_pictures does not fit: it needs a text and a"):
        documents.load_labelled("tfds:toy_pictures", data_dir=tmp_path)


def test_own_files_are_read(tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text", encoding="utf-8")
        (tmp_path / f"{name}.tsv").write_text(f"{name}\tkind\nother\tx\n", encoding="utf-8")
    texts = documents.load_documents(
        train=tmp_path / "train.txt", valid=tmp_path / "valid.txt", test=tmp_path / "test.txt"
    )
    assert texts.test.texts == ["test text"]
    labelled = documents.load_labelled(
        train=tmp_path / "train.tsv", valid=tmp_path / "valid.tsv", test=tmp_path / "test.tsv"
    )
    assert labelled.valid.classes == labelled.train.classes == ["kind", "x"]


@pytest.mark.parametrize("load", [documents.load_documents, documents.load_labelled])
def test_unknown_names_and_missing_files_are_refused(load):
    with pytest.raises(ValueError, match="There is no data set 'goethe'. Choose shakespeare"):
        load("goethe")
    with pytest.raises(ValueError, match="Own files need --train; missing: --train"):
        load(valid="a")


def test_one_file_alone_is_split(tmp_path):
    rows = "\n".join(f"{i},text {i // 2},{i % 4 // 2}" for i in range(200))
    (tmp_path / "a.csv").write_text(f"id,text,label\n{rows}\n")
    data = documents.load_labelled(train=tmp_path / "a.csv")
    assert [len(each) for each in data.corpora().values()] == [128, 32, 40]
    held = [set(each.texts) for each in data.corpora().values()]
    assert not held[0] & held[1] and not held[1] & held[2] and not held[0] & held[2]
    (tmp_path / "a.txt").write_text("to be or not to be " * 2000)
    texts = documents.load_documents(train=tmp_path / "a.txt")
    assert (
        sum(len(text.split()) for each in texts.corpora().values() for text in each.texts) == 12_000
    )


def test_a_file_given_three_times_is_reported(tmp_path, capsys):
    path = tmp_path / "a.tsv"
    path.write_text("a cat\tanimal\na dog\tanimal\nA  cat\tpet\na rose\tplant\n")
    documents.load_labelled(train=path, valid=path, test=path)
    printed = capsys.readouterr().out
    assert "own files: duplicates, which stay: 1 repeated in train" in printed
    assert "4 of valid also in train" in printed and "4 of test also in valid" in printed
    assert "1 with several labels" in printed
    (tmp_path / "a.txt").write_text("to be or not to be")
    documents.load_documents(**dict.fromkeys(("train", "valid", "test"), tmp_path / "a.txt"))
    assert "1 of test also in train" in capsys.readouterr().out
