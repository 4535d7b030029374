"""Claims about folders of Deformable DETR: what is refused, and image files in, boxes out."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_transformers
from keras_transformers import export, pretrained, vision
from keras_transformers.layers import DeformableDecoderBlock, DeformableEncoderBlock
from keras_transformers.models import (
    DeformableDETR,
    FeatureMaps,
    PointProposals,
    PointQueries,
    ResNet,
)
from tests.contract import assert_close
from tests.models.small_detr import random
from tests.pretrained.test_bad_folders import edit

IMAGES = np.random.default_rng(3).normal(size=(1, 64, 96, 3)).astype("float32")


def made(queries=7, norm="frozen", **changes):
    backbone = ResNet(None, 64, 8, (1, 1, 1, 1), bottleneck=False, norm=norm, name="backbone")
    sizes = {"hidden_dim": 32, "num_layers": (1, 2)}
    if "blocks" not in changes:
        sizes |= {"num_heads": 2, "mlp_dim": 24}
    model = DeformableDETR(3, FeatureMaps(backbone), queries=queries, **{**sizes, **changes})
    model.build((None, 64, 64, 3))
    return model


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Of a model whose boxes are refined, with heads that differ."""
    model = random(made(PointQueries(7, refine=True)))
    return pretrained.save(model, tmp_path_factory.mktemp("published"))


@pytest.fixture
def folder(published, tmp_path):
    for file in published.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"focal_alpha": 0.5}, "`focal_alpha` must be 0.25 .* Received: 0.5"),
        ({"position_embedding_type": "learned"}, "`position_embedding_type` must be 'sine'"),
        ({"activation_function": "gelu"}, "`activation_function` must be 'relu'"),
        ({"tie_word_embeddings": False}, "`tie_word_embeddings` must be True"),
        ({"with_box_refine": False, "two_stage": True}, "`with_box_refine` must be true where"),
        ({"two_stage": 1}, "`two_stage` must be true or false. Received: 1"),
        ({"num_queries": 0}, "`num_queries` must be a positive integer. Received: 0"),
        ({"num_queries": 9}, "query_position_embeddings.weight must have shape"),
        ({"encoder_n_points": 3}, "sampling_offsets.weight must have shape"),
        ({"decoder_layers": 3}, "decoder_layers=3 must be the number of layers"),
        ({"num_feature_levels": 2}, "num_feature_levels=2"),
        ({"d_model": 64}, "d_model=64"),
        ({"model_type": "detr"}, "`architectures` must have one of DetrForObjectDetection"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_by_name(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out_features": ["stage3", "stage2"]}, "whose maps are some of stage1, stage2, stage3"),
        ({"out_features": None, "out_indices": [7]}, "whose maps are some of stage1"),
        ({"model_type": "swin"}, "of a backbone with model_type='resnet'"),
    ],
)
def test_a_backbone_that_does_not_fit_is_refused_by_name(folder, changes, message):
    backbone = json.loads((folder / "config.json").read_text())["backbone_config"]
    edit(folder, backbone_config={**backbone, **changes})
    with pytest.raises(ValueError, match=f"`backbone_config` must be .*{message}"):
        pretrained.load(folder)


def test_a_missing_and_a_misshapen_tensor_are_named(folder):
    tensors, file = load_file(folder / "model.safetensors"), folder / "model.safetensors"
    name = "model.decoder.layers.0.encoder_attn.sampling_offsets.weight"
    save_file({key: x for key, x in tensors.items() if key != name}, file)
    with pytest.raises(ValueError, match=f"the tensor {name} is missing"):
        pretrained.load(folder)
    name = "model.reference_points.weight"
    save_file({**tensors, name: np.zeros((4, 32), "float32")}, file)
    with pytest.raises(ValueError, match=rf"{name} must have shape \(2, 32\)"):
        pretrained.load(folder)


def test_heads_may_be_there_once_or_twice_or_tied(folder):
    """As transformers writes them now, and as files of the hub have them."""
    file = folder / "model.safetensors"
    tensors, expected = load_file(file), pretrained.load(folder)(IMAGES)
    boxes = {name: x for name, x in tensors.items() if ".bbox_embed." in name}
    assert len(boxes) == 12 and "class_embed.1.weight" in tensors
    twice = {name.removeprefix("model.decoder."): x for name, x in boxes.items()}
    save_file({**tensors, **twice}, file)
    assert_close(pretrained.load(folder)(IMAGES), expected, 0)
    tied = {name: x for name, x in tensors.items() if not name.startswith("class_embed.1")}
    save_file(tied, file)
    model = pretrained.load(folder)
    one, other = (heads.class_head.kernel for heads in model.heads)
    assert_close(one, other, 0)
    pretrained.save(model, folder)
    assert load_file(file).keys() == tied.keys()


def test_a_head_of_all_layers_may_be_there_for_each_but_not_differ(tmp_path):
    file = pretrained.save(made(), tmp_path) / "model.safetensors"
    tensors = load_file(file)
    again = {
        name.replace("_embed.0", "_embed.1"): x for name, x in tensors.items() if "_embed.0" in name
    }
    assert len(again) == 8 and not again.keys() & tensors.keys()
    save_file({**tensors, **again}, file)
    model = pretrained.load(tmp_path)
    assert not model.unused_tensors
    save_file({**tensors, **again, "class_embed.1.bias": np.ones(3, "float32")}, file)
    with pytest.raises(ValueError, match=r"class_embed.0.bias and class_embed.1.bias must be the"):
        pretrained.load(tmp_path)


def test_a_detector_that_the_published_code_does_not_know_is_not_written(tmp_path):
    kinds = DeformableEncoderBlock, DeformableDecoderBlock
    blocks = [kind(num_heads=2, mlp_dim=24) for kind in kinds]
    for model, message in (
        (
            made(blocks=blocks),
            r"encoder_blocks\[0\].norm.epsilon=1e-05. Received: 1e-06",
        ),  # with another epsilon
        (made(criterion={"classification": "softmax"}), "must have classification='focal'"),
        (made(norm="batch"), "backbone.*norm='frozen'. Received: 'batch'"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrained.save(model, tmp_path)


@pytest.mark.slow
def test_a_published_folder_takes_image_files_and_gives_boxes(tmp_path):
    import tensorflow as tf

    model = random(made(PointProposals(7)))
    folder = pretrained.save(model, tmp_path, ["cat", "dog", "rose"])
    preprocessing = vision.Preprocessing(64)
    pretrained.save_preprocessing(preprocessing, folder, detection="deformable_detr")
    image = np.random.default_rng(0).integers(0, 256, (50, 40, 3), dtype="uint8")
    found = keras_transformers.load(folder).predict(image)
    arguments = pretrained.load(folder), pretrained.class_names(folder), preprocessing
    path = export.detector(arguments[0], tmp_path / "served", *arguments[1:])
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    answers = served(image=tf.io.encode_png(image)[None])
    number = int(answers["number"][0])
    assert number and len(found) == number
    for i, each in enumerate(found):
        assert each["label"].encode() == answers["label"][0, i].numpy()
        np.testing.assert_allclose(each["score"], answers["score"][0, i], atol=1e-5)
        np.testing.assert_allclose(each["box"], answers["boxes"][0, i], atol=1e-2)
