"""Encoded images as pixels, in TensorFlow's graph: the same in training and in a SavedModel.

The pixels are those of Pillow with `ImageOps.exif_transpose`: JPEG with its accurate transform,
upright as EXIF says, grey by its formula, palettes looked up. Of an animated GIF the first frame is
decoded. An animated WebP file is refused, because TensorFlow must not decode it.

Cameras save pixels as their sensor lies, and write beside them how the image is to be turned.
TensorFlow's decoders do not look at it; the functions here read this orientation and apply it.

A few bytes can stand for any number of pixels, of passes over them, and of frames. TensorFlow's
decoders have no limits that a machine of ordinary size could bear, so `within_limits` checks an
image before anything is decoded.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_transformers.data.array_files import (
    ANIMATED,
    ANIMATION_FLAG,
    LONGEST_SIDE,
    MOST_PIXELS,
    WEBP_HEADER,
)

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


MOST_SCANS = 64  # passes over the pixels of a JPEG; progressive files have about ten
BYTES_OF_A_SCAN = 1 << 15  # one more for as many bytes: metadata can have the same two bytes
MOST_TEXTS = 64  # compressed texts in a PNG
MOST_RUNS = 1 << 14  # of up to 64 blocks of one length, up to the end of a GIF's first frame
RUN = 64  # blocks
AT_BLOCK, IN_EXTENSION, IN_FRAME, AFTER_FRAME, BROKEN = range(5)  # positions in a GIF


def within_limits(encoded: tf.Tensor, of_kind: dict[str, tf.Tensor]) -> tf.Tensor:
    """An encoded image, if decoding it is in proportion; of a GIF the first frame alone.

    Args:
        encoded: String scalar.
        of_kind: What `decoding.kinds` says of it.

    Returns:
        String scalar.

    Raises:
        tf.errors.InvalidArgumentError: When it is computed, if a limit is exceeded, or the header
            is broken.
    """
    readers = {
        "JPEG": _jpeg_sides,
        "PNG": _png_sides,
        "GIF": lambda encoded: _little(_bytes(encoded, 6, 4), 2),
        "BMP": _bmp_sides,
        "WebP": _webp_sides,
    }
    sides = tf.zeros([2], tf.int64)
    for kind, reader in readers.items():
        sides = tf.cond(
            of_kind[kind], lambda reader=reader: reader(encoded), lambda sides=sides: sides
        )
    with tf.control_dependencies([_check_sides(sides)]):
        encoded = tf.identity(encoded)
    return tf.cond(of_kind["GIF"], lambda: _first_frame(encoded), lambda: encoded)


def _check_sides(sides: tf.Tensor) -> tf.Operation:
    """Asserts that two sides, int64, are in the limits; their product cannot overflow."""
    fits = (tf.reduce_max(sides) <= LONGEST_SIDE) & (tf.reduce_prod(sides) <= MOST_PIXELS)
    message = f"an image must have at most {MOST_PIXELS} pixels, and {LONGEST_SIDE} along a side"
    return tf.debugging.Assert(fits, [f"{message}. Received:", sides])


def _bytes(encoded: tf.Tensor, start: int | tf.Tensor, length: int) -> tf.Tensor:
    """`length` bytes from `start` on, int64; zeros where there are not as many."""
    start = tf.minimum(tf.cast(start, tf.int64), tf.cast(tf.strings.length(encoded), tf.int64))
    part = tf.strings.substr(encoded, start, tf.constant(length, tf.int64))
    data = tf.io.decode_raw(part, tf.uint8)
    data = tf.pad(data, [[0, length - tf.size(data)]])
    return tf.ensure_shape(tf.cast(data, tf.int64), [length])


def _little(data: tf.Tensor, size: int) -> tf.Tensor:
    """The numbers, of `size` bytes each and the least one first, that some bytes stand for."""
    return number(tf.reshape(data, (-1, size)), True)


def _count(encoded: tf.Tensor, content: bytes) -> tf.Tensor:
    """How often some bytes are in an encoded image, int64."""
    data = tf.io.decode_raw(encoded, tf.uint8)
    last = tf.size(data) - len(content) + 1
    equal = tf.ones([last], tf.bool)
    for i, byte in enumerate(content):
        equal &= data[i : last + i] == byte
    return tf.reduce_sum(tf.cast(equal, tf.int64))


def _jpeg_sides(encoded: tf.Tensor) -> tf.Tensor:
    most = MOST_SCANS + tf.cast(tf.strings.length(encoded) // BYTES_OF_A_SCAN, tf.int64)
    scans = _count(encoded, b"\xff\xda")
    message = f"a JPEG must have at most {MOST_SCANS} scans. Received:"
    with tf.control_dependencies([tf.debugging.Assert(scans <= most, [message, scans])]):
        shape = tf.io.extract_jpeg_shape(tf.identity(encoded), output_type=tf.int32)
    return tf.cast(shape[:2], tf.int64)


def _png_sides(encoded: tf.Tensor) -> tf.Tensor:
    texts = _count(encoded, b"TXt")  # "zTXt" and "iTXt"
    message = f"a PNG must have at most {MOST_TEXTS} compressed texts. Received:"
    with tf.control_dependencies([tf.debugging.Assert(texts <= MOST_TEXTS, [message, texts])]):
        return number(tf.reshape(_bytes(encoded, 16, 8), (2, 4)), False)


def _bmp_sides(encoded: tf.Tensor) -> tf.Tensor:
    """The sides, of which the height is negative where the first row is the upper one."""
    sides = _little(_bytes(encoded, 18, 8), 4)
    return tf.where(sides >= 1 << 31, (1 << 32) - sides, sides)


def _webp_sides(encoded: tf.Tensor) -> tf.Tensor:
    """The sides of the first chunk: with losses, without, or with others behind it."""
    head = _bytes(encoded, 12, 18)
    packed = _little(head[9:13], 4)[0]
    lossy = tf.bitwise.bitwise_and(_little(head[14:18], 2), 0x3FFF)
    lossless = 1 + tf.stack([packed % (1 << 14), packed // (1 << 14) % (1 << 14)])
    extended = 1 + _little(head[12:18], 3)
    letter = head[3]  # of "VP8 ", "VP8L" or "VP8X"
    sides = tf.where(letter == ord("L"), lossless, lossy)
    return tf.where(letter == ord("X"), extended, sides)


def _first_frame(encoded: tf.Tensor) -> tf.Tensor:
    """A GIF that ends behind its first frame; TensorFlow would expand all of them."""
    size = tf.cast(tf.strings.length(encoded), tf.int64)
    flags = _bytes(encoded, 10, 1)[0]
    begin = (13 + _palette(flags), tf.constant(AT_BLOCK, tf.int64))

    def look(index: tf.Tensor, position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        data = _bytes(encoded, index, RUN * 256)
        head = data[:10]
        equal = tf.gather(data, (1 + head[0]) * tf.range(RUN, dtype=tf.int64)) == head[0]
        run = tf.reduce_sum(tf.math.cumprod(tf.cast(equal, tf.int64)))
        blocks = tf.where(head[0] == 0, tf.constant(1, tf.int64), run * (1 + head[0]))
        frame, extension = head[0] == 0x2C, head[0] == 0x21
        after = tf.where(frame, IN_FRAME, tf.where(extension, IN_EXTENSION, BROKEN))
        step = tf.where(frame, 11 + _palette(head[9]), 2)
        sides = tf.where(frame & (position == AT_BLOCK), _little(head[5:9], 2), 0)
        inside = tf.where(position == IN_FRAME, AFTER_FRAME, AT_BLOCK)
        inside = tf.where(head[0] == 0, tf.cast(inside, tf.int64), position)
        at_block = position == AT_BLOCK
        with tf.control_dependencies([_check_sides(sides)]):
            index += tf.where(at_block, step, blocks)
        return index, tf.where(at_block, tf.cast(after, tf.int64), inside)

    index, position = tf.while_loop(
        lambda index, position: (position < AFTER_FRAME) & (index < size),
        look,
        begin,
        maximum_iterations=MOST_RUNS,
    )
    whole = (position == AFTER_FRAME) & (index <= size)
    message = f"a GIF must begin with a whole frame, of at most {MOST_RUNS} runs of blocks"
    with tf.control_dependencies([tf.debugging.Assert(whole, [message])]):
        return tf.strings.substr(encoded, tf.constant(0, tf.int64), index) + b";"


def _palette(flags: tf.Tensor) -> tf.Tensor:
    """Bytes of the table of colours that some flags announce, int64."""
    size = 3 * tf.bitwise.left_shift(tf.constant(2, tf.int64), flags % 8)
    return tf.where(flags >= 0x80, size, 0)


KINDS = ("JPEG", "PNG", "GIF", "BMP", "WebP")
NAMES = "JPEG, PNG, GIF, BMP or WebP"
STARTS = {"JPEG": b"\xff\xd8\xff", "PNG": b"\x89PNG", "GIF": b"GIF8", "BMP": b"BM"}
GREY = (19595, 38470, 7471)  # shares of red, green and blue, of 65,536


def kinds(encoded: tf.Tensor) -> dict[str, tf.Tensor]:
    """Dict of the name of each kind of file to whether an encoded image is one, bool scalars."""
    found = {
        name: tf.strings.substr(encoded, 0, len(start)) == start for name, start in STARTS.items()
    }
    webp = tf.strings.regex_full_match(tf.strings.substr(encoded, 0, 12), r"(?s)RIFF\C{4}WEBP")
    return {**found, "WebP": webp}


def decoded(encoded: tf.Tensor, channels: int) -> tf.Tensor:
    """One encoded image (string scalar) -> `(height, width, channels)` uint8, upright.

    Args:
        channels: 1 or 3; what has others is converted, an alpha channel is dropped.

    Raises:
        tf.errors.InvalidArgumentError: When it is computed, if it is no whole image, or an
            animated WebP file, or exceeds a limit of `within_limits`.
    """
    return with_channels(_natural(encoded, kinds(encoded))[0], channels)


def is_animated(encoded: tf.Tensor) -> tf.Tensor:
    """Bool scalar: True if an encoded image is a WebP animation; see `is_animated_webp`."""
    header = tf.io.decode_raw(tf.strings.substr(encoded, 0, WEBP_HEADER), tf.uint8)
    header = tf.pad(header, [[0, WEBP_HEADER - tf.size(header)]])
    is_riff = tf.reduce_all(header[:4] == tf.constant(list(b"RIFF"), tf.uint8))
    is_extended = tf.reduce_all(header[8:16] == tf.constant(list(b"WEBPVP8X"), tf.uint8))
    flag = tf.bitwise.bitwise_and(header[WEBP_HEADER - 1], tf.constant(ANIMATION_FLAG, tf.uint8))
    return is_riff & is_extended & (flag > 0)


@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def measured(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Height, width and channels of an encoded image, upright, and its orientation in EXIF.

    Decodes the whole of it. Channels are 1, grey, or 3, colours.

    Raises:
        tf.errors.InvalidArgumentError: As `decoded`.
    """
    image, turned = _natural(encoded, kinds(encoded))
    height, width, channels = tf.unstack(tf.shape(image))
    return height, width, tf.where(channels < 3, 1, 3), turned


