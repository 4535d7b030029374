"""From images to what DETR's encoder is given: the map of a backbone, and its positions."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.assertions import require, same
from keras_transformers.layers import relative_coordinates, sinusoidal_coordinates
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.masks import as_mask, hide_padding
from keras_transformers.models.image_model import check_images, check_images_shape
from keras_transformers.models.resnet import VARIANTS as BACKBONES
from keras_transformers.models.resnet import ResNet
from keras_transformers.models.settings import ModelSettings, variant


class Backbone(ModelSettings, Composite, keras.Model):
    """A backbone, a projection of its map to tokens, and their positions; `DETR` has them.

    Their settings are `DETR`'s: `feature`, `hidden_dim` and `max_wavelength`.
    """

    def _make_backbone(self, backbone: Any) -> None:
        self.backbone = self._backbone(backbone)
        self.input_projection = keras.layers.Dense(
            self._settings["hidden_dim"], name="input_projection", dtype=self.dtype_policy
        )

    def _backbone(self, backbone: Any) -> Any:
        if isinstance(backbone, str):
            frozen = {} if backbone == "mini" else {"norm": "frozen"}
            settings = variant("ResNet", backbone, BACKBONES, frozen)
            return ResNet(None, name="backbone", dtype=self.dtype_policy, **settings)
        if isinstance(backbone, dict):
            backbone = keras.saving.deserialize_keras_object(backbone)
        if not isinstance(backbone, keras.Model):
            raise ValueError(
                "DETR: `backbone` must be a Keras model or the name of a ResNet. "
                f"Received: {backbone!r}"
            )
        return backbone

    def _build_backbone(self, images_shape: Any) -> None:
        if isinstance(images_shape, dict):
            images_shape = images_shape["images"]
        check_images_shape(self, images_shape)
        self.channels = images_shape[-1]
        if not self.backbone.built:
            self.backbone.build((None, *images_shape[1:]))
        # Of some size, where it is not known: the width of the map does not depend on it.
        sides = [side or 224 for side in images_shape[1:3]]
        some = keras.Input((*sides, images_shape[-1]), dtype=self.compute_dtype)
        self.input_projection.build((None, None, None, self._map(some).shape[-1]))

    def _inputs(self, images: Any) -> tuple[Tensor, Tensor | None]:
        mask = None
        if isinstance(images, dict):
            unknown = set(images) - {"images", "padding_mask"}
            if unknown or "images" not in images:
                raise ValueError(
                    f"DETR '{self.name}': inputs must be `images`, or a dict of `images` and "
                    f"`padding_mask`. Received: a dict of {', '.join(map(str, images))}"
                )
            images, mask = images["images"], images.get("padding_mask")
        check_images(self, images, self.channels)
        mask = as_mask(mask, f"DETR '{self.name}': `padding_mask`")
        if mask is not None:
            rule = f"DETR '{self.name}': `padding_mask` must have shape (batch, height, width)"
            mask = require(mask, [len(mask.shape) == 3], f"{rule}.")
            sides = zip(ops.shape(mask), ops.shape(images)[:3], strict=True)
            rule = f"{rule}, that of the images, {tuple(images.shape[:3])}."
            mask = require(mask, [same(*pair) for pair in sides], rule)
        return hide_padding(images, mask), mask

    def _map(self, images: Any, training: bool | None = None) -> Tensor:
        """The backbone's map that the encoder reads."""
        if not hasattr(self.backbone, "features"):
            return self.backbone(images, training=training)
        maps = self.backbone.features(images, training=training)
        feature = self._settings["feature"] or list(maps)[-1]
        if feature not in maps:
            raise ValueError(
                f"DETR '{self.name}': `feature` must be one of {', '.join(maps)}. "
                f"Received: {feature!r}"
            )
        return maps[feature]

    def _memory(
        self, images: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """What the first encoder block is given.

        Args:
            images: `(batch, height, width, channels)`.
            mask: Bool `(batch, height, width)`, or None.
            training: Whether dropout acts.

        Returns:
            Tokens `(batch, positions, hidden_dim)`; the encoding of their positions, the same shape
            or with batch 1; the mask `(batch, positions)` or None; and the coordinates of the
            positions, from `relative_coordinates`.
        """
        x = self._map(images, training)
        rows, columns = ops.shape(x)[1:3]
        x = self.input_projection(x)  # (batch, rows, columns, hidden_dim)
        if mask is None:
            positions = relative_coordinates(ops.ones((1, rows, columns), "bool"))
        else:
            mask = _resized(mask, rows, columns)
            positions = relative_coordinates(mask)
            mask = ops.reshape(mask, (-1, rows * columns))
        encoded = sinusoidal_coordinates(positions, x.shape[-1], self._settings["max_wavelength"])
        tokens, encoded = (ops.reshape(y, (-1, rows * columns, x.shape[-1])) for y in (x, encoded))
        return tokens, encoded, mask, positions

    def compute_output_spec(self, images: Any, training: bool | None = None) -> Any:
        given = images["images"] if isinstance(images, dict) else images
        check_images(self, given, self.channels)
        return super().compute_output_spec(images, training=training)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
        }


def _resized(mask: Tensor, rows: Index, columns: Index) -> Tensor:
    """A mask of pixels as one of a map's positions: that of the pixel at each one's corner."""
    for axis, positions in ((1, rows), (2, columns)):
        pixels = ops.shape(mask)[axis]
        mask = ops.take(mask, ops.arange(positions) * pixels // positions, axis=axis)
    return mask
