"""Claims about layers of one's own in the place of a part: they work, and come back from files."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers import layers, models
from tests.contract import ON_JAX, assert_close

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
REGISTERED = keras.saving.register_keras_serializable("tests")


class Half(keras.layers.Layer):
    """Neither registered nor with a configuration of its own."""

    def call(self, x):
        return x / 2


@REGISTERED
class Times(keras.layers.Layer):
    """Registered; Keras makes the configuration from the arguments."""

    def __init__(self, factor=3.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor


@REGISTERED
class Scaled(keras.layers.Layer):
    """Registered, with a configuration and a weight."""

    def __init__(self, start, **kwargs):
        super().__init__(**kwargs)
        self.start = start

    def build(self, x_shape):
        self.scale = self.add_weight(
            name="scale", shape=x_shape[-1:], initializer=keras.initializers.Constant(self.start)
        )

    def call(self, x):
        return x * ops.cast(self.scale, x.dtype)

    def get_config(self):
        return {**super().get_config(), "start": self.start}


class NoKeywords(keras.layers.Layer):
    """A constructor without `**kwargs`, so without `name`, `dtype` and `trainable`."""

    def __init__(self, shift):
        super().__init__()
        self.shift = shift

    def call(self, x):
        return x + self.shift

    def get_config(self):
        return {**super().get_config(), "shift": self.shift}


class Bare(keras.layers.Layer):
    """The same without a configuration."""

    def __init__(self, shift=2.0):
        super().__init__()
        self.shift = shift

    def call(self, x):
        return x - self.shift


class Distance(layers.Score):
    """A score with an argument and neither `**kwargs` nor a configuration."""

    def __init__(self, width=1.0):
        super().__init__()
        self.width = width

    def compare(self, query, key):
        return layers.ScaledDotScore.compare(self, query, key) * self.width


class Later(layers.AttentionPositionEncoding):
    def bias(self, query, query_positions, key_positions):
        return ops.cast(key_positions[None, :] > query_positions[:, None], "float32")


class Mine(layers.SelfAttention):
    """An attention of one's own, whose configuration is not what its constructor takes."""

    def __init__(self):
        super().__init__(2)


CUSTOM = {kind.__name__: kind for kind in (Half, NoKeywords, Bare, Distance, Later, Mine)}
GIVEN = {
    "of nobody's knowledge": Half,
    "registered": Times,
    "with a weight": lambda: Scaled(0.5),
    "without keywords": lambda: NoKeywords(1.0),
    "bare": Bare,
    "Keras's": lambda: keras.layers.Dense(8, "relu"),
    "with a function": lambda: keras.layers.Dense(8, doubled),
}


def doubled(x):
    return 2 * x


def reloaded(layer):
    """From its configuration, by way of JSON, with the weights."""
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    custom = {**CUSTOM, "doubled": doubled}
    twin = keras.saving.deserialize_keras_object(config, custom_objects=custom)
    if not twin.built:
        twin.build(X.shape)
    twin.set_weights(layer.get_weights())
    return twin


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("argument", ["mixer", "feed_forward", "norm"])
def test_a_block_takes_layers_of_all_kinds_and_comes_back_from_its_configuration(argument, kind):
    part = GIVEN[kind]()
    numbers = {"mixer": (None, 13), "feed_forward": (2, None)}.get(argument, (2, 13))
    block = layers.EncoderBlock(*numbers, **{argument: part})
    again = layers.EncoderBlock(*numbers, **{argument: part}, dtype="mixed_bfloat16")
    expected = block(X)
    again(X)
    copy = getattr(block, "mixer_norm" if argument == "norm" else argument)
    assert type(copy) is type(part)
    assert copy is not part
    assert not part.built
    assert copy.name in (argument, "mixer_norm")
    other = getattr(again, "mixer_norm" if argument == "norm" else argument)
    assert other.compute_dtype == "bfloat16"
    assert_close(reloaded(block)(X), expected, 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.SelfAttention(2, score=Distance(2.0)),
        lambda: layers.SelfAttention(2, position=Later()),
        lambda: layers.EncoderBlock(mlp_dim=13, mixer=Mine()),
        lambda: layers.EncoderBlock(mlp_dim=13, mixer=layers.SelfAttention(2, position=Later())),
        lambda: layers.SelfAttention(
            2, score=layers.Score(), position=layers.AttentionPositionEncoding()
        ),
        lambda: layers.EncoderBlock(2, 13, activation=doubled),
        lambda: layers.EncoderBlock(2, feed_forward=layers.FeedForward(7, doubled)),
    ],
    ids=["score", "position", "attention", "nested", "base", "activation", "of a part"],
)
def test_parts_of_attention_may_be_of_ones_own(make):
    layer = make()
    expected = layer(X)
    plain = layers.SelfAttention(2) if isinstance(layer, layers.SelfAttention) else None
    if plain is not None and not isinstance(layer.score, layers.ScaledDotScore):
        plain(X)
        plain.set_weights(layer.get_weights())
        assert np.abs(np.asarray(plain(X)) - np.asarray(expected)).max() > 1e-4
    if not any(isinstance(each, (Distance, Mine)) for each in layer._flatten_layers()):
        assert_close(reloaded(layer)(X), expected, 0)


