"""The detection Transformer of Carion et al. 2020, and what makes it learn from few pictures."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, Self, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Index, LayerOptions, Part, Shape, Tensor
from keras_transformers.assertions import at_most, require, same
from keras_transformers.detection import SetCriterion
from keras_transformers.layers import (
    DecoderBlock,
    EncoderBlock,
    relative_places,
    sinusoidal_coordinates,
)
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.masks import as_mask, hide_padding
from keras_transformers.models.image_model import check_images, check_images_shape
from keras_transformers.models.resnet import VARIANTS as BACKBONES
from keras_transformers.models.resnet import ResNet
from keras_transformers.models.settings import (
    check_choice,
    check_divides,
    check_sizes,
    take_over,
    variant,
)

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
QUERIES = ("learned", "anchors", "proposals")
PROPOSAL_SIZE = 0.2  # of a proposal's box before it is moved, as a share of the picture


class _Network(Composite, keras.layers.Layer):
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


@keras.saving.register_keras_serializable("keras_transformers")
class DETR(Arguments, Composite, keras.Model):
    """Detection Transformer (Carion et al. 2020, https://arxiv.org/abs/2005.12872).

    A backbone's last map, a 1 x 1 convolution to `hidden_dim`, encoder blocks over its places with
    2-D positions added to queries and keys of every attention, decoder blocks over a set of object
    queries; each gives class logits and a box, after every decoder block. `fit` matches them one to
    one with the true boxes (`detection.SetCriterion`). No anchors to tune, nothing to suppress.

    The queries are "learned" vectors, as in that paper; "anchors", learned boxes that every decoder
    block moves, their positions being the queries' (Liu et al. 2022,
    https://arxiv.org/abs/2201.12329); or "proposals", such boxes that the picture itself proposes:
    every place of the encoded map gives one, and the best are taken and trained like a layer of the
    decoder (two stages: Zhu et al. 2021, https://arxiv.org/abs/2010.04159, section 4.2). Proposals
    learn in a hundredth of the time.

    Args:
        num_classes: Number of classes.
        backbone: "mini", "18", "34", "50" or "101" of `ResNet` ("50" and "101" with frozen batch
            norms, as in the paper); a model with `features`, `Swin`, `PVT`, `MViT`, `ViT` or
            `ResNet`; or any Keras model from pictures to a map `(batch, rows, columns, width)`, for
            instance `keras.applications.ResNet50(include_top=False)`. A model given is used itself,
            weights included.
        feature: Which of the backbone's features, for instance "stride_16"; the last by default.
        hidden_dim: Width of every token (D); a multiple of 8.
        num_heads: Heads of every attention; must divide `hidden_dim`.
        mlp_dim: Width of the feed-forward networks.
        num_encoder_layers, num_decoder_layers: Number of blocks.
        num_queries: Most boxes that are found in a picture.
        queries: "learned", "anchors" or "proposals".
        norm_first: Whether blocks are pre-norm.
        dropout: Rate on every residual branch.
        max_wavelength: Of the positions.
        criterion: A `detection.SetCriterion`, or a dict of its arguments.

    Call arguments:
        images: `(batch, height, width, channels)`, floating; or a dict of `images` and
            `padding_mask`, bool `(batch, height, width)`, True where a pixel belongs to the
            picture.
        training: Whether dropout acts.

    Returns:
        Dict of `logits` `(batch, num_queries, num_classes)`, with one class more, the last, for "no
        object" where the criterion's classification is "softmax"; `boxes` `(batch, num_queries,
        4)`, centre boxes as shares of the (padded) picture; and `auxiliary_logits` and
        `auxiliary_boxes` `(batch, layers, num_queries, ...)`, of the layers before the last, the
        proposals first where there are some. `detection.best_answers` makes answers of them.

    Raises:
        ValueError: If a size is not positive, a choice unknown, or there are fewer places than
            `num_queries` proposals.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DETR
    >>> model = DETR.from_variant("mini", num_classes=3)
    >>> found = model(np.zeros((2, 128, 160, 3), "float32"))
    >>> tuple(found["logits"].shape), tuple(found["boxes"].shape)
    ((2, 40, 3), (2, 40, 4))
    """

    def __init__(
        self, num_classes: int, backbone: Literal['mini', '18', '34', '50', '101'] | Part = "50",
        feature: str | None = None, hidden_dim: int = 256, num_heads: int = 8, mlp_dim: int = 2048,
        num_encoder_layers: int = 6, num_decoder_layers: int = 6, num_queries: int = 100,
        queries: Literal['learned', 'anchors', 'proposals'] = "learned", norm_first: bool = False,
        dropout: float = 0.1, max_wavelength: float = 10000.0,
        criterion: SetCriterion | dict[str, Any] | None = None, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        criterion = criterion or {}
        if isinstance(criterion, SetCriterion):
            criterion = dataclasses.asdict(criterion)
        self._settings: dict[str, Any] = {
            "num_classes": num_classes,
            "feature": feature,
            "hidden_dim": hidden_dim,
            "num_heads": num_heads,
            "mlp_dim": mlp_dim,
            "num_encoder_layers": num_encoder_layers,
            "num_decoder_layers": num_decoder_layers,
            "num_queries": num_queries,
            "queries": queries,
            "norm_first": norm_first,
            "dropout": dropout,
            "max_wavelength": max_wavelength,
            "criterion": criterion,
        }
        self._check_settings()
        self.criterion = SetCriterion(**criterion)
        self.backbone = self._backbone(backbone)
        self.input_projection = self._dense(hidden_dim, "input_projection")
        self.encoder_blocks = [
            self._block(EncoderBlock, f"encoder_{i}") for i in range(num_encoder_layers)
        ]
        self.decoder_blocks = [
            self._block(DecoderBlock, f"decoder_{i}", causal=False)
            for i in range(num_decoder_layers)
        ]
        self.encoder_norm = self._norm("encoder_norm") if norm_first else None
        self.decoder_norm = self._norm("decoder_norm")
        self.class_head = self._class_head("class_head")
        self.box_head = self._box_head("box_head")
        # Those that a kind of queries does not need stay None.
        self.place_network: Any = None
        self.proposal_network: Any = None
        self.proposal_norm: Any = None
        self.proposal_class_head: Any = None
        self.proposal_box_head: Any = None
        if queries != "learned":
            self.place_network = self._network("place_network", hidden_dim)
        if queries == "proposals":
            self.proposal_network = self._dense(hidden_dim, "proposal_network")
            self.proposal_norm = self._norm("proposal_norm")
            self.proposal_class_head = self._class_head("proposal_class_head")
            self.proposal_box_head = self._box_head("proposal_box_head")

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

    def _dense(self, units: int, name: str, **kwargs: Any) -> keras.layers.Dense:
        return keras.layers.Dense(units, name=name, dtype=self.dtype_policy, **kwargs)

    def _norm(self, name: str) -> keras.layers.Layer:
        return keras.layers.LayerNormalization(epsilon=1e-5, name=name, dtype=self.dtype_policy)

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

    def _class_head(self, name: str) -> keras.layers.Dense:
        # Few queries stand for something: with a sigmoid for each class, start from 1 in 100.
        focal = self.criterion.classification == "focal"
        bias = keras.initializers.Constant(-4.6 if focal else 0.0)
        return self._dense(
            self._settings["num_classes"] + (not focal), name, bias_initializer=bias
        )

    def _box_head(self, name: str) -> _Network:
        # Where boxes are moved, they start where they were.
        moved = self._settings["queries"] != "learned"
        kernel = keras.initializers.RandomNormal(stddev=1e-3) if moved else "glorot_uniform"
        return self._network(name, 4, hidden=2, kernel_initializer=kernel)

    def _network(self, name: str, units: int, hidden: int = 1, **kwargs: Any) -> _Network:
        width = self._settings["hidden_dim"]
        layers = [
            self._dense(width, f"hidden_{i}", activation="relu") for i in range(hidden)
        ]
        layers.append(self._dense(units, "output", **kwargs))
        return _Network(layers, name=name, dtype=self.dtype_policy)

    @classmethod
    def from_variant(
        cls, name: Literal['mini', 'R50', 'R101'], num_classes: int = 91, **changes: Any
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
        if isinstance(images_shape, dict):
            images_shape = images_shape["images"]
        check_images_shape(self, images_shape)
        self.channels = images_shape[-1]
        width, queries = self._settings["hidden_dim"], self._settings["num_queries"]
        if not self.backbone.built:
            self.backbone.build((None, *images_shape[1:]))
        # Of some size, where it is not known: the width of the map does not hang on it.
        sides = [side or 224 for side in images_shape[1:3]]
        some = keras.Input((*sides, images_shape[-1]), dtype=self.compute_dtype)
        self.input_projection.build((None, None, None, self._map(some).shape[-1]))
        tokens, found = (None, None, width), (None, queries, width)
        for block in self.encoder_blocks:
            block.build(tokens)
        for block in self.decoder_blocks:
            block.build(found, tokens)
        for layer in (self.encoder_norm, self.proposal_network, self.proposal_norm):
            if layer is not None:
                layer.build(tokens)
        for layer in (
            self.decoder_norm, self.class_head, self.box_head, self.proposal_class_head,
            self.proposal_box_head,
        ):
            if layer is not None:
                layer.build(found)
        if self.place_network is not None:
            self.place_network.build((None, queries, 2 * width))
        self._build_queries(queries, width)

    def _build_queries(self, queries: str, width: int) -> None:
        normal = keras.initializers.RandomNormal(stddev=1.0)
        kind = self._settings["queries"]
        self.query_embedding = self.add_weight(
            name="query_embedding", shape=(queries, width), initializer=normal
        )
        self.anchor_embedding = None
        if kind == "anchors":
            # Anywhere in the picture, before the sigmoid.
            anywhere = keras.initializers.RandomUniform(-2.0, 2.0)
            self.anchor_embedding = self.add_weight(
                name="anchor_embedding", shape=(queries, 4), initializer=anywhere
            )

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

    def call(
        self, images: Tensor | dict[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        images, mask = self._inputs(images)
        x = self._map(images, training)
        rows, columns = ops.shape(x)[1:3]
        x = self.input_projection(x)
        if mask is None:
            places = relative_places(ops.ones((1, rows, columns), "bool"))
        else:
            mask = _resized(mask, rows, columns)
            places = relative_places(mask)
            mask = ops.reshape(mask, (-1, rows * columns))
        positions = sinusoidal_coordinates(places, x.shape[-1], self._settings["max_wavelength"])
        positions = ops.reshape(positions, (-1, rows * columns, x.shape[-1]))
        memory = ops.reshape(x, (-1, rows * columns, x.shape[-1]))
        for block in self.encoder_blocks:
            memory = block(memory, padding_mask=mask, positions=positions, training=training)
        memory = memory if self.encoder_norm is None else self.encoder_norm(memory)
        layers = self._decode(memory, positions, mask, places, training)
        logits, boxes = (ops.stack(values, axis=1) for values in zip(*layers, strict=True))
        return {
            "logits": logits[:, -1],
            "boxes": boxes[:, -1],
            "auxiliary_logits": logits[:, :-1],
            "auxiliary_boxes": boxes[:, :-1],
        }

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

    def _decode(
        self, memory: Tensor, positions: Any, mask: Tensor | None, places: Tensor,
        training: bool | None
    ) -> list[tuple[Tensor, Tensor]]:
        """List of logits and boxes, of the proposals and after every decoder block."""
        batch, width = ops.shape(memory)[0], memory.shape[-1]
        embedding = ops.cast(self.query_embedding, memory.dtype)
        x = ops.broadcast_to(embedding, (batch, *embedding.shape))
        layers, reference, placed = [], None, None
        if self._settings["queries"] == "learned":
            x, placed = ops.zeros_like(x), embedding
        elif self._settings["queries"] == "anchors":
            reference = ops.cast(self.anchor_embedding, "float32")
            reference = ops.broadcast_to(reference, (batch, *reference.shape))
        else:
            logits, reference = self._propose(memory, mask, places)
            layers.append((logits, ops.cast(ops.sigmoid(reference), memory.dtype)))
            reference = ops.stop_gradient(reference)
        for block in self.decoder_blocks:
            if reference is not None:
                # y, x, height, width: the first half as the places of the map are encoded.
                coordinates = ops.take(ops.sigmoid(reference), [1, 0, 3, 2], axis=-1)
                table = sinusoidal_coordinates(
                    coordinates, 2 * width, self._settings["max_wavelength"]
                )
                placed = self.place_network(ops.cast(table, memory.dtype))
            x = block(
                x,
                memory,
                context_mask=mask,
                positions=placed,
                context_positions=positions,
                training=training,
            )
            y = self.decoder_norm(x)
            moved = ops.cast(self.box_head(y), "float32")
            moved = moved if reference is None else moved + reference
            layers.append((self.class_head(y), ops.cast(ops.sigmoid(moved), memory.dtype)))
            reference = None if reference is None else ops.stop_gradient(moved)
        return layers

    def _propose(
        self, memory: Tensor, mask: Tensor | None, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits and boxes (before the sigmoid) of the surest places of the map."""
        queries = self._settings["num_queries"]
        memory = require(
            memory,
            [at_most(queries, ops.shape(memory)[1])],
            f"DETR '{self.name}': pictures must have at least `num_queries`={queries} places on "
            "the backbone's map, for proposals.",
        )
        if mask is not None:  # or what is there counts where there are fewer places than queries
            memory = hide_padding(memory, mask)
        y = self.proposal_norm(self.proposal_network(memory))
        logits = self.proposal_class_head(y)
        if self.criterion.classification == "softmax":
            sure = -ops.log_softmax(ops.cast(logits, "float32"), axis=-1)[..., -1]
        else:
            sure = ops.max(ops.cast(logits, "float32"), axis=-1)
        if mask is not None:
            sure = ops.where(mask, sure, -1e9)
        _, best = ops.top_k(ops.stop_gradient(sure), queries)
        # Around the middle of its place, and of one size. `places` are lower and right borders.
        steps = ops.stack([places[:, :1, :1, 0], places[:, :1, :1, 1]], axis=-1) / 2
        centers = ops.flip(ops.reshape(places - steps, (-1, ops.shape(memory)[1], 2)), axis=-1)
        base = ops.concatenate([centers, ops.full_like(centers, PROPOSAL_SIZE)], axis=-1)
        base = ops.clip(base, 1e-3, 1 - 1e-3)
        base = ops.log(base / (1 - base))
        moved = base + ops.cast(self.proposal_box_head(y), "float32")
        return (
            ops.take_along_axis(logits, best[..., None], axis=1),
            ops.take_along_axis(moved, best[..., None], axis=1),
        )

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None,
        training: bool = True
    ) -> Tensor:
        """The criterion's loss of all layers; Keras calls it.

        `y` is a dict of `labels`, int `(batch, most)`, -1 where a picture has fewer boxes, and
        `boxes`, `(batch, most, 4)`, centre boxes as shares of the picture; `sample_weight`,
        `(batch,)`, weighs pictures (Keras makes a dict like `y` of it).
        """
        layers = [
            ops.moveaxis(
                ops.concatenate([y_pred[f"auxiliary_{name}"], y_pred[name][:, None]], axis=1), 1, 0
            )
            for name in ("logits", "boxes")
        ]
        logits, boxes = layers
        return self.criterion(logits, boxes, y["labels"], y["boxes"], sample_weight)

    def transferred(self, **changes: Any) -> Self:
        """A new model for other classes that starts from this one's weights.

        Args:
            **changes: Constructor arguments that differ, most often `num_classes`. Class heads of
                another size start anew.

        Returns:
            A built `DETR`.

        Raises:
            ValueError: If another weight gets another shape.

        Example:
        >>> from keras_transformers.models import DETR
        >>> model = DETR.from_variant("mini", num_classes=3)
        >>> model.build((None, 128, 128, 3))
        >>> model.transferred(num_classes=5).class_head.units
        5
        """
        model = type(self).from_config({**self.get_config(), **changes})
        model.build((None, None, None, self.channels))
        take_over(model, self, anew=("class_head", "proposal_class_head"))
        return model

    def compute_output_spec(self, images: Any, training: bool | None = None) -> Any:
        given = images["images"] if isinstance(images, dict) else images
        check_images(self, given, self.channels)
        return super().compute_output_spec(images, training=training)

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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **self._settings,
            "backbone": keras.saving.serialize_keras_object(self.backbone),
        }


def _resized(mask: Tensor, rows: Index, columns: Index) -> Tensor:
    """A mask of pixels as one of places: whether the pixel at a place's corner is there."""
    for axis, places in ((1, rows), (2, columns)):
        pixels = ops.shape(mask)[axis]
        mask = ops.take(mask, ops.arange(places) * pixels // places, axis=axis)
    return mask
