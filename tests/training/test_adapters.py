"""Claims about models tuned by adapters: what is trained, kept, merged, switched and resumed."""

import keras
import numpy as np
import pytest

from keras_transformers import saving
from keras_transformers.generation import Constraints, Greedy, generate
from keras_transformers.layers import EncoderBlock, rematerialized_blocks
from keras_transformers.layers.low_rank import LowRank
from keras_transformers.models import LanguageModel, ViT
from keras_transformers.precision import in_precision
from keras_transformers.training import (
    AdamW,
    LinearCrossEntropy,
    SmoothedCrossEntropy,
    active_adapters,
    adapters_of,
    add_lora,
    combine_adapters,
    merge,
    remove_lora,
    set_adapter,
    unmerge,
)
from keras_transformers.training.adapters import adapted_layers
from tests.adapters import FLOATS, IDS, ORIGINS, answers, fill, keras_model, language_model, outputs
from tests.contract import to_numpy
from tests.every_model import MODELS, data
from tests.slow import slow_except

ALL = ("attention", "feed_forward", "embeddings")


def classifier(dropout=0.0):
    """Of our layers and Keras's own, in a functional model."""
    ids = keras.Input((7,), dtype="int32")
    x = keras.layers.Embedding(13, 12, name="table")(ids)
    x = EncoderBlock(3, 23, dropout=dropout, name="block")(x)
    x = keras.layers.Dense(12, "tanh", name="pooler")(x[:, 0])
    x = keras.layers.LayerNormalization(name="last_norm")(x)
    return keras.Model(ids, keras.layers.Dense(3, name="head")(x))


def values(model):
    return {each.path: to_numpy(each).copy() for each in model.weights}


def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained():
    model = language_model()
    before, outputs_before = values(model), outputs(model)
    paths = add_lora(model, rank=2, targets=("attention", "hidden"), train="norm")
    mixer = [f"decoder_0/mixer/{name}" for name in ("attention_output", "value", "key", "query")]
    assert sorted(paths) == sorted(["decoder_0/feed_forward/hidden", *mixer])
    # Projections with an adapter are computed one by one, which rounds differently with AVX2.
    np.testing.assert_allclose(outputs(model), outputs_before, atol=2e-6)
    trained = {each.path.removeprefix(f"{model.name}/") for each in model.trainable_variables}
    expected = {f"{path}/adapter/lora_{factor}" for path in paths for factor in "ab"}
    assert trained == expected | {"norm/gamma", "norm/beta"}
    model.compile(AdamW(0.05), SmoothedCrossEntropy(), run_eagerly=True)
    model.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)
    after = values(model)
    norm = {f"{model.name}/norm/{name}" for name in ("gamma", "beta")}
    assert {path for path in before if np.any(after[path] != before[path])} == norm
    # Momentum and velocity of `rank * (inputs + outputs)` of each kernel, and of the norm.
    kernels = 4 * 2 * (12 + 12) + 2 * (12 + 20)
    moments = [each for each in model.optimizer.variables if len(each.shape)]
    assert sum(int(np.prod(each.shape)) for each in moments) == 2 * (kernels + 24)


@pytest.mark.parametrize("dora", [False, True])
def test_merged_kernels_compute_the_same_and_come_back_up_to_a_rounding(dora):
    model = language_model()
    add_lora(model, rank=2, targets=ALL, dora=dora)
    fill(model)
    kernels = [layer.kernel_variable() for layer in adapted_layers(model).values()]
    before, y = [to_numpy(each) for each in kernels], outputs(model)
    merge(model)
    merged = [to_numpy(each) for each in kernels]
    np.testing.assert_allclose(outputs(model), y, atol=1e-5)
    for layer, kernel, base in zip(adapted_layers(model).values(), merged, before, strict=True):
        arrays = {k: x.astype("float64") for k, x in layer.adapter.arrays("default").items()}
        whole = base.reshape(layer.matrix_shape()) + arrays["lora_a"] @ arrays["lora_b"]
        whole *= arrays["magnitude"] / np.linalg.norm(whole, axis=0) if dora else 1
        np.testing.assert_array_equal(kernel, whole.reshape(kernel.shape).astype("float32"))
    unmerge(model)
    for kernel, base, high in zip(kernels, before, merged, strict=True):
        # Half of the last bit of the merged kernel, and of the kernel itself.
        gains = np.abs(base).max() + np.abs(high).max()
        assert np.abs(to_numpy(kernel) - base).max() <= np.spacing(gains, dtype="float32")
    np.testing.assert_allclose(outputs(model), y, atol=1e-5)


