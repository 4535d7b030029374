"""Checks of untrusted files: `.keras` archives, JSON, HDF5, and the memory that they ask for.

An archive is a zip file of a few members, each of which is checked before it is opened.

In an HDF5 file Keras writes groups, and inside each group `vars` plain arrays 0, 1, ...: numbers,
in one piece, in this file. HDF5 has much more: links into other files, arrays made of other files'
parts, extents without a value behind them, filters that expand a few bytes. All of that is refused
here.

`within` limits the variables that a description creates to those for which the file holds weights.
"""

import functools
import inspect
import io
import json
import math
import pathlib
import stat
import struct
import threading
import zipfile
from typing import Any, BinaryIO, NoReturn, Self, TypeAlias

import h5py
import keras

METADATA, CONFIG, WEIGHTS, ASSETS = "metadata.json", "config.json", "model.weights.h5", "assets/"
MOST_MEMBERS = 1000
PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MAY_BE_FLAGGED = 0x0808  # a name in UTF-8; sizes behind the data


class Archive:
    """An opened `.keras` file that has what Keras writes and nothing else.

    Keras stores its members as they are. So none can be larger than the file, and what is
    compressed, encrypted, overlapping or linked is not Keras's.

    Args:
        path: A `pathlib.Path`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is something else, damaged, or has other members.
    """

    def __init__(self, path: pathlib.Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"There is no file {path}.")
        self.path = path
        self.file = open(path, "rb")
        try:
            self._check_start(self.file.read(4))
            try:
                self.zip = zipfile.ZipFile(self.file)
                self._check_members(self.zip.infolist())
                damaged = self.zip.testzip()
            except (
                zipfile.BadZipFile,
                EOFError,
                OSError,
                NotImplementedError,
                struct.error,
                UnicodeDecodeError,
                RuntimeError,
            ) as error:
                raise ValueError(f"{path} is not a whole zip file: {error}.") from None
            if damaged:
                raise ValueError(f"{path}: {damaged} is damaged; its checksum is another.")
        except ValueError:
            self.file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def size(self, name: str) -> int:
        return self.zip.getinfo(name).file_size

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a member, if there are at most so many."""
        if self.size(name) > most:
            raise ValueError(
                f"{self.path}: {name} must have at most {most / 2**20:g} MiB. "
                f"Received: {self.size(name) / 2**20:.1f}"
            )
        return self.zip.read(name)

    def open(self, name: str) -> io.BufferedReader:
        """A member as a file to read and seek in."""
        info = self.zip.getinfo(name)
        return io.BufferedReader(_Part(self.file, self._start(info), info.file_size))

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes of a member begin."""
        self.file.seek(info.header_offset)
        signature, name, extra = _LOCAL_HEADER.unpack(self.file.read(_LOCAL_HEADER.size))
        if signature != b"PK\x03\x04":
            raise zipfile.BadZipFile(f"no member begins at {info.header_offset}")
        return info.header_offset + _LOCAL_HEADER.size + name + extra

    def _check_start(self, first: Any) -> None:
        if first[:2] in PICKLES:
            raise ValueError(
                f"{self.path} is a pickle under another name. Reading it could execute what is in "
                "it, so it is refused."
            )
        if first != b"PK\x03\x04":
            raise ValueError(f"{self.path} is not a .keras file, for it is no zip file.")

    def _check_members(self, infos: list[zipfile.ZipInfo]) -> None:
        if len(infos) > MOST_MEMBERS:
            raise ValueError(f"{self.path} must have at most {MOST_MEMBERS} members.")
        names = [info.filename for info in infos]
        for name in (METADATA, CONFIG, WEIGHTS):
            if name not in names:
                raise ValueError(f"{self.path} has no member {name}.")
        seen: set[str] = set()
        for info in infos:
            wrong = self._what_is_wrong(info, seen)
            if wrong:
                raise ValueError(f"{self.path}: the member {info.orig_filename!r:.200} {wrong}.")
            seen.add(info.filename.lower())
        end, size = 0, self.path.stat().st_size
        for info in sorted(infos, key=lambda info: info.header_offset):
            if info.header_offset < end:
                raise ValueError(f"{self.path}: the member {info.filename} lies inside another.")
            end = self._start(info) + info.file_size
            if end > size:
                raise ValueError(f"{self.path} is not a whole zip file: {info.filename} is cut.")

    @staticmethod
    def _what_is_wrong(info: zipfile.ZipInfo, seen: set[str]) -> str | None:
        """Why a member cannot be Keras's, or None."""
        name = info.filename
        if name not in (METADATA, CONFIG, WEIGHTS) and not _is_asset(name):
            return "is not one that Keras writes"
        if name != info.orig_filename:
            return "has a name that is read in two ways"
        if name.lower() in seen:
            return "is there twice"
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            return "is not a plain file"
        if info.flag_bits & ~_MAY_BE_FLAGGED:
            return "is encrypted or otherwise altered"
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            return "is compressed, which Keras never does"
        return None


