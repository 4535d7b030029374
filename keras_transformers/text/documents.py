"""Documents in rows of one length: several in a row, kept apart, and long ones cut."""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.streams import keys, without_autotuning
from keras_transformers.text.packing import first_fit, full_batch, in_chunks, within


def packed_documents(
    dataset: tf.data.Dataset,
    length: int,
    rows: int,
    seed: int | None = 0,
    shift: bool = True,
    padding_id: int = 0,
    epoch: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Puts documents into rows, several in one, so that nearly every position holds a token.

    A document longer than a row is cut into pieces: the first of a length drawn anew each epoch,
    so that its tokens stand elsewhere in their rows every time, then full rows and what is left.
    The pieces of a chunk of 8,192 documents are placed largest first, each into the first row with
    room for it (first-fit decreasing; Krell et al. 2021, https://arxiv.org/abs/2107.02027, packs
    likewise), and the chunk's rows are shuffled. Segments keep the pieces of a row apart.

    Documents that fit into a row are never cut. Many of nearly one length fill rows only as far as
    that length divides them: of 60 positions each, four go into a row of 256, and 94 % are used.

    Epochs can differ by a batch, as those of `packed`: call `fit` with
    `streams.epochs`, or with `packed_documents(...).repeat()`, and `steps_per_epoch`.

    Args:
        dataset: Of documents as ids, with START and END, or `[CLS]` and `[SEP]`, already in:
            tensors `(length,)`, or ragged batches, which are packed each alone.
        length: Positions in a row.
        rows: Rows in a batch.
        seed: Of the cuts and of the shuffling of rows; both differ by epoch. None cuts at
            multiples of `length` and shuffles nothing, for validation.
        shift: Whether to make labels, for a language model.
        padding_id: The id that stands for padding.
        epoch: Number of the epoch whose order is taken, as for `encode_pairs`.

    Returns:
        `tf.data.Dataset` of `({"ids", "segments"}, labels)`, int32 `(rows, length)`: `ids` lacks
        the last id of each document, `labels` the first. Without `shift`, of
        `{"ids", "segments"}`. The pieces of a row are numbered 1, 2, 3 ... in its segments, 0 at
        padding. The last batch is filled with rows of padding.

    Raises:
        ValueError: If `length` or `rows` is not positive.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import packed_documents
    >>> documents = tf.ragged.constant([[1, 7, 8, 2], [1, 9, 2], [1, 5, 6, 7, 8, 9, 2]])
    >>> dataset = tf.data.Dataset.from_tensors(documents)
    >>> for inputs, labels in packed_documents(dataset, length=6, rows=2, seed=None):
    ...     print(inputs["ids"].numpy().tolist(), inputs["segments"].numpy().tolist())
    ...     print(labels.numpy().tolist())
    [[1, 5, 6, 7, 8, 9], [1, 7, 8, 1, 9, 0]] [[1, 1, 1, 1, 1, 1], [1, 1, 1, 2, 2, 0]]
    [[5, 6, 7, 8, 9, 2], [7, 8, 2, 9, 2, 0]]
    """
    if length < 1 or rows < 1:
        raise ValueError(
            "packed_documents: `length` and `rows` must be positive. "
            f"Received: length={length}, rows={rows}"
        )

    def pack(chunk: tf.RaggedTensor, key: tf.Tensor) -> dict[str, tf.Tensor]:
        ids, segments, labels = tf.numpy_function(
            lambda ids, splits, key: _pack(
                ids, splits, key, length, int(shift), seed is not None, padding_id
            ),
            [chunk.values, chunk.row_splits, key],
            [tf.int32] * 3,
        )
        return {"ids": ids, "segments": segments, "labels": labels}

    def fill(batch: dict[str, tf.Tensor]) -> Any:
        batch = {
            name: full_batch(ids, rows, length, 0 if name == "segments" else padding_id)
            for name, ids in batch.items()
        }
        labels = batch.pop("labels")
        return (batch, labels) if shift else batch

    chunks = tf.data.Dataset.zip(in_chunks(dataset), keys(seed or 0, epoch)).map(pack).prefetch(1)
    return without_autotuning(chunks.unbatch().batch(rows).map(fill).prefetch(8))


def _pack(
    ids: Array, splits: Array, key: Array, length: int, shift: int, shuffled: bool, padding_id: int
) -> tuple[Array, Array, Array]:
    """Packs a chunk, ids and where each document's begin and end: ids, segments and labels.

    `shift` is how far a label stands behind its id: 1, or 0 for no labels.
    """
    generator = np.random.default_rng(key)
    positions = np.maximum(np.diff(splits) - shift, 0)
    first = np.full(len(positions), length)
    if shuffled:
        long = positions > length
        first[long] = generator.integers(1, length + 1, np.count_nonzero(long))
    starts, sizes = _cut(splits[:-1], positions, first, length)
    row, offset, number, count = first_fit(sizes[:, None], np.array([length]))
    if shuffled:
        row = generator.permutation(count)[row]
    columns = np.repeat(offset[:, 0], sizes) + within(sizes)
    tokens = np.repeat(starts, sizes) + within(sizes)

    def lay_out(values: Array, empty: int = padding_id) -> Array:
        array = np.full((count, length), empty, "int32")
        array[np.repeat(row, sizes), columns] = values
        return array

    segments = lay_out(np.repeat(number, sizes), 0)
    return lay_out(ids[tokens]), segments, lay_out(ids[tokens + shift])


def _cut(starts: Array, positions: Array, first: Array, length: int) -> tuple[Array, Array]:
    """Starts and sizes of pieces: of each document the `first` positions, then `length` each."""
    first = np.minimum(first, positions)
    pieces = np.where(positions > 0, 1 + -(-(positions - first) // length), 0)
    document = np.repeat(np.arange(len(positions)), pieces)
    end = np.minimum(first[document] + within(pieces) * length, positions[document])
    begin = np.where(within(pieces) > 0, first[document] + (within(pieces) - 1) * length, 0)
    return starts[document] + begin, end - begin
