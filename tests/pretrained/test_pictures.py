"""Claims about how published models want their pictures: read, refused, and written."""

import json

import pytest
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.pretrained.images import boxes_in
from keras_transformers.vision import Preprocessing, fitted

ASKED = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}
DETR = {"image_size": 1333, "resized": 800, "fit": True}
READ = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "method": "bicubic", "crop": False}


@pytest.fixture
def folder(tmp_path):
    def write(**asked):
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({**ASKED, **asked}))
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"size": 224}, {"image_size": 224}),
        ({"size": {"height": 48, "width": 32}}, {"image_size": (48, 32)}),
        (  # DeiT
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224},
            {"image_size": 224, "resized": 256},
        ),
        (
            {
                "size": {"height": 256, "width": 256},
                "do_center_crop": True,
                "crop_size": {"height": 224, "width": 192},
            },
            {"image_size": (224, 192), "resized": (256, 256)},
        ),
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, DETR),
        (  # as it was first published
            {"size": 800, "max_size": 1333, "feature_extractor_type": "DetrFeatureExtractor"},
            DETR,
        ),
        (
            {
                "size": {"max_height": 480, "max_width": 640},
                "pad_size": {"height": 480, "width": 640},
            },
            {"image_size": (480, 640), "fit": True},
        ),
        (
            {"size": 48, "crop_size": 32, "image_processor_type": "CLIPImageProcessorFast"},
            {"image_size": 32, "resized": 48},
        ),
    ],
)
def test_sizes_are_read_as_published(folder, asked, expected):
    assert pretrained.load_preprocessing(folder(**asked)) == Preprocessing(**{**READ, **expected})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"do_normalize": False}, "`do_normalize` must be true. Received: False"),
        ({"rescale_factor": 1 / 127.5}, "`rescale_factor` must be 1 / 255"),
        ({"resample": 1}, r"`resample` must be 2 \(bilinear\) or 3 \(bicubic\). Received: 1"),
        ({"size": {"shortest_edge": 224}}, "`do_center_crop` must be true"),
        ({"image_processor_type": "LevitImageProcessor", "size": 224}, "type` must be one of ViT"),
        ({"feature_extractor_type": "ConvNextFeatureExtractor"}, "Received: 'ConvNextFeature"),
        (
            {"size": {"max_height": 48, "max_width": 64}, "pad_size": {"height": 64, "width": 64}},
            r"`pad_size` must be the largest size of an image, \(48, 64\)",
        ),
        ({"size": "large"}, "sizes must be an integer, or have `height` and `width`"),
    ],
)
def test_what_cannot_be_done_is_refused(folder, asked, message):
    with pytest.raises(ValueError, match=message):
        pretrained.load_preprocessing(folder(**asked))


@pytest.mark.parametrize(
    "kind",
    [
        "ViT",
        "DeiT",
        "Bit",
        "CLIP",
        "Beit",
        "Detr",
        "ConditionalDetr",
        "DeformableDetr",
        "Siglip",
        "Segformer",
    ],
)
def test_what_a_file_does_not_say_is_what_the_published_class_does(kind, tmp_path):
    hf = pytest.importorskip("transformers")
    asked = json.dumps({"image_processor_type": f"{kind}ImageProcessor"})
    (tmp_path / "preprocessor_config.json").write_text(asked)
    theirs = getattr(hf, f"{kind}ImageProcessor")().to_dict()
    whole = {k: theirs[k] for k in ("size", "resample", "image_mean", "image_std")}
    crop = theirs.get("do_center_crop")
    whole |= {"do_center_crop": True, "crop_size": dict(theirs["crop_size"])} if crop else {}
    (tmp_path / "whole").mkdir()
    whole |= {"size": dict(whole["size"]), "resample": int(whole["resample"])}
    (tmp_path / "whole" / "preprocessor_config.json").write_text(json.dumps(whole))
    assert pretrained.load_preprocessing(tmp_path) == pretrained.load_preprocessing(
        tmp_path / "whole"
    )


