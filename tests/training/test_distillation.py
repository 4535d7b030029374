"""Claims about students that learn from a teacher."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformers import saving
from keras_transformers.models import LanguageModel, Transformer
from keras_transformers.training import (
    AdamW,
    CheckpointAverage,
    Distiller,
    LinearCrossEntropy,
    MaskedAccuracy,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
    add_lora,
    distillation_loss,
)
from tests.contract import to_numpy
from tests.slow import slow_except
from tests.training.test_losses import value_and_gradient

ROWS, LENGTH, WIDTH, CLASSES = 6, 5, 7, 11
ON_JAX = keras.backend.backend() == "jax"
SEVERAL = "multi_label_classification"
SPARSE = keras.losses.SparseCategoricalCrossentropy
BINARY = keras.losses.BinaryCrossentropy


def log_softmax(z):
    z = np.asarray(z, "float64")
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


def divergence(teacher, student, temperature, several=False):
    """`T^2 KL(teacher || student)` in float64."""
    teacher, student = (np.asarray(z, "float64") / temperature for z in (teacher, student))
    if several:  # each label is a softmax of itself and 0
        pairs = [np.stack([z, np.zeros_like(z)], axis=-1) for z in (teacher, student)]
        return divergence(*pairs, 1.0).mean(-1) * temperature**2
    log_p, log_q = log_softmax(teacher), log_softmax(student)
    return temperature**2 * (np.exp(log_p) * (log_p - log_q)).sum(-1)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0])
def test_the_loss_and_its_gradient_are_those_of_float64(several, temperature):
    draw = np.random.default_rng(0)
    teacher, student = draw.normal(0, 3, (2, ROWS, CLASSES)).astype("float32")
    problem = SEVERAL if several else None
    received = distillation_loss(teacher, student, temperature, problem)
    expected = divergence(teacher, student, temperature, several)
    np.testing.assert_allclose(to_numpy(received), expected, rtol=1e-4, atol=1e-5)

    def loss(labels, z):
        return ops.sum(distillation_loss(labels, z, temperature, problem))

    _, gradient = value_and_gradient(loss, teacher, student)
    if several:
        p, q = (1 / (1 + np.exp(-z.astype("float64") / temperature)) for z in (teacher, student))
        expected = temperature * (q - p) / CLASSES
    else:
        p, q = (np.exp(log_softmax(z / temperature)) for z in (teacher, student))
        expected = temperature * (q - p)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_classes_that_the_teacher_excludes_cost_nothing():
    teacher = np.array([[0.0, 1.0, -np.inf]], "float32")
    student = np.array([[1.0, 0.0, 2.0]], "float32")

    def loss(labels, z):
        return ops.sum(distillation_loss(labels, z, 1.0))

    value, gradient = value_and_gradient(loss, teacher, student)
    assert value == pytest.approx(divergence(np.maximum(teacher, -1e3), student, 1.0)[0], rel=1e-5)
    assert np.isfinite(gradient).all()


def line(classes=CLASSES, seed=0):
    """A model whose logits are its inputs times a matrix."""
    keras.utils.set_random_seed(seed)
    dense = keras.layers.Dense(classes, use_bias=False)
    return keras.Sequential([keras.Input((None, WIDTH)), dense])


def tokens(seed=0):
    """Vectors, labels whose last positions are padding, and weights of rows and of tokens."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(ROWS, LENGTH, WIDTH)).astype("float32")
    labels = draw.integers(1, CLASSES, (ROWS, LENGTH))
    for row in range(ROWS):
        labels[row, 1 + row % LENGTH :] = 0
    weights = draw.uniform(0.2, 2, (ROWS, LENGTH)).astype("float32")
    return x, labels, {"none": None, "rows": weights[:, 0], "tokens": weights}


def by_hand(teacher, student, labels, weights, alpha, temperature, smoothing):
    """Loss and its gradient by the student's logits, in float64."""
    target = (1 - smoothing) * np.eye(CLASSES)[labels] + smoothing / CLASSES
    log_p = log_softmax(student)
    hard = -(target * log_p).sum(-1)
    weights = (labels != 0) * weights
    share = weights / weights.sum()
    soft = divergence(teacher, student, temperature)
    p, q = (np.exp(log_softmax(np.asarray(z, "float64") / temperature)) for z in (teacher, student))
    change = (1 - alpha) * (np.exp(log_p) - target) + alpha * temperature * (q - p)
    return ((alpha * soft + (1 - alpha) * hard) * share).sum(), change * share[..., None]


