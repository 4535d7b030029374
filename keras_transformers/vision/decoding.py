"""Encoded images as pixels, in TensorFlow's graph: the same in training and in a SavedModel.

The pixels are those of Pillow with `ImageOps.exif_transpose`: JPEG with its accurate transform,
upright as EXIF says, grey by its formula, palettes looked up. Of an animated GIF the first frame;
an animated WebP file is refused, which TensorFlow must not decode, and so is what exceeds `limits`.
"""

import tensorflow as tf

from keras_transformers.array_files import ANIMATED, ANIMATION_FLAG, WEBP_HEADER
from keras_transformers.vision.limits import within_limits
from keras_transformers.vision.orientation import number, orientation, read, upright

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
            animated WebP file, or exceeds a limit of `vision.limits`.
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
