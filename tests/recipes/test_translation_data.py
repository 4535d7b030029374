"""Claims about the recipes' translation data: embedded sets, TensorFlow Datasets, own files."""

import dataclasses

import pytest
import tensorflow_datasets as tfds

from recipes.data import translation

SPLITS = ("train", "validation", "test")
TOYS = "toys"  # TFDS seeks files beside a builder's module, and fails where that is in no package


class ToyTranslation(tfds.core.GeneratorBasedBuilder):
    """Three pairs a split, one of them with an empty side."""

    __module__ = TOYS
    VERSION = tfds.core.Version("1.0.0")
    splits = SPLITS

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.Translation(languages=("en", "pt")),
            supervised_keys=("pt", "en"),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in self.splits}

    def _generate_examples(self, split):
        yield 0, {"en": f"good {split}", "pt": f"bom {split}"}
        yield 1, {"en": "day", "pt": "dia"}
        yield 2, {"en": "", "pt": "nada"}


class ToyWithoutTest(ToyTranslation):
    """As above, with no test split."""

    __module__ = TOYS
    splits = SPLITS[:2]


class ToyLabels(ToyTranslation):
    """One text and a label: no translation."""

    __module__ = TOYS

    def _info(self):
        features = {"text": tfds.features.Text(), "label": tfds.features.ClassLabel(num_classes=2)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _generate_examples(self, split):
        yield 0, {"text": "good", "label": 1}


@pytest.mark.parametrize(
    ("name", "train", "languages"),
    [("ui.en-de", 30957, ("English", "German")), ("bible.en-es", 28803, ("English", "Spanish"))],
)
def test_an_embedded_set_is_whole_and_its_splits_share_no_pair(name, train, languages):
    data = translation.load(name)
    assert (len(data.train), len(data.valid), len(data.test)) == (train, 1000, 1000)
    assert (data.source_language, data.target_language) == languages
    assert not data.train.left_out and not data.valid.left_out and not data.test.left_out
    train, valid, test = (
        set(zip(corpus.sources, corpus.targets, strict=True))
        for corpus in (data.train, data.valid, data.test)
    )
    assert not train & valid and not train & test and not valid & test


def test_a_set_of_tensorflow_datasets_is_read_in_its_own_direction(tmp_path):
    data = translation.load("tfds:toy_translation", data_dir=tmp_path)
    assert (data.source_language, data.target_language) == ("pt", "en")
    for corpus, split in zip((data.train, data.valid, data.test), SPLITS, strict=True):
        pairs = sorted(zip(corpus.sources, corpus.targets, strict=True))
        assert pairs == [(f"bom {split}", f"good {split}"), ("dia", "day")]
        summary = "2 pairs kept of 3 lines; left out: 1 with an empty side"
        assert corpus.summary() == f"tfds:toy_translation {split}: {summary}"


def test_a_missing_split_is_named_with_those_that_exist(tmp_path):
    with pytest.raises(ValueError, match="has no split test; it has train, validation"):
        translation.load("tfds:toy_without_test", data_dir=tmp_path)


def test_a_set_that_is_no_translation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a translation set: .* text, label"):
        translation.load("tfds:toy_labels", data_dir=tmp_path)


def test_a_download_that_fails_is_told_in_a_sentence(tmp_path, monkeypatch):
    def fail(self, **options):
        raise ConnectionError("no route to host\nmore of it")

    monkeypatch.setattr(ToyTranslation, "download_and_prepare", fail)
    with pytest.raises(ValueError, match="could not be downloaded and prepared: no route to host$"):
        translation.load("tfds:toy_translation", data_dir=tmp_path)


def test_an_unknown_set_of_tensorflow_datasets_is_refused(tmp_path):
    with pytest.raises(ValueError, match="TensorFlow Datasets has no data set 'no_such_set'"):
        translation.load("tfds:no_such_set", data_dir=tmp_path)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="ui.en-de or bible.en-es, tfds:NAME"):
        translation.load("ui.en-fr")


def test_own_files_are_read(tmp_path):
    paths = {}
    for split in ("train", "valid", "test"):
        paths[split] = tmp_path / f"{split}.tsv"
        paths[split].write_text(f"{split}\tÜbung\n", encoding="utf-8")
    data = translation.load(**paths)
    assert (data.train.sources, data.valid.sources) == (["train"], ["valid"])
    assert data.test.targets == ["Übung"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.train = data.test


def test_one_file_alone_is_split_and_its_columns_are_named(tmp_path):
    rows = "\n".join(f"{i},der Satz {i},sentence {i}" for i in range(100))
    (tmp_path / "a.csv").write_text(f"nr,de,en\n{rows}\n")
    data = translation.load(train=tmp_path / "a.csv", columns=("en", "de"))
    assert (len(data.train), len(data.valid), len(data.test)) == (64, 16, 20)
    assert data.test.targets[0].startswith("der Satz")
    with pytest.raises(ValueError, match="Own files need --train; missing: --train"):
        translation.load(valid=tmp_path / "a.csv")


def test_a_missing_file_of_ones_own_is_named(tmp_path):
    path = tmp_path / "none.tsv"
    with pytest.raises(FileNotFoundError, match="none.tsv does not exist"):
        translation.load(train=path, valid=path, test=path)