@pytest.mark.parametrize("kind", ["none", "rows", "tokens"])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_on_sequences_is_that_of_float64(kind, compiled):
    x, labels, weights = tokens()
    teacher, student = line(seed=1), line(seed=2)
    start = [to_numpy(model.layers[0].kernel).astype("float64") for model in (teacher, student)]
    distiller = Distiller(teacher, student, alpha=0.3, temperature=3.0)
    loss = SmoothedCrossEntropy(0.1)
    distiller.compile(keras.optimizers.SGD(0.5), loss, jit_compile=compiled)
    options = {"sample_weight": weights[kind], "verbose": 0, "batch_size": ROWS}
    scored = distiller.evaluate(x, labels, **options)
    fitted = distiller.fit(x, labels, shuffle=False, **options).history["loss"][0]
    factors = {"none": 1.0, "rows": weights["rows"][:, None], "tokens": weights["tokens"]}[kind]
    logits = [x.astype("float64") @ kernel for kernel in start]
    value, change = by_hand(*logits, labels, factors, 0.3, 3.0, 0.1)
    assert scored == pytest.approx(value, rel=1e-5)
    assert fitted == pytest.approx(value, rel=1e-5)
    expected = start[1] - 0.5 * np.einsum("nlw,nlc->wc", x, change)
    np.testing.assert_allclose(to_numpy(student.layers[0].kernel), expected, atol=1e-5)
    np.testing.assert_array_equal(to_numpy(teacher.layers[0].kernel), start[0].astype("float32"))


def sure_of(kind):
    """A teacher that is given the labels beside the inputs, and is sure of them."""
    x = keras.Input((None, WIDTH) if kind == "tokens" else (WIDTH,), name="x")
    label = keras.Input((None, CLASSES) if kind == "tokens" else (CLASSES,), name="label")
    sharp = keras.layers.Lambda(lambda y: 400.0 * y - 200.0)(label)
    return keras.Model({"x": x, "label": label}, sharp)


def beside_labels(kind):
    """A student that is given the labels, too, and does not look at them."""
    x = keras.Input((None, WIDTH) if kind == "tokens" else (WIDTH,), name="x")
    label = keras.Input((None, CLASSES) if kind == "tokens" else (CLASSES,), name="label")
    keras.utils.set_random_seed(3)
    logits = keras.layers.Dense(CLASSES)(x)
    return keras.Model({"x": x, "label": label}, logits)


HARD = {
    "smoothed": ("tokens", lambda: SmoothedCrossEntropy(0.0)),
    "smoothed sum": ("tokens", lambda: SmoothedCrossEntropy(0.0, reduction="sum")),
    "smoothed, mean over all": (
        "tokens",
        lambda: SmoothedCrossEntropy(0.0, reduction="sum_over_batch_size"),
    ),
    "another ignored id": ("tokens", lambda: SmoothedCrossEntropy(0.0, ignore_id=-100)),
    "linear": ("tokens", lambda: LinearCrossEntropy(0.0)),
    "classes": ("classes", lambda: SPARSE(from_logits=True)),
    "classes in a column": ("column", lambda: SPARSE(from_logits=True)),
    "pixels": ("tokens", lambda: SPARSE(from_logits=True, ignore_class=0)),
    "pixels, sum": ("tokens", lambda: SPARSE(from_logits=True, ignore_class=0, reduction="sum")),
    "one-hot": ("one-hot", lambda: keras.losses.CategoricalCrossentropy(from_logits=True)),
    "several": ("several", lambda: BINARY(from_logits=True)),
}


def labelled(kind, loss):
    """Inputs and labels for a loss, the inputs with what the teacher is sure of."""
    x, labels, weights = tokens()
    indicators = np.eye(CLASSES, dtype="float32")[labels]
    if kind == "tokens":
        indicators[labels == 0] = np.nan if loss == "smoothed" else 0.0
        labels = np.where(labels == 0, getattr(HARD[loss][1](), "ignore_id", 0), labels)
        return {"x": x, "label": indicators}, labels, weights
    x, labels, indicators = x[:, 0], labels[:, 0], indicators[:, 0]
    if kind == "several":
        indicators = (np.random.default_rng(5).random(indicators.shape) < 0.3).astype("float32")
    inputs = {"x": x, "label": indicators}
    if kind in ("one-hot", "several"):
        labels = indicators
    elif kind == "column":
        labels = labels[:, None]
    return inputs, labels, {"none": None, "rows": weights["rows"]}


