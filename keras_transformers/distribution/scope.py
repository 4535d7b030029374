"""The context manager around a distributed run, and the check that all devices train one model.

The check runs before the first step. It refuses what several devices would train differently.
On TensorFlow `tf.distribute.MirroredStrategy` distributes a run where it trains as one device does.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.distribution.layouts import (
    Devices,
    ModelParallel,
    batch_size,
    check_can_be_split,
    keras_distribution,
    parse,
)
from keras_transformers.layers import Dropout, regularization

if TYPE_CHECKING:
    import tensorflow as tf


@contextlib.contextmanager
def distribute(devices: Devices | str | None, sharded_data: bool = False) -> Iterator[Any]:
    """What is built and trained inside runs on several devices.

    On JAX, batches and matrices are split by `keras.distribution`, and the results are those of
    one device but for the order of sums, dropout included. On TensorFlow `tf.distribute` copies the
    model to `data` devices. Either way make dataset, model and optimizer inside, and pass `Guard()`
    to `fit`: it refuses, before the first step, what would train something else.

    Args:
        devices: `Devices`, or text like "data=4,model=2"; None for the one device that Keras takes
            by itself.
        sharded_data: With several hosts, True if each one's dataset holds its own rows already.
            By default every host makes the same batches, in the same order, and keeps its rows.

    Yields:
        The `keras.distribution.Distribution` or `tf.distribute.Strategy`, or None.

    Raises:
        ValueError: If there are fewer devices, or the backend cannot share the work this way.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import Guard, distribute
    >>> with distribute("data=1"):
    ...     model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    ...     model.compile("sgd", "mse")
    ...     _ = model.fit(keras.ops.ones((4, 3)), keras.ops.ones((4, 2)), verbose=0,
    ...                   callbacks=[Guard()])
    """
    if devices is None:
        yield None
        return
    devices = parse(devices)
    backend = keras.backend.backend()
    if backend == "jax":
        made = keras_distribution(devices, sharded_data)
    elif backend == "tensorflow":
        made = mirrored(devices)
    elif devices.count > 1:
        raise ValueError(
            f"distribute: several devices need the JAX or the TensorFlow backend, not {backend!r}. "
            f"Set KERAS_BACKEND=jax. Received: {devices}"
        )
    else:
        made = None
    with made.scope() if made is not None else contextlib.nullcontext():
        yield made


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

    yield from _ignored("tensorflow")
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return
    reasons: list[str | None] = list(refusals(model))
    if dataset is not None:
        reasons.append(row_refusal(batch_size(dataset), replicas))
    elif getattr(strategy, "seen", False):
        reasons.append(row_refusal(strategy.rows, replicas))
    found = [reason for reason in reasons if reason]
    yield from found
    if not found:
        warn_of_one_mask(model)


def _of_jax(model: Any, dataset: tf.data.Dataset | None) -> Iterator[str]:

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


@functools.cache
def strategy_class() -> Any:
    """The class is made when it is first needed: nothing here imports TensorFlow beforehand."""
    import tensorflow as tf

    class Mirrored(tf.distribute.MirroredStrategy):
        """Remembers what it was given to train on, and leaves integers integers."""

        seen = False  # whether there was a dataset
        rows: int | None = None  # of its batches

        def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
            self.seen, self.rows = True, batch_size(dataset)
            return super().experimental_distribute_dataset(dataset, options)

        def reduce(self, reduce_op: Any, value: Any, axis: int | None) -> Any:
            # Keras asks for the mean of a first batch to learn its shapes and dtypes: ids would
            # become floats, and shares of different sizes have no mean.
            def of(leaf: Any) -> Any:
                local = self.experimental_local_results(leaf)
                if axis is None and str(reduce_op).upper().endswith("MEAN"):
                    tensors = all(isinstance(each, tf.Tensor) for each in local)
                    if tensors and (
                        local[0].dtype.is_integer or len({tuple(x.shape) for x in local}) > 1
                    ):
                        return local[0]
                return super(Mirrored, self).reduce(reduce_op, leaf, axis)

            return tf.nest.map_structure(of, value)

    return Mirrored


def mirrored(devices: Devices) -> Any:
    """A strategy over `devices.data` GPUs, or where there is none over parts of the CPU."""
    import tensorflow as tf

    if devices.model > 1:
        raise ValueError(
            "distribute: on TensorFlow every device holds the whole model, and keras.distribution "
            f"is ignored there. {ON_JAX} Received: {devices}"
        )
    if devices.data == 1:
        return None
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if kind == "CPU":
        _split_cpu(devices.data)
    devices.check_count(len(tf.config.list_logical_devices(kind)))
    regularization.replica = _replica
    return _strategy(kind, devices.data)


@functools.cache
def _strategy(kind: str, number: int) -> Any:
    """One for the whole process: a second one's sums over replicas meet those of the first."""
    return strategy_class()([f"{kind}:{i}" for i in range(number)])


