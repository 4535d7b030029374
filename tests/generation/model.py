"""Small random models, and what one gives without a cache."""

import functools

import keras
import numpy as np
from keras import ops

from keras_transformers.generation import BeamSearch
from keras_transformers.layers import DecoderBlock, PositionalEncoding, TokenEmbedding
from keras_transformers.layers.attention.cached import visible_slots
from keras_transformers.models import Transformer
from keras_transformers.training.checkpoints import in_order_of_0_2_0
from tests.contract import compiled, to_numpy

VOCAB, BATCH, START, END, LENGTH = 13, 3, 1, 2, 7
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (BATCH, 5)).astype("int32")
SOURCE[1, 3:] = 0
PROMPT = np.array([[4, 9], [7, 0], [0, 0]])
BEAM = BeamSearch(3, length_penalty=0.6, n_best=3)


def make(norm_first=True, seed=38):
    """A random model, with weights so large that what it chooses depends on what it reads."""
    sizes = {"hidden_dim": 22, "num_heads": 2, "mlp_dim": 17, "num_layers": 2}
    model = Transformer.from_variant("base", VOCAB, **sizes, norm_first=norm_first)
    model.build({"source": (None, None), "target": (None, None)})
    rng = np.random.default_rng(seed)

    def value(weight):
        noise = rng.normal(size=weight.shape)
        if weight.path.endswith(("beta", "bias", "gamma")):
            return noise / 10 + weight.path.endswith("gamma")
        return noise * (0.4 if weight.path.endswith("embedding") else 0.6)

    for weight in in_order_of_0_2_0(model, model.weights):  # the seeds are of that order
        weight.assign(value(weight))
    return model


@functools.cache
def shared_model(norm_first=True):
    """One model for the tests that leave it as it is, so that each search compiles once."""
    return make(norm_first, seed=38 if norm_first else 30)  # seeds whose outputs are not dull


@functools.cache
def whole_pass(norm_first=True):
    """Log-probabilities of all next tokens, by one pass over the whole target: no cache."""
    model = compiled(shared_model(norm_first))

    def log_probabilities(source, tokens):
        tokens = np.asarray(tokens)
        target = np.pad(tokens[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        inputs = {"source": source, "target": target.astype("int32")}
        logits = model(keras.tree.map_structure(ops.convert_to_tensor, inputs))
        return to_numpy(ops.log_softmax(logits, axis=-1))

    return log_probabilities


def score(log_probabilities, tokens):
    """Log-probability of each row of `tokens` up to END."""
    chosen = np.take_along_axis(log_probabilities, tokens[..., None], axis=-1)[..., 0]
    return np.sum(np.where(tokens != 0, chosen, 0), axis=-1)


class Decoder(keras.Model):
    """A decoder-only model with one block, as small as its interface allows."""

    def __init__(self):
        super().__init__()
        self.embedding = TokenEmbedding(VOCAB, 22)
        self.positions = PositionalEncoding()
        self.block = DecoderBlock(2, 17, norm_first=True)

    def call(self, ids):
        return self.embedding.logits(self.block(self.positions(self.embedding(ids))))

    def start_decoding(self, source, beams, max_length):
        return self.block.start_cache(ops.shape(source)[0], beams, max_length), None

    def decode_step(self, ids, index, state, shared, back_pointers):
        x = self.embedding(ids)
        x = self.positions(x, positions=ops.broadcast_to(index, ops.shape(ids)))
        slots = None if back_pointers is None else back_pointers.slots
        visible = visible_slots(index, state, ids.shape[1], slots)
        x, cache, _ = self.block.step(x, state, index, visible)
        return self.embedding.logits(x), cache
