"""The object queries of DETR: where they come from, and what the decoder finds with them."""

from typing import Any

import keras
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.assertions import at_most, require
from keras_transformers.layers import sinusoidal_coordinates
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.masks import hide_padding
from keras_transformers.models.detr_heads import box_head, class_head, network
from keras_transformers.models.settings import ModelSettings

QUERIES = ("learned", "anchors", "proposals")
PROPOSAL_SIZE = 0.2  # of a proposal's box before it is moved, as a share of the image


class ObjectQueries(ModelSettings, Composite, keras.Model):
    """Queries, the heads on top of them, and the way through the decoder; `DETR` has them.

    Their settings are `DETR`'s: `num_classes`, `hidden_dim`, `num_queries`, `queries`,
    `max_wavelength`; and they use its `criterion` and `decoder_blocks`.
    """

    def _norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(epsilon=1e-5, name=name, dtype=self.dtype_policy)

    def _make_heads(self) -> None:
        settings, policy = self._settings, self.dtype_policy
        width, kind = settings["hidden_dim"], settings["queries"]
        classes = (settings["num_classes"], self.criterion.classification == "focal")
        boxes = (width, kind != "learned")
        self.decoder_norm = self._norm("decoder_norm")
        self.class_head = class_head(*classes, "class_head", policy)
        self.box_head = box_head(*boxes, "box_head", policy)
        # Those that a kind of queries does not need stay None.
        self.position_network: Any = None
        self.proposal_network: Any = None
        self.proposal_norm: Any = None
        self.proposal_class_head: Any = None
        self.proposal_box_head: Any = None
        if kind != "learned":
            self.position_network = network(width, width, 1, "position_network", policy)
        if kind == "proposals":
            self.proposal_network = keras.layers.Dense(width, name="proposal_network", dtype=policy)
            self.proposal_norm = self._norm("proposal_norm")
            self.proposal_class_head = class_head(*classes, "proposal_class_head", policy)
            self.proposal_box_head = box_head(*boxes, "proposal_box_head", policy)

    def _build_heads(self) -> None:
        width, queries = self._settings["hidden_dim"], self._settings["num_queries"]
        tokens, found = (None, None, width), (None, queries, width)
        heads = (self.decoder_norm, self.class_head, self.box_head)
        proposal_heads = (self.proposal_class_head, self.proposal_box_head)
        for layers, shape in (
            ((self.proposal_network, self.proposal_norm), tokens),
            ((*heads, *proposal_heads), found),
            ((self.position_network,), (None, queries, 2 * width)),
        ):
            for layer in layers:
                if layer is not None:
                    layer.build(shape)

    def _build_queries(self) -> None:
        width, queries = self._settings["hidden_dim"], self._settings["num_queries"]
        self.query_embedding = self.add_weight(
            name="query_embedding",
            shape=(queries, width),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )
        self.anchor_embedding = None
        if self._settings["queries"] == "anchors":
            # Anywhere in the image, before the sigmoid.
            anywhere = keras.initializers.RandomUniform(-2.0, 2.0)
            self.anchor_embedding = self.add_weight(
                name="anchor_embedding", shape=(queries, 4), initializer=anywhere
            )

    def _decode(
        self,
        memory: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        coordinates: Tensor,
        training: bool | None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Logits and boxes of the proposals, where there are some, and of every decoder block.

        Args:
            memory: The encoded map, `(batch, positions, hidden_dim)`.
            positions: Their encoding, same shape or with batch 1.
            mask: Bool `(batch, positions)`, or None.
            coordinates: Theirs, from `relative_coordinates`.
            training: Whether dropout acts.

        Returns:
            List of `(batch, num_queries, classes)` and `(batch, num_queries, 4)`.
        """
        x, placed, reference, layers = self._start(memory, mask, coordinates)
        for block in self.decoder_blocks:
            placed = placed if reference is None else self._encoded(reference, memory.dtype)
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

    def _start(
        self, memory: Tensor, mask: Tensor | None, coordinates: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None, list[tuple[Tensor, Tensor]]]:
        """What the first decoder block is given.

        Returns:
            Queries `(batch, num_queries, hidden_dim)`; their positions, or None where these are of
            boxes; the boxes before the sigmoid, float32 `(batch, num_queries, 4)`, or None; and a
            list of the logits and boxes of the proposals, empty without.
        """
        batch = ops.shape(memory)[0]
        embedding = ops.cast(self.query_embedding, memory.dtype)
        x = ops.broadcast_to(embedding, (batch, *embedding.shape))
        if self._settings["queries"] == "learned":
            return ops.zeros_like(x), embedding, None, []
        if self._settings["queries"] == "anchors":
            boxes = ops.cast(self.anchor_embedding, "float32")
            return x, None, ops.broadcast_to(boxes, (batch, *boxes.shape)), []
        logits, boxes = self._propose(memory, mask, coordinates)
        proposed = (logits, ops.cast(ops.sigmoid(boxes), memory.dtype))
        return x, None, ops.stop_gradient(boxes), [proposed]

    def _encoded(self, boxes: Tensor, dtype: Any) -> Tensor:
        """The positions of queries: `(batch, num_queries, hidden_dim)` of boxes."""
        # y, x, height, width: the first half as the positions of the map are encoded.
        coordinates = ops.take(ops.sigmoid(boxes), [1, 0, 3, 2], axis=-1)
        width = 2 * self._settings["hidden_dim"]
        table = sinusoidal_coordinates(coordinates, width, self._settings["max_wavelength"])
        return self.position_network(ops.cast(table, dtype))

    def _propose(
        self, memory: Tensor, mask: Tensor | None, coordinates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits and boxes, before the sigmoid, of the positions that are surest of an object."""
        queries = self._settings["num_queries"]
        memory = require(
            memory,
            [at_most(queries, ops.shape(memory)[1])],
            f"DETR '{self.name}': images must have at least `num_queries`={queries} positions on "
            "the backbone's map, for proposals.",
        )
        if mask is not None:  # or what is there counts where there are fewer positions than queries
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
        boxes = _boxes_of_positions(coordinates, ops.shape(memory)[1])
        moved = boxes + ops.cast(self.proposal_box_head(y), "float32")
        return (
            ops.take_along_axis(logits, best[..., None], axis=1),
            ops.take_along_axis(moved, best[..., None], axis=1),
        )


def _boxes_of_positions(coordinates: Tensor, number: Index) -> Tensor:
    """Boxes before the sigmoid, of one size, each around the middle of its position of the map."""
    # `coordinates` are lower and right borders.
    steps = ops.stack([coordinates[:, :1, :1, 0], coordinates[:, :1, :1, 1]], axis=-1) / 2
    centers = ops.flip(ops.reshape(coordinates - steps, (-1, number, 2)), axis=-1)
    base = ops.concatenate([centers, ops.full_like(centers, PROPOSAL_SIZE)], axis=-1)
    base = ops.clip(base, 1e-3, 1 - 1e-3)
    return ops.log(base / (1 - base))
