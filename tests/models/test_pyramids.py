"""Claims about Swin, PVT and MViT."""

import functools
import json
import pathlib

import keras
import numpy as np
import pytest

from keras_transformers.models import PVT, MViT, Swin
from keras_transformers.training import AdamW
from tests.contract import ON_JAX, POLICIES, assert_close, check_layer, number_of_parameters
from tests.published import (
    assign,
    attention,
    dense,
    norm,
    random_images,
    random_weights,
    split,
    under,
)

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
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "pyramids.npz")


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
    "kind",
    ["swin"] if ON_JAX else ["swin", pytest.param("swin2", marks=pytest.mark.slow), "pvt", "mvit"],
)
def test_contract(kind):
    policies = POLICIES if kind == "swin" and not ON_JAX else {}
    check_layer(lambda **kwargs: make(kind, **kwargs), (IMAGES,), policies=policies)


def convolution(weights, name, *shape):
    table = {"kernel": weights[f"{name}.weight"].transpose(2, 3, 1, 0)}
    if shape:
        table["kernel"] = table["kernel"].reshape(shape)
    return table | ({"bias": weights[f"{name}.bias"]} if f"{name}.bias" in weights else {})


def from_swin(weights, name):
    second = name == "swinv2"
    table = {
        **under(
            "patch_embedding/projection",
            convolution(weights, f"{name}.embeddings.patch_embeddings.projection", 48, 4),
        ),
        **under("embedding_norm", norm(weights, f"{name}.embeddings.norm")),
        **under("norm", norm(weights, f"{name}.layernorm")),
        **under("head", dense(weights, "classifier")),
    }
    for stage, (depth, heads) in enumerate(zip((2, 2, 2, 1), (1, 2, 2, 4), strict=True)):
        layer = f"{name}.encoder.layers.{stage}"
        if stage < 3:
            merging, theirs = f"merging_{stage + 1}", f"{layer}.downsample"
            table[f"{merging}/projection/kernel"] = weights[f"{theirs}.reduction.weight"].T
            table |= under(f"{merging}/norm", norm(weights, f"{theirs}.norm"))
        for number in range(depth):
            block = f"{layer}.blocks.{number}"
            convert = second_attention if second else first_attention
            hidden, output = (
                ("intermediate.dense", "output.dense") if second else ("mlp.fc1", "mlp.fc2")
            )
            parts = {
                "mixer": convert(weights, f"{block}.attention", heads),
                "mixer_norm": norm(weights, f"{block}.layernorm_before"),
                "feed_forward_norm": norm(weights, f"{block}.layernorm_after"),
                "feed_forward/hidden": dense(weights, f"{block}.{hidden}"),
                "feed_forward/output": dense(weights, f"{block}.{output}"),
            }
            for part, values in parts.items():
                table |= under(f"stage_{stage}_block_{number}/{part}", values)
    return table


def first_attention(weights, name, heads):
    table = attention(*(dense(weights, f"{name}.{part}_proj") for part in "qkvo"), heads)
    bias = f"{name}.relative_position_bias.relative_position_bias_table"
    return table | {"position/relative_bias": weights[bias]}


def second_attention(weights, name, heads):
    parts = [f"{name}.self.{part}" for part in ("query", "key", "value")]
    weights = {f"{parts[1]}.bias": np.zeros(weights[f"{parts[1]}.weight"].shape[0]), **weights}
    parts = [dense(weights, part) for part in (*parts, f"{name}.output.dense")]
    table = attention(*parts, heads)
    del table["key/bias"]
    table["score/log_scale"] = weights[f"{name}.self.logit_scale"]
    network = f"{name}.self.continuous_position_bias_mlp"
    table |= under("position/hidden", dense(weights, f"{network}.0"))
    return table | {"position/output/kernel": weights[f"{network}.2.weight"].T}


def from_pvt(weights, name):
    table = under("head", dense(weights, "classifier"))
    widths, heads, reductions = (4, 8, 12, 16), (1, 2, 3, 4), (8, 4, 2, 1)
    for stage, depth in enumerate((1, 2, 1, 1)):
        layer = f"pvt_v2.encoder.layers.{stage}"
        entrance = f"{layer}.patch_embedding"
        table |= under(f"embedding_{stage}/projection", convolution(weights, f"{entrance}.proj"))
        table |= under(f"embedding_{stage}/norm", norm(weights, f"{entrance}.layer_norm"))
        table |= under(f"norm_{stage}", norm(weights, f"{layer}.layer_norm"))
        for number in range(depth):
            block = f"{layer}.blocks.{number}"
            names = [f"{block}.attention.{part}" for part in ("query", "key", "value", "proj")]
            # (channels, 1, 3, 3) of a convolution of each by itself
            depthwise = weights[f"{block}.mlp.dwconv.dwconv.weight"].transpose(2, 3, 0, 1)
            parts = {
                "mixer": attention(*(dense(weights, part) for part in names), heads[stage]),
                "mixer_norm": norm(weights, f"{block}.layer_norm_1"),
                "feed_forward_norm": norm(weights, f"{block}.layer_norm_2"),
                "feed_forward/hidden": dense(weights, f"{block}.mlp.dense1"),
                "feed_forward/output": dense(weights, f"{block}.mlp.dense2"),
                "feed_forward/depthwise": {
                    "kernel": depthwise,
                    "bias": weights[f"{block}.mlp.dwconv.dwconv.bias"],
                },
            }
            if reductions[stage] > 1:
                reduction = f"{block}.attention.spatial_reduction"
                shape = (reductions[stage] ** 2 * widths[stage], widths[stage])
                parts["mixer/reduce/projection"] = convolution(weights, reduction, *shape)
                parts["mixer/norm"] = norm(weights, f"{block}.attention.layer_norm")
            for part, values in parts.items():
                table |= under(f"stage_{stage}_block_{number}/{part}", values)
    return table


