"""Hiding words of what a model reads, as a regulariser."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import Values
from keras_transformers.streams import Draws, keys


def word_dropout(
    batches: tf.data.Dataset,
    rate: float,
    hidden_id: int,
    special_ids: Iterable[int] = (0, 1, 2),
    starts_word: Values | None = None,
    names: Sequence[str] = ("source", "target"),
    seed: int = 0,
    epoch: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Hides each word of the inputs with a probability; the labels stay as they are.

    A decoder that does not always see what it has written leans more on the source (Bowman et al.
    2016, https://arxiv.org/abs/1511.06349, section 3.1; for translation Sennrich et al. 2016,
    https://arxiv.org/abs/1606.02891, section 2.3, on both sides).

    Args:
        batches: Dataset of `(inputs, labels)`, inputs a dict of int32 `(rows, length)`, as from
            `packed` or `bucketed`.
        rate: Probability of each word, or of each token, in `[0, 1)`.
        hidden_id: What stands in the place of a hidden one; the unknown id, where there is no
            other.
        special_ids: Ids that are never hidden: padding, START, END, marks of languages.
        starts_word: None for single tokens; a bool array `(vocab_size,)` for whole words, True
            where an id begins one (a tokenizer's `starts_word`). All tokens of a word are hidden
            or none.
        names: Of the inputs.
        seed: Of all draws, together with the number of the epoch and of the batch.
        epoch: Number of the epoch whose draws are taken, as for `encode_pairs`.

    Returns:
        A `tf.data.Dataset` of the same structure.

    Raises:
        ValueError: If `rate` is not in `[0, 1)`, or an input is missing.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import word_dropout
    >>> row = tf.constant([[1, 7, 8, 9, 2, 0]])
    >>> batches = tf.data.Dataset.from_tensors(({"source": row, "target": row}, row))
    >>> inputs, _ = next(iter(word_dropout(batches, 0.99, hidden_id=3)))
    >>> inputs["source"].numpy().tolist()
    [[1, 3, 3, 3, 2, 0]]
    """
    if not 0 <= rate < 1:
        raise ValueError(f"word_dropout: `rate` must be in [0, 1). Received: {rate}")
    found = batches.element_spec[0]
    if missing := [name for name in names if name not in found]:
        raise ValueError(
            f"word_dropout: `names` must be inputs of `batches`, {sorted(found)}. "
            f"Received: {', '.join(missing)}"
        )
    special = tf.constant(sorted({*special_ids}), tf.int32)
    starts = None if starts_word is None else np.asarray(starts_word, bool)

    def hidden(ids: tf.Tensor, draws: Draws) -> tf.Tensor:
        kept = tf.reduce_any(ids[..., None] == special, axis=-1)
        drawn = draws.uniform(tf.shape(ids)) < rate
        if starts is not None:  # what is drawn for the n-th word counts for all its tokens
            begins = tf.gather(starts, ids) | kept
            number = tf.cumsum(tf.cast(begins, tf.int32), axis=1)
            drawn = tf.gather(drawn, tf.maximum(number - 1, 0), batch_dims=1)
        return tf.where(drawn & ~kept, hidden_id, ids)

    def hide(batch: Any, key: tf.Tensor) -> Any:
        (inputs, *rest), draws = batch, Draws(key)
        words = {name: hidden(inputs[name], draws) for name in names}
        return ({**inputs, **words}, *rest)

    return tf.data.Dataset.zip(batches, keys(seed, epoch)).map(hide)
