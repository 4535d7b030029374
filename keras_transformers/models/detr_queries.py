"""The object queries of DETR: what its decoder starts from."""

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Config, Index, LayerOptions, Shape, Tensor
from keras_transformers.assertions import at_most, require
from keras_transformers.layers.arguments import Arguments
from keras_transformers.layers.composite import Composite
from keras_transformers.layers.errors import whole_number
from keras_transformers.layers.masks import hide_padding
from keras_transformers.models.detr_backbone import middles
from keras_transformers.models.detr_heads import Heads, network

PROPOSAL_SIZE = 0.2  # of a proposal's box before it is moved, as a share of the image


class Memory(NamedTuple):
    """The encoded map."""

    tokens: Tensor  # (batch, positions, hidden_dim)
    mask: Tensor | None  # bool (batch, positions), True = part of the image
    coordinates: Tensor  # (batch or 1, rows, columns, 2), from `relative_coordinates`


class Start(NamedTuple):
    """What the first decoder block is given."""

    tokens: Tensor  # (batch, num_queries, hidden_dim)
    boxes: Tensor | None  # float32 (batch, num_queries, 4), before the sigmoid
    proposed: tuple[Tensor, Tensor] | None  # logits, and boxes before the sigmoid, to be trained


class ObjectQueries(Arguments, Composite, keras.layers.Layer):
    """Base of the kinds of queries; a subclass has `start` and `positions`.

    One of boxes alone is `AnchorQueries` or `ProposalQueries` with another `start`.

    Args:
        num_queries: Most boxes that are found in an image.

    Attributes:
        boxes: Whether the queries have boxes, to which what a decoder block finds is added.
        references: Whether each refers to a point, which `ConditionalDecoderBlock`s are told.
        proposes: Whether `start` is given heads of its own, to look for objects on the map.
        embedding: Weight `(num_queries, hidden_dim)`.

    Example:
    >>> from keras_transformers.models import DETR, ObjectQueries
    >>> isinstance(DETR(3, "mini", queries=20).queries, ObjectQueries)
    True
    """

    boxes = False
    references = False
    proposes = False

    def __init__(self, num_queries: int = 100, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self.num_queries = whole_number(self, "num_queries", num_queries)

    def build(self, memory_shape: Shape) -> None:
        self.embedding = self.add_weight(
            name="embedding",
            shape=(self.num_queries, memory_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=1.0),
        )

    def start(self, memory: Memory, heads: Heads | None) -> Start:
        """A hook: what the first decoder block is given, for this map."""
        raise NotImplementedError

    def positions(
        self, boxes: Tensor | None, encode: Callable[[Tensor, int], Tensor], dtype: Any
    ) -> Tensor:
        """A hook: what is added to queries and keys of the next decoder block.

        Args:
            boxes: Float32 `(batch, num_queries, 4)`, before the sigmoid, or None.
            encode: Function from coordinates in [0, 1] and a width to their encoding.
            dtype: Of the result.

        Returns:
            `(batch, num_queries, hidden_dim)`, or without the batch.
        """
        raise NotImplementedError

    def options_of_block(
        self, layer: int, x: Tensor, boxes: Tensor | None, encode: Callable[[Tensor, int], Tensor]
    ) -> dict[str, Tensor]:
        """A hook: what decoder block `layer` is called with, by name, besides `x` and the map."""
        return {"positions": self.positions(boxes, encode, x.dtype)}

    def next_boxes(self, boxes: Tensor | None, found: Tensor) -> Tensor | None:
        """A hook: the queries' boxes for the next block, of those before and those found."""
        return None

    def compute_output_shape(self, memory_shape: Shape) -> Shape:
        return (memory_shape[0], self.num_queries, memory_shape[-1])

    def _tokens(self, memory: Memory) -> Tensor:
        embedding = ops.cast(self.embedding, memory.tokens.dtype)
        return ops.broadcast_to(embedding, (ops.shape(memory.tokens)[0], *embedding.shape))

    def get_config(self) -> Config:
        return {**super().get_config(), "num_queries": self.num_queries}


@keras.saving.register_keras_serializable("keras_transformers")
class LearnedQueries(ObjectQueries):
    """Learned vectors, which every decoder block adds to tokens that start from zero.

    Carion et al. 2020, https://arxiv.org/abs/2005.12872, section 3.2.

    Args:
        num_queries: Most boxes that are found in an image.

    Example:
    >>> from keras_transformers.models import DETR, LearnedQueries
    >>> DETR(3, "mini", queries=LearnedQueries(20)).queries.num_queries  # as with queries=20
    20
    """

    def start(self, memory: Memory, heads: Heads | None) -> Start:
        return Start(ops.zeros_like(self._tokens(memory)), None, None)

    def positions(
        self, boxes: Tensor | None, encode: Callable[[Tensor, int], Tensor], dtype: Any
    ) -> Tensor:
        return ops.cast(self.embedding, dtype)


class BoxQueries(ObjectQueries):
    """Queries whose positions are those of their boxes; a subclass says where these start."""

    boxes = True

    def build(self, memory_shape: Shape) -> None:
        super().build(memory_shape)
        width = memory_shape[-1]
        self.position_network = network(width, width, 1, "position_network", self.dtype_policy)
        self.position_network.build((None, self.num_queries, 2 * width))

    def positions(
        self, boxes: Tensor | None, encode: Callable[[Tensor, int], Tensor], dtype: Any
    ) -> Tensor:
        # y, x, height, width: the first half as the positions of the map are encoded.
        coordinates = ops.take(ops.sigmoid(boxes), [1, 0, 3, 2], axis=-1)
        table = encode(coordinates, 2 * self.embedding.shape[-1])
        return self.position_network(ops.cast(table, dtype))

    def next_boxes(self, boxes: Tensor | None, found: Tensor) -> Tensor | None:
        return ops.stop_gradient(found)


@keras.saving.register_keras_serializable("keras_transformers")
class AnchorQueries(BoxQueries):
    """Learned boxes that every decoder block moves; their positions are the queries'.

    Liu et al. 2022, https://arxiv.org/abs/2201.12329.

    Args:
        num_queries: Most boxes that are found in an image.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DETR, AnchorQueries
    >>> model = DETR(3, "mini", hidden_dim=64, num_layers=(1, 2), queries=AnchorQueries(20))
    >>> tuple(model(np.zeros((2, 64, 64, 3), "float32"))["boxes"].shape)
    (2, 20, 4)
    """

    def build(self, memory_shape: Shape) -> None:
        super().build(memory_shape)
        # Anywhere in the image, before the sigmoid.
        anywhere = keras.initializers.RandomUniform(-2.0, 2.0)
        self.anchor_embedding = self.add_weight(
            name="anchor_embedding", shape=(self.num_queries, 4), initializer=anywhere
        )

    def start(self, memory: Memory, heads: Heads | None) -> Start:
        x, boxes = self._tokens(memory), ops.cast(self.anchor_embedding, "float32")
        return Start(x, ops.broadcast_to(boxes, (ops.shape(x)[0], *boxes.shape)), None)


@keras.saving.register_keras_serializable("keras_transformers")
class ProposalQueries(BoxQueries):
    """Boxes that the image itself proposes, moved by every decoder block.

    Every position of the encoded map gives one, and the best are taken and trained like a layer of
    the decoder (two stages: Zhu et al. 2021, https://arxiv.org/abs/2010.04159, section 4.2). They
    learn in a hundredth of the time that `LearnedQueries` need.

    Args:
        num_queries: Most boxes that are found in an image; there must be as many positions.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DETR, ProposalQueries
    >>> model = DETR(3, "mini", hidden_dim=64, num_layers=1, queries=ProposalQueries(10))
    >>> tuple(model(np.zeros((2, 64, 64, 3), "float32"))["auxiliary_boxes"].shape)
    (2, 1, 10, 4)
    """

    proposes = True

    def build(self, memory_shape: Shape) -> None:
        super().build(memory_shape)
        policy = self.dtype_policy
        self.proposal_network = keras.layers.Dense(
            memory_shape[-1], name="proposal_network", dtype=policy
        )
        self.proposal_norm = keras.layers.LayerNormalization(
            epsilon=1e-5, name="proposal_norm", dtype=policy
        )
        for layer in (self.proposal_network, self.proposal_norm):
            layer.build(memory_shape)

    def start(self, memory: Memory, heads: Heads | None) -> Start:
        logits, boxes = self._propose(memory, heads)
        return Start(self._tokens(memory), ops.stop_gradient(boxes), (logits, boxes))

    def _propose(self, memory: Memory, heads: Any) -> tuple[Tensor, Tensor]:
        """Logits and boxes, before the sigmoid, of the positions that are surest of an object."""
        tokens, mask, coordinates = memory
        tokens = require(
            tokens,
            [at_most(self.num_queries, ops.shape(tokens)[1])],
            f"{type(self).__name__} '{self.name}': images must have at least "
            f"`num_queries`={self.num_queries} positions on the backbone's map, for proposals.",
        )
        if mask is not None:  # or what is there counts where there are fewer positions than queries
            tokens = hide_padding(tokens, mask)
        logits, boxes = heads(self.proposal_norm(self.proposal_network(tokens)))
        sure = heads.sureness(logits)
        if mask is not None:
            sure = ops.where(mask, sure, -1e9)
        _, best = ops.top_k(ops.stop_gradient(sure), self.num_queries)
        boxes = boxes + _boxes_of_positions(coordinates, ops.shape(tokens)[1])
        return (
            ops.take_along_axis(logits, best[..., None], axis=1),
            ops.take_along_axis(boxes, best[..., None], axis=1),
        )


def _boxes_of_positions(coordinates: Tensor, number: Index) -> Tensor:
    """Boxes before the sigmoid, of one size, each around the middle of its position of the map."""
    centers = ops.flip(ops.reshape(middles(coordinates), (-1, number, 2)), axis=-1)
    base = ops.concatenate([centers, ops.full_like(centers, PROPOSAL_SIZE)], axis=-1)
    base = ops.clip(base, 1e-3, 1 - 1e-3)
    return ops.log(base / (1 - base))
