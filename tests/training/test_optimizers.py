"""Claims about Muon, and about the weight decay of AdamW."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import SelfAttention
from keras_transformers.models import ViT
from keras_transformers.training import AdamW, Muon, orthogonalize
from keras_transformers.training.orthogonalization import polar_polynomials

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
    assert np.all((np.diag(inner) > 0.75) & (np.diag(inner) < 1.25))


@pytest.mark.parametrize("shape", [(13, 64), (64, 13), (17, 19)])
@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e4])
def test_singular_values_of_any_size_come_near_one(shape, scale):
    draw = np.random.default_rng(1)
    left, _, right = np.linalg.svd(draw.normal(size=shape), full_matrices=False)
    values = np.geomspace(1, 1e-2, min(shape)) * scale
    matrix = ((left * values) @ right).astype("float32")
    result = keras.ops.convert_to_numpy(orthogonalize(matrix))
    found = np.linalg.svd(result, compute_uv=False)
    assert np.all((found > 0.75) & (found < 1.25))
    np.testing.assert_allclose(left.T @ result @ right.T * (1 - np.eye(min(shape))), 0, atol=1e-3)


def test_bfloat16_is_enough():
    matrix = np.random.default_rng(2).normal(size=(2, 16, 40)).astype("float32")
    result = orthogonalize(keras.ops.cast(matrix, "bfloat16"))
    assert keras.backend.standardize_dtype(result.dtype) == "bfloat16"
    result = keras.ops.convert_to_numpy(keras.ops.cast(result, "float32"))
    found = np.linalg.svd(result, compute_uv=False)
    # With AVX2, nearly half of the elements of a product of bfloat16 are not the float32 ones,
    # rounded once.
    assert np.all((found > 0.6) & (found < 1.4))


def test_polynomials_map_their_interval_to_one():
    x = np.geomspace(0.0033, 1, 1000)
    for a, b, c in polar_polynomials(4):
        x = a * x + b * x**3 + c * x**5
    assert np.all((x > 0.75) & (x < 1.25))


def test_nothing_stays_nothing():
    assert np.all(keras.ops.convert_to_numpy(orthogonalize(np.zeros((3, 5), "float32"))) == 0)


def test_matrices_of_a_batch_do_not_mix():
    batch = np.random.default_rng(3).normal(size=(3, 5, 11)).astype("float32")
    together = keras.ops.convert_to_numpy(orthogonalize(batch))
    for matrix, result in zip(batch, together, strict=True):
        single = keras.ops.convert_to_numpy(orthogonalize(matrix))
        np.testing.assert_allclose(result, single, atol=1e-5)


def test_a_matrix_moves_along_its_orthogonalised_momentum():
    """As in the docstring, with the singular values of NumPy's decomposition for reference."""
    received = stepped(Muon(RATE, momentum=MOMENTUM), [(5, 11)])[0]
    generator = np.random.default_rng(5)
    first, second = (generator.normal(size=(5, 11)) for _ in range(2))
    expected, change = np.ones((5, 11)), 0.2 * np.sqrt(11) * RATE
    for ahead in ((1 + MOMENTUM) * first, second + MOMENTUM * (second + MOMENTUM * first)):
        left, _, right = np.linalg.svd(ahead, full_matrices=False)
        expected -= change * left @ right
    np.testing.assert_allclose(received, expected, atol=0.3 * change)


def test_variables_updated_together_are_updated_as_alone():
    shapes = [(5, 11), (7,), (5, 11), (11, 5)]
    together, seen = stepped(Muon(RATE), shapes), np.random.default_rng(5)
    gradients = [[seen.normal(size=s).astype("float32") for s in shapes] for _ in range(2)]
    for index, shape in enumerate(shapes):
        variable, optimizer = keras.Variable(np.ones(shape, "float32"), name="kernel"), Muon(RATE)
        for step in gradients:
            optimizer.apply([keras.ops.convert_to_tensor(step[index])], [variable])
        alone = keras.ops.convert_to_numpy(variable)
        np.testing.assert_allclose(together[index], alone, atol=1e-6)


@pytest.mark.parametrize("shape", [(12, 3, 4), (3, 4, 12)])
def test_a_kernel_of_attention_is_updated_as_its_flattened_matrix(shape):
    kernel, matrix = stepped(Muon(RATE), [shape])[0], stepped(Muon(RATE), [(12, 12)])[0]
    np.testing.assert_allclose(kernel.reshape(12, 12), matrix, atol=1e-6)


@pytest.mark.parametrize(("shape", "name"), [((7,), "bias"), ((7, 5), "token_embedding")])
def test_vectors_and_embeddings_are_left_to_adam(shape, name):
    theirs = keras.optimizers.Adam(RATE, beta_2=0.98, epsilon=1e-9)
    expected, received = stepped(theirs, [shape], name), stepped(Muon(RATE), [shape], name)
    np.testing.assert_allclose(received[0], expected[0], atol=1e-6)


@pytest.mark.slow
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


def in_graph(function):
    import tensorflow as tf

    return tf.function(function, jit_compile=True)


def adam_by_hand(x, gradients, rate, decay, beta_1, beta_2, epsilon):
    """Kingma & Ba 2015 with the decay of Loshchilov & Hutter 2019, in float64."""
    m = v = np.zeros_like(x)
    for step, g in enumerate(gradients, 1):
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g**2
        change = m / (1 - beta_1**step) / np.sqrt(v / (1 - beta_2**step))
        x = x * (1 - rate * decay) - rate * change
    return x


ON_TENSORFLOW = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="other backends make no graph"
)


@pytest.mark.parametrize("kind", [AdamW, Muon])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=ON_TENSORFLOW)])
def test_vectors_follow_adam_in_float64(kind, compiled):
    rng = np.random.default_rng(3)
    start, gradients = rng.normal(size=7), rng.normal(size=(5, 7))
    optimizer = kind(0.1, weight_decay=0.3, beta_1=0.8, beta_2=0.9, epsilon=1e-12)
    variable = keras.Variable(start.astype("float32"), name="kernel")
    optimizer.build([variable])

    def step(gradient):
        optimizer.apply([gradient], [variable])

    step = in_graph(step) if compiled else step
    for gradient in gradients.astype("float32"):
        step(keras.ops.convert_to_tensor(gradient))
    expected = adam_by_hand(start, gradients, 0.1, 0.3, 0.8, 0.9, 1e-12)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-5)


@ON_TENSORFLOW
@pytest.mark.parametrize("kind", [AdamW, Muon])
def test_a_vector_costs_few_operations_of_the_graph(kind):
    def operations(number):
        optimizer = kind(0.1, weight_decay=None if kind is Muon else 0.0)
        variables = [keras.Variable(np.zeros(3, "float32")) for _ in range(number)]
        optimizer.build(variables)
        step = in_graph(lambda: optimizer.apply([keras.ops.ones(3)] * number, variables))
        return len(step.get_concrete_function().graph.get_operations())

    assert operations(5) - operations(4) <= 6  # placeholders of three variables, and the kernel
