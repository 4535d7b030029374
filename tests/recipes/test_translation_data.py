"""Claims about the recipes' translation data: embedded sets, TensorFlow Datasets, own files."""

import dataclasses

import pytest
import tensorflow_datasets as tfds

from keras_transformers.text import SentencePieceTokenizer
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


def test_columns_without_names_have_numbers_on_the_command_line(tmp_path):
    lines = [f"{i}\tsource {i}\ttarget {i}\n" for i in range(300)]
    (tmp_path / "a.tsv").write_text("".join(lines), encoding="utf-8")
    data = translation.load(train=tmp_path / "a.tsv", columns=("2", "3"))
    assert sum(len(each) for each in (data.train, data.valid, data.test)) == 300
    assert data.test.sources[0].replace("source", "target") == data.test.targets[0]
    again = translation.load(train=tmp_path / "a.tsv", columns=(1, 2))  # in Python from 0
    assert again.test.sources == data.test.sources


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


def written(folder, name, number):
    rows = (f"{name} {i}\tSatz {name} {i}\n" for i in range(number))
    (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    return str(folder / f"{name}.tsv")


def test_several_directions_are_one_set_whose_marks_stand_before_sources(tmp_path):
    paths = {"a": written(tmp_path, "a", 200), "b": written(tmp_path, "longer b", 100)}
    train = (f"en-de={paths['a']}", f"en-es={paths['b']}")
    data = translation.load(train=train, test=f"de-es={paths['b']}", temperature=5)
    assert list(data.train.parts) == list(data.valid.parts) == ["en-de", "en-es"]
    assert list(data.test.parts) == ["en-de", "en-es", "de-es"]  # the last is zero-shot
    assert len(data.train.sources) == len(data.train) == sum(map(len, data.train.parts.values()))
    tokenizer = translation.train_tokenizer(data, 40)
    assert list(tokenizer.language_marks) == ["de", "es"]
    tokenizers = translation.both(tokenizer)
    corpus = data.train.without_long(tokenizers, 64, 64)
    encoded = translation.encode(corpus, tokenizers)
    firsts = [int(pair["source"][0]) for pair in encoded]
    assert firsts == [tokenizer.language_marks[code] for code in corpus.languages]
    assert not {4, 5} & {int(token) for pair in encoded for token in pair["target"]}
    counts = corpus.mixture(tokenizer).counts
    # Shares of text, in pairs of another length each.
    texts = [sum(map(len, part.targets)) for part in corpus.parts.values()]
    sizes = map(len, corpus.parts.values())
    weights = [size * text**-0.8 for size, text in zip(sizes, texts, strict=True)]
    assert abs(counts[0] - len(corpus) * weights[0] / sum(weights)) <= 0.5
    epoch = translation.encode(corpus, tokenizers, shuffle_seed=1, epoch=0, sample=0.1)
    assert [int(pair["source"][0]) for pair in epoch].count(4) == counts[0]


def sources_of(corpus, tokenizers):
    (batch,) = translation.encode(corpus, tokenizers, batch_size=1000)
    return batch["source"].to_list()


def test_extra_pairs_are_learned_from_alone_and_a_tag_stands_before_those_that_have_it(tmp_path):
    train = written(tmp_path, "own", 200)
    rows = [f"<bt> made {i}\tSatz own {900 + i}\n" for i in range(300)]
    seen = [f"<bt> made {i}\tSatz own {i}\n" for i in range(200)]
    broken = ["<bt>\tleer\n", "no tab\n", "<bt>x\tkein Zeichen\n"]
    (tmp_path / "a.tsv").write_text("".join(rows[:200] + seen + broken))
    (tmp_path / "b.tsv").write_text("".join(rows[200:]))
    before = translation.load(train=train)
    extra = (tmp_path / "a.tsv", tmp_path / "b.tsv")
    data = translation.load(train=train, extra=extra, upsample=2)
    assert data.valid == before.valid and data.test == before.test
    assert data.train.own == before.train and data.train.tags == ("<bt>",)
    held_out = len(data.valid) + len(data.test)
    sizes = {each.tagged: len(each.corpus) for each in data.train.extra}
    assert sizes == {True: 500 - held_out, False: 1}
    told = data.train.summary().splitlines()[1]
    assert told.startswith(f"a.tsv, b.tsv <bt>: {500 - held_out} pairs kept of 502 lines; left out")
    for reason in (f"{held_out} with a side in the val", "1 with an empty side", "1 without a tab"):
        assert reason in told
    tokenizer = translation.train_tokenizer(data, 40)
    tokenizers = translation.both(tokenizer)
    corpus = data.train.without_long(tokenizers, 24, 24)
    rows, own = sources_of(corpus, tokenizers), len(data.train.own)
    assert [row[0] == tokenizer.tags["<bt>"] for row in rows] == (
        [False] * own + [True] * (500 - held_out) + [False]
    )
    mixture = corpus.mixture(tokenizer)
    assert abs(mixture.counts[0] - len(corpus) * 2 * own / (len(corpus) + own)) <= 0.5
    longest = max(map(len, rows))
    shorter = data.train.without_long(tokenizers, longest - 1, 24)
    assert len(shorter) < len(corpus)
    assert max(map(len, sources_of(shorter, tokenizers))) == longest - 1


def test_extra_pairs_of_several_directions_have_both_marks(tmp_path):
    paths = {name: written(tmp_path, name, 100) for name in "ab"}
    (tmp_path / "c.tsv").write_text("".join(f"<bt> made {i}\tobra {i}\n" for i in range(50)))
    train = (f"en-de={paths['a']}", f"en-es={paths['b']}")
    data = translation.load(train=train, temperature=5, extra=(f"en-es={tmp_path / 'c.tsv'}",))
    tokenizer = translation.train_tokenizer(data, 38)
    tokenizers = translation.both(tokenizer)
    assert (tokenizer.language_marks, tokenizer.tags) == ({"de": 4, "es": 5}, {"<bt>": 6})
    assert sources_of(data.train.without_long(tokenizers, 30, 30), tokenizers)[-1][:2] == [5, 6]
    assert data.train.mixture(tokenizer).temperature == 5
    assert data.head(train=3).train.sources[-1] == "made 2"


def test_the_other_way_round_the_splits_are_the_same(tmp_path):
    train = written(tmp_path, "own", 100)
    there, back = (translation.load(train=train, reverse=reverse) for reverse in (False, True))
    for split in ("train", "valid", "test"):
        before, after = getattr(there, split), getattr(back, split)
        assert (after.sources, after.targets) == (before.targets, before.sources)
    named = translation.load(reverse=True)
    assert (named.source_language, named.target_language) == ("German", "English")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extra": ("none.tsv",)}, "none.tsv does not exist"),
        ({"upsample": 2}, "--upsample must be positive, with --extra"),
        ({"extra": ("a.tsv",), "upsample": 0}, "--upsample must be positive"),
        ({"extra": ("a.tsv",)}, "nothing to learn from|left out: 9"),
        ({"train": ("en-de=b.tsv", "en-es=b.tsv"), "extra": ("a.tsv",)}, "as en-de=a.tsv. Rec"),
        ({"train": ("en-de=b.tsv", "en-es=b.tsv"), "reverse": True}, "--reverse is of one"),
        ({"train": "?.tsv", "valid": "b.tsv", "test": "b.tsv", "extra": ("a",)}, "a stream"),
        ({"train": "?.tsv", "valid": "b.tsv", "test": "b.tsv", "reverse": True}, "--reverse is"),
    ],
)
def test_extra_pairs_that_cannot_be_are_refused(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "b", 100)
    seen = translation.load(train="b.tsv").test.sources[:9]
    (tmp_path / "a.tsv").write_text("".join(f"{text}\tx\n" for text in seen))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        translation.load(**{"train": "b.tsv", **given})


