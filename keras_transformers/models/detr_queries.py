"""Object queries of detectors: learned, with points, or proposed by the encoder."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformers.core.backend import at_most, require
from keras_transformers.core.types import Config, Index, LayerOptions, Shape, Tensor
from keras_transformers.layers import sinusoidal_coordinates
from keras_transformers.layers.base import BaseLayer
from keras_transformers.layers.checks import whole_number
from keras_transformers.layers.masks import hide_padding
from keras_transformers.models.set_detector import Heads, LevelMemory, middles, network

PROPOSAL_SIZE = 0.2  # of a proposal's box before it is moved, as a share of the image


class Memory(NamedTuple):
    """The encoded map."""

    tokens: Tensor  # (batch, positions, hidden_dim)
    mask: Tensor | None  # bool (batch, positions), True = part of the image
    coordinates: Tensor  # (batch or 1, rows, columns, 2), from `relative_coordinates`


class Start(NamedTuple):
    """The inputs of the first decoder block."""

    tokens: Tensor  # (batch, num_queries, hidden_dim)
    boxes: Tensor | None  # float32 (batch, num_queries, 4), before the sigmoid
    proposed: tuple[Tensor, Tensor] | None  # logits, and boxes before the sigmoid, to be trained


class ObjectQueries(BaseLayer):
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


# Points are at least so far from the image's border, as a share of its side.
MARGIN = 1e-5
FARTHEST = math.log((1 - MARGIN) / MARGIN)


@keras.saving.register_keras_serializable("keras_transformers")
class ReferenceQueries(LearnedQueries):
    """Learned vectors that each refer to a point, where their `ConditionalDecoderBlock`s look.

    The point `s` is what a network makes of the vector, and boxes are found around it. Decoder
    blocks are shown its encoding, after the first one times `T = FFN(f)` of what the query has
    found so far: `p_q = T PE(sigmoid(s))` (Meng et al. 2021, "Conditional DETR",
    https://arxiv.org/abs/2108.06152, section 3.3). On COCO the paper
    trains them in a tenth of the epochs of `LearnedQueries`.

    Args:
        num_queries: Most boxes that are found in an image.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DETR, ReferenceQueries
    >>> model = DETR(3, "mini", hidden_dim=64, num_layers=(1, 2), queries=ReferenceQueries(20))
    >>> tuple(model(np.zeros((2, 64, 64, 3), "float32"))["boxes"].shape)
    (2, 20, 4)
    """

    boxes = True
    references = True

    def build(self, memory_shape: Shape) -> None:
        super().build(memory_shape)
        width = memory_shape[-1]
        self.reference_network = network(2, width, 1, "reference_network", self.dtype_policy)
        self.scale_network = network(width, width, 1, "scale_network", self.dtype_policy)
        for layer in (self.reference_network, self.scale_network):
            layer.build((None, self.num_queries, width))

    def start(self, memory: Memory, heads: Heads | None) -> Start:
        start = super().start(memory, heads)
        points = self.reference_network(ops.cast(self.embedding, start.tokens.dtype)[None])
        points = ops.clip(ops.cast(points, "float32"), -FARTHEST, FARTHEST)
        boxes = ops.pad(points, ((0, 0), (0, 0), (0, 2)))  # no size yet
        shape = (ops.shape(start.tokens)[0], self.num_queries, 4)
        return start._replace(boxes=ops.broadcast_to(boxes, shape))

    def options_of_block(
        self, layer: int, x: Tensor, boxes: Tensor | None, encode: Callable[[Tensor, int], Tensor]
    ) -> dict[str, Tensor]:
        points = ops.take(ops.sigmoid(boxes), [1, 0], axis=-1)  # y, x: as the map's positions
        reference = ops.cast(encode(points, x.shape[-1]), x.dtype)
        if layer:
            reference = reference * self.scale_network(x)
        return {**super().options_of_block(layer, x, boxes, encode), "reference": reference}

    def next_boxes(self, boxes: Tensor | None, found: Tensor) -> Tensor | None:
        return boxes


BORDER = 0.01  # within which of a border, as a share of the image, nothing is proposed
NOWHERE = 1e4  # of a box before the sigmoid, where nothing is proposed


class PointStart(NamedTuple):
    """The inputs of the first decoder block, and the queries' positions in every block."""

    tokens: Tensor  # (batch, num_queries, hidden_dim)
    boxes: Tensor  # float32 (batch, num_queries, 4), before the sigmoid
    proposed: tuple[Tensor, Tensor] | None  # logits, and boxes before the sigmoid, to be trained
    positions: Tensor  # (batch or 1, num_queries, hidden_dim)


class DeformableQueries(ObjectQueries):
    """Base of the queries of a `DeformableDETR`; a subclass has `start`."""

    boxes = True

    def start(self, memory: Any, heads: Any) -> Any:
        """A hook: a `PointStart`, for these maps, a `LevelMemory`."""
        raise NotImplementedError

    def points(self, layer: int, boxes: Tensor) -> Tensor:
        """A hook: what decoder block `layer` is told, points or boxes as shares of the image."""
        return ops.sigmoid(boxes)

    def next_boxes(self, boxes: Tensor | None, found: Tensor) -> Tensor | None:
        return ops.stop_gradient(ops.clip(found, -FARTHEST, FARTHEST))


@keras.saving.register_keras_serializable("keras_transformers")
class PointQueries(DeformableQueries):
    """Learned vectors that each refer to a point, near which they look and find a box.

    Half of a vector is the query's content before the first decoder block, the other its position,
    of which a linear layer makes the point (Zhu et al. 2021, "Deformable DETR",
    https://arxiv.org/abs/2010.04159, section 4.1).

    Args:
        num_queries: Most boxes that are found in an image.
        refine: Whether every decoder block has heads of its own, which move the box of the block
            before, and looks near that (section 4.2, "iterative bounding box refinement").

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DeformableDETR, PointQueries
    >>> queries = PointQueries(20, refine=True)
    >>> model = DeformableDETR(3, "mini", 64, num_layers=(1, 2), queries=queries)
    >>> tuple(model(np.zeros((2, 64, 64, 3), "float32"))["boxes"].shape)
    (2, 20, 4)
    """

    def __init__(
        self, num_queries: int = 300, refine: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(num_queries, **kwargs)
        self.refine = refine

    def build(self, memory_shape: Shape) -> None:
        width = memory_shape[-1]
        super().build((None, None, 2 * width))  # positions and contents
        self.reference_dense = keras.layers.Dense(2, name="reference", dtype=self.dtype_policy)
        self.reference_dense.build((None, self.num_queries, width))

    def start(self, memory: Any, heads: Any) -> PointStart:
        embedding = ops.cast(self.embedding, memory.tokens.dtype)[None]
        positions, tokens = ops.split(embedding, 2, axis=-1)
        points = ops.cast(self.reference_dense(positions), "float32")
        points = ops.clip(points, -FARTHEST, FARTHEST)
        boxes = ops.pad(points, ((0, 0), (0, 0), (0, 2)))  # no size yet
        batch = ops.shape(memory.tokens)[0]
        tokens, boxes = (ops.repeat(x, batch, axis=0) for x in (tokens, boxes))
        return PointStart(tokens, boxes, None, positions)

    def points(self, layer: int, boxes: Tensor) -> Tensor:
        points = super().points(layer, boxes)
        return points if layer and self.refine else points[..., :2]

    def next_boxes(self, boxes: Tensor | None, found: Tensor) -> Tensor | None:
        return super().next_boxes(boxes, found) if self.refine else boxes

    def get_config(self) -> Config:
        return {**super().get_config(), "refine": self.refine}


@keras.saving.register_keras_serializable("keras_transformers")
class PointProposals(DeformableQueries):
    """Boxes that the image itself proposes, refined by every decoder block.

    Every position of the encoded maps gives a box and how sure it is of an object, the logit of the
    first class of heads of its own; the best are taken, and their encodings make the queries (Zhu
    et al. 2021, "Deformable DETR", https://arxiv.org/abs/2010.04159, section 4.2 and appendix A.4,
    "two-stage"). In training these boxes are compared with the true ones, of whatever class.

    Args:
        num_queries: Most boxes that are found in an image; there must be as many positions.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.models import DeformableDETR, PointProposals
    >>> model = DeformableDETR(3, "mini", 64, num_layers=1, queries=PointProposals(10))
    >>> tuple(model(np.zeros((2, 64, 64, 3), "float32"))["auxiliary_boxes"].shape)
    (2, 1, 10, 4)
    """

    proposes = True
    refine = True

    def build(self, memory_shape: Shape) -> None:
        width = memory_shape[-1]
        for name, units in (("proposal", width), ("position", 2 * width)):
            layers = (
                keras.layers.Dense(units, name=f"{name}_network", dtype=self.dtype_policy),
                keras.layers.LayerNormalization(
                    epsilon=1e-5, name=f"{name}_norm", dtype=self.dtype_policy
                ),
            )
            for layer in layers:
                layer.build((None, None, units))
                setattr(self, layer.name, layer)

    def start(self, memory: Any, heads: Any) -> PointStart:
        logits, boxes = self._propose(memory, heads)
        start = ops.stop_gradient(boxes)
        width = memory.tokens.shape[-1]
        codes = ops.cast(sinusoidal_coordinates(ops.sigmoid(start), 2 * width), logits.dtype)
        positions, tokens = ops.split(self.position_norm(self.position_network(codes)), 2, axis=-1)
        start = ops.clip(start, -FARTHEST, FARTHEST)
        return PointStart(tokens, start, (logits, boxes), positions)

    def _propose(self, memory: LevelMemory, heads: Any) -> tuple[Tensor, Tensor]:
        """Logits and boxes, before the sigmoid, of the positions that are surest of an object."""
        tokens = require(
            memory.tokens,
            [at_most(self.num_queries, ops.shape(memory.tokens)[1])],
            f"{type(self).__name__} '{self.name}': images must have at least "
            f"`num_queries`={self.num_queries} positions on the maps, for proposals.",
        )
        inside = ops.logical_and(memory.boxes > BORDER, memory.boxes < 1 - BORDER)
        inside = ops.all(inside, axis=-1)  # (batch or 1, positions)
        if memory.mask is not None:
            inside = ops.logical_and(inside, memory.mask)
        inside = ops.broadcast_to(inside, ops.shape(tokens)[:2])
        tokens = hide_padding(tokens, inside)
        logits, boxes = heads(self.proposal_norm(self.proposal_network(tokens)))
        base = ops.clip(memory.boxes, 1e-6, 1 - 1e-6)
        base = ops.where(inside[..., None], ops.log(base / (1 - base)), NOWHERE)
        sure = ops.stop_gradient(ops.cast(logits[..., 0], "float32"))
        _, best = ops.top_k(sure, self.num_queries)
        return (
            ops.take_along_axis(logits, best[..., None], axis=1),
            ops.take_along_axis(boxes + base, best[..., None], axis=1),
        )
