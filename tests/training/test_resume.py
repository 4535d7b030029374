"""Claims about a run that is stopped and goes on: the same weights to the bit, the same history."""

import errno
import os
import signal
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_transformers import layers, streams
from keras_transformers.training import (
    AdamW,
    BudgetedDecay,
    CheckpointAverage,
    ExactResume,
    Muon,
    add_lora,
    checkpoints,
)
from keras_transformers.training.checkpoints import Checkpoints
from tests.interruption import Kill, Killed

STEPS, EPOCHS = 5, 4
RNG = np.random.default_rng(0)
IDS = RNG.integers(1, 13, (37, 7)).astype("int32")
LABELS = (IDS.sum(axis=1) % 3).astype("int32")


def make(epoch):
    positions = streams.orders(len(IDS), 7, seed=3, epoch=epoch)
    return positions.map(lambda i: (tf.gather(IDS, i), tf.gather(LABELS, i)))


def new_model(optimizer="adamw", policy="float32"):
    ids = keras.Input((7,), dtype="int32")
    x = keras.layers.Embedding(13, 12, dtype=policy)(ids)
    x = layers.EncoderBlock(3, 23, dropout=0.3, dtype=policy)(x)
    x = keras.layers.GlobalAveragePooling1D(dtype=policy)(x)
    model = keras.Model(ids, keras.layers.Dense(3, dtype="float32")(x))
    options = {"weight_decay": 0.01, "global_clipnorm": 1.0}
    options |= {"use_ema": True, "ema_momentum": 0.9, "gradient_accumulation_steps": 2}
    chosen = {"adamw": AdamW, "muon": Muon}[optimizer](1e-2, **options)
    if policy == "mixed_float16":
        chosen = keras.optimizers.LossScaleOptimizer(chosen, dynamic_growth_steps=3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(chosen, loss, metrics=["accuracy"], jit_compile=True)
    return model


def adapted_model():
    """One that trains an adapter with dropout, and its head."""
    model = new_model()
    add_lora(model, 2, dropout=0.2, train=model.layers[-1].name)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(AdamW(1e-2, use_ema=True), loss, metrics=["accuracy"], jit_compile=True)
    return model


def plain_model(per_execution=1, policy="float32", optimizer=None):
    """One that is quick to build, and draws nothing."""
    embedding = keras.layers.Embedding(13, 4, dtype=policy)
    model = keras.Sequential([keras.Input((7,), dtype="int32"), embedding])
    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(3))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        optimizer or keras.optimizers.Adam(use_ema=True),
        loss,
        jit_compile=False,
        steps_per_execution=per_execution,
    )
    return model


def watchers():
    return [
        BudgetedDecay(1e-2, warmup_steps=3, steps=STEPS * EPOCHS),
        keras.callbacks.SwapEMAWeights(),
        CheckpointAverage(last=2),
        keras.callbacks.EarlyStopping("val_loss", patience=9, restore_best_weights=True),
    ]


def fit(folder, kill_after=None, model=new_model, extra=(), seed=5, **options):
    """A run from the beginning, or from what is in the folder: the model and its history."""
    keras.utils.set_random_seed(seed)
    model = model()
    resume = ExactResume(folder, **{"every_minutes": None, "every_steps": 3, **options})
    kill = Kill(kill_after or -1)
    history = model.fit(
        streams.epochs(make, STEPS, resume.start),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        initial_epoch=resume.start[0],
        validation_data=(IDS[:9], LABELS[:9]),
        callbacks=resume.after([*watchers(), kill, *extra]),
        verbose=0,
    ).history
    history.pop("seconds")
    return model, history


def state(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(keras.ops.convert_to_numpy(variable)) for variable in variables]


def check_same(one, other):
    for value, expected in zip(state(one), state(other), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return fit(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    "kill_after", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (5, 8, 10, 14, 19))]
)
def test_a_run_killed_at_any_step_ends_as_if_it_had_not_been(uninterrupted, tmp_path, kill_after):
    with pytest.raises(Killed):
        fit(tmp_path, kill_after)
    model, history = fit(tmp_path, seed=99)  # from which nothing follows any more
    check_same(model, uninterrupted[0])
    assert history == uninterrupted[1]


