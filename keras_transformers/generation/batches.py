"""The part of a batch that a search still works on, and how rows leave it and come back."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.generation.request import Request

PER_ROW = ("forced", "start_id", "min_lengths", "max_lengths", "cut_lengths", "uniform", "phrases")


class Batch(NamedTuple):
    """Tensors whose first axis is the batch, or a multiple of it.

    Args:
        hypotheses: What the search keeps.
        state: What the model keeps.
        shared: What no step changes.
        requested: Dict of the tensors of the `Request` by their names.
    """

    hypotheses: Any
    state: Any
    shared: Any
    requested: dict[str, Any]


class Begun(NamedTuple):
    """A search between two of its steps: tensors alone, which one program hands to the next.

    Args:
        position: That of the next token, a scalar.
        batch: A `Batch`.
    """

    position: Index
    batch: Batch


def requested(request: Request) -> dict[str, Any]:
    """The tensors of a request that have a row for each sequence."""
    parts = ((name, getattr(request, name)) for name in PER_ROW)
    return {n: part for n, part in parts if part is not None and not isinstance(part, int)}


def take_rows(tree: Any, rows: Tensor, batch: Index) -> Any:
    """Takes rows of the batch from tensors whose first axis is the batch, or a multiple of it."""

    def take(tensor: Tensor) -> Tensor:
        rest = ops.shape(tensor)[1:]
        grouped = ops.reshape(tensor, (batch, -1, *rest))
        return ops.reshape(ops.take(grouped, rows, axis=0), (-1, *rest))

    return keras.tree.map_structure(take, tree)


def put_back(first: Any, last: Any, order: Tensor) -> Any:
    """The rows of both in the order that they had before `order` was taken."""
    back = ops.cast(ops.argsort(order), "int32")

    def join(a: Tensor, b: Tensor) -> Tensor:
        return ops.take(ops.concatenate([a, b], axis=0), back, axis=0)

    return keras.tree.map_structure(join, first, last)
