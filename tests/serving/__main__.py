"""Asks every export in processes with other versions of TensorFlow, without XLA.

    pip install -e '.[test]'
    python -m tests.serving                              # makes the environments, about 20 minutes
    python -m tests.serving --python 2.19=/path/to/python # uses one that is there
    python -m tests.serving --only detector --versions 2.20
    python -m tests.serving --write                      # benchmarks/results/serving_versions

The exports are those of `tests/export/examples.py`, and copies in fewer bits. Each is loaded by
`loader.py` alone, with XLA switched off as a stock TensorFlow Serving does, and must answer as the
signature `xla` of the current TensorFlow: the same text and labels, scores within 1e-5 (1e-2 in
fewer bits). The status is 1 if one does not.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import keras
import tensorflow as tf

from benchmarks import report
from tests.export import examples
from tests.serving import environments
from tests.serving.answers import CLOSE, CLOSE_IN_FEWER_BITS, ask, differences, write

OLDER = ("2.19", "2.20")
CURRENT = ".".join(tf.__version__.split(".")[:2])
EVERY = examples.MAKE | examples.IN_FEWER_BITS


def main(only, pythons, write_results):
    """Asks all; prints and keeps the table. Returns the exit status."""
    rows = {}
    with tempfile.TemporaryDirectory() as work:
        for number, name in enumerate(only or EVERY):
            rows |= check(name, pathlib.Path(work, str(number)), pythons)
    print(report.table(rows, "exporter, TensorFlow"), flush=True)
    if write_results:
        heading = report.heading("tensorflow", "tensorflow-text", "keras")
        tables = {"Answers without XLA, in ms": rows}
        report.write("serving_versions", {**heading, "rows": rows}, tables)
    return int(any(row["answers_equal"] != "yes" for row in rows.values()))


def check(name, folder, pythons):
    """Exports one and asks it in each version; its rows of the table."""
    keras.utils.set_random_seed(3)
    served = EVERY[name]()
    write(folder, served, examples.requests(served))
    close = CLOSE_IN_FEWER_BITS if name in examples.IN_FEWER_BITS else CLOSE
    (expected,) = ask([folder], "xla")
    if "error" in expected:
        raise RuntimeError(f"{name}: the signature xla gives no answer: {expected['error']}")
    rows = {}
    for version, python in pythons.items():
        (found,) = ask([folder], without_xla=True, python=python)
        wrong = differences(expected, found, close)
        rows[f"{name}; {found.get('tensorflow', version)}"] = _row(found, wrong)
        print(f"{name}, {version}: {'; '.join(wrong) or 'equal'}"[:2000], flush=True)
    return rows


def _row(found, wrong):
    row = {
        "XLA_off": "yes" if found.get("without_xla") else "no",
        "answers_equal": "no" if wrong else "yes",
    }
    if "error" not in found:
        (first, *_), later = found["first"], found["later"]
        row |= {"load": round(found["load"]), "first_request": round(first)}
        row["later_requests"] = round(statistics.median(later[:-1]), 1)  # the last is of nothing
    return row


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=EVERY, metavar="EXPORTER")
    parser.add_argument("--versions", nargs="+", default=[*OLDER, CURRENT])
    parser.add_argument("--python", nargs="+", default=[], metavar="VERSION=PATH")
    parser.add_argument("--environments", type=pathlib.Path, default=environments.default_folder())
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    pythons = dict(each.split("=", 1) for each in given.python)
    for version in given.versions:
        if version == CURRENT:
            pythons.setdefault(version, sys.executable)
        elif version not in pythons:
            pythons[version] = environments.python_of(version, given.environments)
    pythons = {version: pythons[version] for version in given.versions}
    raise SystemExit(main(given.only, pythons, given.write))
