"""Blocks of random weights, and inputs for them."""

import numpy as np
import pytest

from keras_transformers.layers import DecoderBlock, EncoderBlock

BATCH, LENGTH, CONTEXT_LENGTH, HEADS, WIDTH, HIDDEN, CONTEXT_WIDTH = 3, 5, 7, 2, 22, 13, 17
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
CONTEXT = RNG.normal(size=(BATCH, CONTEXT_LENGTH, CONTEXT_WIDTH)).astype("float32")
POSITIONS = RNG.normal(size=X.shape).astype("float32")
CONTEXT_POSITIONS = RNG.normal(size=CONTEXT.shape).astype("float32")
CONTEXT_MASK = np.arange(CONTEXT_LENGTH) < np.array([[7], [4], [1]])
NORM_FIRST = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def make(block_class, *shapes, **settings):
    """A built block whose weights, biases and norms included, are all random."""
    settings = {"num_heads": HEADS, "mlp_dim": HIDDEN, **settings}
    block, rng = block_class(**settings), np.random.default_rng(0)
    block.build(*shapes)
    block.set_weights([rng.normal(size=weight.shape) / 3 for weight in block.get_weights()])
    return block


def encoder(**settings):
    return make(EncoderBlock, X.shape, **settings)


def decoder(**settings):
    return make(DecoderBlock, X.shape, CONTEXT.shape, **settings)
