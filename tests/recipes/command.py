"""A recipe as its users call it: one command, in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile

import keras_transformers

PRINTED = {}  # of the runs, by folder
ERRORS = {}  # what they said beside it
COMPILED = os.path.join(tempfile.gettempdir(), "keras_transformers-tests")  # runs share programs


def command(recipe, output, *arguments, environment=None):
    """What came of `python -m recipes.RECIPE`."""
    parts = [sys.executable, "-m", f"recipes.{recipe}", "--output", *map(str, (output, *arguments))]
    environment = {**os.environ, "XDG_CACHE_HOME": COMPILED, **(environment or {})}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)  # which a recipe sets
    return subprocess.run(parts, capture_output=True, text=True, env=environment)


def run(recipe, output, *arguments, environment=None):
    """The metrics of a run, all of them finite numbers, which it has also printed.

    Its memory goes back to the system, which XLA's programs would never do in this process.
    """
    result = command(recipe, output, *arguments, environment=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    metrics = json.loads((output / "metrics.json").read_text())
    metrics = {name: value for name, value in metrics.items() if not isinstance(value, str)}
    assert all(abs(value) < float("inf") for value in metrics.values())
    assert set(metrics) <= set(result.stdout.split())
    PRINTED[output], ERRORS[output] = result.stdout, result.stderr
    return metrics


def assert_last_line_is_true(output, repeatable=True):
    """The lines that use what a run has exported are executed; commands to go on with follow."""
    lines = PRINTED[output].rstrip("\n").split("\n")
    load, predict, said, *rest = lines[lines.index("In Python:") + 1 :]
    assert any(each.startswith("  python -m recipes.") for each in rest)
    names = {"keras_transformers": keras_transformers}
    exec(load.strip(), names)
    answer, said = eval(predict.strip(), names), said.removeprefix("  # ")
    if repeatable:
        assert repr(answer) == said or said.endswith("…") and repr(answer).startswith(said[:-1])
    else:
        assert said.startswith("another each time: ") and isinstance(answer, str)
