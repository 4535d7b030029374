"""A WebP animation, as uploads may be; TensorFlow's decoder aborts on one without alpha."""

import io

import numpy as np
from PIL import Image

FLAGS, ALPHA_FLAG = 20, 0x10  # byte of a WebP file, and the flag of an alpha channel in it


def animated_webp(alpha=False):
    """The bytes of a WebP file of two frames, whose header says whether it has an alpha channel."""
    frames = np.random.default_rng(0).integers(0, 256, (2, 11, 13, 3), dtype="uint8")
    first, second = (Image.fromarray(frame) for frame in frames)
    file = io.BytesIO()
    first.save(file, "WEBP", save_all=True, append_images=[second], lossless=True)
    content = bytearray(file.getvalue())
    content[FLAGS] &= ~ALPHA_FLAG
    content[FLAGS] |= ALPHA_FLAG * alpha
    return bytes(content)