def test_without_its_adapters_a_model_is_the_plain_one():
    model = language_model()
    kinds, names = [type(each) for each in model._flatten_layers()], list(values(model))
    y, trained = outputs(model), len(model.trainable_variables)
    for merged in (False, True):
        add_lora(model, rank=2, targets=ALL, dropout=0.1)
        fill(model)
        if merged:
            y = outputs(model)
            merge(model)
        remove_lora(model)
        assert [type(each) for each in model._flatten_layers()] == kinds
        assert list(values(model)) == names
        assert len(model.trainable_variables) == trained
        assert adapters_of(model) == {}
        np.testing.assert_allclose(outputs(model), y, atol=1e-5)


def test_another_adapter_becomes_active_without_a_trace(monkeypatch):
    model, traces = language_model(), []
    alter = LowRank.alter
    monkeypatch.setattr(LowRank, "alter", lambda *args: traces.append(1) or alter(*args))
    plain, expected = outputs(model), {}
    options = {"a": {"rank": 2}, "b": {"rank": 3, "rslora": True}, "c": {"rank": 1, "dora": True}}
    for name, given in options.items():
        given |= {"targets": "query" if name == "a" else "attention", "train": "norm"}
        add_lora(model, alpha=3, name=name, **given)
        fill(model, name, seed=len(expected))
        if name == "b":
            model.get_layer("norm").gamma.assign(np.linspace(1, 2, 12))
        expected[name] = outputs(model)
    model.predict(IDS, verbose=0)
    made = len(traces)
    for name in ("a", "b", "c", "b", None, "a"):
        set_adapter(model, name)
        y = model.predict(IDS, verbose=0)
        np.testing.assert_allclose(y, plain if name is None else expected[name], atol=1e-5)
        active = {name: 1.0} if name else {}
        assert active_adapters(model) == active
        assert all(x.adapter.active == active for x in adapted_layers(model).values())
    assert len(traces) == made
    assert {name: each.rank for name, each in adapters_of(model).items()} == {
        "a": 2,
        "b": 3,
        "c": 1,
    }


def test_decoding_token_by_token_is_the_whole_forward_pass():
    model = language_model()
    add_lora(model, rank=2, targets=ALL)
    fill(model, size=0.5)
    end = 3  # banned, so that the text is as long as it may be
    options = {"max_length": 6, "end_id": end, "search": Greedy(Constraints(banned=(end,)))}
    tokens = generate(model, prompt=IDS[:1, :2], **options)["tokens"]
    whole = outputs(model, np.concatenate([[[1]], tokens[:, :-1]], axis=1))
    whole[..., end] = -np.inf
    np.testing.assert_array_equal(tokens[:, 2:], whole.argmax(-1)[:, 2:])


@pytest.mark.parametrize("load", [saving.load_model, keras.models.load_model])
def test_a_file_has_all_adapters(load, tmp_path):
    model, expected = classifier(), {}
    for name, dora in (("a", False), ("b", True)):
        targets, train = (*ALL[:2], "pooler", "table"), ("head", "last_norm")
        add_lora(model, 2, None, 0.1, targets, dora, train=train, name=name)
        fill(model, name)
        model.get_layer("head").bias.assign(np.arange(3.0) * len(name + "b" * dora))
        expected[name] = outputs(model)
    model.save(tmp_path / "model.keras")
    again = load(tmp_path / "model.keras")
    assert adapters_of(again) == adapters_of(model)
    trained = [each.path for each in model.trainable_variables]
    assert [each.path for each in again.trainable_variables] == trained
    np.testing.assert_array_equal(outputs(again), expected["b"])
    set_adapter(again, "a")
    np.testing.assert_allclose(outputs(again), expected["a"], atol=1e-6)


