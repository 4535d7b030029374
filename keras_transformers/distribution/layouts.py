"""Devices and hosts of one run, and the layouts of its variables for `keras.distribution`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.core.types import Array, StrPath
from keras_transformers.models import LanguageModel, TextEncoder, Transformer, ViT

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


if TYPE_CHECKING:
    import tensorflow as tf

    _Distribution = Any  # of Keras, which has no public class for it
else:
    _Distribution = object


SPLIT_MODELS = (Transformer, LanguageModel, TextEncoder, ViT)
# The matrix into a branch by columns, the one out of it by rows, so that a branch ends in one sum
# over the devices (Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053, section 3).
RULES = {
    r".*/(query|key|value)/kernel": (None, "model", None),  # (width, heads, key_dim)
    r".*/(query|key|value)/bias": ("model", None),
    r".*/attention_output/kernel": ("model", None, None),
    r".*/feed_forward/(hidden|gate)/kernel": (None, "model"),
    r".*/feed_forward/(hidden|gate)/bias": ("model",),
    r".*/feed_forward/output/kernel": ("model", None),
    r".*/(source_|target_|)(embedding|token_embedding)/token_embedding": ("model", None),
    r".*/logits_bias": ("model",),
}
# What becomes of a variable whose axis does not divide, where anything may: a few key and value
# heads are copied, a vocabulary is split by its width.
OTHERWISE = {
    r".*/(key|value)/(kernel|bias)": None,
    r".*/token_embedding": (None, "model"),
    r".*/logits_bias": None,
}


def layout_map(
    mesh: keras.distribution.DeviceMesh, model: keras.Model | type[keras.Model] | None = None
) -> keras.distribution.LayoutMap:
    """Where each variable of a Transformer, LanguageModel, TextEncoder or ViT lies on a mesh.

    Query, key and value are split over the heads and the first matrices of the feed-forward
    networks over their columns; the matrices out of both over their rows; embeddings over the
    vocabulary. Norms, the other biases and all the rest are copied to every device. Splitting
    changes no result but by the order of sums (Shoeybi et al. 2019,
    https://arxiv.org/abs/1909.08053).

    Args:
        mesh: `keras.distribution.DeviceMesh` with an axis "model".
        model: Optional model or class, to be refused if its blocks are none of these.

    Returns:
        `keras.distribution.LayoutMap`.

    Raises:
        ValueError: If the mesh has no axis "model", or the model is of another class.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import layout_map
    >>> mesh = keras.distribution.DeviceMesh((1, 1), ("data", "model"), ["cpu:0"])
    >>> layout_map(mesh)["vit/encoder_0/feed_forward/hidden/kernel"].axes
    (None, 'model')
    """
    if "model" not in mesh.axis_names:
        raise ValueError(
            f'layout_map: `mesh` must have an axis "model". Received: axes {mesh.axis_names}'
        )
    if model is not None:
        check_can_be_split(model)
    layouts = keras.distribution.LayoutMap(mesh)
    for pattern, axes in RULES.items():
        layouts[pattern] = axes
    return layouts


def check_can_be_split(model: keras.Model | type[keras.Model]) -> None:
    """Raises ValueError unless a model, or a class of models, is one that `layout_map` knows."""
    kind = model if isinstance(model, type) else type(model)
    if not issubclass(kind, SPLIT_MODELS):
        names = ", ".join(sorted(each.__name__ for each in SPLIT_MODELS))
        raise ValueError(
            f"layout_map: matrices are split over devices in {names}, not in {kind.__name__}. "
            'Give all devices to the batch instead: "data=8" in place of "data=4,model=2".'
        )


def layout_of(variable: Any, layouts: keras.distribution.LayoutMap) -> tuple[str | None, ...]:
    """The axes of a mesh along which a variable is split, one or None for each of its own.

    Args:
        variable: With a `path` and a `shape`.
        layouts: From `layout_map`.

    Raises:
        ValueError: If what must be split does not divide.
    """
    copied = (None,) * len(variable.shape)
    layout = layouts[variable.path]
    if layout is None or len(layout.axes) != len(copied):
        return copied
    if _divides(variable, layout.axes, layouts.device_mesh):
        return layout.axes
    for pattern, axes in OTHERWISE.items():
        if re.fullmatch(pattern, variable.path):
            other = axes or copied
            return other if _divides(variable, other, layouts.device_mesh) else copied
    number = _size(layouts.device_mesh, "model")
    position = layout.axes.index("model")
    raise ValueError(
        f"distribute: {variable.path} of shape {tuple(variable.shape)} cannot be split over "
        f"{number} devices along axis {position}: with model={number}, `num_heads` and `mlp_dim` "
        f"must be multiples of {number}."
    )


def _divides(
    variable: Any, axes: tuple[str | None, ...], mesh: keras.distribution.DeviceMesh
) -> bool:
    return all(
        axis is None or size % _size(mesh, axis) == 0
        for size, axis in zip(variable.shape, axes, strict=True)
    )


def _size(mesh: keras.distribution.DeviceMesh, axis: str) -> int:
    return mesh.shape[mesh.axis_names.index(axis)]


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """Rows of every batch of a `tf.data.Dataset`, or None where it does not say.

    `Dataset.batch` says it with `drop_remainder=True` only.
    """
    specs = keras.tree.flatten(dataset.element_spec)
    sizes = {spec.shape[0] if spec.shape.rank else None for spec in specs if spec is not None}
    return sizes.pop() if len(sizes) == 1 else None


class _RowsOfProcesses(_Distribution):
    """What both distributions share: each process takes its rows of every batch.

    Keras's own sharding cuts batches in pieces and deals them out, which needs a batch size known
    beforehand, as length buckets have none, and leaves the processes with unequal pieces at the
    end. Here each process makes the same batch and keeps a run of its rows.
    """

    rows: int | None = None  # of each batch of the dataset seen last; None where it did not say

    def distribute_dataset(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        self.rows = batch_size(dataset)
        if self.num_processes == 1 or not self.auto_shard_dataset:
            return dataset
        import tensorflow as tf

        parts = min(self.num_model_replicas, self.num_processes)
        replicas, part = self.num_model_replicas, self.data_shard_id

        def own_rows(*batch: Any) -> Any:
            def cut(rows: tf.Tensor) -> tf.Tensor:
                size = tf.shape(rows)[0]
                even = tf.debugging.assert_equal(
                    size % replicas, 0, f"distribute: a batch must divide by data={replicas}"
                )
                with tf.control_dependencies([even]):
                    share = size // parts
                own = rows[part * share : (part + 1) * share]
                if self.rows is not None:
                    own.set_shape((self.rows // parts, *rows.shape[1:]))
                return own

            return tf.nest.map_structure(cut, batch if len(batch) > 1 else batch[0])

        return dataset.map(own_rows).prefetch(tf.data.AUTOTUNE)

    def splits(self, rows: int) -> bool:
        """Whether a batch of so many rows can be shared out."""
        return rows % self.num_model_replicas == 0

    def get_data_layout(self, data_shape: Any) -> Any:
        replicas, parts = self.num_model_replicas, min(self.num_model_replicas, self.num_processes)
        if data_shape[0] is not None and not self.splits(data_shape[0] * parts):
            raise ValueError(
                f"distribute: a batch must divide by data={replicas}. Received: a batch of "
                f"{data_shape[0] * parts} rows"
            )
        return super().get_data_layout(data_shape)


class DataParallel(_RowsOfProcesses, keras.distribution.DataParallel):
    """Every device holds the whole model and takes a share of each batch."""


class ModelParallel(_RowsOfProcesses, keras.distribution.ModelParallel):
    """A grid: groups share the batch, the devices of a group share the matrices."""

    def __init__(self, mesh: keras.distribution.DeviceMesh, **kwargs: Any) -> None:
        self.layouts = layout_map(mesh)
        super().__init__(layout_map=self.layouts, batch_dim_name="data", **kwargs)

    def get_variable_layout(self, variable: Any) -> Any:
        if getattr(variable, "_layout", None) is not None:  # an optimizer's, after its variable's
            return variable._layout
        return keras.distribution.TensorLayout(layout_of(variable, self.layouts), self.device_mesh)


def keras_distribution(
    devices: Devices, sharded_data: bool = False
) -> DataParallel | ModelParallel:
    """The `keras.distribution` object of some `Devices`."""
    names = keras.distribution.list_devices()
    devices.check_count(len(names))
    own = {"auto_shard_dataset": not sharded_data}
    if devices.model == 1:
        mesh = keras.distribution.DeviceMesh((devices.data,), ("data",), names[: devices.count])
        made = DataParallel(device_mesh=mesh, **own)
    else:
        shape = (devices.data, devices.model)
        mesh = keras.distribution.DeviceMesh(shape, ("data", "model"), names[: devices.count])
        made = ModelParallel(mesh, **own)
    if made.num_processes > 1 and devices.count != len(names):
        raise ValueError(
            f"distribute: with {made.num_processes} processes all {len(names)} devices must take "
            f"part. Received: {devices}"
        )
    return made


def bytes_per_device(model: keras.Model) -> dict[str, dict[str, int]]:
    """Bytes of a model's weights and of its optimizer's state on each device of this process.

    Args:
        model: A built model; the optimizer counts once it is built, as after `fit`.

    Returns:
        Dict of device name -> dict of `weights` and `optimizer`, in bytes.

    Example:
    >>> import keras
    >>> from keras_transformers.distribution import bytes_per_device
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> [sizes["weights"] for sizes in bytes_per_device(model).values()]
    [32]
    """
    parts = {"weights": model.weights, "optimizer": []}
    if getattr(model, "optimizer", None) is not None:
        parts["optimizer"] = model.optimizer.variables
    held: dict[str, dict[str, int]] = {}
    for part, variables in parts.items():
        for variable in variables:
            for device, size in _pieces(variable):
                held.setdefault(device, dict.fromkeys(parts, 0))[part] += size
    return held


def _pieces(variable: Any) -> list[tuple[str, int]]:
    """(device, bytes) of each piece of a variable that this process holds."""
    value = variable.value
    if keras.backend.backend() == "jax":
        return [(str(shard.device), shard.data.nbytes) for shard in value.addressable_shards]
    copies = getattr(value, "values", (value,))  # a tf.distribute variable has one each
    copies = copies if isinstance(copies, (tuple, list)) else (value,)
    return [(str(copy.device), _bytes(copy)) for copy in copies]


def _bytes(tensor: Any) -> int:
    size = 1
    for dimension in tensor.shape:
        size *= dimension
    return size * _bits(keras.backend.standardize_dtype(tensor.dtype)) // 8


def _bits(dtype: str) -> int:
    return int("".join(c for c in dtype if c.isdigit()) or 8)
