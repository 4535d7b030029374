"""Streams of text from shards: pairs, documents, labelled texts."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tokenizer
from keras_transformers.data.labels import indicated_names, indicator_size, names_of, whole_number
from keras_transformers.data.shard_streams import Encoded
from keras_transformers.data.shards import as_texts
from keras_transformers.text.batching import bucketed_chunks, check_boundaries, framed
from keras_transformers.text.subword_sampling import SubwordSampler, can_be_drawn

Encode = Callable[..., Encoded]


def encoder_of_pairs(
    tokenizer: Tokenizer,
    longest: tuple[int, int],
    target_tokenizer: Tokenizer | None = None,
    sample: float | None = None,
    seed: int = 0,
) -> Encode:
    """What makes ids of pairs, for a `ShardStream`; pairs that are too long are left out.

    Args:
        tokenizer, target_tokenizer, sample: As for `encode_pairs`; of a split that is drawn and too
            long the best one is taken, and left out if that is too long.
        longest: Most ids of source and target, END counted, START not: the rows that are packed.
        seed: Of the splits that are drawn.

    Returns:
        A function of `(key, sources, targets)` that gives an `Encoded` whose chunk is what
        `packed` and, unbatched, `bucketed` take.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import SentencePieceTokenizer, encoder_of_pairs
    >>> tokenizer = SentencePieceTokenizer.train(["a b", "b a"] * 9, vocab_size=7)
    >>> encode = encoder_of_pairs(tokenizer, longest=(4, 4))
    >>> encoded = encode(tf.zeros(3, tf.int64), ["a", "a b a b"], ["b", "b"])
    >>> {reason: rows.numpy().tolist() for reason, rows in encoded.left_out.items()}
    {'over 4 source or 4 target pieces': [False, True]}
    """
    target_tokenizer = target_tokenizer or tokenizer
    most = {"source": longest[0], "target": longest[1] + 1}  # labels lack START
    reason = f"over {longest[0]} source or {longest[1]} target pieces"

    def too_long(ids: dict[str, tf.RaggedTensor]) -> tf.Tensor:
        return tf.reduce_any([ids[side].row_lengths() > most[side] for side in ids], axis=0)

    def encode(key: tf.Tensor, sources: tf.Tensor, targets: tf.Tensor) -> Encoded:
        ids = {
            "source": tokenizer.tokenize(sources, end=True),
            "target": target_tokenizer.tokenize(targets, start=True, end=True),
        }
        long = too_long(ids)
        if sample is not None:
            drawn = {
                "source": _draw(tokenizer, sources, sample, (seed, key, 1), end=True),
                "target": _draw(
                    target_tokenizer, targets, sample, (seed, key, 2), start=True, end=True
                ),
            }
            unfit = too_long(drawn)
            number = tf.range(tf.size(unfit))
            rows = tf.where(unfit, number, tf.size(unfit) + number)
            ids = {side: tf.gather(tf.concat([ids[side], drawn[side]], 0), rows) for side in ids}
        kept = {side: tf.ragged.boolean_mask(ids[side], ~long) for side in ids}
        return Encoded(kept, {reason: long})

    return encode


def _draw(
    tokenizer: Tokenizer,
    strings: tf.Tensor,
    alpha: float,
    seeds: tuple[int, tf.Tensor, int],
    **marks: bool,
) -> tf.RaggedTensor:
    """Splits of strings in a graph, drawn by seeds where the tokenizer allows it."""
    if not can_be_drawn(tokenizer):
        tokenize: Any = tokenizer.tokenize
        return tokenize(strings, sample=alpha, **marks)

    def draw(strings: Array, key: Array) -> tuple[Array, Array]:
        sampler = SubwordSampler(tokenizer, [text.decode() for text in strings], alpha)
        ids, lengths = sampler.sample(np.arange(len(strings)), [*key.tolist()], **marks)
        return ids, lengths.astype(np.int64)

    seed, key, side = seeds
    key = tf.concat([[seed], tf.cast(key, tf.int64), [side]], 0)
    ids, lengths = tf.numpy_function(draw, [strings, key], [tf.int32, tf.int64])
    ids, lengths = tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])
    return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)


def encoder_of_documents(tokenizer: Tokenizer) -> Encode:
    """What makes ids of documents with START and END, for a `ShardStream` and `packed_documents`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import SentencePieceTokenizer, encoder_of_documents
    >>> tokenizer = SentencePieceTokenizer.train(["a b", "b a"] * 9, vocab_size=7)
    >>> encode = encoder_of_documents(tokenizer)
    >>> encode(tf.zeros(3, tf.int64), ["", "a"]).chunk.row_lengths().numpy().tolist()
    [2, 4]
    """
    return lambda key, texts: Encoded(tokenizer.tokenize(texts, start=True, end=True))


def encoder_of_labelled(tokenizer: Tokenizer, longest: int) -> Encode:
    """What makes ids of labelled texts as `framed` does, for a `ShardStream` and its `bucketing`.

    Texts that have to be cut are counted as such.

    Args:
        tokenizer: Any tokenizer of `keras_transformers.text`.
        longest: Most ids of a text, marks included.

    Returns:
        A function of `(key, texts, labels)` that gives an `Encoded`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import WordPieceTokenizer, encoder_of_labelled
    >>> tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"])
    >>> encode = encoder_of_labelled(tokenizer, longest=4)
    >>> ids, labels = encode(tf.zeros(3, tf.int64), ["cat", "cat cat cat"], [0, 1]).chunk
    >>> ids.to_list()
    [[2, 5, 3], [2, 5, 5, 3]]
    """

    def encode(key: tf.Tensor, texts: tf.Tensor, labels: tf.Tensor) -> Encoded:
        ids, cut = framed(tokenizer, texts, longest)
        return Encoded((ids, labels), noted={f"over {longest} pieces, cut": cut})

    return encode


def bucketing(
    boundaries: Sequence[int], tokens_per_batch: int, padding_id: int = 0
) -> Callable[[tf.data.Dataset, tf.Tensor], tf.data.Dataset]:
    """What makes batches as `bucketed_texts` does of the chunks of a `ShardStream`.

    Args:
        boundaries, tokens_per_batch, padding_id: As for `bucketed_texts`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import bucketing
    >>> chunk = (tf.ragged.constant([[2, 7, 3], [2, 7, 8, 9, 3]]), [0, 1])
    >>> arrange = bucketing((4, 8), tokens_per_batch=8)
    >>> [ids.shape[1] for ids, _, _ in arrange(tf.data.Dataset.from_tensors(chunk), 0)]
    [8, 4]
    """
    boundaries = check_boundaries("bucketing", boundaries, tokens_per_batch)

    def arrange(chunks: tf.data.Dataset, epoch: tf.Tensor) -> tf.data.Dataset:
        return bucketed_chunks(chunks, boundaries, tokens_per_batch, padding_id)

    return arrange


def row_of_labels(
    classes: Sequence[str], separator: str | None = None, indicators: bool = False
) -> Callable[..., Any]:
    """What a row of `Shards` with a text and the name of its class becomes: text and number.

    Args:
        classes: Names of the classes; a row of another is left out, and counted.
        separator: What stands between the names where a text can have several classes, or none:
            then 0 and 1 for each class.
        indicators: True if labels are lists of 0 and 1, a number for each class.

    Example:
    >>> from keras_transformers.text import row_of_labels
    >>> row_of_labels(["animal", "plant"])(["a rose", "plant"])
    [b'a rose', 1]
    """
    numbers = {name: number for number, name in enumerate(classes)}

    def row(values: Sequence[Any]) -> list[Any] | str:
        text, label = as_texts(values[:1]), values[1]
        if indicators and indicator_size(label) != len(classes):
            return "whose label is no list of 0 and 1 for each class"
        label_names = indicated_names(label, classes) if indicators else names_of(label, separator)
        names = {name if name in numbers else whole_number(name) for name in label_names}
        if isinstance(text, str):
            return "empty"
        if separator is None and len(names) != 1:
            return "with several labels" if names else "without a label"
        if not names <= numbers.keys():
            return "of a class that is not in the list"
        if separator is None:
            return [*text, numbers[names.pop()]]
        return [*text, [int(name in names) for name in numbers]]

    return row