@pytest.mark.parametrize("save", ["keras", "ours"])
@pytest.mark.parametrize("ending", [".weights.h5", ".safetensors"])
@pytest.mark.parametrize("name", slow_except(MODELS.keys(), "language_model"))
def test_weights_beside_an_adapter_are_not_taken_for_all_of_a_model(name, save, ending, tmp_path):
    if save == "keras" and ending != ".weights.h5":
        pytest.skip("Keras has no such files")
    path = tmp_path / f"tuned{ending}"

    def write(model):
        model.save_weights(path) if save == "keras" else saving.save_weights(model, path)

    def read(model):
        model.load_weights(path) if save == "keras" else saving.load_weights(model, path)

    model, plain = MODELS[name](0.0), MODELS[name](0.0)
    for each in (model, plain):
        each(data(name)[0])
    before = values(plain)
    add_lora(model, 2, targets="attention")
    fill(model)
    tuned = values(model)
    write(model)
    with pytest.raises(ValueError, match=r"expected \d+ variables|the model has no weight"):
        read(plain)
    if save == "ours":  # all or nothing
        for path_of, value in values(plain).items():
            np.testing.assert_array_equal(value, before[path_of])
    read(model)
    for path_of, value in values(model).items():
        np.testing.assert_array_equal(value, tuned[path_of])
    merge(model)
    write(model)
    if save == "keras":
        read(plain)
        merged = {path.partition("/")[2]: value for path, value in values(model).items()}
        for path_of, value in values(plain).items():
            np.testing.assert_array_equal(value, merged[path_of.partition("/")[2]])


def test_a_merged_model_can_be_saved_and_unmerged(tmp_path):
    model = language_model()
    add_lora(model, 2, dora=True)
    fill(model)
    y = outputs(model)
    merge(model)
    model.save(tmp_path / "model.keras")
    again = saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outputs(again), outputs(model))
    unmerge(again)
    np.testing.assert_allclose(outputs(again), y, atol=1e-5)
    saving.save_weights(again, tmp_path / "weights.safetensors")
    unmerge(model)
    saving.load_weights(model, tmp_path / "weights.safetensors")
    np.testing.assert_array_equal(outputs(model), outputs(again))


def test_a_rematerialised_block_trains_its_adapter_alike():
    def trained(scope):
        keras.utils.set_random_seed(1)
        with scope:
            model = language_model(dropout=0.2)
        add_lora(model, 2, dropout=0.3)
        fill(model)
        model.compile(keras.optimizers.SGD(0.1), SmoothedCrossEntropy(), run_eagerly=True)
        model.fit(IDS[:, :-1], IDS[:, 1:], batch_size=3, epochs=1, verbose=0)
        return [to_numpy(each) for each in model.trainable_variables]

    once, again = trained(keras.RematScope(None)), trained(rematerialized_blocks())
    for one, other in zip(once, again, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_loss_without_logits_trains_adapters_alike_whether_they_change_the_table_or_not():
    for targets in ("attention", ALL):
        found = []
        for loss in (SmoothedCrossEntropy(0.1), LinearCrossEntropy(0.1)):
            keras.utils.set_random_seed(1)
            model = language_model()
            add_lora(model, 2, targets=targets)
            fill(model)
            model.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True)
            model.train_on_batch(IDS[:, :-1], IDS[:, 1:])
            found.append([to_numpy(each) for each in model.trainable_variables])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_copy_in_half_precision_has_the_adapter_and_one_in_8_bits_is_refused():
    model = language_model()
    add_lora(model, 2)
    fill(model)
    np.testing.assert_allclose(outputs(in_precision(model, "bfloat16")), outputs(model), atol=0.2)
    with pytest.raises(ValueError, match="no adapters"):
        in_precision(model, "int8")