@pytest.mark.parametrize("name", slow_except([*HARD], "classes", "several"))
def test_a_teacher_that_is_sure_of_the_labels_teaches_what_they_do(name):
    kind, loss = HARD[name]
    shape = "tokens" if kind == "tokens" else "classes"
    inputs, labels, weights = labelled(kind, name)
    for weight in weights.values():
        if weight is not None and weight.ndim == 2 and name.startswith("pixels"):
            continue
        if name.startswith("pixels") and weight is not None:
            weight = np.repeat(weight[:, None], LENGTH, axis=1)
        results = []
        for alpha in (None, 0.4, 1.0):
            student = model = beside_labels(shape)
            if alpha is not None:
                model = Distiller(sure_of(shape), student, alpha, temperature=1.0)
            model.compile(keras.optimizers.SGD(0.1), loss(), jit_compile=False)
            options = {"sample_weight": weight, "batch_size": 2, "verbose": 0}
            history = model.fit(inputs, labels, epochs=2, shuffle=False, **options).history
            score = model.evaluate(inputs, labels, **options)
            results.append([*history["loss"], score, *map(to_numpy, student.weights)])
        for received in results[1:]:
            for ours, expected in zip(received, results[0], strict=True):
                np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_two_passes_of_r_drop_have_a_teacher_each():
    x, labels, _ = tokens()
    labels = np.repeat(labels[::2], 2, axis=0)
    teacher, student = line(seed=1), line(seed=2)
    distiller = Distiller(teacher, student, 0.3)
    distiller.compile("sgd", RDropCrossEntropy(2.0, 0.1))
    value = distiller.evaluate(x, labels, batch_size=ROWS, verbose=0)
    logits = [to_numpy(model(x)) for model in (teacher, student)]
    soft, _ = by_hand(*logits, labels, 1.0, 1.0, 2.0, 0.0)
    hard = float(RDropCrossEntropy(2.0, 0.1)(labels, logits[1]))
    assert value == pytest.approx(0.3 * soft + 0.7 * hard, rel=1e-5)


def test_implicit_masks_count_in_both_terms():
    """Of an embedding with `mask_zero`: as without the masked tokens."""
    ids = np.array([[3, 5, 0, 0], [2, 4, 6, 0]])
    x = keras.Input((None,), dtype="int32")

    def model(seed):
        keras.utils.set_random_seed(seed)
        y = keras.layers.Embedding(CLASSES, WIDTH, mask_zero=True)(x)
        return keras.Model(x, keras.layers.Dense(CLASSES)(y))

    values = {}
    for reduction in ("sum_over_batch_size", "sum", "mean_with_sample_weight"):
        distiller = Distiller(model(1), model(2), 0.3)
        distiller.compile("sgd", SPARSE(from_logits=True, reduction=reduction))
        values[reduction] = distiller.evaluate(ids, ids, verbose=0)
        logits = [to_numpy(each(ids)) for each in (distiller.teacher, distiller.student)]
        value, _ = by_hand(*logits, ids, 1.0, 0.3, 2.0, 0.0)
        factor = (ids != 0).sum() if reduction == "sum" else 1
        assert values[reduction] == pytest.approx(value * factor, rel=1e-4)


BLOCK = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20}
IDS = np.random.default_rng(0).integers(1, 13, (8, 6)).astype("int32")
IDS[:4, 4:] = 0


def writers(teacher_layers=2, **options):
    """A teacher and a student, language models with dropout."""
    made = []
    for seed, layers in ((1, teacher_layers), (2, 1)):
        keras.utils.set_random_seed(seed)
        made.append(LanguageModel(13, num_layers=layers, **BLOCK, **options))
        made[-1].build((None, None))
    return made


def trained(**options):
    """A distiller after an epoch."""
    teacher, student = writers(dropout=0.0)
    distiller = Distiller(teacher, student, 0.6)
    distiller.compile(AdamW(0.01), SmoothedCrossEntropy(0.1), jit_compile=True, **options)
    distiller.fit(IDS, IDS, shuffle=False, verbose=0)
    return distiller


def test_accumulated_batches_make_the_step_of_one_as_large_as_all():
    x, labels, _ = tokens()
    kernels = []
    for batch_size, accumulated in ((6, None), (2, 3)):
        teacher, student = line(seed=1), line(seed=2)
        distiller = Distiller(teacher, student, 0.6)
        optimizer = AdamW(0.01, gradient_accumulation_steps=accumulated)
        distiller.compile(optimizer, SmoothedCrossEntropy(0.1), jit_compile=True)
        labels = np.maximum(labels, 1)  # so that all batches have as many
        options = {"batch_size": batch_size, "shuffle": False, "verbose": 0}
        distiller.fit(x, labels, epochs=2, **options)
        kernels.append(to_numpy(student.layers[0].kernel))
    np.testing.assert_allclose(*kernels, atol=1e-6)


