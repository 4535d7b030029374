"""What each device holds of a model."""

from typing import Any

import keras


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