def from_mvit(weights, name):
    table = {
        **under("patch_embedding/projection", convolution(weights, "patch_embed.proj")),
        **under("norm", norm(weights, "norm")),
        **under("head", dense(weights, "head.fc")),
    }
    for stage, depth in enumerate((1, 2, 2, 1)):
        for number in range(depth):
            block = f"stages.{stage}.blocks.{number}"
            qkv = split(dense(weights, f"{block}.attn.qkv"), 3)
            output = dense(weights, f"{block}.attn.proj")
            parts = {
                "mixer": attention(*qkv, output, 2**stage),
                "mixer_norm": norm(weights, f"{block}.norm1"),
                "feed_forward_norm": norm(weights, f"{block}.norm2"),
                "feed_forward/hidden": dense(weights, f"{block}.mlp.fc1"),
                "feed_forward/output": dense(weights, f"{block}.mlp.fc2"),
            }
            if f"{block}.shortcut_proj_attn.weight" in weights:
                parts["skip_projection"] = dense(weights, f"{block}.shortcut_proj_attn")
            for part in ("query", "key", "value"):
                pooling = weights[f"{block}.attn.pool_{part[0]}.weight"].transpose(2, 3, 0, 1)
                parts[f"mixer/{part}_pooling"] = {"kernel": pooling}
                parts[f"mixer/{part}_norm"] = norm(weights, f"{block}.attn.norm_{part[0]}")
            parts["mixer"]["row_offsets/table"] = weights[f"{block}.attn.rel_pos_h"]
            parts["mixer"]["column_offsets/table"] = weights[f"{block}.attn.rel_pos_w"]
            for part, values in parts.items():
                table |= under(f"stage_{stage}_block_{number}/{part}", values)
    return table


STAGES = {"hidden_dim": 4, "num_layers": (2, 2, 2, 1), "num_heads": (1, 2, 2, 4)}
STAGES |= {"image_size": 96, "mask_padding": False}
PUBLISHED = {
    "swin": (Swin, from_swin, "swin", {"window_size": 3, **STAGES}),
    "swin2": (Swin, from_swin, "swinv2", {"window_size": 4, "version": 2, **STAGES}),
    "swin2_pretrained": (
        Swin,
        from_swin,
        "swinv2",
        {"window_size": 4, "version": 2, "pretrained_window_size": 6, **STAGES},
    ),
    "pvt": (
        PVT,
        from_pvt,
        "",
        {
            "hidden_dims": (4, 8, 12, 16),
            "num_layers": (1, 2, 1, 1),
            "num_heads": (1, 2, 3, 4),
            "mlp_ratios": (3, 3, 2, 2),
        },
    ),
    "mvit": (MViT, from_mvit, "", {"image_size": 64, "hidden_dim": 6, "num_layers": (1, 2, 2, 1)}),
}
SIZES = {name: [] for name in PUBLISHED}
for key in GOLDEN.files:
    if key.endswith("/logits"):
        family, size, _ = key.split("/")
        SIZES[family].append(tuple(map(int, size.split("x"))))


@pytest.mark.parametrize(
    ("family", "size"),
    [(family, size) for family in PUBLISHED for size in SIZES[family][: 1 if ON_JAX else None]],
)
def test_logits_are_those_of_published_implementations(family, size):
    kind, convert, name, settings = PUBLISHED[family]
    model = Swin.from_variant("T", 7, **settings) if kind is Swin else kind(7, **settings)
    model.build((None, None, None, 3))
    weights = random_weights(json.loads(str(GOLDEN[f"{family}/shapes"])))
    assign(model, convert(weights, name))
    expected = GOLDEN[f"{family}/{size[0]}x{size[1]}/logits"]
    assert np.abs(expected).max() > 0.3
    assert_close(model.predict(random_images(size), verbose=0), expected, 1e-4)


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