def test_the_teacher_answers_in_inference_mode_and_stays_as_it_is():
    teacher, student = writers(dropout=0.5)
    before = [to_numpy(variable) for variable in teacher.variables]
    flags = [variable.trainable for variable in teacher.variables]
    distiller = Distiller(teacher, student, 1.0)
    distiller.compile(AdamW(0.01), SmoothedCrossEntropy(0.0), metrics=[MaskedAccuracy()])
    scores = [distiller.evaluate(IDS, IDS, verbose=0) for _ in range(2)]
    assert scores[0] == scores[1]
    distiller.fit(IDS, IDS, epochs=2, verbose=0)
    for value, variable, flag in zip(before, teacher.variables, flags, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
        assert variable.trainable == flag
    assert {id(v) for v in distiller.weights} == {id(v) for v in student.weights}
    assert {id(v) for v in distiller.trainable_variables} == {
        id(v) for v in student.trainable_variables
    }
    of_teacher = {id(v) for v in teacher.variables}
    held = {id(v) for v in distiller.non_trainable_variables}
    assert (of_teacher <= held) == ON_JAX  # else they would be constants of the program


def test_packed_rows_cost_what_their_texts_cost_alone():
    teacher, student = writers(dropout=0.0)
    distiller = Distiller(teacher, student, 0.6)
    distiller.compile("sgd", SmoothedCrossEntropy(0.0), jit_compile=True)
    texts = [IDS[4, :3], IDS[5, :2], IDS[6, :6], IDS[7, :4]]
    alone = np.zeros((4, 6), "int32")
    for row, text in zip(alone, texts, strict=True):
        row[: len(text)] = text
    packed = np.zeros((2, 10), "int32")
    segments = np.zeros((2, 10), "int32")
    for row in range(2):
        start = 0
        for number, text in enumerate(texts[2 * row : 2 * row + 2], 1):
            packed[row, start : start + len(text)] = text
            segments[row, start : start + len(text)] = number
            start += len(text)
    expected = distiller.evaluate(alone, np.roll(alone, 1, axis=1) * (alone > 0), verbose=0)
    inputs, labels = {"ids": packed, "segments": segments}, np.zeros_like(packed)
    for row in range(2):
        start = 0
        for text in texts[2 * row : 2 * row + 2]:
            # Each text's labels are those that it has alone, the first of which are padding.
            shifted = np.zeros(6, "int32")
            shifted[: len(text)] = text
            labels[row, start : start + len(text)] = np.roll(shifted, 1)[: len(text)]
            start += len(text)
    assert distiller.evaluate(inputs, labels, verbose=0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_trains_and_the_loss_is_computed_in_float32(policy):
    x, labels, _ = tokens()
    teacher = line(seed=1)
    keras.config.set_dtype_policy(policy)
    try:
        student = line(seed=2)
    finally:
        keras.config.set_dtype_policy("float32")
    distiller = Distiller(teacher, student, 0.5, 3.0)
    distiller.compile(AdamW(0.02), SmoothedCrossEntropy(0.0), jit_compile=True)
    logits = [to_numpy(ops.cast(model(x), "float32")) for model in (teacher, student)]
    expected, _ = by_hand(*logits, labels, 1.0, 0.5, 3.0, 0.0)
    assert distiller.evaluate(x, labels, verbose=0) == pytest.approx(expected, rel=1e-4)
    has_scale = type(distiller.optimizer).__name__ == "LossScaleOptimizer"
    assert has_scale == (policy == "mixed_float16")
    losses = distiller.fit(x, labels, epochs=30, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_what_is_saved_is_the_student_alone(tmp_path):
    distiller = trained(metrics=[MaskedAccuracy()])
    expected = to_numpy(distiller.student(IDS))
    distiller.save(tmp_path / "model.keras")
    distiller.save_weights(tmp_path / "own.weights.h5")
    saving.save_weights(distiller.student, tmp_path / "weights.safetensors")
    checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / "best.keras")
    distiller.fit(IDS, IDS, verbose=0, callbacks=[checkpoint, CheckpointAverage(last=1)])
    for load in (keras.models.load_model, saving.load_model):
        again = load(tmp_path / "model.keras")
        assert type(again) is LanguageModel
        assert not again.compiled
        np.testing.assert_allclose(to_numpy(again(IDS)), expected, atol=1e-6)
        assert again.count_params() == distiller.student.count_params() == distiller.count_params()
    again = keras.models.load_model(tmp_path / "best.keras")
    np.testing.assert_allclose(to_numpy(again(IDS)), to_numpy(distiller.predict(IDS, verbose=0)),
                               atol=1e-5)  # fmt: skip
    distiller.load_weights(tmp_path / "own.weights.h5")
    np.testing.assert_allclose(to_numpy(distiller.student(IDS)), expected, atol=1e-6)
    with pytest.raises(ValueError, match="has no configuration.*Save its `student`"):
        keras.saving.save_model(distiller, tmp_path / "whole.keras")


def test_students_learn_from_a_teacher_what_labels_do_not_tell():
    """Handwritten digits: the student never sees a true label."""
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, labels = digits.data[order].astype("float32") / 16, digits.target[order]
    models = []
    for seed, width in ((0, 64), (1, 24)):
        keras.utils.set_random_seed(seed)
        layers = [keras.Input((64,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(10)]
        models.append(keras.Sequential(layers))
    teacher, student = models
    teacher.compile(AdamW(5e-3), SPARSE(from_logits=True), metrics=["accuracy"])
    teacher.fit(x[:700], labels[:700], epochs=15, batch_size=50, verbose=0)
    accuracy = teacher.evaluate(x[1400:], labels[1400:], verbose=0)[1]
    distiller = Distiller(teacher, student, alpha=1.0, temperature=2.0)
    distiller.compile(AdamW(5e-3), SPARSE(from_logits=True), metrics=["accuracy"])
    wrong = np.zeros(700, "int64")
    distiller.fit(x[700:1400], wrong, epochs=25, batch_size=50, verbose=0)
    learned = distiller.evaluate(x[1400:], labels[1400:], verbose=0)[1]
    assert accuracy > 0.9
    assert learned > accuracy - 0.05


@pytest.mark.slow
def test_translators_and_adapters_of_a_student_are_trained():
    keras.utils.set_random_seed(0)
    teacher, student = (Transformer(13, num_layers=n, **BLOCK) for n in (2, 1))
    inputs = {"source": IDS, "target": IDS[:, ::-1]}
    for model in (teacher, student):
        model(inputs)
    add_lora(student, 2)
    distiller = Distiller(teacher, student)
    distiller.compile(AdamW(0.02), SmoothedCrossEntropy(0.1), jit_compile=True)
    frozen = [v for v in student.variables if not v.trainable and "lora" not in v.path]
    before = [to_numpy(v) for v in frozen if "seed" not in v.path]
    losses = distiller.fit(inputs, IDS, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    after = [to_numpy(v) for v in frozen if "seed" not in v.path]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_what_cannot_be_distilled_is_refused():
    teacher, student = line(seed=1), line(seed=2)
    for options, message in (
        ({"alpha": 0.0}, "`alpha` must be in"),
        ({"alpha": 1.5}, "`alpha` must be in"),
        ({"temperature": 0.0}, "`temperature` must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            Distiller(teacher, student, **options)
    with pytest.raises(ValueError, match="`teacher` must be built.*not built"):
        Distiller(keras.Sequential([keras.layers.Dense(3)]), student)
    with pytest.raises(ValueError, match="must not share weights that are trained"):
        Distiller(student, student)
    distiller = Distiller(teacher, student)
    for loss in (
        "sparse_categorical_crossentropy",
        SPARSE(),
        None,
        keras.losses.MeanSquaredError(),
    ):
        with pytest.raises(ValueError, match="`loss` must be a cross-entropy of logits"):
            distiller.compile("sgd", loss)
    with pytest.raises(ValueError, match="`loss_weights` must be None"):
        distiller.compile("sgd", SmoothedCrossEntropy(), loss_weights=[0.5])
    x, labels, _ = tokens()
    distiller.compile("sgd", SmoothedCrossEntropy())
    with pytest.raises(ValueError, match="`class_weight` of `fit` must be None"):
        distiller.fit(x, labels, class_weight={1: 2.0}, verbose=0)
    other = Distiller(line(CLASSES + 1), line(seed=2))
    other.compile("sgd", SmoothedCrossEntropy())
    for method in (other.fit, other.evaluate):
        with pytest.raises(ValueError, match=r"same classes or tokens.*12\).*11\)"):
            method(x, labels, verbose=0)
    with pytest.raises(ValueError, match="distillation_loss: `temperature` must be positive"):
        distillation_loss(x, x, -1.0)
