"""Recipes as a user starts them, in processes of their own, and what they leave behind."""

import contextlib
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
from safetensors.numpy import load_file

from keras_transformers.tables import read_bytes
from keras_transformers.training.checkpoints import ARRAYS, PARTS

ROOT = pathlib.Path(__file__).parent.parent.parent
DATA = ROOT / "recipes" / "data"
EPOCH, STEP = re.compile(r"Epoch (\d+)/\d+"), re.compile(r"(\d+)/(\d+) .{0,40}━")
# A shell lets its background jobs ignore Ctrl-C, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
PLAIN = re.compile(r"\x1b\[[0-9;]*m|\x08")


def write_data(folder):
    """Shares of the recipes' own data sets, of real sizes but for their number: the arguments."""
    for name, count in (("train", 1500), ("valid", 40), ("test", 8)):
        (packed,) = (DATA / "ui.en-de").glob(f"{name}.tsv.*")
        lines = read_bytes(packed, "pairs").splitlines(keepends=True)[:count]
        (folder / f"{name}.tsv").write_bytes(b"".join(lines))
    with np.load(DATA / "fashion-mnist-12k.npz") as arrays:
        counts = {"x_train": 2000, "y_train": 2000, "x_test": 100, "y_test": 100}
        kept = {name: arrays[name][:count] for name, count in counts.items()}
    np.savez(folder / "images.npz", **kept)
    texts = [f"--{name} {folder / name}.tsv" for name in ("train", "valid", "test")]
    return {"texts": " ".join(texts).split(), "images": ["--dataset", f"{folder}/images.npz"]}


class Run:
    """A recipe that runs.

    Args:
        recipe: Its name.
        output: Folder.
        arguments: More of its command line.
        environment: Variables of its own.
    """

    def __init__(self, recipe, output, *arguments, environment=()):
        command = [sys.executable, "-m", f"recipes.{recipe}", "--output", str(output)]
        self._process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **dict(environment),
            },
        )
        self.said = ""

    def _read(self):
        piece = os.read(self._process.stdout.fileno(), 65536)
        self.said += PLAIN.sub("", piece.decode(errors="replace"))
        return bool(piece)

    def step(self):
        """Epoch and step that the progress bar shows, from 1; (0, 0) before."""
        epochs = list(EPOCH.finditer(self.said))
        if not epochs:
            return 0, 0
        steps = STEP.findall(self.said, epochs[-1].end())
        return int(epochs[-1][1]), int(steps[-1][0]) if steps else 0

    def steps_per_epoch(self):
        """As the progress bar shows them."""
        return int(STEP.findall(self.said)[-1][1])

    def wait_for_step(self, epoch, step):
        """Reads until a step is shown; False if the run ended before."""
        while self._read():
            if self.step() >= (epoch, step):
                return True
        return False

    def read_for(self, seconds):
        """Reads for so many seconds, or until the run ends."""
        ends = time.monotonic() + seconds
        os.set_blocking(self._process.stdout.fileno(), False)
        while time.monotonic() < ends and self._process.poll() is None:
            time.sleep(0.02)
            with contextlib.suppress(BlockingIOError):
                self._read()
        os.set_blocking(self._process.stdout.fileno(), True)

    def kill(self, how=signal.SIGKILL):
        """Sends a signal and reads what is left; returns the exit status."""
        self._process.send_signal(how)
        return self.end()

    def is_over(self, seconds):
        """Whether it ends by itself in so many seconds."""
        try:
            self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self):
        """Reads to the end; returns the exit status."""
        while self._read():
            pass
        return self._process.wait()

    def wait_for_file(self, path):
        """Whether a file came to be before the run ended."""
        os.set_blocking(self._process.stdout.fileno(), False)
        while not path.exists() and self._process.poll() is None:
            time.sleep(0.05)
            try:
                self._read()
            except BlockingIOError:
                continue
        os.set_blocking(self._process.stdout.fileno(), True)
        return path.exists()


def checkpoints(output, name="training"):
    """Folders of a run's checkpoints, the oldest first."""
    return sorted((pathlib.Path(output) / "checkpoints" / name).glob("step-*"))


def digest(checkpoint):
    """SHA-256 of weights, seeds, averages and optimizer, names and values."""
    arrays = load_file(checkpoint / ARRAYS)
    found = hashlib.sha256()
    for name in sorted(arrays):
        if name.startswith(PARTS[:3]):
            found.update(name.encode() + arrays[name].tobytes())
    return found.hexdigest()
