"""Claims about padding: whatever stands there, NaN and infinity too, it changes nothing."""

import inspect

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import CrossAttention, MultiHeadAttention
from keras_transformers.layers.masks import hide_padding
from tests.contract import assert_close, gradients, to_numpy
from tests.every_layer import CONTEXT, EVERY, HEADS, LENGTH, TOKENS

CONTENTS = {"nan": np.nan, "infinity": np.inf, "the largest": np.finfo("float32").max}
MIXERS = pytest.mark.parametrize("name", [name for name, case in EVERY.items() if case.mixes])
REAL = np.arange(LENGTH) < np.array([[6], [4], [1]])
REAL_CONTEXT = np.arange(CONTEXT.shape[1]) < np.array([[3], [5], [1]])


def padded(x, real, content):
    return np.where(real[..., None], x, np.float32(content))


class Padded(keras.layers.Layer):
    """A layer with the masks of its inputs; the gradient of what it gives is that of real rows."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        known = inspect.signature(layer.call).parameters
        self.masks = {
            name: real
            for name, real in (
                ("padding_mask" if "padding_mask" in known else "mask", REAL),
                ("context_mask", REAL_CONTEXT),
            )
            if name in known
        }

    def inputs(self, case, content):
        """The inputs of the case, with that at padding."""
        real = [REAL] if "context_mask" not in self.masks else [REAL, REAL_CONTEXT]
        if "context_mask" in self.masks and len(self.masks) == 1:
            real = [np.ones_like(REAL), REAL_CONTEXT]  # the queries' own padding is not its affair
        return [padded(x, mask, content) for x, mask in zip(case.inputs, real, strict=True)]

    def build(self, *shapes):
        self.layer.build(*shapes)

    def call(self, *inputs):
        masks = {name: ops.convert_to_tensor(mask) for name, mask in self.masks.items()}
        y = self.layer(*inputs, **masks)
        return y if len(y.shape) == 2 else hide_padding(y, ops.convert_to_tensor(REAL))


@MIXERS
def test_what_stands_at_padding_changes_no_output_and_no_gradient(name):
    case = EVERY[name]
    layer = Padded(case.make())
    layer.build(*(x.shape for x in case.inputs))
    expected = to_numpy(layer(*layer.inputs(case, 0.0)))
    assert np.isfinite(expected).all()
    for content in CONTENTS.values():
        assert_close(layer(*layer.inputs(case, content)), expected, 0)
    with_zeros, with_nan = (gradients(layer, layer.inputs(case, c)) for c in (0.0, np.nan))
    for one, other in zip(with_nan, with_zeros, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("axes", ["batch", "heads", "queries"])
def test_keys_that_an_attention_mask_hides_from_all_queries_change_nothing(axes, content):
    """One that it hides from some queries only must be finite: a weight of 0 times NaN is NaN."""
    mask = {"batch": REAL_CONTEXT[:, None], "heads": REAL_CONTEXT[:, None, None]}.get(axes)
    real = REAL_CONTEXT if mask is not None else REAL_CONTEXT[:1]
    mask = real if mask is None else mask  # of one query: for all
    context = padded(CONTEXT, real, CONTENTS[content])
    for layer in (CrossAttention(HEADS), MultiHeadAttention(HEADS, num_key_value_heads=1)):
        layer.build(TOKENS.shape, CONTEXT.shape)
        expected = layer(TOKENS, padded(CONTEXT, real, 0), attention_mask=mask)
        assert_close(layer(TOKENS, context, attention_mask=mask), expected, 0)


def test_a_context_is_projected_without_what_stands_at_its_padding():
    layer, x = CrossAttention(HEADS), ops.convert_to_tensor(TOKENS)
    layer.build(TOKENS.shape, CONTEXT.shape)
    mask = ops.convert_to_tensor(REAL_CONTEXT)
    expected = layer(x, padded(CONTEXT, REAL_CONTEXT, 0), context_mask=mask)
    context = ops.convert_to_tensor(padded(CONTEXT, REAL_CONTEXT, np.nan))
    cache = layer.project_context(context, mask)
    assert_close(layer.step(x, cache, mask)[0], expected, 1e-5)
