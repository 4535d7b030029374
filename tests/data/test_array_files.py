"""Claims about files of pixels that only Python reads."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from keras_transformers.data.array_files import MOST_MEMBERS, is_array, read_array, read_arrays

RNG = np.random.default_rng(0)
BANDS = RNG.integers(0, 256, (6, 5, 13), dtype="uint8")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def tiff(image, **options):
    file = io.BytesIO()
    image.save(file, "TIFF", **options)
    return file.getvalue()


def npy_of_header(header):
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + b"\0" * 9


def archive():
    file = io.BytesIO()
    np.savez(file, BANDS)
    return file.getvalue()


def test_arrays_keep_their_bytes_and_floats_become_bytes(tmp_path):
    np.save(tmp_path / "bands.npy", BANDS)
    for file in (npy(BANDS), tmp_path / "bands.npy", str(tmp_path / "bands.npy")):
        assert is_array(file)
        np.testing.assert_array_equal(read_array(file), BANDS)
    np.testing.assert_array_equal(read_array(npy(BANDS / 255)), BANDS)
    assert read_array(npy(BANDS[..., 0])).shape == (6, 5, 1)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "CMYK"])
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_tiff_is_read_as_pillow_reads_it(mode, compression):
    image = Image.fromarray(BANDS[..., :3]).convert(mode)
    grey = mode in ("1", "L")
    expected = np.asarray(image.convert("L" if grey else "RGB")).reshape(6, 5, 1 if grey else 3)
    np.testing.assert_array_equal(read_array(tiff(image, compression=compression)), expected)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"hello", "is no array of pixels"),
        (npy(BANDS)[:150], "is no array of pixels"),
        (npy(np.array([None])), "is no array of pixels.*allow_pickle"),
        (npy(BANDS[None]), r"must be \(height, width, channels\). Received: shape \(1, 6, 5, 13\)"),
        (npy(BANDS[:0]), "must be"),
        (npy(np.zeros((13, 64, 64), "uint8")), "looks like channels first"),
        (npy(BANDS.astype("uint16")), "unsigned bytes, or floats.*uint16; divide by"),
        (npy(BANDS / 1.0), r"must lie in \[0, 1\]"),
        (npy(np.full((4, 4, 2), np.nan)), "not finite"),
        (archive(), "is an archive of arrays"),
        (archive()[:40], "is an archive of arrays"),
        (npy_of_header(b"-" * 9000 + b"1\n"), "is no array of pixels"),
        (npy_of_header(b"{'descr': (\n"), "is no array of pixels"),
        (
            npy_of_header(b"{'descr':'|u1','fortran_order':False,'shape':(1<<40,9,3)}\n"),
            "is no array of pixels",
        ),
        (
            npy_of_header(b"{'descr':'|u1','fortran_order':False,'shape':(99999999999,9,3)}\n"),
            "is no array of pixels",
        ),
        (tiff(Image.new("1", (65536, 1))), "at most 89478485 pixels, and 65535 along a side"),
        (b"II*\0" + b"\0" * 40, "is no TIFF that Pillow reads"),
        (tiff(Image.fromarray(np.zeros((4, 4), "uint16"))), "other pixels than bytes"),
        (
            tiff(Image.new("L", (4, 4)), save_all=True, append_images=[Image.new("L", (4, 4))]),
            "several pages",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(file, reason):
    with pytest.raises(ValueError, match=reason):
        read_array(file)


def test_an_archive_gives_its_arrays(tmp_path):
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", x=BANDS, y=np.arange(3))
        found = read_arrays(tmp_path / "a.npz")
        assert set(found) == {"x", "y"}
        np.testing.assert_array_equal(found["x"], BANDS)


def members(path, **contents):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in contents.items():
            packed.writestr(f"{name}.npy", content)


def archive_of_members(path):
    members(path, **{f"a{i}": b"" for i in range(MOST_MEMBERS + 1)})


def archive_of_zeros(path):
    header = npy_of_header(b"{'descr': '|u1', 'fortran_order': False, 'shape': (1300000000,), }")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        with packed.open("x.npy", "w", force_zip64=True) as member:
            member.write(header)
            for _ in range(1300):
                member.write(bytes(10**6))


BAD_ARCHIVES = {
    "no archive": lambda path: path.write_bytes(b"PK\3\4" + b"x" * 50),
    "an array": lambda path: path.write_bytes(npy(BANDS)),
    "a cut archive": lambda path: path.write_bytes(archive()[:-30]),
    "a changed byte": lambda path: path.write_bytes(archive().replace(b"NUMPY", b"NUMPX")),
    "a member that is no array": lambda path: members(path, x=b"text"),
    "a shape that is not there": lambda path: members(
        path, x=npy_of_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (10**15,), }")
    ),
    "objects": lambda path: np.savez(path, x=np.array([{}])),
    "too many members": archive_of_members,
}


@pytest.mark.parametrize("kind", BAD_ARCHIVES)
def test_a_bad_archive_is_refused_in_a_sentence(kind, tmp_path):
    BAD_ARCHIVES[kind](tmp_path / "a.npz")
    with pytest.raises(ValueError, match="a.npz is no .npz file of plain arrays: .") as refusal:
        read_arrays(tmp_path / "a.npz")
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.slow
def test_an_archive_that_is_far_larger_when_it_is_unpacked_is_refused(tmp_path):
    archive_of_zeros(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="must have at most .* B when it is unpacked"):
        read_arrays(tmp_path / "a.npz")
