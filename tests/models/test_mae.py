"""Claims about the masked autoencoder."""

import json
import pathlib

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.models import MAE, ViT
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, to_numpy
from tests.published import assign, attention, dense, norm, random_weights, under
from tests.slow import slow_except

RNG = np.random.default_rng(4)
IMAGES = RNG.normal(size=(3, 12, 20, 2)).astype("float32")
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "mae.npz")
DECODER = {"decoder_dim": 8, "decoder_heads": 2, "decoder_mlp_dim": 14, "decoder_layers": 2}


def encoder(**changes):
    settings = {
        "num_classes": None,
        "image_size": (12, 20),
        "patch_size": 4,
        "hidden_dim": 12,
        "num_heads": 3,
        "mlp_dim": 20,
        "num_layers": 2,
        "positions": "sinusoidal",
    }
    return ViT.from_variant("B/16", **{**settings, **changes})


def make(kind="token", **changes):
    changes = {"seed": 3, **DECODER, **changes}
    dtype = {"dtype": changes["dtype"]} if "dtype" in changes else {}
    return MAE(encoder(pooling=kind, **dtype), **changes)


class Fixed(keras.layers.Layer):
    """The patches that an autoencoder draws, with noise that does not change from call to call."""

    def __init__(self, kind="token", **kwargs):
        super().__init__(**kwargs)
        self.kind = kind
        self.model = make(kind, name="mae", dtype=self.dtype_policy)

    def build(self, images_shape):
        self.model.build(images_shape)

    def call(self, images, training=None):
        noise = ops.tile(ops.convert_to_tensor(NOISE), (ops.shape(images)[0], 1))
        return self.model.reconstruct(images, noise, training=training)["patches"]

    def get_config(self):
        return {**super().get_config(), "kind": self.kind}


keras.saving.register_keras_serializable("tests")(Fixed)
NOISE = RNG.random((1, 15)).astype("float32")


@pytest.mark.parametrize("kind", slow_except(["token", "mean"], "token"))
def test_contract(kind):
    policies = POLICIES if kind == "token" and not ON_JAX else {}  # there it takes minutes
    check_layer(lambda **kwargs: Fixed(kind, **kwargs), (IMAGES,), policies=policies)


def test_configuration_and_reload(tmp_path):
    model = make("mean", normalize_patches=False, mask_ratio=0.5)
    twin = MAE.from_config(model.get_config())
    assert twin.get_config() == model.get_config()
    model(IMAGES)
    model.save(tmp_path / "mae.keras")
    loaded = keras.models.load_model(tmp_path / "mae.keras")
    noise = RNG.random((3, 15)).astype("float32")
    for found, expected in zip(
        loaded.reconstruct(IMAGES, noise).values(),
        model.reconstruct(IMAGES, noise).values(),
        strict=True,
    ):
        assert_close(found, expected, 0)


def from_huggingface(weights):
    def blocks(theirs, ours, heads):
        table = {}
        for i in range(2):
            block = theirs.format(i)
            projections = [dense(weights, f"{block}.attention.{part}_proj") for part in "qkvo"]
            parts = {
                "mixer": attention(*projections, heads),
                "mixer_norm": norm(weights, f"{block}.layernorm_before"),
                "feed_forward_norm": norm(weights, f"{block}.layernorm_after"),
                "feed_forward/hidden": dense(weights, f"{block}.mlp.fc1"),
                "feed_forward/output": dense(weights, f"{block}.mlp.fc2"),
            }
            for part, values in parts.items():
                table |= under(f"{ours}_{i}/{part}", values)
        return table

    patches = "vit.embeddings.patch_embeddings.projection"
    return {
        "encoder/embedding/patch_embedding/projection/kernel": weights[f"{patches}.weight"]
        .transpose(2, 3, 1, 0)
        .reshape(-1, 12),
        "encoder/embedding/patch_embedding/projection/bias": weights[f"{patches}.bias"],
        "encoder/embedding/class_token/class_token": weights["vit.embeddings.cls_token"],
        **blocks("vit.layers.{}", "encoder/encoder", 3),
        **under("encoder/norm", norm(weights, "vit.layernorm")),
        "mask_token": weights["decoder.mask_token"],
        **under("decoder_embedding", dense(weights, "decoder.decoder_embed")),
        **blocks("decoder.decoder_layers.{}", "decoder", 2),
        **under("decoder_norm", norm(weights, "decoder.decoder_norm")),
        **under("prediction", dense(weights, "decoder.decoder_pred")),
    }


def test_patches_mask_and_loss_are_those_of_transformers():
    model = MAE(encoder(image_size=20, positions="learned"), mask_ratio=0.7, **DECODER)
    model.build((None, 20, 20, 3))
    table = from_huggingface(random_weights(json.loads(str(GOLDEN["shapes"]))))
    table["encoder/embedding/position_embedding/position_embedding"] = GOLDEN["positions"][0]
    table["decoder_positions/position_embedding"] = GOLDEN["decoder_positions"][0]
    assign(model, table)
    found = model.reconstruct(GOLDEN["images"], GOLDEN["noise"])
    assert_close(found["patches"], GOLDEN["patches"], 1e-4)
    assert_close(ops.cast(found["masked"], "float32"), GOLDEN["masked"], 0)
    loss = model.compute_loss(ops.convert_to_tensor(GOLDEN["images"]), y_pred=found)
    assert_close(loss, GOLDEN["loss"], 1e-4)


