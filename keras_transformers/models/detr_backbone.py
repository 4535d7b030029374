"""From images to what DETR's encoder is given: the map of a backbone, and its positions."""

import dataclasses
from typing import Any, Literal, Self, TypeAlias

import keras
from keras import ops

from keras_transformers.annotations import Config, Index, Shape, Tensor
from keras_transformers.assertions import require, same
from keras_transformers.layers import sinusoidal_coordinates
from keras_transformers.layers.masks import as_mask, hide_padding
from keras_transformers.models.image_model import check_images
from keras_transformers.models.resnet import VARIANTS as BACKBONES
from keras_transformers.models.resnet import ResNet
from keras_transformers.models.settings import variant

BackboneName: TypeAlias = Literal["mini", "18", "34", "50", "101"]


@keras.saving.register_keras_serializable("keras_transformers")
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureMap:
    """The map of a backbone that a `DETR` reads, and the encoding of its positions.

    Args:
        backbone: A model with `features`, `Swin`, `PVT`, `MViT`, `ViT` or `ResNet`; or any Keras
            model from images to a map `(batch, rows, columns, width)`. It is used itself, weights
            included.
        feature: Which of the backbone's features, for instance "stride_16"; the last by default.
        max_wavelength: Of the encoding of positions, and of boxes.

    Raises:
        ValueError: If `backbone` is no model; when a `DETR` is built, if there is no such feature.

    Example:
    >>> from keras_transformers.models import DETR, FeatureMap, ResNet
    >>> backbone = ResNet.from_variant("mini", None)
    >>> model = DETR(3, FeatureMap(backbone, "stride_8"), num_layers=(1, 2))
    >>> model.build((None, 64, 64, 3))
    >>> tuple(model.input_projection.kernel.shape)
    (64, 256)
    """

    backbone: keras.Model
    feature: str | None = None
    max_wavelength: float = 10000.0

    def __post_init__(self) -> None:
        check_backbone("DETR", self.backbone, "FeatureMap")

    def build(self, images_shape: Shape, dtype: Any) -> int:
        """Builds the backbone for images of that shape and dtype; returns the map's width."""
        if not self.backbone.built:
            self.backbone.build((None, *images_shape[1:]))
        # Of some size, where it is not known: the width of the map does not depend on it.
        sides = [side or 224 for side in images_shape[1:3]]
        width: int = self(keras.Input((*sides, images_shape[-1]), dtype=dtype)).shape[-1]
        return width

    def __call__(self, images: Any, training: bool | None = None) -> Tensor:
        """`(batch, height, width, channels)` -> `(batch, rows, columns, width)`."""
        maps = maps_of_backbone(self.backbone, images, training)
        feature = self.feature or list(maps)[-1]
        if None in maps:
            return maps[None]
        if feature not in maps:
            raise ValueError(
                f"FeatureMap: `feature` must be one of {', '.join(maps)}. Received: {feature!r}"
            )
        return maps[feature]

    def encode(self, coordinates: Tensor, width: int) -> Tensor:
        """The encoding of coordinates in [0, 1]: `(..., numbers)` -> `(..., width)`, float32."""
        return sinusoidal_coordinates(coordinates, width, self.max_wavelength)

    def get_config(self) -> Config:
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {
            "backbone": backbone,
            "feature": self.feature,
            "max_wavelength": self.max_wavelength,
        }

    @classmethod
    def from_config(cls, config: Config) -> Self:
        backbone = keras.saving.deserialize_keras_object(config["backbone"])
        return cls(**{**config, "backbone": backbone})


def check_backbone(owner: str, backbone: Any, maps: str) -> None:
    """Raises ValueError unless a backbone is a model; `maps` is the class that may have one."""
    if not isinstance(backbone, keras.Model):
        raise ValueError(
            f"{owner}: `backbone` must be a Keras model, a `{maps}` of one, or the name of a "
            f"ResNet. Received: {backbone!r}"
        )


def maps_of_backbone(backbone: Any, images: Any, training: bool | None) -> dict[Any, Tensor]:
    """The features of a backbone by name; the one map of a Keras model without `features`: None."""
    if not hasattr(backbone, "features"):
        return {None: backbone(images, training=training)}
    found: dict[Any, Tensor] = backbone.features(images, training=training)
    return found


def residual_network(name: str, dtype: Any = None) -> ResNet:
    """The `ResNet` that a name of a backbone stands for; batch norms are frozen."""
    frozen = {} if name == "mini" else {"norm": "frozen"}
    settings = variant("ResNet", name, BACKBONES, frozen)
    return ResNet(None, name="backbone", dtype=dtype, **settings)


def as_feature_map(given: Any, dtype: Any = None) -> FeatureMap:
    """A `FeatureMap`; a backbone, its name, or the configuration of either, as one."""
    if isinstance(given, str):
        given = residual_network(given, dtype)
    elif isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    return given if isinstance(given, FeatureMap) else FeatureMap(given)


def images_and_mask(model: Any, images: Any) -> tuple[Tensor, Tensor | None]:
    """What a `DETR` is called with, checked: images with zeros at padding, and the mask or None."""
    mask, owner = None, f"{type(model).__name__} '{model.name}'"
    if isinstance(images, dict):
        unknown = set(images) - {"images", "padding_mask"}
        if unknown or "images" not in images:
            raise ValueError(
                f"{owner}: inputs must be `images`, or a dict of `images` and "
                f"`padding_mask`. Received: a dict of {', '.join(map(str, images))}"
            )
        images, mask = images["images"], images.get("padding_mask")
    check_images(model, images, model.channels)
    mask = as_mask(mask, f"{owner}: `padding_mask`")
    if mask is not None:
        rule = f"{owner}: `padding_mask` must have shape (batch, height, width)"
        mask = require(mask, [len(mask.shape) == 3], f"{rule}.")
        sides = zip(ops.shape(mask), ops.shape(images)[:3], strict=True)
        rule = f"{rule}, that of the images, {tuple(images.shape[:3])}."
        mask = require(mask, [same(*pair) for pair in sides], rule)
    return hide_padding(images, mask), mask


def middles(coordinates: Tensor) -> Tensor:
    """The middles of positions, of their lower and right borders from `relative_coordinates`."""
    steps = ops.stack([coordinates[:, :1, :1, 0], coordinates[:, :1, :1, 1]], axis=-1) / 2
    return coordinates - steps


def mask_of_map(mask: Tensor | None, rows: Index, columns: Index) -> Tensor:
    """A mask of pixels as one of a map's positions: that of the pixel at each one's corner."""
    if mask is None:
        return ops.ones((1, rows, columns), "bool")
    for axis, positions in ((1, rows), (2, columns)):
        pixels = ops.shape(mask)[axis]
        mask = ops.take(mask, ops.arange(positions) * pixels // positions, axis=axis)
    return mask
