"""Claims about COCO files and their images: sizes, orientations, names, nothing to learn."""

import io
import json

import numpy as np
import pytest
from PIL import Image, ImageOps
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from keras_transformers.training import score_boxes
from keras_transformers.vision import (
    DetectionCorpus,
    Preprocessing,
    evaluation_boxes,
    read_coco,
    training_boxes,
)

BOX = [5, 10, 20, 8]  # left, top, width, height
HEIGHT, WIDTH = 40, 60


def write(folder, pictures, annotations, categories=("cat",)):
    """A file of COCO's with images, dict of name -> bytes or (bytes, what is stated of it)."""
    images = []
    for i, (name, image) in enumerate(pictures.items()):
        content, stated = image if isinstance(image, tuple) else (image, {})
        (folder / name).write_bytes(content)
        images.append({"id": i, "file_name": name, **stated})
    content = {
        "images": images,
        "categories": [{"id": i, "name": name} for i, name in enumerate(categories)],
        "annotations": annotations,
    }
    (folder / "boxes.json").write_text(json.dumps(content), encoding="utf-8")
    return folder / "boxes.json"


def jpeg(orientation=1):
    """An image that is white in `BOX`, as it is stored."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), "uint8")
    left, top, width, height = BOX
    pixels[top : top + height, left : left + width] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", exif=exif, quality=100, subsampling=0)
    return file.getvalue()


def white(pixels):
    rows, columns = np.nonzero(np.asarray(pixels)[..., 0] > 127)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_around_what_is_seen(orientation, tmp_path):
    """Drawn on the image as it is seen, or, where it lies on its side, as it is stored."""
    file = jpeg(orientation)
    seen = ImageOps.exif_transpose(Image.open(io.BytesIO(file)))
    left, top, right, bottom = (int(side) for side in white(seen))
    drawn = {"image_id": 0, "category_id": 0, "bbox": [left, top, right - left, bottom - top]}
    upright = {"width": seen.width, "height": seen.height}
    found = read_coco(write(tmp_path, {"1.jpg": (file, upright)}, [drawn]))
    assert found.boxes[0].tolist() == [[left, top, right, bottom]] and not found.repaired
    assert white(found.pixels(0)) == [left, top, right, bottom]
    if orientation >= 5:
        stored = {"width": WIDTH, "height": HEIGHT}
        raw = {"image_id": 0, "category_id": 0, "bbox": BOX}
        found = read_coco(write(tmp_path, {"1.jpg": (file, stored)}, [raw]))
        assert found.boxes[0].tolist() == [[left, top, right, bottom]]
        assert found.repaired == {"turned with their images": 1}
        assert found.sizes.tolist() == [[WIDTH, HEIGHT]]


def test_a_image_of_another_size_than_is_stated_is_left_out_and_counted(tmp_path):
    pictures = {
        "good.jpg": (jpeg(), {"width": WIDTH, "height": HEIGHT}),
        "halved.jpg": (jpeg(), {"width": 2 * WIDTH, "height": 2 * HEIGHT}),
        "lying.jpg": (jpeg(), {"width": HEIGHT, "height": WIDTH}),  # and no EXIF says so
        "unstated.jpg": (jpeg(), {"width": None, "height": "40"}),
    }
    boxes = [{"image_id": i, "category_id": 0, "bbox": BOX} for i in (0, 1, 1, 2, 3)]
    found = read_coco(write(tmp_path, pictures, boxes))
    assert len(found) == 2 and found.number_of_boxes() == 2
    assert found.left_out == {"images of another size than is stated": 2, "of images left out": 3}


def test_categories_of_the_same_name_are_one_class(tmp_path):
    """As pycocotools scores the categories when those of the same name are one."""
    boxes = [{"image_id": 0, "category_id": c, "bbox": [9 * c, 5, 8, 8]} for c in (0, 1, 2)]
    path = write(tmp_path, {"1.jpg": jpeg()}, boxes, ("tree", "tree", "bush"))
    found = read_coco(path)
    assert found.classes == ["tree", "bush"] and found.labels[0].tolist() == [0, 0, 1]
    assert found.repaired == {"of another category of the same name": 1}
    answers = {"boxes": found.boxes[0], "labels": found.labels[0], "scores": [0.9, 0.8, 0.7]}
    truth = {"boxes": found.boxes[0], "labels": found.labels[0]}
    ours = score_boxes([answers], [truth], classes=2)
    coco = COCO()
    rows = [
        {**each, "id": i + 1, "area": 64, "iscrowd": 0, "category_id": max(each["category_id"], 1)}
        for i, each in enumerate(boxes)
    ]
    coco.dataset = {
        "images": [{"id": 0}],
        "categories": [{"id": 1}, {"id": 2}],
        "annotations": rows,
        "info": {},
    }
    coco.createIndex()
    scored = coco.loadRes([{**row, "score": 0.9 - 0.1 * i} for i, row in enumerate(rows)])
    evaluation = COCOeval(coco, scored, "bbox")
    evaluation.evaluate(), evaluation.accumulate(), evaluation.summarize()
    assert ours.ap == pytest.approx(evaluation.stats[0]) == pytest.approx(1.0)


def test_names_and_ids_that_are_there_twice_are_refused(tmp_path):
    image = np.zeros((HEIGHT, WIDTH, 3), "uint8")
    with pytest.raises(ValueError, match="no two `classes`.*more than once: cat"):
        DetectionCorpus.checked("toy", ["cat", "cat"], [image], [[]], [[]])
    path = write(tmp_path, {"1.jpg": jpeg()}, [])
    content = json.loads(path.read_text())
    content["categories"] *= 2
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="in `categories` an id is there more than once"):
        read_coco(path)


def test_a_mark_of_byte_order_is_no_part_of_the_json(tmp_path):
    path = write(tmp_path, {"1.jpg": jpeg()}, [{"image_id": 0, "category_id": 0, "bbox": BOX}])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_coco(path).number_of_boxes() == 1


def test_nothing_is_learned_where_there_is_no_box(tmp_path):
    corpus = read_coco(write(tmp_path, {"1.jpg": jpeg()}, []))
    with pytest.raises(ValueError, match="0 boxes in 1 images.*There is no box to learn from"):
        training_boxes(corpus, Preprocessing(32), 2, 4)
    assert len(list(evaluation_boxes(corpus, Preprocessing(32), 2, 4))) == 1  # scored it may be


def test_an_object_with_polygons_alone_gets_the_box_around_them(tmp_path):
    polygons = [[5, 10, 20, 10, 20, 18], [12, 25, 30, 22, 8, 14.5]]
    objects = [
        {"image_id": 0, "category_id": 0, "segmentation": polygons},
        {"image_id": 0, "category_id": 0, "segmentation": polygons, "bbox": BOX},
        {"image_id": 0, "category_id": 0, "segmentation": [[1, 2, 3]]},
        {"image_id": 0, "category_id": 0, "segmentation": {"counts": [1], "size": [4, 4]}},
    ]
    corpus = read_coco(write(tmp_path, {"a.jpg": jpeg()}, objects))
    assert corpus.boxes[0].tolist() == [[5, 10, 30, 25], [5, 10, 25, 18]]
    assert corpus.repaired == {"drawn around their polygons": 1}
    assert corpus.left_out == {"without four numbers": 2}


def test_boxes_beyond_the_queries_are_reported():
    boxes = [[[i, i, i + 9, i + 9] for i in range(number)] for number in (3, 1, 5)]
    labels = [[0] * len(one) for one in boxes]
    images = [np.zeros((40, 60, 3), "uint8")] * 3
    corpus = DetectionCorpus.checked("toy", ["cat"], images, boxes, labels)
    for make in (evaluation_boxes, training_boxes):
        with pytest.warns(UserWarning, match="toy: 4 boxes in 2 images are dropped, .* 2 and .* 5"):
            make(corpus, Preprocessing(16), 2, max_boxes=2)
