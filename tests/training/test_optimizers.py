"""Claims about Muon, and about the weight decay of AdamW."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import SelfAttention
from keras_transformers.models import ViT
from keras_transformers.training import AdamW, Lamb, Muon, orthogonalize
from keras_transformers.training.muon import polar_polynomials
from tests import every_layer, every_model

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


# Names of weights that multiply tokens or are looked up for them, and of DETR's queries and levels.
DECAYED = {
    "kernel",
    "recurrent_kernel",
    "hidden_kernel",
    "output_kernel",
    "token_embedding",
    "output_embedding",
    "embedding",
    "vector",
    "scores",
}


def test_biases_scales_tokens_and_positions_of_every_model_and_layer_are_spared():
    names = {}
    for name, make in every_model.MODELS.items():
        model, (inputs, _) = make(0.0), every_model.data(name)
        model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
        names |= {v.name: v for v in model.trainable_variables}
    for case in every_layer.EVERY.values():
        layer = case.make()
        layer(*case.inputs)
        names |= {v.name: v for v in layer.trainable_variables}
    names |= {n: keras.Variable(np.ones(2), name=n) for n in ("logit_scale", "magnitude")}
    assert {"scale", "offset", "register_tokens", "mask_token", "log_scale"} <= set(names)
    optimizer = AdamW()
    optimizer.build(list(names.values()))
    assert {n for n, v in names.items() if optimizer._use_weight_decay(v)} == DECAYED & set(names)


@pytest.mark.parametrize("kind", [AdamW, Lamb, Muon])
def test_what_is_spared_stays_spared_after_reload(kind, tmp_path):
    """By one name, by variables beside the names, and by the defaults."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(2)])
    one_name = kind(0.1, weight_decay=0.5, no_decay="bias")
    assert one_name.no_decay == ("bias",)
    for optimizer in (kind(0.1, weight_decay=0.5), one_name):
        model.set_weights([np.ones(weight.shape) for weight in model.get_weights()])
        optimizer.exclude_from_weight_decay([model.layers[-1].kernel])
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)
        model.save(tmp_path / "model.keras")
        for each in (model, keras.models.load_model(tmp_path / "model.keras")):
            variables = each.trainable_variables
            each.optimizer.apply([keras.ops.zeros(v.shape) for v in variables], variables)
            arrays = map(keras.ops.convert_to_numpy, variables)
            changed = [bool(np.any(array != 1)) for array in arrays]
            assert changed == [True, False, False, False]


def test_exclusions_come_before_the_first_step_and_name_what_there_is():
    optimizer = AdamW(no_decay_variables=["nowhere/kernel"])
    with pytest.warns(UserWarning, match="`no_decay_variables` has nowhere/kernel, unknown among"):
        optimizer.build([keras.Variable(np.ones(2))])
    with pytest.raises(
        ValueError, match="AdamW: `exclude_from_weight_decay` must be called before"
    ):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


@pytest.mark.parametrize("kind", [AdamW, Lamb, Muon])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_averages_of_16_bits_are_refused(kind, dtype):
    variable = keras.Variable(np.ones(3), dtype=dtype, name="kernel")
    with pytest.raises(ValueError, match=f"`use_ema` needs variables of float32.*of {dtype}"):
        kind(use_ema=True).build([variable])


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow alone")
def test_variables_of_16_bits_are_refused_under_tf_distribute():
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        optimizer = AdamW()
        variable = keras.Variable(np.ones(3), dtype="bfloat16", name="kernel")
        with pytest.raises(ValueError, match="under tf.distribute variables must be of float32"):
            optimizer.build([variable])


def one_step(optimizer, variable):
    optimizer.apply([keras.ops.cast([0.5, -0.25, 0.125], variable.dtype)], [variable])


@pytest.mark.parametrize("kind", [AdamW, Lamb, Muon])
def test_a_saved_optimizer_of_16_bits_goes_on_and_an_old_one_is_read(kind):
    """What version 0.2.0 saved has no remainders of rounding."""
    variables = [keras.Variable(np.ones(3), dtype="bfloat16", name="kernel") for _ in range(3)]
    optimizers = [kind(1e-3) for _ in variables]
    store, old = {}, {}
    one_step(optimizers[0], variables[0])
    optimizers[0].save_own_variables(store)
    kept = [v for v in optimizers[0].variables if not v.path.endswith("remainder")]
    assert len(kept) == len(store) - 1
    old = {str(i): variable.numpy() for i, variable in enumerate(kept)}
    for optimizer, variable, state in zip(optimizers[1:], variables[1:], (store, old), strict=True):
        variable.assign(variables[0])
        optimizer.build([variable])
        optimizer.load_own_variables(state)
    for optimizer, variable in zip(optimizers, variables, strict=True):
        for _ in range(9):
            one_step(optimizer, variable)
    whole, again, without = (keras.ops.convert_to_numpy(v).astype("float64") for v in variables)
    np.testing.assert_array_equal(again, whole)
    np.testing.assert_allclose(without, whole, atol=2.0**-7)


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
