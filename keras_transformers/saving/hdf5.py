"""Keras's HDF5 files of weights, looked through before a value is read.

Keras writes groups, and inside each group `vars` plain arrays 0, 1, ...: numbers, in one piece, in
this file. HDF5 has much more: links into other files, arrays made of other files' parts, extents
without a value behind them, filters that blow a few bytes up. All of that is refused here.
"""

import math
from typing import Any, TypeAlias

import h5py

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
