"""What stands in the place of `keras.layers` in Keras's own tests."""

import keras
from keras import ops

from keras_transformers.layers import DotScore, MultiHeadAttention, TokenEmbedding
from keras_transformers.layers.attention.scores import masked_softmax, product


def __getattr__(name):
    return getattr(keras.layers, name)


def renamed(make, **names):
    """`make` with the argument names of others; what it does not know it refuses."""

    def stand_in(*args, **kwargs):
        taken = dict(zip(names, args, strict=False)) | kwargs
        return make(**{names.get(name, name): value for name, value in taken.items()})

    stand_in.from_config = make.from_config
    return stand_in


GroupedQueryAttention = renamed(
    MultiHeadAttention,
    head_dim="key_dim",
    num_query_heads="num_heads",
    num_key_value_heads="num_key_value_heads",
)


def ReversibleEmbedding(input_dim, output_dim, tie_weights=True, **kwargs):
    # What asks for nothing: the table is tied, and its initialiser ours.
    kwargs.pop("embeddings_initializer", None)
    kwargs = kwargs if tie_weights else {**kwargs, "tie_weights": tie_weights}
    return TokenEmbedding(input_dim, output_dim, scale=False, **kwargs)


ReversibleEmbedding.from_config = TokenEmbedding.from_config


class Attention:
    """Attention with one head, of our functions; Keras's layer keeps lists of inputs."""

    def __init__(self, score_mode="dot", dropout=0.0):
        self.score = {"dot": DotScore}[score_mode]()
        self.dropout_layer = keras.layers.Dropout(dropout)

    def __call__(self, inputs, mask=None, return_attention_scores=False, training=None):
        query, value, key = (*map(ops.convert_to_tensor, inputs), inputs[1])[:3]
        query, key, value = (ops.expand_dims(x, 1) for x in (query, key, value))
        mask = None if mask is None else mask[1][:, None, None]
        weights = ops.cast(masked_softmax(self.score.compare(query, key), mask), query.dtype)
        output = product(self.dropout_layer(weights, training=training), value)
        output, weights = ops.squeeze(output, 1), ops.squeeze(weights, 1)
        return (output, weights) if return_attention_scores else output
