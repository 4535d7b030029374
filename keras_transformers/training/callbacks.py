"""Callbacks of `model.fit`: checkpoint averaging, speed, and experiment trackers."""

import collections
import importlib.util
import json
import math
import pathlib
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import keras
import numpy as np

from keras_transformers.core.backend import EventFiles
from keras_transformers.core.types import Array, StrPath
from keras_transformers.training.schedules import unscaled_optimizer


class CheckpointAverage(keras.callbacks.Callback):
    """Sets the model, when training ends, to the mean of its weights after the last epochs.

    Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762, section 6.1) average the last 5
    checkpoints. The copies are kept in the host's memory; the mean is taken in float64 and cast
    back. Counters and seeds are not averaged: they keep their last value. With
    `use_ema=True` of the optimizer, the weights of the steps are averaged and restored, not their
    moving average.

    Args:
        last: Number of epochs to average.
        monitor: Optional name in the logs; then the best `last` epochs count instead of the last.
            Epochs where it is missing or not finite are passed over.
        mode: "max" or "min", what is best for `monitor`.
        every: Epochs from one copy to the next.

    Raises:
        ValueError: If `last` or `every` is not positive or `mode` unknown.

    Example:
    >>> import keras, numpy as np
    >>> from keras_transformers.training import CheckpointAverage
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x = np.ones((4, 2), "float32")
    >>> average = CheckpointAverage(last=2)
    >>> history = model.fit(x, x[:, :1], epochs=3, verbose=0, callbacks=[average])
    >>> average.restore()  # back to the weights of the last step, to compare
    """

    def __init__(
        self,
        last: int = 5,
        monitor: str | None = None,
        mode: Literal["max", "min"] = "max",
        every: int = 1,
    ) -> None:
        super().__init__()
        if last < 1 or every < 1 or mode not in ("max", "min"):
            raise ValueError(
                'CheckpointAverage: `last` and `every` must be positive and `mode` "max" or "min". '
                f"Received: last={last}, every={every}, mode={mode!r}"
            )
        self.last = last
        self.monitor = monitor
        self.every = every
        self.sign = 1 if mode == "max" else -1
        self.kept: collections.deque[tuple[float, list[Array]]] = collections.deque()  # ranked
        self._unaveraged: list[Array] | None = None
        self._before_ema: list[Array] | None = None  # weights of the last step

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.kept.clear()
        self._unaveraged = self._before_ema = None

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # Keras replaces the weights by their averages before `on_train_end`.
        if getattr(unscaled_optimizer(self.model), "use_ema", False):
            self._before_ema = self._copy_floats()
        if (epoch + 1) % self.every:
            return
        rank = epoch
        if self.monitor is not None:
            rank = self.sign * (logs or {}).get(self.monitor, math.nan)
        if not math.isfinite(rank):
            return
        self.kept.append((rank, self._copy_floats()))
        if len(self.kept) > self.last:
            del self.kept[int(np.argmin([rank for rank, _ in self.kept]))]

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self.apply()
        self.kept.clear()
        self._before_ema = None

    def apply(self) -> None:
        """Sets the model to the mean of the copies; called when training ends."""
        if not self.kept:
            return
        self._unaveraged = self._before_ema or self._copy_floats()
        copies = zip(*(weights for _, weights in self.kept), strict=True)
        self._assign([np.mean(copy, axis=0, dtype="float64") for copy in copies])

    def restore(self) -> None:
        """Sets the model back to what it was before `apply`."""
        if self._unaveraged is not None:
            self._assign(self._unaveraged)

    def _floats(self) -> list[keras.Variable]:
        return [v for v in self.model.weights if keras.backend.is_float_dtype(v.dtype)]

    def _copy_floats(self) -> list[Array]:
        # A copy: on a CPU, JAX and TensorFlow may hand out views of the live buffers.
        return [np.array(keras.ops.convert_to_numpy(v)) for v in self._floats()]

    def _assign(self, values: Iterable[Array]) -> None:
        for variable, value in zip(self._floats(), values, strict=True):
            variable.assign(value.astype(variable.dtype))


