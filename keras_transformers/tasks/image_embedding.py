"""Image embedding: a vector for an encoded image."""

import pathlib
from typing import Any, Unpack

import keras
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath
from keras_transformers.data.table_files import Chosen
from keras_transformers.models import MAE, PVT, Swin, ViT
from keras_transformers.tasks.conversion import Program, image_settings, pixel_program
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.image_classification import ImageClassifierFitting
from keras_transformers.tasks.image_requests import ImagePredictor, decoded_pixels
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import Conversion, Convertible
from keras_transformers.vision import Preprocessing


class ImageEncoder(Convertible):
    """A model of images without a head and its preprocessing as one function to vectors.

    It takes `image` string `(batch,)` as `ImageClassifier` does and gives a dict of `embedding`
    float32 `(batch, hidden_dim)`, the input of a head. The model's weights are shared, not copied.

    Args:
        model: A model of `models` with `num_classes=None`, `ViT` or `Swin`, or any Keras model from
            normalised images to vectors.
        preprocessing: The `vision.Preprocessing` that the model was trained with.

    Raises:
        ValueError: If the model gives no vectors, or images have other than 1 or 3 channels.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.export import ImageEncoder
    >>> from keras_transformers.models import ViT
    >>> from keras_transformers.vision import Preprocessing
    >>> model = ViT.from_variant("Ti/14", num_classes=None, image_size=28, num_layers=1)
    >>> model.build((None, 28, 28, 3))
    >>> png = tf.io.encode_png(tf.zeros((40, 30, 3), tf.uint8))
    >>> tuple(ImageEncoder(model, Preprocessing(28))(png[None])["embedding"].shape)
    (1, 192)
    """

    kind = "image_encoder"

    def __init__(self, model: keras.Model, preprocessing: Preprocessing) -> None:
        super().__init__("image_encoder", model, tf.TensorSpec([None], tf.string, name="image"))
        if preprocessing.channels not in (1, 3):
            raise ValueError(
                "ImageEncoder: `preprocessing` must have 1 or 3 channels, as image files have. "
                f"Received: {preprocessing.channels}"
            )
        inputs = keras.Input((*preprocessing.image_size, preprocessing.channels))
        shape = model(inputs).shape
        if len(shape) != 2:
            raise ValueError(
                "ImageEncoder: `model` must give a vector for each image. Received: output of "
                f"shape {tuple(shape)}"
            )
        self.preprocessing = preprocessing
        self._width = shape[-1]

    def _program(self) -> tuple[Program, dict[str, Any], None]:
        program = image_encoder_program(self.model, self.preprocessing)
        return program, image_settings(self.preprocessing), None

    def answer(self, image: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        pixels = decoded_pixels(self.preprocessing, image)
        results = {"embedding": tf.TensorSpec([None, self._width], tf.float32)}
        return rounds.run(rounds.program(self._encode), [pixels], results)

    def _encode(self, pixels: tf.Tensor) -> dict[str, Any]:
        x = self.model(self.preprocessing.normalize(pixels), training=False)
        return {"embedding": tf.cast(x, tf.float32)}


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


def image_encoder_program(model: Any, preprocessing: Preprocessing) -> Program:
    """Returns the program from pixels, as `Preprocessing.decode` gives them, to vectors."""

    def answer(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": tf.cast(x, tf.float32)}

    return pixel_program("image_encoder", model, preprocessing, answer, "embedding")


class ImageEncoderPredictor(ImagePredictor):
    """Gives a vector for an image: a list of floats, or with `details` a dict with `embedding`.

    Example:
    >>> import numpy as np, tensorflow as tf
    >>> from keras_transformers.predictors import ImageEncoderPredictor
    >>> encode = lambda image: {"embedding": tf.ones((len(image), 2))}
    >>> ImageEncoderPredictor(encode).predict(np.zeros((28, 28), "uint8"))
    [1.0, 1.0]
    """

    kind = "image_encoder"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        vector = row["embedding"].tolist()
        return {"embedding": vector} if details else vector


class ImageEncoderFitting(ImageClassifierFitting):
    """A model of images without a head, which answers with vectors and learns classes.

    Example:
    >>> from keras_transformers.fitting import ImageEncoderFitting
    >>> ImageEncoderFitting.kind
    'image_encoder'
    """

    kind = "image_encoder"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        if isinstance(model, MAE):
            model = model.encoder  # the part that is used after pre-training
        if not isinstance(model, ViT | Swin | PVT) or model.get_config().get("num_classes"):
            return None
        return cls(Held(model, None, pretrained.load_preprocessing(published.folder)))

    def served(self) -> Any:
        return ImageEncoder(self.held.model, self.held.preprocessing, **self.held.options)

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        raise ValueError(
            "evaluate: an encoder of images has no classes to be right or wrong about; `fit` gives "
            "it some."
        )


TASKS = (Task(ImageEncoder, ImageEncoderPredictor, ImageEncoderFitting),)