def test_an_image_model_is_tuned_with_its_head():
    model = ViT(3, image_size=8, patch_size=4, hidden_dim=12, num_heads=3, mlp_dim=20, num_layers=1)
    model.build((None, 8, 8, 3))
    add_lora(model, 2, targets=(*ALL,), train=("head", "class_token", "bias"))
    x = np.random.default_rng(1).normal(size=(6, 8, 8, 3)).astype("float32")
    fixed = values(model)
    model.compile(
        AdamW(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True
    )
    model.fit(x, np.arange(6) % 3, verbose=0)
    names = ("lora", "head", "class_token", "bias")
    for path, value in values(model).items():
        frozen = not any(name in path for name in names) or "scale" in path or "position" in path
        assert np.array_equal(value, fixed[path]) == frozen, path


WRONG = {
    "rank": ({"rank": 0}, "positive integer"),
    "dropout": ({"dropout": 1.0}, r"in\s\[0, 1\)"),
    "targets": ({"targets": "quarry"}, "'quarry', which matches none of"),
    "no targets": ({"targets": ()}, "at least one layer"),
    "train": ({"train": "haed"}, "'haed', which is part of no path"),
    "both": ({"train": "query"}, "that no adapter changes"),
    "name": ({"name": ""}, "a new one"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_refused(case):
    given, message = WRONG[case]
    model = language_model()
    with pytest.raises(ValueError, match=message):
        add_lora(model, **given)
    assert adapters_of(model) == {}
    assert not any(isinstance(each, LowRank) for each in model._flatten_layers())


def test_what_does_not_fit_the_adapters_of_a_model_is_refused():
    model = language_model()
    with pytest.raises(ValueError, match="must be built"):
        add_lora(LanguageModel(13, 12, num_heads=3, mlp_dim=20, num_layers=1))
    with pytest.raises(ValueError, match="must be active"):
        merge(model)
    add_lora(model, 2)
    with pytest.raises(ValueError, match="a new one"):
        add_lora(model, 2)
    with pytest.raises(ValueError, match="one of .'default'. or None"):
        set_adapter(model, "another")
    with pytest.raises(ValueError, match="must be merged"):
        unmerge(model)
    merge(model)
    for change in (merge, lambda model: set_adapter(model, None)):
        with pytest.raises(ValueError, match="merged into the kernels"):
            change(model)


def test_plain_weights_are_refused_by_a_model_with_adapters(tmp_path):
    for make in (language_model, keras_model):
        plain, model = make(), make()
        plain.save_weights(tmp_path / "plain.weights.h5")
        add_lora(model, 2, targets=".*")
        with pytest.raises(ValueError, match=r"[Ll]oad (them|plain weights) before `training.add_"):
            model.load_weights(tmp_path / "plain.weights.h5")


def tower(name):
    """A model whose layers have the same paths in each tower."""
    x = keras.Input((5,), name=f"input_{name}")
    y = keras.layers.Dense(4, name="dense")(x)
    return keras.Model(x, keras.layers.LayerNormalization(name="norm")(y), name=name)


def test_of_layers_that_share_a_path_every_one_is_adapted_and_trained(tmp_path):
    one, two, x = tower("one"), tower("two"), keras.Input((5,))
    model = keras.Model(x, [one(x), two(x)])
    data = np.random.default_rng(3).normal(size=(4, 5)).astype("float32")
    assert add_lora(model, 2, targets="dense", train="norm") == ["dense", "dense#2"]
    assert len(model.trainable_variables) == 2 * 2 + 2 * 2
    fill(model)
    for layer in adapted_layers(model).values():
        kernel = to_numpy(layer.kernel).astype("float64")
        arrays = {key: x.astype("float64") for key, x in layer.adapter.arrays("default").items()}
        expected = data @ (kernel + arrays["lora_a"] @ arrays["lora_b"])
        np.testing.assert_allclose(to_numpy(layer(data)), expected, atol=1e-5)
    for norm in (one.get_layer("norm"), two.get_layer("norm")):
        norm.beta.assign(np.arange(4.0) + (norm is two.get_layer("norm")))
    tuned = [to_numpy(y) for y in model(data)]
    set_adapter(model, None)
    assert not np.any([to_numpy(tower.get_layer("norm").beta) for tower in (one, two)])
    set_adapter(model, "default")
    model.save(tmp_path / "model.keras")
    for again in (model, keras.models.load_model(tmp_path / "model.keras")):
        for y, expected in zip(again(data), tuned, strict=True):
            np.testing.assert_allclose(to_numpy(y), expected, atol=1e-6)
        set_adapter(again, None)
        set_adapter(again, "default")
        for y, expected in zip(again(data), tuned, strict=True):
            np.testing.assert_allclose(to_numpy(y), expected, atol=1e-6)


def test_a_composite_restores_adapters_of_layers_that_share_a_path(tmp_path):
    body = keras.Sequential([keras.Input((7, 12)), keras.layers.Dense(12, name="same")])
    mixer = keras.Sequential([keras.Input((7, 12)), keras.layers.Dense(12, name="same")])
    x = keras.Input((7, 12))
    y = EncoderBlock(mixer=mixer, feed_forward=body, name="block")(x)
    model = keras.Model(x, y)
    data = np.random.default_rng(3).normal(size=(2, 7, 12)).astype("float32")
    assert len(add_lora(model, 2, targets="same")) == 2
    fill(model)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(outputs(again, data), outputs(model, data))


def test_a_model_around_one_that_is_merged_is_traced_anew():
    inner = tower("inner")
    x = keras.Input((5,))
    outer = keras.Model(x, keras.layers.Dense(3, name="last")(inner(x)))
    outer.compile("sgd", "mse")
    data = np.random.default_rng(3).normal(size=(4, 5)).astype("float32")
    plain = outer.predict(data, verbose=0)
    add_lora(inner, 2, targets="dense", dora=True)
    assert not outer.compiled
    outer.compile("sgd", "mse")
    fill(inner)
    traced = compiled(outer)
    expected = to_numpy(outer(data))
    assert np.abs(expected - plain).max() > 0.1
    for change in (lambda _: None, merge, unmerge, merge, unmerge):
        change(inner)
        np.testing.assert_allclose(to_numpy(outer(data)), expected, atol=1e-5)
        np.testing.assert_allclose(outer.predict(data, verbose=0), expected, atol=1e-5)
        np.testing.assert_allclose(to_numpy(traced(data)), expected, atol=1e-5)
        error = np.mean(np.square(expected))
        y = np.zeros((4, 3), "float32")
        np.testing.assert_allclose(outer.evaluate(data, y, verbose=0), error, rtol=1e-4)
    remove_lora(inner)
    outer.compile("sgd", "mse")
    np.testing.assert_allclose(outer.predict(data, verbose=0), plain, atol=1e-5)


def compiled(model):
    """A program of a user, traced at the first call."""
    if keras.backend.backend() != "tensorflow":
        return model
    import tensorflow as tf

    return tf.function(lambda x: model(x))


@pytest.mark.parametrize("train", [(), "norm"])
def test_fit_says_that_no_adapter_can_learn(train):
    model = language_model()
    add_lora(model, 2, train=train)
    fill(model)
    model.compile(AdamW(0.05), SmoothedCrossEntropy(), run_eagerly=True)
    for stop, go_on in ((merge, unmerge), (no_adapter, lambda m: set_adapter(m, "default"))):
        stop(model)
        weights = values(model)
        with pytest.raises(ValueError, match=r"cannot learn: .*Call `training\.(unmerge|set_ada)"):
            model.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)
        for path, value in values(model).items():
            np.testing.assert_array_equal(value, weights[path])
        model.evaluate(IDS[:, :-1], IDS[:, 1:], verbose=0)
        go_on(model)
        model.fit(IDS[:, :-1], IDS[:, 1:], verbose=0)


def no_adapter(model):
    set_adapter(model, None)


def test_around_a_merged_part_that_is_frozen_others_are_trained():
    inner, x = tower("inner"), keras.Input((5,))
    outer = keras.Model(x, keras.layers.Dense(3, name="last")(inner(x)))
    add_lora(inner, 2, targets="dense")
    fill(inner)
    merge(inner)
    inner.trainable = False
    outer.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    before = values(outer)
    outer.fit(np.ones((4, 5), "float32"), np.ones((4, 3), "float32"), verbose=0)
    changed = {path for path, value in values(outer).items() if np.any(value != before[path])}
    assert changed == {"last/kernel", "last/bias"}


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("origin", slow_except(ORIGINS.keys(), "our layers"))
def test_quantised_after_it_got_an_adapter_a_model_is_as_if_before(origin, mode, tmp_path):
    keras.utils.set_random_seed(5)
    after, before = ORIGINS[origin](), ORIGINS[origin]()
    before.set_weights(after.get_weights())
    before.quantize(mode)
    for model in (after, before):
        add_lora(model, 2, targets=".*", dropout=0.1 if mode == "int8" else 0.0)
    after.quantize(mode)
    for layers in zip(adapted_layers(after).values(), adapted_layers(before).values(), strict=True):
        arrays = {
            key: np.random.default_rng(2).normal(size=x.shape)
            for key, x in layers[0].adapter.arrays("default").items()
        }
        for layer in layers:
            assert layer.quantization_mode == layers[1].quantization_mode
            layer.adapter.assign_arrays("default", arrays)
    np.testing.assert_allclose(answers(after), answers(before), atol=1e-5)
    if origin != "our layers":
        with pytest.raises(ValueError, match="cannot be saved: layers inside it are quantised"):
            after.save(tmp_path / "model.keras")
        return
    after.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        answers(keras.models.load_model(tmp_path / "model.keras")), answers(after)
    )


def test_filters_choose_layers_with_adapters_by_their_own_names():
    model = language_model()
    add_lora(model, 2)
    model.quantize("int8", filters="query|hidden")
    modes = {path: x.quantization_mode for path, x in adapted_layers(model).items()}
    chosen = {path for path, mode in modes.items() if mode == "int8"}
    assert chosen == {"decoder_0/mixer/query", "decoder_0/feed_forward/hidden"}


def test_what_cannot_be_quantised_with_its_adapter_is_refused():
    model = language_model()
    add_lora(model, 2)
    with pytest.raises(ValueError, match=r"`mode` must be int8 or int4.*mode='float8'"):
        model.quantize("float8")
    merge(model)
    with pytest.raises(ValueError, match="a merged adapter"):
        model.quantize("int8")
    own = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    own.layers[0].enable_lora(2)
    with pytest.raises(ValueError, match="Keras's own LoRA"):
        in_precision(own, "bfloat16")


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 0.7, "b": -0.3, "c": 2}, {"c": 0.5}])
def test_a_combination_of_adapters_is_the_weighted_sum_of_their_changes(weights):
    x = keras.Input((5,))
    y = keras.layers.Dense(7, name="first")(x)
    y = keras.layers.LayerNormalization(name="norm")(y)
    model = keras.Model(x, keras.layers.Dense(3, name="last")(y))
    model.get_layer("norm").gamma.assign(np.linspace(1, 2, 7))
    options = {
        "a": {"targets": ("first", "last"), "train": "norm"},
        "b": {"targets": "last", "rslora": True},
        "c": {"targets": "first", "train": "norm/gamma"},
    }
    kernels = {name: to_numpy(model.get_layer(name).kernel) for name in ("first", "last")}
    expected = {name: kernel.astype("float64") for name, kernel in kernels.items()}
    gamma = np.linspace(1, 2, 7)
    trained = {"a": np.linspace(0, 1, 7), "c": np.linspace(3, 1, 7)}
    for rank, (name, given) in enumerate(options.items(), 1):
        add_lora(model, rank, alpha=5, name=name, **given)
        for path, arrays in fill(model, name, seed=rank).items():
            scale = 5 / (rank**0.5 if name == "b" else rank)
            change = arrays["lora_a"].astype("float64") @ arrays["lora_b"]
            expected[path] = expected[path] + weights.get(name, 0) * scale * change
        if name in trained:
            model.get_layer("norm").gamma.assign(trained[name])
    single = {}
    for name in options:
        set_adapter(model, name)
        single[name] = outputs(model, FLOATS[0])
    combine_adapters(model, weights, "together")
    layers = adapted_layers(model)
    for name, layer in layers.items():
        whole = kernels[name]
        if "together" in layer.adapter.settings:
            arrays = layer.adapter.arrays("together")
            whole = whole + arrays["lora_a"].astype("float64") @ arrays["lora_b"]
        np.testing.assert_allclose(whole, expected[name], atol=1e-5)
    for name, value in trained.items():
        gamma = gamma + weights.get(name, 0) * (value - np.linspace(1, 2, 7))
    np.testing.assert_allclose(to_numpy(model.get_layer("norm").gamma), gamma, atol=1e-6)
    np.testing.assert_allclose(
        to_numpy(layers["first"](FLOATS[0])), FLOATS[0] @ expected["first"], atol=1e-4
    )
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(FLOATS[0], np.ones((7, 3)), verbose=0)
    for name, y in single.items():
        set_adapter(model, name)
        np.testing.assert_allclose(outputs(model, FLOATS[0]), y, atol=1e-5)