def _split_cpu(number: int) -> None:
    """Makes logical devices of the CPU, as tests and small machines need."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    made = tf.config.get_logical_device_configuration(cpu)
    if made is None or len(made) < number:
        parts = [tf.config.LogicalDeviceConfiguration()] * number
        try:
            tf.config.set_logical_device_configuration(cpu, parts)
        except RuntimeError as error:
            raise ValueError(
                f"distribute: the CPU cannot become {number} devices any more, since TensorFlow "
                "has computed already. Call distribute before anything else."
            ) from error


def _replica() -> Any:
    """Which replica this is, from 0."""
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def refusals(model: keras.Model) -> Iterator[str]:
    """Sentences: what in a compiled model would train something else than on one device."""
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        yield (
            "loss scaling looks for infinite gradients on the first replica only. Use bfloat16, "
            "which needs no scaling."
        )
        optimizer = optimizer.inner_optimizer
    for name in ("global_clipnorm", "clipnorm", "clipvalue"):
        if getattr(optimizer, name, None):
            yield f"`{name}` clips each replica's gradients before they are added. {ON_JAX}"
    if getattr(optimizer, "gradient_accumulation_steps", None):
        yield f"`gradient_accumulation_steps` cannot be traced under tf.distribute. {ON_JAX}"
    if getattr(optimizer, "use_ema", False) and optimizer.ema_overwrite_frequency:
        yield f"`ema_overwrite_frequency` cannot be traced under tf.distribute. {ON_JAX}"
    if model.jit_compile:
        yield "XLA does not compile a step with several replicas: compile with jit_compile=False."
    if type(model).compute_loss is not keras.Model.compute_loss:
        yield f"{type(model).__name__} averages its loss over each replica's own targets. {ON_JAX}"
    for loss in keras.tree.flatten(model.loss):
        if getattr(loss, "reduction", None) in ("mean_with_sample_weight", "mean"):
            yield (
                f"{type(loss).__name__} is the mean over real tokens, whose number differs between "
                f'replicas: each mean would weigh the same. reduction="sum" is right. {ON_JAX}'
            )
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            if layer.trainable and not layer.synchronized:
                yield f"{layer.path} takes its statistics over each replica's rows only."
                break


def row_refusal(rows: int | None, replicas: int) -> str | None:
    """Why batches cannot be shared out equally, or None."""
    if rows is None:
        return (
            "the last batch may be smaller, and its rows would weigh more than others. Batch with "
            "drop_remainder=True."
        )
    if rows % replicas:
        return f"a batch of {rows} rows does not divide by {replicas} replicas."
    return None


def warn_of_one_mask(model: keras.Model) -> None:
    """Says which layers draw the same random numbers on every replica; our Dropout does not."""
    same = [
        layer.path
        for layer in model._flatten_layers()
        if isinstance(getattr(layer, "seed_generator", None), keras.random.SeedGenerator)
        and not isinstance(layer, Dropout)
    ]
    if same:
        warnings.warn(
            f"distribution: every replica draws the same random numbers in {', '.join(same[:3])}"
            f"{' and others' if len(same) > 3 else ''}; keras_transformers.layers.Dropout draws "
            "its own.",
            stacklevel=3,
        )
