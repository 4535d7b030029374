"""Candidates measured side by side: a process each, taking turns, so that all meet the same hours.

A benchmark module has `prepare(name, settings) -> (run, result)`: `run` is what is timed, without
arguments; `result`, JSON, is what it computes, for the benchmark to compare before anything is
timed. `measure` starts `python -m MODULE --candidate NAME --settings JSON` for every candidate,
whose `main` hands over to `serve`.

No process has TensorFlow and another library's kernels: PyTorch with Triton crashes beside it. What
a peer needs of ours comes from `apart`.
"""

import importlib.util
import json
import os
import pathlib
import pickle
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.report import resident_mebibytes

WARM_UP = 2
PYTHON = [sys.executable, "-X", "faulthandler"]  # says where a crash was
PAUSE = 0.5  # seconds before a turn: OpenMP's threads of the one before spin for 0.2


def serve(prepare, name, settings):
    """The candidate's side: prepares, warms up, then times a run for every line it is sent."""
    # What libraries print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    started = time.perf_counter()
    run, result = prepare(name, settings)
    run()
    first = time.perf_counter() - started
    for _ in range(WARM_UP):
        run()
    _say(answers, {"result": result, "seconds_until_first": first})
    for _ in sys.stdin:
        run()  # once to wake up: the processor, its caches and the threads
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        _say(answers, {"seconds": seconds, "peak_mebibytes": round(resident_mebibytes())})


def _say(answers, message):
    answers.write(json.dumps(message) + "\n")
    answers.flush()


class _Candidate:
    """The benchmark's side of one candidate."""

    def __init__(self, module, name, settings):
        self.name = name
        self._errors = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would fill up
        self._process = subprocess.Popen(
            [*PYTHON, "-m", module, "--candidate", name, "--settings", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.prepared = self._hear()
        self.seconds = []

    def turn(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._hear()
        self.seconds.append(answer["seconds"])
        self.peak = answer["peak_mebibytes"]

    def _hear(self):
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(
                ending(f"{self.name} ended early", self._process.returncode, self._errors.read())
            )
        return json.loads(line)

    def end(self):
        self._process.stdin.close()
        self._process.wait()
        self._errors.close()

    def summary(self):
        middle = statistics.median(self.seconds)
        return {
            "milliseconds": round(1e3 * middle, 2),
            "from": round(1e3 * min(self.seconds), 2),
            "to": round(1e3 * max(self.seconds), 2),
            "seconds_until_first": round(self.prepared["seconds_until_first"], 2),
            "peak_mebibytes": self.peak,
        }


def measure(module, names, settings, rounds=5, check=None):
    """Prepares all candidates one after the other, compares them, then times them in turns.

    Args:
        module: Name of the benchmark's module.
        names: Names of the candidates.
        settings: JSON for all of them.
        rounds: Turns of each; the median is reported, with the least and the most.
        check: Optional function of a dict of the candidates' results; raises where one is wrong.

    Returns:
        Dict of names to `milliseconds` (median), `from`, `to`, `seconds_until_first` (imports,
        building and compiling included) and `peak_mebibytes` of the process.
    """
    candidates = []
    try:
        for name in names:
            candidates.append(_Candidate(module, name, settings))
        if check:
            check({each.name: each.prepared["result"] for each in candidates})
        for _ in range(rounds):
            for candidate in candidates:
                time.sleep(PAUSE)
                candidate.turn()
    finally:
        for candidate in candidates:
            candidate.end()
    return {candidate.name: candidate.summary() for candidate in candidates}


def ending(what, code, said):
    """A sentence on how a process ended, and what it said last.

    Args:
        what: How it begins.
        code: The return code; minus the number of a signal.
        said: All that it wrote to its standard error.
    """
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    return f"{what}, with {how}. What it said last:\n{said[-3000:] or '(nothing)'}"


def ran(command):
    """What a process printed; RuntimeError with what it said last if it fails."""
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        what = f"{' '.join(map(str, command))} failed"
        raise RuntimeError(ending(what, process.returncode, process.stderr))
    return process.stdout


def fresh(module, *arguments):
    """What `python -m MODULE ARGUMENTS` prints last, JSON: a candidate in a process of its own."""
    return json.loads(ran([*PYTHON, "-m", module, *arguments]).splitlines()[-1])


def apart(function, *arguments):
    """What a function of a module gives, computed in a process of its own.

    Args:
        function: One at the top of a module of the benchmarks; what it gives can be pickled.
        arguments: What it is called with; can be pickled.
    """
    # A module that is run has another name than where it lies.
    module = function.__globals__["__spec__"].name
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = pathlib.Path(folder, "asked"), pathlib.Path(folder, "answer")
        asked.write_bytes(pickle.dumps(arguments))
        ran([*PYTHON, "-m", "benchmarks.apart", module, function.__name__, asked, answer])
        return pickle.loads(answer.read_bytes())


def keep_freed_memory():
    """`keras_transformers.training.keep_freed_memory`, without importing TensorFlow."""
    (package,) = importlib.util.find_spec("keras_transformers").submodule_search_locations
    return runpy.run_path(pathlib.Path(package, "training", "memory.py"))["keep_freed_memory"]()


def main(prepare, run_all, parser):
    """The command line of a benchmark: a candidate's process, or the whole."""
    parser.add_argument("--candidate", help="used by the benchmark itself")
    parser.add_argument("--settings", type=json.loads, help="used by the benchmark itself")
    arguments = vars(parser.parse_args())
    candidate, settings = arguments.pop("candidate"), arguments.pop("settings")
    if candidate:
        serve(prepare, candidate, settings)
    else:
        run_all(**arguments)