def test_what_cannot_be_combined_is_refused():
    model = language_model()
    add_lora(model, 2, name="a")
    add_lora(model, 2, name="b", dora=True)
    wrong = [
        ({"c": 1}, "d", r"for some of \['a', 'b'\]. Received: {'c': 1}"),
        ({}, "d", "finite numbers"),
        ({"a": float("nan")}, "d", "finite numbers"),
        ({"a": 1}, "a", "a new one"),
        ({"a": 1, "b": 1}, "d", r"DoRA do not add up.*Received: \['b'\]"),
    ]
    for weights, name, message in wrong:
        with pytest.raises(ValueError, match=message):
            combine_adapters(model, weights, name)
    set_adapter(model, "a")
    merge(model)
    with pytest.raises(ValueError, match="merged into the kernels"):
        combine_adapters(model, {"a": 1}, "d")
    assert sorted(adapters_of(model)) == ["a", "b"]


ACTIVE = {
    "a list": ["a", "b"],
    "weights": {"b": -0.5, "a": 0.7},
    "three": {"a": 1.0, "b": 2.0, "c": 0.3},
    "half of one": {"c": 0.5},
    "nothing of one": {"a": 0.0, "b": 1.0},
}


def weights_of_active(given):
    return given if isinstance(given, dict) else dict.fromkeys(given, 1.0)


