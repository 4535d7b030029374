"""Deformable DETR (Zhu et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Config, LayerOptions, Part, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import DeformableDecoderBlock, DeformableEncoderBlock
from keras_transformers.layers.parts import Prototype, arguments_of_call, part, serialized_parts
from keras_transformers.models.base import refuse_beside
from keras_transformers.models.detr_queries import DeformableQueries, PointProposals, PointQueries
from keras_transformers.models.set_detector import (
    BackboneName,
    FeatureMaps,
    LevelMemory,
    Levels,
    SetDetector,
    SetDetectorConfiguration,
    as_feature_maps,
    pair_of_layers,
    parts_of_variant,
    serialized_criterion,
)

# Zhu et al. 2021, section 5 and appendix A.4.
NUMBERS: dict[str, Any] = {"num_heads": 8, "mlp_dim": 1024, "dropout": 0.1}
FOCAL: dict[str, Any] = {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0}
PAPER: dict[str, Any] = {
    "backbone": "50",
    "features": None,
    "num_levels": 4,
    "max_wavelength": 10000.0,
    "hidden_dim": 256,
    **NUMBERS,
    "num_points": 4,
    "norm_first": False,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "queries": "points",
    "num_queries": 300,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
        **PAPER,
        "backbone": "mini",
        "num_levels": 3,
        "max_wavelength": 20.0,
        "hidden_dim": 128,
        "num_heads": 4,
        "mlp_dim": 256,
        "dropout": 0.0,
        "norm_first": True,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "queries": "proposals",
        "num_queries": 40,
    },
    "R50": PAPER,
    "R101": {**PAPER, "backbone": "101"},
}
QUERIES: dict[str, Any] = {
    "points": PointQueries,
    "refined": lambda num_queries: PointQueries(num_queries, refine=True),
    "proposals": PointProposals,
}
# What a block of the encoder, and one of the decoder, is called with.
OF_ENCODER = {"reference_points", "level_shapes", "padding_mask", "positions"}
OF_DECODER = {"context", "context_mask", "reference_points", "level_shapes", "positions"}
# What an argument of the constructor takes the place of, where it is given whole.
FLAT = {
    "backbone": ("features", "num_levels", "max_wavelength"),
    "num_layers": ("num_encoder_layers", "num_decoder_layers"),
    "queries": ("num_queries",),
    "blocks": ("num_heads", "mlp_dim", "dropout", "num_points", "norm_first"),
}


class DeformableDETROptions(LayerOptions, total=False):
    """The keyword arguments of `DeformableDETR.from_variant`; see there, and `DeformableDETR`."""

    backbone: BackboneName | keras.Model | FeatureMaps | Config
    features: Sequence[str] | None
    num_levels: int
    max_wavelength: float
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_points: int
    norm_first: bool
    dropout: float
    num_layers: int | tuple[int, int] | None
    num_encoder_layers: int
    num_decoder_layers: int
    queries: Literal["points", "refined", "proposals"] | int | DeformableQueries | Config
    num_queries: int
    blocks: Sequence[Part] | None
    criterion: SetCriterion | dict[str, Any] | None


def arguments_of_variant(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a published size with changes, flat ones or parts.

    Raises:
        ValueError: If there is no such variant or kind of queries, or the changes have both a part
            and numbers that make it.
    """
    settings, numbers = parts_of_variant(
        "DeformableDETR", name, changes, VARIANTS, DeformableDETROptions, FLAT, QUERIES, FeatureMaps
    )
    if numbers is not None:
        levels = getattr(settings["backbone"], "num_levels", 4)
        settings["blocks"] = default_blocks(num_levels=levels, **numbers)
    return settings


def default_blocks(
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    dropout: float | None = None,
    num_levels: int = 4,
    num_points: int = 4,
    norm_first: bool = False,
) -> tuple[Part, ...]:
    """The blocks of the encoder and of the decoder; as in the paper where a number is None."""
    given = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
    settings: dict[str, Any] = {
        name: NUMBERS[name] if x is None else x for name, x in given.items()
    }
    settings |= {"num_levels": num_levels, "num_points": num_points, "norm_first": norm_first}
    settings["norm"] = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
    return DeformableEncoderBlock(**settings), DeformableDecoderBlock(**settings)


