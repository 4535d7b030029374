"""Batches of few static shapes and little padding, for XLA: length buckets, or packed rows."""

import itertools

import numpy as np
import tensorflow as tf

from keras_transformers.text.tokenizers import PAD_ID

CHUNK = 8192  # pairs that are tokenised, or packed, at a time


def encode_pairs(
    sources,
    targets,
    tokenizer,
    shuffle_seed=None,
    sample=None,
    target_tokenizer=None,
    batch_size=None,
):
    """Makes a dataset of id sequences from two lists of sentences.

    Args:
        sources, targets: Lists of str of one length.
        tokenizer: A `SentencePieceTokenizer`.
        shuffle_seed: None keeps the order. An integer shuffles the whole list, in another order
            each time the dataset is iterated; the orders follow from this seed alone.
        sample: Strength of subword regularisation (Kudo 2018, https://arxiv.org/abs/1804.10959; see
            `SentencePieceTokenizer.tokenize`). The splits drawn do not follow from the seed.
        target_tokenizer: Tokenizer of the targets; by default `tokenizer`.
        batch_size: None gives single pairs. A number gives ragged batches of so many pairs, which
            `packed` reads three times as fast.

    Returns:
        `tf.data.Dataset` of `{"source": [x_1 .. x_n, END], "target": [START, y_1 .. y_m, END]}`,
        int32: tensors `(length,)`, or RaggedTensors `(batch_size, None)`.

    Raises:
        ValueError: If the lists differ in length.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, encode_pairs
    >>> tokenizer = SentencePieceTokenizer.train(["a b", "b a"] * 9, vocab_size=7)
    >>> [pair["target"].numpy().tolist() for pair in encode_pairs(["a", "b"], ["", ""], tokenizer)]
    [[1, 2], [1, 2]]
    """
    if len(sources) != len(targets):
        raise ValueError(
            f"encode_pairs: `targets` must have as many sentences as `sources`, {len(sources)}. "
            f"Received: {len(targets)}"
        )
    target_tokenizer = target_tokenizer or tokenizer
    texts = [tf.constant(list(side), tf.string) for side in (sources, targets)]

    def encode(chosen):
        source, target = (tf.gather(side, chosen) for side in texts)
        return {
            "source": tokenizer.tokenize(source, end=True, sample=sample),
            "target": target_tokenizer.tokenize(target, start=True, end=True, sample=sample),
        }

    # In chunks: one call of the tokenizer for a single sentence costs as much as for hundreds.
    chunks = _orders(len(sources), batch_size or CHUNK, shuffle_seed).map(encode).prefetch(1)
    return chunks if batch_size else chunks.unbatch()


def _orders(count, size, seed):
    """Dataset of the indices 0 .. count - 1 in pieces of `size`, in a new order each epoch.

    Not `Dataset.shuffle`: its order follows from TensorFlow's global seed as well.
    """
    if seed is None:
        return tf.data.Dataset.range(count).batch(size)
    epochs = itertools.count()

    def pieces():
        order = np.random.default_rng([seed, next(epochs)]).permutation(count)
        for start in range(0, count, size):
            yield order[start : start + size]

    return tf.data.Dataset.from_generator(
        pieces, output_signature=tf.TensorSpec((None,), tf.int64)
    )


def balanced_lengths(dataset, longest):
    """Row lengths for `packed` that both sides fill alike.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`.
        longest: Places in a row for the side that has more ids.

    Returns:
        Source and target length; that of the side with fewer ids is a multiple of 8.
    """
    totals = np.zeros(2)
    for chunk in dataset.ragged_batch(CHUNK):
        totals += chunk["source"].flat_values.shape[0], chunk["target"].flat_values.shape[0]
        totals[1] -= chunk["target"].nrows()
    shares = totals / max(totals.max(), 1)
    return tuple(min(longest, 8 * int(np.ceil(longest * share / 8))) for share in shares)