@pytest.mark.slow
def test_a_run_that_trains_an_adapter_ends_as_if_it_had_not_been_killed(tmp_path):
    expected, history = fit(tmp_path / "whole", model=adapted_model)
    with pytest.raises(Killed):
        fit(tmp_path / "killed", 8, model=adapted_model)
    model, again = fit(tmp_path / "killed", seed=99, model=adapted_model)
    check_same(model, expected)
    assert again == history


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "policy"),
    [("muon", "float32"), ("adamw", "mixed_float16"), ("muon", "mixed_bfloat16")],
)
def test_every_optimizer_and_precision_is_resumed(tmp_path, optimizer, policy):
    def new():
        return new_model(optimizer, policy)

    expected, _ = fit(tmp_path / "whole", model=new)
    with pytest.raises(Killed):
        fit(tmp_path / "killed", 11, model=new)
    model, _ = fit(tmp_path / "killed", model=new, seed=99)
    check_same(model, expected)


@pytest.mark.parametrize(
    ("kill_after", "every"), [(3, 4), *(pytest.param(*c, marks=pytest.mark.slow) for c in
    [(2, 3), (5, 4), (7, 4), (8, 5)])]
)  # fmt: skip
def test_executions_of_several_steps_are_resumed(tmp_path, kill_after, every):
    """Killed after some executions of two steps; epochs of six, checkpoints at any step."""

    def fit_six(folder, kill_after=None, per_execution=2):
        keras.utils.set_random_seed(5)
        model = plain_model(per_execution, optimizer=AdamW(0.0, gradient_accumulation_steps=3))
        resume = ExactResume(folder, every_minutes=None, every_steps=every)
        budget = BudgetedDecay(0.1, warmup_steps=2, steps=8)
        history = model.fit(
            streams.epochs(make, 6, resume.start),
            steps_per_epoch=6,
            epochs=4,
            initial_epoch=resume.start[0],
            callbacks=resume.after([budget, Kill(kill_after or -1)]),
            verbose=0,
        ).history
        history.pop("seconds")
        return model, history

    expected, history = fit_six(tmp_path / "whole")
    with pytest.raises(Killed):
        fit_six(tmp_path / "killed", kill_after)
    with pytest.raises(ValueError, match="needs `compile.steps_per_execution=2.*Received: .*=3"):
        fit_six(tmp_path / "killed", per_execution=3)
    model, again = fit_six(tmp_path / "killed")
    check_same(model, expected)
    assert again == history


def test_executions_that_do_not_divide_an_epoch_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must divide `steps_per_epoch`.*=2, steps_per_epoch=5"):
        fit(tmp_path, model=lambda: plain_model(2))


def test_variables_of_16_bits_are_resumed_with_what_rounding_took(tmp_path):
    def new():
        return plain_model(policy="bfloat16", optimizer=AdamW(0.0))

    def fit_plainly(folder, kill_after=None):
        keras.utils.set_random_seed(5)
        model = new()
        resume = ExactResume(folder, every_minutes=None, every_steps=3)
        budget = BudgetedDecay(1e-3, steps=STEPS * EPOCHS)
        model.fit(
            streams.epochs(make, STEPS, resume.start),
            steps_per_epoch=STEPS,
            epochs=EPOCHS,
            initial_epoch=resume.start[0],
            callbacks=resume.after([budget, Kill(kill_after or -1)]),
            verbose=0,
        )
        return model

    expected = fit_plainly(tmp_path / "whole")
    with pytest.raises(Killed):
        fit_plainly(tmp_path / "killed", 8)
    check_same(fit_plainly(tmp_path / "killed"), expected)


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_checkpoint_and_ends_the_run(tmp_path, kind):
    class Terminate(Kill):
        def on_train_batch_end(self, batch, logs=None):
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), kind)

    handler = signal.getsignal(kind)
    ends = SystemExit if kind == signal.SIGTERM else KeyboardInterrupt
    with pytest.raises(ends) as ended:
        fit(tmp_path / "ended", model=plain_model, extra=[Terminate(8)], every_steps=100)
    assert getattr(ended.value, "code", 143) == 143
    assert signal.getsignal(kind) == handler
    state, _ = Checkpoints(tmp_path / "ended").newest()
    assert state["made"] == [1, 4]  # after the next step
    model, _ = fit(tmp_path / "ended", model=plain_model, extra=[Terminate(-1)])
    expected, _ = fit(tmp_path / "whole", model=plain_model, extra=[Terminate(-1)])
    check_same(model, expected)


def test_sigterm_in_validation_ends_at_once(tmp_path):
    class Terminate(Kill):
        def on_test_begin(self, logs=None):
            os.kill(os.getpid(), signal.SIGTERM)

        def on_test_end(self, logs=None):
            raise AssertionError("validation went on")

    with pytest.raises(SystemExit):
        fit(tmp_path, model=plain_model, extra=[Terminate(-1)], every_steps=100)
    assert Checkpoints(tmp_path).newest()[0]["made"] == [0, STEPS]


