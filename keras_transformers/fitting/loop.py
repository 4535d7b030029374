"""How everything is trained: by the recipes and by `fit`."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.data import streams
from keras_transformers.data.shard_streams import ShardStream


def prepared(
    model: Any, optimizer: Any, jit_compile: bool, shape: Any = None, **options: Any
) -> Any:
    """Compiles a model, and builds it with its optimizer.

    Args:
        model: The Keras model.
        optimizer: A Keras optimizer.
        jit_compile: Whether XLA compiles the step.
        shape: Of its inputs, if it may not be built.
        **options: Of `model.compile`: loss and metrics.

    Returns:
        The model.

    Example:
    >>> import keras
    >>> from keras_transformers.fitting import prepared
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> prepared(model, "sgd", False, (None, 3), loss="mse").optimizer.built
    True
    """
    model.compile(optimizer, jit_compile=jit_compile, **options)
    if shape is not None and not model.built:
        model.build(shape)
    # Now, or Keras makes the optimizer's variables inside the first step and traces it again.
    model.optimizer.build(model.trainable_variables)
    return model


def fit_epochs(
    model: Any,
    make: Callable[[Any], tf.data.Dataset] | ShardStream,
    steps: int,
    epochs: int,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    start: tuple[int, int] = (0, 0),
    watch: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda dataset: dataset,
    **options: Any,
) -> dict[str, Any]:
    """`model.fit` on data whose order follows from the number of the epoch.

    Args:
        model: Compiled.
        make: Function from the number of an epoch to its dataset, see `streams.epochs`; or a
            stream of shards.
        steps: Batches of an epoch.
        epochs: How many, those before `start` included.
        callbacks: For `model.fit`.
        start: Epoch and step to begin with.
        watch: Function that wraps the whole dataset.
        **options: Of `model.fit`.

    Returns:
        The history, a dict.

    Example:
    >>> import keras, tensorflow as tf
    >>> from keras_transformers.fitting import fit_epochs
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> make = lambda epoch: tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.ones((4, 1))))
    >>> len(fit_epochs(model, make, steps=1, epochs=2, verbose=0)["loss"])
    2
    """
    if isinstance(make, ShardStream):
        data = make.batches(start[0] * steps + start[1])
    else:
        data = streams.epochs(make, steps, start)
    history = model.fit(
        watch(data),
        shuffle=False,  # the pipeline does that
        steps_per_epoch=steps,
        epochs=epochs,
        initial_epoch=start[0],
        callbacks=list(callbacks),
        **options,
    )
    found: dict[str, Any] = history.history
    return found


def uncompiled(model: Any) -> Any:
    """The model without optimizer, loss and metrics, whose state would be kept and saved with it.

    Example:
    >>> import keras
    >>> from keras_transformers.fitting.loop import uncompiled
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> uncompiled(model).optimizer is None
    True
    """
    model.compiled, model.optimizer = False, None
    model.train_function = model.test_function = None
    return model


def counted(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset that knows how many batches it has, or Keras warns that it ran out of them.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.fitting import counted
    >>> int(counted(tf.data.Dataset.range(9).filter(lambda n: n > 6)).cardinality())
    2
    """
    return dataset.apply(tf.data.experimental.assert_cardinality(sum(1 for _ in dataset)))
