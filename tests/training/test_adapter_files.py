"""Claims about files of models with adapters: what is loaded answers as what was saved."""

import itertools

import keras
import numpy as np
import pytest

from keras_transformers import pretrained, saving
from keras_transformers.models import LanguageModel
from keras_transformers.training import (
    active_adapters,
    adapters_of,
    add_lora,
    merge,
    set_adapter,
    unmerge,
)
from keras_transformers.training.adapters import adapted_layers, is_merged
from tests.adapters import ORIGINS, answers, fill, outputs
from tests.slow import slow_except

NUMBERS, STATES = ("one adapter", "two adapters"), ("active", "merged", "none")
FILES = (".keras", ".weights.h5", ".safetensors", "adapter")


def table_cases():
    product = itertools.product(NUMBERS, STATES, FILES, ORIGINS)
    cases = {"-".join(case): case for case in product}
    return slow_except(
        cases,
        "two adapters-merged-.keras-a user's layer",
        "two adapters-active-.weights.h5-Keras's layers",
        "two adapters-none-.safetensors-our layers",
        "one adapter-merged-adapter-our layers",
    )


def with_adapters(origin, number, state, reverse=False, seed=0, alphas=(3, 7)):
    """A model whose weights follow from the seed, and the adapters "a/1" and "b", or one."""
    keras.utils.set_random_seed(5)
    model = ORIGINS[origin]()
    options = [("a/1", 2, {"dora": True}), ("b", 3, {"targets": ".*", "rslora": True})]
    chosen = list(zip(options, alphas, strict=True))[: NUMBERS.index(number) + 1]
    for (name, rank, given), alpha in reversed(chosen) if reverse else chosen:
        add_lora(model, rank, alpha, name=name, **{"targets": FIRST[origin], **given})
        fill(model, name, size=0.1, seed=seed + rank)
    put_into(model, state)
    return model


FIRST = {
    "our layers": "attention",
    "Keras's layers": ("attention/.*", "each/.*"),
    "a user's layer": "own/.*",
    "a user's model": ".*",
}


def put_into(model, state):
    set_adapter(model, None if state == "none" else "a/1")
    if state == "merged":
        merge(model)


@pytest.mark.parametrize("case", table_cases())
def test_what_a_file_of_adapters_gives_is_what_was_saved_or_is_refused(case, tmp_path):
    number, state, ending, origin = case
    model = with_adapters(origin, number, state)
    if ending == "adapter":
        check_adapter_file(model, origin, number, state, tmp_path)
        return
    path = tmp_path / f"file{ending}"
    if ending == ".safetensors":
        if origin in ("a user's layer", "a user's model"):
            pytest.skip("paths of layers without names are others in each model")
        saving.save_weights(model, path)
    elif ending == ".weights.h5":
        model.save_weights(path)
    else:
        model.save(path)
    if ending == ".keras":
        for load in (keras.models.load_model, saving.load_model):
            assert_the_same_adapters(load(path), model)
        return
    loads = [saving.load_weights]
    loads += [] if ending == ".safetensors" else [lambda model, path: model.load_weights(path)]
    for load, other in itertools.product(loads, STATES):
        again = with_adapters(origin, number, other, reverse=True, seed=9, alphas=(5, 11))
        before = answers(again)
        if other == state:
            load(again, path)
            assert_the_same_adapters(again, model)
        else:
            with pytest.raises(ValueError, match="weight|active or merged"):
                load(again, path)
            if load is saving.load_weights:
                np.testing.assert_array_equal(answers(again), before)


