"""Claims about a Transformer of T5's parts: it is the T5 of transformers.

Version 1.1 (Raffel et al. 2020, https://arxiv.org/abs/1910.10683), whose blocks
`tests/layers/test_t5_block.py` has: embeddings that are not scaled, one bias of relative positions
for all blocks of a stack, and a norm behind each stack.
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
    RelativePositionBias,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformers.models import Transformer
from tests.contract import assert_close
from tests.layers import test_t5_block as blocks

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")

VOCAB, LAYERS, DECODER_LAYERS, BATCH = 31, 2, 3, 3
RNG = np.random.default_rng(0)
SOURCE, TARGET = (RNG.integers(1, VOCAB, (BATCH, length)) for length in (11, 7))
SOURCE[1, 4:] = 0


def theirs():
    config = hf.T5Config(
        vocab_size=VOCAB, d_model=blocks.WIDTH, d_kv=blocks.KEY_DIM, d_ff=blocks.HIDDEN,
        num_layers=LAYERS, num_decoder_layers=DECODER_LAYERS, num_heads=blocks.HEADS,
        relative_attention_num_buckets=blocks.BUCKETS, dropout_rate=0.0,
        relative_attention_max_distance=blocks.MAX_DISTANCE, layer_norm_epsilon=blocks.EPSILON,
        feed_forward_proj="gated-gelu", use_cache=False,
    )  # fmt: skip
    model = hf.T5Model(config).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def ours(source):
    sizes = (blocks.BUCKETS, blocks.MAX_DISTANCE)
    across = {"cross_attention": CrossAttention}
    model = Transformer(
        num_layers=(LAYERS, DECODER_LAYERS),
        embedding=TokenEmbedding(VOCAB, blocks.WIDTH, scale=False),
        positions=(RelativePositionBias(*sizes), RelativePositionBias(*sizes, bidirectional=False)),
        encoder_block=EncoderBlock(**blocks.parts(SelfAttention)),
        decoder_block=DecoderBlock(**blocks.parts(CausalSelfAttention, **across)),
    )
    model.build({"source": (None, None), "target": (None, None)})
    model.source_embedding.table.assign(source.shared.weight.detach().numpy())
    names = ("mixer", "feed_forward"), ("mixer", "cross_attention", "feed_forward")
    for side, parts in zip(("encoder", "decoder"), names, strict=True):
        stack = getattr(source, side)
        first = stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        term = model.source_positions if side == "encoder" else model.target_positions
        term.table.assign(first.detach().numpy())
        getattr(model, f"{side}_norm").scale.assign(stack.final_layer_norm.weight.detach().numpy())
        for block, each in zip(getattr(model, f"{side}_blocks"), stack.block, strict=True):
            blocks.copy_weights(block, each, parts)
    return model


def test_logits_are_those_of_t5_whole_and_token_by_token():
    source = theirs()
    model = ours(source)
    with torch.no_grad():
        hidden = source(
            input_ids=torch.tensor(SOURCE),
            attention_mask=torch.tensor(SOURCE != 0),
            decoder_input_ids=torch.tensor(TARGET),
        ).last_hidden_state
        expected = (hidden @ source.shared.weight.T).numpy()
    scale = np.abs(expected).max()
    logits = keras.ops.convert_to_numpy(model({"source": SOURCE, "target": TARGET}))
    assert_close(logits / scale, expected / scale, 1e-5)
    ids = ops.convert_to_tensor(SOURCE.astype("int32"))
    state, shared = model.start_decoding(ids, 1, max_length=TARGET.shape[1])
    for index in range(TARGET.shape[1]):
        token = ops.convert_to_tensor(TARGET[:, index : index + 1].astype("int32"))
        step, state = model.decode_step(token, index, state, shared)
        step = keras.ops.convert_to_numpy(step)[:, 0]
        assert_close(step / scale, expected[:, index] / scale, 1e-5)