def bucketed(dataset, boundaries, tokens_per_batch):
    """Groups pairs of like length, so that XLA compiles one shape for each boundary.

    A pair goes to the first boundary that its longer side does not exceed and is padded to it with
    0. A batch has `tokens_per_batch // boundary` rows; the last of a bucket is filled with rows of
    padding, which weigh nothing in the loss.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`.
        boundaries: Increasing lengths, for instance `(8, 16, 32, 64)`.
        tokens_per_batch: Places on each side of a batch, at most.

    Returns:
        `tf.data.Dataset` of `({"source", "target"}, labels)`, int32, each
        `(tokens_per_batch // boundary, boundary)`; `target` lacks the last id, `labels` the first.

    Raises:
        ValueError: If the boundaries do not increase or the budget is below the last of them.
        tf.errors.InvalidArgumentError: While iterating, if a pair is longer than the last boundary:
            leave such pairs out beforehand, and count them (`PairCorpus.without_long`).

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, bucketed, encode_pairs
    >>> lines = ["the cat sat", "a dog", "the cat sat on a dog"]
    >>> tokenizer = SentencePieceTokenizer.train(lines * 9, vocab_size=16)
    >>> batches = bucketed(encode_pairs(lines, lines, tokenizer), (16, 32), tokens_per_batch=64)
    >>> sorted({tuple(labels.shape) for _, labels in batches})[0]
    (4, 16)
    """
    boundaries = tuple(boundaries)
    increasing = all(a < b for a, b in zip(boundaries, boundaries[1:], strict=False))
    if not boundaries or not increasing or tokens_per_batch < boundaries[-1]:
        raise ValueError(
            "bucketed: `boundaries` must increase and not exceed `tokens_per_batch`. "
            f"Received: boundaries={boundaries}, tokens_per_batch={tokens_per_batch}"
        )
    sizes = [tokens_per_batch // boundary for boundary in boundaries]

    def split(pair):
        length = tf.maximum(tf.size(pair["source"]), tf.size(pair["target"]) - 1)
        tf.debugging.assert_less_equal(
            length, boundaries[-1], "bucketed: a pair is longer than the last boundary"
        )
        inputs = {"source": pair["source"], "target": pair["target"][:-1]}
        return inputs, pair["target"][1:]

    def fill(inputs, labels):
        length = tf.shape(labels)[1]
        rows = tf.gather(sizes, tf.argmax(tf.constant(boundaries) >= length))
        missing = [[0, rows - tf.shape(labels)[0]], [0, 0]]
        return tf.nest.map_structure(lambda ids: tf.pad(ids, missing), (inputs, labels))

    batches = dataset.map(split).bucket_by_sequence_length(
        lambda inputs, labels: tf.maximum(tf.size(inputs["source"]), tf.size(labels)),
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*sizes, 1],
        pad_to_bucket_boundary=True,
    )
    return batches.map(fill).prefetch(tf.data.AUTOTUNE)


def packed(dataset, source_length, target_length, rows, seed=0):
    """Puts several pairs into each row, so that all batches have one shape and few empty places.

    The pairs of a chunk of 8,192 are placed largest first, each into the first row with room for
    both its sides (first-fit decreasing; Krell et al. 2021, https://arxiv.org/abs/2107.02027,
    packs likewise), and the chunk's rows are shuffled. Segments keep the pairs of a row apart.

    Rows fill evenly only when `source_length / target_length` is near the ratio of the two sides'
    numbers of ids: with 64 places each, text of 9 source ids to 10 target ids cannot pass 95 %.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`: single
            pairs, or ragged batches of some thousands, which go faster and are packed each alone.
        source_length, target_length: Places in a row on either side.
        rows: Rows in a batch.
        seed: Of the shuffling of rows; it differs by epoch.

    Returns:
        `tf.data.Dataset` of `({"source", "target", "source_segments", "target_segments"}, labels)`,
        int32, `(rows, source_length)` or `(rows, target_length)`. The pairs of a row are numbered
        1, 2, 3 ... in its segments, 0 is padding. `target` lacks the last id, `labels` the first.
        The last batch is filled with rows of padding.

    Raises:
        ValueError: While iterating, if a pair is longer than a row.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, encode_pairs, packed
    >>> lines = ["the cat sat", "a dog", "the cat sat on a dog"]
    >>> tokenizer = SentencePieceTokenizer.train(lines * 9, vocab_size=16)
    >>> batches = packed(encode_pairs(lines, lines, tokenizer), 48, 48, rows=2)
    >>> [tuple(labels.shape) for _, labels in batches]
    [(2, 48)]
    """
    epochs = itertools.count()
    single = dataset.element_spec["source"].shape.rank == 1
    chunks = (dataset.ragged_batch(CHUNK) if single else dataset).prefetch(1)
    lengths = {"source": source_length, "target": target_length}

    def batches():
        generator = np.random.default_rng([seed, next(epochs)])
        left = None
        for chunk in chunks:
            ready = _pack(chunk, lengths, generator)
            if left is not None:
                ready = {name: np.concatenate([left[name], ready[name]]) for name in ready}
            whole = len(ready["labels"]) // rows * rows
            for i in range(0, whole, rows):
                yield _batch(ready, i, rows)
            left = {name: array[whole:] for name, array in ready.items()}
        if left is not None and len(left["labels"]):
            yield _batch(left, 0, rows)

    source = tf.TensorSpec((rows, source_length), tf.int32)
    target = tf.TensorSpec((rows, target_length), tf.int32)
    inputs = {
        "source": source,
        "target": target,
        "source_segments": source,
        "target_segments": target,
    }
    signature = (inputs, target)
    return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(8)


