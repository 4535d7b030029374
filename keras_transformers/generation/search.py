"""The loop that all searches share, as one that XLA can compile."""

import keras
from keras import ops

from keras_transformers.generation.request import Opening


class Search:
    """A way of choosing tokens: what a subclass says about one step, turned into a whole search.

    A subclass has `start(request, opening) -> found`, `advance(step, index, found, state, request)
    -> found, state`, `done(found) -> bool (batch,)` and `finish(found, length, request) -> dict`;
    every tensor of `found` starts with the batch.
    """

    def __call__(self, step, state, request, shared=None, stages=1, opening=None):
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

        Returns:
            Dict of `tokens` `(batch, [n,] max_length)`, padding after END; `scores` `(batch, [n])`;
            `lengths`, END included; from `BeamSearch` also `log_probabilities`.
        """
        if opening is None:
            nothing = ops.zeros((ops.shape(request.forced)[0],), "float32")
            opening = Opening(ops.convert_to_tensor(0, "int32"), nothing)
        index, found, left = opening.places, self.start(request, opening), []
        if stages is None:
            index, found = self._in_dwindling_batches(step, index, found, state, request, shared)
            return self.finish(found, index, request)
        for stage in range(stages):
            batch = ops.shape(request.forced)[0]
            most = 0 if stage == stages - 1 else batch // 2
            index, found, state = self._loop(step, index, found, state, request, shared, most)
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

    def _in_dwindling_batches(self, step, index, found, state, request, shared):
        """Loops until half of the rows are done, then goes on with the others alone."""
        max_length = ops.shape(request.forced)[1]
        asked = {name: part for name, part in request._asdict().items() if _is_of_rows(name, part)}

        def more(index, rows, *_):
            return ops.logical_and(index < max_length, ops.shape(rows)[0] > 0)

        def advance(index, rows, kept, found, state, asked, shared):
            batch = ops.shape(rows)[0]
            of_rows = request._replace(**asked)
            index, found, state = self._loop(
                step, index, found, state, of_rows, shared, batch // 2
            )
            kept = keras.tree.map_structure(
                lambda all, some: ops.scatter_update(all, rows[:, None], some), kept, found
            )
            (going_on,) = ops.nonzero(ops.logical_not(self.done(found)))
            parts = (rows, found, state, asked, shared)
            rows, found, state, asked, shared = (_rows(part, going_on, batch) for part in parts)
            return index, rows, kept, found, state, asked, shared

        rows = ops.arange(ops.shape(request.forced)[0], dtype="int32")
        first = (index, rows, found, found, state, asked, {} if shared is None else shared)
        index, _, kept, *_ = ops.while_loop(more, advance, first)
        return index, kept

    def _loop(self, step, index, found, state, request, shared, most):
        """Until at most `most` rows are open, or the limit is reached."""
        max_length = ops.shape(request.forced)[1]

        def more(index, found, state):
            number = ops.sum(ops.cast(ops.logical_not(self.done(found)), "int32"))
            return ops.logical_and(index < max_length, number > most)

        def advance(index, found, state):
            def shared_step(ids, index, state, ancestry):
                return step(ids, index, state, ancestry, shared)

            return index + 1, *self.advance(shared_step, index, found, state, request)

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
    of_rows = ("forced", "start_id", "min_lengths", "max_lengths", "uniform")
    return name in of_rows and part is not None and not isinstance(part, int)
