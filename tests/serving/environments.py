"""Environments of their own for older versions of TensorFlow."""

import os
import pathlib
import subprocess
import sys
import venv

PACKAGES = ("tensorflow", "tensorflow-text")


def default_folder():
    """Where environments are kept: of this user, from one time to the next."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "keras_transformers" / "serving"


def python_of(version, folder):
    """The interpreter of an environment with TensorFlow of a version, made if there is none.

    Args:
        version: Such as "2.20"; tensorflow-text's is the same.
        folder: `pathlib.Path` of all environments.

    Raises:
        subprocess.CalledProcessError: If pip finds no such version for this Python.
    """
    position = folder / f"tensorflow-{version}"
    python = position / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    done = position / "installed"  # an installation that was broken off is done again
    if not done.exists():
        print(f"Installing TensorFlow {version} into {position} ...", flush=True)
        venv.create(position, clear=True, with_pip=True)
        wanted = [f"{package}=={version}.*" for package in PACKAGES]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
        done.touch()
    return str(python)
