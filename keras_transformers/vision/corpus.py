"""Labelled images from arrays, encoded bytes or files; unusable images are left out and counted."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import pathlib
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Values
from keras_transformers.data.array_files import (
    ANIMATED,
    channels_first,
    is_animated_webp,
    is_array,
    pixels_of,
    read_array,
)
from keras_transformers.data.labels import numbered, several_hot
from keras_transformers.data.splits import share_held_out
from keras_transformers.data.streams import orders
from keras_transformers.data.tables import account
from keras_transformers.vision.decoding import NAMES, measured, with_channels
from keras_transformers.vision.preprocessing import Preprocessing


def checked_labels(
    name: str, labels: Values, classes: Sequence[str] | None, several: bool = False
) -> Array:
    """int32 `(n,)`, or uint8 `(n, classes)` where there can be several.

    Raises:
        ValueError: Unless they are integers within the classes, or 0 and 1 for each class.
    """
    labels = np.asarray(labels)
    if several:
        number = "classes" if classes is None else len(classes)
        fit = labels.ndim == 2 and number in ("classes", labels.shape[-1])
        if not fit or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"{name}: `labels` must be 0 and 1 of shape (n, {number}), where an image can have "
                f"several. Received: {labels.dtype} of shape {labels.shape}"
            )
        return labels.astype(np.uint8)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: `labels` must be integers of shape (n,). Received: {labels.dtype} of shape "
            f"{labels.shape}"
        )
    number = np.inf if classes is None else len(classes)
    if len(labels) and (labels.min() < 0 or labels.max() >= number):
        raise ValueError(
            f"{name}: `labels` must lie in [0, {number}), the number of classes. Received: "
            f"{labels.min()} to {labels.max()}"
        )
    return labels.astype(np.int32)


def class_names(name: str, classes: Sequence[str] | None, labels: Any) -> list[str]:
    """A list of str, by default the numbers of all classes; ValueError if one is twice."""
    if classes is None:
        last = labels.shape[1] if labels.ndim == 2 else labels.max(initial=-1) + 1
        return [str(number) for number in range(last)]
    names = [each.decode() if isinstance(each, bytes) else str(each) for each in classes]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise ValueError(
            f"{name}: no two `classes` may have the same name, for answers are names. "
            f"Received more than once: {', '.join(twice)}"
        )
    return names


def of_classes(labels: Array) -> list[Array]:
    """Places of the images of each class, a list of arrays; of several labels the rarest counts."""
    if labels.ndim == 2:
        rarest = labels[:, np.argsort(labels.sum(axis=0), kind="stable")] > 0
        labels = np.where(rarest.any(axis=1), rarest.argmax(axis=1), labels.shape[1])
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


ARRAY_FILES = r"(?i).*\.(npy|tiff?)"


def inspected(sources: Sequence[str | bytes]) -> tuple[list[str | None], Array]:
    """What is wrong with encoded images (bytes) or files (str), and the channels of each.

    All of them are decoded, so that none breaks a run in its fifth hour.

    Returns:
        List of None, or why an image cannot be used, to be counted; and int32 `(n,)`: 1 for a grey
        image, 3 for a coloured one, as many as there are in an array, 0 for what cannot be used.
    """
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(_inspect, sources))
    return [problem for problem, _ in found], np.array([bands for _, bands in found], np.int32)


def _inspect(source: str | bytes) -> tuple[str | None, int]:
    path = source if isinstance(source, str) else None
    try:
        encoded = pathlib.Path(source).read_bytes() if isinstance(source, str) else source
    except OSError:  # a link to nothing, or what may not be read
        return "files that cannot be read", 0
    if not encoded:
        return "empty files", 0
    if path is not None and is_array(path):
        try:
            return None, read_array(encoded).shape[-1]
        except ValueError:
            return "files that are no arrays of pixels", 0
    if is_animated_webp(encoded):
        return ANIMATED, 0
    try:
        return None, int(measured(encoded)[2])
    except (tf.errors.InvalidArgumentError, ValueError):
        return f"files that are no whole {NAMES}", 0


def encoded_image(image: Any) -> bytes:
    """The bytes of an image file that TensorFlow decodes; `fit`, `evaluate` and `predict` use it.

    Args:
        image: The bytes of a file; a Pillow image or an array, see `array_files.pixels_of`.

    Returns:
        As given; of pixels, and of files that TensorFlow does not read, a PNG file without loss.

    Raises:
        ValueError: If it is no image, in words that go on after its name. Bytes that are no array
            are not looked at.
    """
    if isinstance(image, bytes | bytearray):
        if not is_array(bytes(image)):
            return bytes(image)
        image = read_array(bytes(image))
    png: bytes = tf.io.encode_png(pixels_of(image)).numpy()
    return png


def content_key(image: Array | bytes | str) -> bytes:
    """A hash of pixels, of an encoded image or of a file: copies of an image have the same."""
    if isinstance(image, str):
        content = pathlib.Path(image).read_bytes()
    elif isinstance(image, bytes):
        content = image
    else:
        content = str(image.shape).encode() + np.ascontiguousarray(image).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


def pixels_of_file(path: tf.Tensor, preprocessing: Preprocessing) -> tf.Tensor:
    """The pixels of an image's file, or of an array's, which only Python reads."""
    channels = preprocessing.channels

    def of_array() -> tf.Tensor:
        pixels = tf.numpy_function(lambda name: read_array(name.decode()), [path], tf.uint8)
        pixels = tf.ensure_shape(pixels, (None, None, None))
        if channels in (1, 3):
            pixels = with_channels(pixels, channels)
        return preprocessing.resize(tf.ensure_shape(pixels, (None, None, channels)))

    if channels not in (1, 3):
        return of_array()
    return tf.cond(
        tf.strings.regex_full_match(path, ARRAY_FILES),
        of_array,
        lambda: preprocessing.decode(tf.io.read_file(path)),
    )


@dataclasses.dataclass(frozen=True)
class ImageCorpus:
    """Labelled images, and an account of what was read and left out.

    Args:
        name: Where the images come from, for messages.
        classes: Names of the classes, list of str.
        labels: int32 `(n,)`, indices into `classes`; or uint8 `(n, classes)`, 0 and 1, where an
            image can have several or none.
        images: `(n, height, width, c)` uint8; or a list of encoded images (bytes); or a list of
            paths (str).
        read: Number of images (or files) looked at.
        left_out: Dict of reason -> number of images left out.
        bands: Of encoded images and files, `(n,)` integers: the channels of each, 1 for a grey
            image, 3 for a coloured one, as many as there are in an array. None: not looked at.
        noted: Dict of reason -> number of images that were kept.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import ImageCorpus
    >>> images = np.zeros((3, 4, 4)); images[1] = np.nan
    >>> ImageCorpus.from_arrays("toy", images, [0, 1, 1], ["a", "b"]).summary()
    'toy: 2 images of 2 classes kept of 3; left out: 1 with pixels that are not finite'
    """

    name: str
    classes: list[str]
    labels: Array
    images: Any
    read: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    bands: Array | None = None
    noted: dict[str, int] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def with_first(self, known: Sequence[str]) -> Self:
        """Returns the same images, with the classes `known` first and any others after them."""
        classes = [*known, *(name for name in self.classes if name not in known)]
        positions = np.array([classes.index(name) for name in self.classes], np.int32)
        if self.labels.ndim == 1:
            return dataclasses.replace(self, classes=classes, labels=positions[self.labels])
        labels = np.zeros((len(self), len(classes)), self.labels.dtype)
        labels[:, positions] = self.labels
        return dataclasses.replace(self, classes=classes, labels=labels)

    @classmethod
    def from_arrays(
        cls,
        name: str,
        images: Values,
        labels: Values,
        classes: Sequence[str] | None = None,
        several: bool = False,
    ) -> Self:
        """Makes a corpus of pixels and labels, after looking at them.

        Args:
            name: Where the images come from, for messages.
            images: `(n, height, width)` or `(n, height, width, c)`, of any number of channels:
                unsigned bytes, or floats in [0, 1]. Images with NaN or infinite pixels are left out
                and counted.
            labels: Integers `(n,)` or `(n, 1)`; with `several` 0 and 1 `(n, classes)`.
            classes: Names of the classes; by default the numbers up to the largest label.
            several: Whether an image can have several labels, or none.

        Raises:
            ValueError: If shapes, dtypes or ranges do not fit, or no image is usable.
        """
        images, labels = np.asarray(images), checked_labels(name, labels, classes, several)
        images = images[..., None] if images.ndim == 3 else images
        if images.ndim != 4 or 0 in images.shape[1:] or len(images) != len(labels):
            raise ValueError(
                f"{name}: `images` must have shape (n, height, width) or (n, height, width, "
                f"channels), with a label for each. Received: images of shape {images.shape}, "
                f"{len(labels)} labels"
            )
        if reason := channels_first(images.shape):
            raise ValueError(
                f"{name}: `images` must have shape (n, height, width, channels). {reason}"
            )
        read, left_out = len(labels), {}
        if images.dtype != np.uint8:
            if images.dtype.kind != "f":
                raise ValueError(
                    f"{name}: `images` must be unsigned bytes or floats. Received: {images.dtype}; "
                    "divide by the largest value that there can be"
                )
            finite = np.isfinite(images).all(axis=(1, 2, 3))
            if not finite.all():
                left_out = {"with pixels that are not finite": int((~finite).sum())}
            images, labels = images[finite], labels[finite]
            if len(images) and (images.min() < 0 or images.max() > 1):
                raise ValueError(
                    f"{name}: floating `images` must lie in [0, 1]. Received: "
                    f"[{images.min():g}, {images.max():g}]"
                )
            images = np.round(images * 255).astype(np.uint8)
        corpus = cls(name, class_names(name, classes, labels), labels, images, read, left_out)
        return corpus._not_empty()

    @classmethod
    def from_encoded(
        cls,
        name: str,
        encoded: Sequence[bytes],
        labels: Values,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Makes a corpus of encoded images (JPEG, PNG, GIF, BMP or WebP), each decoded once.

        Those that cannot be decoded are left out and counted.

        Args:
            name: Where the images come from, for messages.
            encoded: List of bytes.
            labels: Integers, one an image.
            classes: As for `from_arrays`.

        Raises:
            ValueError: If the labels do not fit, or no image is usable.
        """
        encoded, labels = list(encoded), checked_labels(name, labels, classes)
        if len(encoded) != len(labels):
            raise ValueError(
                f"{name}: there must be a label for each image. Received: {len(encoded)} images, "
                f"{len(labels)} labels"
            )
        names = class_names(name, classes, labels)
        corpus = cls(name, names, labels, encoded, len(labels)).usable()
        # A last class of which no image is usable is no class, unless it was given.
        return dataclasses.replace(corpus, classes=class_names(name, classes, corpus.labels))

    def usable(self) -> Self:
        """Those of the encoded images or files that can be decoded, with their `bands`.

        The others are left out and counted.

        Raises:
            ValueError: If none can.
        """
        problems, bands = inspected(self.images)
        kept = [i for i, problem in enumerate(problems) if problem is None]
        counts = collections.Counter(self.left_out)
        counts.update(problem for problem in problems if problem)
        looked = dataclasses.replace(self, bands=bands, left_out=dict(counts))
        return looked.select(kept)._not_empty()

    def labelled(
        self,
        names: Sequence[str | Sequence[str]],
        classes: Sequence[str] | None = None,
        separator: str | None = None,
        keeps_unknown: bool = False,
    ) -> Self:
        """The images with labels by their names; those whose labels do not fit are left out.

        To be called of usable images: a class of which no image is left is then no class.

        Args:
            names: For each image a str, or a list of str.
            classes, separator, keeps_unknown: As for `label_lists.numbered`.
        """
        pairs = [(str(position), label) for position, label in enumerate(names)]
        result = numbered(pairs, classes, separator, self.left_out, keeps_unknown)
        if separator is None:
            labels = np.array(result.labels, np.int32)
        else:
            labels = several_hot(result.labels, len(result.classes), "uint8")
        return dataclasses.replace(
            self.select([int(position) for position in result.things]),
            labels=labels,
            classes=result.classes,
            left_out=result.left_out,
            noted=result.noted,
        )

    def _not_empty(self) -> Self:
        if not len(self):
            raise ValueError(f"{self.summary()}. There is nothing to learn from.")
        return self

    @property
    def kind(self) -> Literal["pixels", "encoded", "files"]:
        """What `images` are: "pixels", "encoded" or "files"."""
        if isinstance(self.images, np.ndarray):
            return "pixels"
        return "encoded" if self.images and isinstance(self.images[0], bytes) else "files"

    @property
    def several(self) -> bool:
        """Whether an image can have several labels."""
        return self.labels.ndim == 2

    @property
    def channels(self) -> int:
        """Channels of the pixels; of images 1 if all of them are grey, else 3.

        Raises:
            ValueError: If there are arrays of another number of channels than others.
        """
        if self.kind == "pixels":
            return self.images.shape[-1]
        bands = inspected(self.images)[1] if self.bands is None else self.bands
        found = {int(each): i for i, each in reversed(list(enumerate(bands))) if each}
        if set(found) <= {1, 3}:
            return max(found, default=3)
        if len(found) > 1:
            shown = (f"{count} ({str(self.images[i])[:200]})" for count, i in found.items())
            raise ValueError(
                f"{self.name}: all images must have the same number of channels. Received: "
                f"{', '.join(shown)}"
            )
        return max(found)

    def select(self, indices: Values) -> Self:
        """The images at these positions, as a corpus."""
        indices = np.asarray(indices, int)
        images = (
            self.images[indices] if self.kind == "pixels" else [self.images[i] for i in indices]
        )
        bands = None if self.bands is None else self.bands[indices]
        return dataclasses.replace(self, labels=self.labels[indices], images=images, bands=bands)

    def content_keys(self) -> list[bytes]:
        """What each image is known by, so that copies stay together: a hash of its content."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return list(pool.map(content_key, self.images))

    def split(self, share: float, seed: int = 0) -> tuple[Self, Self]:
        """Two corpora: the second gets `share` of each class, but never all or none.

        By the content of the images, see `splits.share_held_out`: copies of one stay together, and
        of a class with a single image it gets none. An image with several labels counts as one of
        the rarest of them.
        """
        strata = np.zeros(len(self), int)
        for stratum, indices in enumerate(of_classes(self.labels)):
            strata[indices] = stratum
        second = share_held_out(self.content_keys(), share, seed, strata.tolist())
        return self.select(np.flatnonzero(~second)), self.select(np.flatnonzero(second))

    def sample(self, number: int, seed: int = 0) -> Self:
        """Up to `number` images drawn at random, as a corpus."""
        return self.select(np.random.default_rng(seed).permutation(len(self))[:number])

    def decoded(self, preprocessing: Preprocessing) -> Self:
        """The corpus with all its images decoded and resized, as pixels in memory.

        Raises:
            ValueError: As `batches`.
        """
        batches = self.batches(256, preprocessing)
        images = np.concatenate([images for images, _ in batches.as_numpy_iterator()])
        return dataclasses.replace(self, images=images)

    def batches(
        self,
        batch_size: int,
        preprocessing: Preprocessing,
        shuffle_seed: int | None = None,
        epoch: int | tf.Tensor | None = None,
    ) -> tf.data.Dataset:
        """`tf.data` of `(images uint8, labels)`, files read as they are asked for.

        Args:
            batch_size: Number of images in a batch.
            preprocessing: A `Preprocessing`.
            shuffle_seed: Seed of an order that differs from epoch to epoch; batches then are whole
                and come without end. None gives every image once, in order.
            epoch: With `shuffle_seed`, the number of the one epoch to give, an integer or a scalar
                tensor (see `streams.epochs`), instead of all of them without end.

        Raises:
            ValueError: If the pixels have another number of channels than the preprocessing
                expects, but for grey ones where that is RGB, or a batch is to hold more images than
                there are.
        """
        indices = orders(len(self), batch_size, shuffle_seed, epoch)
        if shuffle_seed is not None:
            if batch_size > len(self):
                raise ValueError(
                    f"{self.name}: `batch_size` must be at most {len(self)}, the number of images. "
                    f"Received: {batch_size}"
                )
            indices = indices.take(len(self) // batch_size)  # the whole batches
            indices = indices.map(lambda chosen: tf.ensure_shape(chosen, (batch_size,)))
            indices = indices.repeat() if epoch is None else indices
        with tf.init_scope():  # not as constants of the graph in which `streams.epochs` asks for it
            images, labels = tf.constant(self.images), tf.constant(self.labels)
        repeats = self._repeats(preprocessing.channels)
        if self.kind == "pixels" and self.images.shape[1:3] == preprocessing.image_size:
            return indices.map(  # a batch at a time: one by one is slower
                lambda i: (tf.repeat(tf.gather(images, i), repeats, -1), tf.gather(labels, i))
            )
        read = {
            "pixels": lambda pixels: preprocessing.resize(tf.repeat(pixels, repeats, -1)),
            "encoded": preprocessing.decode,
            "files": lambda path: pixels_of_file(path, preprocessing),
        }[self.kind]
        one = indices.unbatch().map(lambda i: (read(images[i]), labels[i]), tf.data.AUTOTUNE)
        return one.batch(batch_size, drop_remainder=shuffle_seed is not None)

    def _repeats(self, expected: int) -> int:
        """How often a channel is repeated for the preprocessing; ValueError if none will do."""
        pictures = expected in (1, 3)
        if self.kind == "encoded" or (self.kind == "files" and pictures and self.bands is None):
            return 1
        own = self.channels
        grey = own == 1 and expected == 3
        converted = self.kind == "files" and pictures and own in (1, 3)
        if own != expected and not grey and not converted:
            raise ValueError(
                f"{self.name}: the images have {own} channels, the preprocessing expects {expected}"
            )
        return 3 if grey else 1

    def summary(self) -> str:
        """One sentence: how many images were kept, and why others were not."""
        text = f"{self.name}: {len(self):,} images of {len(self.classes)} classes kept of "
        text += f"{self.read:,}"
        return text + account(left_out=self.left_out, kept_but_worth_knowing=self.noted)
