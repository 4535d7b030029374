"""EXIF's orientation of an encoded image, read and applied in TensorFlow's graph.

Cameras save pixels as their sensor lies, and write beside them how the image is to be turned.
TensorFlow's decoders do not look at it.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

TAG, LONG = 0x0112, 4  # of the orientation, and of integers of four bytes (others have two)
LEFT_TO_RIGHT, UPSIDE_DOWN, TRANSPOSED = (2, 3, 6, 7), (3, 4, 7, 8), 5  # what 2 to 8 ask for
HEAD = 10  # bytes that are looked at of each part of a file
MOST_PARTS = 1000  # that are looked at; files of cameras and programs have a few dozen
MOST_FILL = 1 << 16  # bytes that fill, of one part


def orientation(encoded: tf.Tensor, kinds: dict[str, tf.Tensor]) -> tf.Tensor:
    """EXIF's orientation of a JPEG, PNG or WebP file: int32 scalar, 1 to 8.

    Args:
        encoded: String scalar.
        kinds: What `decoding.kinds` says of it.

    Returns:
        1, "as it is", where the first 1,000 parts of the file say nothing that has a meaning.
    """
    nowhere = tf.constant(-1, tf.int64)
    start = tf.cond(
        kinds["JPEG"],
        lambda: _walk(encoded, 2, _jpeg_segment),
        lambda: tf.cond(
            kinds["PNG"],
            lambda: _walk(encoded, 8, _png_chunk),
            lambda: tf.cond(
                kinds["WebP"], lambda: _walk(encoded, 12, _webp_chunk), lambda: nowhere
            ),
        ),
    )
    found = tf.cond(
        (start >= 0) & (start + 10 <= _size(encoded)),
        lambda: _of_tiff(encoded, start),
        lambda: tf.constant(1, tf.int64),
    )
    return tf.cast(tf.where((found >= 1) & (found <= 8), found, 1), tf.int32)


def upright(image: tf.Tensor, turned: tf.Tensor) -> tf.Tensor:
    """Turns pixels `(height, width, channels)` as `orientation` says that they are to be."""

    def turn() -> tf.Tensor:
        x = tf.cond(turned >= TRANSPOSED, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
        axes = ((LEFT_TO_RIGHT, 1), (UPSIDE_DOWN, 0))
        for values, axis in axes:
            flip = tf.reduce_any(turned == values)
            x = tf.cond(flip, lambda x=x, axis=axis: tf.reverse(x, [axis]), lambda x=x: x)
        return x

    return tf.cond(turned == 1, lambda: image, turn)


def number(data: tf.Tensor, little: bool | tf.Tensor) -> tf.Tensor:
    """The integers, int64, that the last axis of some bytes stands for.

    Args:
        data: int64 `(..., n)`, each in [0, 256), n of at most 4.
        little: Whether the first byte is the least: a bool, or a bool scalar.
    """
    powers = tf.constant([256**i for i in range(data.shape[-1])], tf.int64)
    return tf.reduce_sum(data * tf.where(little, powers, powers[::-1]), axis=-1)


def read(encoded: tf.Tensor, start: Any, length: int) -> tf.Tensor:
    """`length` bytes from `start` on, int64; an error where there are not as many."""
    part = tf.strings.substr(encoded, tf.cast(start, tf.int64), tf.constant(length, tf.int64))
    return tf.ensure_shape(tf.cast(tf.io.decode_raw(part, tf.uint8), tf.int64), [length])


def _size(encoded: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.strings.length(encoded), tf.int64)


def _walk(
    encoded: tf.Tensor,
    start: Any,
    look: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> tf.Tensor:
    """Where the TIFF header in the first `MOST_PARTS` parts of a file begins, or -1.

    Args:
        start: Of the first part.
        look: Function of the file and the start of a part that gives where the header is in it, or
            -1, and where the next part begins, or -1 where none needs to be looked at.
    """
    size = _size(encoded)
    found, _ = tf.while_loop(
        lambda found, index: (found < 0) & (index >= 0) & (index + HEAD <= size),
        lambda found, index: look(encoded, index),
        (tf.constant(-1, tf.int64), tf.constant(start, tf.int64)),
        maximum_iterations=MOST_PARTS,
    )
    return found


def _is(encoded: tf.Tensor, index: Any, content: bytes) -> tf.Tensor:
    length = tf.constant(len(content), tf.int64)
    return tf.strings.substr(encoded, index, length) == content


def _where(found: tf.Tensor, index: int) -> tf.Tensor:
    return tf.where(found, index, tf.constant(-1, tf.int64))


def _jpeg_segment(encoded: tf.Tensor, index: int) -> tuple[tf.Tensor, tf.Tensor]:
    """A marker, and most often the length of what follows; entropy-coded data are the last."""
    head = read(encoded, index, 4)
    marker = head[1]
    alone = ((marker >= 0xD0) & (marker <= 0xD7)) | (marker == 0x01)  # without a length
    step = tf.where(alone, tf.constant(2, tf.int64), 2 + number(head[2:], False))
    step = tf.cond(marker == 0xFF, lambda: _fill_bytes(encoded, index), lambda: step)
    last = (head[0] != 0xFF) | (marker == 0xDA) | (marker == 0xD9)
    exif = (marker == 0xE1) & _is(encoded, index + 4, b"Exif\0\0")
    return _where(exif & ~last, index + HEAD), _where(~last, index + step)


def _fill_bytes(encoded: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """The number of bytes before the last 0xFF of those that begin at `index`, int64."""
    part = tf.strings.substr(encoded, index, tf.constant(MOST_FILL, tf.int64))
    others = tf.cast(tf.io.decode_raw(part, tf.uint8) != 0xFF, tf.uint8)
    first = tf.where(tf.reduce_any(others > 0), tf.argmax(others), tf.size(others, tf.int64))
    return tf.maximum(first - 1, 1)


def _png_chunk(encoded: tf.Tensor, index: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Its length, its name, what is in it, four bytes to check it by."""
    length = number(read(encoded, index, 4), False)
    last = _is(encoded, index + 4, b"IDAT") | _is(encoded, index + 4, b"IEND")
    exif = _is(encoded, index + 4, b"eXIf")
    return _where(exif, index + 8), _where(~last, index + 12 + length)


