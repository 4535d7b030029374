"""The base of detectors that predict sets: backbones, maps, configuration, heads, training."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import require, same
from keras_transformers.core.types import Config, Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import (
    ConditionalDecoderBlock,
    DecoderBlock,
    EncoderBlock,
    FirstConditionalDecoderBlock,
    relative_coordinates,
    sinusoidal_coordinates,
)
from keras_transformers.layers.base import BaseLayer, frozen_like
from keras_transformers.layers.checks import refuse, whole_number
from keras_transformers.layers.masks import as_mask, hide_padding
from keras_transformers.layers.parts import Prototype, arguments_of_call
from keras_transformers.models.base import (
    BaseModel,
    Configuration,
    check_changes,
    check_choice,
    check_divides,
    check_sizes,
    refuse_beside,
    transfer,
    variant,
)
from keras_transformers.models.image_model import check_images, check_images_shape
from keras_transformers.models.resnet import VARIANTS as BACKBONES
from keras_transformers.models.resnet import ResNet

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
    """Returns a `DETR`'s inputs, checked: images with zeros at padding, and the mask or None."""
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


GROUPS = 32  # of each map's group norm, as in the paper
FINEST = 8  # pixels between the positions of the largest map that is read by default
PROPOSAL_SIZE = 0.05  # of a proposal's box on the first level, as a share of the image


@keras.saving.register_keras_serializable("keras_transformers")
@dataclasses.dataclass(frozen=True, eq=False)
class FeatureMaps:
    """The maps of a backbone that a `DeformableDETR` reads, and the encoding of their positions.

    Args:
        backbone: A model with `features`, `Swin`, `PVT`, `MViT`, `ViT` or `ResNet`; or any Keras
            model from images to a map `(batch, rows, columns, width)`. It is used itself, weights
            included.
        features: Which of the backbone's features; by default those whose positions are 8 pixels
            apart or more.
        num_levels: Number of maps. Those that the backbone lacks are made of its last, each with
            half the rows and columns of the one before.
        max_wavelength: Of the encoding of positions.

    Raises:
        ValueError: If `backbone` is no model; when a `DeformableDETR` is built, if there are no
            such features, or more than levels.

    Example:
    >>> from keras_transformers.models import DeformableDETR, FeatureMaps, ResNet
    >>> backbone = ResNet.from_variant("mini", None)
    >>> model = DeformableDETR(3, FeatureMaps(backbone, num_levels=3), 64, num_layers=1)
    >>> model.build((None, 64, 64, 3))
    >>> tuple(model.levels.embedding.shape)
    (3, 64)
    """

    backbone: keras.Model
    features: Sequence[str] | None = None
    num_levels: int = 4
    max_wavelength: float = 10000.0

    def __post_init__(self) -> None:
        check_backbone("DeformableDETR", self.backbone, "FeatureMaps")
        if not isinstance(self.num_levels, int) or self.num_levels < 1:
            raise ValueError(
                "FeatureMaps: `num_levels` must be a positive integer. "
                f"Received: {self.num_levels!r}"
            )

    def build(self, images_shape: Shape, dtype: Any) -> list[int]:
        """Builds the backbone for images of that shape and dtype; returns the maps' widths."""
        if not self.backbone.built:
            self.backbone.build((None, *images_shape[1:]))
        sides = [side or 224 for side in images_shape[1:3]]
        maps = self(keras.Input((*sides, images_shape[-1]), dtype=dtype))
        if len(maps) > self.num_levels:
            raise ValueError(
                f"FeatureMaps: `features` must be as many as `num_levels`={self.num_levels}, or "
                f"less. Received: {len(maps)} of them"
            )
        return [x.shape[-1] for x in maps]

    def __call__(self, images: Any, training: bool | None = None) -> list[Tensor]:
        """`(batch, height, width, channels)` -> list of `(batch, rows, columns, width)`."""
        maps = maps_of_backbone(self.backbone, images, training)
        if None in maps:
            return list(maps.values())
        names = self.features
        if names is None:
            known = [name for name in maps if int(name.rpartition("_")[2]) >= FINEST]
            names = known[-self.num_levels :]
        if not names or not all(name in maps for name in names):
            raise ValueError(
                f"FeatureMaps: `features` must be some of {', '.join(map(str, maps))}. "
                f"Received: {names!r}"
            )
        return [maps[name] for name in names]

    def encode(self, coordinates: Tensor, width: int) -> Tensor:
        """The encoding of coordinates in [0, 1]: `(..., numbers)` -> `(..., width)`, float32."""
        return sinusoidal_coordinates(coordinates, width, self.max_wavelength)

    def get_config(self) -> Config:
        backbone = keras.saving.serialize_keras_object(self.backbone)
        features = None if self.features is None else list(self.features)
        config = {"backbone": backbone, "features": features, "num_levels": self.num_levels}
        return {**config, "max_wavelength": self.max_wavelength}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        backbone = keras.saving.deserialize_keras_object(config["backbone"])
        return cls(**{**config, "backbone": backbone})


