"""Claims about the callbacks, in compiled training."""

import keras
import numpy as np
import pytest

from keras_transformers.training import (
    CheckpointAverage,
    Throughput,
    TranslationScores,
    score_translations,
)

SOURCES = ["ein Haus", "ein Baum am Fluss", "der Hund schläft heute lange", "guten Tag"]
REFERENCES = ["a house", "a tree by the river", "the dog sleeps long today", "good day"]
X = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
Y = X @ np.array([[1.0], [-2.0], [3.0]], "float32")


def fit(callbacks, epochs=4, model=None, **kwargs):
    """Trains a small model, compiled by XLA; returns it and its history."""
    if model is None:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=True)
    history = model.fit(
        X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks, **kwargs
    )
    return model, history.history


class Snapshots(keras.callbacks.Callback):
    """All weights after each epoch."""

    def on_train_begin(self, logs=None):
        self.weights = []

    def on_epoch_end(self, epoch, logs=None):
        self.weights.append([np.array(weight) for weight in self.model.get_weights()])


def improving_translator():
    """A translator that gets one sentence more right each time it is asked."""
    calls = []

    def translate(sources):
        calls.append(list(sources))
        good = len(calls)
        return REFERENCES[:good] + ["nothing"] * (len(sources) - good)

    return translate, calls


def test_scores_are_sacrebleus():
    from sacrebleu import corpus_bleu, corpus_chrf

    translations = ["a house", "a tree at a river", "the dog sleeps", "good day"]
    bleu, chrf, signature = score_translations(translations, REFERENCES)
    assert bleu == corpus_bleu(translations, [REFERENCES]).score
    assert chrf == corpus_chrf(translations, [REFERENCES]).score
    assert "tok:13a" in signature
    assert "version:" in signature


def test_scores_stand_in_the_history_of_each_epoch():
    translate, calls = improving_translator()
    _, history = fit([TranslationScores(translate, SOURCES, REFERENCES)])
    assert calls == [SOURCES] * 4
    for name in ("val_bleu", "val_chrf"):
        assert history[name] == sorted(history[name])
        assert history[name][-1] == pytest.approx(100)


def test_checkpoint_keeps_the_epoch_of_the_best_score(tmp_path):
    answers = iter([1, 4, 2, 3])  # right sentences after each epoch

    def translate(sources):
        good = next(answers)
        return REFERENCES[:good] + ["nothing"] * (len(sources) - good)

    snapshots, path = Snapshots(), tmp_path / "best.keras"
    checkpoint = keras.callbacks.ModelCheckpoint(
        path, monitor="val_bleu", mode="max", save_best_only=True
    )
    fit([TranslationScores(translate, SOURCES, REFERENCES), checkpoint, snapshots])
    best = keras.models.load_model(path).get_weights()
    np.testing.assert_array_equal(best[0], snapshots.weights[1][0])


def test_early_stopping_sees_the_score():
    scores = TranslationScores(lambda sources: REFERENCES, SOURCES, REFERENCES)
    stopping = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2)
    _, history = fit([scores, stopping], epochs=9)
    assert len(history["val_bleu"]) == 3


def test_skipped_epochs_are_never_the_best(tmp_path):
    answers = iter([4, 1, 1])
    snapshots, path = Snapshots(), tmp_path / "best.keras"

    def translate(sources):
        good = next(answers)
        return REFERENCES[:good] + ["nothing"] * (len(sources) - good)

    checkpoint = keras.callbacks.ModelCheckpoint(
        path, monitor="val_bleu", mode="max", save_best_only=True
    )
    stopping = keras.callbacks.EarlyStopping(
        "val_bleu", mode="max", patience=9, restore_best_weights=True
    )
    scores = TranslationScores(translate, SOURCES, REFERENCES, every=2)
    model, _ = fit([scores, checkpoint, stopping, snapshots], epochs=5)
    best = snapshots.weights[1][0]  # the first epoch has no score, the second the best
    np.testing.assert_array_equal(keras.models.load_model(path).get_weights()[0], best)
    np.testing.assert_array_equal(model.get_weights()[0], best)


def test_translating_with_the_model_itself_leaves_training_alone():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

    def translate(sources):
        model.predict(X, verbose=0)
        return REFERENCES

    _, plain = fit([])
    _, scored = fit([TranslationScores(translate, SOURCES, REFERENCES)], model=model)
    assert scored["loss"] == plain["loss"]


@pytest.mark.parametrize(("sources", "references"), [([], []), (["a"], ["a", "b"])])
def test_lists_that_do_not_fit_are_refused(sources, references):
    with pytest.raises(ValueError, match="TranslationScores: `sources` and `references`.*Received"):
        TranslationScores(list, sources, references)


@pytest.mark.parametrize(("last", "epochs"), [(2, 4), (3, 5), (5, 3), (1, 3)])
def test_trained_model_is_the_mean_of_the_last_epochs(last, epochs):
    snapshots = Snapshots()
    model, _ = fit([snapshots, CheckpointAverage(last)], epochs)
    for index, weight in enumerate(model.get_weights()):
        copies = [np.asarray(copy[index], "float64") for copy in snapshots.weights[-last:]]
        np.testing.assert_allclose(weight, np.mean(copies, axis=0), rtol=1e-6)


def test_averaging_does_not_disturb_training():
    _, plain = fit([])
    _, averaged = fit([CheckpointAverage(2)])
    assert averaged["loss"] == plain["loss"]


