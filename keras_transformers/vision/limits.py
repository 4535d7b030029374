"""Limits of encoded images, checked in TensorFlow's graph before anything is decoded.

A few bytes can stand for any number of pixels, of passes over them, and of frames. TensorFlow's
decoders have no limits that a machine of ordinary size could bear.
"""

import tensorflow as tf

from keras_transformers.array_files import LONGEST_SIDE, MOST_PIXELS
from keras_transformers.vision.orientation import number

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
