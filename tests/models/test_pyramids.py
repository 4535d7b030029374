"""Claims about Swin, PVT and MViT."""

import functools

import keras
import numpy as np
import pytest

from keras_transformers.models import PVT, MViT, Swin
from keras_transformers.training import AdamW
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, number_of_parameters
from tests.slow import slow_except

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 37, 50, 3)).astype("float32")
SMALL = {
    "swin": (
        Swin,
        {
            "image_size": (37, 50),
            "hidden_dim": 6,
            "num_layers": (1, 2, 1, 1),
            "num_heads": (1, 2, 3, 4),
            "window_size": 3,
        },
    ),
    "swin2": (
        Swin,
        {
            "image_size": (37, 50),
            "hidden_dim": 6,
            "num_layers": (2, 1, 1, 1),
            "version": 2,
            "num_heads": (1, 2, 3, 4),
            "window_size": 4,
            "pretrained_window_size": 3,
        },
    ),
    "pvt": (
        PVT,
        {
            "image_size": (37, 50),
            "hidden_dims": (4, 6, 9, 10),
            "num_layers": (1, 2, 1, 1),
            "num_heads": (1, 2, 3, 5),
            "mlp_ratios": (2, 2, 3, 1),
            "reductions": (4, 2, 2, 1),
        },
    ),
    "mvit": (MViT, {"image_size": (37, 50), "hidden_dim": 6, "num_layers": (1, 1, 2, 1)}),
}


def make(kind, **changes):
    model, settings = SMALL[kind]
    make_model = functools.partial(Swin.from_variant, "T") if model is Swin else model
    return make_model(**{"num_classes": 7, **settings, **changes})


def built(kind, **changes):
    model = make(kind, **changes)
    model.build((None, *model.get_config()["image_size"], 3))
    return model


# Their layers are checked under all policies; on JAX, operation by operation, it takes minutes.
@pytest.mark.parametrize(
    "kind", ["swin"] if ON_JAX else slow_except(["swin", "swin2", "pvt", "mvit"], "swin")
)
def test_contract(kind):
    policies = POLICIES if kind == "swin" and not ON_JAX else {}
    check_layer(lambda **kwargs: make(kind, **kwargs), (IMAGES,), policies=policies)


@pytest.mark.parametrize(
    ("make_variant", "exact"),
    [
        (lambda: Swin.from_variant("T"), 28_288_354),
        (lambda: Swin.from_variant("S"), 49_606_258),
        (lambda: Swin.from_variant("B"), 87_768_224),
        (lambda: Swin.from_variant("T", version=2), 28_347_154),
        (lambda: Swin.from_variant("S", version=2), 49_728_418),
        (lambda: Swin.from_variant("B", version=2), 87_918_816),
        (lambda: PVT.from_variant("b0"), 3_666_760),
        (lambda: PVT.from_variant("b1"), 14_009_000),
        (lambda: PVT.from_variant("b2"), 25_362_856),
        (lambda: PVT.from_variant("b3"), 45_238_696),
        (lambda: PVT.from_variant("b4"), 62_556_072),
        (lambda: PVT.from_variant("b5"), 81_956_008),
        (lambda: MViT.from_variant("T"), 24_173_320),
        (lambda: MViT.from_variant("S"), 34_870_216),
        (lambda: MViT.from_variant("B"), 51_472_744),
    ],
)
@pytest.mark.skipif(ON_JAX, reason="no backend makes a difference, and each model takes seconds")
def test_parameters_are_as_many_as_published(make_variant, exact):
    model = make_variant()
    size = model.get_config()["image_size"]
    assert number_of_parameters(model, (None, *size, 3)) == exact


@pytest.mark.parametrize("kind", ["swin"] if ON_JAX else SMALL)
def test_features_are_maps_of_every_stage(kind):
    model = built(kind)
    maps = model.features(IMAGES)
    assert list(maps) == ["stride_4", "stride_8", "stride_16", "stride_32"]
    for stride, x in zip((4, 8, 16, 32), maps.values(), strict=True):
        assert tuple(x.shape[:3]) == (2, -(-37 // stride), -(-50 // stride))
    last = maps["stride_32"] if model.norm is None else model.norm(maps["stride_32"])
    assert_close(model.head(keras.ops.mean(last, axis=(1, 2))), model(IMAGES), 1e-5)


@pytest.mark.parametrize("kind", SMALL)
def test_sizes_are_known_only_when_called_or_before(kind):
    symbols = keras.Input((None, None, 3)) if kind != "mvit" else keras.Input((37, 50, 3))
    model = built(kind)
    outer = keras.Model(symbols, model(symbols))
    assert_close(outer.predict(IMAGES, verbose=0), model(IMAGES), 1e-4)


@pytest.mark.parametrize("kind", SMALL)
def test_a_transferred_model_starts_from_the_same_weights(kind):
    model = built(kind)
    other = model.transferred(num_classes=3, image_size=(45, 33), drop_path=0.2)
    assert other(IMAGES).shape == (2, 3)
    same = model.transferred(dropout=0.1)
    assert_close(same(IMAGES), model(IMAGES), 0)
    if kind == "swin":
        wider = model.transferred(window_size=5)
        assert wider.encoder_blocks[0].mixer.position.grid == (5, 5)


@pytest.mark.parametrize("kind", SMALL)
def test_frozen_parts_stay_as_they_are_also_after_reload(kind, tmp_path):
    model = built(kind)
    model.freeze()
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert {w.path.split("/")[-2] for w in each.trainable_weights} == {"head"}
    model = built(kind)
    model.freeze(2)
    frozen = {w.path.split("/")[1] for w in model.weights} - {
        w.path.split("/")[1] for w in model.trainable_weights
    }
    blocks = {name for name in frozen if "block" in name}
    second = "stage_0_block_1" if kind == "swin2" else "stage_1_block_0"
    assert blocks == {"stage_0_block_0", second}
    assert len(frozen) > 2  # embeddings too


def test_stochastic_depth_grows_along_a_line():
    rates = [block.drop_path for block in make("swin", drop_path=0.2).encoder_blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["swin2", "mvit"])
def test_a_batch_is_learned_by_heart(kind):
    model = built(kind, image_size=(32, 32), num_layers=(1, 1, 1, 1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(AdamW(5e-3), loss, metrics=["accuracy"], jit_compile=True)
    images, labels = RNG.normal(size=(7, 32, 32, 3)).astype("float32"), np.arange(7)
    history = model.fit(images, labels, batch_size=7, epochs=40, verbose=0).history
    assert history["accuracy"][-1] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("swin", num_heads=(1, 2, 3)), "`num_heads` must have .* each of 4 stages"),
        (lambda: make("swin", version=3), "`version` must be one of 1, 2"),
        (lambda: make("swin", window_size=0), "`window_size` must be a positive integer"),
        (lambda: built("swin")(IMAGES[..., :1]), "`images` must have 3 channels"),
        (lambda: built("pvt", num_heads=(1, 5, 3, 5)), "`num_heads`"),
        (lambda: Swin.from_variant("XL"), "`name` must be one of mini, T"),
        (lambda: built("mvit").freeze(99), "`blocks` must be None or between 0 and 5"),
    ],
)
def test_errors_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