def _batch(arrays, start, rows):
    """Rows `start .. start + rows` of all arrays, filled with padding, as (inputs, labels)."""

    def take(array):
        part = array[start : start + rows]
        return np.pad(part, [(0, rows - len(part)), (0, 0)])

    inputs = {name: take(array) for name, array in arrays.items() if name != "labels"}
    return inputs, take(arrays["labels"])


def _pack(chunk, lengths, generator):
    """Packs one chunk of ragged pairs into arrays of shuffled rows."""
    source, target = chunk["source"], chunk["target"]
    sizes = np.stack([source.row_lengths().numpy(), target.row_lengths().numpy() - 1], axis=1)
    capacity = np.array([lengths["source"], lengths["target"]])
    if np.any(sizes > capacity):
        raise ValueError(
            f"packed: a pair has {sizes.max(axis=0).tolist()} source and target ids, but a row has "
            f"places for {capacity.tolist()}. Leave such pairs out beforehand, and count them "
            "(PairCorpus.without_long)."
        )
    row, offset, segment, count = _first_fit(sizes, capacity)
    row = generator.permutation(count)[row]
    splits = [source.row_splits.numpy(), target.row_splits.numpy()]
    packed = {}

    def scatter(name, side, values, fill=None):
        """Copies a side's sequences (without `values`' first or last id) to their places."""
        size = sizes[:, side]
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        array = np.full((count, capacity[side]), PAD_ID, "int32")
        places = np.repeat(offset[:, side], size) + within
        array[np.repeat(row, size), places] = values(within, size) if fill is None else fill(size)
        packed[name] = array

    def ids(side, ragged, shift):
        flat = ragged.flat_values.numpy()
        first = splits[side][:-1] + shift
        return lambda within, size: flat[np.repeat(first, size) + within]

    def numbers(size):
        return np.repeat(segment, size)

    scatter("source", 0, ids(0, source, 0))
    scatter("target", 1, ids(1, target, 0))
    scatter("labels", 1, ids(1, target, 1))
    scatter("source_segments", 0, None, numbers)
    scatter("target_segments", 1, None, numbers)
    return packed


def _first_fit(sizes, capacity):
    """First-fit decreasing in two dimensions: each pair's row, offsets and number in the row."""
    pairs = len(sizes)
    free = np.tile(capacity, (pairs, 1)).T.copy()  # (2, rows): room left in each row
    row, segment = np.empty(pairs, int), np.empty(pairs, int)
    offset, filled = np.empty((pairs, 2), int), np.zeros(pairs, int)
    used = 0
    # By the sum of both sides: fills rows better than by the longer, by one, or by relative sizes.
    for pair in np.argsort(-sizes.sum(axis=1), kind="stable"):
        source, target = sizes[pair]
        room = (free[0, : used + 1] >= source) & (free[1, : used + 1] >= target)
        place = int(room.argmax())
        used = max(used, place + 1)
        row[pair], offset[pair] = place, capacity - free[:, place]
        filled[place] += 1
        segment[pair] = filled[place]
        free[:, place] -= source, target
    return row, offset, segment, used


def real_token_share(batches):
    """Share of places that hold a real token, source and target counted together.

    Args:
        batches: Iterable of `({"source": ids, "target": ids, ...}, labels)`.

    Returns:
        A float in [0, 1].
    """
    real = places = 0
    for inputs, _ in batches:
        for name in ("source", "target"):
            real += int(np.count_nonzero(inputs[name]))
            places += int(np.size(inputs[name]))
    return real / max(places, 1)
