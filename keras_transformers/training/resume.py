"""Exact resume: checkpoints from which a run continues with the same bits."""

import collections
import copy
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np

from keras_transformers.core.types import Array, StrPath
from keras_transformers.training import checkpoints
from keras_transformers.training.checkpoints import Checkpoints

OF_KERAS = ("params", "_model")  # set anew in every `fit`
PLAIN = (bool, int, float, str, type(None))


def read_state(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """The state of a callback: what its `get_state` gives, or all its attributes that are data.

    Data are numbers, strings, None, NumPy arrays, and lists, tuples, dicts and deques of them. The
    rest (functions, files, models) is made by whoever makes the callback.
    """
    if hasattr(callback, "get_state"):
        return dict(callback.get_state())
    data = {name: value for name, value in vars(callback).items() if name not in OF_KERAS}
    return copy.deepcopy({name: value for name, value in data.items() if _is_data(value)})


def learned(callback: keras.callbacks.Callback, before: dict[str, Any]) -> dict[str, Any]:
    """What has changed in a callback since its state was `before`: its arguments have not."""
    state = read_state(callback)
    if hasattr(callback, "get_state"):
        return state
    return {
        name: value
        for name, value in state.items()
        if name not in before or not _same(value, before[name])
    }


def write_state(
    callback: keras.callbacks.Callback, before: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Gives a callback the state that it had `before`, but for what was `learned` elsewhere."""
    if hasattr(callback, "set_state"):
        callback.set_state(changed)
    else:
        vars(callback).update(copy.deepcopy({**before, **changed}))


def encoded(value: Any, arrays: dict[str, Array]) -> Any:
    """A value as JSON can hold it; arrays are added to the dict `arrays` and named."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        name = f"callback.{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name, "scalar": isinstance(value, np.generic)}
    if type(value) is dict:
        return {"dict": [[encoded(part, arrays) for part in item] for item in value.items()]}
    longest = value.maxlen if isinstance(value, collections.deque) else None
    kind = next(kind for kind in SEQUENCES if type(value) is SEQUENCES[kind])
    return {kind: [encoded(part, arrays) for part in value], "longest": longest}


def decoded(content: Any, arrays: dict[str, Array]) -> Any:
    """The value of what `encoded` gave."""
    if not isinstance(content, dict):
        return content
    if "array" in content:
        value = np.array(arrays[content["array"]])
        return value[()] if content["scalar"] else value
    if "dict" in content:
        return {decoded(k, arrays): decoded(v, arrays) for k, v in content["dict"]}
    kind = next(kind for kind in SEQUENCES if kind in content)
    parts = [decoded(part, arrays) for part in content[kind]]
    if kind == "deque":
        return collections.deque(parts, content["longest"])
    return SEQUENCES[kind](parts)


SEQUENCES = {"list": list, "tuple": tuple, "deque": collections.deque}


def _is_data(value: Any) -> bool:
    if type(value) is dict:
        return all(_is_data(part) for item in value.items() for part in item)
    if type(value) in SEQUENCES.values():
        return all(map(_is_data, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind != "O"
    return type(value) in PLAIN


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (np.ndarray, np.generic)) or isinstance(other, (np.ndarray, np.generic)):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if type(one) in SEQUENCES.values():
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


SIGNALS = (signal.SIGTERM, signal.SIGINT)
IN_ORDER = "weights_in_order"  # of a checkpoint: as `layers.composite.ORDER`


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first value in which two nested dicts differ.

    Returns:
        Its name, those of the dicts around it before it, with both values; None of equal dicts.

    Example:
    >>> from keras_transformers.training.resume import difference
    >>> difference({"data": {"a.tsv": 1}}, {"data": {"a.tsv": 2}})
    ('data, a.tsv', 1, 2)
    """
    for name in {**then, **now}:
        before, after = then.get(name), now.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            inner = difference(before, after)
            assert inner is not None
            return f"{name}, {inner[0]}", *inner[1:]
        return name, before, after
    return None


class ExactResume(keras.callbacks.Callback):
    """Checkpoints from which `fit` resumes to the weights of a run never stopped, bit for bit.

    A checkpoint holds all variables (weights, seeds of dropout, optimizer with its moments, loss
    scale, averages and accumulators, metrics), Python's and NumPy's random states, the position in
    the data, and the state of the other callbacks. It is taken right after a step. A resumed `fit`
    starts in the checkpoint's epoch, skips the steps that were made, runs the last of them again to
    build everything, restores the checkpoint, and continues with the next batch.

    For the same weights to the bit the data must follow from the epoch's number (`streams.epochs`),
    and so must the learning rate (no budget of minutes); the library, the backend, the kind of
    machine and the number of its cores must be the same (another number is said). Randomness of
    TensorFlow's stateful ops is not kept; Keras's layers and ours have none.

    With two checkpoints kept, one that is damaged is passed over for the one before. Weights that
    are not finite are never written: the run ends with a sentence, and the last finite state stays.
    Of several hosts on JAX the first one writes, and all read: the folder must be a common one.
    SIGTERM and SIGINT (Ctrl-C) write a checkpoint after the step that runs. SIGTERM then ends the
    process with status 143; SIGINT raises KeyboardInterrupt. A second signal ends it at once.

    Args:
        folder: Where the checkpoints lie.
        every_minutes: Minutes from one checkpoint to the next, or None.
        every_steps: Steps (batches) from one to the next, or None. With `steps_per_execution` above
            1, after the execution that holds the step.
        keep: How many stay.
        resume: Whether to continue from the newest checkpoint in `folder`, if there is one.
        identity: Dict that JSON can hold, of what must not change between a checkpoint and the run
            that resumes it, for instance options and hashes of files. A checkpoint keeps it.

    Attributes:
        start: Epoch and batch that the data begin with, for `streams.epochs`; (0, 0) for a new run.

    Raises:
        ValueError: If a number is not positive; if `folder` holds checkpoints and `resume` is
            False, none of them is whole, or the newest has another `identity`; in `fit`, if the
            checkpoint is of another model or optimizer, or of other `steps_per_execution`; if these
            do not divide the number of steps, or that is not known; if the callbacks did not come
            from `after`, or several hosts share matrices.
        FloatingPointError: In `fit`, when weights or optimizer are not finite.
        KeyboardInterrupt: In `fit`, after SIGINT, when the checkpoint is written.
        OSError: In `fit`, when a checkpoint cannot be written.

    Example:
    >>> import keras, numpy as np, tempfile, tensorflow as tf
    >>> from keras_transformers import streams
    >>> from keras_transformers.training import ExactResume
    >>> model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    >>> def make(epoch):  # the batches of an epoch, in its own order
    ...     rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    ...     positions = streams.orders(32, 8, seed=1, epoch=epoch)
    ...     return positions.map(lambda i: (tf.gather(x, i), tf.gather(x[:, :1], i)))
    >>> resume = ExactResume(tempfile.mkdtemp(), every_steps=3)
    >>> history = model.fit(
    ...     streams.epochs(make, steps=4, start=resume.start),
    ...     steps_per_epoch=4,
    ...     epochs=2,
    ...     initial_epoch=resume.start[0],
    ...     callbacks=resume.after([keras.callbacks.TerminateOnNaN()]),
    ...     verbose=0,
    ... )
    >>> len(history.history["loss"])
    2
    """

    _model: keras.Model  # whose property `model` waits for JAX

    def __init__(
        self, folder: StrPath, every_minutes: float | None = 10.0, every_steps: int | None = None,
        keep: int = 2, resume: bool = True, identity: dict[str, Any] | None = None
    ) -> None:  # fmt: skip
        super().__init__()
        if any(number is not None and number <= 0 for number in (every_minutes, every_steps)):
            raise ValueError(
                "ExactResume: `every_minutes` and `every_steps` must be positive or None. "
                f"Received: every_minutes={every_minutes}, every_steps={every_steps}"
            )
        self.every_minutes = every_minutes
        self.every_steps = every_steps
        self.checkpoints = Checkpoints(folder, keep)
        self._found: Any = self.checkpoints.newest()
        if self._found and not resume:
            raise ValueError(
                f"{self.checkpoints.folder} holds checkpoints of a run. Resume it, or remove them, "
                "or write into another folder."
            )
        self.identity: dict[str, Any] = json.loads(json.dumps(identity or {}))
        self._check_identity()
        epoch, made = self._found[0]["made"] if self._found else (0, 1)
        self.start = (epoch, made - (self._of_execution() if self._found else 1))
        self._watched: list[keras.callbacks.Callback] = []
        self._working = False
        self._signal = 0  # that came, and is heeded after the step
        self._handlers: dict[int, Any] = {}
        self._steps = self._step = self._total = 0
        self._before: list[dict[str, Any]] = []
        self._pending: Any = None
        self._train: Any = None  # Keras's step

    def after(
        self, callbacks: Iterable[keras.callbacks.Callback]
    ) -> list[keras.callbacks.Callback]:
        """The list for `fit`: these callbacks, Keras's history, and this one, which watches them.

        In a resumed run they are to be made as they were, in the same order.
        """
        self._watched = [*callbacks, keras.callbacks.History()]
        return [*self._watched, self]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        steps = (self.params or {}).get("steps")
        if not self._watched or not steps:
            raise ValueError(
                "ExactResume: `fit` needs `callbacks=resume.after([...])` and `steps_per_epoch`. "
                f"Received: steps_per_epoch={steps}"
            )
        self._check_execution(steps)
        self._refuse_shares_on_other_hosts()
        self._steps, self._step = steps, 0
        self._total = self._found[0]["total"] if self._found else 0
        self._last_saved, self._pending = time.monotonic(), None
        self._before = [read_state(callback) for callback in self._watched]
        self._train = self.model.train_function
        self.model.train_function = self._watch
        if threading.current_thread() is threading.main_thread():
            self._handlers = {kind: signal.signal(kind, self._take_signal) for kind in SIGNALS}
        if self._found:
            epoch, made = self._found[0]["made"]
            print(f"Going on after step {made} of epoch {epoch + 1}.")
            then, now = self._found[0].get("cores"), checkpoints.available_cores()
            if then not in (None, now):
                print(f"It ran on {then} cores, now on {now}, which round sums in another order.")
            saved = checkpoints.stored(self._found[1], "trainable")
            if len(saved) == len(self.model.trainable_variables):
                self._assign("trainable", self.model.trainable_variables)  # for who looks at them

    def _check_identity(self) -> None:
        """ValueError if the checkpoint is of something else, as far as it says."""
        then = self._found[0].get("identity") if self._found else None
        if then and self.identity and (differs := difference(then, self.identity)):
            name, before, now = differs
            raise ValueError(
                f"ExactResume: the checkpoint in {self.checkpoints.folder} is of a run with "
                f"another {name}. There: {before}. Received: {now}"
            )

    def _of_execution(self) -> int:
        """Steps of an execution in the run that left the checkpoint."""
        steps: int = self._found[0].get("steps_per_execution", 1)
        return steps

    def _check_execution(self, steps: int) -> None:
        """ValueError if batches cannot be counted by executions, or the checkpoint had others."""
        self._per_execution = getattr(self._model, "steps_per_execution", 1)
        if steps % self._per_execution:
            raise ValueError(
                "ExactResume: `steps_per_execution` must divide `steps_per_epoch`, or Keras would "
                "take batches of the next epoch. Received: steps_per_execution="
                f"{self._per_execution}, steps_per_epoch={steps}"
            )
        if self._found and self._of_execution() != self._per_execution:
            raise ValueError(
                f"ExactResume: the checkpoint in {self.checkpoints.folder} needs "
                f"`compile(steps_per_execution={self._of_execution()})`, as in the run that left "
                f"it. Received: steps_per_execution={self._per_execution}"
            )

    def _refuse_shares_on_other_hosts(self) -> None:
        """ValueError where this host does not hold the whole model; also finds who writes."""
        distribution = keras.distribution.distribution()
        self._writes = (
            getattr(distribution, "num_processes", 1) == 1 or distribution.data_shard_id == 0
        )
        if keras.backend.backend() == "jax":
            parts = checkpoints.variables_of(self._model).values()
            values = [variable.value for part in parts for variable in part]
            if any(not (v.is_fully_replicated or v.is_fully_addressable) for v in values):
                raise ValueError(
                    "ExactResume: with several hosts each must hold the whole model, which the "
                    'first one writes. Split batches only, as with "data=8".'
                )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch, self._step, self._pending = epoch, 0, None

    # A signal that comes while a checkpoint is written waits for these; so does one whose exception
    # was lost, as Python loses those that are raised within `__del__`.
    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._leave_if_signalled()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self._leave_if_signalled()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._leave_if_signalled()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._pending:
            self._write(self._pending)
        self._leave_if_signalled()
        self._restore_step()

    def _leave_if_signalled(self) -> None:
        if self._signal:
            if self._pending:
                self._write(self._pending)
            self._leave()

    def _restore_step(self) -> None:
        """Gives `fit` its own step back."""
        self._model.train_function = self._train
        if threading.current_thread() is threading.main_thread():
            for kind, handler in self._handlers.items():
                signal.signal(kind, handler)

    # In place of Keras's step, not in `on_train_batch_end`: a callback that waits for a step's end
    # makes Keras wait for its result each time. At this point callbacks have seen its beginning.
    def _watch(self, *data: Any) -> Any:
        self._working = True
        try:
            self._step += self._per_execution
            if self._found and self._step < self._found[0]["made"][1]:
                logs = self._found[0]["logs"]
                return logs if keras.backend.backend() != "jax" else (logs, data[0])
            result = self._train(*data)
            if self._found:
                return self._restore(result)
            self._total += self._per_execution
            self._save_if_due(result)
            return result
        except BaseException:
            self._restore_step()
            raise
        finally:
            self._working = False

    def _save_if_due(self, result: Any) -> None:
        signalled = self._signal  # once: it may come while this runs, and waits for a step
        minutes = (time.monotonic() - self._last_saved) / 60
        due = self.every_minutes is not None and minutes >= self.every_minutes
        if self.every_steps is not None:
            due |= self._total % self.every_steps < self._per_execution
        due |= bool(signalled)
        ends = self._step == self._steps or self._model.stop_training
        if self._writes and (due or ends):
            # Nothing can be taken up within the validation that follows an epoch. So its end is
            # kept in memory until the next begins, for SIGTERM and for the end of training.
            self._pending = self._snapshot(result)
        if self._writes and due:
            self._write(self._pending)
        if signalled:
            self._leave()

    def _take_signal(self, kind: int, _: Any) -> None:
        if self._signal:
            os._exit(128 + kind)
        self._signal = kind
        if kind == signal.SIGINT:  # `print` must not be entered twice, as a handler may do
            os.write(2, b"\nStops after this step. Ctrl-C again ends at once.\n")
        if self._step == self._steps and not self._working:  # in validation
            self._leave_if_signalled()  # else after the next step

    def _leave(self) -> NoReturn:
        self._restore_step()
        name = signal.Signals(self._signal).name
        print(f"\nEnded by {name}; a checkpoint is in {self.checkpoints.folder}.", flush=True)
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + self._signal)

    def _write(self, pending: checkpoints.State) -> None:
        self._pending, working, self._working = None, self._working, True
        number, arrays, state = pending
        broken = checkpoints.not_finite(arrays)
        if broken:
            first, (epoch, made) = state["names"].get(broken[0], broken[0]), state["made"]
            raise FloatingPointError(
                f"After step {made} of epoch {epoch + 1}, {len(broken)} variables hold NaN or "
                f"infinity, {first} among them. Nothing was written; the last finite state is in "
                f"{self.checkpoints.folder}. Lower the learning rate, or look at the data."
            )
        self.checkpoints.write(number, arrays, state)
        self._last_saved, self._working = time.monotonic(), working

    def _snapshot(self, result: Any) -> checkpoints.State:
        """Number, arrays and state of a checkpoint of now."""
        logs, arrays, paths = checkpoints.take(self._model, result)
        state = {
            "made": [self._epoch, self._step],
            "steps_per_execution": self._per_execution,
            "stop_training": bool(self._model.stop_training),
            "identity": self.identity,
            "total": self._total,
            "cores": checkpoints.available_cores(),
            "logs": logs,
            "names": paths,
            IN_ORDER: True,
            "python": random.getstate(),
            "numpy": encoded(list(np.random.get_state()), arrays),
        }
        state["callbacks"] = [
            [type(callback).__name__, encoded(learned(callback, before), arrays)]
            for callback, before in zip(self._watched, self._before, strict=True)
        ]
        return self._total, arrays, state

    def _restore(self, result: Any) -> Any:
        """Sets everything to the checkpoint; returns what its step gave."""
        state, arrays = self._found
        self._check_callbacks(state)
        variables = checkpoints.variables_of(self._model)
        for part in variables:
            self._assign(part, variables[part])
        self._model.stop_training = state["stop_training"]
        version, internal, following = state["python"]
        random.setstate((version, tuple(internal), following))
        np.random.set_state(tuple(decoded(state["numpy"], arrays)))
        stored = [decoded(content, arrays) for _, content in state["callbacks"]]
        if IN_ORDER not in state:
            stored = [checkpoints.callbacks_of_0_2_0(self._model, each) for each in stored]
        for callback, before, changed in zip(self._watched, self._before, stored, strict=True):
            write_state(callback, before, changed)
        self._found = None
        if keras.backend.backend() != "jax":
            return state["logs"]
        return state["logs"], tuple([v.value for v in part] for part in variables.values())

    def _assign(self, part: str, variables: Sequence[keras.Variable]) -> None:
        owner = f"ExactResume: the checkpoint in {self.checkpoints.folder}"
        if IN_ORDER not in self._found[0]:
            variables = checkpoints.in_order_of_0_2_0(self._model, variables)
        checkpoints.assign(self._found[1], part, variables, owner)

    def _check_callbacks(self, state: dict[str, Any]) -> None:
        """ValueError unless the checkpoint is of these callbacks."""
        expected = [type(callback).__name__ for callback in self._watched]
        received = [name for name, _ in state["callbacks"]]
        if expected != received:
            raise ValueError(
                f"ExactResume: the checkpoint in {self.checkpoints.folder} must have the callbacks "
                f"{', '.join(expected)}. Received: {', '.join(received)}"
            )
