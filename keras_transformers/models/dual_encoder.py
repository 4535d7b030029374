"""Two encoders that put images and texts into one space: CLIP (Radford et al. 2021) and SigLIP."""

import dataclasses
import math
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.core.types import LayerOptions, Part, Shape, Tensor
from keras_transformers.layers import TokenEmbedding
from keras_transformers.layers.checks import refuse, whole_number
from keras_transformers.layers.parts import part, serialized
from keras_transformers.models.base import BaseModel, Configuration
from keras_transformers.models.image_model import ImageModel
from keras_transformers.models.text_encoder import TextEncoder

NEEDED = {"images", "ids"}
# What training begins with: the papers' temperatures, 0.07 and 0.1, and SigLIP's bias.
SOFTMAX_SCALE, SIGMOID_SCALE, SIGMOID_BIAS = math.log(1 / 0.07), math.log(10), -10.0


@dataclasses.dataclass(frozen=True)
class DualEncoderConfiguration(Configuration):
    """The arguments of a `DualEncoder` but for the encoders, which `get_config` adds."""

    projection_dim: int | None
    sigmoid: bool
    fill_id: int | None


@keras.saving.register_keras_serializable("keras_transformers")
class DualEncoder(BaseModel):
    """An encoder of images and one of texts, whose vectors are near where the two belong together.

    `logits = exp(t) u v^T`, with the vectors of images `u` and of texts `v`, each of length 1
    (Radford et al. 2021, "CLIP", https://arxiv.org/abs/2103.00020, figure 3); by sigmoid
    `exp(t) u v^T + b` (Zhai et al. 2023, "SigLIP", https://arxiv.org/abs/2303.15343, algorithm 1).
    Trained on pairs, it classifies images by any texts that are given as classes:
    `probabilities(model({"images": images, "ids": ids}))`; from raw images and texts,
    `export.ZeroShotClassifier` does so. The loss is the model's own: `compile(optimizer)` and
    `fit({"images": images, "ids": ids})`, where row i of both is a pair.

    Args:
        image_encoder: A `ViT`, or another model of images, without classes; the model makes its own
            copy.
        text_encoder: A `TextEncoder` whose head gives one vector, such as `EndPooling`; the model
            makes its own copy.
        projection_dim: Width of the vectors, to which each encoder's are projected, without biases;
            None where they are not projected, and equally wide.
        sigmoid: Whether every pair is judged by itself, with a bias, instead of each against all
            others of the batch by softmax.
        fill_id: The token that fills every text up to the last position of the text encoder, which
            sees it, as SigLIP's does; None where padding is left out.

    Call arguments:
        inputs: Dict of `images` `(images, height, width, channels)`, floating, and `ids`, integers
            `(texts, length)`, with the `padding_id` of the text encoder behind shorter texts.
        training: Whether dropout acts.

    Returns:
        Logits `(images, texts)`.

    Raises:
        ValueError: If an encoder gives no vector of an image or a text, or both give vectors of
            different widths and there is no projection.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DualEncoder, EndPooling, TextEncoder, ViT
    >>> images = ViT(None, 28, 7, hidden_dim=16, num_heads=2, mlp_dim=32, num_layers=1)
    >>> texts = TextEncoder(31, 12, num_heads=2, mlp_dim=32, num_layers=1, head=EndPooling(3))
    >>> model = DualEncoder(images, texts, projection_dim=8)
    >>> ids = np.array([[2, 5, 3, 0], [2, 7, 9, 3]])
    >>> tuple(model({"images": np.zeros((5, 28, 28, 1), "float32"), "ids": ids}).shape)
    (5, 2)
    >>> tuple(model.encode_texts(ids).shape)
    (2, 8)
    """

    configuration: DualEncoderConfiguration

    def __init__(
        self,
        image_encoder: Part,
        text_encoder: Part,
        projection_dim: int | None = None,
        sigmoid: bool = False,
        fill_id: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.configuration = DualEncoderConfiguration(projection_dim, sigmoid, fill_id)
        self.image_encoder = part(self, "image_encoder", image_encoder, ImageModel)
        self.text_encoder = part(self, "text_encoder", text_encoder, TextEncoder)
        self.projection_dim = whole_number(self, "projection_dim", projection_dim, optional=True)
        self.sigmoid = sigmoid
        self.fill_id = whole_number(self, "fill_id", fill_id, least=0, optional=True)
        classes = self.image_encoder.get_config()["num_classes"]
        if classes is not None:
            refuse(self, "image_encoder", "without classes", f"num_classes={classes}")
        vectors = self.text_encoder.compute_output_shape((None, None))
        if len(vectors) != 2:
            expected = "with a head that gives one vector of a text, such as `EndPooling(end_id)`"
            refuse(self, "text_encoder", expected, type(self.text_encoder.head).__name__)
        if fill_id is not None and self.text_encoder.most_positions is None:
            refuse(self, "fill_id", "None for a text encoder without end", fill_id)
        self.image_projection = self.text_projection = None
        if projection_dim is not None:
            self.image_projection = self._projection("image_projection")
            self.text_projection = self._projection("text_projection")

    def _projection(self, name: str) -> keras.layers.Dense:
        return keras.layers.Dense(
            self.projection_dim, use_bias=False, name=name, dtype=self.dtype_policy
        )

    @property
    def padding_id(self) -> int:
        """The id that stands for padding."""
        return self.text_encoder.padding_id

    @property
    def token_embedding(self) -> TokenEmbedding:
        """The table of tokens."""
        return self.text_encoder.token_embedding

    @property
    def most_positions(self) -> int | None:
        """The most positions of a text; None without a limit."""
        return self.text_encoder.most_positions

    def build(self, inputs_shape: Any) -> None:
        if not isinstance(inputs_shape, dict) or not inputs_shape.keys() >= NEEDED:
            raise ValueError(
                f"DualEncoder '{self.name}': `inputs` must be a dict with the keys 'images' and "
                f"'ids'. Received: {inputs_shape!s:.200}"
            )
        self.image_encoder.build(inputs_shape["images"])
        *sides, self.channels = inputs_shape["images"][1:]
        own = self.image_encoder.get_config()["image_size"]
        self.image_size = tuple(own if None in sides else sides)
        self.text_encoder.build(inputs_shape["ids"])
        width = self.image_encoder.compute_output_shape(inputs_shape["images"])[-1]
        of_text = self.text_encoder.compute_output_shape((None, None))[-1]
        if self.image_projection is not None and self.text_projection is not None:
            self.image_projection.build((None, width))
            self.text_projection.build((None, of_text))
        elif width != of_text:
            expected = "given, for images and texts have vectors of different widths"
            refuse(self, "projection_dim", expected, f"None, with {width} and {of_text}")
        scale = SIGMOID_SCALE if self.sigmoid else SOFTMAX_SCALE
        self.logit_scale = self._scalar("logit_scale", scale)
        self.logit_bias = self._scalar("logit_bias", SIGMOID_BIAS) if self.sigmoid else None

    def _scalar(self, name: str, value: float) -> keras.Variable:
        start = keras.initializers.Constant(value)
        return self.add_weight(name=name, shape=(), initializer=start, dtype="float32")

    def call(self, inputs: dict[str, Tensor], training: bool | None = None) -> Tensor:
        images = self.encode_images(inputs["images"], training=training)
        return self.logits(images, self.encode_texts(inputs["ids"], training=training))

    def encode_images(self, images: Tensor, training: bool | None = None) -> Tensor:
        """Vectors of length 1, `(images, width)`, float32 at least.

        Args:
            images: `(images, height, width, channels)`, floating; of a `ViT`, what fills no whole
                patch at the right and at the bottom is left out.
            training: Whether dropout acts.
        """
        side = getattr(self.image_encoder, "patch_size", None)
        if side is not None:  # as a convolution that goes from patch to patch does
            height, width = (extent // side * side for extent in ops.shape(images)[1:3])
            images = images[:, :height, :width]
        x = self.image_encoder(images, training=training)
        return _normalized(x if self.image_projection is None else self.image_projection(x))

    def encode_texts(self, ids: Tensor, training: bool | None = None) -> Tensor:
        """Vectors of length 1, `(texts, width)`, float32 at least.

        Args:
            ids: Integers `(texts, length)`, with `padding_id` behind shorter texts.
            training: Whether dropout acts.
        """
        ids = ids if self.fill_id is None else self._filled(ids)
        x = self.text_encoder(ids, training=training)
        return _normalized(x if self.text_projection is None else self.text_projection(x))

    def _filled(self, ids: Tensor) -> Tensor:
        """Texts of the full length, `fill_id` where nothing stands."""
        ids = ops.cast(ops.convert_to_tensor(ids), "int32")
        ids = ops.where(ids == self.padding_id, self.fill_id, ids)
        length = ops.shape(ids)[1]
        missing = ops.maximum(self.text_encoder.most_positions - length, 0)
        return ops.pad(ids, ((0, 0), (0, missing)), constant_values=self.fill_id)

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores every pair of an image and a text by their vectors.

        Args:
            images: What `encode_images` gives, `(images, width)`.
            texts: What `encode_texts` gives, `(texts, width)`.

        Returns:
            Logits `(images, texts)`, as those of a call.
        """
        logits = ops.matmul(images, ops.transpose(texts)) * ops.exp(self.logit_scale)
        return logits if self.logit_bias is None else logits + self.logit_bias

    def probabilities(self, logits: Tensor) -> Tensor:
        """Of each image, which of the texts it fits: they sum to 1, but by sigmoid.

        Args:
            logits: `(images, texts)`.

        Returns:
            `(images, texts)`.
        """
        return ops.sigmoid(logits) if self.sigmoid else ops.softmax(logits, axis=-1)

    def compute_output_shape(self, inputs_shape: Any) -> Shape:
        return (inputs_shape["images"][0], inputs_shape["ids"][0])

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss of telling which images and texts of a batch belong together.

        By softmax the mean of the cross entropies of images among texts and of texts among images;
        by sigmoid the sum over texts of the binary ones, a mean over images.
        """
        same = ops.eye(ops.shape(y_pred)[0], dtype=y_pred.dtype)
        if self.sigmoid:
            return -ops.mean(ops.sum(ops.log_sigmoid((2 * same - 1) * y_pred), axis=-1))
        both = ops.log_softmax(y_pred, axis=0) + ops.log_softmax(y_pred, axis=1)
        return -ops.mean(ops.sum(same * both, axis=-1)) / 2

    def get_config(self) -> dict[str, Any]:
        encoders = {"image_encoder": self.image_encoder, "text_encoder": self.text_encoder}
        return {**super().get_config(), **{k: serialized(v) for k, v in encoders.items()}}


def _normalized(x: Tensor) -> Tensor:
    """Vectors of length 1, float32 at least."""
    x = ops.cast(x, keras.backend.result_type(x.dtype, "float32"))
    return x / ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True))
