"""SegFormer of Xie et al. 2021: a class for every position of an image."""

import dataclasses
import math
from typing import Any, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import require_values
from keras_transformers.core.types import Config, LayerOptions, Shape, Tensor
from keras_transformers.detection import of_images
from keras_transformers.layers import resize_map
from keras_transformers.layers.parts import part
from keras_transformers.models.base import BaseModel, Configuration, check_sizes, transfer
from keras_transformers.models.image_model import Pyramid, check_images, check_images_shape


@dataclasses.dataclass(frozen=True)
class SegFormerConfiguration(Configuration):
    """The arguments of a `SegFormer` but for the encoder, which `get_config` adds."""

    num_classes: int
    decoder_dim: int
    dropout: float
    ignored_label: int


@keras.saving.register_keras_serializable("keras_transformers")
class SegFormer(BaseModel):
    """Semantic segmentation (Xie et al. 2021, https://arxiv.org/abs/2105.15203).

    The map of each stage of a pyramid is projected to `decoder_dim`, all are brought to the size of
    the first and mixed by one linear layer, batch norm and ReLU; a linear head gives the logits of
    each position. The linear layer acts before the maps grow, which gives the same sums in a part
    of the time. The loss is the model's own: `compile(optimizer)` and `fit(images, labels)`.

    Args:
        num_classes: Number of classes; 1 for one logit, positive where a pixel is of the class.
        encoder: A pyramid without classes: `PVT` as in the paper, or `Swin`, `MViT`, `ResNet`. The
            model makes its own copy.
        decoder_dim: Width of the decoder.
        dropout: Rate before the head.
        ignored_label: Label of pixels that count for nothing.

    Call arguments:
        images: `(batch, height, width, channels)`, floating, of any size.
        training: Whether dropout acts and batch norm learns.

    Returns:
        Logits `(batch, rows, columns, num_classes)` at the first stage's stride, 4 pixels.
        `layers.resize_map` brings them to the size of the images.

    Raises:
        ValueError: If a size is not positive, or the encoder has classes or is no pyramid.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import PVT, SegFormer
    >>> model = SegFormer(5, PVT.from_variant("b0", None, num_layers=(1, 1, 1, 1)), 32)
    >>> tuple(model(np.zeros((2, 64, 96, 3), "float32")).shape)
    (2, 16, 24, 5)
    """

    anew = ("classifier",)

    configuration: SegFormerConfiguration

    def __init__(
        self,
        num_classes: int,
        encoder: Pyramid | Config,
        decoder_dim: int = 256,
        dropout: float = 0.1,
        ignored_label: int = 255,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.configuration = SegFormerConfiguration(
            num_classes, decoder_dim, dropout, ignored_label
        )
        check_sizes("SegFormer", vars(self.configuration), ["num_classes", "decoder_dim"])
        self.encoder = part(self, "encoder", encoder, Pyramid)
        if self.encoder.head is not None:
            raise ValueError(
                "SegFormer: `encoder` must have no classes. Received: "
                f"num_classes={self.encoder.get_config()['num_classes']}"
            )
        policy, stages = self.dtype_policy, len(self.encoder.strides())
        self.projections = [
            keras.layers.Dense(decoder_dim, name=f"projection_{i}", dtype=policy)
            for i in range(stages)
        ]
        self.fusions = [
            keras.layers.Dense(decoder_dim, use_bias=False, name=f"fusion_{i}", dtype=policy)
            for i in range(stages)
        ]
        self.norm = keras.layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, name="norm", dtype=policy
        )
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=policy)
        self.classifier = keras.layers.Dense(num_classes, name="classifier", dtype=policy)

    @property
    def ignored_label(self) -> int:
        """Label of pixels that count for nothing, as given."""
        return int(self.configuration.ignored_label)

    def transferred(self, **changes: Any) -> Self:
        """Returns a model for another task; see `ImageModel.transferred`."""
        model: Self = transfer(self, changes)
        return model

    def build(self, images_shape: Any) -> None:
        check_images_shape(self, images_shape)
        self.channels = images_shape[-1]
        self.encoder.build(images_shape)
        sides = [side or 224 for side in images_shape[1:3]]  # the widths do not depend on them
        images = keras.Input((*sides, self.channels), dtype=self.compute_dtype)
        maps = self.encoder.encode(images)
        width = self.configuration.decoder_dim
        for projection, fusion, x in zip(self.projections, self.fusions, maps, strict=True):
            projection.build((None, None, None, x.shape[-1]))
            fusion.build((None, None, None, width))
        self.norm.build((None, None, None, width))
        self.classifier.build((None, None, None, width))

    def call(self, images: Tensor, training: bool | None = None) -> Tensor:
        check_images(self, images, self.channels)
        maps = self.encoder.encode(images, training=training)
        _, rows, columns, _ = ops.shape(maps[0])
        fused = [
            resize_map(fusion(projection(x)), rows, columns)
            for projection, fusion, x in zip(self.projections, self.fusions, maps, strict=True)
        ]
        x = ops.relu(self.norm(sum(fused[1:], fused[0]), training=training))
        return self.classifier(self.dropout_layer(x, training=training))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Mean cross-entropy of the pixels, the logits brought to their size; Keras calls it.

        `y` are integers `(batch, height, width)`; `sample_weight`, `(batch,)`, weighs images. A
        batch whose labels are all ignored gives 0. A single class is told from what is not of it:
        labels are 1 and 0, the cross-entropy is binary, and, as published, its mean is over all
        pixels, of which the ignored give 0 and those with a negative label as well.
        """
        _, rows, columns = ops.shape(y)
        logits = resize_map(ops.cast(y_pred, "float32"), rows, columns)
        labels = ops.cast(y, "int32")
        real = ops.not_equal(labels, self.ignored_label)
        single = self.configuration.num_classes == 1
        if single:
            real = ops.logical_and(real, labels >= 0)
        labels, weights = ops.where(real, labels, 0), ops.cast(real, "float32")
        if single:
            targets = ops.cast(labels, "float32")
            errors = ops.binary_crossentropy(targets, logits[..., 0], from_logits=True)
        else:
            classes = self.configuration.num_classes
            is_right = ops.logical_and(labels >= 0, labels < classes)
            labels = require_values(
                labels,
                is_right,
                f"SegFormer '{self.name}': `y` must have labels in [0, {classes}), or the "
                f"`ignored_label`, {self.ignored_label}.",
            )
            chances = ops.log_softmax(logits, axis=-1)
            errors = -ops.take_along_axis(
                chances, ops.where(is_right, labels, 0)[..., None], axis=-1
            )[..., 0]
            errors = ops.where(is_right, errors, math.nan)
        count = ops.sum(ops.ones_like(weights) if single else weights)
        if sample_weight is not None:
            errors = errors * of_images(sample_weight, "SegFormer")[:, None, None]
        return ops.sum(errors * weights) / ops.maximum(count, 1.0)

    def compute_output_spec(self, images: Tensor, training: bool | None = None) -> Any:
        check_images(self, images, self.channels)
        return super().compute_output_spec(images, training=training)

    def compute_output_shape(self, images_shape: Shape) -> Shape:
        stride = self.encoder.strides()[0]
        sides = [None if side is None else -(-side // stride) for side in images_shape[1:3]]
        return (images_shape[0], *sides, self.configuration.num_classes)

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, None, None, self.channels)

    def get_config(self) -> Config:
        encoder = keras.saving.serialize_keras_object(self.encoder)
        return {**super().get_config(), "encoder": encoder}