def test_the_processor_of_images_and_texts_has_it_inside(folder, tmp_path):
    alone = folder(size=48, crop_size=32, image_processor_type="CLIPImageProcessor")
    expected = pretrained.load_preprocessing(alone)
    (alone / "preprocessor_config.json").unlink()
    with pytest.raises(FileNotFoundError, match="There is no file preprocessor_config.json"):
        pretrained.load_preprocessing(alone)
    asked = {**ASKED, "size": 48, "crop_size": 32, "image_processor_type": "CLIPImageProcessor"}
    said = {"image_processor": asked, "processor_class": "CLIPProcessor"}
    (tmp_path / "processor_config.json").write_text(json.dumps(said))
    assert pretrained.load_preprocessing(tmp_path) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": (32, 48), "crop": False},
        {"image_size": 32, "crop": False, "resized": 40, "method": "bicubic"},
        {"image_size": 32, "crop": False, "resized": (40, 48), "mean": (0.1, 0.2, 0.3)},
    ],
)
def test_a_preprocessing_is_written_as_it_is_read(settings, tmp_path):
    preprocessing = Preprocessing(**settings)
    folder = pretrained.save_preprocessing(preprocessing, tmp_path)
    assert pretrained.load_preprocessing(folder) == preprocessing


def test_a_cut_out_middle_keeps_its_sizes(tmp_path):
    folder = pretrained.save_preprocessing(Preprocessing(32), tmp_path)
    assert pretrained.load_preprocessing(folder) == Preprocessing(32, crop=False, resized=32)


DETECTORS = {
    True: "Detr",
    "detr": "Detr",
    "conditional_detr": "ConditionalDetr",
    "deformable_detr": "DeformableDetr",
}
FRAMES = [
    {"image_size": 96, "fit": True},
    {"image_size": (96, 128), "fit": True},
    {"image_size": 96, "fit": True, "resized": 64},
    {"image_size": 96, "fit": True, "resized": 96},
    {"image_size": (96, 128)},
]


@pytest.mark.parametrize("settings", FRAMES, ids=str)
@pytest.mark.parametrize("detection", DETECTORS)
def test_the_frame_of_a_detector_is_written_as_it_is_read(settings, detection, tmp_path):
    preprocessing = Preprocessing(**settings, crop=False)
    folder = pretrained.save_preprocessing(preprocessing, tmp_path, detection=detection)
    assert pretrained.load_preprocessing(folder) == preprocessing
    assert boxes_in(folder) == "image"
    written = json.loads((folder / "preprocessor_config.json").read_text())
    assert written["image_processor_type"] == f"{DETECTORS[detection]}ImageProcessor"


def test_a_detector_does_not_cut_the_middle_out(tmp_path):
    folder = pretrained.save_preprocessing(Preprocessing(96), tmp_path, detection=True)
    assert pretrained.load_preprocessing(folder) == Preprocessing(96, crop=False, fit=True)


BY_0_2 = {
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5] * 3,
    "image_processor_type": "DetrImageProcessor",
    "image_std": [0.5] * 3,
    "resample": 2,
    "rescale_factor": 1 / 255,
    "size": {"longest_edge": 96, "shortest_edge": 96},
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "frame"),
        ({"size": {"longest_edge": 96, "shortest_edge": 64}}, "image"),
        ({"size": {"max_height": 96, "max_width": 96}}, "image"),
        ({"size": 96}, "image"),
        ({"do_pad": True}, "image"),  # as transformers writes
        ({"format": "coco_detection"}, "image"),  # as it wrote in its first years
    ],
)
def test_detectors_that_version_0_2_wrote_are_recognised(changes, expected, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**BY_0_2, **changes}))
    assert boxes_in(tmp_path) == expected


# Height and width of an image; then those that `get_size_with_aspect_ratio` (shortest edge 800,
# longest 1,333) and `get_image_size_for_max_height_width` (800, 1,333) of transformers 5 give.
SIDES = [
    ((60, 150), (533, 1333), (533, 1333)),
    ((480, 640), (800, 1066), (800, 1066)),
    ((640, 480), (1066, 800), (800, 600)),
    ((333, 333), (800, 800), (800, 800)),
    ((13, 997), (17, 1333), (17, 1333)),
]


@pytest.mark.parametrize(("extents", "by_edges", "by_frame"), SIDES, ids=str)
def test_images_are_scaled_to_the_published_pixel(extents, by_edges, by_frame):
    image = tf.zeros((*extents, 3), tf.uint8)
    assert fitted(image, 1333, 800)[2].numpy().tolist() == list(by_edges)
    assert fitted(image, (800, 1333))[2].numpy().tolist() == list(by_frame)
