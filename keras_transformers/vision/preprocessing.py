"""Preprocessing of encoded images for training, evaluation and serving, and random augmentation.

Keras's own layers augment images, one after the other; the padded crop is the one that Keras lacks.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tensor
from keras_transformers.data.streams import Draws
from keras_transformers.vision.decoding import decoded

MOST_ENLARGED = 16  # times the pixels of the result, for an image that is resized as a whole


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
            whole image is squeezed. With `fit` the length of the shorter side, at most
            `image_size`, which must be a square then; a long image is scaled further down, until
            its longer side fits.
        method: How images are resized: "bilinear" or "bicubic", antialiased.
        fit: True keeps the whole image and its aspect ratio, whatever `crop` is: it is scaled to
            fit into `image_size`, at the upper left, and zeros fill the rest.

    Raises:
        ValueError: If a size is not positive, `resized` less than `image_size` (with `fit`: more),
            `method` unknown, or `mean` and `std` do not fit the channels.

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
    fit: bool = False

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
            fit: bool = False,
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
        if self.fit and resized is not None:
            if not isinstance(resized, int) or size[0] != size[1] or not 1 <= resized <= size[0]:
                raise ValueError(
                    "Preprocessing: with `fit=True`, `resized` must be None, or an int of at most "
                    f"`image_size`, a square. Received: resized={resized}, image_size={size}"
                )
        elif any(inner < outer for inner, outer in zip(sides, size, strict=True)):
            raise ValueError(
                f"Preprocessing: `resized` must be at least `image_size`={size}. "
                f"Received: {resized}"
            )
        for name, value in (("mean", self.mean), ("std", self.std)):
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
        if self.fit:
            return self._fitted(image)[0]
        if image.shape[:2] != self.image_size or self.resized is not None:
            inner = self._inner(tf.cast(tf.shape(image)[:2], tf.float32))
            image = tf.cond(
                self._is_extreme(tf.shape(image)[:2], inner),
                lambda: _middle_of_extreme(image, inner, self.image_size, self.method),
                lambda: _middle(image, inner, self.image_size, self.method),
            )
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

    def _is_extreme(self, extents: tf.Tensor, inner: tf.Tensor) -> tf.Tensor:
        """True if resizing as a whole takes many times the pixels of the image and of the result.

        So it is with images that are many times longer than wide, and enlarged.
        """
        sides = self.resized or self.image_size
        sides = (sides, sides) if isinstance(sides, int) else sides
        extents, inner = tf.cast(extents, tf.float64), tf.cast(inner, tf.float64)
        resized = inner[0] * tf.maximum(extents[1], inner[1])  # rows come first
        enough = MOST_ENLARGED * sides[0] * sides[1]
        return resized > tf.maximum(tf.reduce_prod(extents), enough)

    def frame(self, image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """A whole image as detectors take it, for boxes must not be cut.

        With `fit`, and with `crop`, which would cut, it keeps its aspect ratio, see `fitted`; with
        `crop=False` it is squeezed into `image_size`.

        Returns:
            uint8 `(height, width, channels)`; bool `(height, width)`, True where the image is; and
            int32 `(2,)`, the image's height and width there.
        """
        if self.fit or self.crop:
            return self._fitted(image)
        mask = tf.ones(self.image_size, tf.bool)
        return self.resize(image), mask, tf.constant(self.image_size)

    def _fitted(self, image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        shortest = self.resized if isinstance(self.resized, int) else None
        return fitted(image, self.image_size, shortest, self.method)

    def check_frame(self, name: str) -> None:
        """Raises a ValueError, which begins with `name`, if this fits no detector."""
        if self.channels != 3 or (self.resized is not None and not self.fit):
            raise ValueError(
                f"{name}: the preprocessing of a detector must have 3 channels, and `resized` only "
                f"with `fit=True`. Received: channels={self.channels}, resized={self.resized}, "
                f"fit={self.fit}"
            )

    def normalize(self, images: Tensor) -> tf.Tensor:
        """Pixels `(..., channels)` in [0, 255] -> float32 of mean 0 and deviation 1."""
        return (tf.cast(images, tf.float32) / 255 - self.mean) / self.std

    def denormalize(self, images: Tensor) -> Array:
        """The inverse of `normalize`, as NumPy floats in [0, 1]: for images."""
        return np.clip(np.asarray(images) * self.std + self.mean, 0, 1)


def _middle(image: tf.Tensor, inner: tf.Tensor, size: tuple[int, int], method: str) -> tf.Tensor:
    """The middle of an image that is resized to `inner`: float32 `(*size, channels)`."""
    image = tf.image.resize(image, inner, method, antialias=True)
    top, left = tf.unstack((inner - size) // 2)
    return image[top : top + size[0], left : left + size[1]]


def _middle_of_extreme(
    image: tf.Tensor, inner: tf.Tensor, size: tuple[int, int], method: str
) -> tf.Tensor:
    """As `_middle`, but for rounding, of the pixels alone that are seen in it."""
    extents = tf.cast(tf.shape(image)[:2], tf.float32)
    scales = tf.cast(inner, tf.float32) / extents
    begin = tf.cast((inner - size) // 2, tf.float32)
    margins = 1 + 2 * tf.maximum(1.0, 1 / scales)  # of a cubic kernel
    first = tf.clip_by_value(tf.floor(begin / scales - margins), 0, extents)
    last = tf.clip_by_value(tf.math.ceil((begin + size) / scales + margins), 0, extents)
    top, left, bottom, right = tf.unstack(tf.cast(tf.concat([first, last], 0), tf.int32))
    seen = image[None, top:bottom, left:right]
    moved = first * scales - begin
    for axis in (1, 0):  # columns first, for the image is wide, or the rows are few by now
        along = tf.one_hot(axis, 2) > 0
        seen = tf.raw_ops.ScaleAndTranslate(
            images=seen,
            size=tf.where(along, size, tf.shape(seen)[1:3]),
            scale=tf.where(along, scales, 1.0),
            translation=tf.where(along, moved, 0.0),
            kernel_type={"bilinear": "triangle", "bicubic": "keyscubic"}[method],
            antialias=True,
        )
    return seen[0]


def fitted(
    image: tf.Tensor,
    size: int | tuple[int, int],
    shortest: int | None = None,
    method: Literal["bilinear", "bicubic"] = "bilinear",
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """An image scaled to fit into a frame, at its upper left, zeros elsewhere.

    Its height and width there are those of `transformers`' image processors, to the pixel: with
    `shortest` of `shortest_edge` and `longest_edge`, else of `max_height` and `max_width`.

    Args:
        image: uint8 `(height, width, channels)`.
        size: `(height, width)` of the frame in pixels, or an int for both.
        shortest: Length of the shorter side, for square frames; where the longer side would not
            fit, it decides. None makes the image as large as the frame allows.
        method: "bilinear" or "bicubic", antialiased.

    Returns:
        uint8 `(*size, channels)`; bool `size`, True where the image is; and int32 `(2,)`, the
        image's height and width there.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import fitted
    >>> pixels, mask, inner = fitted(tf.ones((10, 20, 3), tf.uint8), 8)
    >>> tuple(pixels.shape), int(tf.reduce_sum(tf.cast(mask, tf.int32))), inner.numpy().tolist()
    ((8, 8, 3), 32, [4, 8])
    """
    height, width = (size, size) if isinstance(size, int) else size
    inner = _fitted_sides(tf.shape(image)[:2], (height, width), shortest)
    resized = tf.image.resize(image, inner, method, antialias=True)
    resized = tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)
    resized = tf.pad(resized, ((0, height - inner[0]), (0, width - inner[1]), (0, 0)))
    mask = (tf.range(height) < inner[0])[:, None] & (tf.range(width) < inner[1])[None]
    resized = tf.ensure_shape(resized, (height, width, image.shape[-1]))
    return resized, tf.ensure_shape(mask, (height, width)), inner


def _fitted_sides(extents: tf.Tensor, size: tuple[int, int], shortest: int | None) -> tf.Tensor:
    """Returns height and width, int32 `(2,)`, of an image of `extents` in a frame of `size`."""
    extents = tf.cast(extents, tf.float64)  # rounded down: a smaller precision loses pixels
    if shortest is None:
        sides = tf.floor(extents * tf.reduce_min(tf.constant(size, tf.float64) / extents))
    else:
        shorter, longer = tf.reduce_min(extents), tf.reduce_max(extents)
        bound = float(max(size))
        side = tf.constant(shortest, tf.float64)
        side = tf.where(longer / shorter * side > bound, bound * shorter / longer, side)
        sides = tf.where(extents == shorter, tf.round(side), tf.floor(side * extents / shorter))
    return tf.clip_by_value(tf.cast(sides, tf.int32), 1, size)


def random_crop(images: tf.Tensor, padding: int, draws: Draws | None = None) -> tf.Tensor:
    """Shifts each image by up to `padding` pixels in each direction; black comes in at the border.

    The same as padding every side and cutting a window of the old size out, somewhere else
    for each image (He et al. 2016, https://arxiv.org/abs/1512.03385, section 4.2, for CIFAR-10).
    `keras.layers.RandomCrop` cuts a whole batch at one position and does not pad.

    Args:
        images: `(batch, height, width, c)`, any number dtype.
        padding: Pixels; 0 changes nothing.
        draws: Optional `streams.Draws`.

    Returns:
        Same shape and dtype.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import random_crop
    >>> tuple(random_crop(tf.ones((2, 8, 8, 1)), padding=2).shape)
    (2, 8, 8, 1)
    """
    if not padding:
        return images
    batch = tf.shape(images)[0]
    shift = (draws or Draws()).uniform((batch, 2), -padding, padding + 1, tf.int32)
    shift = tf.cast(shift, tf.float32)
    one, zero = tf.ones(batch), tf.zeros(batch)
    # Rows of the matrix that takes a position in the output to its position in the input.
    transforms = tf.stack([one, zero, shift[:, 1], zero, one, shift[:, 0], zero, zero], axis=1)
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    return tf.ensure_shape(moved, images.shape)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """A function from a batch of images and labels of 0 and 1 to a changed batch.

    Crop and flip; then RandAugment (Cubuk et al. 2020, https://arxiv.org/abs/1909.13719) and random
    erasing (Zhong et al. 2020, https://arxiv.org/abs/1708.04896); then MixUp (Zhang et al. 2018,
    https://arxiv.org/abs/1710.09412) or CutMix (Yun et al. 2019, https://arxiv.org/abs/1905.04899),
    which mix labels too. All but the crop are `keras.layers`, with their defaults.

    Args:
        crop_padding: Pixels of padding around the random crop.
        flip: Whether to mirror half of the images, left to right.
        rand_augment: Number of RandAugment's operations on each image; 0 leaves it out.
        magnitude: Strength of RandAugment, in [0, 1].
        erasing: Share of images with a rectangle of noise.
        mixup: Parameter of MixUp's beta distribution; 0 leaves it out.
        cutmix: Parameter of CutMix's; with MixUp too, each batch gets one of the two.
        seed: Of everything random, together with `key`.

    Call arguments:
        images: `(batch, height, width, c)` in [0, 255].
        labels: `(batch, classes)`: 1 where an image has the label, one of them or several.
        key: Optional integers `(n,)`, as from `streams.keys`: with them everything random follows
            from `seed` and `key` alone. Without them each call draws what comes next.

    Returns:
        float32 images and labels, of the same shapes.

    Raises:
        ValueError: If a number is negative, or a share or magnitude above 1.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.vision import Augmentation
    >>> augment = Augmentation(crop_padding=2, flip=True, mixup=0.2)
    >>> images, labels = augment(tf.ones((4, 8, 8, 1)), tf.eye(4))
    >>> tuple(images.shape), tf.reduce_sum(labels, axis=1).numpy().round(3).tolist()
    ((4, 8, 8, 1), [1.0, 1.0, 1.0, 1.0])
    """

    crop_padding: int = 0
    flip: bool = False
    rand_augment: int = 0
    magnitude: float = 0.5
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        shares = {"magnitude": self.magnitude, "erasing": self.erasing}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"Augmentation: `{name}` must lie in [0, 1]. Received: {share}")
        numbers = {
            "crop_padding": self.crop_padding,
            "rand_augment": self.rand_augment,
            "mixup": self.mixup,
            "cutmix": self.cutmix,
        }
        for name, number in numbers.items():
            if number < 0:
                raise ValueError(f"Augmentation: `{name}` must not be negative. Received: {number}")
        layers, random = keras.layers, {"seed": self.seed, "dtype": "float32"}
        random["data_format"] = "channels_last"  # as images are here, whatever Keras is set to
        pixels = {"value_range": (0, 255), **random}
        of_images = [
            self.flip and layers.RandomFlip("horizontal", **random),
            self.rand_augment
            and layers.RandAugment(num_ops=self.rand_augment, factor=self.magnitude, **pixels),
            self.erasing and layers.RandomErasing((self.erasing, self.erasing), **pixels),
        ]
        mixing = [
            self.mixup and layers.MixUp(self.mixup, **random),
            self.cutmix and layers.CutMix(self.cutmix, **random),
        ]
        seeds = _Seeds()
        made = [layer for layer in of_images if layer], [layer for layer in mixing if layer], seeds
        object.__setattr__(self, "_made", made)
        for layer in (*made[0], *made[1]):
            layer.generator = seeds
            # What Keras takes instead in tf.data where its backend is another.
            layer._backend_generators = {"tensorflow": seeds}

    def __call__(
        self, images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor | Sequence[int] | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if key is None:
            key = tf.random.uniform((2,), 0, 2**31 - 1, tf.int32, self.seed)
        draws = Draws(tf.concat([[self.seed or 0], tf.cast(key, tf.int32)], axis=0))
        of_images, mixing, seeds = vars(self)["_made"]
        seeds.draws = draws
        images = tf.cast(random_crop(images, self.crop_padding, draws), tf.float32)
        for layer in of_images:
            images = layer(images, training=True)
        labels = tf.cast(labels, tf.float32)
        if not mixing:
            return images, labels

        def mixed(layer: keras.layers.Layer) -> tuple[tf.Tensor, tf.Tensor]:
            both = layer({"images": images, "labels": labels}, training=True)
            return both["images"], both["labels"]

        branches = [lambda layer=layer: mixed(layer) for layer in mixing]
        if len(branches) == 1:
            return branches[0]()
        return tf.switch_case(draws.uniform((), 0, len(branches), tf.int32), branches)


class _Seeds(keras.random.SeedGenerator):
    """What Keras's layers draw from in place of a counter, which batches made at once would share.

    Attributes:
        draws: The `Draws` of the batch in whose graph the layers are called.
    """

    def __init__(self) -> None:  # without Keras's, which makes a variable
        self.draws: Any = None

    def next(self, ordered: bool = True) -> Any:
        return self.draws.seed()
