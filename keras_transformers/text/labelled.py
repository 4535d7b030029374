"""Batches of labelled texts, of few shapes."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Strings, Tokenizer, Values
from keras_transformers.streams import orders, without_autotuning
from keras_transformers.text.batching import CHUNK, check_boundaries
from keras_transformers.text.frames import in_marks, marks_of


def framed(
    tokenizer: Tokenizer, strings: Strings, longest: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Ids of texts as a classifier sees them: START, what fits, END.

    Or what else the tokenizer puts around a text, see `frames.marks_of`: GPT-2's nothing.

    Args:
        tokenizer: Any tokenizer of `keras_transformers.text`.
        strings: String tensor, or list, `(texts,)`.
        longest: Most ids of a text, marks included.

    Returns:
        int32 RaggedTensor `(texts, None)`, and bool `(texts,)`: which had to be cut.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer, framed
    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"])
    >>> ids, cut = framed(tokenizer, ["cat", "cat cat cat"], longest=4)
    >>> ids.to_list(), cut.numpy().tolist()
    ([[2, 5, 3], [2, 5, 5, 3]], [False, True])
    """
    ids = tokenizer.tokenize(strings)
    marks = marks_of(tokenizer)
    room = longest - sum(map(len, marks))
    return in_marks(ids[:, :room], marks), ids.row_lengths() > room


def bucketed_texts(
    ids: tf.RaggedTensor,
    labels: Values,
    boundaries: Sequence[int],
    tokens_per_batch: int,
    seed: int | None = None,
    epoch: int | tf.Tensor | None = None,
    padding_id: int = 0,
) -> tf.data.Dataset:
    """Groups labelled texts of like length, so that XLA compiles one shape for each boundary.

    A text goes to the first boundary that it does not exceed and is padded to it. A batch
    has `tokens_per_batch // boundary` rows; the last of a bucket is filled with rows of padding,
    whose weight is 0.

    Args:
        ids: Ragged integers `(texts, None)`.
        labels: Integers `(texts,)`, or 0 and 1 `(texts, classes)` where there can be several.
        boundaries: Increasing lengths, for instance `(32, 64, 128)`.
        tokens_per_batch: Places of a batch, at most.
        seed: Of the order of the texts, another one in each epoch; None keeps it.
        epoch: Number of the epoch whose order is taken, as for `encode_pairs`.
        padding_id: What texts are padded with: the model's.

    Returns:
        `tf.data.Dataset` of `(ids, labels, weights)`: int32 `(tokens_per_batch // boundary,
        boundary)`, int32 `(tokens_per_batch // boundary,)`, or with classes behind, and float32
        `(tokens_per_batch // boundary,)`.

    Raises:
        ValueError: If the boundaries do not increase, the budget is below the last of them, or a
            text is longer than that: cut it beforehand.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import bucketed_texts
    >>> ids = tf.ragged.constant([[2, 7, 3], [2, 7, 8, 9, 3], [2, 8, 3]])
    >>> for ids, labels, weights in bucketed_texts(ids, [0, 1, 1], (4, 8), tokens_per_batch=8):
    ...     print(tuple(ids.shape), labels.numpy().tolist(), weights.numpy().tolist())
    (1, 8) [1] [1.0]
    (2, 4) [0, 1] [1.0, 1.0]
    """
    boundaries = check_boundaries("bucketed_texts", boundaries, tokens_per_batch)
    with tf.init_scope():  # `streams.epochs` asks for it within a graph
        ids, labels = tf.cast(ids, tf.int32), tf.cast(labels, tf.int32)
        longest = np.max(ids.row_lengths())  # AutoGraph would make a tensor of `int(...)`
    if longest > boundaries[-1]:
        raise ValueError(
            f"bucketed_texts: `ids` must be at most {boundaries[-1]} long, the last boundary. "
            f"Received: {longest}"
        )
    chunks = orders(len(labels), CHUNK, seed, epoch).map(
        lambda chosen: (tf.gather(ids, chosen), tf.gather(labels, chosen))
    )
    return bucketed_chunks(chunks, boundaries, tokens_per_batch, padding_id)


def bucketed_chunks(
    chunks: tf.data.Dataset, boundaries: Sequence[int], tokens_per_batch: int, padding_id: int
) -> tf.data.Dataset:
    """What `bucketed_texts` makes, of a dataset of ragged ids and their labels."""
    sizes = [tokens_per_batch // boundary for boundary in boundaries]

    def fill(ids: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        rows = tf.gather(sizes, tf.argmax(tf.constant(boundaries) >= tf.shape(ids)[1]))
        number = tf.shape(labels)[0]
        missing = [[0, rows - number]]
        labels = tf.pad(labels, missing + [[0, 0]] * (labels.shape.rank - 1))
        ids = tf.pad(ids, [*missing, [0, 0]], constant_values=padding_id)
        return ids, labels, tf.pad(tf.ones([number]), missing)

    # Each text is a dense vector then, which TensorFlow must be told.
    dataset = chunks.unbatch().map(lambda ids, labels: (tf.reshape(ids, [-1]), labels))
    batches = dataset.bucket_by_sequence_length(
        lambda ids, labels: tf.size(ids),
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*sizes, 1],
        pad_to_bucket_boundary=True,
        padding_values=(padding_id, 0),
    )
    return without_autotuning(batches.map(fill).prefetch(8))
