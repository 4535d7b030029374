"""Claims about ids, of the layer and all models that take them: what may hold them, what not."""

import keras
import numpy as np
import pytest

from keras_transformers import layers, models
from tests.contract import ON_JAX, assert_close, to_numpy
from tests.every_model import OF_TOKENS

VOCAB, LENGTH, WIDTH = 5003, 6, 8
SIZES = {"hidden_dim": WIDTH, "num_heads": 2, "mlp_dim": 11, "num_layers": 1}
RNG = np.random.default_rng(3)
# Above 2,049 half of the odd numbers are none of float16; above 257, of bfloat16.
IDS = (2 * RNG.integers(1100, 2500, (3, LENGTH)) + 1).astype("int32")
IDS[1, 4:] = 0
PAIR = {"source": IDS, "target": IDS[:, ::-1].copy()}
MODELS = {
    "token embedding": lambda **kw: layers.TokenEmbedding(VOCAB, WIDTH, mask_zero=True, **kw),
    "transformer": lambda **kw: models.Transformer(VOCAB, **SIZES, **kw),
    "recurrent": lambda **kw: models.RecurrentTranslator(VOCAB, WIDTH, **kw),
    "language_model": lambda **kw: models.LanguageModel(VOCAB, max_length=9, **SIZES, **kw),
    "text_encoder": lambda **kw: models.TextEncoder(VOCAB, max_length=9, **SIZES, **kw),
}
ALL = pytest.mark.parametrize("kind", MODELS)
OF_PAIRS = ("transformer", "recurrent")
ALONE = pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in OF_PAIRS])
ONLY_TENSORFLOW = pytest.mark.skipif(ON_JAX, reason="a program of TensorFlow")


def inputs_of(kind, dtype="int32"):
    ids = PAIR if kind in OF_PAIRS else IDS
    return keras.tree.map_structure(lambda x: x.astype(dtype), ids)


def symbols(kind, **options):
    names = PAIR if kind in OF_PAIRS else ["ids"]
    made = {name: keras.Input((LENGTH,), name=name, **options) for name in names}
    return made if kind in OF_PAIRS else made["ids"]


def run(model, inputs):
    return to_numpy(model(inputs))


def test_no_model_is_missing():
    assert set(OF_TOKENS) == set(MODELS) - {"token embedding"}


@ALL
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_floats_are_the_ids_that_they_hold(kind, policy):
    """In half precision, too: they are read before anything is rounded."""
    model = MODELS[kind](dtype=policy)
    expected = run(model, inputs_of(kind))
    for dtype in ("float32", "float64", "int64", "uint16"):
        assert_close(run(model, inputs_of(kind, dtype)), expected, 0)


@ALL
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_functional_model_takes_ids_through_an_input_of_keras_default(kind, policy):
    part = MODELS[kind](dtype=policy)
    inputs = symbols(kind)
    model = keras.Model(inputs, part(inputs))
    assert_close(run(model, inputs_of(kind)), run(part, inputs_of(kind)), 0)


@ALONE
def test_a_sequential_model_trains_on_ids(kind):
    part = MODELS[kind]()
    model = keras.Sequential([part, keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    history = model.fit(IDS, np.ones((3, LENGTH, 1)), verbose=0).history
    assert np.isfinite(history["loss"][0])
    assert_close(model.predict(IDS, verbose=0), model(IDS * 1.0), 1e-6)


@ONLY_TENSORFLOW
@ALL
def test_a_program_of_floats_takes_ids(kind):
    import tensorflow as tf

    model = MODELS[kind]()
    expected = run(model, inputs_of(kind))
    spec = tf.TensorSpec((None, LENGTH), tf.float32)
    spec = keras.tree.map_structure(lambda _: spec, inputs_of(kind))
    program = tf.function(lambda ids: model(ids), input_signature=[spec])
    assert_close(program(inputs_of(kind, "float32")), expected, 1e-6)


@ONLY_TENSORFLOW
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k == "recurrent" else k for k in OF_TOKENS]
)
def test_keras_own_export_asks_for_ids(kind, tmp_path):
    import tensorflow as tf

    model = MODELS[kind]()
    expected = run(model, inputs_of(kind))
    model.export(tmp_path / "served", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "served"))
    ids = keras.tree.map_structure(tf.constant, inputs_of(kind))
    assert_close(loaded.serve(ids), expected, 1e-6)
    specs = loaded.signatures["serving_default"].structured_input_signature[1]
    assert {spec.dtype for spec in specs.values()} == {tf.int32}


# ------------------------------------------------------------------------------------- refusals


