"""Claims about the Vision Transformer."""

import pathlib

import keras
import numpy as np
import pytest

from keras_transformers.layers import AttentionPooling, GridRelativeBias, SelfAttention
from keras_transformers.models import ViT
from keras_transformers.training import AdamW
from tests.contract import POLICIES, assert_close, check_layer, number_of_parameters, to_numpy
from tests.published import assign, attention, dense, golden_weights, norm, split, under
from tests.slow import slow_except

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 8, 12, 3)).astype("float32")
SMALL = {
    "num_classes": 7,
    "image_size": (8, 12),
    "patch_size": 4,
    "hidden_dim": 20,
    "num_heads": 5,
    "mlp_dim": 23,
    "num_layers": 2,
}
KINDS = {
    "token": {},
    "mean": {"pooling": "mean", "positions": "sinusoidal", "layer_scale": 0.1},
    "attention": {"pooling": "attention", "stem": "convolutional", "representation_dim": 11},
    "mixers": {
        "pooling": "mean",
        "positions": None,
        "mixer": SelfAttention(5, position=GridRelativeBias((2, 3))),
    },
    "shifted": {"pooling": "mean", "class_token": True, "stem": "shifted", "num_classes": None},
}
GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "vit.npz")


def make(**changes):
    return ViT.from_variant("B/16", **{**SMALL, **changes})


def built(size=(8, 12), channels=3, **changes):
    model = make(image_size=size, **changes)
    model.build((None, *size, channels))
    return model


@pytest.mark.parametrize("kind", slow_except(KINDS.keys(), "token", "attention"))
def test_contract(kind):
    policies = POLICIES if kind == "token" else {}  # checking them all once more takes long
    check_layer(lambda **kwargs: make(**KINDS[kind], **kwargs), (IMAGES,), policies=policies)


def common(weights, patch, names):
    """Patch projection, feed-forward networks, norms and head, which both implementations have."""
    table = {
        "embedding/patch_embedding/projection/kernel": weights[f"{patch}.weight"]
        .transpose(2, 3, 1, 0)
        .reshape(-1, SIZES["hidden_dim"]),
        "embedding/patch_embedding/projection/bias": weights[f"{patch}.bias"],
        **under("head", dense(weights, names["head"])),
        **under("norm", norm(weights, names["norm"])),
    }
    for i in range(SIZES["num_layers"]):
        block, ours = names["block"].format(i), f"encoder_{i}"
        parts = {
            "mixer_norm": norm(weights, f"{block}.{names['norm1']}"),
            "feed_forward_norm": norm(weights, f"{block}.{names['norm2']}"),
            "feed_forward/hidden": dense(weights, f"{block}.{names['fc1']}"),
            "feed_forward/output": dense(weights, f"{block}.{names['fc2']}"),
        }
        for name, part in parts.items():
            table |= under(f"{ours}/{name}", part)
    return table


SIZES = {
    "num_classes": 7,
    "patch_size": 4,
    "hidden_dim": 15,
    "num_heads": 3,
    "mlp_dim": 30,
    "num_layers": 2,
}


def from_timm(weights):
    names = {
        "head": "head",
        "norm": "norm" if "norm.weight" in weights else "fc_norm",
        "block": "blocks.{}",
        "norm1": "norm1",
        "norm2": "norm2",
        "fc1": "mlp.fc1",
        "fc2": "mlp.fc2",
    }
    table = common(weights, "patch_embed.proj", names)
    table["embedding/position_embedding/position_embedding"] = weights["pos_embed"][0]
    if "cls_token" in weights:
        table["embedding/class_token/class_token"] = weights["cls_token"]
    for i in range(SIZES["num_layers"]):
        qkv = split(dense(weights, f"blocks.{i}.attn.qkv"), 3)
        output = dense(weights, f"blocks.{i}.attn.proj")
        table |= under(f"encoder_{i}/mixer", attention(*qkv, output, 3))
    if "attn_pool.latent" in weights:
        query = dense(weights, "attn_pool.q")
        key_value = split(dense(weights, "attn_pool.kv"), 2)
        parts = {
            "attention": attention(query, *key_value, dense(weights, "attn_pool.proj"), 3),
            "norm": norm(weights, "attn_pool.norm"),
            "feed_forward/hidden": dense(weights, "attn_pool.mlp.fc1"),
            "feed_forward/output": dense(weights, "attn_pool.mlp.fc2"),
        }
        table["attention_pooling/query_token"] = weights["attn_pool.latent"]
        for name, part in parts.items():
            table |= under(f"attention_pooling/{name}", part)
    return table


def from_huggingface(weights):
    embeddings = "vit.embeddings"
    names = {
        "head": "classifier",
        "norm": "vit.layernorm",
        "block": "vit.layers.{}",
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "fc1": "mlp.fc1",
        "fc2": "mlp.fc2",
    }
    table = common(weights, f"{embeddings}.patch_embeddings.projection", names)
    table["embedding/position_embedding/position_embedding"] = weights[
        f"{embeddings}.position_embeddings"
    ][0]
    table["embedding/class_token/class_token"] = weights[f"{embeddings}.cls_token"]
    for i in range(SIZES["num_layers"]):
        parts = [dense(weights, f"vit.layers.{i}.attention.{name}_proj") for name in "qkvo"]
        table |= under(f"encoder_{i}/mixer", attention(*parts, 3))
    return table


