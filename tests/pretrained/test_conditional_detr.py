"""Claims about folders of Conditional DETR: what is refused, and image files in, boxes out."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_transformers
from keras_transformers import export, pretrained, vision
from keras_transformers.layers import ConditionalDecoderBlock, EncoderBlock
from keras_transformers.models import DETR, ReferenceQueries, ResNet
from tests.models.small_detr import random
from tests.pretrained.test_bad_folders import edit

FOCAL = {"classification": "focal"}


def made(queries=7, **changes):
    backbone = ResNet(None, 64, 8, (1, 1, 1, 1), bottleneck=False, norm="frozen")
    sizes = {"hidden_dim": 16, "num_layers": (1, 2), "criterion": FOCAL}
    if "blocks" not in changes:
        sizes |= {"num_heads": 2, "mlp_dim": 24}
    model = DETR(3, backbone, queries=ReferenceQueries(queries), **{**sizes, **changes})
    model.build((None, 64, 64, 3))
    return model


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return pretrained.save(made(), tmp_path_factory.mktemp("published"))


@pytest.fixture
def folder(published, tmp_path):
    for file in published.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # transformers then normalises between the decoder's layers.
        ({"auxiliary_loss": True}, "`auxiliary_loss` must be False for models of type cond"),
        ({"focal_alpha": 0.5}, "`focal_alpha` must be 0.25 .* Received: 0.5"),
        ({"position_embedding_type": "learned"}, "`position_embedding_type` must be 'sine'"),
        ({"activation_function": "gelu"}, "`activation_function` must be 'relu'"),
        ({"decoder_attention_heads": 3}, "`num_heads` must divide the width of `x`, 16"),
        ({"decoder_layers": 3}, "decoder_layers=3 must be the number of layers"),
        ({"num_queries": 9}, "query_position_embeddings.weight must have shape"),
        ({"d_model": 20}, "d_model=20"),
        ({"model_type": "detr"}, "`architectures` must have one of DetrForObjectDetection"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_by_name(folder, changes, message):
    edit(folder, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.load(folder)


def test_a_missing_and_a_misshapen_tensor_are_named(folder):
    tensors, file = load_file(folder / "model.safetensors"), folder / "model.safetensors"
    name = "model.decoder.layers.0.ca_qpos_proj.weight"
    save_file({key: x for key, x in tensors.items() if key != name}, file)
    with pytest.raises(ValueError, match=f"the tensor {name} is missing"):
        pretrained.load(folder)
    name = "model.decoder.ref_point_head.layers.1.weight"
    save_file({**tensors, name: np.zeros((4, 16), "float32")}, file)
    with pytest.raises(ValueError, match=rf"{name} must have shape \(2, 16\)"):
        pretrained.load(folder)


def test_a_detector_that_the_published_code_does_not_know_is_not_written(tmp_path):
    norm = keras.layers.LayerNormalization(epsilon=1e-5)
    kinds = EncoderBlock, ConditionalDecoderBlock
    blocks = [kind(num_heads=2, mlp_dim=24, norm=norm) for kind in kinds]
    for model, message in (
        (made(blocks=blocks), "FirstConditionalDecoderBlock. Received: ConditionalDecoderBlock"),
        (made(criterion=None), "must have classification='focal'"),
    ):
        with pytest.raises(ValueError, match=message):
            pretrained.save(model, tmp_path)


def test_whole_weights_of_the_criterion_are_written_as_integers(tmp_path):
    criterion = {"classification": "focal", "class_cost": 2.0, "box_weight": 0.5}
    folder = pretrained.save(random(made(criterion=criterion), None, 64, 64, 3), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert repr(config["class_cost"]) == "2"  # `transformers` reads no 2.0 there
    assert config["bbox_loss_coefficient"] == 0.5


@pytest.mark.slow
def test_a_published_folder_takes_image_files_and_gives_boxes(tmp_path):
    import tensorflow as tf

    folder = pretrained.save(random(made(), None, 64, 64, 3), tmp_path, ["cat", "dog", "rose"])
    preprocessing = vision.Preprocessing(64)
    pretrained.save_preprocessing(preprocessing, folder, detection="conditional_detr")
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
