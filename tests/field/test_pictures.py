"""What images of real users are like: one small case of each fault, in calls as they make."""

import io
import json
import pathlib

import numpy as np
import pytest
from PIL import Image

import keras_transformers
from keras_transformers import export, models, vision
from recipes import language_model, vit
from recipes.data import boxes, images
from recipes.lib.options import configure
from tests.animations import animated_webp

RNG = np.random.default_rng(0)


def photograph(path, mode="RGB", orientation=1, **options):
    """A file of noise with a white upper half, as it is seen."""
    pixels = RNG.integers(0, 100, (24, 32, 3), dtype="uint8")
    exif = Image.Exif()
    exif[0x0112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path, exif=exif, **options)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A grey classifier of two classes, loaded as it was exported."""
    model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    model.build((None, 28, 28, 1))
    path = export.image_classifier(model, tmp_path_factory.mktemp("served"), ["cat", "dog"])
    return keras_transformers.load(path)


def test_train_and_val_are_no_classes(tmp_path):
    for part in ("Train", "val"):
        for i in range(10):
            photograph(tmp_path / part / "cat" / f"{i}.jpg")
            photograph(tmp_path / part / "dog" / f"{i}.jpg")
    data = images.load(tmp_path)
    assert data.train.classes == ["cat", "dog"] and len(data.valid) == 20


def test_one_coloured_image_behind_many_grey_ones_counts(tmp_path):
    for i in range(17):
        photograph(tmp_path / "cat" / f"{i:02}.png", "L")
    photograph(tmp_path / "cat" / "99.png")
    assert vision.read_folder(tmp_path).channels == 3


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.gif", "a.bmp", "a.tif"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_what_is_trained_on_is_answered(name, mode, classifier, tmp_path):
    photograph(tmp_path / "cat" / name, mode)
    corpus = vision.read_folder(tmp_path)
    assert len(corpus) == 1 and not corpus.left_out
    answer = classifier.predict(tmp_path / "cat" / name)
    assert answer == classifier.predict(Image.open(tmp_path / "cat" / name))


def test_a_photograph_that_lies_on_its_side_is_answered_as_it_is_seen(classifier, tmp_path):
    photograph(tmp_path / "a.jpg", orientation=6)
    seen = np.rot90(np.asarray(Image.open(tmp_path / "a.jpg")), -1)
    assert classifier.predict(tmp_path / "a.jpg") == classifier.predict(seen.copy())


def test_a_spreadsheet_of_photographs_with_several_labels(tmp_path):
    for i in range(30):
        photograph(tmp_path / "DCIM" / f"{i}.JPG")
    names = ["sea, sand", "sand", "", "sea,sand"]
    lines = ["Labels,Image", *(f'"{names[i % 4]}",DCIM/{i}.JPG' for i in range(30)), ",DCIM/30.JPG"]
    path = tmp_path / "labels.csv"
    path.write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")
    data = images.load(tmp_path, separator=",")
    assert data.train.classes == ["sand", "sea"] and len(data.train) + len(data.test) >= 25
    assert "left out: 1 missing files, the first DCIM/30.JPG in line 32" in data.train.summary()
    between = [line.replace(",DCIM", ";DCIM").replace("Labels,", "Labels;") for line in lines]
    path.write_text("\r\n".join(between), encoding="utf-8")  # as in Europe
    again = images.load(tmp_path, separator=",")
    np.testing.assert_array_equal(again.train.labels, data.train.labels)
    path.write_text("\n".join(lines).replace(",", "|").replace('"', ""))
    with pytest.raises(ValueError, match="left out: .*32 without a comma.*nothing to learn"):
        images.load(tmp_path, separator=",")


def coco(folder, **stated):
    photograph(folder / "train2017" / "1.jpg")
    content = {
        "images": [{"id": 1, "file_name": "1.jpg", **stated}],
        "categories": [{"id": 0, "name": "crown"}, {"id": 1, "name": "crown"}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [2, 3, 10, 12]}],
    }
    (folder / "annotations").mkdir(exist_ok=True)
    path = folder / "annotations" / "instances_train2017.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_cocos_own_layout_and_a_category_and_a_file_given_twice(tmp_path, capsys):
    path = coco(tmp_path, width=32, height=24)
    folder = dict.fromkeys(("train", "valid", "test"), str(tmp_path / "train2017"))
    data = boxes.load(train=path, valid=path, test=path, images=folder)
    assert data.train.classes == ["crown"] and data.train.number_of_boxes() == 1
    assert "duplicates, which stay: 1 of valid also in train" in capsys.readouterr().out
    with pytest.raises(ValueError, match="1 missing images"):
        boxes.load(train=path, valid=path, test=path)


def test_boxes_for_another_size_of_the_image_teach_nothing(tmp_path):
    path = coco(tmp_path, width=64, height=48)
    with pytest.raises(ValueError, match="of another size than is stated.*nothing to learn from"):
        vision.read_coco(path, tmp_path / "train2017")


def test_channels_first_is_said_before_training():
    with pytest.raises(ValueError, match="channels first"):
        vision.ImageCorpus.from_arrays("mine", np.zeros((9, 3, 32, 32), "uint8"), np.arange(9))


@pytest.mark.parametrize("text", ["No line fits.\n" + "x" * 80, "short", "\n\n", " \n" * 9 + "é"])
def test_any_text_has_a_line_to_draw(text):
    assert len(language_model.line_to_draw(text)) < 50


@pytest.mark.slow
def test_a_hundred_images_of_thirteen_channels_go_all_the_way(tmp_path):
    """With the recipe's defaults, whose batches are larger; then a new process's view of it."""
    bands = RNG.integers(0, 200, (100, 16, 16, 13), dtype="uint8")
    labels = np.arange(100) % 2
    bands[labels == 1, :8] += 50
    np.savez(
        tmp_path / "set.npz",
        x_train=bands,
        y_train=labels,
        x_test=bands[:20],
        y_test=labels[:20],
        class_names=["sea", "land"],
    )
    given = {"dataset": str(tmp_path / "set.npz"), "output": str(tmp_path / "run")}
    config = configure(vit.Config, epochs=2, **given)
    metrics = vit.run(config)
    assert metrics["images_per_second"] > 0
    assert {path.name for path in pathlib.Path(config.output, "figures").iterdir()} >= {
        "confusion.png",
        "predictions_attention.png",
        "patch_filters.png",
    }
    predictor = keras_transformers.load(config.output)
    assert predictor.predict(bands[0])["label"] in ("sea", "land")
    file = io.BytesIO()
    np.save(file, bands[0])
    assert predictor.predict(file.getvalue()) == predictor.predict(bands[0])


def test_an_animated_sticker_is_left_out_or_refused_and_ends_no_process(classifier, tmp_path):
    photograph(tmp_path / "cat" / "a.png")
    (tmp_path / "cat" / "b.webp").write_bytes(animated_webp())
    assert vision.read_folder(tmp_path).left_out == {"animated WebP files": 1}
    boxes_of_two = [[[1, 1, 9, 9]]] * 2
    files = [str(tmp_path / "cat" / name) for name in ("a.png", "b.webp")]
    corpus = vision.DetectionCorpus.checked("mine", ["cat"], files, boxes_of_two, [[0]] * 2)
    assert corpus.left_out == {"animated WebP files": 1, "of images left out": 1}
    with pytest.raises(ValueError, match="still image; animated WebP files are not read"):
        classifier.predict(files)


def test_a_folder_as_kaggle_packs_it_and_a_table_of_image_ids(tmp_path):
    for part in ("Training", "Testing"):
        for i in range(10):
            photograph(tmp_path / "photos" / part / "cat" / f"{i}.jpg")
            photograph(tmp_path / "photos" / part / "dog" / f"{i}.jpg")
    data = images.load(tmp_path / "photos")
    assert data.train.classes == ["cat", "dog"] and len(data.test) == 20
    with pytest.raises(ValueError, match="the parts of a set, Training, Testing"):
        vision.read_images(tmp_path / "photos")
    rows = [f"photos/Training/{name}/0.jpg,{name}" for name in ("cat", "dog")]
    (tmp_path / "train.csv").write_text("\n".join(["image_id,label", *rows]))
    assert vision.read_images(tmp_path / "train.csv").classes == ["cat", "dog"]


def test_an_x_ray_of_16_bits_is_grey_and_not_white(classifier, tmp_path):
    deep = Image.fromarray(RNG.integers(0, 65536, (24, 32), dtype="uint16"))
    deep.save(tmp_path / "a.png")
    answer = classifier.predict(tmp_path / "a.png")
    assert answer == classifier.predict(deep) == classifier.predict(Image.open(tmp_path / "a.png"))
    seen = [
        vision.read_images([(image, "cat")]).decoded(vision.Preprocessing(28, channels=1)).images
        for image in (deep, tmp_path / "a.png")
    ]
    np.testing.assert_array_equal(*seen)
