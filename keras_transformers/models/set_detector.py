"""What detectors share that answer with a set of boxes: what they are called with, and the loss."""

from collections.abc import Sequence
from typing import Any, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Config, LayerOptions, Shape, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers.composite import Composite
from keras_transformers.models.detr_backbone import images_and_mask
from keras_transformers.models.detr_heads import Heads
from keras_transformers.models.detr_settings import check_settings
from keras_transformers.models.image_model import check_images, check_images_shape
from keras_transformers.models.settings import ModelSettings
from keras_transformers.models.transfer import Transferable


class SetDetector(Transferable, ModelSettings, Composite, keras.Model):
    """Base of `DETR` and `DeformableDETR`.

    A subclass has `queries`, `_encode(images, mask, training)`, which gives what `_decode` takes
    before `training`, and `_decode`, which gives logits and boxes, before the sigmoid, of the
    proposals and of every decoder block: `(batch, layers, num_queries, classes)` and float32
    `(batch, layers, num_queries, 4)`.

    Args:
        maps: What reads the maps of a backbone, a `FeatureMap` or `FeatureMaps`.
    """

    queries: Any

    def __init__(self, maps: Any, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        check_settings(type(self).__name__, self._settings)
        self.criterion = SetCriterion(**self._settings["criterion"])
        self.feature_map = maps
        self.backbone = maps.backbone

    def _copy_blocks(self, encoder: Any, decoders: Sequence[Any]) -> None:
        """A block for each layer, of prototypes, the last of which serves all further layers."""
        encoder_layers, decoder_layers = self._settings["num_layers"]
        self.encoder_blocks = [encoder.copy(self, f"encoder_{i}", i) for i in range(encoder_layers)]
        self.decoder_blocks = [
            decoders[min(i, len(decoders) - 1)].copy(self, f"decoder_{i}", i)
            for i in range(decoder_layers)
        ]

    def _norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(epsilon=1e-5, name=name, dtype=self.dtype_policy)

    def _heads(self, name: str) -> Heads:
        return Heads(
            self._settings["num_classes"],
            self.criterion.classification == "focal",
            self._settings["hidden_dim"],
            self.queries.boxes,
            name=name,
            dtype=self.dtype_policy,
        )

    def _shape_of_images(self, images_shape: Any) -> Shape:
        """What `build` is given as the shape of images, checked; they have so many channels."""
        shape: Shape = images_shape["images"] if isinstance(images_shape, dict) else images_shape
        check_images_shape(self, shape)
        self.channels = shape[-1]
        return shape

    def call(
        self, images: Tensor | dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        images, mask = images_and_mask(self, images)
        memory, positions = self._encode(images, mask, training)
        logits, boxes = self._decode(memory, positions, training)
        boxes = ops.cast(ops.sigmoid(boxes), logits.dtype)
        return {
            "logits": logits[:, -1],
            "boxes": boxes[:, -1],
            "auxiliary_logits": logits[:, :-1],
            "auxiliary_boxes": boxes[:, :-1],
        }

    def _encode(self, images: Tensor, mask: Tensor | None, training: bool | None) -> Any:
        """A hook, see above."""
        raise NotImplementedError

    def _decode(self, memory: Any, positions: Any, training: bool | None) -> Any:
        """A hook, see above."""
        raise NotImplementedError

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """The criterion's loss of all layers; Keras calls it.

        `y` is a dict of `labels`, int `(batch, most)`, -1 where an image has fewer boxes, and
        `boxes`, `(batch, most, 4)`, centre boxes as shares of the image; `sample_weight`,
        `(batch,)`, weighs images (Keras makes a dict like `y` of it).
        """
        layers = [
            ops.moveaxis(
                ops.concatenate([y_pred[f"auxiliary_{name}"], y_pred[name][:, None]], axis=1), 1, 0
            )
            for name in ("logits", "boxes")
        ]
        logits, boxes = layers
        return self._loss(logits, boxes, y, sample_weight)

    def _loss(self, logits: Tensor, boxes: Tensor, y: Any, sample_weight: Any) -> Tensor:
        """A hook: the loss of `(layers, batch, num_queries, ...)`."""
        loss: Tensor = self.criterion(logits, boxes, y["labels"], y["boxes"], sample_weight)
        return loss

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, None, None, self.channels)

    def compute_output_spec(self, images: Any, training: bool | None = None) -> Any:
        given = images["images"] if isinstance(images, dict) else images
        check_images(self, given, self.channels)
        return super().compute_output_spec(images, training=training)

    def compute_output_shape(self, images_shape: Any) -> dict[str, Shape]:
        if isinstance(images_shape, dict):
            images_shape = images_shape["images"]
        batch, queries = images_shape[0], self.queries.num_queries
        classes = self._settings["num_classes"] + (self.criterion.classification != "focal")
        layers = len(self.decoder_blocks) - 1 + self.queries.proposes
        return {
            "logits": (batch, queries, classes),
            "boxes": (batch, queries, 4),
            "auxiliary_logits": (batch, layers, queries, classes),
            "auxiliary_boxes": (batch, layers, queries, 4),
        }

    def get_config(self) -> Config:
        feature_map = keras.saving.serialize_keras_object(self.feature_map)
        return {**super().get_config(), "backbone": feature_map}