@ALL
def test_fractions_and_truth_values_are_refused(kind):
    model = MODELS[kind]()
    for dtype, value in (("float32", 3.5), ("float32", np.nan), ("float64", np.inf), ("bool", 1)):
        wrong = keras.tree.map_structure(
            lambda x, v=value, d=dtype: np.full(x.shape, v, d), inputs_of(kind)
        )
        with pytest.raises(ValueError, match=r"`\w+` must be integers, or floats that hold int"):
            model(wrong)


@ALL
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_that_holds_only_some_ids_is_refused(kind, dtype):
    """Keras makes such inputs of a Sequential model under a half-precision policy."""
    with pytest.raises(ValueError, match=f"Received: {dtype}, which holds each number up to"):
        MODELS[kind]()(symbols(kind, dtype=dtype))


def test_half_precision_holds_the_ids_of_a_small_vocabulary():
    embedding = layers.TokenEmbedding(31, WIDTH, dtype="mixed_float16")
    model = keras.Sequential([embedding])
    assert_close(model.predict(IDS % 31, verbose=0), embedding(IDS % 31), 0)


WRONG = {
    "a list": ([IDS, IDS], "`inputs` must be .*integers.*Received: a list of 2"),
    "a list of strings": (["a cat", "a dog"], "a list of 2; a tokenizer makes ids of strings"),
    "a string": ("a cat", "`inputs` must be .*Received: a str"),
    "a tuple": ((IDS,), "Received: a tuple of 1"),
    "None": (None, "Received: a NoneType"),
    "a foreign key": ({"words": IDS}, r"have the key.*Received: \['words'\]"),
}
WRONG_IDS = {
    "strings": (np.array([["a", "cat"]]), r"must be an array .*a tokenizer makes ids of strings"),
    "objects": (np.array([["a", 2]], object), r"Received: object of shape \(1, 2\)"),
    "one text": (IDS[0], r"\(batch, length\). Received: int32 of shape \(6,\); `ids\[None\]`"),
    "three axes": (IDS[None], r"Received: int32 of shape \(1, 3, 6\)"),
    "lists": ([[1, 2], [3, 4]], "Received: a list of 2"),
}


@pytest.mark.parametrize("kind", OF_TOKENS)
@pytest.mark.parametrize("case", WRONG)
def test_what_are_no_inputs_is_refused_by_the_model_in_a_sentence(kind, case):
    model, (inputs, message) = MODELS[kind](name="mine"), WRONG[case]
    with pytest.raises(ValueError, match=rf"^{type(model).__name__} 'mine': .*{message}"):
        model(inputs)


@pytest.mark.parametrize("kind", OF_TOKENS)
@pytest.mark.parametrize("case", WRONG_IDS)
def test_what_are_no_ids_is_refused_by_name(kind, case):
    model, (ids, message) = MODELS[kind](name="mine"), WRONG_IDS[case]
    name = "source" if kind in OF_PAIRS else "ids"
    with pytest.raises(ValueError, match=rf"^{type(model).__name__} 'mine': `{name}` .*{message}"):
        model({**PAIR, name: ids} if kind in OF_PAIRS else {name: ids})


@pytest.mark.parametrize("kind", OF_PAIRS)
def test_a_pair_is_one_dict(kind):
    model = MODELS[kind]()
    expected = "`inputs` must be one dict and have the keys 'source' and 'target'.*Received: "
    with pytest.raises(ValueError, match=expected + r"int32 of shape \(3, 6\)"):
        model(IDS)
    with pytest.raises(ValueError, match=expected + "2 positional arguments"):
        model(IDS, IDS)
    with pytest.raises(ValueError, match=expected + r"\['source', 'target', 'tgt'\]"):
        model({**PAIR, "tgt": IDS})


@ONLY_TENSORFLOW
@pytest.mark.parametrize("kind", OF_TOKENS)
def test_ragged_ids_are_refused_with_what_pads_them(kind):
    import tensorflow as tf

    ragged = tf.ragged.constant([[5, 6, 7], [8]])
    inputs = {**PAIR, "target": ragged} if kind in OF_PAIRS else ragged
    with pytest.raises(ValueError, match=r"`\w+` must be .*ragged ids; `ids.to_tensor\(0\)` pads"):
        MODELS[kind]()(inputs)


def test_positions_in_floats_are_those_that_they_hold():
    layer = layers.PositionEmbedding(9)
    x = RNG.normal(size=(2, 3, 4)).astype("float32")
    positions = np.array([[0, 2, 1], [8, 0, 0]])
    assert_close(layer(x, positions=positions * 1.0), layer(x, positions=positions), 0)
    with pytest.raises(ValueError, match="`positions` must be integers"):
        layer(x, positions=positions / 4)
