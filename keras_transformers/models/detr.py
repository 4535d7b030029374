"""DETR (Carion et al. 2020) and Conditional DETR (Meng et al. 2021)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.core.types import Config, LayerOptions, Part, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import relative_coordinates
from keras_transformers.layers.parts import part, serialized_parts
from keras_transformers.models.detr_queries import (
    AnchorQueries,
    LearnedQueries,
    Memory,
    ObjectQueries,
    ProposalQueries,
    ReferenceQueries,
)
from keras_transformers.models.set_detector import (
    NUMBERS,
    BackboneName,
    FeatureMap,
    SetDetector,
    SetDetectorConfiguration,
    as_feature_map,
    block_prototypes,
    default_blocks,
    mask_of_map,
    pair_of_layers,
    parts_of_variant,
    serialized_criterion,
)

# Carion et al. 2020, section 4.
PAPER: dict[str, Any] = {
    "backbone": "50",
    "feature": None,
    "hidden_dim": 256,
    **NUMBERS,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "num_queries": 100,
    "queries": "learned",
    "norm_first": False,
    "max_wavelength": 10000.0,
}
# A smaller one for small data was measured on the embedded tree crowns.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
        **PAPER,
        "backbone": "mini",
        "hidden_dim": 128,
        "num_heads": 4,
        "mlp_dim": 256,
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "num_queries": 40,
        "queries": "proposals",
        "norm_first": True,
        "dropout": 0.0,
        "max_wavelength": 20.0,
        "criterion": {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0},
    },
    "R50": PAPER,
    "R101": {**PAPER, "backbone": "101"},
}
QUERIES = {"learned": LearnedQueries, "anchors": AnchorQueries, "proposals": ProposalQueries}
QUERIES |= {"references": ReferenceQueries}
# What an argument of the constructor takes the place of, where it is given whole.
FLAT = {
    "backbone": ("feature", "max_wavelength"),
    "num_layers": ("num_encoder_layers", "num_decoder_layers"),
    "queries": ("num_queries",),
    "blocks": ("num_heads", "mlp_dim", "dropout", "norm_first"),
}


class DETROptions(LayerOptions, total=False):
    """The keyword arguments of `DETR.from_variant`; see there, and `DETR`."""

    backbone: BackboneName | keras.Model | FeatureMap | Config
    feature: str | None
    hidden_dim: int
    num_heads: int
    mlp_dim: int
    num_layers: int | tuple[int, int] | None
    num_encoder_layers: int
    num_decoder_layers: int
    queries: Literal["learned", "anchors", "proposals", "references"] | int | ObjectQueries | Config
    num_queries: int
    norm_first: bool
    dropout: float
    blocks: Sequence[Part] | None
    max_wavelength: float
    criterion: SetCriterion | dict[str, Any] | None


def arguments_of_variant(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of a published size with changes, flat ones or parts.

    Raises:
        ValueError: If there is no such variant or kind of queries, or the changes have both a part
            and numbers that make it.
    """
    settings, numbers = parts_of_variant(
        "DETR", name, changes, VARIANTS, DETROptions, FLAT, QUERIES, FeatureMap
    )
    if numbers is not None and numbers.pop("norm_first"):
        references = getattr(settings["queries"], "references", False)
        settings["blocks"] = default_blocks(**numbers, norm_first=True, references=references)
    elif numbers is not None:
        settings |= numbers
    return settings


