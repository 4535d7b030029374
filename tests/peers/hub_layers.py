"""What stands in the place of KerasHub's layers in its own tests."""

import keras
from keras import ops

from keras_transformers import layers
from keras_transformers.layers.masks import given_padding, given_pairs
from tests.peers.keras_layers import renamed

WORDS = {"intermediate_dim": "mlp_dim", "normalize_first": "norm_first"}


def _in_our_words(kwargs):
    """Arguments of a block, the epsilon as its norm's."""
    kwargs = {WORDS.get(name, name): value for name, value in kwargs.items()}
    if "layer_norm_epsilon" in kwargs:
        epsilon = kwargs.pop("layer_norm_epsilon")
        kwargs["norm"] = keras.layers.LayerNormalization(epsilon=epsilon)
    return kwargs


def _block(kind, attention):
    """A block, whose initialisers are its attention's: those of a network are Keras's."""

    def make(intermediate_dim, num_heads, dropout=0.0, **kwargs):
        kwargs = _in_our_words(kwargs)
        initializers = ("kernel_initializer", "bias_initializer")
        own = {name: kwargs.pop(name) for name in initializers if name in kwargs}
        mixer = attention(num_heads, dropout=dropout, **own)
        heads = num_heads if kind is layers.DecoderBlock else None  # of the attention to a context
        return kind(heads, intermediate_dim, dropout, mixer=mixer, **kwargs)

    return make


TransformerEncoder = _block(layers.EncoderBlock, layers.SelfAttention)
TransformerDecoder = _block(layers.DecoderBlock, layers.CausalSelfAttention)


def FNetEncoder(intermediate_dim, kernel_initializer=None, bias_initializer=None, **kwargs):
    keras.initializers.get(kernel_initializer)
    mixer = layers.FourierMixing()
    return layers.EncoderBlock(mlp_dim=intermediate_dim, mixer=mixer, **_in_our_words(kwargs))


CachedMultiHeadAttention = layers.MultiHeadAttention


@keras.saving.register_keras_serializable("peers")
class LearnedAlone(layers.PositionEmbedding):
    """The vectors without the input that ours are added to."""

    def call(self, x, start=0, positions=None):
        return super().call(ops.zeros_like(x), start, positions)


@keras.saving.register_keras_serializable("peers")
class SinusoidalAlone(layers.PositionalEncoding):
    """The vectors without the input that ours are added to."""

    def call(self, x, start=0, positions=None):
        return super().call(ops.zeros_like(x), start, positions)


PositionEmbedding = renamed(LearnedAlone, sequence_length="max_length")
SinePositionEncoding = SinusoidalAlone


@keras.saving.register_keras_serializable("peers")
class AlibiBias(keras.layers.Layer):
    """Scores with the bias, whose last query stands where the last key does."""

    def __init__(self, alibi_bias_max=8, **kwargs):
        super().__init__(**kwargs)
        if alibi_bias_max != 8:
            raise ValueError(f"`alibi_bias_max` must be 8. Received: {alibi_bias_max}")
        self.term = layers.ALiBi(dtype=self.dtype_policy)

    def build(self, scores_shape):
        if len(scores_shape) != 4:
            raise ValueError(f"Scores must be of rank 4. Received: {scores_shape}")
        self.term.build(scores_shape)

    def call(self, scores):
        queries, keys = scores.shape[2:]
        bias = self.term.bias(scores, ops.arange(keys - queries, keys), ops.arange(keys))
        return scores + ops.cast(bias, scores.dtype)

    def compute_output_shape(self, scores_shape):
        return scores_shape

    def get_config(self):
        return {**super().get_config(), "alibi_bias_max": 8}


@keras.saving.register_keras_serializable("peers")
class RotaryEmbedding(keras.layers.Layer):
    """Ours, on axes of one's choice."""

    def __init__(
        self, max_wavelength=10000.0, scaling_factor=1.0, sequence_axis=1, feature_axis=-1, **kwargs
    ):
        super().__init__(**kwargs)
        self.options = {"max_wavelength": max_wavelength, "scaling_factor": scaling_factor}
        self.axes = {"sequence_axis": sequence_axis, "feature_axis": feature_axis}
        self.term = layers.RotaryEmbedding(
            float(max_wavelength),
            scaling="linear",
            scaling_factor=scaling_factor,
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        self.term.build((None, None, None, x_shape[self.axes["feature_axis"]]))

    def call(self, x, start=0, positions=None):
        x = ops.moveaxis(x, tuple(self.axes.values()), (-2, -1))
        if positions is None:
            positions = ops.arange(ops.shape(x)[-2]) + start
        x = self.term.transform(x, positions)
        return ops.moveaxis(x, (-2, -1), tuple(self.axes.values()))

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), **self.options, **self.axes}


class utils:
    """The functions of masks, as our layers make and check them."""

    @staticmethod
    def compute_causal_mask(batch_size, input_length, output_length, cache_index=0):
        mask = layers.causal_mask(output_length, input_length, cache_index)
        return ops.broadcast_to(mask, (batch_size, output_length, input_length))

    @staticmethod
    def merge_padding_and_attention_mask(inputs, padding_mask, attention_mask):
        layer, (batch, length, _) = layers.SelfAttention(1), inputs.shape
        padding = given_padding(layer, inputs, mask=padding_mask)
        pairs = given_pairs(layer, "attention_mask", attention_mask, (batch, 1, length, length))
        return layers.combine_masks(pairs, padding[:, None, None])[:, 0]
