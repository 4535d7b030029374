"""Hostile `.safetensors` files."""

import json
import pickle
import struct

import numpy as np
from safetensors.numpy import load, save

from tests.saving.hostile_archives import Payload

ENDING, KINDS = ".safetensors", {}


def kind(name, why):
    """Registers `build(header, data)`, which gives the header, or its bytes, and the data."""

    def register(build):
        def write_file(good, path):
            whole = good.read_bytes()
            (length,) = struct.unpack("<Q", whole[:8])
            header, data = build(json.loads(whole[8 : 8 + length]), whole[8 + length :])
            header = header if isinstance(header, bytes) else json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", len(header)) + header + data)

        KINDS[name] = write_file, why
        return build

    return register


def kind_of_bytes(name, why):
    """Registers `build(data)`, which changes the bytes of a good file."""

    def register(build):
        KINDS[name] = lambda good, path: path.write_bytes(build(good.read_bytes())), why
        return build

    return register


def _pickled(good, path):
    path.write_bytes(pickle.dumps(Payload(path.parent / "canary")))


KINDS["pickle as tensors"] = _pickled, "is a pickle"


@kind_of_bytes("empty file of tensors", "not a whole safetensors file")
def _empty(data):
    return b""


@kind_of_bytes("header longer than the file", "its header cannot have")
def _long(data):
    return struct.pack("<Q", 2**40) + data[8:]


@kind_of_bytes("header of nearly 2**64 bytes", "its header cannot have")
def _longest(data):
    return struct.pack("<Q", 2**64 - 1) + data[8:]


@kind_of_bytes("header of 5 MB", "its header cannot have")
def _large(data):
    return struct.pack("<Q", 5_000_000) + b" " * 5_000_000


@kind_of_bytes("tensors cut in half", "not a whole safetensors file")
def _cut(data):
    return data[: -len(data) // 4]


@kind_of_bytes("something behind the tensors", "not a whole safetensors file")
def _behind(data):
    return data + b"canary"


@kind("header that is no JSON", "is not JSON")
def _text(header, data):
    return b"\x93NUMPY, really" * 3, data


@kind("header nested beyond any stack", "is not JSON")
def _deep(header, data):
    return b'{"a":' + b"[" * 200_000, data


@kind("header of a million lists", "has more than 250000 lists")
def _lists(header, data):
    text = json.dumps(header | {"more": [[] for _ in range(1_300_000)]}, separators=(",", ":"))
    return text.encode(), data


@kind("header that is a list", "must hold a JSON object")
def _list(header, data):
    return b"[1, 2, 3]", data


@kind("tensor twice in the header", "twice")
def _twice(header, data):
    text = json.dumps(header)
    first = json.dumps({"first/kernel": header["first/kernel"]})
    return (text[:-1] + ", " + first[1:]).encode(), data


@kind("tensors that overlap", "not a whole safetensors file")
def _overlap(header, data):
    header["first/kernel"]["data_offsets"] = header["second/kernel"]["data_offsets"]
    return header, data


@kind("gap between tensors", "not a whole safetensors file")
def _gap(header, data):
    names = [name for name in header if name != "__metadata__"]
    last = max(names, key=lambda name: header[name]["data_offsets"][1])
    header[last]["data_offsets"] = [at + 4 for at in header[last]["data_offsets"]]
    return header, data + b"\0" * 4


@kind("tensor beyond the file", "not a whole safetensors file")
def _beyond(header, data):
    header["first/kernel"] |= {"shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}
    return header, data


@kind("shape whose product overflows", "not a whole safetensors file")
def _overflow(header, data):
    header["first/kernel"]["shape"] = [2**33, 2**33, 5]
    return header, data


for _name, _extent in {
    "negative extent": -5,
    "extent that is no whole number": 5.5,
    "infinite extent": float("inf"),
    "extent that is no number": float("nan"),
    "extent of a thousand digits": 10**1000,
}.items():

    @kind(_name, "not a whole safetensors file")
    def _extent_of(header, data, extent=_extent):
        header["first/kernel"]["shape"] = [extent, 7]
        return header, data


@kind("offsets the wrong way round", "not a whole safetensors file")
def _backwards(header, data):
    header["first/kernel"]["data_offsets"].reverse()
    return header, data


@kind("tensor of an unknown type", "not a whole safetensors file")
def _unknown(header, data):
    header["first/kernel"]["dtype"] = "OBJECT"
    return header, data


@kind("tensor of a type without a name in NumPy", "must be of type")
def _eighth(header, data):
    entry = header["first/kernel"]
    entry["dtype"], entry["shape"] = "F8_E5M2", [20, 7]
    return header, data


@kind("tensor of another type", "must have shape")
def _type(header, data):
    header["first/kernel"]["dtype"] = "I32"
    return header, data


@kind("tensor without extents", "not a whole safetensors file")
def _no_shape(header, data):
    del header["first/kernel"]["shape"]
    return header, data


@kind("flipped bit in a tensor", "is damaged")
def _flipped(header, data):
    return header, data[:-1] + bytes([data[-1] ^ 1])


@kind("tensors without a checksum", "has no checksum")
def _unchecked(header, data):
    del header["__metadata__"]
    return header, data


@kind("names exchanged", "is damaged")
def _exchanged(header, data):
    (first,) = [name for name in header if name == "first/bias"]
    header["__metadata__"] = {key: value[::-1] for key, value in header["__metadata__"].items()}
    return {first: header.pop(first)} | header, data


def _changed(change):
    def write_file(good, path):
        tensors = load(good.read_bytes())
        change(tensors)
        path.write_bytes(save(tensors))

    return write_file


def _lose(tensors):
    del tensors["second/bias"]


def _more(tensors):
    tensors["third/bias"] = np.zeros(3, "float32")


def _turn(tensors):
    tensors["first/kernel"] = np.ascontiguousarray(tensors["first/kernel"].T)


KINDS["tensor missing"] = _changed(_lose), "the weight second/bias is missing"
KINDS["tensor too many"] = _changed(_more), "the model has no weight third/bias"
KINDS["tensor of another shape"] = _changed(_turn), "must have shape"
