"""The base of detectors that predict sets: configuration, variants, heads, training."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Config, LayerOptions, Part, Shape, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import (
    ConditionalDecoderBlock,
    DecoderBlock,
    EncoderBlock,
    FirstConditionalDecoderBlock,
)
from keras_transformers.layers.base import BaseLayer
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
from keras_transformers.models.detr_backbone import images_and_mask, residual_network
from keras_transformers.models.image_model import check_images, check_images_shape

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
