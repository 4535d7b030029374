"""Images that TensorFlow's graph does not read: arrays, Pillow's images, and WebP animations.

Files of arrays are NumPy's `.npy`, and TIFF. They may have any number of channels, as satellites'
have. Archives of arrays, `.npz`, are read here, too.
"""

import io
import pathlib
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_transformers.core.types import Array, StrPath

ENDINGS = (".npy", ".tif", ".tiff")
NPY, TIFF, ZIP = b"\x93NUMPY", (b"II*\0", b"MM\0*"), b"PK"  # first bytes
CHANNELS = (1, 3, 4)  # of pixels that a PNG file holds
MOST_PIXELS = 89_478_485  # of an encoded image: as many as Pillow reads without a warning
LONGEST_SIDE = 65_535  # of an encoded image, in pixels: the most that a JPEG or GIF file can have
GREY_MODES = ("1", "L", "LA")  # of Pillow, of bytes
WEBP_HEADER, ANIMATION_FLAG = 21, 0x02  # bytes up to the flags, and the one of an animation
ANIMATED = "animated WebP files"  # in counts and messages

# NumPy parses the header as Python, and reserves memory for the shape that it states.
_BROKEN_ARRAY = (ValueError, OSError, EOFError, TypeError, tokenize.TokenError, SyntaxError)
_BROKEN_ARRAY += (MemoryError, RecursionError, OverflowError)
_BROKEN_ARCHIVE = (*_BROKEN_ARRAY, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError)
_BROKEN_ARCHIVE += (RuntimeError,)  # of an encrypted member
MOST_MEMBERS = 10_000  # of an archive of arrays
UNPACKED, TIMES_UNPACKED = 1 << 30, 100  # bytes of an archive: both together, see `read_arrays`
# Pillow's errors about damaged files; how it reads a tag follows from what the file says of it.
_BROKEN_TIFF = (OSError, SyntaxError, TypeError, KeyError, IndexError, AttributeError, struct.error)
_BROKEN_TIFF += (EOFError, OverflowError, ZeroDivisionError, MemoryError)


def is_animated_webp(encoded: bytes) -> bool:
    """True if a file is a WebP animation, by the flag in its header.

    TensorFlow must not decode one. If it has no alpha channel, the decoder writes outside its
    memory and ends the process. `vision.decoding` refuses it in the graph by the same flag.
    """
    header = encoded[:WEBP_HEADER]
    is_extended = header.startswith(b"RIFF") and header[8:16] == b"WEBPVP8X"
    return is_extended and len(header) == WEBP_HEADER and header[-1] & ANIMATION_FLAG > 0


def is_pillow(image: Any) -> bool:
    """True for an image of Pillow, which may not be installed."""
    return hasattr(image, "getbands") and hasattr(image, "convert")


def pixels_of(image: Any) -> Array:
    """The pixels of a Pillow image or an array, uint8 `(height, width, 1, 3 or 4)`.

    Args:
        image: A Pillow image, see `pixels_of_pillow`; or an array `(height, width)` or `(height,
            width, channels)` of unsigned bytes, or of floats in [0, 1].

    Raises:
        ValueError: If it is neither, in words that go on after its name.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.data.array_files import pixels_of
    >>> pixels_of(np.full((2, 3), 0.2)).tolist()
    [[[51], [51], [51]], [[51], [51], [51]]]
    """
    if is_pillow(image):
        return pixels_of_pillow(image)
    pixels = np.asarray(image)
    shape = pixels.shape if pixels.ndim == 3 else (*pixels.shape, 1)
    if len(shape) != 3 or 0 in shape or shape[-1] not in CHANNELS:
        raise ValueError(
            "must be an array (height, width) or (height, width, channels) with 1, 3 or 4 "
            f"channels. Received: {pixels.dtype} {pixels.shape}"
        )
    return as_bytes(pixels.reshape(shape))


