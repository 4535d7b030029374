"""Callbacks of `model.fit`: checkpoint averaging, and the speed of training."""

import collections
import math
import time
from collections.abc import Iterable
from typing import Any, Literal

import keras
import numpy as np

from keras_transformers.annotations import Array
from keras_transformers.training.budget import unscaled_optimizer


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
