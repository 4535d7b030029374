"""How layers refuse what does not fit."""

import keras


def refuse(layer, argument, expected, received):
    """Raises ValueError: names layer and argument, what was expected and what was received.

    Classes take it as a method, `_refuse = refuse`.
    """
    raise ValueError(
        f"{type(layer).__name__} '{layer.name}': `{argument}` must be {expected}. "
        f"Received: {received}"
    )


def check_floating(layer, argument, x):
    """Raises ValueError unless `x` is a floating tensor."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        expected = "floating, cast and scaled as the layer was or will be trained"
        refuse(layer, argument, expected, f"dtype {dtype}, shape {tuple(x.shape)}")
