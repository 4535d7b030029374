"""Swin, PVT and MViT against published implementations with the same weights."""

import json
import pathlib

import numpy as np
import pytest

from keras_transformers.models import PVT, MViT, Swin
from tests.contract import ON_JAX, assert_close
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

GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "pyramids.npz")


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
