"""Claims about the recipes' images: the embedded set, TensorFlow Datasets, own files."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_transformers.vision import Preprocessing
from recipes.data import images

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (20, 9, 7, 3), dtype="uint8")
LABELS = np.arange(20) % 2
PREPROCESSING = Preprocessing((9, 7))
TOYS = "toys"  # TFDS seeks files beside a builder's module, and fails where that is in no package


class ToyImages(tfds.core.GeneratorBasedBuilder):
    """Twenty images to learn from, four to be tested by."""

    __module__ = TOYS
    VERSION = tfds.core.Version("1.0.0")
    splits = {"train": 20, "test": 4}

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3)),
            "label": tfds.features.ClassLabel(names=["no", "yes"]),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(n) for split, n in self.splits.items()}

    def _generate_examples(self, number):
        for i in range(number):
            yield i, {"image": PIXELS[i], "label": int(LABELS[i])}


@pytest.fixture
def toy_set(tmp_path, monkeypatch):
    builder = ToyImages(data_dir=tmp_path)
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir=None: builder)
    return tmp_path


def write_folder(path, pixels):
    for i, each in enumerate(pixels):
        folder = path / ("yes" if i % 2 else "no")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02}.png").write_bytes(tf.io.encode_png(each).numpy())


def test_the_embedded_set_is_what_it_says():
    data = images.load()
    assert [len(data.train), len(data.valid), len(data.test)] == [11_400, 600, 2_000]
    assert data.test.images.shape == (2000, 28, 28, 1)
    assert np.bincount(data.train.labels).tolist() == [1140] * 10
    assert data.train.classes[:2] == ["T-shirt/top", "Trouser"]


def test_a_tfds_set_gives_its_images_and_labels(toy_set):
    data = images.load("tfds:toy", data_dir=toy_set)
    assert [len(data.train), len(data.valid), len(data.test)] == [18, 2, 4]
    assert data.train.classes == ["no", "yes"]
    decoded = data.test.decoded(PREPROCESSING)
    known = {pixels.tobytes(): label for pixels, label in zip(PIXELS, LABELS, strict=True)}
    for pixels, label in zip(decoded.images, decoded.labels, strict=True):
        assert known[pixels.tobytes()] == label


def test_a_folder_of_splits_keeps_them(tmp_path):
    for split, count in (("train", 12), ("valid", 4), ("test", 4)):
        write_folder(tmp_path / split, PIXELS[:count])
    data = images.load(str(tmp_path))
    assert [len(data.train), len(data.valid), len(data.test)] == [12, 4, 4]
    np.testing.assert_array_equal(
        data.train.decoded(PREPROCESSING).images, PIXELS[[*range(0, 12, 2), *range(1, 12, 2)]]
    )


def test_a_folder_without_splits_is_split(tmp_path):
    write_folder(tmp_path, PIXELS)
    data = images.load(str(tmp_path))
    assert [len(data.train), len(data.valid), len(data.test)] == [16, 2, 2]


def test_arrays_are_read_from_a_file(tmp_path):
    path = tmp_path / "set.npz"
    arrays = {"x_train": PIXELS, "y_train": LABELS, "x_test": PIXELS[:4], "y_test": LABELS[:4]}
    np.savez(path, **arrays)
    data = images.load(str(path))
    assert [len(data.train), len(data.valid), len(data.test)] == [18, 2, 4]
    assert data.test.classes == ["0", "1"]


def test_what_cannot_be_used_is_refused(tmp_path, toy_set, monkeypatch):
    with pytest.raises(ValueError, match="There is no data set 'mnist'. Choose fashion-mnist-12k"):
        images.load("mnist")
    path = tmp_path / "bad.npz"
    np.savez(path, x_train=PIXELS)
    with pytest.raises(ValueError, match="lacks y_train, x_test, y_test; it holds x_train"):
        images.load(str(path))
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is no .npz file of plain arrays"):
        images.load(str(path))
    monkeypatch.setitem(ToyImages.splits, "test", 0)
    monkeypatch.setattr(tfds.features, "ClassLabel", type("Other", (), {}))
    with pytest.raises(ValueError, match="tfds:toy is no set of labelled images"):
        images.load("tfds:toy", data_dir=toy_set)


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (("train", "val"), [10, 4, 2]),
        (("Train", "Test"), [10, 2, 4]),
        (("training", "testing"), [10, 2, 4]),
        (("TRAIN", "Validation", "test"), [12, 4, 4]),
        (("train", "dev"), [10, 4, 2]),
        (("Training", "Validation"), [10, 4, 2]),
        (("Train", "DEV", "Testing"), [12, 4, 4]),
        (("train",), [8, 2, 2]),
    ],
)
def test_usual_names_of_parts_are_parts_and_no_classes(names, sizes, tmp_path):
    for name in names:
        write_folder(tmp_path / name, PIXELS[: 12 if name.lower().startswith("train") else 4])
    data = images.load(tmp_path)
    assert [len(data.train), len(data.valid), len(data.test)] == sizes
    assert all(part.classes == ["no", "yes"] for part in (data.train, data.valid, data.test))


def test_a_class_may_be_called_train(tmp_path):
    for name in ("bus", "car", "train"):
        write_folder(tmp_path / name, PIXELS[:8])
    assert images.load(str(tmp_path)).train.classes == ["bus", "car", "train"]


def test_parts_that_are_not_clear_are_refused_and_what_is_no_part_is_named(tmp_path, capsys):
    for name in ("train", "test", "sketches"):
        write_folder(tmp_path / name, PIXELS[:8])
    images.load(str(tmp_path))
    assert "sketches is no part of a set, and is passed over" in capsys.readouterr().out
    (tmp_path / "Testing").mkdir()
    with pytest.raises(ValueError, match="more than one folder for test: Testing, test"):
        images.load(str(tmp_path))
    write_folder(tmp_path / "other" / "val", PIXELS[:8])
    write_folder(tmp_path / "other" / "test", PIXELS[:8])
    with pytest.raises(ValueError, match="has no folder `train` beside test, val"):
        images.load(str(tmp_path / "other"))


def test_too_few_images_or_classes_are_refused(tmp_path):
    write_folder(tmp_path / "few", PIXELS[:4])
    with pytest.raises(ValueError, match="too few images .*: none is left for valid"):
        images.load(str(tmp_path / "few"))
    with pytest.raises(ValueError, match="holds no folders; it must hold one folder of images a"):
        images.load(str(tmp_path / "few" / "yes"))  # of pictures alone
    write_folder(tmp_path / "one", PIXELS[:8])
    for file in (tmp_path / "one" / "no").iterdir():
        file.unlink()
    (tmp_path / "one" / "no").rmdir()
    with pytest.raises(ValueError, match="has one class alone, yes"):
        images.load(str(tmp_path / "one"))


def test_arrays_to_watch_by_are_taken_and_may_have_any_number_of_channels(tmp_path):
    bands = RNG.integers(0, 256, (20, 9, 7, 13), dtype="uint8")
    parts = {"train": bands, "val": bands[:6], "test": bands[:4]}
    arrays = {f"x_{name}": part for name, part in parts.items()}
    arrays |= {f"y_{name}": LABELS[: len(part)] for name, part in parts.items()}
    np.savez(tmp_path / "set.npz", **arrays)
    data = images.load(tmp_path / "set.npz")
    assert [len(data.train), len(data.valid), len(data.test)] == [20, 6, 4]
    assert data.train.channels == 13


SEVERAL = [["red"], ["red", "blue"], [], ["blue"]]


def write_table(path, positions, names=SEVERAL):
    lines = [f'images/{i}.png,"{",".join(names[i % len(names)])}"' for i in positions]
    path.write_text("\n".join(["file,labels", *lines]), encoding="utf-8")


@pytest.fixture
def listed(tmp_path):
    """A folder of twenty images, to be listed."""
    (tmp_path / "images").mkdir()
    for i, pixels in enumerate(PIXELS):
        (tmp_path / "images" / f"{i}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    return tmp_path


def test_a_table_of_images_with_several_labels_is_split(listed):
    write_table(listed / "labels.csv", range(20))
    data = images.load(listed, separator=",")
    corpora = [data.train, data.valid, data.test]
    assert sum(map(len, corpora)) == 20 and all(each.classes == ["blue", "red"] for each in corpora)
    for corpus in corpora:
        for file, row in zip(corpus.images, corpus.labels, strict=True):
            names = SEVERAL[int(file.rsplit("/")[-1].removesuffix(".png")) % 4]
            assert [name in names for name in corpus.classes] == list(row)


def test_tables_of_parts_keep_them(listed):
    write_table(listed / "Train.csv", range(10))
    write_table(listed / "val.csv", range(10, 14))
    write_table(listed / "test.csv", range(14, 20))
    data = images.load(listed, separator=",")
    assert [len(data.train), len(data.valid), len(data.test)] == [10, 4, 6]
    write_table(listed / "labels.csv", range(10))
    with pytest.raises(ValueError, match="more than one table for train: Train.csv, labels.csv"):
        images.load(listed, separator=",")
    (listed / "Train.csv").unlink()
    write_table(listed / "test.csv", range(9, 20))
    with pytest.raises(ValueError, match="test.csv, line 2: .*9.png stands in labels.csv, line 11"):
        images.load(listed, separator=",")


def test_arrays_with_several_labels_are_read_from_a_file(tmp_path):
    hot = RNG.integers(0, 2, (20, 3))
    arrays = {"x_train": PIXELS, "y_train": hot, "x_test": PIXELS[:4], "y_test": hot[:4]}
    path = tmp_path / "set.npz"
    np.savez(path, **arrays)
    data = images.load(path, separator=",")
    assert data.test.classes == ["0", "1", "2"] and data.test.labels.tolist() == hot[:4].tolist()
    np.savez(path, **arrays, class_names=["a", "b", "c"])
    assert images.load(path, separator=",").train.classes == ["a", "b", "c"]
    with pytest.raises(ValueError, match="set.npz has 3 labels for each image; .*--problem-type"):
        images.load(path)
    np.savez(path, **arrays, class_names=["a", "b"])
    with pytest.raises(ValueError, match=r"set train: `labels` must be 0 and 1 of shape \(n, 2\)"):
        images.load(path, separator=",")
    np.savez(path, **{**arrays, "y_train": hot[:, 0]})
    with pytest.raises(ValueError, match="set train: `labels` must be 0 and 1 of shape"):
        images.load(path, separator=",")
    one = {"y_train": hot[:, :1], "y_test": hot[:4, :1], "class_names": ["spam"]}
    np.savez(path, **{**arrays, **one})
    assert images.load(path, separator=",").train.labels.shape[1] == 1


def test_several_labels_are_neither_missed_nor_made_up(listed):
    for dataset in ("fashion-mnist-12k", "tfds:cifar10"):
        with pytest.raises(ValueError, match=f"{dataset} has one class for each image; several"):
            images.load(dataset, separator=",")
    with pytest.raises(ValueError, match="holds no table of images to learn from: labels.csv"):
        images.load(listed, separator=",")
    write_table(listed / "labels.csv", range(20))
    with pytest.raises(ValueError, match="has labels in a table, labels.csv; .*--problem-type"):
        images.load(listed)


@pytest.mark.parametrize("kind", ["folder", "arrays", "table"])
def test_copies_of_an_image_are_never_in_two_parts(kind, tmp_path, capsys):
    pixels = np.repeat(PIXELS, 3, axis=0)
    labels = np.repeat(LABELS, 3)
    separator = None
    if kind == "arrays":
        arrays = {"x_train": pixels, "y_train": labels, "x_test": PIXELS[:2], "y_test": LABELS[:2]}
        np.savez(tmp_path / "set.npz", **arrays)
    else:
        for i, (each, label) in enumerate(zip(pixels, labels, strict=True)):
            path = tmp_path / "set" / ("no", "yes")[label] / f"{i:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tf.io.encode_png(each).numpy())
    if kind == "table":
        separator = ","
        lines = [f"{path.relative_to(tmp_path / 'set')},{path.parent.name}"
                 for path in (tmp_path / "set").rglob("*.png")]  # fmt: skip
        (tmp_path / "set" / "labels.csv").write_text("\n".join(["file,labels", *lines]))
    data = images.load(tmp_path / ("set.npz" if kind == "arrays" else "set"), separator=separator)
    keys = [set(corpus.content_keys()) for corpus in (data.train, data.valid, data.test)]
    assert len(data.valid) and not keys[0] & keys[1]
    assert kind == "arrays" or not (keys[0] | keys[1]) & keys[2]
    printed = capsys.readouterr().out
    assert "repeated in train" in printed
    assert ("2 of test also in train" in printed) == (kind == "arrays")


def test_images_of_several_classes_and_parts_are_reported(tmp_path, capsys):
    for part in ("train", "valid", "test"):
        write_folder(tmp_path / part, PIXELS[:8])
    copied = tmp_path / "train" / "yes" / "copy.png"
    copied.write_bytes((tmp_path / "train" / "no" / "00.png").read_bytes())
    images.load(tmp_path)
    assert (
        "duplicates, which stay: 1 repeated in train, 8 of valid also in train, 8 of test also in "
        "train, 8 of test also in valid, 1 with several labels" in capsys.readouterr().out
    )