@pytest.mark.parametrize(
    ("family", "convert", "options"),
    [
        ("timm_token", from_timm, {}),
        ("timm_mean", from_timm, {"pooling": "mean", "class_token": True}),
        ("timm_mean_only", from_timm, {"pooling": "mean"}),
        ("timm_attention", from_timm, {"pooling": "attention"}),
        ("huggingface_token", from_huggingface, {}),
    ],
)
def test_logits_are_those_of_published_implementations(family, convert, options):
    model = ViT.from_variant("B/16", image_size=(12, 20), **SIZES, **options)
    model.build((None, 12, 20, 3))
    weights = golden_weights(GOLDEN, family)
    expected = weights.pop("logits")
    assign(model, convert(weights))
    assert_close(model(GOLDEN["image"]), expected, 1e-4)


@pytest.mark.parametrize(
    ("name", "millions", "exact"),
    [
        ("Ti/16", 5.7, 5_717_416),
        ("S/16", 22.1, 22_050_664),
        ("B/16", 86.6, 86_567_656),
        ("L/16", 304, 304_326_632),
        ("H/14", 632, 632_045_800),
    ],
)
def test_parameters_are_as_many_as_published(name, millions, exact):
    assert number_of_parameters(ViT.from_variant(name), (None, 224, 224, 3)) == exact
    assert exact / 1e6 == pytest.approx(millions, rel=0.005)


def test_weights_saved_at_one_size_load_at_another(tmp_path):
    small, large = built((28, 28), 1), built((44, 36), 1)
    small.save_weights(tmp_path / "small.weights.h5")
    large.load_weights(tmp_path / "small.weights.h5")
    images = RNG.normal(size=(2, 44, 36, 1)).astype("float32")
    # What the small model itself makes of larger images.
    assert_close(large(images), small(images), 1e-5)


def test_a_transferred_model_starts_from_the_same_weights():
    model = built()
    other = model.transferred(num_classes=3, image_size=(16, 12), drop_path=0.2)
    images = RNG.normal(size=(2, 16, 12, 3)).astype("float32")
    assert_close(other.represent(images), model.represent(images), 1e-5)
    assert other(images).shape == (2, 3)
    assert_close(model.transferred(dropout=0.1)(IMAGES), model(IMAGES), 0)
    pooled = model.transferred(pooling=AttentionPooling(5, 23))  # new, but for what it pools
    assert_close(pooled.encode(IMAGES), model.encode(IMAGES), 0)
    with pytest.raises(ValueError, match="cannot take over embedding/patch_embedding.*kernel"):
        model.transferred(patch_size=2)


@pytest.mark.parametrize(
    ("blocks", "trained"), [(None, ["head"]), (1, ["encoder_1", "head", "norm"])]
)
def test_frozen_parts_stay_as_they_are_also_after_reload(blocks, trained, tmp_path):
    model = built()
    model.freeze(blocks)
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        parts = {weight.path.split("/")[1] for weight in each.trainable_weights}
        assert sorted(parts) == trained
    before = {weight.path: to_numpy(weight) for weight in model.weights}
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IMAGES, np.array([1, 2]), verbose=0)
    for weight in model.weights:
        changed = not np.array_equal(before[weight.path], to_numpy(weight))
        assert not changed or weight.path.split("/")[1] in trained


def test_outputs_of_every_block_can_be_had():
    model = built()
    outputs = model.encode(IMAGES, return_blocks=True)
    assert [tuple(output.shape) for output in outputs] == [(2, 7, 20)] * 2
    assert_close(outputs[-1], model.encode(IMAGES), 0)


def test_stochastic_depth_grows_along_a_line():
    model = make(num_layers=5, drop_path=0.2)
    rates = [block.drop_path for block in model.encoder_blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])


@pytest.mark.slow
def test_a_batch_is_learned_by_heart():
    model = built(drop_path=0.1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(AdamW(3e-3), loss, metrics=["accuracy"], jit_compile=True)
    images, labels = RNG.normal(size=(7, 8, 12, 3)).astype("float32"), np.arange(7)
    history = model.fit(images, labels, batch_size=7, epochs=40, verbose=0).history
    assert history["accuracy"][-1] == 1


def test_without_positions_the_order_of_patches_would_not_matter():
    model = built(pooling="mean")
    table = model.embedding.position_embedding.table
    swapped = np.concatenate([IMAGES[:, 4:], IMAGES[:, :4]], axis=1)
    assert np.abs(to_numpy(model(swapped)) - to_numpy(model(IMAGES))).max() > 1e-5
    table.assign(np.zeros(table.shape))
    assert_close(model(swapped), model(IMAGES), 1e-5)


def test_errors_say_what_was_expected_and_what_was_received():
    with pytest.raises(ValueError, match="`patch_size`=4.*Received: \\(10, 12\\)"):
        make(image_size=(10, 12))
    with pytest.raises(ValueError, match="multiples of `patch_size`=4.*Received: \\(3, 12\\)"):
        built()(IMAGES[:, :3])
    with pytest.raises(ValueError, match="`images` must have 3 channels.*12, 1\\)"):
        built()(IMAGES[..., :1])
    with pytest.raises(ValueError, match="`num_heads` must divide `hidden_dim`=20.*num_heads=3"):
        make(num_heads=3)
    with pytest.raises(ValueError, match="`pooling` must be one of token, mean.*'max'"):
        make(pooling="max")
    with pytest.raises(ValueError, match="`num_layers` must be a positive integer.*0"):
        make(num_layers=0)
    with pytest.raises(ValueError, match="`name` must be one of mini, Ti.*'Ti16'"):
        ViT.from_variant("Ti16")
    with pytest.raises(ValueError, match="needs a class token"):
        make(class_token=False)
    with pytest.raises(ValueError, match="`blocks` must be None or between 0 and 2.*3"):
        built().freeze(3)
    with pytest.raises(ValueError, match="`images` must have shape.*\\(2, 8, 12\\)"):
        make().build((2, 8, 12))
