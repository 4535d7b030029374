"""Claims about QLoRA through `load`: what of a quantised model learns, and what stays."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformers
from keras_transformers import models, training
from keras_transformers.fitting import Held
from keras_transformers.precision import in_precision
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.training.adapters import is_merged
from tests.fitting.test_fitting import PICTURE, TEXT, images, loaded, royal, sentences
from tests.pretrained import folders
from tests.slow import slow_except

ASKED = {"learning_rate": 2e-2, "batch_size": 8, "verbose": 0}
NEW = ("sentence_encoder", "text_classifier", "image_classifier")  # get a head for other classes
KINDS = (*NEW, "mask_filler", "translator", "text_generator")


def data_of(kind, folder):
    """What a kind learns from, and what it answers."""
    if kind == "image_classifier":
        return images(folder, 20), PICTURE
    if kind in NEW:
        texts = sentences(48)
        return (texts, royal(texts)), TEXT
    texts = sentences(24 if kind == "translator" else 200)
    return ((texts, texts) if kind == "translator" else texts), TEXT


def values_of(model):
    return {each.path: np.array(ops.convert_to_numpy(each)) for each in model.weights}


def assert_same(answer, other, **tolerance):
    """Answers are the same, or numbers in them as close as is said."""
    if isinstance(answer, dict):
        assert answer.keys() == other.keys()
        for key in answer:
            assert_same(answer[key], other[key], **tolerance)
    elif tolerance and isinstance(answer, float):
        assert answer == pytest.approx(other, **tolerance)
    else:
        np.testing.assert_array_equal(answer, other)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("kind", KINDS)
def test_adapters_and_a_new_head_learn_and_weights_of_few_bits_stay(kind, mode, tmp_path):
    data, raw = data_of(kind, tmp_path / "data")
    with folders.eagerly():
        predictor = loaded(kind, tmp_path / "published")
        predictor.quantize(mode)
        before = values_of(predictor.model)
        predictor.add_lora(4)
        history = predictor.fit(data, epochs=6, **ASKED)
        model = predictor.model
        scores = predictor.evaluate(data if kind == "image_classifier" else few(data))
        answer = predictor.predict(raw)
        again = keras_transformers.load(predictor.save(tmp_path / "own"))
        assert_same(again.predict(raw), answer)
    assert min(history["loss"][1:]) < history["loss"][0] and scores["rows"] > 0
    learned = {each.path for each in model.trainable_variables}
    head = {path for path in learned if "adapter" not in path}
    assert {path.split("/")[1] for path in head} == ({"head"} if kind in NEW else set())
    assert any(path.endswith("kernel") for path in head) == (kind in NEW)
    for path, value in values_of(model).items():
        if path in before and path not in head and "/head/" not in path:
            np.testing.assert_array_equal(value, before[path], err_msg=path)
    assert {each.quantization_mode for each in model._flatten_layers()} >= {mode}
    served = keras_transformers.load(predictor.export(tmp_path / "served"))
    assert_same(served.predict(raw), answer, abs=1e-5)


class Recorder(Fitted):
    """A kind whose export records whether the adapter was merged while it was written."""

    def __init__(self, model):
        super().__init__(Held(model))
        self.merged = None

    def served(self):
        return self

    def save(self, path):
        self.merged = is_merged(self.held.model)
        return path


@pytest.mark.parametrize("mode", [None, "int8"])
def test_an_export_merges_the_adapter_or_says_that_it_does_not(mode, recwarn):
    model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    model.build((None, None))
    model = model if mode is None else in_precision(model, mode)
    fitting = Recorder(model)
    fitting.export("served")
    assert fitting.merged is False
    training.add_lora(model, 2)
    before = values_of(model)
    fitting.export("served")
    messages = [str(warning.message) for warning in recwarn.list]
    warned = [text for text in messages if text.startswith("export: the adapter is not merged")]
    assert (fitting.merged, len(warned)) == ((True, 0) if mode is None else (False, 1))
    assert not is_merged(model)
    for path, value in values_of(model).items():
        np.testing.assert_array_equal(value, before[path])


def few(data):
    """The first rows."""
    return tuple(each[:4] for each in data) if isinstance(data, tuple) else data[:4]


@pytest.mark.slow
def test_in_which_order_a_model_is_quantised_adapted_and_trained(tmp_path):
    texts = sentences(24)
    data = (texts, royal(texts))
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert")
        predictor.add_lora(2)  # is made by `fit`, and so beside what is quantised meanwhile
        again = keras_transformers.load(predictor.save(tmp_path / "asked"))
        assert again.quantize() is again
        with pytest.raises(ValueError, match="must have weights in floating-point numbers"):
            again.quantize("int4")
        again.fit(data, epochs=1, **ASKED)
        model, before = again.model, values_of(again.model)
        assert training.adapters_of(model)["default"].rank == 2
        again.fit(data, epochs=1, **ASKED)  # goes on with the same adapters and head
        changed = {k for k, value in values_of(model).items() if (value != before[k]).any()}
        assert again.model is model and changed == {w.path for w in model.trainable_variables}
        with pytest.raises(ValueError, match="`transferred` .* without adapters, which would be l"):
            again.fit((texts, [label[::-1] for label in royal(texts)]), epochs=1, **ASKED)
        predictor.fit(data, epochs=1, **ASKED)
    before = values_of(predictor.model)
    predictor.export(tmp_path / "served")  # merges the adapter, and takes it out again
    for path, value in values_of(predictor.model).items():
        np.testing.assert_array_equal(value, before[path])
    with pytest.raises(ValueError, match="must have no adapters to be quantised; `training.merge`"):
        predictor.quantize()
    training.merge(predictor.model)
    with pytest.raises(ValueError, match="must have no adapters to be quantised.*remove_lora"):
        predictor.quantize()
    training.remove_lora(predictor.model)
    merged = predictor.predict(TEXT)
    predictor.quantize()
    assert_same(predictor.predict(TEXT)["probabilities"], merged["probabilities"], abs=0.03)


def test_weights_of_few_bits_are_not_trained_without_adapters(tmp_path):
    predictor = loaded("text_classifier", tmp_path / "bert")
    predictor.quantize()
    with pytest.raises(ValueError, match="fit: weights of few bits stay .*; `add_lora` first"):
        predictor.fit([("a", "b")])


def test_what_add_lora_could_not_take_is_refused_at_once(tmp_path):
    predictor = loaded("text_classifier", tmp_path / "bert")
    for options, error in (
        ({"rank": 0}, "`rank` must be a positive integer"),
        ({"dropout": 1.5}, "`dropout` in"),
    ):
        with pytest.raises(ValueError, match=error):
            predictor.add_lora(**options)
    with pytest.raises(TypeError, match="there is no option ranks. Expected: rank, alpha"):
        predictor.add_lora(ranks=3)
    assert predictor.add_lora(2) is predictor
    assert predictor.add_lora(3) is predictor  # nothing has been made of the first
    training.add_lora(predictor.model, 2)  # as `fit` does
    with pytest.raises(ValueError, match="`fit` trains the adapters that there are.*'default'"):
        predictor.add_lora(2)
    training.merge(predictor.model)
    with pytest.raises(ValueError, match="`unmerge` it first"):
        predictor.add_lora(2, name="second")


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_head_of_few_bits_is_taken_over_as_the_numbers_it_stands_for(mode):
    sizes = {"hidden_dim": 14, "num_heads": 2, "mlp_dim": 22, "num_layers": 1}
    model = models.TextEncoder(31, **sizes, max_length=11, head=models.ClassificationHead(3))
    model.build((None, None))
    few, ids = in_precision(model, mode), np.array([[5, 2, 7, 3]])
    float_head = few.transferred(head=models.ClassificationHead(3))
    assert {few.head.classes.quantization_mode, few.head.pooler.quantization_mode} == {mode}
    for layer, first in zip(
        *(each.head._flatten_layers() for each in (float_head, model)), strict=True
    ):
        if not isinstance(layer, keras.layers.Dense):
            continue
        assert layer.quantization_mode is None and layer.kernel.trainable
        kernel = ops.convert_to_numpy(first.kernel)
        np.testing.assert_allclose(
            layer.kernel, kernel, atol=np.ptp(kernel) / (8 if "4" in mode else 200)
        )
    np.testing.assert_allclose(float_head(ids), few(ids), atol=1e-6 if mode == "int4" else 0.03)
    assert float_head.transferred(head=models.ClassificationHead(5)).head.classes.kernel.shape == (
        14,
        5,
    )
    assert any(layer.quantization_mode for layer in float_head._flatten_layers())


def test_an_adapter_that_is_not_active_is_kept_in_sixteen_bits():
    model = models.LanguageModel(31, 12, num_heads=3, mlp_dim=20, num_layers=1)
    model.build((None, None))
    for name in ("one", "two"):
        training.add_lora(model, 2, targets="query", train="norm", name=name)
    training.set_adapter(model, "one")
    (layer,) = (each for each in model._flatten_layers() if each.name == "query")
    layer.adapter.assign_arrays("two", {"lora_a": np.ones((12, 2)), "lora_b": np.ones((2, 12))})
    copy = in_precision(model, "bfloat16")
    ids = np.array([[5, 2, 7, 3]])
    for each in (model, copy):
        training.set_adapter(each, "two")
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(copy(ids), "float32")), model(ids), atol=0.1
    )
    (layer,) = (each for each in copy._flatten_layers() if each.name == "query")
    np.testing.assert_array_equal(layer.adapter.arrays("two")["lora_a"], np.ones((12, 2)))


def without_name(values):
    """The same by paths without the name of the model."""
    return {path.partition("/")[2]: value for path, value in values.items()}


SIXTEEN = {
    f"{kind}-{mode}-{'adapters' if rank else 'all'}": (kind, mode, rank)
    for kind in KINDS
    for mode in ("bfloat16", "float16")
    for rank in (0, 2)
}
QUICK = ("text_classifier-bfloat16-all", "sentence_encoder-float16-adapters")


@pytest.mark.parametrize("case", slow_except(SIXTEEN, *QUICK))
def test_weights_of_sixteen_bits_are_trained_in_float32_and_stored_as_before(case, tmp_path):
    kind, mode, rank = case
    data, raw = data_of(kind, tmp_path / "data")
    predictors, histories = [], []
    with folders.eagerly():
        loaded(kind, tmp_path / "published")
        for trained_in in (mode, "float32"):
            predictor = keras_transformers.load(tmp_path / "published").quantize(mode)
            start = without_name(values_of(predictor.model))
            predictor.quantize(trained_in)
            if rank:
                predictor.add_lora(rank)
            histories.append(predictor.fit(data, epochs=2, **ASKED)["val_loss"])
            predictors.append(predictor.quantize(mode))
        answer = predictors[0].predict(raw)
        again = keras_transformers.load(predictors[0].save(tmp_path / "own"))
        assert_same(again.predict(raw), answer)
    assert histories[0] == histories[1]
    received, expected = (without_name(values_of(each.model)) for each in predictors)
    assert received.keys() == expected.keys()
    for path, value in received.items():
        np.testing.assert_array_equal(value, expected[path], err_msg=path)
    assert predictors[0].model.dtype_policy.name == mode
    same = {path for path in start if received[path].shape == start[path].shape}
    moved = {path for path in same if (received[path] != start[path]).any()}
    heads = {path for path in same if path.startswith("head/")}
    assert moved <= heads if rank else len(moved) > len(start) // 2


@pytest.mark.slow
def test_adapters_beside_sixteen_bits_are_trained_on_and_the_rest_stays(tmp_path):
    texts = sentences(24)
    data = (texts, royal(texts))
    with folders.eagerly():
        predictor = loaded("text_classifier", tmp_path / "bert").quantize("bfloat16").add_lora(2)
        predictor.fit(data, epochs=1, **ASKED)
        before = values_of(predictor.model)
        predictor.fit(data, epochs=1, **ASKED)
    after = values_of(predictor.model)
    assert training.adapters_of(predictor.model)["default"].rank == 2
    moved = {path for path, value in after.items() if (value != before[path]).any()}
    assert moved == {weight.path for weight in predictor.model.trainable_variables}
    assert all("adapter" in path or path.split("/")[1] == "head" for path in moved)
