"""Shapes as new users have them: unknown until the call, without a batch axis, channels first."""

import keras
import numpy as np
import pytest

from keras_transformers import layers, models

SMALL = {"hidden_dim": 8, "num_heads": 2, "mlp_dim": 16, "num_layers": 1}
IMAGE = np.random.default_rng(0).uniform(size=(32, 32, 3)).astype("float32")
STAGES = {"num_layers": (1, 1, 1, 1), "image_size": 32}
OF_IMAGES = {
    "ViT": lambda: models.ViT(3, 32, 8, **SMALL),
    "Swin": lambda: models.Swin(
        3, hidden_dim=4, num_heads=(1, 1, 2, 2), window_size=4, **STAGES
    ),
    "PVT": lambda: models.PVT(3, hidden_dims=(4, 4, 6, 6), num_heads=(1, 1, 2, 2), **STAGES),
    "MViT": lambda: models.MViT(3, hidden_dim=8, **STAGES),
    "ResNet": lambda: models.ResNet(3, hidden_dim=4, num_layers=(1, 1), norm="group"),
    "MAE": lambda: models.MAE(
        models.ViT(None, 32, 8, **SMALL), decoder_dim=8, decoder_heads=2, decoder_layers=1
    ),
    "DETR": lambda: models.DETR(
        2, models.ResNet(None, hidden_dim=4, num_layers=(1, 1), norm="group"), hidden_dim=8,
        num_heads=2, mlp_dim=8, num_layers=1, queries=3,
    ),
}  # fmt: skip


def test_a_served_patch_embedding_refuses_a_signal_that_patches_do_not_fill(tmp_path):
    tf = pytest.importorskip("tensorflow")
    i = keras.Input((None, 1))
    model = keras.Model(i, layers.PatchEmbedding(4, 8, name="cut")(i))
    model.export(tmp_path, verbose=False)
    served = tf.saved_model.load(tmp_path)
    signals = np.random.default_rng(0).normal(size=(4, 12, 1)).astype("float32")
    np.testing.assert_allclose(served.serve(signals), model(signals), atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="cut.*each of length must be a multi"):
        served.serve(signals[:, :10])


def test_a_served_vit_takes_any_size(tmp_path):
    tf = pytest.importorskip("tensorflow")
    i = keras.Input((None, None, 3))
    model = keras.Model(i, models.ViT(5, 8, 4, **SMALL)(i))
    model.export(tmp_path, verbose=False)
    images = np.random.default_rng(0).normal(size=(2, 4, 16, 3)).astype("float32")
    served = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(served.serve(images), model(images), atol=1e-5)


def test_blocks_over_the_frames_of_a_video():
    i = keras.Input((5, 7, 8))
    model = keras.Model(i, keras.layers.TimeDistributed(layers.EncoderBlock(2, 16))(i))
    assert model.output_shape == (None, 5, 7, 8)
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    assert "?" not in "".join(lines)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_what_is_no_batch_of_images_is_refused_in_a_sentence(name):
    model = OF_IMAGES[name]()
    with pytest.raises(ValueError, match=rf"{name} .*`images` must have shape .*images\[None\]"):
        model(IMAGE)
    model(IMAGE[None])
    mistakes = {
        r"`images` must have shape .*\(32, 32, 3\).*images\[None\]": IMAGE,
        "`images` must be floating.*uint8": np.uint8(255 * IMAGE)[None],
        "`images` must have 3 channels.*channels last": np.moveaxis(IMAGE, -1, 0)[None],
        "`images` must have shape .*in one tensor": [IMAGE, IMAGE],
    }
    for message, images in mistakes.items():
        with pytest.raises(ValueError, match=f"{name} .*{message}"):
            model(images)
    with pytest.raises(ValueError, match=f"{name} .*`images` must be floating.*int32"):
        model(keras.Input((32, 32, 3), dtype="int32"))


@pytest.mark.parametrize("stem", [layers.PatchEmbedding, layers.ConvolutionalStem])
def test_a_stem_takes_floating_images_with_a_batch_axis(stem):
    with pytest.raises(ValueError, match="`x` must be floating.*uint8"):
        stem(4, 8)(np.uint8(IMAGE)[None])
    layer = stem(4, 8)
    layer(IMAGE[None])
    with pytest.raises(ValueError, match=r"channels, as when it was built.*\(32, 32, 3\)"):
        layer(IMAGE)


@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_computer_set_to_channels_first_computes_the_same(name):
    keras.config.set_image_data_format("channels_first")
    try:
        keras.utils.set_random_seed(0)
        expected = OF_IMAGES[name]()(IMAGE[None])
    finally:
        keras.config.set_image_data_format("channels_last")
    keras.utils.set_random_seed(0)
    found = OF_IMAGES[name]()(IMAGE[None])
    for one, other in zip(*map(keras.tree.flatten, (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)
