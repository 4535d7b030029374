"""A predictor of images whose classes are any texts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_transformers.predictors.images import ImageClassifierPredictor, ImagePredictor


class ZeroShotClassifierPredictor(ImagePredictor):
    """Classifies images by labels that are given with them.

    Answers are those of `ImageClassifierPredictor`: a dict of `label`, `probability` and
    `probabilities`. By a model that judges every label by itself (SigLIP), probabilities do not sum
    to 1, and the list `labels` has those of a half or more.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ZeroShotClassifierPredictor
    >>> def compare(image, text):
    ...     fits = tf.cast(tf.strings.regex_full_match(text, ".*cat"), tf.float32)
    ...     return {"probabilities": fits[None] / tf.reduce_sum(fits)}
    >>> classifier = ZeroShotClassifierPredictor(compare)
    >>> labels = ["dog", "cat"]
    >>> classifier.predict(np.zeros((28, 28), "uint8"), labels=labels)
    {'label': 'cat', 'probability': 1.0, 'probabilities': {'dog': 0.0, 'cat': 1.0}}
    """

    kind = "zero_shot_classifier"
    also_takes = ("text",)

    def against(self, labels: Sequence[str], template: str = "{}") -> ImageClassifierPredictor:
        """A classifier of images by these labels.

        Args:
            labels: Names of the classes, one at least.
            template: Text that each label is put into, in the place of `{}`, as the model knows
                such texts from its training: "a photo of a {}".

        Raises:
            ValueError: If there are no labels, or the template has no `{}`.
        """
        names = list(labels) if not isinstance(labels, str | bytes) else []
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(
                "against: `labels` must be a list of the names of the classes. "
                f"Received: {labels!r:.100}"
            )
        if "{}" not in template:
            raise ValueError(f"against: `template` must have a {{}}. Received: {template!r:.100}")
        texts = [template.replace("{}", name) for name in names]
        if hasattr(self._run, "against"):  # in Python texts are encoded once
            run = self._run.against(texts)
        else:
            text = tf.constant(texts, tf.string)
            run = lambda image: self._run(image, text)  # noqa: E731

        def classify(image: tf.Tensor) -> dict[str, tf.Tensor]:
            found = run(image)
            best = tf.argmax(found["probabilities"], axis=1)
            kept = {name: found[name] for name in ("probabilities", "present") if name in found}
            return {
                **kept,
                "label": tf.gather(tf.constant(names, tf.string), best),
                "probability": tf.reduce_max(found["probabilities"], axis=1),
            }

        return ImageClassifierPredictor(classify, names, self._parts, self._source)

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        labels: Sequence[str] = (),
        template: str = "{}",
    ) -> Any:
        """Answers for one image, or for many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            labels, template: As `against` takes them.

        Returns:
            A dict, or a list of dicts; see the class.

        Raises:
            ValueError: If there are no labels, or a thing is no image; the message has its number.
        """
        return self.against(labels, template).predict(raw, batch_size, verbose, details)

    def each(
        self,
        items: Iterable[Any],
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        labels: Sequence[str] = (),
        template: str = "{}",
    ) -> Iterator[Any]:
        """As `Predictor.each`, with labels as `predict` takes them."""
        return self.against(labels, template).each(items, batch_size, verbose, details)
