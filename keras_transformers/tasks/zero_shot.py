"""Zero-shot classification: an encoded image is compared with any texts."""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Unpack

import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import Array, StrPath, Tokenizer
from keras_transformers.models import DualEncoder
from keras_transformers.tasks.classes import THRESHOLD
from keras_transformers.tasks.fitting import Answering, Fitted
from keras_transformers.tasks.image_classification import ImageClassifierPredictor
from keras_transformers.tasks.image_requests import ImagePredictor, decoded_pixels
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import Saving, Served, lengths_for, strings
from keras_transformers.vision import Preprocessing

LENGTHS = (16, 32, 64, 128, 256)  # of texts, in ids, as far as the model has positions


class ZeroShotClassifier(Served):
    """A model of images and texts as one function of encoded images and of texts as classes.

    It takes `image` string `(images,)`, encoded as `ImageClassifier` takes them, and `text`, UTF-8
    strings `(texts,)`, and gives a dict of `label` string `(images,)`, the text that fits best,
    `probability` float32 `(images,)`, `probabilities` float32 `(images, texts)`, and `truncated`
    bool `(texts,)`: which texts were too long. If the model judges every pair by itself (SigLIP),
    it also gives `present` bool `(images, texts)`. For XLA texts are padded to a few lengths, and
    both come in a few batch sizes, each compiled when it is first used; the SavedModel that `save`
    writes can be called without XLA, see `Served`. The model's weights are shared, not copied.

    Args:
        model: A built `models.DualEncoder`.
        tokenizer: Its tokenizer; the model sees START, if there is one, the text's ids and END.
        preprocessing: The `vision.Preprocessing` of its images; by default one for the size and
            channels that it was built for, with mean and deviation 0.5.

    Raises:
        ValueError: If the tokenizer has ids that the model does not know.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.export import ZeroShotClassifier
    >>> from keras_transformers.models import DualEncoder, EndPooling, TextEncoder, ViT
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> images = ViT(None, 28, 7, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> texts = TextEncoder(14, 12, num_heads=2, mlp_dim=32, num_layers=1, max_length=9,
    ...                     head=EndPooling(tokenizer.end_id))
    >>> model = DualEncoder(images, texts, projection_dim=8)
    >>> model.build({"images": (None, 28, 28, 3), "ids": (None, None)})
    >>> classifier = ZeroShotClassifier(model, tokenizer)
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> found = classifier(tf.stack([png]), ["a cat", "a mat"])
    >>> {name: tuple(value.shape) for name, value in found.items()}
    {'label': (1,), 'probability': (1,), 'probabilities': (1, 2), 'truncated': (2,)}
    >>> classifier.encode_texts(["a cat", "a mat", "on"]).shape
    (3, 8)
    """

    kind = "zero_shot_classifier"

    def __init__(
        self, model: DualEncoder, tokenizer: Tokenizer, preprocessing: Preprocessing | None = None
    ) -> None:
        image = tf.TensorSpec([None], tf.string, name="image")
        text = tf.TensorSpec([None], tf.string, name="text")
        super().__init__("zero_shot_classifier", model, image, text)
        self.lengths = lengths_for("ZeroShotClassifier", model, tokenizer, None, LENGTHS)
        if preprocessing is None:
            preprocessing = Preprocessing(model.image_size, model.channels)
        self.tokenizer = tokenizer
        self.preprocessing = preprocessing
        self._fill = model.fill_id
        padding = getattr(tokenizer, "pad_id", -1)
        if self._fill is not None and padding >= 0:  # the token of the model's own tokenizer
            self._fill = padding
        width = model.encode_texts(tf.ones((1, 1), tf.int32)).shape[-1]
        self._results = {"embedding": tf.TensorSpec([None, width], tf.float32)}
        rounds = self.compiled_rounds
        encode_texts = functools.partial(self._vectors_of_texts, rounds=rounds)
        encode_images = functools.partial(self._vectors_of_images, rounds=rounds)
        self._texts = tf.function(encode_texts, autograph=False)
        self._images = tf.function(encode_images, autograph=False)
        self._against = tf.function(self._compare_images, autograph=False)

    def answer(self, image: tf.Tensor, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        texts, truncated = self._vectors_of_texts(text, rounds)
        answer = self._compare(self._vectors_of_images(image, rounds), texts, text)
        return {**answer, "truncated": truncated}

    def _vectors_of_texts(self, text: tf.Tensor, rounds: Rounds) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the vectors of texts, and which texts were cut."""
        ids, truncated = self.frame_texts(text)
        encode = rounds.program(self._encode_ids)
        padding = self.model.padding_id
        if self._fill is not None:
            dense = ids.to_tensor(self._fill, shape=(None, self.longest))
            outputs = rounds.run(encode, [dense], self._results)
        else:
            outputs = rounds.run_by_length(
                lambda ids: encode(rounds.padded(ids, self.lengths, padding)), ids, self._results
            )
        return outputs["embedding"], truncated

    def _vectors_of_images(self, image: tf.Tensor, rounds: Rounds) -> tf.Tensor:
        """Returns the vectors of encoded images."""
        pixels = decoded_pixels(self.preprocessing, image)
        return rounds.run(rounds.program(self._encode_pixels), [pixels], self._results)["embedding"]

    def _encode_ids(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": self.model.encode_texts(ids, training=False)}

    def _encode_pixels(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        images = self.preprocessing.normalize(pixels)
        return {"embedding": self.model.encode_images(images, training=False)}

    def _compare_images(
        self, image: tf.Tensor, texts: tf.Tensor, text: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Compares encoded images with the vectors of texts, compiled by XLA."""
        return self._compare(self._images(image), texts, text)

    def _compare(
        self, images: tf.Tensor, texts: tf.Tensor, text: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the answer for images from their vectors, the vectors of texts, and the texts."""
        number = tf.shape(text)[0]
        check = tf.debugging.assert_positive(number, "`text` must have a text for every class")
        with tf.control_dependencies([check]):
            probabilities = self.model.probabilities(self.model.logits(images, texts))
        answer = {
            "label": tf.gather(text, tf.argmax(probabilities, axis=1)),
            "probability": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
        }
        if self.model.sigmoid:
            answer["present"] = probabilities >= THRESHOLD
        return answer

    def against(self, texts: Sequence[str]) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """Encodes texts, and returns a function of encoded images alone.

        Args:
            texts: List of str.

        Returns:
            Function from a string tensor `(images,)` to the answer of a call without `truncated`.
        """
        text = strings(texts)
        vectors, _ = self._texts(text)
        return lambda image: self._against(image, vectors, text)

    def encode_texts(self, texts: Sequence[str]) -> Array:
        """Encodes a list of str to vectors of length 1, `(texts, width)`, NumPy float32."""
        return self._texts(strings(texts))[0].numpy()

    def encode_images(self, images: Sequence[bytes]) -> Array:
        """Encodes a list of encoded images to vectors of length 1, NumPy float32."""
        return self._images(strings(images)).numpy()


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


class ZeroShotClassifierPredictor(ImagePredictor):
    """Classifies images by labels that come with the request.

    Answers are those of `ImageClassifierPredictor`: a dict of `label`, `probability` and
    `probabilities`. If the model judges every label by itself (SigLIP), probabilities do not sum to
    1, and the list `labels` has the labels with a probability of a half or more.

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
        """Returns a classifier of images by these labels.

        Args:
            labels: Names of the classes, one at least.
            template: Text in which each label replaces `{}`, such as the model has been trained
                on: "a photo of a {}".

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
            outputs = run(image)
            probabilities = outputs["probabilities"]
            answer = {
                "probabilities": probabilities,
                "label": tf.gather(tf.constant(names, tf.string), tf.argmax(probabilities, axis=1)),
                "probability": tf.reduce_max(probabilities, axis=1),
            }
            if "present" in outputs:
                answer["present"] = outputs["present"]
            return answer

        return ImageClassifierPredictor(classify, names, self._parts, self.source)

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        labels: Sequence[str] = (),
        template: str = "{}",
    ) -> Any:
        """Classifies one image, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            labels, template: As `against` takes them.

        Returns:
            A dict, or a list of dicts; see the class.

        Raises:
            ValueError: If there are no labels, or an item is no image; the message has its number.
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
        """Yields answers as `Predictor.each` does, with labels as `predict` takes them."""
        return self.against(labels, template).each(items, batch_size, verbose, details)


class ZeroShotClassifierFitting(Answering):
    """A model of images and texts, which classifies images by texts.

    Example:
    >>> from keras_transformers.fitting import ZeroShotClassifierFitting
    >>> ZeroShotClassifierFitting.kind
    'zero_shot_classifier'
    """

    kind = "zero_shot_classifier"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        folder = published.folder
        if not isinstance(model, DualEncoder):
            return None
        tokenizer = pretrained.load_tokenizer(folder)
        return cls(Held(model, tokenizer, pretrained.load_preprocessing(folder)))

    def served(self) -> Any:
        held = self.held
        return ZeroShotClassifier(held.model, held.tokenizer, held.preprocessing)


TASKS = (Task(ZeroShotClassifier, ZeroShotClassifierPredictor, ZeroShotClassifierFitting),)