@pytest.mark.parametrize("given", ACTIVE.values(), ids=ACTIVE)
def test_several_active_adapters_add_up_by_their_weights(given):
    """In float64: kernels `W + sum w_i s_i A_i B_i`, and `v + sum w_i (v_i - v)` besides."""
    x = keras.Input((5,))
    y = keras.layers.Dense(7, name="first")(x)
    y = keras.layers.LayerNormalization(name="norm")(y)
    model = keras.Model(x, keras.layers.Dense(3, name="last")(y))
    outer = keras.Sequential([keras.Input((5,)), model])
    rows, expected_gamma = FLOATS[0].astype("float64"), np.ones(7)
    kernels = {n: to_numpy(model.get_layer(n).kernel).astype("float64") for n in ("first", "last")}
    plain = outputs(outer, FLOATS[0])
    options = {
        "a": {"targets": ("first", "last"), "train": "norm/gamma"},
        "b": {"targets": "last", "rslora": True},
        "c": {"targets": "first", "train": "norm/gamma"},
    }
    trained = {"a": np.linspace(0, 1, 7), "c": np.linspace(3, 1, 7)}
    expected, single = {name: kernel.copy() for name, kernel in kernels.items()}, {}
    active = weights_of_active(given)
    for rank, (name, settings) in enumerate(options.items(), 1):
        add_lora(model, rank, alpha=5, name=name, **settings)
        for path, arrays in fill(model, name, seed=rank).items():
            scale = 5 / (rank**0.5 if name == "b" else rank)
            change = arrays["lora_a"].astype("float64") @ arrays["lora_b"]
            expected[path] += active.get(name, 0) * scale * change
        if name in trained:
            model.get_layer("norm").gamma.assign(trained[name])
            expected_gamma += active.get(name, 0) * (trained[name] - 1)
        single[name] = outputs(outer, FLOATS[0])
    assert np.abs(outer.predict(FLOATS[0], verbose=0) - single["c"]).max() < 1e-5
    set_adapter(model, given)
    assert active_adapters(model) == active
    hidden = rows @ expected["first"]
    hidden = hidden - hidden.mean(-1, keepdims=True)
    hidden = hidden / np.sqrt((hidden**2).mean(-1, keepdims=True) + 1e-3) * expected_gamma
    whole = hidden @ expected["last"]
    np.testing.assert_allclose(outer.predict(FLOATS[0], verbose=0), whole, atol=2e-5)
    merge(model)
    for name, kernel in expected.items():
        np.testing.assert_allclose(to_numpy(model.get_layer(name).kernel), kernel, atol=1e-5)
    np.testing.assert_allclose(outer.predict(FLOATS[0], verbose=0), whole, atol=2e-5)
    assert active_adapters(model) == active
    unmerge(model)
    np.testing.assert_allclose(outer.predict(FLOATS[0], verbose=0), whole, atol=2e-5)
    for name, y in single.items():
        set_adapter(model, name)
        np.testing.assert_allclose(outputs(outer, FLOATS[0]), y, atol=1e-5)
    set_adapter(model, None)
    np.testing.assert_allclose(outputs(outer, FLOATS[0]), plain, atol=1e-5)
    set_adapter(model, given)
    np.testing.assert_allclose(outputs(outer, FLOATS[0]), whole, atol=2e-5)


