"""Hidden tokens: for a model to restore (BERT's masked language modelling), or as a regulariser."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Values
from keras_transformers.data.streams import Draws, keys, without_autotuning
from keras_transformers.text.packing import within

HIDDEN, REPLACED = 0.8, 0.1  # shares of the chosen tokens; the rest stays as it is


def masked(
    dataset: tf.data.Dataset,
    mask_id: int,
    vocab_size: int,
    special_ids: Iterable[int],
    rate: float = 0.15,
    starts_word: Values | None = None,
    seed: int = 0,
    dynamic: bool = True,
    epoch: int | tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Chooses tokens of each row to be restored, and hides most of them.

    Of the chosen, 80 % become `mask_id`, 10 % another id at random, 10 % stay (Devlin et al. 2018,
    https://arxiv.org/abs/1810.04805, section 3.1), which is drawn for each token alone.

    In a row, `rate` of the tokens that may be chosen are, rounded, but at least one. With
    `starts_word` they are chosen by whole words, in a random order: a word which no longer fits
    into the number is passed over, as in Devlin's code of 2019, so that a row can have a token or
    two fewer, and a word longer than the number is never chosen. No word reaches from one segment
    into the next.

    Args:
        dataset: Of `{"ids", "segments"}`, int32 `(rows, length)`, as from
            `packed_documents(..., shift=False)`; what else is in it is passed on.
        mask_id: The id that hides a token.
        vocab_size: Random ids are below it.
        special_ids: Ids that are never chosen and never put in; 0 and `mask_id` never are.
        rate: Share of tokens to choose.
        starts_word: None for single tokens; a bool array `(vocab_size,)` for whole words, True
            where an id begins one (a tokenizer's `starts_word`).
        seed: Of all draws, together with the number of the epoch and of the batch.
        dynamic: Whether each epoch draws anew (Liu et al. 2019, https://arxiv.org/abs/1907.11692,
            section 4.1); False draws the same every time, for validation. An epoch is one run
            through this dataset: put `.repeat()` after `masked`, not before.
        epoch: Number of the epoch whose order is taken, as for `encode_pairs`.

    Returns:
        `tf.data.Dataset` of `({"ids", "segments", "masked_positions"}, labels)`:
        `masked_positions` and `labels` are int32 `(rows, predictions)`, with `round(rate * length)`
        predictions, at least one: the chosen positions in rising order, and the ids that stood
        there; 0 where a row has fewer.

    Raises:
        ValueError: If `rate` is not in `(0, 1]`, the length of rows is unknown, `mask_id` or a
            special id is not in the vocabulary, all ids are special, or `starts_word` has another
            size. An id of `dataset` that is not in the vocabulary ends the run through it.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text import masked
    >>> rows = {"ids": [[2, 7, 8, 9, 3, 0]], "segments": [[1, 1, 1, 1, 1, 0]]}
    >>> batches = masked(tf.data.Dataset.from_tensors(rows), 4, 10, range(5), rate=0.3)
    >>> for inputs, labels in batches:
    ...     print(inputs["masked_positions"].shape, labels.shape)
    (1, 2) (1, 2)
    """
    special_ids = [*special_ids]
    _check_ids(vocab_size, mask_id=[mask_id], special_ids=special_ids)
    length = dataset.element_spec["ids"].shape[1]
    ordinary = np.setdiff1d(np.arange(vocab_size, dtype="int32"), [0, mask_id, *special_ids])
    starts = np.ones(vocab_size, bool) if starts_word is None else np.asarray(starts_word, bool)
    _check(rate, length, ordinary, starts, vocab_size)
    predictions = max(1, round(rate * length))

    def draw(ids: Array, segments: Array, key: Array) -> tuple[Array, Array, Array]:
        generator = np.random.default_rng(key)
        return _mask(ids, segments, generator, mask_id, ordinary, starts, rate, predictions)

    def mask(batch: dict[str, tf.Tensor], key: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        shape = batch["ids"].shape
        ids, positions, labels = tf.numpy_function(
            draw, [batch["ids"], batch["segments"], key], [tf.int32] * 3
        )
        positions, labels = (
            tf.ensure_shape(array, (shape[0], predictions)) for array in (positions, labels)
        )
        return batch | {"ids": tf.ensure_shape(ids, shape), "masked_positions": positions}, labels

    draws = keys(seed, epoch if dynamic else 0)
    return without_autotuning(tf.data.Dataset.zip(dataset, draws).map(mask).prefetch(8))


def _check_ids(vocab_size: int, **given: Any) -> None:
    """Refuses ids that are not in the vocabulary, by the name under which they were given."""
    for name, ids in given.items():
        ids = np.ravel(ids)
        wrong = ids[(ids < 0) | (ids >= vocab_size)]
        if wrong.size:
            raise ValueError(
                f"masked: ids in `{name}` must be from 0 to {vocab_size - 1}, below `vocab_size`. "
                f"Received: {wrong[:5].tolist()}"
            )


def _check(rate: float, length: int, ordinary: Array, starts: Array, vocab_size: int) -> None:
    """Refuses what cannot be masked."""
    if not 0 < rate <= 1:
        raise ValueError(f"masked: `rate` must be in (0, 1]. Received: {rate}")
    if length is None:
        raise ValueError(
            "masked: `dataset` must have rows of a known length, for the number of predictions. "
            "Received: None"
        )
    if not len(ordinary):
        raise ValueError(f"masked: `special_ids` leaves none of the {vocab_size} ids to choose.")
    if starts.shape != (vocab_size,):
        raise ValueError(
            f"masked: `starts_word` must have the shape ({vocab_size},). Received: {starts.shape}"
        )


def _mask(
    ids: Array,
    segments: Array,
    generator: np.random.Generator,
    mask_id: int,
    ordinary: Array,
    starts: Array,
    rate: float,
    predictions: int,
) -> tuple[Array, Array, Array]:
    """The ids with some hidden, where those stand, and what they were."""
    _check_ids(len(starts), dataset=ids[segments > 0])
    allowed = np.zeros(len(starts), bool)
    allowed[ordinary] = True
    allowed = allowed[np.where(segments > 0, ids, 0)]  # 0 is padding, whatever stands there
    wanted = np.clip(np.rint(rate * allowed.sum(axis=1)), 1, predictions).astype(int)
    row, column = np.nonzero(allowed)
    position = row * ids.shape[1] + column
    # A word goes on where its last piece is right before, in the same segment.
    begins = starts[ids[row, column]]
    begins[:1] = True
    begins[1:] |= np.diff(position) > 1
    begins[1:] |= np.diff(row * (segments.max() + 1) + segments[row, column]) != 0
    word = np.cumsum(begins) - 1
    chosen = _chosen(np.bincount(word), row[begins], wanted, generator)[word]
    row, column = row[chosen], column[chosen]

    labels = np.zeros((len(ids), predictions), "int32")
    positions = np.zeros_like(labels)
    counts = np.bincount(row, minlength=len(ids))
    labels[row, within(counts)] = ids[row, column]
    positions[row, within(counts)] = column
    hidden, fate = ids.copy(), generator.random(len(row))
    replaced = generator.choice(ordinary, len(row))
    kept = np.where(fate < HIDDEN + REPLACED, replaced, ids[row, column])
    hidden[row, column] = np.where(fate < HIDDEN, mask_id, kept)
    return hidden, positions, labels


def _chosen(sizes: Array, row: Array, wanted: Array, generator: np.random.Generator) -> Array:
    """Which words are chosen: in a random order in each row, each that still fits.

    Each round takes words up to the first of a row that does not fit, and drops that one.
    """
    order = np.lexsort((generator.random(len(sizes)), row))
    sizes, row = sizes[order], row[order]
    left, taken = wanted.copy(), np.zeros(len(sizes), bool)
    fits = sizes <= left[row]
    while fits.any():
        candidates = sizes * fits
        totals = np.bincount(row, candidates, len(left)).astype(int)
        before = (np.cumsum(totals) - totals)[row]
        now = fits & (np.cumsum(candidates) - before <= left[row])
        taken |= now
        left -= np.bincount(row, sizes * now, len(left)).astype(int)
        fits &= ~now & (sizes <= left[row])
    chosen = np.empty(len(sizes), bool)
    chosen[order] = taken
    return chosen


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
