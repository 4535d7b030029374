"""The network of `benchmarks.networks`, written with Keras's own layers and nothing else."""

import math

import keras
from keras import layers, ops

from benchmarks.marian import sinusoidal
from benchmarks.networks import DROPOUT, EPSILON, LENGTH, SIZES, VOCAB

WIDTH, HEADS = SIZES["hidden_dim"], SIZES["num_heads"]


class Residual(layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        self.dropout = layers.Dropout(DROPOUT)
        self.norm = layers.LayerNormalization(epsilon=EPSILON, name="norm")

    def call(self, x, branch, training=None):
        return self.norm(x + self.dropout(branch, training=training))


class Embedding(layers.Layer):
    def __init__(self):
        super().__init__(name="source_embedding")
        self.table = self.add_weight(shape=(VOCAB, WIDTH), name="token_embedding")
        self.dropout = layers.Dropout(DROPOUT)
        self.positions = sinusoidal(LENGTH, WIDTH)

    def call(self, ids, training=None):
        x = ops.take(self.table, ids, axis=0) * math.sqrt(WIDTH) + self.positions
        return self.dropout(x, training=training)

    def logits(self, x):
        return ops.matmul(x, ops.transpose(self.table))


def attend(name, x, context, **masks):
    attention = layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=name)
    return Residual(f"{name}_norm")(x, attention(x, context, **masks))


def feed_forward(name, x):
    hidden = layers.Dense(SIZES["mlp_dim"], activation="relu", name=f"{name}__feed_forward__hidden")
    output = layers.Dense(WIDTH, name=f"{name}__feed_forward__output")
    return Residual(f"{name}__feed_forward_norm")(x, output(hidden(x)))


def network():
    source = keras.Input((LENGTH,), dtype="int32", name="source")
    target = keras.Input((LENGTH,), dtype="int32", name="target")
    embedding = Embedding()
    mask = (source != 0)[:, None, :]
    x = embedding(source)
    for i in range(SIZES["num_layers"]):
        x = attend(f"encoder_{i}__mixer", x, x, attention_mask=mask)
        x = feed_forward(f"encoder_{i}", x)
    y = embedding(target)
    for i in range(SIZES["num_layers"]):
        y = attend(f"decoder_{i}__mixer", y, y, use_causal_mask=True)
        y = attend(f"decoder_{i}__cross_attention", y, x, attention_mask=mask)
        y = feed_forward(f"decoder_{i}", y)
    logits = layers.Lambda(embedding.logits, output_shape=(LENGTH, VOCAB))(y)
    return keras.Model({"source": source, "target": target}, logits)
