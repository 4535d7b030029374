"""Claims that the detection Transformer is the published one."""

import functools
import json
import pathlib

import numpy as np
import pytest

from keras_transformers.models import DETR, ResNet
from tests.contract import assert_close, number_of_parameters
from tests.models.small_detr import function
from tests.published import assign, attention, dense, norm, random_images, random_weights, under

GOLDEN = np.load(pathlib.Path(__file__).parent.parent / "golden" / "detr.npz")


def from_huggingface(weights, heads=3):
    """Their weights by our paths."""

    def convolution(name):
        kernel = weights[f"{name}.convolution.weight"].transpose(2, 3, 1, 0)
        theirs = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}
        theirs["moving_variance"] = "running_var"
        parts = {k: weights[f"{name}.normalization.{v}"] for k, v in theirs.items()}
        return {"convolution/kernel": kernel, **under("norm", parts)}

    def block(name, parts):
        table = {
            **under("feed_forward/hidden", dense(weights, f"{name}.mlp.fc1")),
            **under("feed_forward/output", dense(weights, f"{name}.mlp.fc2")),
            **under("feed_forward_norm", norm(weights, f"{name}.final_layer_norm")),
        }
        for theirs, ours in parts.items():
            projections = [dense(weights, f"{name}.{theirs}.{part}_proj") for part in "qkvo"]
            table |= under(ours, attention(*projections, heads))
            table |= under(f"{ours}_norm", norm(weights, f"{name}.{theirs}_layer_norm"))
        return table

    start = "model.backbone.model"
    table = under("backbone/stem_0", convolution(f"{start}.embedder.embedder"))
    for stage, layer in ((0, 0), (1, 0), (1, 1), (2, 0), (3, 0)):
        theirs = f"{start}.encoder.stages.{stage}.layers.{layer}"
        ours = f"backbone/stage_{stage}_block_{layer}"
        for i in range(3):
            table |= under(f"{ours}/convolution_{i}", convolution(f"{theirs}.layer.{i}"))
        if layer == 0:
            table |= under(f"{ours}/short_cut", convolution(f"{theirs}.shortcut"))
    projection = "model.input_projection"
    table["input_projection/kernel"] = weights[f"{projection}.weight"][:, :, 0, 0].T
    table["input_projection/bias"] = weights[f"{projection}.bias"]
    across = {"self_attn": "mixer", "encoder_attn": "cross_attention"}
    for i in range(2):
        name = f"model.encoder.layers.{i}"
        table |= under(f"encoder_{i}", block(name, {"self_attn": "mixer"}))
        table |= under(f"decoder_{i}", block(f"model.decoder.layers.{i}", across))
    table |= under("decoder_norm", norm(weights, "model.decoder.layernorm"))
    table["queries/embedding"] = weights["model.query_position_embeddings.weight"]
    table |= under("heads/class_head", dense(weights, "class_labels_classifier"))
    for i, name in enumerate(("hidden_0", "hidden_1", "output")):
        table |= under(f"heads/box_head/{name}", dense(weights, f"bbox_predictor.layers.{i}"))
    return table


@functools.cache
def published():
    """Our model with their weights."""
    backbone = ResNet(None, hidden_dim=4, num_layers=(1, 2, 1, 1), norm="frozen", name="backbone")
    model = DETR(5, backbone, hidden_dim=24, num_heads=3, mlp_dim=20, num_layers=2, queries=7)
    model.build((None, None, None, 3))
    weights = random_weights(json.loads(str(GOLDEN["shapes"])))
    for key in weights:  # as make_detr has it
        sharper = ("q_proj.weight", "k_proj.weight", "query_position_embeddings.weight")
        weights[key] *= 3 if key.endswith(sharper) else 1
    assign(model, from_huggingface(weights))
    mask = np.zeros((3, 96, 160), bool)
    for one, (height, width) in zip(mask, GOLDEN["sizes"], strict=True):
        one[:height, :width] = True
    return model, 5 * random_images((96, 160), 3) * mask[..., None], mask


def test_classes_boxes_and_losses_of_all_layers_are_those_of_transformers():
    model, images, mask = published()
    found = function(model)({"images": images, "padding_mask": mask})
    for name in ("logits", "boxes", "auxiliary_logits", "auxiliary_boxes"):
        assert_close(found[name], GOLDEN[name], 1e-4)
    targets = {"labels": GOLDEN["labels"], "boxes": GOLDEN["true_boxes"]}
    assert_close(model.compute_loss(y=targets, y_pred=found), GOLDEN["loss"], 1e-4)


def test_without_a_mask_they_are_those_of_transformers_too():
    model, images, _ = published()
    found = function(model)(images)
    assert_close(found["logits"], GOLDEN["unmasked_logits"], 1e-4)
    assert_close(found["boxes"], GOLDEN["unmasked_boxes"], 1e-4)


@pytest.mark.parametrize(("name", "expected"), [("R50", 41_524_768), ("R101", 60_464_672)])
def test_the_number_of_parameters_is_the_published_one(name, expected):
    """The paper's 41 and 60 million; it does not count batch norms, which are frozen."""
    model = DETR.from_variant(name)
    number_of_parameters(model, (None, None, None, 3))
    count = {weight.path: int(np.prod(weight.shape)) for weight in model.weights}
    batch_norms = {path for path in count if "backbone" in path and "/norm/" in path}
    assert sum(count.values()) - sum(count[path] for path in batch_norms) == expected
    trained = {weight.path for weight in model.trainable_weights}
    assert trained == count.keys() - batch_norms
