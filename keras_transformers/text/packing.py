"""Several pairs or documents in a row, so that nearly every position is used, and sliding windows.

A long document is cut into rows, or a window slides over it, so that every token has context.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array
from keras_transformers.data.streams import keys, without_autotuning

CHUNK = 8192  # pairs that are packed at a time


def balanced_lengths(dataset: tf.data.Dataset, longest: int) -> tuple[int, int]:
    """Row lengths for `packed` that both sides fill alike.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`.
        longest: Positions in a row for the side that has more ids.

    Returns:
        Source and target length; that of the side with fewer ids is a multiple of 8.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, balanced_lengths, encode_pairs
    >>> tokenizer = SentencePieceTokenizer.train(["a b", "b a"] * 9, vocab_size=7)
    >>> balanced_lengths(encode_pairs(["a"], ["b a b a"], tokenizer), longest=48)
    (16, 48)
    """
    totals = np.zeros(2)
    for chunk in in_chunks(dataset):
        totals += chunk["source"].flat_values.shape[0], chunk["target"].flat_values.shape[0]
        totals[1] -= chunk["target"].nrows()
    shares = totals / max(totals.max(), 1)
    source, target = (min(longest, 8 * int(np.ceil(longest * share / 8))) for share in shares)
    return source, target


def packed(
    dataset: tf.data.Dataset,
    source_length: int,
    target_length: int,
    rows: int,
    seed: int = 0,
    join: float = 0.0,
    padding_id: int = 0,
    epoch: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Puts several pairs into each row, so that all batches have one shape and few empty positions.

    The pairs of a chunk of 8,192 are placed largest first, each into the first row with room for
    both its sides (first-fit decreasing; Krell et al. 2021, https://arxiv.org/abs/2107.02027,
    packs likewise), and the chunk's rows are shuffled. Segments keep the pairs of a row apart.

    Rows fill evenly only when `source_length / target_length` is near the ratio of the two sides'
    numbers of ids: with 64 positions each, text of 9 source ids to 10 target ids cannot pass 95 %.

    An epoch of several chunks can be a batch longer or shorter than the one before, and Keras takes
    the first epoch's number for all: call `fit` with `streams.epochs`, or with
    `packed(...).repeat()`, and `steps_per_epoch`.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`: single
            pairs, or ragged batches of some thousands, which go faster and are packed each alone.
        source_length, target_length: Positions in a row on either side.
        rows: Rows in a batch.
        seed: Of the shuffling of rows and of the joining; both differ by epoch.
        join: Share of couples of pairs, neighbours in `dataset`, that are made one longer pair:
            `x x' END` and `START y y' END`. For training on text that is shorter than what will be
            translated: a model that has seen short text alone ends its sentences too early (Kondo
            et al. 2021, https://arxiv.org/abs/2104.08478, concatenate sentences likewise).
        padding_id: The id that stands for padding.
        epoch: Number of the epoch whose order is taken, as for `encode_pairs`.

    Returns:
        `tf.data.Dataset` of `({"source", "target", "source_segments", "target_segments"}, labels)`,
        int32, `(rows, source_length)` or `(rows, target_length)`. The pairs of a row are numbered
        1, 2, 3 ... in its segments, 0 at padding. `target` lacks the last id, `labels` the first.
        The last batch is filled with rows of padding.

    Raises:
        ValueError: If `join` is not in `[0, 1]`; while iterating, if a pair is longer than a row.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, encode_pairs, packed
    >>> lines = ["the cat sat", "a dog", "the cat sat on a dog"]
    >>> tokenizer = SentencePieceTokenizer.train(lines * 9, vocab_size=16)
    >>> batches = packed(encode_pairs(lines, lines, tokenizer), 48, 48, rows=2)
    >>> [tuple(labels.shape) for _, labels in batches]
    [(2, 48)]
    """
    if not 0 <= join <= 1:
        raise ValueError(f"packed: `join` must be in [0, 1]. Received: {join}")
    capacity = np.array([source_length, target_length])

    def pack(
        chunk: dict[str, tf.RaggedTensor], key: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        source, target = chunk["source"], chunk["target"]
        source, target, labels, source_segments, target_segments = tf.numpy_function(
            lambda a, a_splits, b, b_splits, key: _pack_pairs(
                a, a_splits, b, b_splits, key, capacity, join, padding_id
            ),
            [source.values, source.row_splits, target.values, target.row_splits, key],
            [tf.int32] * 5,
        )
        inputs = {
            "source": source,
            "target": target,
            "source_segments": source_segments,
            "target_segments": target_segments,
        }
        return inputs, labels

    def fill(
        inputs: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        lengths = {"source": source_length, "target": target_length}
        inputs = {
            name: full_batch(
                ids, rows, lengths[name.split("_")[0]], padding_id if name in lengths else 0
            )
            for name, ids in inputs.items()
        }
        return inputs, full_batch(labels, rows, target_length, padding_id)

    chunks = tf.data.Dataset.zip(in_chunks(dataset), keys(seed, epoch)).map(pack).prefetch(1)
    return without_autotuning(chunks.unbatch().batch(rows).map(fill).prefetch(8))


def in_chunks(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Ragged batches of sequences, whether the dataset holds those or single ones."""
    single = tf.nest.flatten(dataset.element_spec)[0].shape.rank == 1
    return dataset.ragged_batch(CHUNK) if single else dataset


def full_batch(ids: tf.Tensor, rows: int, length: int, padding_id: int = 0) -> tf.Tensor:
    """A batch with rows of padding until it is full; its shape, which `numpy_function` hides."""
    missing = [(0, rows - tf.shape(ids)[0]), (0, 0)]
    return tf.ensure_shape(tf.pad(ids, missing, constant_values=padding_id), (rows, length))


def _pack_pairs(
    source: Array,
    source_splits: Array,
    target: Array,
    target_splits: Array,
    key: Array,
    capacity: Array,
    join: float,
    padding_id: int,
) -> tuple[Array, ...]:
    """Packs a chunk, ids and where each pair's begin and end, into arrays of shuffled rows.

    Returns source, target, labels, source segments and target segments.
    """
    generator = np.random.default_rng(key)
    sizes = _sizes(source_splits, target_splits)
    if np.any(sizes > capacity):
        raise ValueError(
            f"packed: a pair has {sizes.max(axis=0).tolist()} source and target ids, but a row has "
            f"positions for {capacity.tolist()}. Leave such pairs out beforehand, and count them "
            "(PairCorpus.without_long)."
        )
    if join:
        first = _couples(sizes, capacity, join, generator)
        source, source_splits = _merge(source, source_splits, first, 0)
        target, target_splits = _merge(target, target_splits, first, 1)
        sizes = _sizes(source_splits, target_splits)
    row, offset, number, count = first_fit(sizes, capacity)
    row = generator.permutation(count)[row]

    def lay_out(side: int, values: Array, empty: int = padding_id) -> Array:
        """An array of rows, with one value for each token of a side at the token's position."""
        size = sizes[:, side]
        array = np.full((count, capacity[side]), empty, "int32")
        array[np.repeat(row, size), np.repeat(offset[:, side], size) + within(size)] = values
        return array

    def shifted(skip: int) -> Array:
        """The ids of all targets but one each, the first (`skip` 1) or the last (0)."""
        size = sizes[:, 1]
        return target[np.repeat(target_splits[:-1] + skip, size) + within(size)]

    return (
        lay_out(0, source),
        lay_out(1, shifted(0)),
        lay_out(1, shifted(1)),
        lay_out(0, np.repeat(number, sizes[:, 0]), 0),
        lay_out(1, np.repeat(number, sizes[:, 1]), 0),
    )


def _sizes(source_splits: Array, target_splits: Array) -> Array:
    """Source and target positions that each pair of a chunk takes."""
    return np.stack([np.diff(source_splits), np.diff(target_splits) - 1], axis=1)


def _couples(sizes: Array, capacity: Array, share: float, generator: np.random.Generator) -> Array:
    """The first pairs of that share of the couples (0, 1), (2, 3) ... which fit into a row."""
    couples = len(sizes) // 2
    drawn = generator.random(couples) < share
    together = sizes[: 2 * couples].reshape(couples, 2, 2).sum(axis=1) - 1
    return 2 * np.flatnonzero(drawn & np.all(together <= capacity, axis=1))


def _merge(ids: Array, splits: Array, first: Array, after: int) -> tuple[Array, Array]:
    """Drops the END of each `first`, `after` more ids behind it, and the split between the two."""
    keep = np.ones(len(ids), bool)
    for step in range(-1, after):
        keep[splits[first + 1] + step] = False
    left = np.concatenate([[0], np.cumsum(keep)])[splits]
    return ids[keep], np.delete(left, first + 1)


def within(sizes: Array) -> Array:
    """0 .. size - 1 for each of the sizes, one after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def first_fit(sizes: Array, capacity: Array) -> tuple[Array, Array, Array, int]:
    """First-fit decreasing of sequences of one or more sides.

    Args:
        sizes: `(sequences, sides)`: positions that each takes.
        capacity: `(sides,)`: positions in a row.

    Returns:
        Each sequence's row, offsets and number in the row, from 1; and the number of rows.
    """
    count = len(sizes)
    free = np.tile(capacity, (count, 1)).T.copy()  # (sides, rows): room left in each row
    row, number = np.empty(count, int), np.empty(count, int)
    offset, filled = np.empty(sizes.shape, int), np.zeros(count, int)
    used = 0
    # By the sum of both sides: fills rows better than by the longer, by one, or by relative sizes.
    for one in np.argsort(-sizes.sum(axis=1), kind="stable"):
        room = np.all(free[:, : used + 1] >= sizes[one, :, None], axis=0)
        position = int(room.argmax())
        used = max(used, position + 1)
        row[one], offset[one] = position, capacity - free[:, position]
        filled[position] += 1
        number[one] = filled[position]
        free[:, position] -= sizes[one]
    return row, offset, number, used


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
            lambda ids, splits, key: _pack_documents(
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


def _pack_documents(
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


def sliding_windows(
    documents: Iterable[Sequence[int] | Array], length: int, stride: int, padding_id: int = 0
) -> tuple[Array, Array]:
    """Windows in which every token of every document is predicted once.

    The windows of a document begin `stride` tokens after one another, and each counts only what no
    window before it did: all but a document's first tokens are predicted from at least `length -
    stride` before them (Baevski & Auli 2019, https://arxiv.org/abs/1809.10853, section 4.3).

    Args:
        documents: Iterable of sequences of integer ids, START and END included.
        length: Places of a window.
        stride: Tokens from one window to the next; `length` for windows that do not overlap.
        padding_id: The id that stands for padding.

    Returns:
        Ids and labels, int32 `(windows, length)` each; labels are padding where they do not count.

    Raises:
        ValueError: If `stride` is not between 1 and `length`.

    Example:
    >>> from keras_transformers.text import sliding_windows
    >>> ids, labels = sliding_windows([[1, 5, 6, 7, 8, 2]], length=4, stride=2)
    >>> ids.tolist(), labels.tolist()
    ([[1, 5, 6, 7], [6, 7, 8, 0]], [[5, 6, 7, 8], [0, 0, 2, 0]])
    """
    if not 1 <= stride <= length:
        raise ValueError(
            f"sliding_windows: `stride` must be between 1 and `length`={length}. Received: {stride}"
        )
    rows = []
    for document in documents:
        document = np.asarray(document, "int32")
        ids, labels = document[:-1], document[1:]
        overlap, covered, start = length - stride, 0, 0
        while covered < len(ids):
            window = np.full((2, length), padding_id, "int32")
            end = min(start + length, len(ids))
            window[0, : end - start] = ids[start:end]
            window[1, covered - start : end - start] = labels[covered:end]
            rows.append(window)
            covered, start = end, end - overlap
    windows = np.array(rows, "int32").reshape(-1, 2, length)
    return windows[:, 0], windows[:, 1]
