"""Devices and hosts of one run: how many share the rows of a batch, and how many each matrix."""

import dataclasses
from collections.abc import Iterable

import keras

from keras_transformers.core.types import Array, StrPath

AXES = ("data", "model")


@dataclasses.dataclass(frozen=True)
class Devices:
    """A grid of devices.

    Args:
        data: Number of groups of devices, each of which takes a share of every batch.
        model: Number of devices in a group, each of which holds a share of every matrix.

    Raises:
        ValueError: If one of them is not a positive integer.

    Example:
    >>> from keras_transformers.distribution import Devices
    >>> Devices(data=4, model=2).count
    8
    """

    data: int = 1
    model: int = 1

    def __post_init__(self) -> None:
        for axis, size in (("data", self.data), ("model", self.model)):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(
                    f"Devices: `{axis}` must be a positive integer. Received: {axis}={size!r}"
                )

    @property
    def count(self) -> int:
        """Number of devices in all."""
        return self.data * self.model

    def check_count(self, available: int) -> None:
        """Raises ValueError if there are fewer devices than these."""
        if self.count > available:
            raise ValueError(
                f"Devices: data={self.data} times model={self.model} takes {self.count} devices, "
                f"but there {'is' if available == 1 else 'are'} {available}."
            )


def parse(text: str | Devices, available: int | None = None) -> Devices:
    """Reads "data=4,model=2".

    Args:
        text: Axes with their sizes; one that is not named has size 1. `Devices` pass as they are.
        available: Number of devices there are, where that is known already; `distribute` asks for
            it itself.

    Returns:
        `Devices`.

    Raises:
        ValueError: If an axis is unknown, named twice or without a positive size, or there are
            fewer devices.

    Example:
    >>> from keras_transformers.distribution import parse
    >>> parse("data=4,model=2")
    Devices(data=4, model=2)
    """
    devices = text if isinstance(text, Devices) else _read(text)
    if available is not None:
        devices.check_count(available)
    return devices


def _read(text: str) -> Devices:
    sizes = {}
    for part in str(text).split(","):
        axis, equals, size = (piece.strip() for piece in part.partition("="))
        if axis not in AXES or not equals:
            raise ValueError(
                'parse: devices must be written like "data=8" or "data=4,model=2". '
                f"Received: {text!r}"
            )
        if axis in sizes:
            raise ValueError(f"parse: {axis!r} must be named once. Received: {text!r}")
        if not size.isascii() or not size.isdigit() or int(size) < 1:
            raise ValueError(
                f"parse: the size of {axis!r} must be a positive integer. Received: {text!r}"
            )
        sizes[axis] = int(size)
    return Devices(**sizes)


def initialize(
    coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> None:
    """Joins the other processes of a run. The first call of a program, before any computation.

    On a TPU pod and under Slurm all arguments follow from the surroundings. Elsewhere give them, or
    set `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `KERAS_DISTRIBUTION_NUM_PROCESSES` and
    `KERAS_DISTRIBUTION_PROCESS_ID`. Afterwards every process sees the devices of all, and its
    random numbers start from the same seed.

    Args:
        coordinator: "address:port" of process 0.
        num_processes: Number of processes.
        process_id: Which one this is, from 0.

    Raises:
        ValueError: If the backend is not JAX, or JAX has computed already.

    Example:
        distribution.initialize("10.0.0.1:1234", num_processes=2, process_id=0)
    """
    if keras.backend.backend() != "jax":
        raise ValueError(
            "initialize: several hosts need KERAS_BACKEND=jax. "
            f"Received: {keras.backend.backend()!r}"
        )
    try:
        keras.distribution.initialize(coordinator, num_processes, process_id)
    except RuntimeError as error:
        if "before" not in str(error):
            raise
        raise ValueError(
            "initialize: JAX has computed already. Call initialize before anything else."
        ) from error


def leave() -> None:
    """Leaves the other processes of a run, when all are done with computing on shared arrays.

    Example:
    >>> from keras_transformers.distribution import leave
    >>> leave()  # nothing, where there are no others
    """
    if keras.backend.backend() == "jax":
        import jax

        if jax.process_count() > 1:
            jax.distributed.shutdown()


def is_first_host() -> bool:
    """Whether this process is the one that writes files; True where there is one process only.

    Example:
    >>> from keras_transformers.distribution import is_first_host
    >>> is_first_host()
    True
    """
    if keras.backend.backend() != "jax":
        return True
    import jax

    return jax.process_index() == 0


def save(model: keras.Model, path: StrPath) -> None:
    """Saves a model whose variables may lie on several hosts: every host calls it, one writes.

    What no host holds whole is gathered first, into a copy of the model in the first host's main
    memory. With one process it is `model.save(path)`.

    Args:
        model: A built Keras model.
        path: Name of a `.keras` file.

    Example:
    >>> import keras
    >>> from keras_transformers import distribution
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> distribution.save(model, "model.keras")
    """
    before = keras.distribution.distribution()
    if getattr(before, "num_processes", 1) == 1:
        model.save(path)
        return
    weights = _whole(model.weights)
    state = _whole(model.optimizer.variables) if model.optimizer else []
    if not is_first_host():
        return
    keras.distribution.set_distribution(None)
    try:
        copy = type(model).from_config(model.get_config())
        copy.build_from_config(model.get_build_config())
        copy.set_weights(weights)
        if model.optimizer:
            copy.compile_from_config(model.get_compile_config())
            copy.optimizer.build(copy.trainable_variables)
            for variable, value in zip(copy.optimizer.variables, state, strict=True):
                variable.assign(value)
        copy.save(path)
    finally:
        keras.distribution.set_distribution(before)


def _whole(variables: Iterable[keras.Variable]) -> list[Array]:
    """Values as NumPy arrays, gathered from all hosts."""
    from jax.experimental import multihost_utils

    values = [variable.value for variable in variables]
    return [
        keras.ops.convert_to_numpy(
            value
            if value.is_fully_addressable or value.is_fully_replicated
            else multihost_utils.process_allgather(value, tiled=True)
        )
        for value in values
    ]