def block_prototypes(
    owner: Any, blocks: Any, numbers: dict[str, Any], num_levels: int
) -> tuple[Prototype, Prototype]:
    """Returns the prototypes of both kinds of blocks: the given ones, or those of the numbers.

    Raises:
        ValueError: If both were given, or `blocks` are none that can be called as they must, or
            know of another number of levels.
    """
    if blocks is None:
        blocks = default_blocks(**numbers, num_levels=num_levels)
    else:
        refuse_beside("DeformableDETR", "blocks", **numbers)
    several = blocks if isinstance(blocks, list | tuple) else [blocks]
    made = [Prototype(owner, "blocks", each, keras.layers.Layer) for each in several]
    takes = [arguments_of_call(each.layer) for each in made]
    if len(made) != 2 or not (takes[0] >= OF_ENCODER and takes[1] >= OF_DECODER):
        names = ", ".join(type(each.layer).__name__ for each in made)
        raise ValueError(
            "DeformableDETR: `blocks` must be a pair of a DeformableEncoderBlock and a "
            f"DeformableDecoderBlock. Received: {names}"
        )
    levels = {getattr(each.layer, "num_levels", num_levels) for each in made}
    if levels != {num_levels}:
        raise ValueError(
            f"DeformableDETR: `blocks` must have num_levels={num_levels}, as `backbone` has. "
            f"Received: {', '.join(map(str, sorted(levels)))}"
        )
    return made[0], made[1]


def _criterion(given: SetCriterion | dict[str, Any] | None) -> dict[str, Any]:
    return serialized_criterion(FOCAL if given is None else given)


