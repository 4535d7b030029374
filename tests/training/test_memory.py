"""Claims about keeping freed memory."""

import platform
import subprocess
import sys

import pytest

from keras_transformers.training import memory

# The module on its own: the package would import a backend, which takes longer than the test.
CODE = """
import importlib.util, resource, sys
import numpy as np

spec = importlib.util.spec_from_file_location("memory", sys.argv[2])
memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)
if sys.argv[1] == "keep":
    assert memory.keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for i in range(3):
    if i == 1:
        before = faults()
    for size in (2**20, 2**27 + 2**10):  # 8 MB, over 1 GB
        block = np.ones(size)
        del block
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator is meant")
def test_freed_memory_is_used_again():
    faults = {}
    for choice in ("keep", "leave"):
        command = [sys.executable, "-c", CODE, choice, memory.__file__]
        output = subprocess.run(command, capture_output=True, text=True, check=True)
        faults[choice] = int(output.stdout.split()[-1])
    assert faults["keep"] < 0.1 * faults["leave"]
