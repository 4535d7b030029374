"""Hostile `.weights.h5` files."""

import io
import shutil
import struct

import h5py
import numpy as np

ENDING, KINDS = ".weights.h5", {}
KERNEL = "layers/dense/vars/0"


def kind(name, why):
    """Registers `build(file)`, which changes an opened copy of a good file."""

    def register(build):
        def write_file(good, path):
            shutil.copy(good, path)
            with h5py.File(path, "r+") as file:
                build(file)

        KINDS[name] = write_file, why
        return build

    return register


def kind_of_bytes(name, why):
    """Registers `build(data)`, which changes the bytes of a good file."""

    def register(build):
        KINDS[name] = lambda good, path: path.write_bytes(build(good.read_bytes())), why
        return build

    return register


def replaced(file, *arguments, **options):
    """The first kernel, made anew."""
    del file[KERNEL]
    return file.create_dataset(KERNEL, *arguments, **options)


@kind("shape bomb", "are not in the file")
def _bomb(file):
    replaced(file, (10**5, 10**5), "float32")


@kind("shape bomb with a fill value", "are not in the file")
def _filled(file):
    replaced(file, (10**5, 10**5), "float32", fillvalue=1.0)


@kind("chunks without values", "is not in one piece")
def _chunks(file):
    replaced(file, (10**5, 10**5), "float32", chunks=(10**3, 10**3))


@kind("compressed bomb", "is not in one piece")
def _compressed(file):
    replaced(file, data=np.zeros((2000, 2000), "float32"), compression="gzip")


@kind("array that can be resized", "is not in one piece")
def _resizable(file):
    replaced(file, (5, 7), "float32", maxshape=(None, 7))


@kind("array inside its header", "is not in one piece")
def _compact(file):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_layout(h5py.h5d.COMPACT)
    del file[KERNEL]
    space = h5py.h5s.create_simple((5, 7))
    group = file["layers/dense/vars"]
    h5py.h5d.create(group.id, b"0", h5py.h5t.NATIVE_FLOAT, space, plan)


@kind("link to another file", "is a link")
def _external_link(file):
    del file[KERNEL]
    file[KERNEL] = h5py.ExternalLink("/etc/passwd", "/")


@kind("link to a folder of another file", "is a link")
def _external_group(file):
    del file["layers/dense"]
    file["layers/dense"] = h5py.ExternalLink("good.weights.h5", "/layers/dense")


@kind("soft link", "is a link")
def _soft_link(file):
    del file[KERNEL]
    file[KERNEL] = h5py.SoftLink("/layers/dense_1/vars/0")


@kind("CVE-2026-1669 values in another file", "has its values in another file")
def _external_storage(file):
    replaced(file, (5, 7), "float32", external=[("/etc/passwd", 0, 140)])


@kind("array of other files' parts", "is not in one piece")
def _virtual(file):
    layout = h5py.VirtualLayout((5, 7), "float32")
    layout[:] = h5py.VirtualSource("good.weights.h5", KERNEL, (5, 7))
    del file[KERNEL]
    file.create_virtual_dataset(KERNEL, layout)


@kind("array of texts", "does not hold plain numbers")
def _texts(file):
    replaced(file, data=["canary"] * 35, dtype=h5py.string_dtype())


@kind("array of references", "does not hold plain numbers")
def _references(file):
    replaced(file, (5, 7), h5py.ref_dtype)


@kind("array of records", "does not hold plain numbers")
def _records(file):
    replaced(file, data=np.zeros((5, 7), [("a", "f4"), ("b", "f4")]))


@kind("array of enormous numbers", "does not hold plain numbers")
def _opaque(file):
    replaced(file, (5, 7), "V1000000")


@kind("array without extents", "has no shape")
def _null(file):
    replaced(file, data=h5py.Empty("float32"))


@kind("group inside itself", "under two names")
def _cycle(file):
    file["layers/dense/again"] = file["layers"]


@kind("array under two names", "under two names")
def _hard_link(file):
    del file["layers/dense_1/vars/1"]
    file["layers/dense_1/vars/1"] = file["layers/dense/vars/1"]


@kind("array at the wrong position", "is not where Keras keeps weights")
def _position(file):
    file["layers/dense/payload"] = np.zeros(3)


@kind("named type", "is not where Keras keeps weights")
def _type(file):
    file["layers/dense/vars/type"] = np.dtype("float32")


@kind("attribute of an unknown name", "an attribute that Keras does not write")
def _attribute(file):
    file["layers/dense/vars"].attrs["pickle"] = "canary"


@kind("attribute of many values", "an attribute that Keras does not write")
def _attributes(file):
    file["layers/dense/vars"].attrs["name"] = np.zeros(8000)


@kind("array of an unknown type", "is of an unknown type")
def _unknown(file):
    file[KERNEL].attrs["dtype"] = "object"


@kind("groups nested too deep", "nested more than")
def _deep(file):
    file.create_group("layers/" + "/".join(["deeper"] * 150))


@kind("more groups than any model has", "it has more than")
def _many(file):
    for i in range(31_000):
        file.create_group(f"layers/{i}", track_order=False)


@kind("weight missing", "the weight layers/dense/vars/1 is missing")
def _missing(file):
    del file["layers/dense/vars/1"]


@kind("weight too many", "the model has no weight layers/dense_2/vars/0")
def _surplus(file):
    file["layers/dense_2/vars/0"] = np.zeros(3, "float32")


@kind("weight of another shape", "must have shape")
def _shape(file):
    replaced(file, data=np.zeros((7, 5), "float32"))


@kind("weight of another type", "must have shape")
def _dtype(file):
    replaced(file, data=np.zeros((5, 7), "float64"))


@kind_of_bytes("HDF5 file cut in half", "not a whole HDF5 file")
def _cut(data):
    return data[: len(data) // 2]


@kind_of_bytes("HDF5 file without its last byte", "not a whole HDF5 file")
def _cut_end(data):
    return data[:-1]


@kind_of_bytes("text as HDF5 file", "not a whole HDF5 file")
def _text(data):
    return b"weights, really"


@kind_of_bytes("HDF5 signature and nothing more", "not a whole HDF5 file")
def _signature(data):
    return data[:8] + b"\xff" * 4000


@kind_of_bytes("something in front of the HDF5 file", "in front of its HDF5 content")
def _block(data):
    return b"#!/bin/sh\ntouch canary\n".ljust(512) + data


@kind_of_bytes("arrays that share their bytes", "share their bytes")
def _shared(data):
    with h5py.File(io.BytesIO(data)) as file:
        first, second = (file[f"layers/{name}/vars/0"].id for name in ("dense", "dense_1"))
        sizes = [struct.pack("<QQ", i.get_offset(), i.get_storage_size()) for i in (first, second)]
    assert data.count(sizes[1]) == 1
    return data.replace(sizes[1], sizes[0][:8] + sizes[1][8:])