def assert_the_same_adapters(model, expected):
    """The same outputs, with any adapter active or merged; `expected` is as it was afterwards."""
    np.testing.assert_allclose(answers(model), answers(expected), rtol=1e-5, atol=1e-4)
    assert adapters_of(model) == adapters_of(expected)
    state = "active" if (active := active_of(expected)) else "none"
    was_merged = is_merged(expected)
    assert (active_of(model), is_merged(model)) == (active, was_merged)
    for each in (model, expected):
        if was_merged:
            unmerge(each)
    for name in (*adapters_of(expected), None):
        for each in (model, expected):
            set_adapter(each, name)
        np.testing.assert_allclose(answers(model), answers(expected), rtol=1e-5, atol=1e-4)
        if name is not None:
            whole = answers(expected)
            for each in (model, expected):
                merge(each)
                np.testing.assert_allclose(answers(each), whole, rtol=1e-5, atol=1e-4)
                unmerge(each)
    put_into(expected, "merged" if was_merged else state)


def active_of(model):
    return next(iter(adapted_layers(model).values())).adapter.active


def check_adapter_file(model, origin, number, state, folder):
    """An adapter file has one adapter by its name, in whatever state the model is."""
    if origin != "our layers":
        with pytest.raises(ValueError, match="must be one that `save` can write"):
            pretrained.save_adapter(model, folder, name="a/1")
        return
    keras.utils.set_random_seed(5)
    plain = LanguageModel.from_variant("tiny", 31, padding_id=-1)
    plain.build((None, None))
    tuned = LanguageModel.from_variant("tiny", 31, padding_id=-1)
    tuned.build((None, None))
    tuned.set_weights(plain.get_weights())
    names = ["a/1", "b"][: NUMBERS.index(number) + 1]
    expected = {}
    for rank, name in enumerate(names, 2):
        add_lora(tuned, rank, 3, name=name, targets="attention")
        fill(tuned, name, seed=rank)
        expected[name] = outputs(tuned)
    put_into(tuned, state)
    for name in names:
        saved = pretrained.save_adapter(tuned, folder / name, name=name)
        again = LanguageModel.from_variant("tiny", 31, padding_id=-1)
        again.build((None, None))
        again.set_weights(plain.get_weights())
        pretrained.load_adapter(again, saved)
        np.testing.assert_allclose(outputs(again), expected[name], atol=1e-5)


@pytest.mark.parametrize("state", ["active", "merged", "none"])
def test_lists_of_weights_give_the_same_outputs_or_are_refused(state):
    """Of `get_weights`: the alpha comes along; a model in another state of merging refuses them."""
    model = with_adapters("our layers", "two adapters", state)
    for other in STATES:
        again = with_adapters("our layers", "two adapters", other, seed=9, alphas=(5, 11))
        if (state == "merged") != (other == "merged"):
            with pytest.raises(ValueError, match="weight list of length"):
                again.set_weights(model.get_weights())
            continue
        again.set_weights(model.get_weights())
        np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)
        if state == other == "active":
            assert adapters_of(again)["a/1"] == adapters_of(model)["a/1"]
            merge(again)
            np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-5)


SEVERAL_CASES = {
    f"{state}-{ending}-{origin}": (state, ending, origin)
    for state in ("active", "merged")
    for ending in FILES
    for origin in ORIGINS
}


def with_several(origin, state, active, seed=0):
    """A model with three adapters, of which several are active or merged."""
    keras.utils.set_random_seed(5)
    model = ORIGINS[origin]()
    for rank, name in enumerate(("a/1", "b", "c"), 2):
        add_lora(model, rank, 3, name=name, targets=FIRST[origin], rslora=name == "b")
        fill(model, name, size=0.1, seed=seed + rank)
    set_adapter(model, active)
    if state == "merged":
        merge(model)
    return model


