"""Bounds the memory of a test run: frees graphs between files, and replaces workers that grow.

`tests/conftest.py` imports the hooks and calls `release_graphs` after each file.
"""

import ctypes
import gc
import os
import sys

import psutil
import pytest

GIB = 2**30
# Resident memory above which a worker gets no further file. After its imports it holds 1.1 GiB.
LIMIT = float(os.environ.get("TEST_WORKER_GIB", "3.5")) * GIB
# Files that take longest. They begin first, so that none is left alone at the end.
LONGEST = (
    "tests/recipes/test_translation.py",
    "tests/recipes/test_vit.py",
    "tests/fitting/test_fitting.py",
    "tests/export/test_text_generator.py",
    "tests/export/test_portable.py",
    "tests/export/test_translation.py",
    "tests/loading/test_published.py",
    "tests/training/test_resume.py",
    "tests/distribution/test_mirrored.py",
    "tests/distribution/test_jax.py",
)
CUSTOM_GRADIENT = "CustomGradient-"  # how TensorFlow names what `tf.custom_gradient` registers


def release_graphs():
    """Frees the graphs that nothing uses any more, and returns their memory to the system.

    `tf.custom_gradient` registers the gradient of each traced call in a global table and never
    removes it. Each entry keeps its graph alive and, through it, all graphs of a training step: 70
    MiB for a Transformer of one block. TensorFlow has no public way to remove an entry
    (`tests/test_memory.py` fails if the private one changes).
    """
    if "tensorflow" in sys.modules:
        from tensorflow.python.framework import ops

        table = ops.gradient_registry._registry
        for name in [name for name in table if name.startswith(CUSTOM_GRADIENT)]:
            del table[name]
    gc.collect()
    if sys.platform == "linux":  # a run of a recipe tells the C library to keep freed memory
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the resident memory of the worker, in bytes, to the last report of each test."""
    outcome = yield
    if call.when == "teardown":
        outcome.get_result().worker_memory = psutil.Process().memory_info().rss


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Returns the scheduler of `--dist loadfile`, which also replaces workers above the limit.

    XLA keeps every program that it compiles until the process ends, so that a worker grows with
    each file. The peak of a run now depends on the number of workers and on the largest single
    file, but not on the order or the number of files.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    memory = {}  # worker -> bytes after the last test that it reported

    class ReplacingScheduling(LoadFileScheduling):
        """Gives no further file to a worker above the limit, and the longest files first."""

        def schedule(self):
            begins = self.collection is None
            super().schedule()
            for file in reversed(LONGEST if begins else ()):
                if file in self.workqueue:
                    self.workqueue.move_to_end(file, last=False)

        def _reschedule(self, node):
            if node not in self.registered_collections:
                return  # a new worker, which is asked again when it has collected the tests
            needs_file = self._pending_of(self.assigned_work[node]) <= 2
            if needs_file and self.workqueue and memory.get(node, 0) > LIMIT:
                node.shutdown()  # after the tests that it already has
            super()._reschedule(node)

    config.pluginmanager.register(WorkerReplacement(config, memory), "worker-replacement")
    return ReplacingScheduling(config, log)


class WorkerReplacement:
    """Hooks of the controller: note the memory of each worker, and replace a worker that ended."""

    def __init__(self, config, memory):
        self.config = config
        self.memory = memory

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "worker_memory"):
            self.memory[report.node] = report.worker_memory

    def pytest_testnodedown(self, node, error):
        session = self.config.pluginmanager.getplugin("dsession")
        if error is None and session.sched.workqueue:
            node.gateway.exit()  # ends the process, which would outlive its last test
            session._clone_node(node)