@keras.saving.register_keras_serializable("keras_transformers")
class DETR(SetDetector):
    """Detection Transformer (Carion et al. 2020, https://arxiv.org/abs/2005.12872).

    A backbone's last map, a 1 x 1 convolution to `hidden_dim`, encoder blocks over its positions,
    2-D encodings of which are added to queries and keys of every attention, and decoder blocks over
    a set of object queries; each gives class logits and a box, after every decoder block. `fit`
    matches them one to one with the true boxes (`detection.SetCriterion`). No anchors to tune,
    nothing to suppress.

    Args:
        num_classes: Number of classes.
        backbone: "mini", "18", "34", "50" or "101" of `ResNet` ("50" and "101" with frozen batch
            norms, as in the paper); a Keras model, `Swin`, `PVT`, `MViT`, `ViT`, `ResNet` or for
            instance `keras.applications.ResNet50(include_top=False)`; or a `FeatureMap`, which says
            which of its maps is read. A model given is used itself, weights included.
        hidden_dim: Width of every token (D); a multiple of 8.
        num_heads: Heads of every attention; must divide `hidden_dim`. 8 unless `blocks` are given.
        mlp_dim: Width of the feed-forward networks. 2048 unless `blocks` are given.
        num_layers: Number of blocks of encoder and decoder each, or a pair of both.
        queries: Number of `LearnedQueries`, the most boxes that are found in an image; or
            `AnchorQueries(100)`, `ReferenceQueries(300)` (Conditional DETR) or
            `ProposalQueries(100)`, which learn in less time. Copied.
        dropout: Rate on every residual branch. 0.1 unless `blocks` are given.
        blocks: What stands in the place of the post-norm blocks that those three numbers make: a
            pair of an `EncoderBlock` and a `DecoderBlock(..., causal=False)`
            (`ConditionalDecoderBlock` for `ReferenceQueries`), copied for each layer; or three,
            of which the second is the decoder's first alone. A norm follows pre-norm encoders.
        criterion: A `detection.SetCriterion`, or a dict of its arguments.

    Call arguments:
        images: `(batch, height, width, channels)`, floating; or a dict of `images` and
            `padding_mask`, bool `(batch, height, width)`, True where a pixel belongs to the
            image.
        training: Whether dropout acts.

    Returns:
        Dict of `logits` `(batch, num_queries, num_classes)`, with one class more, the last, for "no
        object" where the criterion's classification is "softmax"; `boxes` `(batch, num_queries,
        4)`, centre boxes as shares of the (padded) image; and `auxiliary_logits` and
        `auxiliary_boxes` `(batch, layers, num_queries, ...)`, of the layers before the last, the
        proposals first where there are some. `detection.best_answers` makes answers of them.

    Raises:
        ValueError: If a size is not positive, blocks and numbers of theirs are both given or the
            blocks do not fit, or there are fewer positions than proposals.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.layers import DecoderBlock, EncoderBlock, GatedFeedForward
    >>> from keras_transformers.models import DETR, ProposalQueries
    >>> model = DETR.from_variant("mini", num_classes=3)
    >>> found = model(np.zeros((2, 128, 160, 3), "float32"))
    >>> tuple(found["logits"].shape), tuple(found["boxes"].shape)
    ((2, 40, 3), (2, 40, 4))
    >>> gated = {"num_heads": 4, "feed_forward": GatedFeedForward(96, "silu"), "norm_first": True}
    >>> blocks = EncoderBlock(**gated), DecoderBlock(**gated, causal=False)
    >>> model = DETR(3, "mini", 64, num_layers=(1, 2), queries=ProposalQueries(20), blocks=blocks)
    >>> tuple(model(np.zeros((2, 128, 160, 3), "float32"))["boxes"].shape)
    (2, 20, 4)
    """

    variant_keywords = DETROptions.__annotations__

    anew = ("heads/class_head", "proposal_heads/class_head")

    def __init__(
        self,
        num_classes: int,
        backbone: BackboneName | keras.Model | FeatureMap | Config = "50",
        hidden_dim: int = 256,
        num_heads: int | None = None,
        mlp_dim: int | None = None,
        num_layers: int | Sequence[int] = 6,
        queries: int | ObjectQueries | Config = 100,
        dropout: float | None = None,
        blocks: Sequence[Part] | None = None,
        criterion: SetCriterion | dict[str, Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(as_feature_map(backbone, kwargs.get("dtype")), **kwargs)
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
                criterion=serialized_criterion(criterion),
            )
        )
        self.input_projection = keras.layers.Dense(
            hidden_dim, name="input_projection", dtype=self.dtype_policy
        )
        numbers = {"num_heads": num_heads, "mlp_dim": mlp_dim, "dropout": dropout}
        given = LearnedQueries(queries) if isinstance(queries, int) else queries
        made = part(self, "queries", given, ObjectQueries)
        encoder, *decoders = block_prototypes(self, blocks, numbers, made.references)
        self._copy_blocks(encoder, decoders)
        pre_norm = getattr(encoder.layer, "norm_first", False)
        self.encoder_norm = self._norm("encoder_norm") if pre_norm else None
        self.decoder_norm = self._norm("decoder_norm")
        self.queries: Any = made
        self.heads = self._heads("heads")
        self.proposal_heads = self._heads("proposal_heads") if self.queries.proposes else None

    @classmethod
    def from_variant(
        cls,
        name: Literal["mini", "R50", "R101"],
        /,
        num_classes: int = 91,
        **changes: Unpack[DETROptions],
    ) -> Self:
        """A model of a published size, or the small one.

        Parameters for the 91 class numbers of COCO: "R50" 41.5 M, "R101" 60.5 M.

        Args:
            name: "mini" (1.3 M, proposals, for small data), "R50" or "R101".
            num_classes: Number of classes.
            **changes: Any constructor argument, instead of the variant's; `queries` can be
                "learned", "anchors", "references" or "proposals" too. And what such arguments are
                made of: `num_queries`; `feature` and `max_wavelength` of the `FeatureMap`;
                `num_encoder_layers` and `num_decoder_layers`; and `norm_first` of the blocks.

        Raises:
            ValueError: If there is no such variant, or a part and what it is made of are both
                given.
        """
        return cls(num_classes, **arguments_of_variant(name, changes))

    def build(self, images_shape: Any) -> None:
        width = self.feature_map.build(self._shape_of_images(images_shape), self.compute_dtype)
        self.input_projection.build((None, None, None, width))
        width = self.configuration.hidden_dim
        tokens, found = (None, None, width), (None, self.queries.num_queries, width)
        for block in self.encoder_blocks:
            block.build(tokens)
        for block in self.decoder_blocks:
            block.build(found, tokens)
        if self.encoder_norm is not None:
            self.encoder_norm.build(tokens)
        self.decoder_norm.build(found)
        self.queries.build(tokens)
        for heads in (self.heads, self.proposal_heads):
            if heads is not None:
                heads.build(found)

    def _encode(
        self, images: Tensor, mask: Tensor | None, training: bool | None
    ) -> tuple[Memory, Tensor]:
        """The encoded map, and the encoding of its positions, `(batch or 1, positions, width)`."""
        x = self.input_projection(self.feature_map(images, training))
        _, rows, columns, width = ops.shape(x)  # (batch, rows, columns, hidden_dim)
        coordinates = relative_coordinates(mask_of_map(mask, rows, columns))
        positions = self.feature_map.encode(coordinates, width)
        x, positions = (ops.reshape(y, (-1, rows * columns, width)) for y in (x, positions))
        if mask is not None:
            mask = ops.reshape(mask_of_map(mask, rows, columns), (-1, rows * columns))
        for block in self.encoder_blocks:
            x = block(x, padding_mask=mask, positions=positions, training=training)
        x = x if self.encoder_norm is None else self.encoder_norm(x)
        return Memory(x, mask, coordinates), positions

    def _decode(
        self, memory: Memory, positions: Tensor, training: bool | None
    ) -> tuple[Tensor, Tensor]:
        x, boxes, proposed = self.queries.start(memory, self.proposal_heads)
        layers = [] if proposed is None else [proposed]
        for i, block in enumerate(self.decoder_blocks):
            x = block(
                x,
                memory.tokens,
                context_mask=memory.mask,
                context_positions=positions,
                training=training,
                **self.queries.options_of_block(i, x, boxes, self.feature_map.encode),
            )
            logits, moved = self.heads(self.decoder_norm(x))
            moved = moved if boxes is None else moved + boxes
            layers.append((logits, moved))
            boxes = self.queries.next_boxes(boxes, moved)
        logits, boxes = (ops.stack(values, axis=1) for values in zip(*layers, strict=True))
        return logits, boxes
