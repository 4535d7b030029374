"""`tf.distribute.MirroredStrategy`: where it trains what one device would, and where not."""

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_transformers.distribution.devices import Devices
from keras_transformers.layers import Dropout, regularization

ON_JAX = "Use KERAS_BACKEND=jax, where the same run is right on several devices."


@functools.cache
def strategy_class() -> Any:
    """The class is made when it is first needed: nothing here imports TensorFlow beforehand."""
    import tensorflow as tf

    from keras_transformers.distribution.parallelism import batch_size

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
