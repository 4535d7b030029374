"""Claims about runs that are stopped at a terminal: Ctrl-C, and the command that continues."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_transformers.saving import load_model
from tests.recipes.command import command

IN_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""
ARGUMENTS = ["--smoke", "--minutes", "None", "--epochs", "3", "--dropout", "0.1"]


def in_terminal(*arguments):
    """A process in a terminal of its own, whose keyboard and screen are pipes."""
    program = [sys.executable, "-c", IN_TERMINAL, sys.executable, "-m", *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(program, **pipes)


def read_until(process, text):
    """What the screen shows, up to some text or the end."""
    shown = ""
    while text not in shown:
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            break
        shown += piece.decode(errors="replace")
    return shown


def weights(folder):
    return load_model(folder / "model.keras").get_weights()


@pytest.mark.skipif(sys.platform != "linux", reason="reads which libraries a process has loaded")
@pytest.mark.parametrize("module", ["recipes.vit", "recipes.predict"])
def test_ctrl_c_while_a_program_starts_ends_it_with_a_word(module, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", module], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    while "tensorflow" not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate()
    assert process.returncode == 130 and out == b""
    assert said.decode().split("\n")[-2:] == ["Stopped.", ""] and b"Traceback" not in said


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
@pytest.mark.parametrize("recipe", ["vit", "language_model"])
def test_ctrl_c_ends_a_run_and_the_command_that_it_prints_continues_it(recipe, tmp_path):
    whole = command(recipe, tmp_path / "whole", *ARGUMENTS)
    assert whole.returncode == 0, whole.stderr[-2000:]
    stopped = in_terminal(f"recipes.{recipe}", "--output", tmp_path / "stopped", *ARGUMENTS)
    read_until(stopped, "Epoch 2/3")
    stopped.stdin.write(b"\x03")
    stopped.stdin.flush()
    shown = read_until(stopped, "\0")
    assert stopped.wait() == 130
    assert "Stops after this step" in shown and "Traceback" not in shown
    words = shlex.split(
        shown.replace("\r\n", "\n").replace("\\\n", "").partition("Continue with:")[2]
    )
    assert words[:3] == ["python", "-m", f"recipes.{recipe}"]
    subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)
    for ours, expected in zip(
        weights(tmp_path / "stopped"), weights(tmp_path / "whole"), strict=True
    ):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.slow
def test_a_refused_command_changes_nothing_and_a_used_folder_is_refused(tmp_path):
    """Over the command line, as `tests/recipes/test_folder.py` states it of the parts."""
    pairs = [f"the number {i}\tdie Zahl {i}\n" for i in range(300)]
    for name, rows in {"a.tsv": pairs, "b.tsv": pairs[::-1]}.items():
        (tmp_path / name).write_text("".join(rows))
    options = ["--smoke", "--vocab-size", "50", "--minutes", "None"]
    run = tmp_path / "run"
    done = command("translation", run, "--train", tmp_path / "a.tsv", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refusals = {
        ("--train", tmp_path / "b.tsv"): "holds a run",
        ("--train", tmp_path / "none.tsv", "--overwrite"): "none.tsv",
    }
    for arguments, message in refusals.items():
        refused = command("translation", run, *arguments, *options)
        assert refused.returncode == 1 and message in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
