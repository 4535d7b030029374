"""Random changes of training images: Keras's own layers in a row, and the padded crop it lacks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_transformers.streams import Draws


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
        for name in ("crop_padding", "rand_augment", "magnitude", "erasing", "mixup", "cutmix"):
            value, most = getattr(self, name), 1 if name in ("magnitude", "erasing") else None
            if value < 0 or (most is not None and value > most):
                limit = "not be negative" if most is None else f"lie in [0, {most}]"
                raise ValueError(f"Augmentation: `{name}` must {limit}. Received: {value}")
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