def _is_asset(name: str) -> bool:
    """Whether it is a plain path inside `assets/`."""
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and name.isprintable()
    return name.startswith(ASSETS) and plain and not set(name) & set('\\:*?"<>|')


class _Part(io.RawIOBase):
    """Some bytes of a file, as a file."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self.file, self.start, self.size, self.at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def readinto(self, buffer: Any) -> int:
        self.file.seek(self.start + self.at)
        data = self.file.read(max(0, min(len(buffer), self.size - self.at)))
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


MOST_CONTAINERS = 250_000


def parse_json(
    data: bytes, most: int, where: Any, containers: float = MOST_CONTAINERS
) -> dict[str, Any]:
    """The JSON object in bytes.

    Args:
        data: The bytes.
        most: How many there may be.
        where: Its file, for messages.
        containers: How many lists and objects there may be; an empty list takes thirty times the
            memory of its text.

    Raises:
        ValueError: If it is too large, not JSON in UTF-8 (a byte order mark does no harm), no
            object, or has a key twice.
    """
    if len(data) > most:
        raise ValueError(f"{where} has more than {most / 2**20:g} MiB, too much for a JSON file.")
    if data.count(b"[") + data.count(b"{") > containers:
        raise ValueError(f"{where} has more than {containers} lists and objects.")

    try:
        found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON in UTF-8: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} must hold a JSON object. Received: a {type(found).__name__}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"it has the key {key[:100]!r} twice")
            seen.add(key)
    return found


class within:
    """A context in which models are made, but none that is much larger than its file.

    Every weight has values of its own in the file. So a weight that goes far beyond what the file
    holds comes of a false setting, and is refused before there is memory for it; and so is the
    layer that goes far beyond their number, before there was time for all.

    Args:
        values: Number of values in the file.
        layers: Number of entries in the file that stand for a layer, or None not to count layers.
        zeros: Whether weights begin with zeros, for each gets a value of the file: to draw them
            would take time, and memory beside them.

    Raises:
        ValueError: If the model has more than twice the values, or four times the layers; at the
            latest when the context is left, for Keras swallows errors of some models' `build`.
    """

    _one_at_a_time = threading.RLock()

    def __init__(self, values: int, layers: int | None = None, zeros: bool = False) -> None:
        # Twice as much, for a weight that is missing is an error with another message.
        self.values = 2 * values + 2**20
        self.zeros = zeros
        self.layers = math.inf if layers is None else 4 * layers + 1000
        self.refused: str | None = None
        self.thread = threading.get_ident()

    def __enter__(self) -> Self:
        self._one_at_a_time.acquire()
        layers: Any = keras.layers.Layer
        self.add_weight, self.init = layers.add_weight, layers.__init__

        @functools.wraps(self.add_weight)
        def add_weight(
            layer: keras.layers.Layer, shape: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            if threading.get_ident() == self.thread:
                self._take_values(layer, shape, kwargs.get("name"))
                if self.zeros and not args:
                    kwargs["initializer"] = "zeros"
            return self.add_weight(layer, shape, *args, **kwargs)

        @functools.wraps(self.init)
        def init(layer: Any, *args: Any, **kwargs: Any) -> None:
            if threading.get_ident() == self.thread:
                self._take_layer(layer)
            self.init(layer, *args, **kwargs)

        vars(init)["__signature__"] = inspect.signature(self.init)  # Keras looks at it
        layers.add_weight, layers.__init__ = add_weight, init
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        layers: Any = keras.layers.Layer
        layers.add_weight, layers.__init__ = self.add_weight, self.init
        self._one_at_a_time.release()
        if self.refused and (kind is None or issubclass(kind, Exception)):
            raise ValueError(self.refused) from None

    def _take_values(self, layer: keras.layers.Layer, shape: Any, name: str | None) -> None:
        self.values -= math.prod(shape or ())
        if self.values < 0:
            self._refuse(
                "it describes a model larger than the file of its weights. The first weight that "
                f"is too much: {name} of {layer.path}, of shape {tuple(shape)}."
            )

    def _take_layer(self, layer: keras.layers.Layer) -> None:
        self.layers -= 1
        if self.layers < 0:
            self._refuse(
                "it describes a model of far more layers than the file of its weights has. The "
                f"first that is too much: a {type(layer).__name__}."
            )

    def _refuse(self, why: str) -> NoReturn:
        self.refused = self.refused or why
        raise ValueError(self.refused)


MOST_OBJECTS = 30_000  # a model of 100 blocks with its optimizer has about half
MOST_DEPTH = 100
_FAILED = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError)
_NUMBERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM, h5py.h5t.OPAQUE)

Entry: TypeAlias = tuple[tuple[int, ...], str]  # shape and dtype


class Layout:
    """What a file of weights holds: its `entries`, a dict of path -> `(shape, dtype)`.

    Args:
        file: A path, or a file opened for reading.
        size: How many bytes it has.
        where: Its name, for messages.

    Raises:
        ValueError: If it is no whole HDF5 file, or has what Keras does not write.
    """

    def __init__(self, file: Any, size: int, where: Any) -> None:
        self.size, self.where = size, where
        self.entries: dict[str, Entry] = {}
        self.objects = 0
        self._seen: set[int] = set()
        self._positions: list[tuple[int, int, str]] = []
        try:
            opened = h5py.File(file, "r")
        except _FAILED as error:
            raise ValueError(f"{where} is not a whole HDF5 file: {error}.") from None
        with opened:
            if opened.userblock_size:
                raise ValueError(f"{where} has something in front of its HDF5 content.")
            try:
                self._walk(opened)
            except _Refused as error:
                raise ValueError(f"{where}: {error}.") from None
            except _FAILED as error:
                raise ValueError(f"{where} is damaged: {error}.") from None
        self._check_positions()

    def values(self) -> int:
        """How many there are in all."""
        return sum(math.prod(shape) for shape, _ in self.entries.values())

    def _walk(self, root: Any) -> None:
        waiting = [("", root, 0)]
        while waiting:
            path, group, depth = waiting.pop()
            self._check_group(path, group, depth)
            for name in group:
                inner = f"{path}/{name}" if path else name
                link = group.get(name, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    raise _Refused(
                        f"{inner:.200} is a link ({type(link).__name__}), perhaps to another file"
                    )
                found = group[name]
                if isinstance(found, h5py.Group):
                    waiting.append((inner, found, depth + 1))
                elif isinstance(found, h5py.Dataset) and path.split("/")[-1] == "vars":
                    self._take(inner, found)
                else:
                    raise _Refused(f"{inner:.200} is not where Keras keeps weights")

    def _check_group(self, path: str, group: Any, depth: int) -> None:
        self._check_once(path or "/", group)
        self._check_attributes(path or "/", group, "name")
        self.objects += 1 + len(group)
        if self.objects > MOST_OBJECTS:
            raise _Refused(f"it has more than {MOST_OBJECTS} groups and arrays")
        if depth > MOST_DEPTH:
            raise _Refused(f"its groups are nested more than {MOST_DEPTH} deep")

    def _take(self, path: str, dataset: Any) -> None:
        self._check_once(path, dataset)
        attribute = self._check_attributes(path, dataset, "dtype")
        kind = dataset.id.get_type()
        if kind.get_class() not in _NUMBERS or kind.get_size() > 8:
            raise _Refused(f"{path:.200} does not hold plain numbers")
        if kind.get_class() == h5py.h5t.OPAQUE and (attribute, kind.get_size()) != ("bfloat16", 2):
            raise _Refused(f"{path:.200} does not hold plain numbers")
        plan = dataset.id.get_create_plist()
        if plan.get_layout() != h5py.h5d.CONTIGUOUS:
            raise _Refused(f"{path:.200} is not in one piece, as Keras writes weights")
        if plan.get_nfilters():
            raise _Refused(f"{path:.200} is compressed or filtered, which Keras never does")
        if plan.get_external_count():
            raise _Refused(f"{path:.200} has its values in another file")
        if dataset.shape is None:
            raise _Refused(f"{path:.200} has no shape")
        shape = dataset.id.get_space().get_simple_extent_dims()
        if shape != dataset.id.get_space().get_simple_extent_dims(True):
            raise _Refused(f"{path:.200} can be resized, which no weight can")
        self._check_storage(path, dataset, math.prod(shape) * kind.get_size())
        self.entries[path] = tuple(shape), attribute or dataset.dtype.name

    def _check_storage(self, path: str, dataset: Any, needed: int) -> None:
        offset, stored = dataset.id.get_offset(), dataset.id.get_storage_size()
        if not needed:
            return
        if offset is None or stored != needed or offset + needed > self.size:
            raise _Refused(
                f"{path:.200} should have {needed} bytes for its shape, but they are not in the "
                "file"
            )
        self._positions.append((offset, needed, path))

    def _check_once(self, path: str, found: Any) -> None:
        address = h5py.h5o.get_info(found.id).addr
        if address in self._seen:
            raise _Refused(f"{path:.200} is there under two names")
        self._seen.add(address)

    def _check_attributes(self, path: str, found: Any, allowed: str) -> str | None:
        """The value of the one attribute that there may be, a string."""
        value = None
        for name in found.attrs:
            attribute = h5py.h5a.open(found.id, name.encode())
            kind, space = attribute.get_type(), attribute.get_space()
            text = kind.get_class() == h5py.h5t.STRING and kind.is_variable_str()
            if name != allowed or not text or space.get_simple_extent_type() != h5py.h5s.SCALAR:
                raise _Refused(f"{path:.200} has an attribute that Keras does not write: {name!r}")
            if allowed == "dtype":
                value = found.attrs[name]
                if value != "bfloat16":
                    raise _Refused(f"{path:.200} is of an unknown type: {value!r:.100}")
        return value

    def _check_positions(self) -> None:
        end, before = 0, None
        for offset, needed, path in sorted(self._positions):
            if offset < end:
                raise ValueError(f"{self.where}: {path} and {before} share their bytes.")
            end, before = offset + needed, path


class _Refused(Exception):
    """Something in the file is not Keras's."""
