"""All variables of a training run, as arrays and back, and whether they are sound."""

import collections
import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_transformers.annotations import Array

# Of a checkpoint: its number, its arrays, and what JSON holds.
State: TypeAlias = tuple[int, dict[str, Array], dict[str, Any]]
PARTS = ("trainable", "others", "optimizer", "metrics")


def variables_of(model: keras.Model) -> dict[str, list[keras.Variable]]:
    """A model's variables by part, in the order in which Keras's JAX trainer holds them."""
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    return dict(zip(PARTS, groups, strict=True))


@contextlib.contextmanager
def restored_state(model: Any) -> Iterator[None]:
    """Restores a model, its optimizer and the random states at the end of the context.

    Args:
        model: A compiled model.
    """
    if not model.optimizer.built:  # Keras builds it in the first step
        model.optimizer.build(model.trainable_variables)
    variables = [variable for part in variables_of(model).values() for variable in part]
    values = [np.array(ops.convert_to_numpy(variable)) for variable in variables]
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        model.reset_metrics()
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        random.setstate(states[0])
        np.random.set_state(states[1])


def in_order_of_0_2_0(
    model: keras.Model, variables: Sequence[keras.Variable]
) -> list[keras.Variable]:
    """Returns variables of a model or its optimizer in the order that version 0.2.0 had them in.

    There, a feed-forward network had the weights of its output before the others.
    """
    ordered = list(variables)
    for network in model._flatten_layers():
        if getattr(network, "output_first", True):
            continue
        now, output = network.weights, {id(each) for each in network.output_dense.weights}
        before = sorted(range(len(now)), key=lambda i: id(now[i]) not in output)  # output first
        slots: dict[str, dict[int, int]] = {}  # slot -> number of a weight -> position
        for position, variable in enumerate(variables):
            number, slot = _owner(variable, now)
            if number is not None:
                slots.setdefault(slot, {})[number] = position
        for positions in slots.values():
            moved = (positions[number] for number in before if number in positions)
            for position, origin in zip(sorted(positions.values()), moved, strict=True):
                ordered[position] = variables[origin]
    return ordered


def _owner(variable: keras.Variable, weights: Sequence[keras.Variable]) -> tuple[int | None, str]:
    """The number of the weight that a variable is, or is an optimizer's slot of, and its slot."""
    for number, weight in enumerate(weights):
        if variable is weight:
            return number, ""
        before, found, slot = variable.path.rpartition(weight.path.replace("/", "_") + "_")
        if found and before.endswith("/"):
            return number, slot
    return None, ""


def callbacks_of_0_2_0(model: keras.Model, value: Any) -> Any:
    """Returns the state of a callback, whose lists of weights version 0.2.0 had in its order."""
    if isinstance(value, dict):
        return {key: callbacks_of_0_2_0(model, each) for key, each in value.items()}
    if not isinstance(value, (list, tuple, collections.deque)):
        return value
    floats = [each for each in model.weights if keras.backend.is_float_dtype(each.dtype)]
    for group in (model.weights, model.trainable_variables, floats):
        if len(value) == len(group) and all(isinstance(each, np.ndarray) for each in value):
            positions = {id(each): i for i, each in enumerate(in_order_of_0_2_0(model, group))}
            return type(value)(value[positions[id(each)]] for each in group)
    each_moved = [callbacks_of_0_2_0(model, each) for each in value]
    if isinstance(value, collections.deque):
        return collections.deque(each_moved, value.maxlen)
    return type(value)(each_moved)


def take(
    model: keras.Model, result: Any
) -> tuple[dict[str, float], dict[str, Array], dict[str, str]]:
    """What a train step left behind.

    Args:
        model: The model that is trained.
        result: What its train function returned: logs, and on JAX the new values as well.

    Returns:
        Dict of numbers (the logs), dict of arrays, and dict of the arrays' names to the paths of
        their variables.
    """
    variables = variables_of(model)
    logs, values = result, variables.values()
    if keras.backend.backend() == "jax":
        logs, values = result
    arrays, paths = {}, {}
    for part, held in zip(PARTS, values, strict=True):
        for i, (value, variable) in enumerate(zip(held, variables[part], strict=True)):
            # A copy: on a CPU this may be the live buffer.
            arrays[f"{part}.{i}"] = np.array(ops.convert_to_numpy(value))
            paths[f"{part}.{i}"] = variable.path
    return {name: float(ops.convert_to_numpy(logs[name])) for name in logs}, arrays, paths


def stored(arrays: dict[str, Array], part: str) -> list[Array]:
    """The arrays of a part, in order."""
    count = sum(name.startswith(f"{part}.") for name in arrays)
    return [arrays[f"{part}.{i}"] for i in range(count)]


def assign(
    arrays: dict[str, Array], part: str, variables: Sequence[keras.Variable], owner: str
) -> None:
    """Assigns a part's arrays to its variables, all of which are checked before.

    Raises:
        ValueError: If there are not as many, or one is of another shape or kind.
    """
    values = stored(arrays, part)
    if len(values) != len(variables):
        raise ValueError(
            f"{owner} must have {len(variables)} {part} variables. Received: {len(values)}"
        )
    for value, variable in zip(values, variables, strict=True):
        same_kind = np.can_cast(value.dtype, np.dtype(variable.dtype), "same_kind")
        if value.shape != tuple(variable.shape) or not same_kind:
            raise ValueError(
                f"{owner}: {variable.path} must have shape {tuple(variable.shape)} and dtype "
                f"{variable.dtype}. Received: {value.shape}, {value.dtype}"
            )
    for value, variable in zip(values, variables, strict=True):
        variable.assign(value.astype(variable.dtype, copy=False))


def not_finite(arrays: dict[str, Array]) -> list[str]:
    """Names of weights and optimizer variables that hold NaN or infinity."""
    return [name for name, array in arrays.items() if not _is_finite(name, array)]


def _is_finite(name: str, array: Array) -> bool:
    if name.split(".")[0] not in PARTS[:3] or array.dtype.kind not in "fV":
        return True  # metrics and callbacks may hold anything
    return bool(np.all(np.isfinite(array.astype("float32") if array.dtype.kind == "V" else array)))


def available_cores() -> int | None:
    """Processor cores of this process, over which backends divide their sums."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