def as_feature_maps(given: Any, dtype: Any = None) -> FeatureMaps:
    """`FeatureMaps`; a backbone, its name, or the configuration of either, as such."""
    if isinstance(given, str):
        given = residual_network(given, dtype)
    elif isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    return given if isinstance(given, FeatureMaps) else FeatureMaps(given)


class LevelMemory(NamedTuple):
    """The encoded maps, one after another, row by row."""

    tokens: Tensor  # (batch, positions, hidden_dim)
    mask: Tensor | None  # bool (batch, positions), True = part of the image
    boxes: Tensor  # float32 (batch or 1, positions, 4), around the middle of each position
    shapes: Any  # rows and columns of each map, a list of pairs or int (levels, 2)
    ratios: Tensor  # float32 (batch or 1, levels, 2), columns and rows of the image, not padding

    def on_levels(self, points: Tensor) -> Tensor:
        """Points or boxes of the image on each map: `(batch, n, 2 or 4)` -> `(.., levels, ..)`."""
        ratios = self.ratios if points.shape[-1] == 2 else ops.tile(self.ratios, (1, 1, 2))
        return points[:, :, None] * ratios[:, None]


class Levels(BaseLayer):
    """Maps of a backbone in one width, and smaller ones, with an embedding of each level.

    Zhu et al. 2021, https://arxiv.org/abs/2010.04159, appendix A.2.

    Args:
        hidden_dim: Width of all maps (D).
        num_levels: Number of maps.
    """

    def __init__(self, hidden_dim: int, num_levels: int, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = whole_number(self, "hidden_dim", hidden_dim)
        self.num_levels = whole_number(self, "num_levels", num_levels)
        if hidden_dim % GROUPS:
            expected = f"a multiple of {GROUPS}, the groups of the norm of each map"
            refuse(self, "hidden_dim", expected, hidden_dim)

    def build(self, maps_shape: Sequence[Shape]) -> None:
        widths = [shape[-1] for shape in maps_shape]
        self.embedding = self.add_weight(
            name="embedding",
            shape=(self.num_levels, self.hidden_dim),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )
        self.projections, self.norms = [], []
        inputs = [*widths, widths[-1], *(self.hidden_dim for _ in range(self.num_levels))]
        for level, width in enumerate(inputs[: self.num_levels]):
            made = self._projection(level, level < len(widths))
            made.build((None, None, None, width))
            self.projections.append(frozen_like(self, made))
            norm = keras.layers.GroupNormalization(
                GROUPS, epsilon=1e-5, name=f"norm_{level}", dtype=self.dtype_policy
            )
            norm.build((None, None, None, self.hidden_dim))
            self.norms.append(frozen_like(self, norm))

    def _projection(self, level: int, from_backbone: bool) -> Any:
        options = {"name": f"projection_{level}", "dtype": self.dtype_policy}
        if from_backbone:
            return keras.layers.Dense(self.hidden_dim, **options)
        return keras.layers.Conv2D(self.hidden_dim, 3, 2, data_format="channels_last", **options)

    def call(self, maps: Sequence[Tensor]) -> list[Tensor]:
        found: list[Tensor] = []
        for level, (project, norm) in enumerate(zip(self.projections, self.norms, strict=True)):
            if level < len(maps):
                x = maps[level]
            else:  # zeros on every side, where Keras's "same" has more of them after than before
                x = maps[-1] if level == len(maps) else found[-1]
                x = ops.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
            found.append(norm(project(x)))
        return found

    def compute_output_shape(self, maps_shape: Sequence[Shape]) -> list[Shape]:
        shapes = [tuple(shape) for shape in maps_shape]
        while len(shapes) < self.num_levels:
            shapes.append((shapes[-1][0], *(side and -(-side // 2) for side in shapes[-1][1:3]), 0))
        return [(*shape[:-1], self.hidden_dim) for shape in shapes]

    def memory(
        self, maps: Sequence[Tensor], mask: Tensor | None, encode: Any
    ) -> tuple[LevelMemory, Tensor]:
        """Maps as one sequence, not encoded yet, and their positions `(batch or 1, n, width)`.

        Args:
            maps: What a call gives.
            mask: Bool `(batch, height, width)`, True where a pixel belongs to the image; or None.
            encode: Function from coordinates in [0, 1] and a width to their encoding.
        """
        shapes: list[Any] = []
        parts: dict[str, list[Tensor]] = {"tokens": [], "mask": [], "boxes": [], "positions": []}
        ratios = []
        for level, x in enumerate(maps):
            _, rows, columns, width = ops.shape(x)
            of_map = mask_of_map(mask, rows, columns)
            at = middles(relative_coordinates(of_map))  # vertical, horizontal
            positions = encode(at, width) + ops.cast(self.embedding[level], "float32")
            sizes = ops.full_like(at, PROPOSAL_SIZE * 2**level)
            boxes = ops.concatenate([ops.flip(at, axis=-1), sizes], axis=-1)
            for name, y in (("tokens", x), ("boxes", boxes), ("positions", positions)):
                parts[name].append(ops.reshape(y, (-1, rows * columns, y.shape[-1])))
            parts["mask"].append(ops.reshape(of_map, (-1, rows * columns)))
            seen = ops.cast(of_map, "float32")
            ratios.append(
                ops.stack([ops.mean(seen[:, 0], axis=-1), ops.mean(seen[:, :, 0], axis=-1)], -1)
            )
            shapes.append((rows, columns))
        tokens, present, boxes, positions = (ops.concatenate(x, axis=1) for x in parts.values())
        if not all(isinstance(side, int) for pair in shapes for side in pair):
            shapes = ops.convert_to_tensor(shapes)  # Keras takes no lists of numbers and tensors
        present = None if mask is None else present
        return LevelMemory(tokens, present, boxes, shapes, ops.stack(ratios, axis=1)), positions


# Carion et al. 2020, section 4.
NUMBERS: dict[str, Any] = {"num_heads": 8, "mlp_dim": 2048, "dropout": 0.1}
# What a block of the encoder, and one of the decoder, is called with.
OF_ENCODER = {"padding_mask", "positions"}
OF_DECODER = {"context", "context_mask", "context_positions", "positions"}


@dataclasses.dataclass(frozen=True)
class SetDetectorConfiguration(Configuration):
    """The arguments of a detector but for the backbone, which `get_config` adds.

    The three numbers of the blocks are None where they are not given.
    """

    num_classes: int
    hidden_dim: int
    num_heads: int | None
    mlp_dim: int | None
    num_layers: list[int]
    queries: int | Config
    dropout: float | None
    blocks: list[Config] | None
    criterion: Config


def check_settings(owner: str, settings: Mapping[str, Any]) -> None:
    """Raises ValueError unless the numbers are such, and fit together."""
    check_sizes(owner, settings, ["num_classes", "hidden_dim"], ["num_heads", "mlp_dim"])
    if isinstance(settings["queries"], int):
        check_sizes(owner, settings, ["queries"])
    if len(settings["num_layers"]) != 2:
        raise ValueError(
            f"{owner}: `num_layers` must be a number, or a pair of those of encoder and decoder. "
            f"Received: {settings['num_layers']}"
        )
    for number in settings["num_layers"]:
        check_sizes(owner, {"num_layers": number}, ["num_layers"])
    if settings["num_heads"] is not None:
        check_divides(owner, settings, "num_heads", "hidden_dim")
    if settings["hidden_dim"] % 8:
        raise ValueError(
            f"{owner}: `hidden_dim` must be a multiple of 8, for a sine and a cosine of each "
            f"coordinate of a box. Received: {settings['hidden_dim']}"
        )


def default_blocks(
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    dropout: float | None = None,
    norm_first: bool = False,
    references: bool = False,
) -> tuple[Part, ...]:
    """The blocks of the encoder and of the decoder; as in the paper where a number is None."""
    given = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
    settings: dict[str, Any] = {
        name: NUMBERS[name] if x is None else x for name, x in given.items()
    }
    settings |= {
        "norm_first": norm_first,
        "norm": keras.layers.LayerNormalization(epsilon=1e-5, name="norm"),
    }
    if references:
        kinds = (EncoderBlock, FirstConditionalDecoderBlock, ConditionalDecoderBlock)
        return tuple(kind(**settings) for kind in kinds)
    return EncoderBlock(**settings), DecoderBlock(**settings, causal=False)


def block_prototypes(
    owner: Any, blocks: Any, numbers: dict[str, Any], references: bool
) -> list[Prototype]:
    """Returns the prototypes of both kinds of blocks: the given ones, or those of the numbers.

    Args:
        owner: The model.
        blocks: What was given, or None.
        numbers: Those that make blocks.
        references: Whether the queries refer to points.

    Raises:
        ValueError: If both were given, or `blocks` are none that can be called as they must.
    """
    if blocks is None:
        blocks = default_blocks(**numbers, references=references)
    else:
        refuse_beside("DETR", "blocks", **numbers)
    several = blocks if isinstance(blocks, list | tuple) else [blocks]
    made = [Prototype(owner, "blocks", each, keras.layers.Layer) for each in several]
    layers = [each.layer for each in made]
    takes = [arguments_of_call(layer) for layer in layers]
    fits = [len(layers) in (2, 3), takes[0] >= OF_ENCODER]
    fits += [each >= OF_DECODER and ("reference" in each) == references for each in takes[1:]]
    fits += [not getattr(layer, "causal", False) for layer in layers[1:]]
    if not all(fits):
        decoder = "a DecoderBlock that is not causal (`causal=False`)"
        if references:
            decoder = "a ConditionalDecoderBlock, for `queries` that refer to points"
        names = ", ".join(type(each).__name__ for each in layers)
        raise ValueError(
            f"DETR: `blocks` must be a pair of an EncoderBlock and {decoder}, or three, of which "
            f"the second is the decoder's first. Received: {names}"
        )
    return made


def serialized_criterion(given: SetCriterion | dict[str, Any] | None) -> dict[str, Any]:
    """A `SetCriterion`, or a dict of its arguments, or None, as such a dict."""
    return dataclasses.asdict(given) if isinstance(given, SetCriterion) else given or {}


def pair_of_layers(given: Any) -> list[Any]:
    """Numbers of layers of encoder and decoder; one number stands for both."""
    return list(given) if isinstance(given, list | tuple) else [given, given]


def parts_of_variant(
    owner: str,
    name: str,
    changes: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    options: type,
    flat: Mapping[str, Sequence[str]],
    queries: Mapping[str, Any],
    maps: type,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """A published size with changes, as parts but for the blocks.

    Args:
        owner: Name of the model's class.
        name: Of the size.
        changes: Flat settings, or parts.
        variants: The sizes.
        options: The `TypedDict` of the changes that there are.
        flat: Part -> names of the numbers that it takes the place of.
        queries: Name -> function from a number to the queries.
        maps: Class of the part that reads the backbone.

    Returns:
        Constructor arguments, and the numbers that blocks are made of; None where these are given.

    Raises:
        ValueError: If there is no such size or kind of queries, or the changes have both a part and
            numbers that make it.
    """
    check_changes(owner, changes, options)
    settings = variant(owner, name, variants, changes)
    whole = {
        "backbone": isinstance(settings["backbone"], maps | dict),
        "num_layers": settings.get("num_layers") is not None,
        "queries": not isinstance(settings["queries"], str),
        "blocks": settings.get("blocks") is not None,
    }
    numbers = {part: {each: settings.pop(each) for each in names} for part, names in flat.items()}
    for part in (part for part in flat if whole[part]):
        beside = {each: changes.get(each) for each in flat[part]}
        refuse_beside(f"{owner}.from_variant", part, **beside)
    if not whole["backbone"]:
        backbone = settings["backbone"]
        if isinstance(backbone, str):
            backbone = residual_network(backbone, changes.get("dtype"))
        settings["backbone"] = maps(backbone, **numbers["backbone"])
    if not whole["num_layers"]:
        settings["num_layers"] = tuple(numbers["num_layers"].values())
    if not whole["queries"]:
        check_choice(owner, settings, "queries", queries)
        settings["queries"] = queries[settings["queries"]](numbers["queries"]["num_queries"])
    return settings, None if whole["blocks"] else numbers["blocks"]


class Network(BaseLayer):
    """Layers in turn: `keras.Sequential` that follows a dtype policy."""

    def __init__(
        self, layers: Sequence[keras.layers.Layer], **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.layers = layers

    def build(self, shape: Shape) -> None:
        for layer in self.layers:
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def compute_output_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], self.layers[-1].units)


def network(units: int, width: int, hidden: int, name: str, dtype: Any, **kwargs: Any) -> Network:
    """`hidden` layers of `width` with ReLU, and one of `units`, which `kwargs` are of."""
    layers = [
        keras.layers.Dense(width, "relu", name=f"hidden_{i}", dtype=dtype) for i in range(hidden)
    ]
    layers.append(keras.layers.Dense(units, name="output", dtype=dtype, **kwargs))
    return Network(layers, name=name, dtype=dtype)


class Heads(BaseLayer):
    """The logits of classes and the box of every token.

    Args:
        num_classes: Number of classes.
        focal: Whether each class has a sigmoid of its own. Without, there is a softmax over the
            classes and one more, the last, "no object".
        width: Width of the box's network.
        moved: Whether boxes are added to others, so that they start at zero.

    Call arguments:
        x: `(batch, length, hidden_dim)`.

    Returns:
        Logits `(batch, length, classes)`, and boxes before the sigmoid, `(batch, length, 4)`,
        float32.
    """

    def __init__(
        self, num_classes: int, focal: bool, width: int, moved: bool, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.focal = focal
        # Few queries stand for something: with a sigmoid for each class, start from 1 in 100.
        bias = keras.initializers.Constant(-4.6 if focal else 0.0)
        self.class_head = keras.layers.Dense(
            num_classes + (not focal),
            bias_initializer=bias,
            name="class_head",
            dtype=self.dtype_policy,
        )
        kernel = keras.initializers.RandomNormal(stddev=1e-3) if moved else "glorot_uniform"
        self.box_head = network(
            4, width, 2, "box_head", self.dtype_policy, kernel_initializer=kernel
        )

    def build(self, shape: Shape) -> None:
        self.class_head.build(shape)
        self.box_head.build(shape)

    def call(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.class_head(x), ops.cast(self.box_head(x), "float32")

    def compute_output_shape(self, shape: Shape) -> tuple[Shape, Shape]:
        return (*shape[:-1], self.class_head.units), (*shape[:-1], 4)

    def sureness(self, logits: Tensor) -> Tensor:
        """Returns scores of there being an object: `(..., classes)` -> `(...)`, float32."""
        logits = ops.cast(logits, "float32")
        if self.focal:
            return ops.max(logits, axis=-1)
        return -ops.log_softmax(logits, axis=-1)[..., -1]


class SetDetector(BaseModel):
    """Base of `DETR` and `DeformableDETR`.

    A subclass calls `_configure` in its constructor, and has `queries`,
    `_encode(images, mask, training)`, which gives what `_decode` takes before `training`, and
    `_decode`, which gives logits and boxes, before the sigmoid, of the proposals and of every
    decoder block: `(batch, layers, num_queries, classes)` and float32
    `(batch, layers, num_queries, 4)`.

    Args:
        maps: What reads the maps of a backbone, a `FeatureMap` or `FeatureMaps`.
    """

    anew: tuple[str, ...]
    configuration: SetDetectorConfiguration
    queries: Any

    def __init__(self, maps: Any, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.feature_map = maps
        self.backbone = maps.backbone

    def _configure(self, configuration: SetDetectorConfiguration) -> None:
        """Checks and keeps the arguments of the constructor, and makes the criterion."""
        check_settings(type(self).__name__, vars(configuration))
        self.configuration = configuration
        self.criterion = SetCriterion(**configuration.criterion)

    def transferred(self, **changes: Any) -> Self:
        """Returns a model for another task; see `ImageModel.transferred`."""
        model: Self = transfer(self, changes)
        return model

    def _copy_blocks(self, encoder: Any, decoders: Sequence[Any]) -> None:
        """A block for each layer, of prototypes, the last of which serves all further layers."""
        encoder_layers, decoder_layers = self.configuration.num_layers
        self.encoder_blocks = [encoder.copy(self, f"encoder_{i}", i) for i in range(encoder_layers)]
        self.decoder_blocks = [
            decoders[min(i, len(decoders) - 1)].copy(self, f"decoder_{i}", i)
            for i in range(decoder_layers)
        ]

    def _norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(epsilon=1e-5, name=name, dtype=self.dtype_policy)

    def _heads(self, name: str) -> Heads:
        return Heads(
            self.configuration.num_classes,
            self.criterion.classification == "focal",
            self.configuration.hidden_dim,
            self.queries.boxes,
            name=name,
            dtype=self.dtype_policy,
        )

    def _shape_of_images(self, images_shape: Any) -> Shape:
        """Returns the shape of images that `build` received, checked, and keeps their channels."""
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
        classes = self.configuration.num_classes + (self.criterion.classification != "focal")
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
