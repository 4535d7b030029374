"""Labelled images from arrays, encoded bytes or a folder per class; what is left out is counted."""

import collections
import concurrent.futures
import dataclasses
import pathlib

import numpy as np
import tensorflow as tf

from keras_transformers.streams import orders


@dataclasses.dataclass(frozen=True)
class ImageCorpus:
    """Labelled images, and an account of what was read and left out.

    Args:
        name: Where the images come from, for messages.
        classes: Names of the classes, list of str.
        labels: int32 `(n,)`, places in `classes`.
        images: `(n, height, width, c)` uint8; or a list of encoded images (bytes); or a list of
            paths (str).
        read: Number of images (or files) looked at.
        left_out: Dict of reason -> number of images left out.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.vision import ImageCorpus
    >>> images = np.zeros((3, 4, 4)); images[1] = np.nan
    >>> ImageCorpus.from_arrays("toy", images, [0, 1, 1], ["a", "b"]).summary()
    'toy: 2 images of 2 classes kept of 3; left out: 1 with pixels that are not finite'
    """

    name: str
    classes: list
    labels: np.ndarray
    images: object
    read: int
    left_out: dict = dataclasses.field(default_factory=dict)

    def __len__(self):
        return len(self.labels)

    @classmethod
    def from_arrays(cls, name, images, labels, classes=None):
        """Makes a corpus of pixels and integer labels, after looking at them.

        Args:
            name: Where the images come from, for messages.
            images: `(n, height, width)` or `(n, height, width, c)`: unsigned bytes, or floats in
                [0, 1]. Images with NaN or infinite pixels are left out and counted.
            labels: Integers `(n,)` or `(n, 1)`.
            classes: Names of the classes; by default the numbers up to the largest label.

        Raises:
            ValueError: If shapes, dtypes or ranges do not fit, or no image is usable.
        """
        images, labels = np.asarray(images), _checked_labels(name, labels, classes)
        images = images[..., None] if images.ndim == 3 else images
        if images.ndim != 4 or 0 in images.shape[1:] or len(images) != len(labels):
            raise ValueError(
                f"{name}: `images` must have shape (n, height, width) or (n, height, width, "
                f"channels), with a label for each. Received: images of shape {images.shape}, "
                f"{len(labels)} labels"
            )
        read, left_out = len(labels), {}
        if images.dtype != np.uint8:
            if images.dtype.kind != "f":
                raise ValueError(
                    f"{name}: `images` must be unsigned bytes or floats. Received: {images.dtype}"
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
        corpus = cls(name, _class_names(classes, labels), labels, images, read, left_out)
        return corpus._not_empty()

    @classmethod
    def from_encoded(cls, name, encoded, labels, classes=None):
        """Makes a corpus of encoded images (JPEG, PNG, GIF or BMP), each of which is decoded once.

        Those that cannot be decoded are left out and counted.

        Args:
            name: Where the images come from, for messages.
            encoded: List of bytes.
            labels: Integers, one an image.
            classes: As for `from_arrays`.

        Raises:
            ValueError: If the labels do not fit, or no image is usable.
        """
        encoded, labels = list(encoded), _checked_labels(name, labels, classes)
        if len(encoded) != len(labels):
            raise ValueError(
                f"{name}: there must be a label for each image. Received: {len(encoded)} images, "
                f"{len(labels)} labels"
            )
        corpus = cls(name, _class_names(classes, labels), labels, encoded, len(labels))
        return corpus._without(_problems(encoded))

    def _without(self, problems):
        """Leaves out the images that have a problem (None: none)."""
        kept = [i for i, problem in enumerate(problems) if problem is None]
        counts = collections.Counter(problem for problem in problems if problem)
        return dataclasses.replace(self.select(kept), left_out=dict(counts))._not_empty()

    def _not_empty(self):
        if not len(self):
            raise ValueError(f"{self.summary()}. There is nothing to learn from.")
        return self

    @property
    def kind(self):
        """ "pixels", "encoded" or "files"."""
        if isinstance(self.images, np.ndarray):
            return "pixels"
        return "encoded" if self.images and isinstance(self.images[0], bytes) else "files"

    @property
    def channels(self):
        """Channels of the pixels; of encoded images 1 if the first of them are grey, else 3."""
        if self.kind == "pixels":
            return self.images.shape[-1]
        first = [_encoded(source) for source in self.images[:16]]
        kinds = [tf.io.decode_image(each, expand_animations=False).shape[-1] for each in first]
        return 1 if max(kinds) < 3 else 3

    def select(self, places):
        """The images at these places, as a corpus."""
        places = np.asarray(places, int)
        images = (
            self.images[places] if self.kind == "pixels" else [self.images[i] for i in places]
        )
        return dataclasses.replace(self, labels=self.labels[places], images=images)

    def split(self, share, seed=0):
        """Two corpora: the second gets `share` of each class at random, but never all or none.

        (Of a class with a single image it gets none.)
        """
        rng = np.random.default_rng(seed)
        second = np.zeros(len(self), bool)
        for label in np.unique(self.labels):
            places = np.flatnonzero(self.labels == label)
            number = min(max(round(share * len(places)), 1), len(places) - 1)
            second[rng.permutation(places)[:number]] = True
        return self.select(np.flatnonzero(~second)), self.select(np.flatnonzero(second))

    def sample(self, number, seed=0):
        """Up to `number` images drawn at random, as a corpus."""
        return self.select(np.random.default_rng(seed).permutation(len(self))[:number])

    def decoded(self, preprocessing):
        """The corpus with all its images decoded and resized, as pixels in memory.

        Raises:
            ValueError: As `batches`.
        """
        batches = self.batches(256, preprocessing)
        images = np.concatenate([images for images, _ in batches.as_numpy_iterator()])
        return dataclasses.replace(self, images=images)

    def batches(self, batch_size, preprocessing, shuffle_seed=None, epoch=None):
        """`tf.data` of `(images uint8, labels int32)`, files read as they are asked for.

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
        places = orders(len(self), batch_size, shuffle_seed, epoch)
        if shuffle_seed is not None:
            if batch_size > len(self):
                raise ValueError(
                    f"{self.name}: `batch_size` must be at most {len(self)}, the number of images. "
                    f"Received: {batch_size}"
                )
            places = places.take(len(self) // batch_size)  # the whole batches
            places = places.map(lambda chosen: tf.ensure_shape(chosen, (batch_size,)))
            places = places.repeat() if epoch is None else places
        with tf.init_scope():  # not as constants of the graph in which `streams.epochs` asks for it
            images, labels = tf.constant(self.images), tf.constant(self.labels)
        if self.kind == "pixels":
            size, channels = self.images.shape[1:3], self.images.shape[3]
            grey = channels == 1 and preprocessing.channels == 3
            if channels != preprocessing.channels and not grey:
                raise ValueError(
                    f"{self.name}: the images have {channels} channels, the preprocessing expects "
                    f"{preprocessing.channels}"
                )
            repeats = 3 if grey else 1
            if size == preprocessing.image_size:  # a batch at a time: one by one is slower
                return places.map(
                    lambda i: (tf.repeat(tf.gather(images, i), repeats, -1), tf.gather(labels, i))
                )
        read = {
            "pixels": lambda pixels: preprocessing.resize(tf.repeat(pixels, repeats, -1)),
            "encoded": preprocessing.decode,
            "files": lambda path: preprocessing.decode(tf.io.read_file(path)),
        }[self.kind]
        one = places.unbatch().map(lambda i: (read(images[i]), labels[i]), tf.data.AUTOTUNE)
        return one.batch(batch_size, drop_remainder=shuffle_seed is not None)

    def summary(self):
        """One sentence: how many images were kept, and why others were not."""
        text = f"{self.name}: {len(self):,} images of {len(self.classes)} classes kept of "
        text += f"{self.read:,}"
        if self.left_out:
            text += "; left out: " + ", ".join(
                f"{number:,} {reason}" for reason, number in self.left_out.items()
            )
        return text


def read_folder(path, classes=None):
    """Reads a folder that holds one folder of images for each class.

    Every file is decoded once, so that none breaks a run in its fifth hour; those that are empty or
    no image are left out and counted. Hidden files are passed over. The pictures themselves are
    read again when they are needed, and may be more than fit into memory.

    Args:
        path: The folder; class folders may have folders of their own.
        classes: Names of the classes, which become the labels in this order; by default the names
            of all folders in alphabetical order.

    Returns:
        An `ImageCorpus`.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it holds no class folders, one of them is empty or has no usable image, or
            its folders are not those of `classes`.

    Example:
    >>> import pathlib, tempfile, tensorflow as tf
    >>> from keras_transformers.vision import read_folder
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("cat", "dog"):
    ...     (folder / name).mkdir()
    ...     png = tf.io.encode_png(tf.zeros((8, 8, 3), tf.uint8)).numpy()
    ...     _ = (folder / name / "1.png").write_bytes(png)
    ...     _ = (folder / name / "2.png").write_bytes(b"")
    >>> corpus = read_folder(folder)
    >>> corpus.classes, len(corpus), corpus.left_out
    (['cat', 'dog'], 2, {'empty files': 2})
    """
    path = pathlib.Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"There is no folder {path}")
    found = sorted(f.name for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not found:
        raise ValueError(f"{path} holds no folders; it must hold one folder of images a class")
    classes = found if classes is None else list(classes)
    if set(found) != set(classes):
        raise ValueError(
            f"{path} must hold a folder for each class, {', '.join(classes)}, and no other. "
            f"Received: {', '.join(found)}"
        )
    files, labels = [], []
    for label, name in enumerate(classes):
        of_class = sorted(
            str(f) for f in (path / name).rglob("*") if f.is_file() and f.name[0] != "."
        )
        if not of_class:
            raise ValueError(f"{path}: the class folder '{name}' is empty")
        files += of_class
        labels += [label] * len(of_class)
    corpus = ImageCorpus(str(path), classes, np.array(labels, np.int32), files, len(files))
    corpus = corpus._without(_problems(files))
    for label, name in enumerate(classes):
        if label not in corpus.labels:
            raise ValueError(f"{path}: the class folder '{name}' has no usable image")
    return corpus


def _problems(sources):
    """For each encoded image (bytes) or file (str) None, or why it cannot be used."""

    def look(source):
        encoded = _encoded(source)
        if not encoded:
            return "empty files"
        try:
            tf.io.decode_image(encoded, 3, expand_animations=False)
        except (tf.errors.InvalidArgumentError, ValueError):
            return "files that are no whole JPEG, PNG, GIF or BMP"
        return None

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(look, sources))


def _encoded(source):
    return pathlib.Path(source).read_bytes() if isinstance(source, str) else source


def _checked_labels(name, labels, classes):
    labels = np.asarray(labels)
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


def _class_names(classes, labels):
    if classes is not None:
        # NumPy keeps names as bytes where its user did not ask for str.
        return [n.decode("utf-8", "replace") if isinstance(n, bytes) else str(n) for n in classes]
    return [str(number) for number in range(labels.max(initial=-1) + 1)]
