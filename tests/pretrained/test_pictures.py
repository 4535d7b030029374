"""Claims about how published models want their pictures: read, refused, and written."""

import json

import pytest

from keras_transformers import pretrained
from keras_transformers.vision import Preprocessing

ASKED = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "resample": 3}
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
        ({"size": {"shortest_edge": 800, "longest_edge": 1333}}, {"image_size": 1333}),  # DETR
        (  # as it was first published
            {"size": 800, "max_size": 1333, "feature_extractor_type": "DetrFeatureExtractor"},
            {"image_size": 1333},
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


DEFORMABLE = ("deformable_detr", "DeformableDetr")


def test_a_cut_out_middle_and_a_frame_for_boxes_keep_their_sizes(tmp_path):
    folder = pretrained.save_preprocessing(Preprocessing(32), tmp_path)
    assert pretrained.load_preprocessing(folder) == Preprocessing(32, crop=False, resized=32)
    for detection, kind in ((True, "Detr"), ("conditional_detr", "ConditionalDetr"), DEFORMABLE):
        folder = pretrained.save_preprocessing(Preprocessing(96), tmp_path, detection=detection)
        assert pretrained.load_preprocessing(folder).image_size == (96, 96)
        written = json.loads((folder / "preprocessor_config.json").read_text())
        assert written["image_processor_type"] == f"{kind}ImageProcessor"
