"""What a callback has learned since training began, as JSON and arrays."""

import collections
import copy
from typing import Any

import keras
import numpy as np

from keras_transformers.annotations import Array

OF_KERAS = ("params", "_model")  # set anew in every `fit`
PLAIN = (bool, int, float, str, type(None))


def read_state(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """The state of a callback: what its `get_state` gives, or all its attributes that are data.

    Data are numbers, strings, None, NumPy arrays, and lists, tuples, dicts and deques of them. The
    rest (functions, files, models) is made by whoever makes the callback.
    """
    if hasattr(callback, "get_state"):
        return dict(callback.get_state())
    data = {name: value for name, value in vars(callback).items() if name not in OF_KERAS}
    return copy.deepcopy({name: value for name, value in data.items() if _is_data(value)})


def learned(callback: keras.callbacks.Callback, before: dict[str, Any]) -> dict[str, Any]:
    """What has changed in a callback since its state was `before`: its arguments have not."""
    state = read_state(callback)
    if hasattr(callback, "get_state"):
        return state
    return {
        name: value
        for name, value in state.items()
        if name not in before or not _same(value, before[name])
    }


def write_state(
    callback: keras.callbacks.Callback, before: dict[str, Any], changed: dict[str, Any]
) -> None:
    """Gives a callback the state that it had `before`, but for what was `learned` elsewhere."""
    if hasattr(callback, "set_state"):
        callback.set_state(changed)
    else:
        vars(callback).update(copy.deepcopy({**before, **changed}))


def encoded(value: Any, arrays: dict[str, Array]) -> Any:
    """A value as JSON can hold it; arrays are added to the dict `arrays` and named."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        name = f"callback.{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name, "scalar": isinstance(value, np.generic)}
    if type(value) is dict:
        return {"dict": [[encoded(part, arrays) for part in item] for item in value.items()]}
    longest = value.maxlen if isinstance(value, collections.deque) else None
    kind = next(kind for kind in SEQUENCES if type(value) is SEQUENCES[kind])
    return {kind: [encoded(part, arrays) for part in value], "longest": longest}


def decoded(content: Any, arrays: dict[str, Array]) -> Any:
    """The value of what `encoded` gave."""
    if not isinstance(content, dict):
        return content
    if "array" in content:
        value = np.array(arrays[content["array"]])
        return value[()] if content["scalar"] else value
    if "dict" in content:
        return {decoded(k, arrays): decoded(v, arrays) for k, v in content["dict"]}
    kind = next(kind for kind in SEQUENCES if kind in content)
    parts = [decoded(part, arrays) for part in content[kind]]
    if kind == "deque":
        return collections.deque(parts, content["longest"])
    return SEQUENCES[kind](parts)


SEQUENCES = {"list": list, "tuple": tuple, "deque": collections.deque}


def _is_data(value: Any) -> bool:
    if type(value) is dict:
        return all(_is_data(part) for item in value.items() for part in item)
    if type(value) in SEQUENCES.values():
        return all(map(_is_data, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind != "O"
    return type(value) in PLAIN


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (np.ndarray, np.generic)) or isinstance(other, (np.ndarray, np.generic)):
        return type(one) is type(other) and one.dtype == other.dtype and np.array_equal(one, other)
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if type(one) in SEQUENCES.values():
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
