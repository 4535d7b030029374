"""Claims about files of pixels that only Python reads."""

import io

import numpy as np
import pytest
from PIL import Image

from keras_transformers.array_files import is_array, read_array

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
