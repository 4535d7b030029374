"""Hostile `.keras` archives: what is wrong is the zip file."""

import pickle
import shutil
import stat
import struct
import warnings
import zipfile

ENDING, KINDS = ".keras", {}


def kind(name, why):
    """Registers `build(good, path)`, which writes the hostile file."""

    def register(build):
        KINDS[name] = build, why
        return build

    return register


def members(path):
    """Dict of name -> bytes."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, content, compression=zipfile.ZIP_STORED):
    """An archive of `(name or ZipInfo, bytes)`."""
    with zipfile.ZipFile(path, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice
        for name, data in content:
            archive.writestr(name, data)


def add(good, path, *more):
    write(path, [*members(good).items(), *more])


class Payload:
    """Unpickled, it touches the canary."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@kind("pickle as model", "is a pickle")
def _pickle(good, path):
    path.write_bytes(pickle.dumps(Payload(path.parent / "canary")))


@kind("text as model", "no zip file")
def _text(good, path):
    path.write_text("a model, really")


@kind("empty model", "no zip file")
def _empty(good, path):
    path.write_bytes(b"")


@kind("archive cut in half", "not a whole zip file")
def _cut(good, path):
    data = good.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@kind("archive without its last bytes", "not a whole zip file")
def _cut_end(good, path):
    path.write_bytes(good.read_bytes()[:-3])


@kind("program in front of the archive", "no zip file")
def _polyglot(good, path):
    path.write_bytes(b"#!/bin/sh\ntouch canary\n" + good.read_bytes())


@kind("member twice", "is there twice")
def _twice(good, path):
    add(good, path, ("config.json", b"{}"))


@kind("member twice in another case", "is there twice")
def _case(good, path):
    add(good, path, ("assets/a", b""), ("assets/A", b""))


@kind("member missing", "has no member metadata.json")
def _missing(good, path):
    write(path, list(members(good).items())[1:])


@kind("member that Keras does not write", "is not one that Keras writes")
def _unknown(good, path):
    add(good, path, ("setup.py", b"open('canary', 'w')"))


@kind("weights as npz", "has no member model.weights.h5")
def _npz(good, path):
    content = members(good)
    content["model.weights.npz"] = content.pop("model.weights.h5")
    write(path, content.items())


for _name, _member in {
    "path out of the folder": "assets/../../canary",
    "absolute path": "/assets/canary",
    "path with backslashes": "assets\\..\\..\\canary",
    "path with a drive": "assets/C:canary",
    "folder as member": "assets/canary/",
}.items():

    @kind(_name, "is not one that Keras writes")
    def _path(good, path, member=_member):
        add(good, path, (member, b"sings"))


@kind("symbolic link", "is not a plain file")
def _link(good, path):
    link = zipfile.ZipInfo("assets/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    add(good, path, (link, b"/etc/passwd"))


@kind("encrypted member", "is encrypted")
def _encrypted(good, path):
    data = bytearray(good.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1
    path.write_bytes(data)


@kind("zip bomb", "is compressed")
def _bomb(good, path):
    content = members(good)
    content["config.json"] = b" " * (64 << 20)
    write(path, content.items(), zipfile.ZIP_DEFLATED)


@kind("zip bomb among assets", "is compressed")
def _asset_bomb(good, path):
    bomb = zipfile.ZipInfo("assets/bomb")
    bomb.compress_type = zipfile.ZIP_DEFLATED
    add(good, path, (bomb, b"\0" * (64 << 20)))


@kind("member larger than the file", "model.weights.h5 is cut")
def _declared(good, path):
    data = bytearray(good.read_bytes())
    central = data.rindex(b"PK\x01\x02")
    data[central + 20 : central + 28] = struct.pack("<II", 1 << 31, 1 << 31)
    path.write_bytes(data)


@kind("members that overlap", "lies inside another")
def _overlap(good, path):
    shutil.copy(good, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("assets/a", b"sings")
        for i in range(20):
            again = zipfile.ZipInfo(f"assets/b{i}")
            for name in ("header_offset", "CRC", "file_size", "compress_size", "external_attr"):
                setattr(again, name, getattr(archive.getinfo("assets/a"), name))
            archive.filelist.append(again)


@kind("flipped bit in the weights", "is damaged")
def _flipped(good, path):
    data = bytearray(good.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


@kind("too many members", "at most 1000 members")
def _many(good, path):
    add(good, path, *((f"assets/{i}", b"") for i in range(1001)))
