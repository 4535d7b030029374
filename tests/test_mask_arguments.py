"""Claims about masks as arguments: which are taken, in every layer and model that takes one."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers import models
from keras_transformers.layers import (
    CausalSelfAttention,
    EncoderBlock,
    SelfAttention,
    combine_masks,
    masked_softmax,
)
from tests.contract import assert_close, call
from tests.every_layer import CONTEXT, EVERY, HEADS, LENGTH, TOKENS

BATCH, WIDTH = len(TOKENS), TOKENS.shape[2]
REAL = np.arange(LENGTH) < np.array([[6], [4], [1]])
REAL_CONTEXT = np.arange(CONTEXT.shape[1]) < np.array([[3], [5], [1]])
PAIRS = np.random.default_rng(0).random((BATCH, LENGTH, LENGTH)) < 0.7
OF_WINDOWS = {"WindowAttention": np.ones((5, 6, 6), bool), "FourierMixing": None}
PADDING = ("padding_mask", "mask", "context_mask", "value_mask", "key_mask", "query_mask", "x_mask")


def masks_of(name):
    """The masks that a layer takes, each alone, by name."""
    case = EVERY[name]
    across = len(case.inputs) > 1
    for argument in inspect.signature(case.make().call).parameters:
        if argument == "attention_mask" and name not in OF_WINDOWS:
            keys = CONTEXT.shape[1] if across and "Cross" in name else LENGTH
            yield argument, PAIRS[..., :keys]
        elif argument in PADDING and name not in OF_WINDOWS:
            yield argument, REAL_CONTEXT if argument == "context_mask" else REAL


MASKED = pytest.mark.parametrize(
    "name", [name for name, case in EVERY.items() if any(masks_of(name)) and case.mixes]
)


@MASKED
def test_numbers_0_and_1_are_taken_and_others_are_refused(name):
    case, layer = EVERY[name], EVERY[name].make()
    layer.build(*(x.shape for x in case.inputs))
    for argument, mask in masks_of(name):
        expected = call(layer, case.inputs, {argument: ops.convert_to_tensor(mask)})
        for taken in (mask.astype("float32"), mask.astype("int32"), mask.tolist()):
            assert_close(call(layer, case.inputs, {argument: taken}), expected, 0)
        for wrong in (np.where(mask, 0, -1e9), np.where(mask, 0, -np.inf), 2 * mask):
            with pytest.raises(ValueError, match=f"`{argument}` must be bool, or of 0 and 1"):
                call(layer, case.inputs, {argument: wrong.astype("float32")})


class Traced(keras.layers.Layer):
    """Calls a layer while a graph is traced, which Keras does for what says no shape."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs):
        return self.layer(*inputs["inputs"], **inputs["masks"])


@MASKED
def test_in_a_graph_floats_are_refused_and_integers_are_taken(name):
    case = EVERY[name]
    symbols = [keras.Input(x.shape[1:]) for x in case.inputs]
    for argument, mask in masks_of(name):
        floats, integers = (keras.Input(mask.shape[1:], dtype=d) for d in ("float32", "int32"))
        with pytest.raises(ValueError, match=f"`{argument}` must be bool or of integers where"):
            Traced(case.make())({"inputs": symbols, "masks": {argument: floats}})
        Traced(case.make())({"inputs": symbols, "masks": {argument: integers}})


@MASKED
def test_a_padding_mask_that_does_not_fit_is_refused_by_its_name(name):
    case, layer = EVERY[name], EVERY[name].make()
    layer.build(*(x.shape for x in case.inputs))
    for argument, mask in masks_of(name):
        if argument in PADDING:
            wrong = np.ones((BATCH, mask.shape[1] + 1), bool)
            message = rf"`{argument}` must be of shape \(batch, length\), .*Received: shape"
            with pytest.raises(ValueError, match=message):
                call(layer, case.inputs, {argument: wrong})


@pytest.mark.parametrize("argument", ["attention_mask", "attention_bias"])
@pytest.mark.parametrize("make", [SelfAttention, CausalSelfAttention])
def test_two_axes_that_may_be_batch_and_keys_are_refused(make, argument):
    """Both readings run where the batch is as long as the sequence, and one of them is wrong."""
    layer, square = make(HEADS), TOKENS[:, :BATCH]
    mask = np.tril(np.ones((BATCH, BATCH), "float32"))
    kind = "bool" if argument == "attention_mask" else "float32"
    message = rf"`{argument}` must be of three axes where two could be .*\(3, 3\), batch 3"
    with pytest.raises(ValueError, match=message):
        layer(square, **{argument: mask.astype(kind)})
    for fixed in (mask[None], mask[:, None], mask[:1]):
        layer(square, **{argument: fixed.astype(kind)})
    pairs = np.tril(np.ones((BATCH, BATCH), kind))
    two = layer(square[:2], **{argument: pairs})  # cannot be meant otherwise
    assert_close(two, layer(square[:2], **{argument: pairs[None]}), 0)


@pytest.mark.parametrize("length", [LENGTH, None])
def test_a_functional_model_refuses_a_padding_mask_as_attention_mask(length):
    x, mask = keras.Input((length, WIDTH)), keras.Input((length,), dtype="bool")
    for layer in (SelfAttention(HEADS), EncoderBlock(HEADS, 13)):
        # JAX traces with sizes of its own for those unknown, which then do not fit.
        with pytest.raises(ValueError, match="`attention_mask` must be of (three axes|shape)"):
            layer(x, attention_mask=mask)
        layer(x, attention_mask=mask[:, None])
    constant = np.tril(np.ones((LENGTH, LENGTH), bool))
    if length is not None:
        SelfAttention(HEADS)(x, attention_mask=constant)


def test_a_padding_mask_of_another_length_says_where_its_query_axis_belongs():
    with pytest.raises(ValueError, match=r"`attention_mask` .* left out: `mask\[:, None\]`"):
        SelfAttention(HEADS)(TOKENS, attention_mask=REAL)


def test_functions_of_masks_refuse_what_is_added_to_scores():
    added = np.where(REAL, 0, -1e9).astype("float32")
    with pytest.raises(ValueError, match="combine_masks: each mask must be bool, or of 0 and 1"):
        combine_masks(REAL, added)
    with pytest.raises(ValueError, match="masked_softmax: `mask` must be bool"):
        masked_softmax(np.zeros_like(added), added)


def test_a_model_refuses_such_a_mask_of_pixels_and_nothing_at_padding_matters():
    backbone = models.ResNet(
        None, hidden_dim=4, num_layers=(1,), bottleneck=False, norm="batch", name="backbone"
    )
    model = models.DETR(2, backbone, hidden_dim=8, num_heads=2, mlp_dim=11, num_layers=1, queries=3)
    images = np.random.default_rng(0).normal(size=(1, 16, 24, 3)).astype("float32")
    mask = np.ones((1, 16, 24), bool)
    mask[:, :, 16:] = False
    expected = model({"images": images * mask[..., None], "padding_mask": mask})
    images[:, :, 16:] = np.nan
    assert_close(model({"images": images, "padding_mask": mask}), expected, 0)
    with pytest.raises(ValueError, match="DETR 'detr.*': `padding_mask` must be bool, or of 0 and"):
        model({"images": images, "padding_mask": np.where(mask, 0, -1e9).astype("float32")})
