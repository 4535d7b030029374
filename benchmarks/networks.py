"""One translation network, written with each library's own layers, with the same weights in all.

Post-norm Transformer of Vaswani et al. 2017 with one table for source, target and output. Dropout
stands on embeddings and branches; KerasHub's layers put it on the attention weights too.
"""

import math
import re

import numpy as np

from benchmarks.marian import set_epsilon

SIZES = {"hidden_dim": 256, "num_heads": 4, "mlp_dim": 1024, "num_layers": 3}
VOCAB, BATCH, LENGTH, DROPOUT, EPSILON = 8000, 64, 32, 0.1, 1e-5

# Their names for our parts.
KERAS_HUB = (
    (r"self_attention(_layer)?_norm", "mixer_norm"),
    (r"self_attention(_layer)?/", "mixer/"),
    (r"(cross_attention)_layer_norm", r"\1_norm"),
    (r"feedforward_layer_norm", "feed_forward_norm"),
    (r"feedforward_intermediate_dense", "feed_forward/hidden"),
    (r"feedforward_output_dense", "feed_forward/output"),
)


def batch(seed=0):
    """Random ids without padding: the decoder's input is the labels, moved by one."""
    rng = np.random.default_rng(seed)
    source, labels = rng.integers(3, VOCAB, (2, BATCH, LENGTH)).astype("int32")
    target = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    return {"source": source, "target": target}, labels


def ours():
    from keras_transformers.models import Transformer

    model = Transformer(VOCAB, dropout=DROPOUT, **SIZES)
    model.build({"source": (None, None), "target": (None, None)})
    set_epsilon(model, EPSILON)
    return model


def plain_keras():
    """Keras's own layers and nothing else, as one would write it by hand."""
    from benchmarks.plain_keras import network

    return network()


def keras_hub():
    import keras
    import keras_hub

    width = SIZES["hidden_dim"]
    block = {"dropout": DROPOUT, "layer_norm_epsilon": EPSILON, "activation": "relu"}
    block.update(intermediate_dim=SIZES["mlp_dim"], num_heads=SIZES["num_heads"])
    source = keras.Input((LENGTH,), dtype="int32", name="source")
    target = keras.Input((LENGTH,), dtype="int32", name="target")
    embedding = keras.layers.ReversibleEmbedding(VOCAB, width, name="source_embedding")
    positions = keras_hub.layers.SinePositionEncoding()
    dropout = keras.layers.Dropout(DROPOUT)

    def embed(ids):
        x = embedding(ids) * math.sqrt(width)
        return dropout(x + positions(x))

    x, y = embed(source), embed(target)
    for i in range(SIZES["num_layers"]):
        encoder = keras_hub.layers.TransformerEncoder(**block, name=f"encoder_{i}")
        x = encoder(x, padding_mask=source != 0)
    for i in range(SIZES["num_layers"]):
        decoder = keras_hub.layers.TransformerDecoder(**block, name=f"decoder_{i}")
        y = decoder(y, x, encoder_padding_mask=source != 0)
    return keras.Model({"source": source, "target": target}, embedding(y, reverse=True))


def our_name(path):
    """What the same weight is called in our model."""
    path = re.sub(r"^(transformer|functional)(_\d+)?/", "", path)
    path = path.replace("__", "/").replace("_norm/norm/", "_norm/")
    path = path.replace("source_embedding/embeddings", "source_embedding/token_embedding")
    for theirs, mine in KERAS_HUB:
        path = re.sub(theirs, mine, path)
    return path


def load(model, weights):
    """Gives a Keras model these weights, a dict of our names."""
    loaded = {our_name(weight.path): weight for weight in model.trainable_weights}
    assert loaded.keys() == weights.keys(), sorted(loaded.keys() ^ weights.keys())[:6]
    for name, weight in loaded.items():
        weight.assign(weights[name])
