"""The object queries of Conditional DETR, each of which refers to a point of the image."""

import math
from collections.abc import Callable

import keras
from keras import ops

from keras_transformers.annotations import Shape, Tensor
from keras_transformers.models.detr_heads import Heads, network
from keras_transformers.models.detr_queries import LearnedQueries, Memory, Start

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
