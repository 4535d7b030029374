"""The object queries of Deformable DETR, each of which refers to a point or a box of the image."""

from typing import Any, NamedTuple, Unpack

import keras
from keras import ops

from keras_transformers.annotations import Config, LayerOptions, Shape, Tensor
from keras_transformers.assertions import at_most, require
from keras_transformers.layers import sinusoidal_coordinates
from keras_transformers.layers.masks import hide_padding
from keras_transformers.models.detr_levels import LevelMemory
from keras_transformers.models.detr_queries import ObjectQueries
from keras_transformers.models.detr_references import FARTHEST

MARGIN = 0.01  # within which of a border, as a share of the image, nothing is proposed
NOWHERE = 1e4  # of a box before the sigmoid, where nothing is proposed


class PointStart(NamedTuple):
    """What the first decoder block is given, and the queries' positions in every block."""

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
        inside = ops.logical_and(memory.boxes > MARGIN, memory.boxes < 1 - MARGIN)
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