def test_sinusoidal_positions_are_the_authors_but_for_their_order():
    """Theirs: all sines of the columns, their cosines, those of the rows. Ours: rows, in pairs."""
    plain = encoder(image_size=20)
    plain.build((None, 20, 20, 3))
    ours = np.asarray(
        to_numpy(plain.embedding.position_embedding(np.zeros((1, 26, 12), "float32")))
    )
    ours = ours.reshape(26, 2, 3, 2).transpose(0, 1, 3, 2)[:, ::-1].reshape(26, 12)
    assert_close(ours, GOLDEN["positions"][0], 1e-6)


@pytest.mark.parametrize("ratio", [0.5, 0.75])
def test_the_encoder_sees_the_kept_patches_and_nothing_else(ratio):
    model = make(mask_ratio=ratio)
    model.build(IMAGES.shape)
    noise = RNG.random((3, 15)).astype("float32")
    found = model.reconstruct(IMAGES, noise)
    masked = np.asarray(to_numpy(found["masked"]))
    assert (masked.sum(axis=1) == 15 - int(15 * (1 - ratio))).all()
    assert (noise[masked].reshape(3, -1).min(axis=1) > noise[~masked].reshape(3, -1).max(1)).all()
    hidden = masked.reshape(3, 3, 5).repeat(4, axis=1).repeat(4, axis=2)[..., None]
    other = np.where(hidden, 1e3, IMAGES)
    assert_close(model.reconstruct(other, noise)["patches"], found["patches"], 0)


def test_masks_differ_from_picture_to_picture_and_from_call_to_call():
    model = make()
    images = np.repeat(IMAGES[:1], 8, axis=0)
    first, second = (np.asarray(to_numpy(model(images)["masked"])) for _ in range(2))
    assert len({tuple(row) for row in first}) > 4
    assert (first != second).any()


def test_the_loss_counts_removed_patches_only():
    model = make()
    found = {name: to_numpy(value) for name, value in model(IMAGES).items()}
    images = ops.convert_to_tensor(IMAGES)
    expected = model.compute_loss(images, y_pred=found)
    patches = np.where(found["masked"][..., None], found["patches"], 1e3)
    assert_close(model.compute_loss(images, y_pred={**found, "patches": patches}), expected, 0)


def test_drawing_what_was_there_gives_the_picture_back():
    model = make()
    found = model(IMAGES)
    target, _, _ = model._targets(ops.convert_to_tensor(IMAGES))
    assert_close(model.draw(IMAGES, {**found, "patches": target}), IMAGES, 1e-4)


def test_the_encoder_is_handed_over():
    model = make("mean")
    model(IMAGES)
    classifier = model.encoder.transferred(num_classes=5, drop_path=0.1)
    assert_close(classifier.represent(IMAGES), model.encoder.represent(IMAGES), 0)
    assert classifier(IMAGES).shape == (3, 5)
    other = model.encoder.transferred(num_classes=5, image_size=(16, 20))
    assert other(np.zeros((1, 16, 20, 2), "float32")).shape == (1, 5)


@pytest.mark.slow
def test_pictures_are_learned_with_fit_alone():
    model = make("mean", mask_ratio=0.5)
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=True)
    rows = np.sin(np.arange(12) / 2)[:, None, None] * np.ones((64, 12, 20, 2))
    images = (rows * RNG.normal(size=(64, 1, 1, 1))).astype("float32")
    history = model.fit(images, epochs=30, batch_size=32, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert np.isfinite(model.evaluate(images, verbose=0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MAE(encoder(num_classes=3)), "no classes.*num_classes=3"),
        (lambda: MAE(encoder(pooling="attention")), "attention pooling.*pooling=<Attention"),
        (lambda: MAE(keras.layers.Dense(3)), "`encoder` must be a ViT"),
        (lambda: make(mask_ratio=1.0), "`mask_ratio` must be in"),
        (lambda: make(decoder_heads=3), "`decoder_heads` must divide `decoder_dim`=8"),
        (lambda: make(decoder_layers=0), "`decoder_layers` must be a positive integer"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_sample_weights_multiply_the_errors_of_their_images():
    model, noise = make("mean"), RNG.random((3, 15)).astype("float32")
    model(IMAGES)
    found = to_numpy(model.reconstruct(IMAGES, noise))
    target = to_numpy(ops.convert_to_tensor(model._targets(IMAGES)[0]))
    error = np.float64((found["patches"] - target) ** 2).mean(-1) * found["masked"]
    for weights in ([1, 1, 1], [0, 2, 0.5], [[3], [0], [0]]):
        loss = model.compute_loss(
            IMAGES, None, model.reconstruct(IMAGES, noise), np.array(weights, "float32")
        )
        expected = (error * np.ravel(weights)[:, None]).sum() / found["masked"].sum()
        assert_close(loss, np.float32(expected), 1e-5)
    with pytest.raises(ValueError, match=r"MAE: `sample_weight` must have shape \(batch,\)"):
        model.compute_loss(IMAGES, None, model.reconstruct(IMAGES, noise), np.ones((3, 15)))


def test_images_of_weight_zero_are_not_learned_from():
    model = make("mean")
    model.compile(keras.optimizers.SGD(1.0), run_eagerly=True)
    model(IMAGES)
    before = [to_numpy(weight) for weight in model.trainable_weights]
    model.fit(IMAGES, np.zeros(3), sample_weight=np.zeros(3), batch_size=3, verbose=0)
    for weight, old in zip(model.trainable_weights, before, strict=True):
        assert_close(weight, old, 0)
    model.fit(IMAGES, np.zeros(3), sample_weight=np.ones(3), batch_size=3, verbose=0)
    assert np.abs(to_numpy(model.trainable_weights[0]) - before[0]).max() > 0
