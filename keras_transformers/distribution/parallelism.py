"""`keras.distribution` on JAX: what a process reads, and where variables lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_transformers.distribution.devices import Devices
from keras_transformers.distribution.layouts import layout_map, layout_of

if TYPE_CHECKING:
    import tensorflow as tf

    _Distribution = Any  # of Keras, which has no public class for it
else:
    _Distribution = object


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
