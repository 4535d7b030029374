"""Compares two folders of `record.py`: names, descriptions and arrays, bit for bit.

    python tests/frozen/compare.py BEFORE AFTER

Prints each difference, and ends with status 1 if there is one. A name may be added; none may be
lost. What the newer checkout loads from files of the older one must be what those answered.
"""

import json
import pathlib
import sys

import numpy as np


def differences(before, after):
    """Yields a sentence for each difference between two folders."""
    for file in ("names.json", "descriptions.json"):
        old, new = (json.loads((folder / file).read_text()) for folder in (before, after))
        for name, value in old.items():
            if name not in new:
                yield f"{file}: {name} is lost"
            elif new[name] != value:
                yield f"{file}: {name} differs: {_first_difference(value, new[name])}"
    old, new = (np.load(folder / "arrays.npz") for folder in (before, after))
    for name in old.files:
        if name not in new.files:
            yield f"arrays: {name} is lost"
        elif not np.array_equal(old[name], new[name], equal_nan=old[name].dtype.kind == "f"):
            yield f"arrays: {name} differs by {_distance(old[name], new[name])}"
    for name in new.files:
        if name.startswith("loaded/"):
            _, _, model, number = name.split("/")
            if not np.array_equal(new[name], old[f"models/{model}/eager/{number}"]):
                yield f"arrays: {name} is not what the file's model answered"


def _first_difference(old, new, path=""):
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}/{key}")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{path}/{number}")
    return f"{path}: {str(old)[:100]} -> {str(new)[:100]}"


def _distance(old, new):
    if old.shape != new.shape:
        return f"shape: {old.shape} -> {new.shape}"
    if old.dtype.kind not in "fiu":
        return "values"
    return f"{np.max(np.abs(old.astype('float64') - new.astype('float64'))):.3g}"


if __name__ == "__main__":
    found = list(differences(*map(pathlib.Path, sys.argv[1:3])))
    print(*found, f"{len(found)} differences", sep="\n")
    sys.exit(bool(found))
