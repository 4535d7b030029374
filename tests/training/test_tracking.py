"""Claims about runs in experiment trackers."""

import json
import pathlib
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

from keras_transformers.training import ExactResume, Tracker

tf = pytest.importorskip("tensorflow")
ROOT = pathlib.Path(__file__).parents[2]
SERVICES = ("tensorboard", "wandb", "mlflow")


class StandIn(types.ModuleType):
    """What we call of wandb and MLflow; keeps `(run, name, step, value)` of every number."""

    def __init__(self):
        super().__init__("stand_in")
        self.shown, self.runs, self.ended = [], {}, []

    def init(self, id, config, **options):  # wandb
        self.runs.setdefault(id, config)
        return types.SimpleNamespace(
            define_metric=lambda name, step_metric=None: None,
            log=lambda numbers: self._keep(id, numbers, numbers["epoch"]),
            summary={},
            finish=lambda: self.ended.append(id),
        )

    def active_run(self):  # mlflow
        return None

    def start_run(self, run_id, run_name, nested):
        run_id = run_id or f"run {len(self.runs)}"
        self.runs.setdefault(run_id, {})
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id))

    def log_params(self, config):
        self.runs[list(self.runs)[-1]] = config

    def log_metrics(self, numbers, run_id, step=0):
        self._keep(run_id, numbers, step)

    def end_run(self):
        self.ended.append(list(self.runs)[-1])

    def _keep(self, run, numbers, step):
        self.shown += [(run, name, step, value) for name, value in numbers.items()]


@pytest.fixture
def stand_ins(monkeypatch):
    """One for wandb, one for MLflow."""
    modules = StandIn(), StandIn()
    for name, module in zip(("wandb", "mlflow"), modules, strict=True):
        module.__spec__ = types.SimpleNamespace(name=name)  # `find_spec` asks for it
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def events(folder):
    """`(name, step, value)` of all event files under a folder, in the order of writing."""
    found = []
    for path in sorted(folder.rglob("events.*"), key=lambda path: path.stat().st_mtime_ns):
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):
            event = tf.compat.v1.Event.FromString(record)
            found += [(each.tag, event.step, each.simple_value) for each in event.summary.value]
    return found


class Killed(keras.callbacks.Callback):
    """Ends training when an epoch begins, as a power failure would."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


def fit(folder, trackers, killed):
    """Three epochs of four steps; checkpoints after every third step."""
    from keras_transformers import streams

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(8, 2)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)
    resume = ExactResume(folder / "checkpoints", every_minutes=None, every_steps=3)
    stop = Killed() if killed else keras.callbacks.TerminateOnNaN()
    return model.fit(
        streams.epochs(lambda epoch: rows, 4, resume.start),
        shuffle=False,
        steps_per_epoch=4,
        epochs=3,
        initial_epoch=resume.start[0],
        callbacks=[*resume.after([tracker.callback() for tracker in trackers]), stop],
        validation_data=rows,
        verbose=0,
    ).history


def test_a_killed_run_continues_its_own_curves_without_a_doubled_epoch(tmp_path, stand_ins):
    config = {"learning_rate": 0.01, "lists": [1, 2]}

    def trackers(resume):
        return [Tracker(service, tmp_path / service, config, resume) for service in SERVICES]

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, trackers(resume=False), killed=True)  # the checkpoint lies within epoch 2
    continued = trackers(resume=True)
    history = fit(tmp_path, continued, killed=False)
    for tracker in continued:
        tracker.finish({"test_loss": 0.5, "language": "de"})
    folder = tmp_path / "tensorboard" / "tensorboard"
    shown = {("epoch_loss", "loss"): events(folder / "train")}
    shown["epoch_loss", "val_loss"] = events(folder / "validation")
    assert events(folder / "results") == [("test_loss", 0, 0.5)]
    for module in stand_ins:
        (run,) = module.runs
        assert module.runs == {run: config} and module.ended == [run]
        assert {each for each, *_ in module.shown} == {run}
        found = [each for _, *each in module.shown]
        shown |= {("loss", "loss", run): found, ("val_loss", "val_loss", run): found}
    assert len(shown) == 6
    for (name, of_keras, *_), found in shown.items():
        assert [step for tag, step, _ in found if tag == name] == [0, 1, 2]
        curve = [value for tag, _, value in found if tag == name]
        np.testing.assert_allclose(curve, history[of_keras], rtol=1e-6)
    for service in SERVICES:
        record = json.loads((tmp_path / service / "tracking.json").read_text())
        assert record["epochs"] == {"": 3}


def test_models_of_one_run_have_curves_of_their_own_and_a_new_run_begins_anew(tmp_path):
    tracker = Tracker("tensorboard", tmp_path)
    for name in ("scratch-1", "scratch-2"):
        tracker.show(name, 0, {"loss": 1.0, "val_rank": float("-inf")})
    kept = tmp_path / "tensorboard"
    assert events(kept / "scratch-2") == [("epoch_loss", 0, 1.0)]
    assert not (kept / "scratch-2" / "validation").exists()
    Tracker("tensorboard", tmp_path, resume=False).show("", 0, {"loss": 2.0})
    assert events(kept) == [("epoch_loss", 0, 2.0)]


def test_an_unknown_service_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be one of tensorboard, wandb, mlflow. .*'visdom'"):
        Tracker("visdom", tmp_path)


# A process that is killed between two epochs.
BEGUN = """
import os, sys
from keras_transformers.training import Tracker
tracker = Tracker(sys.argv[1], sys.argv[2], {"rate": 0.5, "name": None}, resume=False)
tracker.show("", 0, {"loss": 2.0})
os._exit(9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("service", ["wandb", "mlflow"])
def test_the_real_packages_continue_the_run_of_a_killed_process(service, tmp_path, monkeypatch):
    package = pytest.importorskip(service)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    folder = tmp_path / "run"
    code = subprocess.run([sys.executable, "-c", BEGUN, service, str(folder)], cwd=ROOT).returncode
    assert code == 9
    tracker = Tracker(service, folder, {"rate": 0.5, "name": None})
    tracker.show("", 0, {"loss": 9.0})  # not again
    tracker.show("", 1, {"loss": 1.0})
    tracker.finish({"test_loss": 0.5})
    run = json.loads((folder / "tracking.json").read_text())["run"]
    if service == "mlflow":
        found = package.MlflowClient().get_metric_history(run, "loss")
        assert [(each.step, each.value) for each in found] == [(0, 2.0), (1, 1.0)]
        kept = package.get_run(run)
        assert kept.data.params["rate"] == "0.5" and kept.info.status == "FINISHED"
        assert kept.data.metrics["test_loss"] == 0.5
    else:
        assert len(list((folder / "wandb").glob(f"offline-run-*-{run}"))) == 2
