"""Claims about layers that are made of layers: what is frozen, or settled, before they are built.

A model counts the variables inside its layers as trainable, whatever `trainable` of the layers is:
so a frozen layer must not have one variable that trains.
"""

import keras
import numpy as np
import pytest

from keras_transformers import layers, models, saving
from tests.contract import ON_JAX, shapes_of
from tests.every_layer import EVERY
from tests.every_model import MODELS, data

X = np.random.default_rng(0).normal(size=(2, 6, 8)).astype("float32")
READ_BY_BUILD = ("dropout", "drop_path", "layer_scale")
QUICK = ("EncoderBlock", "PoolingBlock", "LSTMMixing", "vit", "transformer")


def quick_first(names):
    """Cases of all names, of which most are slow."""
    return [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in sorted(names)
    ]


def frozen(layer):
    """The layer, frozen by its attribute."""
    layer.trainable = False
    return layer


def names_of_trained(layer):
    """Paths, without the layer's own name, of the variables that train."""
    return {w.path.partition("/")[2] for w in layer.weights if w.trainable}


def built_model(model, name):
    inputs, _ = data(name)
    model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
    return model


@pytest.mark.parametrize("name", quick_first(EVERY))
@pytest.mark.parametrize("by_argument", [False, True], ids=["attribute", "argument"])
def test_a_layer_that_is_frozen_before_it_is_built_has_nothing_to_train(name, by_argument):
    case = EVERY[name]
    layer = case.make(trainable=False) if by_argument else frozen(case.make())
    layer.build(*shapes_of(case.inputs))
    assert not names_of_trained(layer)
    assert not layer.trainable_weights
    layer.trainable = True
    other = case.make()
    other.build(*shapes_of(case.inputs))
    assert names_of_trained(layer) == names_of_trained(other)


@pytest.mark.parametrize("name", quick_first(MODELS))
@pytest.mark.parametrize("by_argument", [False, True], ids=["attribute", "argument"])
def test_a_model_that_is_frozen_before_it_is_built_has_nothing_to_train(name, by_argument):
    model = MODELS[name](0.0)
    if by_argument:
        model = type(model).from_config({**model.get_config(), "trainable": False})
    else:
        model.trainable = False
    built_model(model, name)
    assert not names_of_trained(model)
    model.trainable = True
    assert names_of_trained(model) == names_of_trained(built_model(MODELS[name](0.0), name))


def test_a_frozen_model_inside_another_stays_frozen_out_of_a_file(tmp_path):
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.Dense(2)(frozen(MODELS["vit"](0.0))(images)))
    assert len(model.trainable_weights) == 2
    model.save(tmp_path / "model.keras")
    for load in (saving.load_model, keras.models.load_model):
        loaded = load(tmp_path / "model.keras")
        assert len(loaded.trainable_weights) == 2
        assert len(loaded.weights) == len(model.weights)


