"""One context manager around a whole run."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_transformers.distribution.devices import Devices, parse


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
        from keras_transformers.distribution.parallelism import keras_distribution

        made = keras_distribution(devices, sharded_data)
    elif backend == "tensorflow":
        from keras_transformers.distribution.mirrored import mirrored

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