@pytest.mark.parametrize(
    "case",
    slow_except(
        SEVERAL_CASES,
        "active-.keras-our layers",
        "merged-.keras-a user's model",
        "active-.weights.h5-a user's layer",
        "active-.safetensors-our layers",
        "merged-adapter-our layers",
    ),
)
def test_files_know_which_adapters_are_active_and_by_which_weights(case, tmp_path):
    state, ending, origin = case
    active = {"a/1": 0.5, "c": 1.0}
    if ending == "adapter":
        if origin == "our layers":
            check_adapter_files_of_several(state, active, tmp_path)
        return
    if ending == ".safetensors" and origin in ("a user's layer", "a user's model"):
        pytest.skip("paths of layers without names are others in each model")
    model, path = with_several(origin, state, active), tmp_path / f"file{ending}"
    {".keras": model.save, ".weights.h5": model.save_weights}.get(
        ending, lambda path: saving.save_weights(model, path)
    )(path)
    expected = answers(model)
    if ending == ".keras":
        loaded = [load(path) for load in (keras.models.load_model, saving.load_model)]
    else:
        again = with_several(origin, state, active, seed=9)
        saving.load_weights(again, path)
        loaded = [again]
        others = [("merged" if state == "active" else "active", active)]
        for other in (["a/1", "c"], {"a/1": 0.25, "c": 1.0}, "c", ["a/1", "b", "c"], None):
            others += [] if state == "merged" and other is None else [(state, other)]
        for state_of_other, other in others:
            refusing = with_several(origin, state_of_other, other, seed=9)
            before = answers(refusing)
            with pytest.raises(ValueError, match="weight|active or merged"):
                saving.load_weights(refusing, path)
            np.testing.assert_array_equal(answers(refusing), before)
    for again in loaded:
        np.testing.assert_allclose(answers(again), expected, rtol=1e-5, atol=1e-4)
        assert active_adapters(again) == active
        assert is_merged(again) == (state == "merged")
        for each in (again, model):
            if is_merged(each):
                unmerge(each)
        np.testing.assert_allclose(answers(again), answers(model), rtol=1e-5, atol=1e-4)
        for name in ("b", {"b": 2.0, "c": 0.5}, None, active):
            for each in (again, model):
                set_adapter(each, name)
            np.testing.assert_allclose(answers(again), answers(model), rtol=1e-5, atol=1e-4)


def check_adapter_files_of_several(state, active, folder):
    """Each adapter has its own file; the active ones stay active."""
    keras.utils.set_random_seed(5)
    plain, tuned = (LanguageModel.from_variant("tiny", 31, padding_id=-1) for _ in range(2))
    for model in (plain, tuned):
        model.build((None, None))
    tuned.set_weights(plain.get_weights())
    for rank, name in enumerate(("a/1", "b", "c"), 2):
        train = "norm" if name == "c" else ()
        add_lora(tuned, rank, 3, name=name, targets="attention", train=train)
        fill(tuned, name, seed=rank)
    set_adapter(tuned, active)
    if state == "merged":
        merge(tuned)
    expected = outputs(tuned)
    for name in ("a/1", "b", "c"):
        if state == "merged" and name == "c":
            with pytest.raises(ValueError, match="merged into the kernels"):
                pretrained.save_adapter(tuned, folder / name, name=name)
            unmerge(tuned)
        pretrained.load_adapter(plain, pretrained.save_adapter(tuned, folder / name, name=name),
                                name=name)  # fmt: skip
    assert active_adapters(tuned) == active
    np.testing.assert_allclose(outputs(tuned), expected, atol=1e-5)
    set_adapter(plain, active)
    np.testing.assert_allclose(outputs(plain), expected, atol=1e-5)


def test_lists_of_weights_have_the_factors_of_several_active_adapters():
    active = {"a/1": 0.5, "c": 1.0}
    model = with_several("our layers", "active", active)
    again = with_several("our layers", "active", active, seed=9)
    again.set_weights(model.get_weights())
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-6)
    for each in (again, model):
        merge(each)
    np.testing.assert_allclose(outputs(again), outputs(model), atol=1e-5)
    for other in ("c", None):
        refusing = with_several("our layers", "active", other)
        unmerged = with_several("our layers", "active", active)
        with pytest.raises(ValueError, match="weight list of length"):
            refusing.set_weights(unmerged.get_weights())