class Throughput(keras.callbacks.Callback):
    """Measures real target tokens per second of training; validation and scoring not counted.

    Puts `tokens_per_second` into the epoch's logs and sums up `seconds` of training. The first
    epoch holds compilation; an epoch that is stopped early counts with the steps it made.

    Args:
        tokens_per_epoch: Number of real target tokens in a whole epoch.

    Example:
    >>> from keras_transformers.training import Throughput
    >>> Throughput(tokens_per_epoch=1000).seconds
    0.0
    """

    def __init__(self, tokens_per_epoch: int) -> None:
        super().__init__()
        self.tokens_per_epoch = tokens_per_epoch
        self.seconds = 0.0
        self.rates: list[float] = []
        self._started: float | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._started = time.perf_counter()
        self._last = self._started
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._last = time.perf_counter()
        self._steps = batch + 1

    def get_state(self) -> dict[str, Any]:
        """What was measured, for `ExactResume`, and the seconds of this epoch so far."""
        now = time.perf_counter()
        spent = now - (self._started or now)
        return {"seconds": self.seconds, "rates": list(self.rates), "spent": spent}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from what another process measured."""
        self.seconds, self.rates = state["seconds"], list(state["rates"])
        self._started = time.perf_counter() - state["spent"]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        spent = self._last - (self._started or self._last)
        self.seconds += spent
        whole = (self.params or {}).get("steps") or self._steps
        made = min(self._steps, whole)  # the last execution may have had fewer
        tokens = self.tokens_per_epoch * made / max(whole, 1)
        self.rates.append(tokens / max(spent, 1e-9))
        if logs is not None:
            logs["tokens_per_second"] = self.rates[-1]


Service = Literal["tensorboard", "wandb", "mlflow"]
RECORD = "tracking.json"


class Tracker:
    """Shows a run in TensorBoard, Weights & Biases or MLflow, its numbers after each epoch.

    A run that is resumed continues its own curves: `tracking.json` in the folder knows its id, and
    the epochs that were shown, which are not shown a second time. TensorBoard's files lie in the
    folder too; where the others keep theirs is said by their own environment variables, such as
    `WANDB_PROJECT`, `WANDB_MODE=offline`, `MLFLOW_TRACKING_URI` and `MLFLOW_EXPERIMENT_NAME`.

    Args:
        service: "tensorboard", "wandb" or "mlflow".
        folder: Of the run; made if it is missing. Its name becomes that of the run.
        config: What the run was told, a flat dict, to be shown beside it.
        resume: Whether to continue the run that the folder knows of, if there is one. Otherwise a
            new one begins, and TensorBoard's former files are removed.

    Raises:
        ValueError: If there is no such service.
        ImportError: If its package is not installed.

    Example:
    >>> import keras, numpy as np, pathlib, tempfile
    >>> from keras_transformers.training import Tracker
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, folder = np.ones((4, 2), "float32"), tempfile.mkdtemp()
    >>> tracker = Tracker("tensorboard", folder, {"learning_rate": 0.01})
    >>> callbacks = [tracker.callback()]
    >>> history = model.fit(x, x[:, :1], epochs=2, verbose=0, callbacks=callbacks)
    >>> tracker.finish({"test_loss": 0.5})
    >>> sorted(path.name for path in pathlib.Path(folder, "tensorboard").iterdir())
    ['results', 'train']
    """

    def __init__(
        self,
        service: Service,
        folder: StrPath,
        config: Mapping[str, Any] | None = None,
        resume: bool = True,
    ) -> None:
        self.check(service)
        kind, _ = SERVICES[service]
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / RECORD
        record = json.loads(self._path.read_text()) if resume and self._path.is_file() else {}
        if record.get("service") != service:  # none, or of another service
            record = {"service": service, "run": None, "epochs": {}}
        self._record = record
        self._run: Any = kind(folder, dict(config or {}), record["run"])
        record["run"] = self._run.name
        self._write()

    @staticmethod
    def check(service: str) -> None:
        """Writes nothing; raises what `Tracker` raises of a service that cannot be used."""
        if service not in SERVICES:
            raise ValueError(
                f"Tracker: `service` must be one of {', '.join(SERVICES)}. Received: {service!r}"
            )
        package = SERVICES[service][1]
        if not importlib.util.find_spec(package):
            extra = package if service == "tensorboard" else f"'keras_transformers[{service}]'"
            raise ImportError(f"{service} needs the package {package}: pip install {extra}")

    def callback(self, name: str = "") -> keras.callbacks.Callback:
        """The callback for `fit`.

        Args:
            name: Of the model, where one run fits several; it stands before the names of curves.
        """
        return _EpochsShown(self, name)

    def show(self, name: str, epoch: int, numbers: Mapping[str, float]) -> None:
        """Shows the numbers of an epoch, unless they were."""
        shown = self._record["epochs"]
        if epoch >= shown.get(name, 0):
            self._run.show(name, epoch, {k: v for k, v in numbers.items() if v != -math.inf})
            shown[name] = epoch + 1
            self._write()

    def finish(self, results: Mapping[str, Any] | None = None) -> None:
        """Shows what came of the run, such as scores on a test set, and ends it."""
        self._run.finish({k: v for k, v in (results or {}).items() if isinstance(v, int | float)})

    def _write(self) -> None:
        unfinished = self._path.with_name(f"unfinished-{RECORD}")
        unfinished.write_text(json.dumps(self._record, indent=2) + "\n")
        unfinished.replace(self._path)


class _EpochsShown(keras.callbacks.Callback):
    """Hands each epoch's numbers to a `Tracker`."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        super().__init__()
        self._tracker, self._name = tracker, name

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        numbers = {name: float(value) for name, value in (logs or {}).items()}
        optimizer: Any = self.model.optimizer
        rate = keras.ops.convert_to_numpy(optimizer.learning_rate)
        self._tracker.show(self._name, epoch, {**numbers, "learning_rate": float(rate)})


