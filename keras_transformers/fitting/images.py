"""Classifiers of images learn classes or several labels."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers import export
from keras_transformers.core.types import ClassProblem
from keras_transformers.data.columns import Chosen
from keras_transformers.data.splits import held_out
from keras_transformers.fitting.base import (
    Answering,
    Asked,
    Fitted,
    class_scores,
    in_two,
    learned,
    parts_of,
    with_adapter,
)
from keras_transformers.fitting.held import Held
from keras_transformers.fitting.targets import weights_of_classes
from keras_transformers.models.base import SEVERAL, SINGLE
from keras_transformers.training import classification_accuracy, classification_loss
from keras_transformers.vision import (
    Augmentation,
    ImageCorpus,
    evaluation_batches,
    read_images,
    training_batches,
)

SEPARATOR = ","
IN_MEMORY = 2**31  # bytes of pixels; what has more is read from its files in every epoch
CROP_SHARE = 16  # of the side: padding around the random crop


class ImageClassifierFitting(Fitted):
    """A classifier of images.

    Example:
    >>> from keras_transformers.fitting import ImageClassifierFitting
    >>> ImageClassifierFitting.kind
    'image_classifier'
    """

    kind = "image_classifier"
    choices = ("problem_type", "class_weights", "label_separator", "augmentation")

    def served(self) -> Any:
        of = self.held
        return export.ImageClassifier(of.model, of.labels or (), of.preprocessing, **of.options)

    def fit(
        self,
        data: Any,
        valid: Any,
        asked: Asked,
        problem_type: ClassProblem = "single_label_classification",
        class_weights: str | Mapping[str, float] | None = None,
        label_separator: str = SEPARATOR,
        augmentation: Augmentation | None = None,
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on images and their labels.

        Args:
            data, valid: What `vision.read_images` reads; `valid` None holds some out. Of a folder
                with parts such as `train` and `test` see `base.parts_of`.
            asked: See there.
            problem_type: "multi_label_classification" where an image can have several labels.
            class_weights: "balanced", or a dict from names to what an image of the class counts.
            label_separator: What stands between these in one str.
            augmentation: How images are changed at random; by default they are mirrored and moved a
                little.

        Returns:
            The classifier, and the history.
        """
        data, valid = parts_of(data, valid, asked.verbose)
        between = label_separator if problem_type == SEVERAL else None
        train = read_images(data, None, between, asked.columns)
        if self.held.labels and set(train.classes) <= set(self.held.labels):
            train = read_images(data, self.held.labels, between, asked.columns)
        watched = None
        if valid is not None:
            watched = read_images(valid, train.classes, between, asked.columns)
        train, watched = in_two(asked, train, watched, split)
        if problem_type != SEVERAL and len(train.classes) < 2:
            raise ValueError(
                f"{train.summary()}. There is nothing to tell apart: all have one class."
            )
        weights = None
        if class_weights is not None:
            weights = weights_of_classes(class_weights, train.classes, train.labels, problem_type)
        held = self._with_head(train, problem_type)
        held = dataclasses.replace(held, label_separator=label_separator)
        of, numbers = held.preprocessing, asked.numbers(len(train), "image")
        if (len(train) + len(watched)) * np.prod(of.image_size) * of.channels < IN_MEMORY:
            train, watched = train.decoded(of), watched.decoded(of)
        size = min(numbers.batch_size, len(train))
        change = augmentation or Augmentation(
            crop_padding=of.image_size[0] // CROP_SHARE, flip=True, seed=asked.seed
        )

        def batches(epoch: Any) -> tf.data.Dataset:
            found = training_batches(train, of, size, change, asked.seed, epoch)
            if weights is None:
                return found
            # Of mixed images the labels are shares, by which their classes' weights are mixed.
            return found.map(lambda x, y: (x, y, tf.linalg.matvec(y, weights)))

        history = learned(
            held.model,
            batches,
            evaluation_batches(watched, of, size),
            numbers,
            asked,
            loss=classification_loss(problem_type),
            metrics=[classification_accuracy(problem_type)],
        )
        return ImageClassifierFitting(held), history

    def _with_head(self, train: ImageCorpus, problem_type: ClassProblem) -> Held:
        of, model = self.held, self.held.model
        problem = model.problem_type or SINGLE
        if list(of.labels or ()) == train.classes and problem == problem_type:
            return with_adapter(of, False)
        model = model.transferred(num_classes=len(train.classes), problem_type=problem_type)
        return with_adapter(
            dataclasses.replace(of, model=model, labels=train.classes, options={}), True
        )

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Scores classes, see `class_scores`."""
        has_several = self.held.model.problem_type == SEVERAL
        separator = (self.held.label_separator or SEPARATOR) if has_several else None
        corpus = read_images(data, self.held.labels or (), separator, columns, True)
        scores = class_scores(self.served().probabilities(corpus), corpus.labels, corpus.classes)
        return {**scores, "left_out": sum(corpus.left_out.values())}


class ImageEncoderFitting(ImageClassifierFitting):
    """A model of images without a head, which answers with vectors and learns classes.

    Example:
    >>> from keras_transformers.fitting import ImageEncoderFitting
    >>> ImageEncoderFitting.kind
    'image_encoder'
    """

    kind = "image_encoder"

    def served(self) -> Any:
        return export.ImageEncoder(self.held.model, self.held.preprocessing, **self.held.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        raise ValueError(
            "evaluate: an encoder of images has no classes to be right or wrong about; `fit` gives "
            "it some."
        )


class DetectorFitting(Answering):
    """A detector: `options` are `threshold` and `boxes_in` of `export.Detector`.

    Example:
    >>> from keras_transformers.fitting import DetectorFitting
    >>> DetectorFitting.kind
    'detector'
    """

    kind = "detector"

    def served(self) -> Any:
        of = self.held
        return export.Detector(of.model, of.labels or (), of.preprocessing, **of.options)


class SegmenterFitting(Answering):
    """A model that gives a class to every pixel.

    Example:
    >>> from keras_transformers.fitting import SegmenterFitting
    >>> SegmenterFitting.kind
    'segmenter'
    """

    kind = "segmenter"

    def served(self) -> Any:
        return export.Segmenter(self.held.model, self.held.labels or (), self.held.preprocessing)


class ZeroShotClassifierFitting(Answering):
    """A model of images and texts, which classifies images by texts.

    Example:
    >>> from keras_transformers.fitting import ZeroShotClassifierFitting
    >>> ZeroShotClassifierFitting.kind
    'zero_shot_classifier'
    """

    kind = "zero_shot_classifier"

    def served(self) -> Any:
        of = self.held
        return export.ZeroShotClassifier(of.model, of.tokenizer, of.preprocessing)


def split(corpus: ImageCorpus, seed: int) -> tuple[ImageCorpus, ImageCorpus]:
    """What is learned from, and what `splits.held_out` chooses: of every class the same share."""
    strata = None if corpus.several else corpus.labels.tolist()
    chosen = held_out(corpus.content_keys(), seed, strata)
    return corpus.select(np.flatnonzero(~chosen)), corpus.select(np.flatnonzero(chosen))
