"""Ids as people hold them: integers, or floats that hold integers."""

from typing import Any

import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Tensor
from keras_transformers.layers.errors import refuse

# The largest whole number up to which a type holds every one.
EXACT = {"bfloat16": 2**8, "float16": 2**11, "float32": 2**24, "float64": 2**53}


def as_ids(layer: Any, argument: str, ids: Any, most: int | None = None) -> Tensor:
    """Whole numbers as int32, after `check_ids`: TensorFlow takes no rows by bytes."""
    check_ids(layer, argument, ids, most)
    return ids if dtype_name(ids) == "int32" else ops.cast(ids, "int32")


def check_ids(layer: Any, argument: str, ids: Any, most: int | None = None) -> None:
    """Raises ValueError unless a tensor holds whole numbers.

    Floats are taken, as by `keras.layers.Embedding`, for `keras.Input` makes them unless told
    otherwise: float32 holds every id, and half precision those of a small vocabulary. A fraction is
    found wherever values are known; a compiled program cuts it off.

    Args:
        layer: Whose argument it is, for the message.
        argument: Its name.
        ids: A tensor or an array.
        most: The largest number that it can hold, None where that is unknown.
    """
    dtype = dtype_name(ids)
    fault = None
    if dtype in EXACT:
        if "16" in dtype and (most is None or most > EXACT[dtype]):
            fault = f"{dtype}, which holds each number up to {EXACT[dtype]} only"
            fault += '; keras.Input(shape, dtype="int32") makes integers'
        elif not _whole(known_values(ids)):
            fault = f"{dtype} with fractions"
    elif not dtype.startswith(("int", "uint")):
        fault = dtype
    if fault:
        refuse(layer, argument, "integers, or floats that hold integers", fault)


def dtype_name(x: Any) -> str:
    """Name of the dtype of a tensor of whatever backend, or of an array."""
    dtype = getattr(x.dtype, "name", x.dtype)
    return str(dtype).rpartition(".")[2]


def known_values(x: Any) -> Array | None:
    """The values of a tensor as an array; None while a program is traced."""
    try:
        return ops.convert_to_numpy(x)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


def _whole(values: Array | None) -> bool:
    """Whether values are whole numbers, as far as they are known."""
    if values is None:
        return True
    values = np.asarray(values, "float64")
    return bool(np.all(np.isfinite(values)) and np.all(values == np.floor(values)))