def _under(name: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}/{key}" if name else key: value for key, value in numbers.items()}


class _TensorBoard:
    """Event files with the curves that `keras.callbacks.TensorBoard` draws."""

    def __init__(self, folder: pathlib.Path, config: dict[str, Any], run: str | None) -> None:
        self._files, self.name = EventFiles(folder / "tensorboard"), "tensorboard"
        if run is None:
            shutil.rmtree(self._files.folder, ignore_errors=True)

    def show(self, name: str, epoch: int, numbers: Mapping[str, float]) -> None:
        validation = {k[4:]: v for k, v in numbers.items() if k.startswith("val_")}
        training = {k: v for k, v in numbers.items() if not k.startswith("val_")}
        for split, found in (("train", training), ("validation", validation)):
            curves = {f"epoch_{key}": value for key, value in found.items()}
            self._files.write(f"{name}/{split}".strip("/"), epoch, curves)

    def finish(self, results: Mapping[str, float]) -> None:
        self._files.write("results", 0, results)


class _WeightsAndBiases:
    """A run of wandb; its curves stand over the epoch, so that its own steps do not matter."""

    def __init__(self, folder: pathlib.Path, config: dict[str, Any], run: str | None) -> None:
        import wandb

        self.name = run or uuid.uuid4().hex[:8]
        self._run = wandb.init(
            id=self.name,
            name=folder.resolve().name,
            dir=str(folder),
            config=config,
            resume="allow",
            reinit="create_new",
        )
        self._known: set[str] = set()

    def show(self, name: str, epoch: int, numbers: Mapping[str, float]) -> None:
        if name not in self._known:
            self._known.add(name)
            self._run.define_metric(f"{name}/*".strip("/"), step_metric=f"{name}/epoch".strip("/"))
        self._run.log(_under(name, {**numbers, "epoch": epoch}))

    def finish(self, results: Mapping[str, float]) -> None:
        self._run.summary.update(dict(results))
        self._run.finish()


class _MLflow:
    """A run of MLflow, by the experiment and the server that its settings name."""

    def __init__(self, folder: pathlib.Path, config: dict[str, Any], run: str | None) -> None:
        import mlflow

        inside = mlflow.active_run() is not None
        found = mlflow.start_run(
            run_id=run, run_name=None if run else folder.resolve().name, nested=inside
        )
        self._mlflow, self.name = mlflow, found.info.run_id
        if run is None:
            mlflow.log_params(config)

    def show(self, name: str, epoch: int, numbers: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(_under(name, numbers), step=epoch, run_id=self.name)

    def finish(self, results: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(results), run_id=self.name)
        self._mlflow.end_run()


SERVICES: dict[str, tuple[Any, str]] = {  # and the package that each needs
    "tensorboard": (_TensorBoard, "tensorflow"),
    "wandb": (_WeightsAndBiases, "wandb"),
    "mlflow": (_MLflow, "mlflow"),
}
