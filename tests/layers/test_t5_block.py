"""Claims about blocks that are made of parts: with T5's, they are T5's blocks.

T5 has norms without bias and mean, a gated feed-forward network, attention without biases and
scaling whose heads are of a width of their own, and one bias of relative positions that all blocks
of a stack share (Raffel et al. 2020, https://arxiv.org/abs/1910.10683, version 1.1).
"""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers.layers import (
    CausalSelfAttention,
    CrossAttention,
    DecoderBlock,
    EncoderBlock,
    GatedFeedForward,
    RelativePositionBias,
    SelfAttention,
    gelu_tanh,
)
from tests.contract import assert_close, to_numpy

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
t5 = pytest.importorskip("transformers.models.t5.modeling_t5")

BATCH, LENGTH, CONTEXT_LENGTH, WIDTH, HEADS, KEY_DIM, HIDDEN, BLOCKS = 3, 11, 7, 22, 2, 5, 13, 2
BUCKETS, MAX_DISTANCE, EPSILON = 8, 6, 1e-6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
CONTEXT = RNG.normal(size=(BATCH, CONTEXT_LENGTH, WIDTH)).astype("float32")
REAL = np.arange(LENGTH) < np.array([[11], [4], [1]])
REAL_CONTEXT = np.arange(CONTEXT_LENGTH) < np.array([[7], [3], [1]])


def theirs(is_decoder):
    """Blocks of transformers, of which the first has the bias, with random weights."""
    config = hf.T5Config(
        d_model=WIDTH, d_kv=KEY_DIM, d_ff=HIDDEN, num_heads=HEADS, dropout_rate=0.0,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=MAX_DISTANCE,
        layer_norm_epsilon=EPSILON, feed_forward_proj="gated-gelu", is_decoder=is_decoder,
        use_cache=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    blocks = [t5.T5Block(config, has_relative_attention_bias=i == 0).eval() for i in range(BLOCKS)]
    for block in blocks:
        for weight in block.parameters():
            torch.nn.init.normal_(weight, std=0.3)
    return blocks


def parts(attention, **more):
    """T5's parts, which one dict hands to every block of a stack."""
    heads = {"key_dim": KEY_DIM, "use_bias": False, "score": "dot"}
    return {
        "mixer": attention(HEADS, **heads),
        **{name: kind(HEADS, **heads) for name, kind in more.items()},
        "feed_forward": GatedFeedForward(HIDDEN, gelu_tanh, use_bias=False),
        "norm": keras.layers.RMSNormalization(epsilon=EPSILON),
        "norm_first": True,
    }


def copy_weights(block, source, names):
    """Gives a block of ours the weights of one of theirs; `names` are those of our branches."""
    state = {name: weight.detach().numpy() for name, weight in source.named_parameters()}
    found = {}
    for i, name in enumerate(names):
        found[f"{name}_norm/scale"] = state[f"layer.{i}.layer_norm.weight"]
        if name == "feed_forward":
            for ours, other in (("gate", "wi_0"), ("hidden", "wi_1"), ("output", "wo")):
                kernel = state[f"layer.{i}.DenseReluDense.{other}.weight"].T
                found[f"{name}/{ours}/kernel"] = kernel
            continue
        kind = "SelfAttention" if name == "mixer" else "EncDecAttention"
        for ours, other in (("query", "q"), ("key", "k"), ("value", "v")):
            kernel = state[f"layer.{i}.{kind}.{other}.weight"].T
            found[f"{name}/{ours}/kernel"] = kernel.reshape(WIDTH, HEADS, KEY_DIM)
        kernel = state[f"layer.{i}.{kind}.o.weight"].T
        found[f"{name}/attention_output/kernel"] = kernel.reshape(HEADS, KEY_DIM, WIDTH)
    ours = {weight.path.split(f"{block.name}/", 1)[1]: weight for weight in block.weights}
    assert ours.keys() == found.keys()
    for path, weight in ours.items():
        weight.assign(found[path])


def shared_bias(source, bidirectional):
    """The one bias of a stack, `(1, heads, length, length)`, from the first of their blocks."""
    term = RelativePositionBias(BUCKETS, MAX_DISTANCE, bidirectional)
    term.build((None, HEADS, None, KEY_DIM))
    term.table.assign(source.layer[0].SelfAttention.relative_attention_bias.weight.detach().numpy())
    positions = ops.arange(LENGTH, dtype="int32")
    return term.bias(None, positions, positions)[None]


def added(mask):
    """A bool mask `(batch, queries, keys)` as transformers adds it to scores."""
    return torch.tensor(np.where(mask[:, None], 0, np.finfo("float32").min).astype("float32"))


def test_two_encoder_blocks_of_its_parts_and_a_shared_bias_are_those_of_t5():
    blocks = [EncoderBlock(**parts(SelfAttention)) for _ in range(BLOCKS)]
    sources = theirs(is_decoder=False)
    bias = shared_bias(sources[0], bidirectional=True)
    x, expected, their_bias = X, torch.tensor(X), None
    for block, source in zip(blocks, sources, strict=True):
        block.build(X.shape)
        copy_weights(block, source, ("mixer", "feed_forward"))
        x = block(x, padding_mask=REAL, attention_bias=bias)
        with torch.no_grad():
            expected, their_bias, *_ = source(
                expected, attention_mask=added(REAL[:, None]), position_bias=their_bias
            )
    assert_close(to_numpy(x)[REAL], expected.numpy()[REAL], 1e-5)


def test_two_decoder_blocks_of_its_parts_and_a_shared_bias_are_those_of_t5():
    across = {"cross_attention": CrossAttention}
    blocks = [DecoderBlock(**parts(CausalSelfAttention, **across)) for _ in range(BLOCKS)]
    sources = theirs(is_decoder=True)
    bias = shared_bias(sources[0], bidirectional=False)
    causal = np.tril(np.ones((1, LENGTH, LENGTH), bool))
    x, expected, their_bias = X, torch.tensor(X), None
    for block, source in zip(blocks, sources, strict=True):
        block.build(X.shape, CONTEXT.shape)
        copy_weights(block, source, ("mixer", "cross_attention", "feed_forward"))
        x = block(x, CONTEXT, context_mask=REAL_CONTEXT, attention_bias=bias)
        with torch.no_grad():
            expected, their_bias, *_ = source(
                expected,
                attention_mask=added(causal),
                position_bias=their_bias,
                encoder_hidden_states=torch.tensor(CONTEXT),
                encoder_attention_mask=added(REAL_CONTEXT[:, None]),
            )
    assert_close(x, expected.numpy(), 1e-5)
