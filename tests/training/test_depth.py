"""Claims about the depth of variables, and about rates and freezing that go by it."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import EncoderBlock
from keras_transformers.models import Swin, Transformer, ViT
from keras_transformers.training import (
    AdamW,
    ExactResume,
    GradualUnfreezing,
    Lamb,
    Muon,
    block_depths,
)

RATE, DECAY, SHARES = 0.01, 0.1, (0.25, 0.5, 1.0)


def small_vit():
    model = ViT(3, 8, patch_size=4, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=2)
    model.build((None, 8, 8, 1))
    return model


def depths_of(model):
    """Dict of depth -> the paths of its variables, without the model's name."""
    found = {}
    for depth, variable in zip(block_depths(model), model.trainable_variables, strict=True):
        found.setdefault(depth, []).append(variable.path.partition("/")[2])
    return found


def owners(model):
    """Dict of depth -> names of the layers that lie there."""
    return {
        depth: {path.split("/")[0] for path in paths}
        for depth, paths in sorted(depths_of(model).items())
    }


def test_embeddings_come_first_then_the_blocks_in_order_then_norm_and_head():
    assert owners(small_vit()) == {
        0: {"embedding"},
        1: {"encoder_0"},
        2: {"encoder_1"},
        3: {"norm", "head"},
    }


def test_what_enters_a_stage_lies_with_its_first_block():
    model = Swin(3, 32, 2, 8, (1, 2), (1, 2), window_size=2)
    model.build((None, 32, 32, 3))
    found = owners(model)
    assert {"patch_embedding", "stage_0_block_0"} <= found[1]
    assert found[2] == {"merging_1", "stage_1_block_0"} and found[3] == {"stage_1_block_1"}
    assert found[4] == {"norm", "head"}


def test_a_decoder_lies_behind_its_encoder():
    model = Transformer.from_variant("base", 31, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=2)
    model.build({"source": (None, 5), "target": (None, 7)})
    found = owners(model)
    assert [found[depth] for depth in range(1, 5)] == [
        {"encoder_0"},
        {"encoder_1"},
        {"decoder_0"},
        {"decoder_1"},
    ]


def test_what_is_not_built_or_has_no_blocks_is_refused():
    with pytest.raises(ValueError, match="must be built"):
        block_depths(ViT(3, 8, patch_size=4, hidden_dim=8, num_heads=2, mlp_dim=8, num_layers=1))
    with pytest.raises(ValueError, match="must have blocks"):
        block_depths(keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)]))


def adam(weights, gradients):
    """Three steps of AdamW (Loshchilov & Hutter 2019, algorithm 2) at depths 0, 1 and 2."""
    weights = [w.astype("float64") for w in weights]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for step, gradient in enumerate(gradients, 1):
        for i, g in enumerate(gradient):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            ahead = (m[i] / (1 - 0.9**step)) / (np.sqrt(v[i] / (1 - 0.999**step)) + 1e-7)
            weights[i] -= RATE * SHARES[i] * (ahead + DECAY * weights[i])
    return weights


def lamb(weights, gradients):
    """The same of LAMB (You et al. 2020, algorithm 2), with its decay inside the ratio."""
    weights = [w.astype("float64") for w in weights]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for step, gradient in enumerate(gradients, 1):
        for i, g in enumerate(gradient):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            ahead = (m[i] / (1 - 0.9**step)) / (np.sqrt(v[i] / (1 - 0.999**step)) + 1e-7)
            ahead += DECAY * weights[i]
            ratio = np.linalg.norm(weights[i]) / np.linalg.norm(ahead)
            weights[i] -= RATE * SHARES[i] * ratio * ahead
    return weights


def muon(weights, gradients):
    """The same of Muon, but for its polynomials: every singular value becomes 1."""
    weights = [w.astype("float64") for w in weights]
    m = [np.zeros_like(w) for w in weights]
    for gradient in gradients:
        for i, g in enumerate(gradient):
            m[i] = 0.95 * m[i] + g
            left, _, right = np.linalg.svd(g + 0.95 * m[i], full_matrices=False)
            weights[i] -= RATE * SHARES[i] * DECAY * weights[i]
            weights[i] -= RATE * SHARES[i] * 0.2 * np.sqrt(max(g.shape)) * left @ right
    return weights