def test_a_lambda_is_an_activation():
    """Keras does not load lambdas from files unless told; copies of parts are made all the same."""
    block = layers.EncoderBlock(
        None, 13, activation=lambda x: x * 2, mixer=layers.MLPMixing(7, activation=lambda x: x * 3)
    )
    block(X)
    network = layers.EncoderBlock(2, feed_forward=layers.FeedForward(7, lambda x: x * 2))
    network(X)
    assert network.feed_forward.activation(1.0) == 2


def test_a_layer_that_cannot_be_made_again_is_refused_in_a_sentence():
    class Wrapping(keras.layers.Layer):
        def __init__(self, inner, **kwargs):
            super().__init__(**kwargs)
            self.inner = inner

        def call(self, x):
            return self.inner(x)

    with pytest.raises(ValueError, match="'block': `mixer` must be a layer that can be made again"):
        layers.EncoderBlock(None, 13, mixer=Wrapping(keras.layers.Dense(8)), name="block")


@pytest.mark.skipif(ON_JAX, reason="Keras reads files alike")
@pytest.mark.parametrize("kind", ["registered", "bare", "with a weight"])
def test_models_with_them_are_saved_loaded_and_trained(kind, tmp_path):
    x = keras.Input(X.shape[1:])
    y = x
    for _ in range(2):
        part = GIVEN[kind]()
        y = layers.EncoderBlock(mixer=part, feed_forward=part, norm=part)(y)
    model = keras.Model(x, y)
    model.compile("sgd", "mse", run_eagerly=True)
    model.train_on_batch(X, X)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects=CUSTOM)
    assert_close(loaded(X), model(X), 0)


@pytest.mark.skipif(ON_JAX, reason="the same configurations, and longer compilations")
def test_models_hand_them_on(tmp_path):
    sizes = {"hidden_dim": 8, "num_heads": 4, "mlp_dim": 13, "num_layers": 1}
    images = np.random.default_rng(0).normal(size=(1, 8, 8, 1)).astype("float32")
    parts = {"mixer": Bare(), "norm": NoKeywords(1.0), "feed_forward": Half()}
    vit = models.ViT.from_variant("B/16", 3, image_size=8, patch_size=4, **sizes, **parts)
    ids = {"source": np.array([[3, 4]]), "target": np.array([[5, 6, 7]])}
    mixer = layers.SelfAttention(2, position=Later())
    transformer = models.Transformer.from_variant("base", 11, **sizes, encoder_mixer=mixer)
    for model, inputs in ((vit, images), (transformer, ids)):
        expected = model(inputs)
        path = tmp_path / f"{model.name}.keras"
        model.save(path)
        loaded = keras.models.load_model(path, custom_objects=CUSTOM)
        assert_close(loaded(inputs), expected, 0)
