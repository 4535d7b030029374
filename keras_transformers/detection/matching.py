"""The cheapest one-to-one matching, inside a compiled graph."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformers.core.types import Index, Tensor

IMPOSSIBLE = 1e9  # in place of costs that are not finite, so that the search ends


def match(cost: Tensor, valid: Tensor | None = None) -> Tensor:
    """The cheapest assignment of a column of its own to every row, for a batch of cost matrices.

    The Hungarian method by shortest augmenting paths (Kuhn 1955; Jonker & Volgenant 1987,
    https://doi.org/10.1007/BF02278710), exact, in `O(rows^2 columns)`; the batch goes in step. It
    is made of `keras.ops` alone, so that XLA compiles it into a training step, where SciPy's
    `linear_sum_assignment` cannot be called. The result has no gradient.

    Args:
        cost: Floating `(batch, rows, columns)`, at least as many columns as rows. What is not
            finite counts as 1e9.
        valid: Optional bool `(batch, rows)`; rows that are False (padding) get no column.

    Returns:
        int32 `(batch, rows)`, the column of each row, -1 where it has none.

    Raises:
        ValueError: If there are fewer columns than rows.

    Example:
    >>> import numpy as np
    >>> from keras_transformers.detection import match
    >>> cost = np.array([[[1.0, 2.0, 9.0], [1.0, 4.0, 9.0]]])
    >>> np.asarray(match(cost)).tolist()
    [[1, 0]]
    """
    cost = ops.stop_gradient(ops.cast(cost, "float32"))
    cost = ops.where(ops.isfinite(cost), cost, IMPOSSIBLE)
    rows, columns = cost.shape[1:]
    if rows > columns:
        raise ValueError(
            "match: `cost` must have at least as many columns as rows. Received: shape "
            f"{tuple(cost.shape)}"
        )
    batch = ops.shape(cost)[0]
    if valid is None:
        valid = ops.ones((batch, rows), "bool")
    column_of = ops.full((batch, rows), -1, "int32")
    if not rows:
        return column_of

    def assign(row: Index, *state: Any) -> tuple[Any, ...]:
        return row + 1, *_assign(cost, ops.take(valid, row, axis=1), row, *state)

    start = (
        ops.convert_to_tensor(0, "int32"),
        ops.zeros((batch, rows), "float32"),
        ops.zeros((batch, columns), "float32"),
        ops.full((batch, columns), -1, "int32"),
        column_of,
    )
    return ops.while_loop(lambda row, *_: row < rows, assign, start, maximum_iterations=rows)[-1]


def _assign(
    cost: Tensor,
    wanted: Tensor,
    row: Index,
    row_prices: Tensor,
    column_prices: Tensor,
    row_of: Tensor,
    column_of: Tensor,
) -> tuple[Tensor, ...]:
    """Gives one more row a column, by way of other rows' columns where that is cheaper.

    Args:
        cost: `(batch, rows, columns)`.
        wanted: bool `(batch,)`, whether the row is to have a column.
        row: Number of the row, a scalar.
        row_prices, column_prices: `(batch, rows)` and `(batch, columns)`: what is matched costs
            nothing beyond their sum, and nothing else costs less.
        row_of, column_of: `(batch, columns)` and `(batch, rows)`, -1 where there is none.

    Returns:
        The four, with the row.
    """
    paths = _search(cost, wanted, row, row_prices, column_prices, row_of)
    least = paths.least[:, None]
    owned = ops.maximum(column_of, 0)
    passed = ops.logical_and(column_of >= 0, _at(paths.scanned, owned))
    own = ops.logical_and(ops.arange(cost.shape[1])[None] == row, wanted[:, None])
    gain = ops.where(passed, least - _at(paths.lengths, owned), 0.0)
    row_prices = row_prices + gain + ops.where(own, least, 0.0)
    column_prices = column_prices - ops.where(paths.scanned, least - paths.lengths, 0.0)
    matched = _shift(row, paths.end, wanted, paths.origin, row_of, column_of)
    return row_prices, column_prices, *matched


class _Paths(NamedTuple):
    """Shortest paths from a row to columns, over columns that rows hold already (Dijkstra)."""

    end: Tensor  # (batch,): the free column that was reached, -1 while there is none
    current: Tensor  # (batch,): the row that holds the column reached last
    least: Tensor  # (batch,): the length of the path to it
    scanned: Tensor  # (batch, columns): which columns were reached
    lengths: Tensor  # (batch, columns): of the shortest paths known to each
    origin: Tensor  # (batch, columns): the row before each on its path


def _search(
    cost: Tensor,
    wanted: Tensor,
    row: Index,
    row_prices: Tensor,
    column_prices: Tensor,
    row_of: Tensor,
) -> _Paths:
    """The shortest path from the row to a free column."""

    def searching(end: Tensor, *_: Any) -> Tensor:
        return ops.any(end < 0)

    def search(*paths: Tensor) -> _Paths:
        return _nearest(_Paths(*paths), cost, row_prices, column_prices, row_of)

    batch, columns = ops.shape(cost)[0], cost.shape[2]
    start = _Paths(
        end=ops.where(wanted, -1, 0),
        current=ops.broadcast_to(ops.cast(row, "int32"), (batch,)),
        least=ops.zeros((batch,), "float32"),
        scanned=ops.zeros((batch, columns), "bool"),
        lengths=ops.full((batch, columns), float("inf"), "float32"),
        origin=ops.zeros((batch, columns), "int32"),
    )
    return _Paths(*ops.while_loop(searching, search, tuple(start), maximum_iterations=columns))


def _nearest(
    paths: _Paths, cost: Tensor, row_prices: Tensor, column_prices: Tensor, row_of: Tensor
) -> _Paths:
    """Takes the nearest column that was not yet reached, in every search not at its end."""
    end, current, least, scanned, lengths, origin = paths
    going = end < 0
    reduced = _rows(cost, current) - _at(row_prices, current)[:, None] - column_prices
    through = least[:, None] + reduced
    better = ops.logical_and(ops.logical_not(scanned), through < lengths)
    better = ops.logical_and(better, going[:, None])
    lengths = ops.where(better, through, lengths)
    origin = ops.where(better, current[:, None], origin)
    nearest = ops.argmin(ops.where(scanned, float("inf"), lengths), axis=1)
    nearest = ops.cast(nearest, "int32")
    here = ops.logical_and(ops.arange(cost.shape[2])[None] == nearest[:, None], going[:, None])
    owner = _at(row_of, nearest)
    free = owner < 0
    return _Paths(
        end=ops.where(ops.logical_and(going, free), nearest, end),
        current=ops.where(ops.logical_and(going, ops.logical_not(free)), owner, current),
        least=ops.where(going, _at(lengths, nearest), least),
        scanned=ops.logical_or(scanned, here),
        lengths=lengths,
        origin=origin,
    )


def _shift(
    row: Index, end: Tensor, wanted: Tensor, origin: Tensor, row_of: Tensor, column_of: Tensor
) -> tuple[Tensor, ...]:
    """`row_of` and `column_of` after the rows on the path have handed their columns back."""
    rows, columns = column_of.shape[1], row_of.shape[1]

    def shifting(_: Tensor, going: Tensor, *__: Any) -> Tensor:
        return ops.any(going)

    def shift(
        column: Tensor, going: Tensor, row_of: Tensor, column_of: Tensor
    ) -> tuple[Tensor, ...]:
        taker = _at(origin, column)
        here = ops.logical_and(ops.arange(columns)[None] == column[:, None], going[:, None])
        row_of = ops.where(here, taker[:, None], row_of)
        left = _at(column_of, taker)
        mine = ops.logical_and(ops.arange(rows)[None] == taker[:, None], going[:, None])
        column_of = ops.where(mine, column[:, None], column_of)
        going = ops.logical_and(going, taker != row)
        return ops.where(going, left, column), going, row_of, column_of

    start = (end, wanted, row_of, column_of)
    return ops.while_loop(shifting, shift, start, maximum_iterations=rows)[2:]


def _at(table: Tensor, indices: Tensor) -> Tensor:
    """`table[b, indices[b, ...]]` for int indices `(batch,)` or `(batch, n)`."""
    if len(indices.shape) == 1:
        return ops.take_along_axis(table, indices[:, None], axis=1)[:, 0]
    return ops.take_along_axis(table, indices, axis=1)


def _rows(cost: Tensor, rows: Tensor) -> Tensor:
    """`cost[b, rows[b]]`."""
    return ops.take_along_axis(cost, rows[:, None, None], axis=1)[:, 0]
