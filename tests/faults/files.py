"""Hostile model files, each of which must be refused: see `tests.saving.hostile`."""

import json
import os
import subprocess
import sys

from tests.faults.runs import ROOT
from tests.saving import hostile

SECONDS, BYTES = 5, 200e6


def run(folder, data, tries, seed):
    """Title -> kinds of files and those refused, in time and memory, without a side effect."""
    corpus = list(hostile.files(folder))
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.saving.hostile", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    found = json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 else []
    refused = 0
    for name, seconds, grown, sentence in found:
        right = sentence is not None and seconds < SECONDS and grown < BYTES
        refused += right and not (folder / "canary").exists()
        if not right:
            print(f"  {name}: {seconds:.1f} s, {grown / 1e6:.0f} MB, {sentence}")
    slowest, largest = (max((each[i] for each in found), default=0) for i in (1, 2))
    print(f"hostile files: {slowest:.2f} s and {largest / 1e6:.0f} MB at most", flush=True)
    return {"hostile model file": (len(corpus), refused)}
