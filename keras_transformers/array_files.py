"""Files of pixels that are no images for the eye: NumPy's `.npy`, and TIFF.

TensorFlow's graph reads neither. They may have any number of channels, as satellites' have.
"""

import io
import pathlib
from collections.abc import Sequence

import numpy as np

from keras_transformers.annotations import Array, StrPath

ENDINGS = (".npy", ".tif", ".tiff")
NPY, TIFF = b"\x93NUMPY", (b"II*\0", b"MM\0*")  # first bytes


def is_array(file: StrPath | bytes) -> bool:
    """Whether a path (str or Path) or the bytes of a file are of such a kind."""
    if isinstance(file, bytes):
        return file.startswith((NPY, *TIFF))
    return pathlib.PurePath(file).suffix.lower() in ENDINGS


def read_array(file: StrPath | bytes) -> Array:
    """The pixels of a file, uint8 `(height, width, channels)`.

    `.npy` holds unsigned bytes, or floats in [0, 1], `(height, width)` or `(height, width,
    channels)`. TIFF is read by Pillow, and so holds one image, grey, coloured or with a palette;
    alpha is dropped. More bands are for `.npy`.

    Args:
        file: A path or the bytes of a file.

    Raises:
        ValueError: If it is no such file, in words that go on after its name.
        ImportError: If it is a TIFF and Pillow is not installed.

    Example:
    >>> import io, numpy as np
    >>> from keras_transformers.array_files import read_array
    >>> file = io.BytesIO()
    >>> np.save(file, np.full((16, 16, 13), 0.2))
    >>> read_array(file.getvalue()).shape, int(read_array(file.getvalue()).max())
    ((16, 16, 13), 51)
    """
    content = file if isinstance(file, bytes) else pathlib.Path(file).read_bytes()
    if content.startswith(TIFF):
        return _tiff(content)
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"is no array of pixels: {str(error).splitlines()[0]}") from None
    if not isinstance(array, np.ndarray):
        raise ValueError("is an archive of arrays, and no array")
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"must be (height, width, channels). Received: shape {array.shape}")
    if reason := channels_first(array.shape):
        raise ValueError(f"must be (height, width, channels). {reason}")
    return as_bytes(array)


def as_bytes(pixels: Array) -> Array:
    """Unsigned bytes of those, or of floats in [0, 1].

    Raises:
        ValueError: If they are neither.
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind != "f":
        raise ValueError(
            f"must be unsigned bytes, or floats in [0, 1]. Received: {pixels.dtype}; divide by the "
            "largest value that there can be"
        )
    if not np.isfinite(pixels).all():
        raise ValueError("has pixels that are not finite")
    if pixels.min() < 0 or pixels.max() > 1:
        raise ValueError(
            f"must lie in [0, 1] where they are floats. Received: "
            f"[{pixels.min():g}, {pixels.max():g}]"
        )
    return np.round(pixels * 255).astype(np.uint8)


def channels_first(shape: Sequence[int]) -> str | None:
    """Why the shape of images, with or without a batch, looks like channels before rows; or None.

    Three axes cannot tell. What is higher than wide, or as high, is never taken for that.
    """
    *_, first, middle, last = shape
    if first < min(middle, last) and last > 4:
        return (
            f"Received: shape {tuple(shape)}, which looks like channels first; "
            "numpy.moveaxis(images, -3, -1) puts them last."
        )
    return None


def _tiff(content: bytes) -> Array:
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError:
        raise ImportError("TIFF files need Pillow: pip install pillow") from None
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            if getattr(image, "n_frames", 1) > 1:
                raise ValueError("is a TIFF of several pages; write its bands as .npy")
            image = PIL.ImageOps.exif_transpose(image)
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise ValueError(
            f"is no TIFF that Pillow reads ({error}); write more bands than three as .npy"
        ) from None
    if image.mode.startswith(("I", "F")):
        raise ValueError(
            f"is a TIFF of other pixels than bytes (mode {image.mode}); scale it and write .npy"
        )
    kinds = {"1": "L", "L": "L", "LA": "L"}
    pixels = np.asarray(image.convert(kinds.get(image.mode, "RGB")))
    return pixels[..., None] if pixels.ndim == 2 else pixels
