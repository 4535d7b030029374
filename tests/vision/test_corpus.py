"""Claims about labelled images: what is taken, what is left out, and that it is counted."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_transformers.vision import ImageCorpus, Preprocessing, read_folder
from tests.animations import animated_webp

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 8, 8, 3), dtype="uint8")
LABELS = np.arange(30) % 3
CORPUS = ImageCorpus.from_arrays("toy", PIXELS, LABELS, ["a", "b", "c"])
PREPROCESSING = Preprocessing(8)


def png(pixels):
    return tf.io.encode_png(pixels).numpy()


@pytest.fixture
def folder(tmp_path):
    """Three classes of four images."""
    for label, name in enumerate(["cat", "dog", "eel"]):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(4):
            index = tmp_path / name / ("more" if i == 3 else "")
            (index / f"{i}.png").write_bytes(png(PIXELS[3 * i + label]))
    return tmp_path


def images_of(corpus):
    return np.concatenate([images for images, _ in corpus.batches(7, PREPROCESSING)])


def test_the_same_images_come_from_pixels_bytes_and_files(folder):
    files = read_folder(folder)
    assert files.classes == ["cat", "dog", "eel"] and len(files) == 12
    order = [3 * i + label for label in range(3) for i in range(4)]
    np.testing.assert_array_equal(images_of(files), PIXELS[order])
    encoded = ImageCorpus.from_encoded("bytes", [png(each) for each in PIXELS], LABELS)
    np.testing.assert_array_equal(images_of(encoded), PIXELS)
    np.testing.assert_array_equal(images_of(CORPUS), PIXELS)
    assert (files.kind, encoded.kind, CORPUS.kind) == ("files", "encoded", "pixels")
    assert files.decoded(PREPROCESSING).kind == "pixels"
    np.testing.assert_array_equal(images_of(files.decoded(PREPROCESSING)), PIXELS[order])


def test_pixels_of_another_size_are_resized():
    [(images, labels)] = CORPUS.batches(30, Preprocessing((4, 6)))
    assert images.shape == (30, 4, 6, 3)
    np.testing.assert_array_equal(labels, LABELS)


def test_shuffled_batches_are_whole_and_every_epoch_has_every_image():
    small = CORPUS.select(range(12))
    batches = small.batches(4, PREPROCESSING, shuffle_seed=3).take(9).as_numpy_iterator()
    epochs = np.concatenate([images for images, _ in batches]).reshape(3, 12, -1)
    for epoch in epochs:
        assert {image.tobytes() for image in epoch} == {p.tobytes() for p in PIXELS[:12]}
    assert not np.array_equal(epochs[0], epochs[1])


def test_images_keep_their_labels_when_shuffled():
    label_of = {image.tobytes(): label for image, label in zip(PIXELS, LABELS, strict=True)}
    for images, labels in CORPUS.batches(10, PREPROCESSING, shuffle_seed=3).take(3):
        found = [label_of[image.tobytes()] for image in images.numpy()]
        np.testing.assert_array_equal(found, labels)


def test_a_split_takes_its_share_of_every_class():
    first, second = CORPUS.split(0.2, seed=5)
    assert np.bincount(first.labels).tolist() == [8, 8, 8]
    assert np.bincount(second.labels).tolist() == [2, 2, 2]
    both = {image.tobytes() for each in (first, second) for image in each.images}
    assert both == {image.tobytes() for image in PIXELS}
    lonely = ImageCorpus.from_arrays("toy", PIXELS[:5], [0, 0, 0, 0, 1])
    assert [sorted(part.labels) for part in lonely.split(0.2)] == [[0, 0, 0, 1], [0]]


def test_broken_files_are_counted_and_hidden_ones_passed_over(folder):
    (folder / "cat" / "empty.png").write_bytes(b"")
    (folder / "cat" / "cut.png").write_bytes(png(PIXELS[0])[:60])
    (folder / "dog" / "notes.txt").write_text("no image")
    (folder / "eel" / "moves.webp").write_bytes(animated_webp())
    (folder / "dog" / ".DS_Store").write_text("hidden")
    corpus = read_folder(folder)
    assert len(corpus) == 12 and corpus.read == 16
    assert corpus.left_out == {
        "empty files": 1,
        "files that are no whole JPEG, PNG, GIF, BMP or WebP": 2,
        "animated WebP files": 1,
    }
    assert "12 images of 3 classes kept of 16; left out: " in corpus.summary()
    assert "1 empty files" in corpus.summary()


def test_images_are_grey_only_if_all_of_them_are(tmp_path):
    (tmp_path / "only").mkdir()
    for i in range(20):
        (tmp_path / "only" / f"{i:02}.png").write_bytes(png(PIXELS[i, :, :, :1]))
    assert read_folder(tmp_path).channels == 1
    (tmp_path / "only" / "99.png").write_bytes(png(PIXELS[0]))
    corpus = read_folder(tmp_path)
    assert corpus.channels == 3 and corpus.bands.tolist() == [1] * 20 + [3]
    assert corpus.select(range(20)).channels == 1
    files = [png(pixels) for pixels in (*PIXELS[:20, :, :, :1], PIXELS[0])]
    assert ImageCorpus("made", ["a"], np.zeros(21, int), files, 21).channels == 3


def test_links_are_followed_hidden_folders_passed_over_and_strays_counted(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.png").write_bytes(png(PIXELS[0]))
    (folder / "cat" / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(elsewhere)  # round and round
    (folder / "dog" / "gone.png").symlink_to(elsewhere / "nowhere.png")
    (folder / "eel" / ".ipynb_checkpoints").mkdir()
    (folder / "eel" / ".ipynb_checkpoints" / "0.png").write_bytes(png(PIXELS[0]))
    (folder / "stray.PNG").write_bytes(png(PIXELS[0]))
    (folder / "README.md").write_text("no image")
    corpus = read_folder(folder)
    assert len(corpus) == 13 and corpus.read == 15
    assert corpus.left_out == {"beside the classes' folders": 1, "files that cannot be read": 1}
    (folder / "ox").symlink_to(elsewhere / "nowhere")
    with pytest.raises(ValueError, match="ox links to nothing"):
        read_folder(folder)


@pytest.mark.parametrize("channels", [2, 4, 13])
def test_files_of_arrays_have_any_number_of_channels(channels, tmp_path):
    pixels = RNG.integers(0, 256, (4, 9, 8, channels), dtype="uint8")
    for i, each in enumerate(pixels):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        np.save(tmp_path / "ab"[i % 2] / f"{i}.npy", each)
    corpus = read_folder(tmp_path)
    assert corpus.channels == channels and corpus.kind == "files"
    found = corpus.decoded(Preprocessing((9, 8), channels))
    np.testing.assert_array_equal(found.images, pixels[[0, 2, 1, 3]])
    with pytest.raises(ValueError, match=f"the images have {channels} channels.* expects 3"):
        corpus.batches(2, Preprocessing(8))
    (tmp_path / "a" / "image.png").write_bytes(png(PIXELS[0]))
    with pytest.raises(ValueError, match=f"the same number of channels.*{channels} .*3 "):
        read_folder(tmp_path).channels  # noqa: B018


def test_grey_and_coloured_arrays_and_images_mix(tmp_path):
    (tmp_path / "only").mkdir()
    np.save(tmp_path / "only" / "0.npy", PIXELS[0, :, :, 0])
    Image.fromarray(PIXELS[1]).save(tmp_path / "only" / "1.tif")
    (tmp_path / "only" / "2.png").write_bytes(png(PIXELS[2]))
    corpus = read_folder(tmp_path)
    assert corpus.channels == 3 and not corpus.left_out
    found = corpus.decoded(PREPROCESSING).images
    expected = [np.repeat(PIXELS[0, :, :, :1], 3, -1), PIXELS[1], PIXELS[2]]
    np.testing.assert_array_equal(found, expected)


def test_names_of_classes_are_text_and_differ():
    names = [b"a", "\u00e9".encode(), b"c"]
    corpus = ImageCorpus.from_arrays("toy", PIXELS, LABELS, np.array(names))
    assert corpus.classes == ["a", "\u00e9", "c"]
    with pytest.raises(ValueError, match="no two `classes`.*more than once: crane"):
        ImageCorpus.from_arrays("toy", PIXELS, LABELS, ["crane", "b", "crane"])


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 30), (13, 64, 64), (4, 8, 12)])
def test_channels_before_rows_are_refused(shape):
    with pytest.raises(ValueError, match=r"toy: .*channels first; numpy.moveaxis\(images, -3"):
        ImageCorpus.from_arrays("toy", np.zeros((2, *shape), "uint8"), [0, 1])
    moved = np.moveaxis(np.zeros((2, *shape), "uint8"), -3, -1)
    assert ImageCorpus.from_arrays("toy", moved, [0, 1]).channels == shape[0]


def test_a_folder_that_teaches_nothing_is_refused(folder):
    with pytest.raises(FileNotFoundError, match="There is no folder .*missing"):
        read_folder(folder / "missing")
    with pytest.raises(ValueError, match="holds no folders"):
        read_folder(folder / "cat" / "more")
    with pytest.raises(ValueError, match="must hold a folder for each class, cat, ox"):
        read_folder(folder, ["cat", "ox"])
    (folder / "fly").mkdir()
    with pytest.raises(ValueError, match="the class folder 'fly' is empty"):
        read_folder(folder)
    (folder / "fly" / "1.png").write_bytes(b"broken")
    with pytest.raises(ValueError, match="the class folder 'fly' has no usable image"):
        read_folder(folder)


def test_pixels_that_are_not_finite_are_counted():
    pixels = RNG.random((5, 8, 8))
    pixels[1, 2, 3], pixels[4, 0, 0] = np.nan, np.inf
    corpus = ImageCorpus.from_arrays("toy", pixels, np.arange(5))
    assert corpus.labels.tolist() == [0, 2, 3]
    assert corpus.left_out == {"with pixels that are not finite": 2}
    np.testing.assert_array_equal(corpus.images[1, :, :, 0], np.round(pixels[2] * 255))


@pytest.mark.parametrize(
    ("images", "labels", "complaint"),
    [
        (PIXELS, LABELS[:-1], r"with a label for each.*\(30, 8, 8, 3\), 29 labels"),
        (PIXELS[0, 0], LABELS[:8], "must have shape"),
        (PIXELS, LABELS + 1, r"`labels` must lie in \[0, 3\).*1 to 3"),
        (PIXELS, LABELS - 1, "Received: -1 to 1"),
        (PIXELS, LABELS / 1, "`labels` must be integers.*float64"),
        (PIXELS / 1.0, LABELS, r"must lie in \[0, 1\]. Received: \[0, 255\]"),
        (PIXELS.astype("int32"), LABELS, "unsigned bytes or floats. Received: int32"),
        (np.full((3, 8, 8), np.nan), LABELS[:3], "There is nothing to learn from"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(images, labels, complaint):
    with pytest.raises(ValueError, match=complaint):
        ImageCorpus.from_arrays("toy", images, labels, ["a", "b", "c"])


def test_batches_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="a label for each image. Received: 1 images, 2 labels"):
        ImageCorpus.from_encoded("toy", [png(PIXELS[0])], [0, 1])
    with pytest.raises(ValueError, match="toy: the images have 3 channels.* expects 1"):
        CORPUS.batches(4, Preprocessing(8, channels=1))
    with pytest.raises(ValueError, match="`batch_size` must be at most 30.*Received: 31"):
        CORPUS.batches(31, PREPROCESSING, shuffle_seed=0)


@pytest.mark.parametrize(
    "names", [("train", "test"), ("Training", "Testing"), ("Training", "Validation"), ("train",)]
)
def test_the_parts_of_a_set_are_never_classes(names, folder, tmp_path_factory):
    photos = tmp_path_factory.mktemp("photos")
    for name in names:
        shutil.copytree(folder, photos / name)
    with pytest.raises(ValueError, match=f"holds the parts of a set, {', '.join(names)}, and no"):
        read_folder(photos)
    assert read_folder(photos / names[0]).classes == ["cat", "dog", "eel"]


def test_a_class_without_a_usable_image_is_no_class_unless_it_is_given():
    files = [png(PIXELS[0]), png(PIXELS[1]), b"broken"]
    assert ImageCorpus.from_encoded("toy", files, [0, 1, 2]).classes == ["0", "1"]
    given = ImageCorpus.from_encoded("toy", files, [0, 1, 2], ["cat", "dog", "eel"])
    assert given.classes == ["cat", "dog", "eel"] and given.labels.tolist() == [0, 1]