@pytest.mark.parametrize("quantised", [None, pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_several_active_adapters_are_one_that_is_combined_of_them(quantised, dtype):
    """Of attention, networks and the tied table; decoded token by token, too."""
    model = language_model(dtype=dtype)
    for rank, name in enumerate("abc", 2):
        add_lora(model, rank, name=name, targets=ALL)
        fill(model, name, seed=rank)
    if quantised:
        model.quantize(quantised)
    prompt = IDS[:, :2]
    alone = generate(model, prompt=prompt, search=Greedy(), max_length=7)["tokens"]
    set_adapter(model, {"a": 0.6, "b": 1.0})
    received = outputs(model)
    tokens = generate(model, prompt=prompt, search=Greedy(), max_length=7)["tokens"]
    copied = outputs(in_precision(model, dtype)) if not quantised else received
    combine_adapters(model, {"a": 0.6, "b": 1.0}, "both")
    tolerance = 1e-4 if dtype == "float32" else 0.3
    np.testing.assert_allclose(received, outputs(model), atol=tolerance)
    np.testing.assert_allclose(copied, received, atol=tolerance)
    if dtype == "float32":
        again = generate(model, prompt=prompt, search=Greedy(), max_length=7)["tokens"]
        np.testing.assert_array_equal(to_numpy(tokens), to_numpy(again))
        assert (to_numpy(tokens) != to_numpy(alone)).any()


@pytest.mark.parametrize("compiled", [True, False])
def test_all_active_adapters_are_trained_each_as_its_own(compiled):
    """By the gradients of `A_i` and `B_i` in float64; one that is not active stays as it is."""
    keras.utils.set_random_seed(4)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, name="only")])
    x = FLOATS[:, 0].astype("float64")
    target = np.linspace(-1, 1, 9).reshape(3, 3)
    for rank, name in enumerate("abc", 1):
        add_lora(model, rank, alpha=2, name=name, targets="only")
        fill(model, name, seed=rank)
    (layer,) = adapted_layers(model).values()
    before = {name: layer.adapter.arrays(name) for name in "abc"}
    weights = {"a": 0.5, "c": 2.0}
    set_adapter(model, weights)
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=compiled)
    bias = to_numpy(layer.bias)
    model.fit(x.astype("float32"), target, batch_size=3, shuffle=False, verbose=0)
    kernel = to_numpy(layer.kernel).astype("float64")
    factors = {name: weights[name] * 2 / adapters_of(model)[name].rank for name in weights}
    changes = [factors[n] * before[n]["lora_a"] @ before[n]["lora_b"] for n in weights]
    change = 2 * (x @ (kernel + sum(changes)) + bias - target) / target.size
    for name in "abc":
        a, b = (before[name][key].astype("float64") for key in ("lora_a", "lora_b"))
        factor = 0.1 * factors.get(name, 0)
        expected = {"lora_a": a - factor * x.T @ change @ b.T,
                    "lora_b": b - factor * (x @ a).T @ change}  # fmt: skip
        received = layer.adapter.arrays(name)
        for key, value in expected.items():
            np.testing.assert_allclose(received[key], value, atol=1e-6)
    np.testing.assert_array_equal(to_numpy(layer.bias), bias)