def test_a_vocabulary_without_the_tag_is_told_what_to_do(tmp_path):
    (tmp_path / "a.tsv").write_text("<bt> made\tgemacht\n")
    data = translation.load(train=written(tmp_path, "own", 100), extra=(tmp_path / "a.tsv",))
    tokenizer = SentencePieceTokenizer.train(data.train.sources, 24)
    with pytest.raises(ValueError, match="--extra: the vocabulary has no mark <bt>.*--no-tag"):
        translation.encode(data.train, translation.both(tokenizer))


def test_embedded_sets_have_a_direction_by_name():
    data = translation.load(("ui.en-de", "bible.en-es"))
    assert {name: len(part) for name, part in data.valid.parts.items()} == {
        "en-de": 1000,
        "en-es": 1000,
    }
    assert data.head(train=3).train.languages == ["de"] * 3 + ["es"] * 3
    assert translation.load(("ui.en-de",)).name == "ui.en-de"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": ("en-de=a", "b")}, "--train: several directions are named, as en-de=a.tsv.*b$"),
        ({"train": ("en-de=a", "en-de=b")}, "--train: en-de must be there once"),
        ({"train": "en-de=a", "test": "b"}, "--test: several directions are named"),
        ({"train": "en-de=a", "test": "en-fr=b"}, "--test: en-fr must be into a language.*, de"),
        ({"train": "en-de=*.tsv"}, "is a stream, which has one direction"),
        ({"test": "en-de=a"}, "Own files need --train"),
        ({"dataset": ("ui.en-de", "tfds:x")}, "--dataset: several directions are named"),
    ],
)
def test_directions_that_cannot_be_are_refused(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).write_text("a\tb\n" * 9)
    with pytest.raises(ValueError, match=message):
        translation.load(**given)


