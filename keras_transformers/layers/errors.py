"""How layers refuse what does not fit."""

import numbers
from typing import Any, NoReturn

import keras

from keras_transformers.annotations import Shape, Tensor


def refuse(layer: Any, argument: str, expected: str, received: Any) -> NoReturn:
    """Raises ValueError: names layer and argument, what was expected and what was received.

    Classes take it as a method, `_refuse = refuse`.
    """
    raise ValueError(f"{named(layer, argument)} must be {expected}. Received: {received}")


def beside(argument: str) -> str:
    """What errors expect of a number where an object was given for the same part."""
    return f"left out beside `{argument}`, which has its own"


def named(layer: Any, argument: str) -> str:
    """An argument of a layer as errors name it."""
    return f"{type(layer).__name__} '{layer.name}': `{argument}`"


def whole_number(
    layer: Any, argument: str, value: Any, least: int = 1, optional: bool = False
) -> Any:
    """A number of things as an int, NumPy's too; None where it is optional."""
    if value is None and optional:
        return None
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
        refuse(layer, argument, expected, repr(value))
    return int(value)


def rate(layer: Any, argument: str, value: Any) -> float:
    """A probability of dropping as a float."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and 0 <= value < 1):
        refuse(layer, argument, "a rate in [0, 1)", repr(value))
    return float(value)


def check_floating(layer: Any, argument: str, x: Tensor) -> None:
    """Raises ValueError unless `x` is a floating tensor."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        expected = "floating, cast and scaled as the layer was or will be trained"
        refuse(layer, argument, expected, f"dtype {dtype}, shape {tuple(x.shape)}")


def check_sequence(layer: Any, x_shape: Shape) -> None:
    """Raises ValueError unless `x` is a batch of sequences of known width."""
    if len(x_shape) != 3 or x_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} '{layer.name}': `x` must have shape (batch, length, "
            f"hidden_dim) with a known width. Received: shape {tuple(x_shape)}"
        )