@pytest.mark.parametrize("kind, oracle, tolerance", [
    (AdamW, adam, 5e-6), (Lamb, lamb, 5e-6), (Muon, muon, 2e-3)
])  # fmt: skip
def test_each_depth_steps_at_its_own_rate(kind, oracle, tolerance):
    draw = np.random.default_rng(3)
    weights = [draw.normal(size=(5, 7)).astype("float32") for _ in SHARES]
    gradients = [[draw.normal(size=(5, 7)).astype("float32") for _ in SHARES] for _ in range(3)]
    variables = [keras.Variable(w, name="kernel") for w in weights]
    optimizer = kind(RATE, weight_decay=DECAY, depths=[0, 1, 2], layer_decay=0.5)
    optimizer = type(optimizer).from_config(optimizer.get_config())  # which keeps both
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in gradient], variables)
    for variable, expected in zip(variables, oracle(weights, gradients), strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable), expected, rtol=0, atol=tolerance
        )


def test_depths_must_fit_the_variables_and_layer_decay_needs_them():
    with pytest.raises(ValueError, match="`layer_decay` must be in"):
        AdamW(layer_decay=0.5)
    with pytest.raises(ValueError, match="a number for each trainable variable, 1. Received: 2"):
        AdamW(depths=[0, 1]).build([keras.Variable(np.ones(3))])
    with pytest.raises(ValueError, match="`steps` must be positive"):
        GradualUnfreezing(0)


def test_blocks_that_are_frozen_stay_to_the_bit_until_their_turn(tmp_path):
    model = small_vit()
    depths = block_depths(model)
    with pytest.raises(ValueError, match="must know how deep"):
        model.compile(AdamW(1e-2), "mse")
        model.fit(np.ones((2, 8, 8, 1)), np.ones((2, 3)), callbacks=[GradualUnfreezing(1)])
    model.compile(AdamW(1e-2, depths=depths, layer_decay=0.5), "mse")
    states = []

    def remember(*_):
        states.append([keras.ops.convert_to_numpy(v).copy() for v in model.trainable_variables])

    remember()
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 1)).astype("float32")
    callbacks = [GradualUnfreezing(1), keras.callbacks.LambdaCallback(on_epoch_end=remember)]
    model.fit(x, np.ones((4, 3)), epochs=3, verbose=0, callbacks=callbacks)
    for epoch, (before, after) in enumerate(zip(states, states[1:], strict=False)):
        for depth, one, other in zip(depths, before, after, strict=True):
            if depth < 3 - epoch:
                np.testing.assert_array_equal(one, other)
        moved = [
            depth
            for depth, one, other in zip(depths, before, after, strict=True)
            if np.any(one != other)
        ]
        assert set(moved) == set(range(3 - epoch, 4))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, again):  # which learn as a whole from now on
        np.testing.assert_allclose(each.optimizer.depth_rates, [0.125, 0.25, 0.5, 1.0])
        before = [keras.ops.convert_to_numpy(v).copy() for v in each.trainable_variables]
        each.fit(x, np.ones((4, 3)), verbose=0)
        for one, other in zip(before, each.trainable_variables, strict=True):
            assert np.any(one != keras.ops.convert_to_numpy(other))


class Normed(keras.layers.Layer):
    """A block with a batch norm, whose scale may be fixed."""

    def __init__(self, scale=True, **kwargs):
        super().__init__(**kwargs)
        self.block = EncoderBlock(2, 8)
        self.norm = keras.layers.BatchNormalization(scale=scale, momentum=0.5)

    def build(self, shape):
        self.block.build(shape)
        self.norm.build(shape)

    def call(self, x, training=None):
        return self.norm(self.block(x), training=training)