def test_previous_sources_come_from_ones_own_files_and_a_mark_of_them_into_the_vocabulary(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("\n".join("" if i % 9 == 0 else f"source {i}\ttarget {i}" for i in range(90)))
    data = translation.load(train=str(path), context=2)
    corpora = [data.train, data.valid, data.test]
    found = {text for corpus in corpora for text in corpus.sources}
    assert {"source 1", "source 1\x1esource 2", "source 6\x1esource 7\x1esource 8"} <= found
    assert "source 10" in found and len(found) == 80
    tokenizer = translation.train_tokenizer(data, 30)
    assert tokenizer.context.sentences == 2
    assert not any("\x1e" in piece for piece in tokenizer.pieces(range(30)))
    encoded = translation.encode(data.train, translation.both(tokenizer))
    for pair, text in zip(encoded, data.train.sources, strict=True):
        marks = pair["source"].numpy().tolist().count(tokenizer.context.mark)
        assert marks == text.count("\x1e") and tokenizer.context.mark not in pair["target"].numpy()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--context: give files .* by --train; .* shuffled. Received: ui.en-de"),
        ({"dataset": ("ui.en-de", "bible.en-es")}, "Received: ui.en-de, bible.en-es"),
        (dict.fromkeys(("train", "valid", "test"), "*.tsv"), "--context: .* is a stream"),
        ({"train": "a.tsv", "context": -1}, "`context` must be 0 or more"),
    ],
)
def test_context_needs_rows_in_the_order_of_documents(given, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\n" * 9)
    with pytest.raises(ValueError, match=message):
        translation.load(**{"context": 2} | given)


def test_a_file_given_three_times_is_reported_for_each_direction(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("a cat\teine Katze\na dog\tein Hund\n")
    own = dict.fromkeys(("train", "valid", "test"), tmp_path / "a.tsv")
    translation.load(**own)
    assert "own files: duplicates, which stay: 2 of valid also in tr" in capsys.readouterr().out
    translation.load(**{split: (f"en-de={path}", f"en-nl={path}") for split, path in own.items()})
    printed = capsys.readouterr().out
    for direction in ("en-de", "en-nl"):
        assert f"{direction}: duplicates, which stay: 2 of valid also in train, 2 of te" in printed
