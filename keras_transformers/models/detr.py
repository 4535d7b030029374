"""The detection Transformer of Carion et al. 2020, and what makes it learn from few images."""

import dataclasses
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import LayerOptions, Part, Shape, Tensor
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import DecoderBlock, EncoderBlock
from keras_transformers.models.detr_backbone import Backbone
from keras_transformers.models.detr_queries import QUERIES, ObjectQueries
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    check_sizes,
    keeps_settings,
    variant,
)
from keras_transformers.models.transfer import Transferable

# Carion et al. 2020, section 4; a smaller one for small data, measured on the embedded tree crowns.
VARIANTS: dict[str, dict[str, Any]] = {
    "mini": {
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
    "R50": {"backbone": "50"},
    "R101": {"backbone": "101"},
}


def serialized_criterion(criterion: SetCriterion | dict[str, Any] | None) -> dict[str, Any]:
    """A `SetCriterion`, or a dict of its arguments, or None, as such a dict."""
    if isinstance(criterion, SetCriterion):
        return dataclasses.asdict(criterion)
    return criterion or {}


@keras.saving.register_keras_serializable("keras_transformers")
class DETR(Transferable, Backbone, ObjectQueries):
    """Detection Transformer (Carion et al. 2020, https://arxiv.org/abs/2005.12872).

    A backbone's last map, a 1 x 1 convolution to `hidden_dim`, encoder blocks over its positions,
    2-D encodings of which are added to queries and keys of every attention, and decoder blocks over
    a set of object queries; each gives class logits and a box, after every decoder block. `fit`
    matches them one to one with the true boxes (`detection.SetCriterion`). No anchors to tune,
    nothing to suppress.

    The queries are "learned" vectors, as in that paper; "anchors", learned boxes that every decoder
    block moves, their positions being the queries' (Liu et al. 2022,
    https://arxiv.org/abs/2201.12329); or "proposals", such boxes that the image itself proposes:
    every position of the encoded map gives one, and the best are taken and trained like a layer of
    the decoder (two stages: Zhu et al. 2021, https://arxiv.org/abs/2010.04159, section 4.2).
    Proposals learn in a hundredth of the time.

    Args:
        num_classes: Number of classes.
        backbone: "mini", "18", "34", "50" or "101" of `ResNet` ("50" and "101" with frozen batch
            norms, as in the paper); a model with `features`, `Swin`, `PVT`, `MViT`, `ViT` or
            `ResNet`; or any Keras model from images to a map `(batch, rows, columns, width)`, for
            instance `keras.applications.ResNet50(include_top=False)`. A model given is used itself,
            weights included.
        feature: Which of the backbone's features, for instance "stride_16"; the last by default.
        hidden_dim: Width of every token (D); a multiple of 8.
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_encoder_layers, num_decoder_layers: Number of blocks.
        num_queries: Most boxes that are found in an image.
        queries: "learned", "anchors" or "proposals".
        norm_first: Whether blocks are pre-norm.
        dropout: Rate on every residual branch.
        max_wavelength: Of the positions.
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
        ValueError: If a size is not positive, a choice unknown, or there are fewer positions than
            `num_queries` proposals.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DETR
    >>> model = DETR.from_variant("mini", num_classes=3)
    >>> found = model(np.zeros((2, 128, 160, 3), "float32"))
    >>> tuple(found["logits"].shape), tuple(found["boxes"].shape)
    ((2, 40, 3), (2, 40, 4))
    """

    anew = ("class_head", "proposal_class_head")

    @keeps_settings(backbone=None, criterion=serialized_criterion)
    def __init__(
        self,
        num_classes: int,
        backbone: Literal["mini", "18", "34", "50", "101"] | Part = "50",
        feature: str | None = None,
        hidden_dim: int = 256,
        num_heads: int = 8,
        mlp_dim: int = 2048,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_queries: int = 100,
        queries: Literal["learned", "anchors", "proposals"] = "learned",
        norm_first: bool = False,
        dropout: float = 0.1,
        max_wavelength: float = 10000.0,
        criterion: SetCriterion | dict[str, Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._check_settings()
        self.criterion = SetCriterion(**self._settings["criterion"])
        self._make_backbone(backbone)
        self.encoder_blocks = [
            self._block(EncoderBlock, f"encoder_{i}") for i in range(num_encoder_layers)
        ]
        self.decoder_blocks = [
            self._block(DecoderBlock, f"decoder_{i}", causal=False)
            for i in range(num_decoder_layers)
        ]
        self.encoder_norm = self._norm("encoder_norm") if norm_first else None
        self._make_heads()

    def _check_settings(self) -> None:
        settings = self._settings
        sizes = ["num_classes", "hidden_dim", "num_heads", "mlp_dim", "num_queries"]
        check_sizes("DETR", settings, [*sizes, "num_encoder_layers", "num_decoder_layers"])
        check_divides("DETR", settings, "num_heads", "hidden_dim")
        check_choice("DETR", settings, "queries", QUERIES)
        if settings["hidden_dim"] % 8:
            raise ValueError(
                "DETR: `hidden_dim` must be a multiple of 8, for a sine and a cosine of each "
                f"coordinate of a box. Received: {settings['hidden_dim']}"
            )

    def _block(self, block: Any, name: str, **kwargs: Any) -> Any:
        settings = self._settings
        return block(
            settings["num_heads"],
            settings["mlp_dim"],
            dropout=settings["dropout"],
            norm_first=settings["norm_first"],
            norm=self._norm("norm"),
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )

    @classmethod
    def from_variant(
        cls, name: Literal["mini", "R50", "R101"], num_classes: int = 91, **changes: Any
    ) -> Self:
        """A model of a published size, or the small one.

        Parameters for the 91 class numbers of COCO: "R50" 41.5 M, "R101" 60.5 M.

        Args:
            name: "mini" (1.3 M, proposals, for small data), "R50" or "R101".
            num_classes: Number of classes.
            **changes: Any constructor argument, instead of the variant's.

        Raises:
            ValueError: If there is no such variant.
        """
        return cls(num_classes, **variant("DETR", name, VARIANTS, changes))

    def build(self, images_shape: Any) -> None:
        self._build_backbone(images_shape)
        width, queries = self._settings["hidden_dim"], self._settings["num_queries"]
        tokens = (None, None, width)
        for block in self.encoder_blocks:
            block.build(tokens)
        for block in self.decoder_blocks:
            block.build((None, queries, width), tokens)
        if self.encoder_norm is not None:
            self.encoder_norm.build(tokens)
        self._build_heads()
        self._build_queries()

    def call(
        self, images: Tensor | dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        images, mask = self._inputs(images)
        memory, positions, mask, coordinates = self._memory(images, mask, training)
        for block in self.encoder_blocks:
            memory = block(memory, padding_mask=mask, positions=positions, training=training)
        memory = memory if self.encoder_norm is None else self.encoder_norm(memory)
        layers = self._decode(memory, positions, mask, coordinates, training)
        logits, boxes = (ops.stack(values, axis=1) for values in zip(*layers, strict=True))
        return {
            "logits": logits[:, -1],
            "boxes": boxes[:, -1],
            "auxiliary_logits": logits[:, :-1],
            "auxiliary_boxes": boxes[:, :-1],
        }

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
        return self.criterion(logits, boxes, y["labels"], y["boxes"], sample_weight)

    def _shape_to_build(self, model: keras.Model) -> Shape:
        return (None, None, None, self.channels)

    def compute_output_shape(self, images_shape: Any) -> dict[str, Shape]:
        if isinstance(images_shape, dict):
            images_shape = images_shape["images"]
        settings = self._settings
        batch, queries = images_shape[0], settings["num_queries"]
        classes = settings["num_classes"] + (self.criterion.classification == "softmax")
        layers = settings["num_decoder_layers"] - 1 + (settings["queries"] == "proposals")
        return {
            "logits": (batch, queries, classes),
            "boxes": (batch, queries, 4),
            "auxiliary_logits": (batch, layers, queries, classes),
            "auxiliary_boxes": (batch, layers, queries, 4),
        }