def test_a_signal_during_the_last_checkpoint_of_an_epoch_ends_the_run_in_validation(
    tmp_path, monkeypatch
):
    write = Checkpoints.write

    def write_and_signal(self, number, *arguments):
        write(self, number, *arguments)
        if number == STEPS:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Checkpoints, "write", write_and_signal)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, model=plain_model, extra=[Kill(STEPS + 1)], every_steps=1)
    assert Checkpoints(tmp_path).newest()[0]["made"] == [0, STEPS]


def test_a_signal_whose_exception_is_lost_ends_the_run_at_the_next_chance(tmp_path):
    class Lost:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    class Lose(Kill):
        def on_test_begin(self, logs=None):
            with warnings.catch_warnings():  # pytest's, of an exception that could not be raised
                warnings.simplefilter("ignore")
                Lost()

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, model=plain_model, extra=[Lose(-1)], every_steps=100)
    assert Checkpoints(tmp_path).newest()[0]["made"] == [0, STEPS]


def test_a_checkpoint_is_of_one_identity(tmp_path):
    identity = {"run": "a", "data": {"train": 1}}
    with pytest.raises(Killed):
        fit(tmp_path, model=plain_model, extra=[Kill(5)], identity=identity)
    message = r"is of a run with another data, train\. There: 1\. Received: 2"
    with pytest.raises(ValueError, match=message):
        ExactResume(tmp_path, identity={"run": "a", "data": {"train": 2}})
    assert ExactResume(tmp_path, identity=identity).start == (0, 2)
    assert ExactResume(tmp_path).start == (0, 2)


def test_a_number_that_is_not_finite_ends_the_run_and_is_not_written(tmp_path):
    class Poison(Kill):
        def on_train_batch_end(self, batch, logs=None):
            self.left -= 1
            if self.left == 0:
                kernel = self.model.layers[-1].kernel
                kernel.assign(kernel * np.nan)

    with pytest.raises(FloatingPointError, match="After step 4 of epoch 2, .* hold NaN"):
        fit(tmp_path, model=plain_model, extra=[Poison(7)])
    state, arrays = Checkpoints(tmp_path).newest()
    assert state["made"] == [1, 1]
    assert np.isfinite(arrays["trainable.0"]).all()


def test_a_full_disk_ends_the_run_with_a_sentence_and_keeps_what_was(tmp_path, monkeypatch):
    write = checkpoints._write_through

    def fill(path, data):
        if len(list(tmp_path.glob("step-*"))) == 2:
            write(path, data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(checkpoints, "_write_through", fill)
    with pytest.raises(OSError, match="The disk is full: .* step-000000000006 before it is whole"):
        fit(tmp_path, model=plain_model)
    assert [path.name[-2:] for path in sorted(tmp_path.iterdir())] == ["03", "06"]
    assert Checkpoints(tmp_path).newest()[0]["total"] == 6


def test_a_checkpoint_of_another_model_is_refused_before_anything_is_changed(tmp_path):
    with pytest.raises(Killed):
        fit(tmp_path, 4, plain_model)

    def other():
        model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(3)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    with pytest.raises(ValueError, match="must have 2 trainable variables. Received: 3"):
        fit(tmp_path, model=other)


def test_checkpoints_are_not_written_over_by_a_run_that_does_not_resume(tmp_path):
    with pytest.raises(Killed):
        fit(tmp_path, 4, plain_model)
    with pytest.raises(ValueError, match="holds checkpoints of a run. Resume it"):
        ExactResume(tmp_path, resume=False)


def test_another_number_of_cores_is_said(tmp_path, monkeypatch, capsys):
    with pytest.raises(Killed):
        fit(tmp_path, 4, plain_model)
    monkeypatch.setattr(checkpoints, "available_cores", lambda: 977)
    fit(tmp_path, model=plain_model)
    assert "cores, now on 977, which round" in capsys.readouterr().out


def test_what_fit_needs_is_said(tmp_path):
    resume = ExactResume(tmp_path)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="callbacks=resume.after"):
        model.fit(np.ones((2, 1)), np.ones((2, 1)), callbacks=[resume], verbose=0)
    with pytest.raises(ValueError, match="must be positive or None. Received: every_minutes=0"):
        ExactResume(tmp_path, every_minutes=0)
