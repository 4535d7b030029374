"""Claims about models in fewer bits."""

import keras
import numpy as np
import pytest

from keras_transformers.generation import BeamSearch, Greedy, generate
from keras_transformers.layers import TokenEmbedding
from keras_transformers.models import Swin, Transformer, ViT
from keras_transformers.precision import in_precision
from tests.contract import ON_JAX, to_numpy
from tests.slow import slow_except

VOCAB = 13
RNG = np.random.default_rng(0)
SOURCE = RNG.integers(3, VOCAB, (3, 5)).astype("int32")
INPUTS = {"source": SOURCE, "target": SOURCE[:, ::-1]}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    model = Transformer(VOCAB, hidden_dim=22, num_heads=2, mlp_dim=17, num_layers=2)
    model.build({"source": (None, None), "target": (None, None)})
    return model


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [("float16", 1e-2), ("bfloat16", 6e-2), ("int8", 6e-2), ("int4", 0.3)],
)
def test_a_copy_in_fewer_bits_computes_nearly_the_same(model, precision, tolerance):
    before = [to_numpy(weight) for weight in model.weights]
    copy = in_precision(model, precision)
    expected, received = (to_numpy(each(INPUTS)).astype("float32") for each in (model, copy))
    assert np.max(np.abs(received - expected)) < tolerance * np.max(np.abs(expected))
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), value)
    kernels = [w for w in copy.weights if w.path.endswith("kernel")]
    tables = [w for w in copy.weights if w.path.endswith("token_embedding")]
    types = {keras.backend.standardize_dtype(w.dtype) for w in kernels + tables}
    assert len(tables) == 1 and types == {"int8" if precision == "int4" else precision}
    packed = sum(np.prod(w.shape) for w in kernels) / sum(
        np.prod(w.shape) for w in model.weights if w.path.endswith("kernel")
    )
    assert packed < 0.52 if precision == "int4" else packed == 1  # two in a byte


@pytest.mark.parametrize(
    "precision", slow_except(["float16", "bfloat16", "int8", "int4"], "bfloat16", "int8")
)
@pytest.mark.parametrize("search", slow_except({"greedy": Greedy(), "beam": BeamSearch(2)}, "beam"))
def test_it_decodes_as_it_computes_the_whole(model, precision, search):
    copy = in_precision(model, precision)
    result = generate(copy, SOURCE, search=search, max_length=6)
    target = np.pad(result["tokens"][:, :-1], ((0, 0), (1, 0)), constant_values=1)
    logits = to_numpy(copy({"source": SOURCE, "target": target})).astype("float64")
    logits -= np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    chosen = np.take_along_axis(logits, result["tokens"][..., None], axis=-1)[..., 0]
    expected = np.sum(chosen * (result["tokens"] != 0), axis=-1)
    name = "scores" if search == Greedy() else "log_probabilities"
    np.testing.assert_allclose(result[name], expected, atol=0.5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("rows", [(1, 1), (1, 3), (8, 1)])
def test_an_8_bit_table_scores_what_its_rounded_rows_and_inputs_do(rows, tied):
    """13 tokens: the blocks of the table are padded."""
    layer = TokenEmbedding(VOCAB, 22, scale=False, tie_weights=tied)
    layer.build()
    tables = [to_numpy(each).astype("float64") for each in (layer.table, layer.output_table)]
    layer.quantize("int8")
    assert {keras.backend.standardize_dtype(each.dtype) for each in layer.weights} == {
        "int8", "float32"
    } and len(layer.weights) == (2 if tied else 4)  # fmt: skip
    vectors, rounded = (
        np.round(table / scale) * scale
        for table in tables
        for scale in [np.max(np.abs(table), axis=1, keepdims=True) / 127]
    )
    np.testing.assert_allclose(to_numpy(layer(np.arange(VOCAB)[None]))[0], vectors, atol=1e-6)
    x = RNG.normal(size=(*rows, 22)).astype("float32")
    scale = np.max(np.abs(x), axis=-1, keepdims=True) / 127
    expected = np.round(x / scale) * scale @ rounded.T
    np.testing.assert_allclose(to_numpy(layer.step_logits(x)), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(layer.logits(x)), expected, atol=1e-5)


def test_other_bits_of_a_table_are_refused_by_name():
    layer = TokenEmbedding(VOCAB, 22)
    layer.build()
    with pytest.raises(NotImplementedError, match="TokenEmbedding.*`mode` must be 'int8'.*'int4'"):
        layer.quantize("int4")


def test_quantizers_of_ones_own_for_a_table_are_refused_and_not_ignored():
    own = keras.quantizers.AbsMaxQuantizer(axis=-1, value_range=(-20, 20))
    layer = TokenEmbedding(VOCAB, 22)
    layer.build()
    for asked in ({"weight_quantizer": own}, {"activation_quantizer": None}):
        config = keras.quantizers.Int8QuantizationConfig(**asked)
        with pytest.raises(NotImplementedError, match="`config` must be without quantizers of its"):
            layer.quantize("int8", config=config)
    assert to_numpy(layer.table).dtype == "float32"
    layer.quantize("int8", config=keras.quantizers.Int8QuantizationConfig())
    assert to_numpy(layer.table).dtype == "int8"


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize(
    "model",
    [
        ViT(5, 8, patch_size=4, hidden_dim=12, num_heads=3, mlp_dim=16, num_layers=1),
        Swin(5, 8, 2, 32, (2, 1, 1, 1), (1, 2, 4, 8), window_size=3),
        Swin(5, 8, 2, 32, (2, 1, 1, 1), (1, 2, 4, 8), window_size=3, version=2),
    ],
    ids=["vit", "swin", "swin2"],
)
def test_a_image_classifier_can_have_fewer_bits_too(model, precision):
    if ON_JAX and isinstance(model, Swin):
        pytest.skip("op by op, windows take JAX half a minute")
    if not model.built:
        model.build((None, 8, 8, 3))
    images = RNG.normal(size=(2, 8, 8, 3)).astype("float32")
    received = to_numpy(in_precision(model, precision)(images)).astype("float32")
    expected = to_numpy(model(images))
    # 1 to 4 % with any seed; networks as narrow as these round the worst.
    assert np.linalg.norm(received - expected) <= 0.08 * np.linalg.norm(expected)


def test_what_cannot_be_is_refused(model):
    with pytest.raises(ValueError, match="`precision` must be one of.*Received: 'int2'"):
        in_precision(model, "int2")
    unbuilt = Transformer(VOCAB, hidden_dim=22, num_heads=2, mlp_dim=17, num_layers=1)
    with pytest.raises(ValueError, match="`model` must be built"):
        in_precision(unbuilt, "int8")
