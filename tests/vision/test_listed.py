"""Claims about images that tables list: each label is kept, each fault is named or counted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    Preprocessing,
    evaluation_batches,
    read_listed,
    training_batches,
)

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 8, 8, 3), dtype="uint8")
NAMES = [["cat"], [], ["dog", "cat"], ["eel"], ["dog"], []]
HOT = np.array([[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0]])
PREPROCESSING = Preprocessing(8)


@pytest.fixture
def folder(tmp_path):
    """Six images, `more/0.png` and so on."""
    (tmp_path / "more").mkdir()
    for i, pixels in enumerate(PIXELS):
        path = tmp_path / "more" / f"{i}.png"
        path.write_bytes(tf.io.encode_png(pixels).numpy())
    return tmp_path


def table(folder, name="labels.tsv", indices=range(6), more=(), between=","):
    lines = [f"more/{i}.png\t{between.join(NAMES[i])}" for i in indices]
    (folder / name).write_text("\n".join([*lines, *more]) + "\n", encoding="utf-8")
    return folder / name


def images_and_labels(batches):
    images, labels = zip(*batches.as_numpy_iterator(), strict=True)
    return np.concatenate(images), np.concatenate(labels)


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "separator"])
def test_every_image_has_the_labels_of_its_line(folder, kind):
    path, separator = table(folder), ","
    if kind == "csv":
        lines = [f'more/{i}.png,"{", ".join(names)}"' for i, names in enumerate(NAMES)]
        path = folder / "labels.csv"
        path.write_text("\n".join(["image,labels", *lines]))
    elif kind == "jsonl":
        rows = [{"labels": names, "file": f"./more/{i}.png"} for i, names in enumerate(NAMES)]
        path = folder / "labels.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
    elif kind == "separator":
        path, separator = table(folder, between="|"), "|"
    corpus = read_listed({"train": path}, separator)["train"]
    assert corpus.classes == ["cat", "dog", "eel"] and corpus.several and not corpus.left_out
    images, labels = images_and_labels(corpus.batches(4, PREPROCESSING))
    np.testing.assert_array_equal(images, PIXELS)
    np.testing.assert_array_equal(labels, HOT)
    assert corpus.summary() == f"{path}: 6 images of 3 classes kept of 6"


def test_lists_of_0_and_1_are_a_number_for_each_label(folder):
    rows = [{"file": f"more/{i}.png", "labels": hot} for i, hot in enumerate(HOT.tolist())]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus = read_listed({"train": folder / "labels.jsonl"})["train"]
    assert corpus.classes == ["0", "1", "2"]
    np.testing.assert_array_equal(corpus.labels, HOT)


def test_what_is_left_out_is_counted_and_named(folder):
    (folder / "broken.png").write_bytes(b"no image")
    (folder / "stray.PNG").write_bytes(b"")
    more = [
        "broken.png\tbroken",
        "gone.png\tgone",
        "gone/1.png\tcat",
        "\tcat",
        "6.png",
        "stray.png\tcat, cat",
    ]
    (folder / "stray.png").write_bytes((folder / "more/0.png").read_bytes())
    corpus = read_listed({"train": table(folder, more=more)})["train"]
    assert corpus.classes == ["cat", "dog", "eel"] and len(corpus) == 7 and corpus.read == 13
    assert corpus.left_out == {
        "without a tab": 1,
        "without a file": 1,
        "missing files, the first gone.png in line 8": 2,
        "in the folder, but in no table": 1,
        "files that are no whole JPEG, PNG, GIF, BMP or WebP": 1,
    }
    assert corpus.summary().endswith("; kept but worth knowing: 1 with a label given twice")


def test_labels_of_the_first_table_hold_for_the_others(folder):
    parts = {"train": table(folder, "train.tsv", [0, 1, 2]), "test": table(folder, "x.tsv", [3, 4])}
    corpora = read_listed(parts)
    assert corpora["test"].classes == corpora["train"].classes == ["cat", "dog"]
    assert corpora["test"].labels.tolist() == [[0, 1]] and len(corpora["train"]) == 3
    assert corpora["test"].left_out == {"of a class that is not in the training set": 1}
    assert corpora["train"].left_out == {"in the folder, but in no table": 1}


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (["./more/1.png\tcat"], [], r"a.tsv, line 4: ./more/1.png stands in a.tsv, line 2 already"),
        ([], ["more/../more/2.png\t"], r"b.tsv, line 3: .*2.png stands in a.tsv, line 3 already"),
    ],
)
def test_an_image_that_stands_twice_is_refused(folder, train, test, message):
    tables = {"train": table(folder, "a.tsv", [0, 1, 2], train)}
    tables["test"] = table(folder, "b.tsv", [3, 4], test)
    with pytest.raises(ValueError, match=message):
        read_listed(tables)


def test_tables_that_teach_nothing_are_refused(folder):
    with pytest.raises(FileNotFoundError, match="none.tsv does not exist; give a file of file and"):
        read_listed({"train": folder / "none.tsv"})
    with pytest.raises(ValueError, match="labels.tsv: 2 images.*no image has a label"):
        read_listed({"train": table(folder, indices=[1, 5])})
    (folder / "labels.tsv").write_text("1.png\tcat\n2.png\t\n")
    with pytest.raises(ValueError, match="2 missing files, the first 1.png in line 1.*nothing to"):
        read_listed({"train": folder / "labels.tsv"})
    tables = {"train": table(folder, "a.tsv", [0]), "test": table(folder, "b.tsv", [3])}
    with pytest.raises(ValueError, match="b.tsv: 0 images.*not in the training set.*no image is"):
        read_listed(tables)
    (folder / "labels.csv").write_text("file,labels,split\nmore/0.png,cat,train\n")
    with pytest.raises(ValueError, match="labels.csv, line 1: the column 'split' is not followed"):
        read_listed({"train": folder / "labels.csv"})


def test_arrays_can_have_several_labels():
    for labels in (HOT, HOT.astype(bool), HOT.astype("float32")):
        corpus = ImageCorpus.from_arrays("toy", PIXELS, labels, ["a", "b", "c"], several=True)
        np.testing.assert_array_equal(corpus.labels, HOT)
    corpus = ImageCorpus.from_arrays("toy", PIXELS, HOT, several=True)
    assert corpus.classes == ["0", "1", "2"] and corpus.select([2]).labels.tolist() == [[1, 1, 0]]
    assert ImageCorpus.from_arrays("toy", PIXELS, HOT[:, :1], several=True).classes == ["0"]
    for wrong in (HOT * 2, HOT[:, 0], HOT * np.nan, HOT[:, :2]):
        with pytest.raises(ValueError, match=r"toy: `labels` must be 0 and 1 of shape \(n, 3\)"):
            ImageCorpus.from_arrays("toy", PIXELS, wrong, ["a", "b", "c"], several=True)
    with pytest.raises(ValueError, match=r"must be integers of shape \(n,\). Received: int64 of"):
        ImageCorpus.from_arrays("toy", PIXELS, HOT)


def test_batches_have_a_number_for_every_label():
    corpus = ImageCorpus.from_arrays("toy", PIXELS, HOT, several=True)
    _, labels = images_and_labels(evaluation_batches(corpus, PREPROCESSING, 4))
    np.testing.assert_array_equal(labels, HOT)
    assert labels.dtype == np.float32
    of_image = {pixels.tobytes(): row for pixels, row in zip(PIXELS, HOT, strict=True)}
    batches = training_batches(corpus, PREPROCESSING, 3, epoch=0)
    for image, row in zip(*images_and_labels(batches.take(2)), strict=True):
        pixels = np.round(PREPROCESSING.denormalize(image) * 255).astype("uint8")
        np.testing.assert_array_equal(of_image[pixels.tobytes()], row)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_images_that_are_mixed_have_the_labels_of_both_by_their_shares(kind):
    """Images of one value each, so that the mean of a mixture tells how much of whom is in it."""
    values, labels = np.array([0.0, 255.0]), np.array([[1, 1, 0], [0, 1, 1]], "float32")
    images = np.ones((2, 128, 128, 1), "float32") * values[:, None, None, None]
    augmentation = Augmentation(crop_padding=0, flip=False, seed=3, **{kind: 1.0})
    mixed = 0
    for key in range(8):
        new, found = augmentation(images, labels, [key])
        share = new.numpy().mean((1, 2, 3)) / 255
        expected = (1 - share)[:, None] * labels[0] + share[:, None] * labels[1]
        # CutMix rounds its rectangle to whole pixels.
        np.testing.assert_allclose(found, expected, atol=1e-3 if kind == "mixup" else 0.02)
        np.testing.assert_allclose(found[:, 1], 1, atol=1e-6)  # what both have stays
        mixed += np.any((share > 0.01) & (share < 0.99))
    assert mixed > 1


def test_a_split_has_its_share_of_rare_labels():
    labels = np.zeros((200, 4), int)
    labels[:, 0] = RNG.random(200) < 0.7
    labels[:40, 1] = 1
    labels[10:20, 2] = 1
    labels[100, 3] = 1  # of which there is but one
    pixels = RNG.integers(0, 256, (200, 4, 4), dtype="uint8")
    corpus = ImageCorpus.from_arrays("toy", pixels, labels, several=True)
    first, second = corpus.split(0.2, seed=3)
    assert len(first) + len(second) == 200
    assert second.labels.sum(0)[1:].tolist() == [8, 2, 0]
    assert 20 <= second.labels[:, 0].sum() <= 36 and np.any(second.labels.sum(1) == 0)
