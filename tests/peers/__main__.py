"""Runs the tests of Keras and KerasHub on this project, and sorts those that fail.

    git clone -b v3.15.1 https://github.com/keras-team/keras
    git clone https://github.com/keras-team/keras-hub
    python -m tests.peers --keras keras --keras-hub keras-hub
    KERAS_BACKEND=jax python -m tests.peers --keras keras --keras-hub keras-hub

Their files are read where they are, and what they import is exchanged for what stands in its place
here; nothing of theirs is kept. A test passes, or `differences.py` says why not: what it tests is
none of ours, or we differ on purpose, in words that the docstring of an object of ours must have.
The program fails where a test fails that is not on that list, where the docstring lacks the words,
and where no test of a pattern of the list fails any longer.

`--bytes FOLDER` has RoBERTa's `vocab.json` and `merges.txt`, without which KerasHub's tests of byte
pairs are left out.
"""

import argparse
import collections
import fnmatch
import inspect
import os
import pathlib
import re
import sys
import tempfile

import keras
import pytest

from benchmarks.report import table
from tests.peers.differences import NOT_HERE, PEERS

FOLDERS = ("layers", "samplers", "tokenizers")  # of KerasHub: all files are run or accounted for
SKIPPED = "skipped"
OPTIONS = ["-q", "--tb=no", "-p", "no:cacheprovider", "--import-mode=importlib"]


class Outcomes:
    """What pytest tells: file -> class::name -> None, SKIPPED, or the error."""

    def __init__(self):
        self.of = collections.defaultdict(dict)

    def pytest_collectreport(self, report):
        if report.failed:
            self.of[pathlib.Path(report.nodeid).name]["collection"] = str(report.longrepr)

    def pytest_runtest_logreport(self, report):
        path, _, name = report.nodeid.partition("::")
        file = pathlib.Path(path).name
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.of[file][name] = crash.message if crash else str(report.longrepr)
        elif report.skipped:
            self.of[file][name] = SKIPPED
        elif report.when == "call":
            self.of[file].setdefault(name, None)


def exchanged(text, words):
    """A file of tests with other imports."""
    for theirs, ours in words.items():
        text, count = re.subn(theirs, ours, text, flags=re.MULTILINE)
        if not count:
            raise SystemExit(f"tests.peers: {theirs!r} is not there to be exchanged")
    return text


def sort(outcomes, peer):
    """Counts of a file, and what is wrong with it: sentences."""
    counts = collections.Counter(collected=len(outcomes))
    found, wrong = collections.defaultdict(set), [] if outcomes else ["no test ran"]
    for test, error in outcomes.items():
        name, listed = test.rpartition("::")[2], (*peer.differs, *peer.not_ours)
        pattern = next((each for each in listed if fnmatch.fnmatch(name, each)), None)
        kind = {None: "passed", SKIPPED: SKIPPED}.get(error, "unexplained")
        if pattern and kind == "unexplained":
            kind = "differ on purpose" if pattern in peer.differs else "not ours"
        if pattern:
            found[pattern].add(kind)
        if kind == "unexplained":
            wrong.append(f"{test}: {' '.join(error.split())[:300]}")
        counts[kind] += 1
    for pattern in (*peer.differs, *peer.not_ours):
        if found[pattern] <= {"passed"}:
            wrong.append(f"{pattern} is on the list, but no such test fails")
    for pattern, (one, words) in peer.differs.items():
        if words not in " ".join(inspect.getdoc(one).split()):
            wrong.append(f"the docstring of {one.__name__} does not say {words!r}, for {pattern}")
    return counts, wrong


def unaccounted(hub):
    """Sentences about KerasHub's files that are neither run nor known to be none of ours."""
    files = (file for each in FOLDERS for file in (hub / "keras_hub/src" / each).rglob("*_test.py"))
    names = {file.name.removesuffix("_test.py") for file in files}
    known = {*NOT_HERE, *(pathlib.Path(peer.path).stem.removesuffix("_test") for peer in PEERS)}
    return [f"{name}: neither run nor in NOT_HERE" for name in sorted(names - known)]


def main(clones, only, bytes_folder):
    os.environ["PEERS_BYTES"] = str(bytes_folder)
    sys.path.insert(0, str(clones["keras_hub"]))  # their TestCase and its data
    peers = {pathlib.Path(peer.path).name: peer for peer in PEERS}
    if bytes_folder is None:
        del peers["byte_pair_tokenizer_test.py"]
    peers = {name: peer for name, peer in peers.items() if not only or name in only}
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory() as folder:
        for name, peer in peers.items():
            clone = clones["keras_hub" if peer.path.startswith("keras_hub") else "keras"]
            text = exchanged((clone / peer.path).read_text(encoding="utf-8"), peer.words)
            pathlib.Path(folder, name).write_text(text, encoding="utf-8")
        options = ["-c", os.devnull, "--rootdir", folder, "-k", "not test_session", *OPTIONS]
        pytest.main([*options, *(f"{folder}/{name}" for name in peers)], plugins=[outcomes])
    rows, faults = {}, unaccounted(clones["keras_hub"])
    for name, peer in peers.items():
        rows[name], wrong = sort(outcomes.of[name], peer)
        faults += [f"{name}: {each}" for each in wrong]
    columns = ("collected", "passed", "differ on purpose", "not ours", SKIPPED, "unexplained")
    print(keras.backend.backend())
    print(table({name: {c: row[c] for c in columns} for name, row in rows.items()}, "file"))
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keras", required=True, type=pathlib.Path)
    parser.add_argument("--keras-hub", required=True, type=pathlib.Path)
    parser.add_argument("--bytes", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=(), help="names of files")
    given = parser.parse_args()
    clones = {"keras": given.keras, "keras_hub": given.keras_hub}
    raise SystemExit(main(clones, given.only, given.bytes))
