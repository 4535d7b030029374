"""Checkpoints on disk that are whole or not there: arrays and JSON, with a hash of every byte."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import warnings
from typing import Any

import numpy as np

from keras_transformers.annotations import Array, StrPath

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
