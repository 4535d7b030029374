"""Claims about programs kept on disk: a second process compiles nothing, and no file does harm."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

from keras_transformers import compile_cache
from keras_transformers.core import caching

SECONDS = 24 * 3600
# A program, and what XLA said of it: whether it was loaded or built.
PROGRAM = """
import sys
from keras_transformers import compile_cache
print(compile_cache(sys.argv[1]))
import tensorflow as tf
run = tf.function(lambda x: tf.reduce_sum(tf.nn.gelu(x)), jit_compile=True)
print(run(tf.range(7.0)).numpy())
"""
JAX = """
import sys
from keras_transformers import compile_cache
print(compile_cache(sys.argv[1]))
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
print(jax.jit(lambda x: (x * 2).sum())(jax.numpy.arange(7.0)))
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """What is said to TensorFlow, which has read it long ago in this process, is taken back."""
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    monkeypatch.setattr(caching, "_OURS", set())
    monkeypatch.setattr(caching, "_use_in_jax", lambda path: None)
    monkeypatch.setattr(caching.atexit, "register", lambda *arguments: None)


def started(folder, program=PROGRAM, **environment):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ended(process):
    said, errors = process.communicate()
    assert process.returncode == 0, errors[-2000:]
    return said.splitlines()


def entry(folder, name, size, age=0.0):
    """A file as XLA writes them: three fields with their lengths, of which the last is `size`."""
    path = folder / name
    path.write_bytes(b"\x0a\x01k\x12\x01h\x1a" + varint(size) + bytes(size))
    os.utime(path, 2 * (time.time() - age,))
    return path


def varint(number):
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.slow
def test_two_processes_share_a_folder_and_the_next_compiles_nothing(tmp_path):
    """Nor does a file harm that was cut short, which XLA by itself refuses to run."""
    both = [ended(each) for each in [started(tmp_path), started(tmp_path)]]
    assert both[0] == both[1]
    folder = pathlib.Path(both[0][0])
    assert folder.parent == tmp_path
    (kept,) = folder.iterdir()
    whole, written = kept.read_bytes(), kept.stat().st_mtime_ns
    assert ended(started(tmp_path)) == both[0]
    assert kept.stat().st_mtime_ns == written  # what is compiled is written, over the old file too
    kept.write_bytes(whole[: len(whole) // 2])
    assert ended(started(tmp_path)) == both[0]
    assert kept.stat().st_size > len(whole) // 2  # compiled anew


def test_a_jax_program_is_kept_too(tmp_path):
    said = ended(started(tmp_path, JAX, KERAS_BACKEND="jax"))
    assert said[1] == "42.0"
    assert [path for path in pathlib.Path(said[0]).iterdir() if path.name.startswith("jit_")]


def test_what_is_longest_unused_goes_when_the_bound_is_passed(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    old = entry(folder, "old.pb", 1000, 3 * SECONDS)
    middle = entry(folder, "middle.pb", 1000, 2 * SECONDS)
    now = entry(folder, "now.pb", 1000)
    caching.clean(tmp_path, 10_000)
    assert old.exists()
    caching.clean(tmp_path, 2500)
    assert not old.exists() and middle.exists() and now.exists()
    caching.clean(tmp_path, 1)  # another process may be reading what was just used
    assert not middle.exists() and now.exists()


@pytest.mark.parametrize("length", [0, 1, 5, 7, 8, 9, 500, 1008])
def test_a_file_that_was_cut_short_is_removed(tmp_path, length):
    folder = tmp_path / "one"
    folder.mkdir()
    path = entry(folder, "x.pb", 1000)
    caching.clean(tmp_path, 10_000)
    assert path.exists() and path.stat().st_size == 1009
    path.write_bytes(path.read_bytes()[:length])
    caching.clean(tmp_path, 10_000)
    assert not path.exists()


def test_every_machine_version_and_set_of_options_has_its_own_folder(tmp_path, monkeypatch):
    found = [compile_cache(tmp_path)]
    assert compile_cache(tmp_path) == found[0]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2")
    found.append(compile_cache(tmp_path))
    monkeypatch.setattr(caching, "_processor", lambda: ["another"])
    found.append(compile_cache(tmp_path))
    monkeypatch.setattr(caching.importlib.metadata, "version", lambda name: "9.9")
    found.append(compile_cache(tmp_path))
    assert len(set(found)) == 4
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in found)


def test_options_of_the_user_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
    path = compile_cache(tmp_path)
    options = os.environ["TF_XLA_FLAGS"].split()
    assert options[:2] == ["--tf_xla_clustering_debug", f"{caching.DIRECTORY}={path}"]
    compile_cache(tmp_path)
    assert os.environ["TF_XLA_FLAGS"].split() == options
    monkeypatch.setenv("TF_XLA_FLAGS", f"{caching.DIRECTORY}=/elsewhere")
    assert compile_cache(tmp_path) is None
    assert os.environ["TF_XLA_FLAGS"] == f"{caching.DIRECTORY}=/elsewhere"


def test_it_is_in_the_cache_directory_of_the_user_or_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(caching.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = compile_cache()
    assert path.parent == tmp_path / "keras_transformers" / "compiled"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    with pytest.warns(UserWarning, match="^compile_cache: compiled programs are not kept: "):
        assert compile_cache() is None
    assert os.environ["TF_XLA_FLAGS"] == ""


def test_a_folder_of_another_user_ends_no_program(tmp_path, monkeypatch):
    monkeypatch.setattr(caching.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    owner = os.getuid()
    compile_cache()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.warns(UserWarning, match="not kept: `folder` must be its user's alone"):
        assert compile_cache() is None


def test_without_a_home_there_is_no_cache(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(caching.pathlib.Path, "expanduser", no_home)
    with pytest.warns(UserWarning, match="not kept: there is no home directory for "):
        assert compile_cache() is None
    with pytest.raises(FileNotFoundError, match="^compile_cache: there is no home directory for ~"):
        compile_cache("~/compiled")


def test_an_entry_that_cannot_be_removed_stays(tmp_path, monkeypatch):
    (tmp_path / "another").mkdir()
    entry(tmp_path / "another", "a.pb", 100, age=7200.0)

    def refuse(path, missing_ok=False):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(caching.pathlib.Path, "unlink", refuse)
    caching.clean(tmp_path, 10)


def test_errors_say_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="`max_bytes` must be positive. Received: 0"):
        compile_cache(tmp_path, max_bytes=0)
    path = compile_cache(tmp_path)
    path.chmod(0o777)
    with pytest.raises(ValueError, match="must be its user's alone"):
        compile_cache(tmp_path)
