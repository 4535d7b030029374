"""Runs `program.py` in processes of its own: the number of devices is fixed when one starts."""

import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent


def start(backend, *commands, devices=8):
    """A process that runs commands, each a tuple of words, one after the other."""
    words = " -- ".join(" ".join(map(str, command)) for command in commands).split()
    flags = f"--xla_force_host_platform_device_count={devices}"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.distribution.program", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": flags},
    )


def answers(process, number):
    """The last lines that a process prints, from JSON."""
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err[-4000:]
    return [json.loads(line) for line in out.splitlines()[-number:]]


def run(backend, *commands, devices=8):
    """The answer to each command."""
    return answers(start(backend, *commands, devices=devices), len(commands))


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]
