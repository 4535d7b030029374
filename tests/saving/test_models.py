"""Claims about `load_model`: what the library and Keras make loads, to the last bit."""

import json
import zipfile

import keras
import numpy as np
import pytest

from keras_transformers import layers, models, saving, training
from tests.contract import to_numpy
from tests.saving import hostile
from tests.slow import slow_except

RNG = np.random.default_rng(0)
IDS = RNG.integers(1, 31, (2, 7)).astype("int32")
PAIR = {"source": IDS, "target": IDS[:, :5]}
IMAGES = RNG.normal(size=(2, 32, 32, 3)).astype("float32")
TEXT = {"hidden_dim": 12, "num_heads": 2, "mlp_dim": 17, "num_layers": 1}
STAGES = {"hidden_dim": 8, "num_layers": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8)}


def vit(**changes):
    settings = {"image_size": 32, "patch_size": 8, "hidden_dim": 12, "num_heads": 3}
    return models.ViT(**{"num_classes": 5, **settings, "mlp_dim": 17, "num_layers": 1, **changes})


def backbone():
    settings = {"hidden_dim": 4, "num_layers": (1, 1, 1), "bottleneck": False}
    return models.ResNet(None, stem="convolutions", norm="group", **settings)


def detr():
    queries = models.ProposalQueries(3)
    return models.DETR(3, backbone(), 16, num_heads=2, mlp_dim=11, num_layers=1, queries=queries)


def mixers():
    """Layers of ours, layers of Keras, and operations, as in `recipes.mixers`."""
    ids = keras.Input((7,), dtype="int32")
    x = layers.PositionEmbedding(7)(layers.TokenEmbedding(31, 12)(ids))
    for mixer in (layers.FourierMixing(), layers.MLPMixing(9)):
        x = layers.EncoderBlock(None, 17, 0.1, mixer=mixer)(x)
    x = layers.EncoderBlock(None, 17, mixer=layers.LSTMMixing())(x, padding_mask=ids != 0)
    rotary = layers.SelfAttention(2, position=layers.RotaryEmbedding(), num_key_value_heads=1)
    x = x + rotary(keras.layers.LayerNormalization()(x))
    first = keras.ops.concatenate([x[:, 0], keras.ops.max(x, axis=1)], axis=-1)
    first = keras.ops.where(first > 0, first, keras.ops.square(first) * 0.1)
    mean = keras.layers.GlobalAveragePooling1D()(x, mask=ids != 0)
    outputs = keras.layers.Dense(5, activation=keras.ops.tanh, kernel_regularizer="l2")(first)
    return keras.Model(ids, {"first": outputs, "mean": keras.layers.Dense(5)(mean)})


def images_and_text():
    """Two inputs, of which one looks at the other, as in `recipes.picture_text`."""
    image, text = keras.Input((32, 32, 3)), keras.Input((7,), dtype="int32")
    patches = layers.EncoderBlock(2, 17)(layers.PatchEmbedding(8, 12)(image))
    x = layers.PositionalEncoding()(layers.TokenEmbedding(31, 8)(text))
    x = x + layers.CrossAttention(2)(keras.layers.LayerNormalization()(x), patches)
    x = layers.EncoderBlock(2, 17)(x, padding_mask=text != 0)
    return keras.Model([image, text], keras.layers.Dense(2)(x[:, -1]))


def sequential():
    return keras.Sequential([keras.Input((32, 32, 3)), vit(), keras.layers.Dense(2, "softmax")])


KINDS = {
    "transformer": (lambda: models.Transformer(31, **TEXT), PAIR),
    "recurrent": (lambda: models.RecurrentTranslator(31, 6, 4), PAIR),
    "language model": (lambda: models.LanguageModel(31, max_length=9, **TEXT), IDS),
    "text encoder": (lambda: models.TextEncoder(31, max_length=9, **TEXT), IDS),
    "vit": (vit, IMAGES),
    "swin": (lambda: models.Swin(5, 32, window_size=4, version=2, **STAGES), IMAGES),
    "mae": (lambda: models.MAE(vit(num_classes=None), 12, 3, None, 1, seed=3), IMAGES),
    "detr": (detr, IMAGES),
    "mixers": (mixers, IDS),
    "images and text": (images_and_text, [IMAGES, IDS]),
    "sequential": (sequential, IMAGES),
}
OPTIMIZERS = {
    "transformer": lambda: training.AdamW(training.InverseSquareRoot(12, 10), 0.1, clipnorm=1.0),
    "language model": lambda: training.Muon(0.02),
    "vit": lambda: keras.optimizers.LossScaleOptimizer(training.AdamW(1e-3, use_ema=True)),
    "swin": lambda: training.AdamW(training.WarmupLinear(0.1, 3, 9), 0.1),
}


def random(kind):
    """A model with random weights, compiled, its optimizer's state as random."""
    make, inputs = KINDS[kind]
    model = make()
    model(inputs)
    texts = kind in ("transformer", "recurrent", "language model")
    loss = training.SmoothedCrossEntropy() if texts else "mse"
    optimizer = OPTIMIZERS.get(kind, lambda: keras.optimizers.Adam(1e-3))()
    model.compile(optimizer, loss, metrics=[training.MaskedAccuracy()] if texts else None)
    optimizer.build(model.trainable_variables)
    for variable in [*model.weights, *optimizer.variables]:
        if variable.dtype == "float32" and variable.shape:
            variable.assign(RNG.normal(size=variable.shape) / 3)
    return model, inputs


