"""TensorBoard's event files, written by TensorFlow alone: TensorBoard need not be installed."""

import pathlib
from collections.abc import Mapping
from typing import Any


class EventFiles:
    """Curves of TensorBoard under a folder, on the disk after each call.

    Args:
        folder: Of all of them.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def write(self, name: str, step: int, numbers: Mapping[str, float]) -> None:
        """Adds a point to each of some curves.

        Args:
            name: Folder within the folder, which TensorBoard calls a run.
            step: Where the points stand.
            numbers: Name of a curve -> value.
        """
        if not numbers:
            return
        import tensorflow as tf

        if name not in self._writers:
            self._writers[name] = tf.summary.create_file_writer(str(self.folder / name))
        value = tf.compat.v1.Summary.Value
        values = [value(tag=key, simple_value=number) for key, number in numbers.items()]
        summary = tf.compat.v1.Summary(value=values).SerializeToString()
        with self._writers[name].as_default():
            tf.summary.experimental.write_raw_pb(summary, step)
        self._writers[name].flush()
