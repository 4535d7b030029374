"""Claims about the memory of test runs: graphs are freed, and workers that grow are replaced."""

import gc
import pathlib
import re
import subprocess
import sys
import weakref

import keras
import pytest

from tests.memory import LONGEST, release_graphs

ROOT = pathlib.Path(__file__).parent.parent
TEST = """
import os
import pytest

@pytest.mark.parametrize("number", range(3))
def test_process(number):
    with open("processes.txt", "a") as file:
        file.write(f"{__name__} {os.getpid()}\\n")
"""


def test_the_files_that_begin_first_are_there():
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a table of TensorFlow")
def test_a_graph_with_a_custom_gradient_is_freed():
    import tensorflow as tf

    @tf.custom_gradient
    def double(x):
        return 2 * x, lambda upstream: 2 * upstream

    graph = tf.function(lambda x: double(x)).get_concrete_function(tf.TensorSpec([3])).graph
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is not None, "TensorFlow frees it by itself: `release_graphs` can go"
    release_graphs()
    assert reference() is None


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("limit", [0, 1000])
def test_a_worker_above_the_limit_gets_no_further_file(tmp_path, workers, limit):
    (tmp_path / "conftest.py").write_text(
        "from tests.memory import pytest_runtest_makereport, pytest_xdist_make_scheduler\n"
        f"import tests.memory\n\ntests.memory.LIMIT = {limit} * 2**30\n"
    )
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\n")
    for name in "abcde":
        (tmp_path / f"test_{name}.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadfile"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\b15 passed in", run.stdout)
    lines = (tmp_path / "processes.txt").read_text().splitlines()
    assert len(lines) == 15
    files_of = {}
    for line in lines:
        name, process = line.split()
        files_of.setdefault(process, set()).add(name)
    if limit == 0:
        assert all(len(files) <= 2 for files in files_of.values()), files_of
        assert len(files_of) >= 3
    else:
        assert len(files_of) == workers