@keras.saving.register_keras_serializable("keras_transformers")
class DeformableDETR(SetDetector):
    """Deformable DETR (Zhu et al. 2021, https://arxiv.org/abs/2010.04159).

    Several maps of a backbone, each through a projection to `hidden_dim` and a group norm, encoder
    blocks over the positions of all of them, and decoder blocks over a set of object queries. Where
    `DETR` compares every position with every other, each query, and each position, looks at
    `num_points` points of each map near a point of its own (`DeformableAttention`), so that small
    things can be looked for on fine maps, at a cost that grows with the positions and not with
    their square. On COCO the paper trains it in a tenth of the epochs of `DETR`.

    Args:
        num_classes: Number of classes.
        backbone: "mini", "18", "34", "50" or "101" of `ResNet` ("50" and "101" with frozen batch
            norms, as in the paper); a Keras model, as for `DETR`; or `FeatureMaps`, which say which
            of its maps are read and how many levels there are. A model given is used itself,
            weights included.
        hidden_dim: Width of every token (D); a multiple of 32.
        num_heads: Heads of every attention; must divide `hidden_dim`. 8 unless `blocks` are given.
        mlp_dim: Width of the feed-forward networks. 1024 unless `blocks` are given.
        num_layers: Number of blocks of encoder and decoder each, or a pair of both.
        queries: Number of `PointQueries`, the most boxes that are found in an image; or
            `PointQueries(300, refine=True)`, whose boxes every block moves, or
            `PointProposals(300)`, which the image proposes. Copied.
        dropout: Rate on every residual branch. 0.1 unless `blocks` are given.
        blocks: What stands in the place of the post-norm blocks that those three numbers make: a
            pair of a `DeformableEncoderBlock` and a `DeformableDecoderBlock`, copied for each
            layer. A norm follows pre-norm blocks.
        criterion: A `detection.SetCriterion`, or a dict of its arguments; that of the paper, with a
            focal loss, by default.

    Call arguments:
        images: `(batch, height, width, channels)`, floating; or a dict of `images` and
            `padding_mask`, bool `(batch, height, width)`, True where a pixel belongs to the
            image.
        training: Whether dropout acts.

    Returns:
        Dict of `logits`, `boxes`, `auxiliary_logits` and `auxiliary_boxes`, as of `DETR`.

    Raises:
        ValueError: If a size is not positive, blocks and numbers of theirs are both given or the
            blocks do not fit, or there are fewer positions than proposals.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DeformableDETR
    >>> model = DeformableDETR.from_variant("mini", num_classes=3)
    >>> found = model(np.zeros((2, 64, 96, 3), "float32"))
    >>> tuple(found["logits"].shape), tuple(found["boxes"].shape)
    ((2, 40, 3), (2, 40, 4))
    """

    variant_keywords = DeformableDETROptions.__annotations__

    def __init__(
        self,
        num_classes: int,
        backbone: BackboneName | keras.Model | FeatureMaps | Config = "50",
        hidden_dim: int = 256,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        num_layers: int | Sequence[int] = 6,
        queries: int | DeformableQueries | Config = 300,
        dropout: float | None = None,
        blocks: Sequence[Part] | None = None,
        criterion: SetCriterion | dict[str, Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(as_feature_maps(backbone, kwargs.get("dtype")), **kwargs)
        self._configure(
            SetDetectorConfiguration(
                num_classes=num_classes,
                hidden_dim=hidden_dim,
                num_heads=num_heads,
                mlp_dim=mlp_dim,
                num_layers=pair_of_layers(num_layers),
                queries=serialized_parts(queries),
                dropout=dropout,
                blocks=serialized_parts(blocks),
                criterion=_criterion(criterion),
            )
        )
        levels = self.feature_map.num_levels
        self.levels = Levels(hidden_dim, levels, name="levels", dtype=self.dtype_policy)
        numbers = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
        encoder, decoder = block_prototypes(self, blocks, numbers, levels)
        self._copy_blocks(encoder, [decoder])
        self.encoder_norm = self._closing_norm(encoder.layer, "encoder_norm")
        self.decoder_norm = self._closing_norm(decoder.layer, "decoder_norm")
        given = PointQueries(queries) if isinstance(queries, int) else queries
        self.queries: Any = part(self, "queries", given, DeformableQueries)
        refined = getattr(self.queries, "refine", False)
        names = [f"heads_{i}" for i in range(len(self.decoder_blocks))] if refined else ["heads"]
        self.heads = [self._heads(name) for name in names]
        self.proposal_heads = self._heads("proposal_heads") if self.queries.proposes else None
        self.anew = tuple(f"{name}/class_head" for name in (*names, "proposal_heads"))

    def _closing_norm(self, block: Any, name: str) -> Any:
        return self._norm(name) if getattr(block, "norm_first", False) else None

    @classmethod
    def from_variant(
        cls,
        name: Literal["mini", "R50", "R101"],
        /,
        num_classes: int = 91,
        **changes: Unpack[DeformableDETROptions],
    ) -> Self:
        """A model of a published size, or a small one.

        Parameters for the 91 class numbers of COCO: "R50" 40.2 M, with refinement 41.0 M, with
        proposals 41.3 M; "R101" 59.2 M.

        Args:
            name: "mini" (proposals, for small data), "R50" or "R101".
            num_classes: Number of classes.
            **changes: Any constructor argument, instead of the variant's; `queries` can be
                "points", "refined" or "proposals" too. And what such arguments are made of:
                `num_queries`; `features`, `num_levels` and `max_wavelength` of the `FeatureMaps`;
                `num_encoder_layers` and `num_decoder_layers`; and `num_points` and `norm_first` of
                the blocks.

        Raises:
            ValueError: If there is no such variant, or a part and what it is made of are both
                given.
        """
        return cls(num_classes, **arguments_of_variant(name, changes))

    def build(self, images_shape: Any) -> None:
        widths = self.feature_map.build(self._shape_of_images(images_shape), self.compute_dtype)
        self.levels.build([(None, None, None, width) for width in widths])
        width = self.configuration.hidden_dim
        tokens, found = (None, None, width), (None, self.queries.num_queries, width)
        for block in self.encoder_blocks:
            block.build(tokens)
        for block in self.decoder_blocks:
            block.build(found, tokens)
        for layer in (self.encoder_norm, self.decoder_norm, self.proposal_heads, *self.heads):
            if layer is not None:
                layer.build(found)
        self.queries.build(tokens)

    def _encode(
        self, images: Tensor, mask: Tensor | None, training: bool | None
    ) -> tuple[LevelMemory, None]:
        """The encoded maps; their positions are no concern of the decoder."""
        maps = self.levels(self.feature_map(images, training))
        memory, positions = self.levels.memory(maps, mask, self.feature_map.encode)
        x, points = memory.tokens, memory.on_levels(memory.boxes[..., :2])
        points = ops.broadcast_to(points, (ops.shape(x)[0], *ops.shape(points)[1:]))
        for block in self.encoder_blocks:
            x = block(
                x,
                points,
                level_shapes=memory.shapes,
                positions=positions,
                padding_mask=memory.mask,
                training=training,
            )
        x = x if self.encoder_norm is None else self.encoder_norm(x)
        return memory._replace(tokens=x), None

    def _decode(
        self, memory: LevelMemory, positions: None, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        x, boxes, proposed, codes = self.queries.start(memory, self.proposal_heads)
        layers = [] if proposed is None else [proposed]
        for i, block in enumerate(self.decoder_blocks):
            x = block(
                x,
                memory.tokens,
                memory.on_levels(self.queries.points(i, boxes)),
                level_shapes=memory.shapes,
                positions=codes,
                context_mask=memory.mask,
                training=training,
            )
            y = x if self.decoder_norm is None else self.decoder_norm(x)
            logits, moved = self.heads[min(i, len(self.heads) - 1)](y)
            layers.append((logits, moved + boxes))
            boxes = self.queries.next_boxes(boxes, moved + boxes)
        logits, boxes = (ops.stack(values, axis=1) for values in zip(*layers, strict=True))
        return logits, boxes

    def _loss(self, logits: Tensor, boxes: Tensor, y: Any, sample_weight: Any) -> Tensor:
        if not self.queries.proposes:
            return super()._loss(logits, boxes, y, sample_weight)
        # A proposal is one of an object of whatever class, which the first class stands for.
        objects = {**y, "labels": ops.minimum(y["labels"], 0)}
        proposed = super()._loss(logits[:1], boxes[:1], objects, sample_weight)
        return proposed + super()._loss(logits[1:], boxes[1:], y, sample_weight)
