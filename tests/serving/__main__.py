"""Asks every export in processes with other versions of TensorFlow, without XLA.

    pip install -e '.[test]'
    python -m tests.serving                              # makes the environments, about 20 minutes
    python -m tests.serving --python 2.19=/path/to/python # uses one that is there
    python -m tests.serving --only detector --versions 2.20
    python -m tests.serving --write                      # benchmarks/results/serving_versions
    python -m tests.serving --soak                       # this version alone, for long

The exports are those of `tests/export/examples.py`, and copies in fewer bits. Each is loaded by
`loader.py` alone, with XLA switched off as a stock TensorFlow Serving does, and must answer as the
signature `xla` of the current TensorFlow: the same text and labels, scores within 1e-5 (1e-2 in
fewer bits). With `--soak` each answers 10,000 requests, and 16 threads at once for two minutes: its
memory may grow by 5 % after the first 1,000, and all answers must be those of a request alone. The
status is 1 if something fails.
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
from tests.serving import environments, soak
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


def main_soak(only, seconds, threads, requests, write_results):
    """Asks all for long; prints and keeps the table. Returns the exit status."""
    rows = {}
    with tempfile.TemporaryDirectory() as work:
        for number, name in enumerate(only or examples.MAKE):
            keras.utils.set_random_seed(3)
            served = EVERY[name]()
            folder = write(pathlib.Path(work, str(number)), served, examples.requests(served))
            rows[name] = soak.row(folder, seconds, threads, requests)
            print(name, rows[name], flush=True)
    print(report.table(rows, "exporter"), flush=True)
    if write_results:
        heading = report.heading("tensorflow", "tensorflow-text", "keras")
        load = {"seconds": seconds, "threads": threads, "requests": requests}
        tables = {f"{requests} requests; {threads} threads for {seconds:g} s": rows}
        report.write("serving_soak", {**heading, **load, "rows": rows}, tables)
    return int(any(row["passed"] != "yes" for row in rows.values()))


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
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--seconds", type=float, default=120, help="that the threads ask")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--requests", type=int, default=10_000)
    return parser.parse_args()


def interpreters(versions, given, folder):
    """Version -> Python, given as VERSION=PATH, this one, or one of an environment made here."""
    found = dict(each.split("=", 1) for each in given)
    for version in versions:
        if version == CURRENT:
            found.setdefault(version, sys.executable)
        elif version not in found:
            found[version] = environments.python_of(version, folder)
    return {version: found[version] for version in versions}


if __name__ == "__main__":
    given = arguments()
    if given.soak:
        load = (given.seconds, given.threads, given.requests)
        raise SystemExit(main_soak(given.only, *load, given.write))
    pythons = interpreters(given.versions, given.python, given.environments)
    raise SystemExit(main(given.only, pythons, given.write))
