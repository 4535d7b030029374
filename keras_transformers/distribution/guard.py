"""Refuses, before the first step, what several devices would train differently."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.distribution.layouts import check_can_be_split

if TYPE_CHECKING:
    import tensorflow as tf

ON_JAX = "Use KERAS_BACKEND=jax, where the same run is right on several devices."


def check(model: keras.Model, dataset: tf.data.Dataset | None = None) -> None:
    """Raises unless the current devices train a compiled model as one device would.

    Args:
        model: A compiled model.
        dataset: Optional `tf.data.Dataset` of batches, to be checked as well.

    Raises:
        ValueError: With all reasons. On TensorFlow under `tf.distribute.MirroredStrategy`: clipping
            of gradients, accumulation of gradients, loss scaling, XLA, losses averaged over real
            tokens, batch norms that are not synchronized, batches that may not divide by the
            number of replicas; and `keras.distribution`, which that backend ignores. On JAX: a
            model whose matrices are not split, variables made before `distribute`, batches that do
            not divide.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import check
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("sgd", "mse")
    >>> check(model)
    """
    backend = keras.backend.backend()
    if backend == "jax":
        reasons = list(_of_jax(model, dataset))
    elif backend == "tensorflow":
        reasons = list(_of_tensorflow(model, dataset))
    else:
        reasons = list(_ignored(backend))
    if reasons:
        raise ValueError(f"distribution: {' '.join(reasons)}")


def _ignored(backend: str) -> Iterator[str]:
    if keras.distribution.distribution() is not None:
        yield f"keras.distribution is set, which the {backend} backend ignores. {ON_JAX}"


def _of_tensorflow(model: Any, dataset: tf.data.Dataset | None) -> Iterator[str]:
    from keras_transformers.distribution import mirrored
    from keras_transformers.distribution.parallelism import batch_size

    yield from _ignored("tensorflow")
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return
    reasons: list[str | None] = list(mirrored.refusals(model))
    if dataset is not None:
        reasons.append(mirrored.row_refusal(batch_size(dataset), replicas))
    elif getattr(strategy, "seen", False):
        reasons.append(mirrored.row_refusal(strategy.rows, replicas))
    found = [reason for reason in reasons if reason]
    yield from found
    if not found:
        mirrored.warn_of_one_mask(model)


def _of_jax(model: Any, dataset: tf.data.Dataset | None) -> Iterator[str]:
    from keras_transformers.distribution.parallelism import ModelParallel, batch_size

    distribution = keras.distribution.distribution()
    if distribution is None:
        return
    if isinstance(distribution, ModelParallel):
        try:
            check_can_be_split(model)
        except ValueError as error:
            yield str(error)
    everywhere = distribution.device_mesh.devices.size
    state = [*model.variables, *(model.optimizer.variables if model.optimizer else [])]
    outside = [v.path for v in state if len(v.value.sharding.device_set) != everywhere]
    if outside:
        yield (
            f"{outside[0]} was made before `distribute` and lies on other devices. Make model and "
            "optimizer inside."
        )
    rows = batch_size(dataset) if dataset is not None else getattr(distribution, "rows", None)
    replicas = distribution.num_model_replicas
    if rows is not None and rows % replicas:
        yield f"a batch of {rows} rows does not divide by data={replicas}."


class Guard(keras.callbacks.Callback):
    """Calls `check` when training begins, and evaluates batches of any size.

    On JAX a batch is shared out if its rows divide by the number of groups of devices. Where a
    dataset does not say that all of its batches do, as when the last one is smaller, evaluation and
    prediction compute the whole batch on every device instead.

    Args:
        dataset: Optional `tf.data.Dataset` that `fit` is given. Not needed inside `distribute`,
            which sees it itself.

    Raises:
        ValueError: When training begins, as `check` does.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import Guard
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("sgd", "mse")
    >>> _ = model.fit(keras.ops.ones((4, 3)), keras.ops.ones((4, 2)), verbose=0,
    ...               callbacks=[Guard()])
    """

    def __init__(self, dataset: tf.data.Dataset | None = None) -> None:
        super().__init__()
        self.dataset = dataset
        self._set_aside = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        check(self.model, self.dataset)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        distribution = keras.distribution.distribution()
        if getattr(distribution, "num_processes", 2) == 1:
            rows = getattr(distribution, "rows", None)
            if rows is None or rows % distribution.num_model_replicas:
                self._set_aside = distribution
                keras.distribution.set_distribution(None)

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._set_aside is not None:
            keras.distribution.set_distribution(self._set_aside)
            self._set_aside = None

    on_predict_begin = on_test_begin
    on_predict_end = on_test_end
