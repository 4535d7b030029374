"""Exporters of images as functions: an object of `export` and its `save` in one call."""

import pathlib
from collections.abc import Sequence
from typing import Literal, Unpack

import keras

from keras_transformers.core.types import ClassProblem, StrPath, Tokenizer
from keras_transformers.export.convertible import Conversion
from keras_transformers.export.detector import Detector
from keras_transformers.export.image_encoder import ImageEncoder
from keras_transformers.export.images import ImageClassifier
from keras_transformers.export.segmenter import Segmenter
from keras_transformers.export.served import Saving
from keras_transformers.export.zero_shot import ZeroShotClassifier
from keras_transformers.models import DualEncoder, SegFormer
from keras_transformers.models.set_detector import SetDetector
from keras_transformers.vision import Preprocessing


def image_classifier(
    model: keras.Model,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing | None = None,
    problem_type: ClassProblem | None = None,
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports a classifier of encoded images. See `ImageClassifier` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models
    >>> model = models.ViT.from_variant("Ti/14", num_classes=2, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> path = export.image_classifier(model, tempfile.mkdtemp(), ["cat", "dog"])
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(image=tf.io.encode_png(tf.zeros((9, 9, 3), tf.uint8))[None]))
    ['label', 'probabilities', 'probability']
    """
    return ImageClassifier(model, labels, preprocessing, problem_type).save(path, **saving)


def image_encoder(
    model: keras.Model, path: StrPath, preprocessing: Preprocessing, **saving: Unpack[Conversion]
) -> pathlib.Path:
    """Exports an encoder from encoded images to vectors. See `ImageEncoder` and its `save`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import export, models, vision
    >>> model = models.ViT.from_variant("Ti/14", None, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> export.image_encoder(model, tempfile.mkdtemp(), vision.Preprocessing(28)).is_dir()
    True
    """
    return ImageEncoder(model, preprocessing).save(path, **saving)


def detector(
    model: SetDetector,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    threshold: float = 0.5,
    boxes_in: Literal["image", "frame"] = "image",
    **saving: Unpack[Conversion],
) -> pathlib.Path:
    """Exports a detector of encoded images. See `Detector` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, vision
    >>> model = models.DETR.from_variant("mini", num_classes=1, num_queries=4)
    >>> model.build((None, 64, 64, 3))
    >>> path = export.detector(model, tempfile.mkdtemp(), ["cat"], vision.Preprocessing(64))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(image=tf.io.encode_png(tf.zeros((9, 12, 3), tf.uint8))[None]))
    ['boxes', 'label', 'number', 'score']
    """
    return Detector(model, labels, preprocessing, threshold, boxes_in).save(path, **saving)


def segmenter(
    model: SegFormer,
    path: StrPath,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a segmenter of encoded images. See `Segmenter` and its `save`.

    Example:
    >>> import tempfile
    >>> from keras_transformers import export, models, vision
    >>> encoder = models.PVT.from_variant("b0", None, num_layers=(1, 1, 1, 1))
    >>> model = models.SegFormer(2, encoder, 32)
    >>> model.build((None, 64, 64, 3))
    >>> preprocessing = vision.Preprocessing(64, crop=False)
    >>> path = export.segmenter(model, tempfile.mkdtemp(), ["sky", "road"], preprocessing)
    >>> (path / "saved_model.pb").exists()
    True
    """
    return Segmenter(model, labels, preprocessing).save(path, **saving)


def zero_shot_classifier(
    model: DualEncoder,
    tokenizer: Tokenizer,
    path: StrPath,
    preprocessing: Preprocessing | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a classifier of images by any texts. See `ZeroShotClassifier` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> images = models.ViT.from_variant("mini/14", None, image_size=28, num_layers=1)
    >>> head = models.EndPooling(tokenizer.end_id)
    >>> texts = models.TextEncoder.from_variant("tiny", 14, max_length=9, head=head)
    >>> model = models.DualEncoder(images, texts, projection_dim=8)
    >>> model.build({"images": (None, 28, 28, 3), "ids": (None, None)})
    >>> path = export.zero_shot_classifier(model, tokenizer, tempfile.mkdtemp())
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> sorted(served(image=tf.stack([png]), text=tf.constant(["a cat", "a mat"])))
    ['label', 'probabilities', 'probability', 'truncated']
    """
    return ZeroShotClassifier(model, tokenizer, preprocessing).save(path, **saving)