def with_channels(image: tf.Tensor, channels: int) -> tf.Tensor:
    """Pixels `(height, width, any)` uint8 with 1 or 3 channels; alpha is dropped."""
    own = tf.shape(image)[-1]

    def converted() -> tf.Tensor:
        if channels == 1:
            return tf.cond(own >= 3, lambda: _grey(image), lambda: image[..., :1])
        return tf.cond(own >= 3, lambda: image[..., :3], lambda: tf.tile(image[..., :1], (1, 1, 3)))

    return tf.ensure_shape(
        tf.cond(own == channels, lambda: image, converted), (None, None, channels)
    )


def _natural(encoded: tf.Tensor, of_kind: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """The pixels with the channels that they have, upright, and the orientation of the file."""
    check = tf.debugging.Assert(~is_animated(encoded), [f"{ANIMATED} are not read"])
    with tf.control_dependencies([check]):
        encoded = within_limits(encoded, of_kind)
    image = tf.cond(
        of_kind["JPEG"],
        # Pillow's; the default is quicker and up to 10 of 256 away.
        lambda: tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE"),
        lambda: tf.cond(
            of_kind["BMP"],
            lambda: _bmp(encoded),
            lambda: tf.io.decode_image(encoded, expand_animations=False),
        ),
    )
    turned = orientation(encoded, of_kind)
    return upright(tf.ensure_shape(image, (None, None, None)), turned), turned


def _grey(image: tf.Tensor) -> tf.Tensor:
    weighed = tf.cast(image[..., :3], tf.int32) * tf.constant(GREY)
    grey = (tf.reduce_sum(weighed, axis=-1, keepdims=True) + 0x8000) // 0x10000
    return tf.cast(grey, tf.uint8)


def _bmp(encoded: tf.Tensor) -> tf.Tensor:
    """A bitmap; one of 8 bits is looked up in its palette, which TensorFlow does not read."""
    header = read(encoded, 0, 50)
    bits, packed = number(header[28:30], True), number(header[30:34], True)
    plain = (packed == 0) | ((packed == 3) & (bits == 32))
    check = tf.debugging.Assert(plain, ["a bitmap whose pixels are packed is not read"])
    with tf.control_dependencies([check]):
        image = tf.io.decode_bmp(tf.identity(encoded))

    def looked_up() -> tf.Tensor:
        colours = number(header[46:50], True)
        colours = tf.where(colours == 0, tf.constant(256, tf.int64), colours)
        table = tf.strings.substr(encoded, 14 + number(header[14:18], True), 4 * colours)
        table = tf.reshape(tf.io.decode_raw(table, tf.uint8), (-1, 4))[:, 2::-1]  # from B, G, R
        pixels = tf.gather(table, tf.cast(image[..., 0], tf.int32))
        grey = tf.reduce_all(table == table[:, :1])
        return tf.cond(grey, lambda: pixels[..., :1], lambda: pixels)

    return tf.cond(bits == 8, looked_up, lambda: image)
