"""Claims about files of models whose parts were changed after they were made.

Whatever was quantised or frozen in memory computes and trains the same out of a file: every public
layer in a functional model, and every model.
"""

import keras
import numpy as np
import pytest

from keras_transformers import saving
from keras_transformers.layers import PositionalEncoding
from keras_transformers.models import ResNet, ViT
from keras_transformers.precision import in_precision
from tests.contract import to_numpy
from tests.every_layer import EVERY
from tests.every_model import MODELS, OF_PICTURES, data

MODES = ("int8", "int4", "int4/-1", "int4/5")  # in groups of 128, all inputs, or 5
OFTEN = ("EncoderBlock", "TokenEmbedding", "LogGridBias", "transformer", "vit")  # the rest is slow


def quick(name, mode=None):
    return name in OFTEN and mode not in ("int4", "int4/-1")


def some(names, more=()):
    """Cases of names, and modes, of which most are slow."""
    cases = [(name, *each) for name in names for each in (more or [()])]
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.slow) for case in cases]


def each_mode(names, modes=MODES):
    return pytest.mark.parametrize(("name", "mode"), some(names, [(mode,) for mode in modes]))


def in_a_model(name):
    """A functional model of one layer, and its inputs."""
    case = EVERY[name]
    inputs = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in case.inputs]
    model = keras.Model(inputs, case.make()(*inputs))
    return randomized(model), list(case.inputs)


def made(name):
    """A built model of the registry, and its inputs."""
    inputs, _ = data(name)
    model = MODELS[name](0.0)
    model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
    return randomized(model), inputs


