"""Checkpoints of a training run: all variables as arrays, written and checked."""

import collections
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_transformers.core.types import Array, StrPath

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


ARRAYS, STATE, MANIFEST = "arrays.safetensors", "state.json", "manifest.json"
BEGINNING, UNFINISHED, DAMAGED = "step-", "unfinished-", "damaged-"


class Checkpoints:
    """The last few states of a training run, each in a folder of its own.

    A state is written beside the others, forced to the disk, and given its name at the very end, so
    that a run that is killed leaves the earlier ones as they were. A manifest holds the SHA-256 of
    both files of a state; what does not agree with it is not used. No file holds code.

    Args:
        folder: Where they lie; made when the first is written.
        keep: How many stay; older ones are removed after a newer one is safe.

    Raises:
        ValueError: If `keep` is not positive.

    Example:
    >>> import tempfile, numpy as np
    >>> from keras_transformers.training import Checkpoints
    >>> checkpoints = Checkpoints(tempfile.mkdtemp())
    >>> checkpoints.write(7, {"kernel": np.ones((2, 3), "float32")}, {"epoch": 1})
    >>> state, arrays = checkpoints.newest()
    >>> state["epoch"], arrays["kernel"].shape
    (1, (2, 3))
    """

    def __init__(self, folder: StrPath, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"Checkpoints: `keep` must be positive. Received: {keep}")
        self.folder = pathlib.Path(folder)
        self.keep = keep

    def write(self, number: int, arrays: dict[str, Array], state: dict[str, Any]) -> None:
        """Writes a state.

        Args:
            number: Of the step; the newest state is that of the highest.
            arrays: Dict of NumPy arrays.
            state: Dict that JSON can hold.

        Raises:
            OSError: If it cannot be written, the disk being full for instance. Earlier states are
                then as they were.
        """
        unfinished = self.folder / f"{UNFINISHED}{os.getpid()}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(f"{UNFINISHED}*"):  # by a run that was killed
                shutil.rmtree(left)
            unfinished.mkdir()
            contents = {ARRAYS: _serialized(arrays), STATE: _json(_described(arrays, state))}
            hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
            for name, data in {**contents, MANIFEST: _json(hashes)}.items():
                _write_through(unfinished / name, data)
            _synchronize(unfinished)
            finished = self.folder / f"{BEGINNING}{number:012d}"
            if finished.exists():
                shutil.rmtree(finished)
            unfinished.rename(finished)
            _synchronize(self.folder)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise OSError(error.errno, self._failed(error)) from error
        for old in self._state_folders()[: -self.keep]:
            shutil.rmtree(old)

    def _failed(self, error: OSError) -> str:
        why = "The disk is full" if error.errno == errno.ENOSPC else error.strerror or error
        kept = [path.name for path in self._state_folders()]
        left = f"{kept[-1]} before it is whole" if kept else "there is none before it"
        return f"{why}: no checkpoint could be written to {self.folder}; {left}."

    def newest(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """State and arrays of the newest that is whole, or None if there is none at all.

        One that is not is renamed to "damaged-...", and the one before it is looked at.

        Raises:
            ValueError: If there are some, but none is whole.
        """
        there = self._state_folders()
        for path in reversed(there):
            problem = _problem(path)
            if problem is None:
                return _read(path)
            warnings.warn(f"{path} is damaged and not used: {problem}.", stacklevel=2)
            aside = path.with_name(f"{DAMAGED}{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):  # another host was quicker
                path.rename(aside)
        if there or list(self.folder.glob(f"{DAMAGED}*")):
            raise ValueError(f"No checkpoint in {self.folder} is whole; there is nothing to go on.")
        return None

    def clear(self) -> None:
        """Removes them all."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _state_folders(self) -> list[pathlib.Path]:
        """Folders of the states, the newest last."""
        return sorted(self.folder.glob(f"{BEGINNING}*"))


def _described(arrays: dict[str, Array], state: dict[str, Any]) -> dict[str, Any]:
    """A state with shapes and dtypes of its arrays: safetensors does not know all of NumPy's."""
    shapes = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
    return {**state, "arrays": shapes}


def _serialized(arrays: dict[str, Array]) -> bytes:
    from safetensors.numpy import save  # only where something is written

    def storable(array: Array) -> Array:
        array = np.ascontiguousarray(array)
        known = array.dtype.kind in "biuf"  # not bfloat16, nor strings
        return array if known else np.frombuffer(array.tobytes(), np.uint8)

    return save({name: storable(array) for name, array in arrays.items()})


def _json(content: Any) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")


def _write_through(path: pathlib.Path, data: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _synchronize(folder: pathlib.Path) -> None:
    """Waits until the disk has the names in a folder; not every system can."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _problem(path: pathlib.Path) -> str | None:
    """What is wrong with a state, or None."""
    hashes = {}
    for name in (ARRAYS, STATE):
        try:
            with open(path / name, "rb") as file:
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    try:
        manifest = (path / MANIFEST).read_bytes()
    except OSError as error:
        return f"{MANIFEST} cannot be read ({error.strerror})"
    # To the letter: a manifest in which a bit has changed is no manifest.
    if manifest == _json(hashes):
        return None
    wrong = [name for name, found in hashes.items() if found.encode() not in manifest]
    return f"{' and '.join(wrong) or MANIFEST} is not what was written"


def _read(path: pathlib.Path) -> tuple[dict[str, Any], dict[str, Array]]:
    from safetensors.numpy import load_file

    state = json.loads((path / STATE).read_bytes())
    stored = load_file(path / ARRAYS)
    arrays = {
        name: stored[name].view(dtype).reshape(shape)
        for name, (dtype, shape) in state.pop("arrays").items()
    }
    return state, arrays