def test_the_best_epochs_can_be_averaged_instead_of_the_last():
    answers = iter([1, 4, 2, 3])

    def translate(sources):
        good = next(answers)
        return REFERENCES[:good] + ["nothing"] * (len(sources) - good)

    snapshots = Snapshots()
    scores = TranslationScores(translate, SOURCES, REFERENCES)
    average = CheckpointAverage(2, monitor="val_bleu", mode="max")
    model, _ = fit([scores, average, snapshots])
    expected = (snapshots.weights[1][0] + snapshots.weights[3][0]) / 2  # 4 and 3 right
    np.testing.assert_allclose(model.get_weights()[0], expected, rtol=1e-6)


def test_low_precision_weights_are_not_summed_in_low_precision():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, dtype="bfloat16")])
    snapshots = Snapshots()
    model, _ = fit([snapshots, CheckpointAverage(3)], model=model)
    copies = [np.asarray(copy[0], "float64") for copy in snapshots.weights[-3:]]
    kernel = np.asarray(model.get_weights()[0], "float64")
    np.testing.assert_allclose(kernel, np.mean(copies, axis=0), rtol=2**-8)  # one rounding


@pytest.mark.parametrize("arguments", [{"last": 0}, {"mode": "best"}])
def test_impossible_averages_are_refused(arguments):
    with pytest.raises(ValueError, match="CheckpointAverage: `last`.*Received"):
        CheckpointAverage(**arguments)


def test_skipped_epochs_have_no_score_of_another_epoch():
    translate, calls = improving_translator()
    _, history = fit([TranslationScores(translate, SOURCES, REFERENCES, every=3)], epochs=5)
    scored = np.isfinite(history["val_bleu"])
    np.testing.assert_array_equal(scored, [False, False, True, False, True])  # third and last
    assert len(calls) == 2


def test_scorings_without_a_number_of_epochs_take_a_tenth_of_the_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def translate(sources):
        clock[0] += 2.0
        return REFERENCES

    scores = TranslationScores(translate, SOURCES, REFERENCES, every=None)
    scores.set_params({"epochs": 40})
    scored = []
    for epoch in range(40):
        clock[0] += 1.0
        logs = {}
        scores.on_epoch_end(epoch, logs)
        scored += [epoch] if np.isfinite(logs["val_bleu"]) else []
    assert scored == [0, 18, 36, 39]  # the first, each after 18 seconds of training, the last


def test_a_second_fit_does_not_carry_scores_of_the_first():
    translate, calls = improving_translator()
    scores = TranslationScores(translate, SOURCES, REFERENCES, every=9)
    model, _ = fit([scores], epochs=1)
    fit([scores], epochs=1, model=model)
    assert len(calls) == 2


def test_examples_and_signature_are_kept():
    scores = TranslationScores(lambda _: REFERENCES, SOURCES, REFERENCES, prefix="test_")
    _, history = fit([scores], epochs=1)
    assert scores.examples[0] == (SOURCES[0], REFERENCES[0], REFERENCES[0])
    assert "tok:13a" in scores.signature
    assert history["test_bleu"][0] == pytest.approx(100)


def test_a_translator_that_loses_sentences_is_refused():
    with pytest.raises(ValueError, match="`translate` must return 4 translations. Received: 1"):
        fit([TranslationScores(lambda _: ["one"], SOURCES, REFERENCES)])


def test_average_can_be_undone():
    snapshots, average = Snapshots(), CheckpointAverage(3)
    model, _ = fit([snapshots, average])
    average.restore()
    np.testing.assert_array_equal(model.get_weights()[0], snapshots.weights[-1][0])


def test_every_other_epoch_can_be_averaged():
    snapshots = Snapshots()
    model, _ = fit([snapshots, CheckpointAverage(2, every=2)])
    expected = (snapshots.weights[1][0] + snapshots.weights[3][0]) / 2
    np.testing.assert_allclose(model.get_weights()[0], expected, rtol=1e-6)


def test_throughput_counts_the_tokens_of_the_steps_that_were_made():
    class StopInSecondEpoch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = self.epoch == 1

    throughput = Throughput(tokens_per_epoch=300)  # in three steps
    tokens, spent = [], 0.0

    class Count(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            nonlocal spent
            tokens.append(logs["tokens_per_second"] * (throughput.seconds - spent))
            spent = throughput.seconds

    fit([throughput, Count(), StopInSecondEpoch()], epochs=3)
    np.testing.assert_allclose(tokens, [300, 100])


@pytest.mark.parametrize("arguments", [{}, {"last": 2, "every": 3}, {"monitor": "loss"}])
@pytest.mark.parametrize("scaled", [False, True])
def test_beside_a_moving_average_the_weights_of_the_last_step_come_back(arguments, scaled):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.9)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse")
    snapshots, average = Snapshots(), CheckpointAverage(**arguments)
    model.fit(X, Y, 4, epochs=4, shuffle=False, verbose=0, callbacks=[snapshots, average])
    if arguments == {}:
        expected = np.mean([weights[0] for weights in snapshots.weights], 0, "float64")
        np.testing.assert_allclose(model.get_weights()[0], expected, rtol=1e-6)
    average.restore()
    np.testing.assert_array_equal(model.get_weights()[0], snapshots.weights[-1][0])
