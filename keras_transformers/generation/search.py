"""The loop that all searches share, as one that XLA can compile."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_transformers.annotations import Index, Tensor
from keras_transformers.generation.constraints import Constraints
from keras_transformers.generation.request import Ancestry, Decoded, Found, Opening, Request

# step(ids, index, state, ancestry[, shared]) -> (logits, state)
Step: TypeAlias = Callable[..., tuple[Tensor, Any]]


class Room(NamedTuple):
    """For how many tokens the state of a search has room.

    Args:
        positions: Number of tokens, an int or a scalar tensor.
        grow: `grow(state, number) -> state`, with room for `number` more; called where that many
            have been decoded. None where there is room for all.
    """

    positions: Index
    grow: Callable[[Any, Index], Any] | None = None


class Search:
    """A way of choosing tokens: what a subclass says about one step, turned into a whole search.

    A subclass has `constraints`, `beams` and the four methods that are not implemented here; every
    tensor of `found`, which they hand on, starts with the batch.
    """

    constraints: Constraints

    @property
    def beams(self) -> int:
        """Number of sequences that are kept of each source."""
        raise NotImplementedError

    def start(self, request: Request, opening: Opening) -> Found:
        """Gives `found` before the first step."""
        raise NotImplementedError

    def advance(
        self, step: Step, index: Index, found: Found, state: Any, request: Request
    ) -> tuple[Found, Any]:
        """Takes a step; gives `found` and the model's state."""
        raise NotImplementedError

    def done(self, found: Found) -> Tensor:
        """Gives bool `(batch,)`: which sources need no further step."""
        raise NotImplementedError

    def finish(self, found: Found, length: Index, request: Request) -> Decoded[Tensor]:
        """Gives the results."""
        raise NotImplementedError

    def __call__(
        self,
        step: Step,
        state: Any,
        request: Request,
        shared: Any = None,
        stages: int | None = 1,
        opening: Opening | None = None,
        room: Room | None = None,
    ) -> Decoded[Tensor]:
        """Searches.

        Args:
            step: `step(ids, index, state, ancestry, shared) -> (logits, state)`: ids `(batch,
                beams)`, logits `(batch, beams, vocab)`.
            state: Its first state, tensors that start with the batch or a multiple of it.
            request: A `Request`.
            shared: Tensors like those of `state` that no step changes.
            stages: Loops, each to be compiled: from one to the next the batch is halved, when half
                of its sequences are done, and the others go on without them. None for as many as it
                takes, where nothing is compiled and the batch is of any size.
            opening: An `Opening`, where the model has taken in the first tokens already.
            room: A `Room`, where the state has room for fewer tokens than there may be.

        Returns:
            Dict of `tokens` `(batch, [n,] max_length)`, padding after END; `scores` `(batch, [n])`;
            `lengths`, END included; from `BeamSearch` also `log_probabilities`.
        """
        if opening is None:
            nothing = ops.zeros((ops.shape(request.forced)[0],), "float32")
            opening = Opening(ops.convert_to_tensor(0, "int32"), nothing)
        index, found, left = opening.positions, self.start(request, opening), []
        if stages is None:
            index, found = self._in_dwindling_batches(
                step, index, found, state, request, shared, room
            )
            return self.finish(found, index, request)
        for stage in range(stages):
            batch, end = ops.shape(request.forced)
            most = 0 if stage == stages - 1 else batch // 2
            index, found, state = self._loop(step, index, found, state, request, shared, most, end)
            if most:
                # Those that are not done come first; when all positions are filled, nobody goes on.
                order = ops.argsort(ops.cast(self.done(found), "int32"), axis=0)
                order = ops.cast(order, "int32")
                left.append((order, _rows(found, order[most:], batch)))
                found, state, shared = (
                    _rows(part, order[:most], batch) for part in (found, state, shared)
                )
                request = _rows_of_request(request, order[:most], batch)
        for order, done in reversed(left):
            found = _put_back(found, done, order)
        return self.finish(found, index, request)

    def _in_dwindling_batches(
        self,
        step: Step,
        index: Index,
        found: Found,
        state: Any,
        request: Request,
        shared: Any,
        room: Room | None,
    ) -> tuple[Index, Found]:
        """Loops until half of the rows are done, then goes on with the others alone.

        Rows of a batch of known size stay, since it would be known no longer.
        """
        batch, max_length = ops.shape(request.forced)
        stay = isinstance(batch, int)
        asked = {name: part for name, part in request._asdict().items() if _is_of_rows(name, part)}
        room = Room(max_length) if room is None else room

        def more(
            index: Index, positions: Index, rows: Tensor, kept: Any, found: Found, *_: Any
        ) -> Tensor:
            left = ops.logical_not(self.done(found))
            return ops.logical_and(index < max_length, ops.any(left))

        def advance(
            index: Index,
            positions: Index,
            rows: Tensor,
            kept: Any,
            found: Found,
            state: Any,
            asked: dict[str, Tensor],
            shared: Any,
        ) -> tuple[Any, ...]:
            batch, of_rows = ops.shape(rows)[0], Request(**{**request._asdict(), **asked})
            most, end = 0 if stay else batch // 2, ops.minimum(positions, max_length)
            index, found, state = self._loop(step, index, found, state, of_rows, shared, most, end)
            if room.grow is not None:
                new = ops.where(
                    index == positions, ops.minimum(positions, max_length - positions), 0
                )
                positions, state = positions + new, room.grow(state, new)
            if stay:
                return index, positions, rows, found, found, state, asked, shared
            kept = keras.tree.map_structure(
                lambda all, some: ops.scatter_update(all, rows[:, None], some), kept, found
            )
            (going_on,) = ops.nonzero(ops.logical_not(self.done(found)))
            parts = (rows, found, state, asked, shared)
            rows, found, state, asked, shared = (_rows(part, going_on, batch) for part in parts)
            return index, positions, rows, kept, found, state, asked, shared

        rows = ops.arange(batch, dtype="int32")
        shared = {} if shared is None else shared
        first = (index, room.positions, rows, found, found, state, asked, shared)
        index, _, _, kept, *_ = ops.while_loop(more, advance, first)
        return index, kept

    def _loop(
        self,
        step: Step,
        index: Index,
        found: Found,
        state: Any,
        request: Request,
        shared: Any,
        most: Index,
        end: Index,
    ) -> tuple[Index, Found, Any]:
        """Until at most `most` rows are open, or the position `end` is reached."""

        def more(index: Index, found: Found, state: Any) -> Tensor:
            number = ops.sum(ops.cast(ops.logical_not(self.done(found)), "int32"))
            return ops.logical_and(index < end, number > most)

        def advance(index: Index, found: Found, state: Any) -> tuple[Any, ...]:
            def shared_step(
                ids: Tensor, index: Index, state: Any, ancestry: Ancestry | None
            ) -> tuple[Tensor, Any]:
                return step(ids, index, state, ancestry, shared)

            after = self.advance(shared_step, index, found, state, request)
            return index + 1, *keras.tree.map_structure(_of_known_shape, after, (found, state))

        return ops.while_loop(more, advance, (index, found, state))


