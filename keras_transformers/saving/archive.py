"""The `.keras` archive: a zip file of a few members, each of them looked at before it is opened."""

import io
import pathlib
import stat
import struct
import zipfile
from typing import Any, BinaryIO, Self

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