def few():
    """Every kind; those that tests/contract.py loads too, without an optimizer, are slow."""
    quick = ("transformer", "language model", "vit", "mixers")
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in KINDS]


@pytest.mark.parametrize("kind", few())
def test_model_loads_as_keras_loads_it(kind, tmp_path):
    model, inputs = random(kind)
    path = tmp_path / "model.keras"
    model.save(path)
    ours, theirs = saving.load_model(path), keras.models.load_model(path)
    assert type(ours) is type(theirs) and ours.get_config() == theirs.get_config()
    assert ours.get_compile_config() == theirs.get_compile_config()
    for variables in (lambda m: m.weights, lambda m: m.optimizer.variables):
        for one, other in zip(variables(ours), variables(theirs), strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))
    if kind != "mae":  # which draws another mask each time
        outputs = (keras.tree.flatten(m(inputs, training=False)) for m in (ours, theirs, model))
        for each in zip(*outputs, strict=True):
            one, *others = map(to_numpy, each)
            for other in others:
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", slow_except(["int8", "int4", "float8"], "int8"))
def test_a_model_that_keras_has_quantised_loads_as_keras_loads_it(mode, tmp_path):
    symbols = keras.Input((None,), dtype="int32")
    x = layers.EncoderBlock(2, 16)(keras.layers.Embedding(31, 8, mask_zero=True)(symbols))
    model = keras.Model(symbols, keras.layers.Dense(3)(x))
    model.compile("adam", "mse", jit_compile=False)
    model.fit(IDS, np.zeros((*IDS.shape, 3)), verbose=0)
    model.quantize(mode)
    model.save(tmp_path / "model.keras")
    ours = saving.load_model(tmp_path / "model.keras")
    assert ours.layers[-1].quantization_mode == mode
    np.testing.assert_array_equal(to_numpy(ours(IDS)), to_numpy(model(IDS)))


@keras.saving.register_keras_serializable("test_saving")
class Doubled(keras.layers.Layer):
    def call(self, x):
        return 2 * x


class Tripled(keras.layers.Layer):
    def call(self, x):
        return 3 * x


def halved(x):
    return x / 2


def save_with(path, *layers):
    keras.Sequential([keras.Input((3,)), *layers]).save(path)
    return path


def test_registered_and_given_objects_load_and_others_do_not(tmp_path):
    saving.load_model(save_with(tmp_path / "registered.keras", Doubled()))
    own = save_with(tmp_path / "own.keras", Tripled(), keras.layers.Dense(2, activation=halved))
    given = {"Tripled": Tripled, "halved": halved}
    assert saving.load_model(own, given)(np.ones((1, 3))).shape == (1, 2)
    with keras.saving.custom_object_scope(given):
        saving.load_model(own)
    with pytest.raises(ValueError, match="is neither Keras's own nor registered here"):
        saving.load_model(own)
    with pytest.raises(ValueError, match="function .*halved is neither Keras's own nor"):
        saving.load_model(own, {"Tripled": Tripled})
    with pytest.raises(ValueError, match="class .*Tripled is neither Keras's own nor"):
        saving.load_model(own, {"halved": halved})


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has no strings")
def test_vocabulary_inside_the_archive_loads(tmp_path):
    texts = keras.Input((), dtype="string")
    words = keras.layers.TextVectorization(output_sequence_length=4)
    words.adapt(["a cat", "a dog"])
    model = keras.Model(texts, keras.layers.Embedding(9, 3)(words(texts)))
    model.save(tmp_path / "model.keras")
    loaded = saving.load_model(tmp_path / "model.keras")
    said = keras.ops.convert_to_tensor(["a dog"])
    np.testing.assert_array_equal(loaded(said), model(said))


def test_compile_false_leaves_the_optimizer_out(tmp_path):
    model, _ = random("vit")
    model.save(tmp_path / "model.keras")
    loaded = saving.load_model(tmp_path / "model.keras", compile=False)
    assert not loaded.compiled
    for one, other in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_model_saved_before_its_optimizer_was_built_loads(tmp_path):
    model = hostile.victim()
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded = saving.load_model(tmp_path / "model.keras")
    assert len(loaded.optimizer.variables) == 2 + 2 * 4


def test_optimizer_that_keras_would_reset_is_refused(tmp_path):
    model = hostile.victim()
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(content["config.json"])
    config["compile_config"]["optimizer"]["class_name"] = "SGD"
    config["compile_config"]["optimizer"]["config"] = {"momentum": 0.9}
    content["config.json"] = json.dumps(config).encode()
    hostile.hostile_archives.write(tmp_path / "other.keras", content.items())
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        with pytest.raises(ValueError, match="the weight optimizer/vars/3 must have shape"):
            saving.load_model(tmp_path / "other.keras")


def test_what_is_no_file_of_a_model_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file .*nothing.keras"):
        saving.load_model(tmp_path / "nothing.keras")
    with pytest.raises(ValueError, match="`path` must end in .keras. Received: .*model.h5"):
        saving.load_model(tmp_path / "model.h5")
    with pytest.raises(FileNotFoundError):
        saving.load_model("hf://somebody/model.keras")