@pytest.mark.skipif(ON_JAX, reason="it is about variables, which all backends have alike")
def test_training_leaves_a_frozen_layer_as_it_is():
    x = keras.Input(X.shape[1:])
    block = frozen(layers.EncoderBlock(2, 13))
    model = keras.Model(x, keras.layers.Dense(2)(block(x)))
    before = block.get_weights()
    model.compile("sgd", "mse")
    model.train_on_batch(X, np.ones((2, 6, 2), "float32"))
    for one, other in zip(block.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", quick_first(MODELS.keys() - {"recurrent"}))
def test_one_block_of_a_model_can_be_frozen_before_it_is_built(name):
    model = MODELS[name](0.0)
    blocks = model.decoder_blocks if hasattr(model, "decoder_blocks") else model.encoder_blocks
    block = frozen(blocks[-1])
    every = names_of_trained(built_model(MODELS[name](0.0), name))
    inside = {path for path in every if path.startswith(f"{block.name}/")}
    assert inside
    assert names_of_trained(built_model(model, name)) == every - inside


def test_one_block_of_a_frozen_model_can_be_trained():
    model = frozen(MODELS["vit"](0.0))
    model.encoder_blocks[-1].trainable = True
    trained = names_of_trained(built_model(model, "vit"))
    assert trained
    assert all(path.startswith("encoder_1/") for path in trained)


@keras.saving.register_keras_serializable("tests")
class SublayerInBuild(keras.layers.Layer):
    """A layer of somebody else's that makes its sublayer in `build`."""

    def build(self, x_shape):
        self.dense = keras.layers.Dense(x_shape[-1])
        self.dense.build(x_shape)

    def call(self, x):
        return self.dense(x)


def functional():
    x = keras.Input((None, 8))
    return keras.Model(x, keras.layers.Dense(8)(x))


FROZEN_PARTS = {
    "mixer": layers.SelfAttention(2, trainable=False),
    "feed_forward": frozen(layers.FeedForward(13)),
    "norm": keras.layers.LayerNormalization(trainable=False),
    "of another make": SublayerInBuild(trainable=False),
    "a functional model": frozen(functional()),
}


@pytest.mark.parametrize("kind", FROZEN_PARTS)
def test_a_frozen_part_is_frozen_where_it_is_copied(kind, tmp_path):
    argument = kind if kind in ("mixer", "norm") else "feed_forward"
    numbers = {"mixer": (None, 13), "feed_forward": (2, None)}.get(argument, (2, 13))
    x = keras.Input(X.shape[1:])
    model = keras.Model(x, layers.EncoderBlock(*numbers, **{argument: FROZEN_PARTS[kind]})(x))
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        block = each.layers[-1]
        parts = [block.mixer_norm, block.feed_forward_norm]
        parts = parts if argument == "norm" else [getattr(block, argument)]
        inside = {id(weight) for part in parts for weight in part.weights}
        assert inside == {id(weight) for weight in block.weights if not weight.trainable}


def small_vit(**kwargs):
    return models.ViT(None, 8, 4, num_layers=2, hidden_dim=8, **kwargs)


def texts(**kwargs):
    return models.TextEncoder(13, 8, 2, 7, num_layers=2, head=models.EndPooling(3), **kwargs)


HELD = {
    "a block of a model": (
        lambda: small_vit(block=frozen(layers.EncoderBlock(2, 7, norm_first=True))),
        "encoder_",
    ),
    "an encoder": (
        lambda: models.DualEncoder(frozen(small_vit(num_heads=2, mlp_dim=7)), texts(), 5),
        "image_encoder/",
    ),
    "a table": (
        lambda: models.Transformer(
            num_heads=2, mlp_dim=7, num_layers=1, embedding=frozen(layers.TokenEmbedding(13, 8))
        ),
        "source_embedding/",
    ),
}


@pytest.mark.parametrize("kind", HELD)
def test_a_frozen_part_of_a_model_is_frozen_where_it_is_copied(kind):
    make, start = HELD[kind]
    model = make()
    images, ids = (None, 8, 8, 3), (None, None)
    shapes = {"a block of a model": images, "an encoder": {"images": images, "ids": ids}}
    model.build(shapes.get(kind, {"source": ids, "target": ids}))
    for weight in model.weights:
        path = weight.path.partition("/")[2]
        assert weight.trainable != path.startswith(start), path


def test_one_frozen_block_of_a_part_is_frozen_where_it_is_copied():
    encoder = small_vit(num_heads=2, mlp_dim=7)
    encoder.encoder_blocks[0].trainable = False
    model = models.DualEncoder(encoder, texts(), 5)
    model.build({"images": (None, 8, 8, 3), "ids": (None, None)})
    frozen_paths = {w.path.partition("/")[2] for w in model.weights if not w.trainable}
    assert frozen_paths
    assert all(path.startswith("image_encoder/encoder_0/") for path in frozen_paths)


@pytest.mark.parametrize("name", quick_first(EVERY))
def test_what_only_build_reads_cannot_be_changed_later(name):
    case = EVERY[name]
    layer = case.make()
    settings = [key for key in READ_BY_BUILD if key in layer.get_config()]
    for key in settings:
        setattr(layer, key, 0.5)
    layer.build(*shapes_of(case.inputs))
    for key in settings:
        setattr(layer, key, 0.5)  # the same
        with pytest.raises(ValueError, match=f"`{key}` must be set before the layer is built"):
            setattr(layer, key, 0.25)
        assert layer.get_config()[key] == 0.5


def test_a_frozen_model_whose_first_blocks_were_frozen_before_has_nothing_to_train():
    model = MODELS["vit"](0.0)
    model.freeze(1)
    assert not names_of_trained(built_model(frozen(model), "vit"))
