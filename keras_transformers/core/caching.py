"""Compiled programs that outlive their process, so that the next one need not compile them."""

import atexit
import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shutil
import sys
import time
import warnings
from collections.abc import Iterator
from typing import BinaryIO

import keras

DIRECTORY = "--tf_xla_persistent_cache_directory"
IN_USE = 3600.0  # seconds since its last use in which an entry may be another process's, and stays
LEAST_FREE = 2**30  # bytes of the disk: a program that cannot be written would fail the step
PACKAGES = ("tensorflow", "tensorflow-cpu", "jaxlib", "keras")


def compile_cache(
    folder: str | os.PathLike[str] | None = None, max_bytes: int = 2**30
) -> pathlib.Path | None:
    """Keeps what XLA compiles on disk, from where the next process takes it instead of compiling.

    Serves `jit_compile=True` under TensorFlow on a CPU and everything that JAX compiles; a second
    start still imports and traces. Call it before the first tensor is made, for TensorFlow reads
    its settings once. Recipes do, also those that ask what was exported. What TensorFlow alone
    needs for it, as a server of a SavedModel, is `TF_XLA_FLAGS` in the environment with the options
    `--tf_xla_persistent_cache_directory=FOLDER --tf_xla_persistent_cache_device_types=CPU`.

    A program fits one processor, number of cores, version and set of XLA's options: each
    combination has a folder of its own, so that machines can share a home directory. Processes can
    share it at any time: entries are written whole and renamed. A file that was cut short is
    removed here, before XLA, which would raise an error, meets it. When all is over `max_bytes`,
    what was not used for longest goes, now and when the process ends; what was used within the hour
    stays. Entries are programs that will be run: the folder belongs to its user alone.

    XLA reports each entry that it loads as an error, on a terminal where TF_CPP_MIN_LOG_LEVEL was
    below 3 when TensorFlow was imported. Those lines mean nothing: they compare preferences of the
    compiler with features of the processor.

    Args:
        folder: Where; by default `keras_transformers/compiled` in the user's cache directory.
        max_bytes: Most that all entries may take, of every machine and version together.

    Returns:
        The folder of this combination; or None without a cache, where the default cannot be used,
        as a warning says, the disk has less than 1 GiB free, or TF_XLA_FLAGS already names another.

    Raises:
        ValueError: If `max_bytes` is not positive, or `folder` is given and belongs to another user
            or is open to others.
        OSError: If `folder` is given and cannot be made.

    Example:
    >>> import tempfile
    >>> from keras_transformers import compile_cache
    >>> folder = compile_cache(tempfile.mkdtemp())  # before the first tensor
    """
    if max_bytes <= 0:
        raise ValueError(f"compile_cache: `max_bytes` must be positive. Received: {max_bytes}")
    flags = os.environ.get("TF_XLA_FLAGS", "")
    given = _directory(flags)
    if given is not None and given not in _OURS:
        return None
    try:
        root = _home_expanded(pathlib.Path(folder) if folder is not None else _user_cache())
        path = root / _combination(_without(flags))
        _make_private(path)
    except (OSError, ValueError) as error:
        if folder is not None:
            raise
        said = str(error).removeprefix("compile_cache: ")
        warnings.warn(f"compile_cache: compiled programs are not kept: {said}", stacklevel=2)
        return None
    if shutil.disk_usage(path).free < LEAST_FREE:
        return None
    clean(path.parent, max_bytes)
    _OURS.add(str(path))
    options = f"{DIRECTORY}={path} {DIRECTORY.replace('directory', 'device_types')}=CPU"
    os.environ["TF_XLA_FLAGS"] = f"{_without(flags)} {options}".strip()
    if keras.backend.backend() == "jax":
        _use_in_jax(path)
    atexit.register(clean, path.parent, max_bytes)
    return path


def clean(root: pathlib.Path, max_bytes: int) -> None:
    """Removes entries that were cut short, and those longest unused that are over the bound."""
    now, entries = time.time(), []
    for path, status in _entries(root):
        last_used = max(status.st_atime, status.st_mtime)
        entries.append((last_used, status.st_size, path))
        if path.suffix == ".pb" and not _is_whole(path):
            _remove(path)
            del entries[-1]
    taken = sum(size for _, size, _ in entries)
    for last_used, size, path in sorted(entries):
        if taken <= max_bytes or now - last_used < IN_USE:
            break
        _remove(path)
        taken -= size


def _remove(path: pathlib.Path) -> None:
    """Removes an entry; one in a folder of another user stays."""
    with contextlib.suppress(OSError):
        path.unlink()


_OURS: set[str] = set()  # folders that this function has named in TF_XLA_FLAGS


def _entries(root: pathlib.Path) -> Iterator[tuple[pathlib.Path, os.stat_result]]:
    """Files of the cache; another process may remove some meanwhile."""
    for path in root.glob("*/*"):
        try:
            if path.is_file():
                yield path, path.stat()
        except OSError:
            continue


def _is_whole(path: pathlib.Path) -> bool:
    """Whether the fields of a protocol buffer, each with its length, end where its file does."""
    try:
        with open(path, "rb", opener=_unnoticed) as file:
            size, fields = os.fstat(file.fileno()).st_size, set()
            while file.tell() < size:
                tag = _varint(file)
                if tag & 7 != 2:  # key, program and executable have lengths
                    return False
                fields.add(tag >> 3)
                file.seek(_varint(file), os.SEEK_CUR)
            return file.tell() == size and fields == {1, 2, 3}
    except FileNotFoundError:  # by now
        return True
    except (OSError, EOFError):
        return False


def _unnoticed(path: str, flags: int) -> int:
    """Opens a file without a new time of access, which says when XLA used it."""
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, flags)


def _varint(file: BinaryIO) -> int:
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise EOFError
        number |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return number


def _use_in_jax(path: pathlib.Path) -> None:
    import jax

    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _directory(flags: str) -> str | None:
    """The folder that TensorFlow's options name."""
    named = [each.split("=", 1)[1] for each in flags.split() if each.startswith(f"{DIRECTORY}=")]
    return named[-1] if named else None


def _without(flags: str) -> str:
    """TensorFlow's options but those that are set here."""
    return " ".join(each for each in flags.split() if "persistent_cache" not in each)


def _user_cache() -> pathlib.Path:
    if sys.platform == "win32":
        base = pathlib.Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif sys.platform == "darwin":
        base = pathlib.Path("~/Library/Caches")
    else:
        base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base / "keras_transformers" / "compiled"


def _home_expanded(path: pathlib.Path) -> pathlib.Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # a container may run as a user without a name
        raise FileNotFoundError(f"compile_cache: there is no home directory for {path}") from None


def _make_private(path: pathlib.Path) -> None:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if sys.platform == "win32":
        return
    status = path.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ValueError(
            f"compile_cache: `folder` must be its user's alone, for what it holds will be run. "
            f"Received: {path}, mode {status.st_mode & 0o777:o}, of user {status.st_uid}"
        )
    if not os.access(path, os.W_OK):
        raise PermissionError(f"compile_cache: {path} cannot be written to")


def _combination(flags: str) -> str:
    """Name of all that a compiled program depends on besides itself."""
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    options = [os.environ.get("XLA_FLAGS", ""), flags]
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    parts = [*versions, *options, str(cores), platform.machine(), *_processor()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> list[str]:
    """Model and features, where Linux tells; elsewhere the machine's name, which is as good."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return [platform.processor(), platform.node()]
    found = {name.strip(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    names = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "CPU part")
    return [found.get(name, "") for name in names]