def test_active_adapters_that_cannot_be_trained_together_are_refused_by_fit():
    for options, message in (
        ({"a": {"train": "norm"}, "b": {}}, "'a' trains other weights besides"),
        ({"a": {"dropout": 0.1}, "b": {"dropout": 0.2}}, "have different dropout"),
    ):
        model = language_model()
        for name, settings in options.items():
            add_lora(model, 2, name=name, **settings)
        set_adapter(model, ["a", "b"])
        model.compile("sgd", SmoothedCrossEntropy())
        with pytest.raises(ValueError, match=f"cannot learn: .*{message}.*`combine_adapters`"):
            model.train_on_batch(IDS, IDS)
        model.evaluate(IDS, IDS, verbose=0)
        set_adapter(model, "a")
        model.fit(IDS, IDS, verbose=0)


def test_what_cannot_be_active_together_is_refused():
    model = language_model()
    with pytest.raises(ValueError, match="a list or dict of some"):
        set_adapter(model, ["a"])
    add_lora(model, 2, name="a")
    add_lora(model, 2, name="b", dora=True)
    before = outputs(model)
    wrong = [
        (["a", "c"], r"one of \['a', 'b'\] or None, or a list or dict"),
        (["a", "a"], "a list or dict of some"),
        ([], "a list or dict of some"),
        ({}, "a list or dict of some"),
        ({"a": float("nan")}, "weights must be finite"),
        (["a", "b"], r"DoRA do not add up.*of which \['b'\]"),
        ({"b": 0.5}, "DoRA do not add up"),
    ]
    for name, message in wrong:
        with pytest.raises(ValueError, match=message):
            set_adapter(model, name)
        assert active_adapters(model) == {"b": 1.0}
    np.testing.assert_array_equal(outputs(model), before)
    set_adapter(model, ["b"])  # one alone is what it is by its name
    np.testing.assert_array_equal(outputs(model), before)
    set_adapter(model, {"a": 0.5})
    merge(model)
    with pytest.raises(ValueError, match="merged into the kernels"):
        set_adapter(model, ["a"])


def test_adapters_are_added_and_removed_while_several_are_active():
    model = language_model()
    plain = outputs(model)
    for rank, name in enumerate("ab", 2):
        add_lora(model, rank, name=name)
        fill(model, name, seed=rank)
    set_adapter(model, {"a": 0.5, "b": 2.0})
    both = outputs(model)
    add_lora(model, 4, name="c", dora=True)  # for which variables are made anew
    assert active_adapters(model) == {"c": 1.0}
    np.testing.assert_allclose(outputs(model), plain, atol=1e-5)
    set_adapter(model, {"a": 0.5, "b": 2.0})
    np.testing.assert_allclose(outputs(model), both, atol=1e-5)
    remove_lora(model)
    np.testing.assert_allclose(outputs(model), plain, atol=1e-5)
