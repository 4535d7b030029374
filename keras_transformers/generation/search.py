"""The loop that all searches share, as one that XLA can compile."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformers.generation.request import Opening


class Room(NamedTuple):
    """For how many tokens the state of a search has place.

    Args:
        places: Number of tokens, an int or a scalar tensor.
        grow: `grow(state, number) -> state`, with place for `number` more; called where that many
            have been decoded. None where there is place for all.
    """

    places: Any
    grow: Any = None


class Search:
    """A way of choosing tokens: what a subclass says about one step, turned into a whole search.

    A subclass has `start(request, opening) -> found`, `advance(step, index, found, state, request)
    -> found, state`, `done(found) -> bool (batch,)` and `finish(found, length, request) -> dict`;
    every tensor of `found` starts with the batch.
    """

    def __call__(self, step, state, request, shared=None, stages=1, opening=None, room=None):
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
            room: A `Room`, where the state has place for fewer tokens than there may be.

        Returns:
            Dict of `tokens` `(batch, [n,] max_length)`, padding after END; `scores` `(batch, [n])`;
            `lengths`, END included; from `BeamSearch` also `log_probabilities`.
        """
        if opening is None:
            nothing = ops.zeros((ops.shape(request.forced)[0],), "float32")
            opening = Opening(ops.convert_to_tensor(0, "int32"), nothing)
        index, found, left = opening.places, self.start(request, opening), []
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
                # Those that are not done come first; when all places are filled, nobody goes on.
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

    def _in_dwindling_batches(self, step, index, found, state, request, shared, room):
        """Loops until half of the rows are done, then goes on with the others alone.

        Rows of a batch of known size stay, since it would be known no longer.
        """
        batch, max_length = ops.shape(request.forced)
        stay = isinstance(batch, int)
        asked = {name: part for name, part in request._asdict().items() if _is_of_rows(name, part)}
        room = Room(max_length) if room is None else room

        def more(index, places, rows, kept, found, *_):
            left = ops.logical_not(self.done(found))
            return ops.logical_and(index < max_length, ops.any(left))

        def advance(index, places, rows, kept, found, state, asked, shared):
            batch, of_rows = ops.shape(rows)[0], request._replace(**asked)
            most, end = 0 if stay else batch // 2, ops.minimum(places, max_length)
            index, found, state = self._loop(step, index, found, state, of_rows, shared, most, end)
            if room.grow is not None:
                new = ops.where(index == places, ops.minimum(places, max_length - places), 0)
                places, state = places + new, room.grow(state, new)
            if stay:
                return index, places, rows, found, found, state, asked, shared
            kept = keras.tree.map_structure(
                lambda all, some: ops.scatter_update(all, rows[:, None], some), kept, found
            )
            (going_on,) = ops.nonzero(ops.logical_not(self.done(found)))
            parts = (rows, found, state, asked, shared)
            rows, found, state, asked, shared = (_rows(part, going_on, batch) for part in parts)
            return index, places, rows, kept, found, state, asked, shared

        rows = ops.arange(batch, dtype="int32")
        shared = {} if shared is None else shared
        first = (index, room.places, rows, found, found, state, asked, shared)
        index, _, _, kept, *_ = ops.while_loop(more, advance, first)
        return index, kept

    def _loop(self, step, index, found, state, request, shared, most, end):
        """Until at most `most` rows are open, or the place `end` is reached."""

        def more(index, found, state):
            number = ops.sum(ops.cast(ops.logical_not(self.done(found)), "int32"))
            return ops.logical_and(index < end, number > most)

        def advance(index, found, state):
            def shared_step(ids, index, state, ancestry):
                return step(ids, index, state, ancestry, shared)

            after = self.advance(shared_step, index, found, state, request)
            return index + 1, *keras.tree.map_structure(_of_known_shape, after, (found, state))

        return ops.while_loop(more, advance, (index, found, state))


def _rows(tree, rows, batch):
    """Takes rows of the batch from tensors whose first axis is the batch, or a multiple of it."""

    def take(tensor):
        rest = ops.shape(tensor)[1:]
        grouped = ops.reshape(tensor, (batch, -1, *rest))
        return ops.reshape(ops.take(grouped, rows, axis=0), (-1, *rest))

    if tree is None:
        return None
    return keras.tree.map_structure(take, tree)


def _of_known_shape(after, before):
    """A tensor of the loop with the sizes that were known when it entered, as loops want."""
    sizes = [-1 if size is None else size for size in before.shape]
    if after.shape == before.shape or sizes.count(-1) > 1:
        return after
    return ops.reshape(after, sizes)


def _put_back(first, last, order):
    """The rows of both in the order that they had before `order` was taken."""
    back = ops.cast(ops.argsort(order), "int32")

    def join(a, b):
        return ops.take(ops.concatenate([a, b], axis=0), back, axis=0)

    return keras.tree.map_structure(join, first, last)


def _rows_of_request(request, rows, batch):
    parts = request._asdict().items()
    return request._replace(
        **{name: _rows(part, rows, batch) for name, part in parts if _is_of_rows(name, part)}
    )


def _is_of_rows(name, part):
    """Whether a part of a request is a tensor with a row for each sequence."""
    of_rows = ("forced", "start_id", "min_lengths", "max_lengths", "cut_lengths", "uniform")
    return name in of_rows and part is not None and not isinstance(part, int)
