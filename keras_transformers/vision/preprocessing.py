"""From encoded bytes to what a model sees: the same in training, evaluation and serving."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array, Tensor
from keras_transformers.vision.decoding import decoded


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Decoding, resizing and normalising of images, in TensorFlow's graph.

    Args:
        image_size: `(height, width)` in pixels that every image is brought to, or an int for both.
        channels: 1 (grey) or 3 (RGB); other files are converted, an alpha channel is dropped.
            Arrays may have any number.
        mean, std: Of each channel, for pixels in [0, 1]; one number stands for all channels.
        crop: True resizes the shorter side and cuts the middle out; False squeezes the whole
            image into `image_size`.
        resized: What images are resized to before their middle is cut out, where that is larger
            than `image_size`: an int for the shorter side, or `(height, width)`, into which the
            whole image is squeezed.
        method: How images are resized: "bilinear" or "bicubic", antialiased.

    Raises:
        ValueError: If a size is not positive, `resized` less than `image_size`, `method` unknown,
            or `mean` and `std` do not fit the channels.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import Preprocessing
    >>> preprocessing = Preprocessing(image_size=8, channels=1, mean=0.5, std=0.25)
    >>> png = tf.io.encode_png(tf.fill((16, 12, 3), tf.constant(255, tf.uint8)))
    >>> image = preprocessing.decode(png)
    >>> image.dtype, tuple(image.shape), float(preprocessing.normalize(image)[0, 0, 0])
    (tf.uint8, (8, 8, 1), 2.0)
    """

    image_size: tuple[int, int]
    channels: int = 3
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    crop: bool = True
    resized: int | tuple[int, int] | None = None
    method: Literal["bilinear", "bicubic"] = "bilinear"

    if TYPE_CHECKING:  # one number stands for several, until they are there

        def __init__(
            self,
            image_size: int | Sequence[int],
            channels: int = 3,
            mean: float | Sequence[float] | Array = 0.5,
            std: float | Sequence[float] | Array = 0.5,
            crop: bool = True,
            resized: int | Sequence[int] | None = None,
            method: Literal["bilinear", "bicubic"] = "bilinear",
        ) -> None: ...

    def __post_init__(self) -> None:
        size = self.image_size
        size = (size, size) if isinstance(size, int) else tuple(size)
        if len(size) != 2 or min(size) < 1 or self.channels < 1:
            raise ValueError(
                "Preprocessing: `image_size` must be (height, width) or an int, `channels` "
                f"positive. Received: image_size={self.image_size}, channels={self.channels}"
            )
        object.__setattr__(self, "image_size", size)
        if self.method not in ("bilinear", "bicubic"):
            raise ValueError(
                'Preprocessing: `method` must be "bilinear" or "bicubic". '
                f"Received: {self.method!r}"
            )
        resized = self.resized
        if resized is not None and not isinstance(resized, int):
            resized = tuple(resized)
            object.__setattr__(self, "resized", resized)
        sides = (resized, resized) if isinstance(resized, int) else resized or size
        if any(inner < outer for inner, outer in zip(sides, size, strict=True)):
            raise ValueError(
                f"Preprocessing: `resized` must be at least `image_size`={size}. "
                f"Received: {resized}"
            )
        for name in ("mean", "std"):
            value = getattr(self, name)
            values = tuple(float(each) for each in np.atleast_1d(value))
            values = values * self.channels if len(values) == 1 else values
            if len(values) != self.channels or (name == "std" and min(values) <= 0):
                raise ValueError(
                    f"Preprocessing: `{name}` must be a number or {self.channels}, one a channel"
                    f"{', and positive' if name == 'std' else ''}. Received: {value}"
                )
            object.__setattr__(self, name, values)

    @classmethod
    def measured(cls, pixels: Array, image_size: int | tuple[int, int], crop: bool = True) -> Self:
        """Takes channels, mean and standard deviation from images `(n, height, width, c)`.

        `pixels` are unsigned bytes, as `ImageCorpus.decoded` holds them.
        """
        axes = (0, 1, 2)
        mean = pixels.mean(axes, "float64") / 255
        std = np.maximum(pixels.std(axes, "float64") / 255, 1e-3)
        return cls(image_size, pixels.shape[-1], tuple(mean), tuple(std), crop)

    def decode(self, encoded: tf.Tensor) -> tf.Tensor:
        """One encoded image (string scalar) -> `(height, width, channels)` uint8.

        JPEG, PNG, GIF, BMP or WebP, upright as its EXIF says; before it is resized the pixels are
        those of Pillow. Anything else raises `tf.errors.InvalidArgumentError` when it is decoded.
        """
        if self.channels not in (1, 3):
            raise ValueError(
                "Preprocessing: encoded images have `channels` of 1 or 3. "
                f"Received: {self.channels}"
            )
        return self.resize(decoded(encoded, self.channels))

    def resize(self, image: tf.Tensor) -> tf.Tensor:
        """`(h, w, channels)` uint8 of any size -> `(height, width, channels)` uint8."""
        height, width = self.image_size
        if image.shape[:2] != self.image_size or self.resized is not None:
            inner = self._inner(tf.cast(tf.shape(image)[:2], tf.float32))
            image = tf.image.resize(image, inner, self.method, antialias=True)
            top, left = tf.unstack((inner - self.image_size) // 2)
            image = image[top : top + height, left : left + width]
            image = tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
        return tf.ensure_shape(image, (height, width, self.channels))

    def _inner(self, extents: tf.Tensor) -> tf.Tensor:
        """Height and width, int32, that an image of `extents` is resized to before it is cut."""
        squeezed = self.resized is None and not self.crop
        if squeezed or isinstance(self.resized, tuple):
            return tf.constant(self.image_size if squeezed else self.resized)
        if self.resized is None:
            scale = tf.reduce_max(tf.constant(self.image_size, tf.float32) / extents)
            inner = tf.round(extents * scale)
        else:  # the longer side rounded down, as others do
            inner = tf.floor(extents * (self.resized / tf.reduce_min(extents)) + 1e-3)
        return tf.maximum(tf.cast(inner, tf.int32), self.image_size)

    def normalize(self, images: Tensor) -> tf.Tensor:
        """Pixels `(..., channels)` in [0, 255] -> float32 of mean 0 and deviation 1."""
        return (tf.cast(images, tf.float32) / 255 - self.mean) / self.std

    def denormalize(self, images: Tensor) -> Array:
        """The inverse of `normalize`, as NumPy floats in [0, 1]: for images."""
        return np.clip(np.asarray(images) * self.std + self.mean, 0, 1)
