"""Claims about Muon, and about the weight decay of AdamW."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import SelfAttention
from keras_transformers.models import ViT
from keras_transformers.training import AdamW, Muon, orthogonalize

RATE, MOMENTUM = 0.01, 0.9


def stepped(optimizer, shapes, name="kernel"):
    """What two steps with fixed gradients make of variables of given shapes."""
    generator = np.random.default_rng(5)
    variables = [keras.Variable(np.ones(shape, "float32"), name=name) for shape in shapes]
    for _ in range(2):
        gradients = [generator.normal(size=shape).astype("float32") for shape in shapes]
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradients], variables)
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


@pytest.mark.parametrize("shape", [(5, 11), (11, 5), (7, 7)])
def test_orthogonalize_keeps_the_singular_vectors(shape):
    matrix = np.random.default_rng(0).normal(size=shape)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    result = keras.ops.convert_to_numpy(orthogonalize(matrix.astype("float32")))
    inner = left.T @ result @ right.T
    np.testing.assert_allclose(inner - np.diag(np.diag(inner)), 0, atol=1e-4)
    assert np.all((np.diag(inner) > 0.3) & (np.diag(inner) < 1.3))


def test_a_matrix_is_updated_as_by_keras():
    theirs = keras.optimizers.Muon(
        RATE, momentum=MOMENTUM, weight_decay=None, adam_weight_decay=None, rms_rate=0.2
    )
    ours = Muon(RATE, momentum=MOMENTUM)
    expected, received = stepped(theirs, [(5, 11)])[0], stepped(ours, [(5, 11)])[0]
    np.testing.assert_allclose(received, expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(12, 3, 4), (3, 4, 12)])
def test_a_kernel_of_attention_is_updated_as_its_flattened_matrix(shape):
    kernel, matrix = stepped(Muon(RATE), [shape])[0], stepped(Muon(RATE), [(12, 12)])[0]
    np.testing.assert_allclose(kernel.reshape(12, 12), matrix, atol=1e-6)


@pytest.mark.parametrize(("shape", "name"), [((7,), "bias"), ((7, 5), "token_embedding")])
def test_vectors_and_embeddings_are_left_to_adam(shape, name):
    theirs = keras.optimizers.Adam(RATE, beta_2=0.98, epsilon=1e-9)
    expected, received = stepped(theirs, [shape], name), stepped(Muon(RATE), [shape], name)
    np.testing.assert_allclose(received[0], expected[0], atol=1e-6)


def test_it_trains_attention_and_survives_a_file(tmp_path):
    model = keras.Sequential([keras.Input((5, 8)), SelfAttention(num_heads=2)])
    model.compile(Muon(0.03, weight_decay=0.01, global_clipnorm=1.0), "mse", jit_compile=True)
    x = np.random.default_rng(1).normal(size=(16, 5, 8)).astype("float32")
    losses = model.fit(x, x, epochs=100, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.optimizer.get_config() == model.optimizer.get_config()
    np.testing.assert_allclose(again.evaluate(x, x, verbose=0), model.evaluate(x, x, verbose=0))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="`momentum` must be in .* momentum=1.5"):
        Muon(momentum=1.5)


def test_weight_decay_leaves_norms_biases_tokens_and_positions_alone_also_after_reload(tmp_path):
    model = ViT(3, 8, 4, hidden_dim=12, num_heads=2, mlp_dim=16, num_layers=1)
    model.build((None, 8, 8, 1))
    model.set_weights([np.ones(weight.shape) for weight in model.get_weights()])
    # Without gradients nothing but the decay changes a weight.
    model.compile(AdamW(0.1, weight_decay=0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    for each in (model, keras.models.load_model(tmp_path / "model.keras")):
        variables = each.trainable_variables
        each.optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
        arrays = {v.path.split("/")[-1]: keras.ops.convert_to_numpy(v) for v in variables}
        values = {name: np.unique(array) for name, array in arrays.items()}
        decayed = {name for name, value in values.items() if np.allclose(value, 0.95)}
        kept = {name for name, value in values.items() if np.array_equal(value, [1.0])}
        assert decayed == {"kernel"}
        assert kept == {"bias", "gamma", "beta", "class_token", "position_embedding"}


def test_what_is_not_decayed_can_be_chosen():
    optimizer = AdamW(0.1, weight_decay=0.5, no_decay=("kernel",))
    kernel, bias = (keras.Variable(np.ones(2, "float32"), name=n) for n in ("kernel", "bias"))
    optimizer.apply([keras.ops.zeros(2), keras.ops.zeros(2)], [kernel, bias])
    assert np.all(keras.ops.convert_to_numpy(kernel) == 1.0)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(bias), 0.95)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_row_that_is_taken_twice_has_one_gradient(name):
    """Adam's first step is the sign of the gradient, whatever terms it is the sum of."""
    optimizer = AdamW(0.5, weight_decay=0.0) if name == "adamw" else Muon(0.5)
    embedding = keras.layers.Embedding(3, 2, embeddings_initializer="ones", name="embedding")
    model = keras.Sequential([keras.Input((3,), dtype="int32"), embedding])
    model.compile(optimizer, lambda factors, rows: keras.ops.sum(factors * rows, axis=(1, 2)))
    factors = np.array([[[1, 2], [3, -2.5], [5, 6]]], "float32")
    model.fit(np.array([[0, 0, 1]]), factors, verbose=0)
    table = keras.ops.convert_to_numpy(embedding.embeddings)
    np.testing.assert_allclose(table, [[0.5, 1.5], [0.5, 0.5], [1, 1]], atol=1e-5)