def _rows(tree: Any, rows: Tensor, batch: Index) -> Any:
    """Takes rows of the batch from tensors whose first axis is the batch, or a multiple of it."""

    def take(tensor: Tensor) -> Tensor:
        rest = ops.shape(tensor)[1:]
        grouped = ops.reshape(tensor, (batch, -1, *rest))
        return ops.reshape(ops.take(grouped, rows, axis=0), (-1, *rest))

    if tree is None:
        return None
    return keras.tree.map_structure(take, tree)


def _of_known_shape(after: Tensor, before: Tensor) -> Tensor:
    """A tensor of the loop with the sizes that were known when it entered, as loops want."""
    sizes = [-1 if size is None else size for size in before.shape]
    if after.shape == before.shape or sizes.count(-1) > 1:
        return after
    return ops.reshape(after, sizes)


def _put_back(first: Any, last: Any, order: Tensor) -> Any:
    """The rows of both in the order that they had before `order` was taken."""
    back = ops.cast(ops.argsort(order), "int32")

    def join(a: Tensor, b: Tensor) -> Tensor:
        return ops.take(ops.concatenate([a, b], axis=0), back, axis=0)

    return keras.tree.map_structure(join, first, last)


def _rows_of_request(request: Request, rows: Tensor, batch: Index) -> Request:
    parts = request._asdict()
    parts.update({n: _rows(part, rows, batch) for n, part in parts.items() if _is_of_rows(n, part)})
    return Request(**parts)


def _is_of_rows(name: str, part: Any) -> bool:
    """Whether a part of a request is a tensor with a row for each sequence."""
    of_rows = ("forced", "start_id", "min_lengths", "max_lengths", "cut_lengths", "uniform")
    return name in of_rows and part is not None and not isinstance(part, int)