def upright_pillow(image: Any) -> Any:
    """A Pillow image, turned upright as its EXIF says.

    Raises:
        ValueError: If it cannot be read, in words that go on after its name.
    """
    import PIL.Image
    import PIL.ImageOps

    try:
        image.load()
        return PIL.ImageOps.exif_transpose(image)
    except (OSError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise ValueError(f"cannot be read whole: {error}") from None


def pixels_of_pillow(image: Any) -> Array:
    """The pixels of a Pillow image, uint8 `(height, width, 1 or 3)`, upright as its EXIF says.

    Grey stays grey, everything else becomes RGB, and alpha is dropped. Of 16 bits the upper 8
    remain, as TensorFlow reads a PNG file. Other pixels than bytes are refused if nothing says
    which range they have: floats, and TIFF files of more than 8 bits.

    Raises:
        ValueError: If it cannot be read, in words that go on after its name.
    """
    mode, file_format = image.mode, getattr(image, "format", None)
    image = upright_pillow(image)
    if mode.startswith(("I", "F")):
        pixels = _bytes_of_integers(np.asarray(image), mode, file_format)
    else:
        pixels = np.asarray(image.convert("L" if mode in GREY_MODES else "RGB"))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _bytes_of_integers(pixels: Array, mode: str, file_format: str | None) -> Array:
    """uint8 of Pillow's pixels of 16 or 32 bits; ValueError if their range is not known."""
    has_16_bits = mode.startswith("I;16") or (mode == "I" and file_format == "PNG")
    if has_16_bits and file_format != "TIFF":
        return (pixels.astype(np.int32) // 256).astype(np.uint8)
    # Pillow converts bytes to this mode without another scale.
    holds_bytes = mode == "I" and file_format != "TIFF" and pixels.min() >= 0
    if holds_bytes and pixels.max() <= 255:
        return pixels.astype(np.uint8)
    raise ValueError(
        f"has other pixels than bytes (mode {mode}), and nothing says their range; scale them to "
        "unsigned bytes, or to floats in [0, 1] in an array"
    )


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
    >>> from keras_transformers.data.array_files import read_array
    >>> file = io.BytesIO()
    >>> np.save(file, np.full((16, 16, 13), 0.2))
    >>> read_array(file.getvalue()).shape, int(read_array(file.getvalue()).max())
    ((16, 16, 13), 51)
    """
    content = file if isinstance(file, bytes) else pathlib.Path(file).read_bytes()
    if content.startswith(TIFF):
        return _tiff(content)
    if content.startswith(ZIP):
        raise ValueError("is an archive of arrays, and no array")
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except _BROKEN_ARRAY as error:
        reason = str(error).splitlines()[:1] or [type(error).__name__]
        raise ValueError(f"is no array of pixels: {reason[0]}") from None
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"must be (height, width, channels). Received: shape {array.shape}")
    if reason := channels_first(array.shape):
        raise ValueError(f"must be (height, width, channels). {reason}")
    return as_bytes(array)


def read_arrays(path: StrPath) -> dict[str, Array]:
    """The arrays of an `.npz` file by their names.

    Args:
        path: The file, which need not be trusted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is no such archive, holds Python's objects, has more than 10,000 members,
            or more than 100 times its size and 1 GiB when it is unpacked.

    Example:
    >>> import pathlib, tempfile, numpy as np
    >>> from keras_transformers.data.array_files import read_arrays
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.npz")
    >>> np.savez_compressed(path, x=np.ones((2, 3)))
    >>> read_arrays(path)["x"].shape
    (2, 3)
    """
    path = pathlib.Path(path)
    most = UNPACKED + TIMES_UNPACKED * path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        if len(members) > MOST_MEMBERS or unpacked > most:
            raise ValueError(
                f"must have at most {MOST_MEMBERS:,} arrays and {most:,} B when it is unpacked. "
                f"Received: {len(members):,} arrays and {unpacked:,} B"
            )
        with np.load(path, allow_pickle=False) as arrays:
            found = dict(arrays)
    except _BROKEN_ARCHIVE as error:
        reason = str(error).splitlines()[:1] or [type(error).__name__]
        raise ValueError(f"{path} is no .npz file of plain arrays: {reason[0]}") from None
    wrong = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
    if wrong:
        raise ValueError(f"{path} is no .npz file of plain arrays: {wrong[0]} is no array")
    return found


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
    except ImportError:
        raise ImportError("TIFF files need Pillow: pip install pillow") from None
    try:
        with PIL.Image.open(io.BytesIO(content)) as image:
            if _has_pages(image):
                raise ValueError("is a TIFF of several pages; write its bands as .npy")
            _check_pixels(image)
            return pixels_of_pillow(image)
    except (*_BROKEN_TIFF, PIL.Image.DecompressionBombError) as error:
        raise ValueError(
            f"is no TIFF that Pillow reads ({error}); write more bands than three as .npy"
        ) from None


def _has_pages(image: Any) -> bool:
    """True if a Pillow image has a second page; those behind it are not looked for."""
    try:
        image.seek(1)
    except EOFError:
        return False
    return True


def _check_pixels(image: Any) -> None:
    """Raises a ValueError if a Pillow image is larger than `MOST_PIXELS`, or `LONGEST_SIDE`."""
    width, height = image.size
    if max(width, height) > LONGEST_SIDE or width * height > MOST_PIXELS:
        raise ValueError(
            f"must have at most {MOST_PIXELS} pixels, and {LONGEST_SIDE} along a side. "
            f"Received: {width} x {height}"
        )
