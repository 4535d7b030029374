"""Several pairs in one row: batches of a single shape in which nearly every position is used."""

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Array
from keras_transformers.streams import keys, without_autotuning

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
            lambda a, a_splits, b, b_splits, key: _pack(
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


def _pack(
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