class Statistics(keras.callbacks.Callback):
    """Moving means of batch norms after each epoch."""

    def __init__(self, norms):
        super().__init__()
        self.norms, self.means = norms, []

    def on_epoch_end(self, epoch, logs=None):
        self.means.append(
            [keras.ops.convert_to_numpy(norm.moving_mean).copy() for norm in self.norms]
        )


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_statistics_of_frozen_depths_stay_until_their_turn(steps_per_execution):
    keras.utils.set_random_seed(3)
    layers = [Normed(), Normed(scale=False)]
    head = [keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((3, 8)), *layers, EncoderBlock(2, 8), *head])
    depths = block_depths(model)
    assert sorted(set(depths)) == [1, 2, 3, 4]
    optimizer = AdamW(1e-2, depths=depths)
    model.compile(optimizer, "mse", steps_per_execution=steps_per_execution)
    x = np.random.default_rng(0).normal(2, 3, size=(8, 3, 8)).astype("float32")
    norms = [layers[0].norm, layers[1].norm, head[0]]
    seen = Statistics(norms)
    model.fit(
        x, x[..., :1], 4, epochs=4, shuffle=False, verbose=0, validation_data=(x, x[..., :1]),
        callbacks=[GradualUnfreezing(2), seen],
    )  # fmt: skip
    start = [np.zeros(8)] * 3
    for epoch, (before, after) in enumerate(zip([start, *seen.means], seen.means, strict=False)):
        for depth, one, other in zip((1, 2, 4), before, after, strict=True):
            assert np.array_equal(one, other) == (depth < 4 - epoch)
    last = [keras.ops.convert_to_numpy(norm.moving_mean) for norm in norms]
    np.testing.assert_array_equal(last, seen.means[-1])


@pytest.mark.parametrize(
    ("batches", "per_execution", "scaled"),
    [(1, 1, False), (1, 4, False), (3, 1, False), (3, 4, True), (1, 3, False)],
)
def test_a_depth_opens_after_so_many_steps_of_the_optimizer(batches, per_execution, scaled):
    """However many batches make a step or an execution; epochs of 14 batches end one early."""
    model, opened = small_vit(), []
    accumulated = batches if batches > 1 else None
    adam = AdamW(1e-3, depths=block_depths(model), gradient_accumulation_steps=accumulated)
    adam = keras.optimizers.LossScaleOptimizer(adam) if scaled else adam
    model.compile(adam, "mse", steps_per_execution=per_execution, jit_compile=False)
    inner = getattr(adam, "inner_optimizer", adam)

    def remember(batch, logs):
        if keras.backend.backend() == "jax":
            model.jax_state_sync()
        rates = keras.ops.convert_to_numpy(inner.depth_rates)
        opened.append((batch, int(np.sum(rates > 0))))

    unfreezing = GradualUnfreezing(steps=5)
    watch = keras.callbacks.LambdaCallback(on_train_batch_begin=remember)
    x, y = np.ones((14, 8, 8, 1), "float32"), np.ones((14, 3), "float32")
    model.fit(x, y, 1, epochs=3, verbose=0, callbacks=[unfreezing, watch])
    begun = [14 * epoch + batch for epoch in range(3) for batch in range(0, 14, per_execution)]
    expected = [min(4, 1 + step // batches // 5) for step in begun]
    assert [number for _, number in opened] == expected


def test_a_block_alone_has_one_depth():
    model = keras.Sequential([keras.layers.Input((5, 8)), EncoderBlock(2, 8)])
    assert set(block_depths(model)) == {1}


class Killed(keras.callbacks.Callback):
    """Ends training when the second epoch begins, as a power failure would."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def fitted(folder, *callbacks):
    """Weights after two epochs of four steps; checkpoints after every third step."""
    tf = pytest.importorskip("tensorflow")
    from keras_transformers import streams

    keras.utils.set_random_seed(2)
    layers = [keras.layers.Input((3, 8)), EncoderBlock(2, 8), EncoderBlock(2, 8)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    depths = block_depths(model)
    model.compile(AdamW(1e-2, depths=depths, layer_decay=0.5), "mse", jit_compile=False)
    x = np.random.default_rng(0).normal(size=(8, 3, 8)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((x, x[..., :1])).batch(2)
    resume = ExactResume(folder, every_minutes=None, every_steps=3)
    model.fit(
        streams.epochs(lambda epoch: rows, 4, resume.start),
        shuffle=False,
        steps_per_epoch=4,
        epochs=2,
        initial_epoch=resume.start[0],
        callbacks=[*resume.after([GradualUnfreezing(2)]), *callbacks],
        verbose=0,
    )
    return [keras.ops.convert_to_numpy(weight) for weight in model.weights]


@pytest.mark.slow
def test_a_killed_run_goes_on_unfreezing_where_it_was(tmp_path):
    whole = fitted(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "killed", Killed())
    for one, other in zip(whole, fitted(tmp_path / "killed"), strict=True):
        np.testing.assert_array_equal(one, other)