def _webp_chunk(encoded: tf.Tensor, index: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Its name, its length, what is in it, a byte that makes it even."""
    length = number(read(encoded, index + 4, 4), True)
    exif = _is(encoded, index, b"EXIF")
    begin = index + 8
    named = (begin + 6 <= _size(encoded)) & _is(encoded, begin, b"Exif\0\0")  # as some write it
    begin = tf.where(named, begin + 6, begin)
    return _where(exif, begin), index + 8 + length + length % 2


def _of_tiff(encoded: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """The orientation in the first directory of a TIFF header, int64; 1 where it is not there."""
    little = _is(encoded, start, b"II")
    directory = start + number(read(encoded, start + 4, 4), little)
    room = (_size(encoded) - directory - 2) // 12

    def entries() -> tf.Tensor:
        count = tf.minimum(number(read(encoded, directory, 2), little), room)
        table = tf.strings.substr(encoded, directory + 2, 12 * count)
        table = tf.cast(tf.reshape(tf.io.decode_raw(table, tf.uint8), (-1, 12)), tf.int64)
        tags, kinds = number(table[:, :2], little), number(table[:, 2:4], little)
        values = tf.where(
            kinds == LONG, number(table[:, 8:12], little), number(table[:, 8:10], little)
        )
        return tf.concat([tf.boolean_mask(values, tags == TAG), [1]], axis=0)[0]

    return tf.cond(room >= 1, entries, lambda: tf.constant(1, tf.int64))
