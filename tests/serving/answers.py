"""Exports written for another process, and its answers against those of this one."""

import json
import pathlib
import subprocess
import sys

import numpy as np

LOADER = pathlib.Path(__file__).with_name("loader.py")
CLOSE, CLOSE_IN_FEWER_BITS = 1e-5, 1e-2  # of scores


def write(folder, served, requests):
    """Writes a SavedModel and what it will be asked; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    served.save(folder / "model")
    texts = [
        [(each.encode() if isinstance(each, str) else each).decode("latin-1") for each in request]
        for request in requests
    ]
    (folder / "requests.json").write_text(json.dumps(texts))
    return folder


def ask(folders, signature="serving_default", without_xla=False, python=sys.executable):
    """What `loader.py` answers in a process of its own, a dict for each folder."""
    command = [python, str(LOADER), "--signature", signature]
    command += ["--without-xla"] if without_xla else []
    done = subprocess.run(
        [*command, *map(str, folders)], capture_output=True, text=True, cwd=folders[0]
    )
    answers = []
    for folder in folders:
        path = folder / f"{signature}.json"
        lost = {"error": f"the process ended with {done.returncode}: {done.stderr[-2000:]}"}
        answers.append(json.loads(path.read_text()) if path.exists() else lost)
        path.unlink(missing_ok=True)
    return answers


def differences(expected, found, close=CLOSE):
    """Where two processes' answers differ, a list of sentences.

    Text, labels, numbers and truth must be the same, what is computed in floating point `close`,
    relative for what is larger than 1.
    """
    if "error" in found:
        return [found["error"]]
    wrong = []
    pairs = zip(expected["answers"], found["answers"], strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        if ours.keys() != theirs.keys():
            wrong.append(f"request {number} has outputs {sorted(theirs)}, not {sorted(ours)}")
            continue
        for name in ours:
            one, other = np.array(ours[name]), np.array(theirs[name])
            if one.shape != other.shape:
                wrong.append(f"request {number}, {name}: shape {other.shape}, not {one.shape}")
                continue
            if one.dtype.kind == "f":
                same = np.isclose(one, other, rtol=close, atol=close)
            else:
                same = one == other
            if not same.all():
                row = np.argwhere(~same)[0]
                pair = one[tuple(row)], other[tuple(row)]
                wrong.append(
                    f"request {number}, {name}: {np.sum(~same)} of {same.size} differ, first "
                    f"{row.tolist()}: {pair[1]!r}, not {pair[0]!r}"
                )
    return wrong