def randomized(model):
    """The model, none of whose weights is 0, for a part that is left out would not be missed."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            weight.assign(weight + 0.05 * rng.normal(size=weight.shape))
    return model


def quantised(model, mode):
    """The model after `quantize`; the test is skipped where there is nothing to quantise."""
    before = len(model.weights)
    mode, _, size = mode.partition("/")
    config = keras.quantizers.Int4QuantizationConfig(block_size=int(size)) if size else None
    model.quantize(mode, config=config)
    if len(model.weights) == before:
        pytest.skip("no part of it is quantised")
    return model


def assert_the_same(one, other, inputs):
    for a, b in zip(one.weights, other.weights, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
    outputs = [keras.tree.flatten(model(inputs, training=False)) for model in (one, other)]
    for a, b in zip(*outputs, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


def assert_read_from_tensors(model, other, inputs, folder):
    """Another model gets the weights of a `.safetensors` file."""
    saving.save_weights(model, folder / "weights.safetensors")
    for weight in other.weights:
        weight.assign(keras.ops.zeros(weight.shape, weight.dtype))
    saving.load_weights(other, folder / "weights.safetensors")
    assert_the_same(model, other, inputs)


@pytest.mark.filterwarnings("ignore:.*quantize.*")
@each_mode(EVERY)
def test_a_quantised_layer_comes_back_from_its_file(name, mode, tmp_path):
    model, inputs = in_a_model(name)
    quantised(model, mode).save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_the_same(model, again, inputs)
    assert_read_from_tensors(model, again, inputs, tmp_path)
    again.save(tmp_path / "again.keras")  # and once more
    assert_the_same(model, saving.load_model(tmp_path / "again.keras"), inputs)


@pytest.mark.filterwarnings("ignore:.*quantize.*")
@each_mode(MODELS)
def test_a_quantised_model_comes_back_from_its_file(name, mode, tmp_path):
    model, inputs = made(name)
    quantised(model, mode).save(tmp_path / "model.keras")
    again = saving.load_model(tmp_path / "model.keras")
    assert_the_same(model, again, inputs)
    assert_read_from_tensors(model, again, inputs, tmp_path)


def test_a_quantised_part_of_something_else_comes_back(tmp_path):
    inner = keras.Sequential([EVERY["EncoderBlock"].make()])
    inner.build((None, None, 28))
    model = keras.Sequential([keras.Input((6, 28)), inner, keras.layers.Dense(2)])
    model.quantize("int8", filters="encoder")
    model.save(tmp_path / "model.keras")
    inputs = EVERY["EncoderBlock"].inputs[0]
    assert_the_same(model, keras.models.load_model(tmp_path / "model.keras"), inputs)


@pytest.mark.parametrize(
    "precision", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow), "int8", "int4"]
)
def test_a_copy_in_fewer_bits_comes_back_from_its_file(precision, tmp_path):
    copy = in_precision(made("transformer")[0], precision)
    copy.save(tmp_path / "model.keras")
    again = saving.load_model(tmp_path / "model.keras")
    assert_the_same(copy, again, data("transformer")[0])
    if precision == "int8":
        with pytest.raises(ValueError, match="in_precision: `model` must.*quantised"):
            in_precision(again, "bfloat16")


def test_a_quantisation_that_a_file_cannot_tell_is_refused(tmp_path):
    model, _ = made("vit")
    alone = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=alone)
    with pytest.raises(ValueError, match="cannot be saved.*activation_quantizer"):
        model.save(tmp_path / "model.keras")


@each_mode(EVERY, [None, "int8"])
def test_a_layer_comes_back_from_an_old_hdf5_file(name, mode, tmp_path):
    model, inputs = in_a_model(name)
    if mode:
        quantised(model, mode)
    model.save(tmp_path / "model.h5")
    assert_the_same(model, keras.models.load_model(tmp_path / "model.h5"), inputs)


@pytest.mark.parametrize("combine", ["add", "concat"])
def test_the_words_of_an_old_hdf5_file_stay_words(combine, tmp_path):
    """Keras makes its function `add` of the word where it reads such a file."""
    model = keras.Sequential([keras.Input((6, 8)), PositionalEncoding(combine=combine)])
    model.save(tmp_path / "model.h5")
    again = keras.models.load_model(tmp_path / "model.h5")
    assert again.layers[0].combine == combine


def flags(model):
    """Name and `trainable` of all layers with weights, in order; and of all weights."""
    layers = [each for each in model._flatten_layers() if each.weights]
    return (
        [(layer.name, layer.trainable) for layer in layers],
        [(weight.name, weight.trainable) for weight in model.weights],
    )


@pytest.mark.parametrize("name", some(MODELS))
def test_what_was_frozen_by_hand_is_frozen_in_the_file(name, tmp_path):
    model, _ = made(name)
    inner = [each for each in model._flatten_layers(include_self=False) if each.weights]
    for position, layer in enumerate(inner):  # some, and inside these some not
        layer.trainable = position % 3 != 0
    for root in (True, False):
        if not root:
            model.trainable = False
        model.save(tmp_path / "model.keras")
        assert flags(keras.models.load_model(tmp_path / "model.keras")) == flags(model)


@pytest.mark.parametrize("name", ["EncoderBlock", "SwinBlock", "AttentionPooling"])
def test_a_frozen_part_of_a_layer_is_frozen_in_the_file(name, tmp_path):
    model, _ = in_a_model(name)
    model.layers[-1].feed_forward.trainable = False
    model.save(tmp_path / "model.keras")
    assert flags(keras.models.load_model(tmp_path / "model.keras")) == flags(model)


@pytest.mark.parametrize("name", some(OF_PICTURES))
def test_a_model_thaws_to_what_freezing_less_gives(name, tmp_path):
    new, model = made(name)[0], made(name)[0]
    new.freeze(1)
    for blocks in (None, 1, 0, 1):
        model.freeze(blocks)
    model.save(tmp_path / "model.keras")
    expected = [each.path.partition("/")[2] for each in new.trainable_weights]
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        assert [w.path.partition("/")[2] for w in each.trainable_weights] == expected
    assert 0 < len(expected) < len(new.weights)


def test_a_detector_whose_backbone_is_frozen_comes_back(tmp_path):
    """Out of a file the backbone is built before the detector, under a path of its own."""
    model, _ = made("detr")
    model.backbone.trainable = False
    model.save(tmp_path / "model.keras")
    again = saving.load_model(tmp_path / "model.keras")
    assert not again.backbone.trainable and not again.backbone.trainable_weights
    assert len(again.trainable_weights) == len(model.trainable_weights) > 0


def test_norms_that_never_learn_do_not_thaw(tmp_path):
    """DETR's backbones are pretrained with them."""
    model = ResNet(3, 8, 4, (1, 1), bottleneck=False, norm="frozen")
    model.build((None, 8, 8, 3))
    trained = [weight.path for weight in model.trainable_weights]
    assert not any("norm" in path for path in trained)
    model.freeze()
    model.freeze(0)
    model.trainable = True
    assert [weight.path for weight in model.trainable_weights] == trained
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert [weight.path for weight in again.trainable_weights] == trained


def test_after_freezing_all_may_be_trained_again(tmp_path):
    model = ViT(3, 8, 4, 12, 2, 16, num_layers=1)
    model.build((None, 8, 8, 3))
    model.freeze()
    model.trainable = True
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert len(again.trainable_weights) == len(model.trainable_weights) == len(model.weights)
