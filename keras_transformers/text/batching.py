"""Batches of few shapes, of texts in memory and of streams of shards.

Pairs, documents and labelled texts are padded to a few lengths that a rule chooses.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Strings, Tokenizer, Values
from keras_transformers.data.labels import indicated_names, indicator_size, names_of, whole_number
from keras_transformers.data.shards import as_texts
from keras_transformers.data.streams import Encoded, keys, orders, without_autotuning
from keras_transformers.text.corpus import Mixture
from keras_transformers.text.subword_sampling import SubwordSampler, can_be_drawn
from keras_transformers.text.tokenizers import in_marks, marks_of

CHUNK = 8192  # pairs that are tokenised at a time


def encode_pairs(
    sources: Sequence[str],
    targets: Sequence[str],
    tokenizer: Tokenizer,
    shuffle_seed: int | None = None,
    sample: float | None = None,
    target_tokenizer: Tokenizer | None = None,
    batch_size: int | None = None,
    longest: tuple[int, int] | None = None,
    epoch: int | tf.Tensor | None = None,
    mixture: Mixture | None = None,
) -> tf.data.Dataset:
    """Makes a dataset of id sequences from two lists of sentences.

    Args:
        sources, targets: Lists of str of one length.
        tokenizer: A `SentencePieceTokenizer`.
        shuffle_seed: None keeps the order. An integer shuffles the whole list, in another order
            each time the dataset is iterated; the orders follow from this seed alone.
        sample: Strength of subword regularisation, the `alpha` of `SubwordSampler`: of a unigram
            model 0.1 is varied, 1 close to the best split; of a bpe model it is the dropout of
            merges. The splits are others in each epoch and follow from `shuffle_seed` (None counts
            as 0) and the number of the epoch alone. Not so for `MarianTokenizer`: its `tokenize`
            draws, which no seed governs.
        target_tokenizer: Tokenizer of the targets; by default `tokenizer`.
        batch_size: None gives single pairs. A number gives ragged batches of so many pairs, which
            `packed` reads three times as fast.
        longest: Positions for source and target in a row, for `sample`: where a drawn split takes
            more, the pair gets its best split instead.
        epoch: Number of the epoch whose order is taken, an integer or a scalar tensor (see
            `streams.epochs`); None makes each iteration the next epoch.
        mixture: A `Mixture`, where the pairs are of several directions, one after another: which
            mark stands before a source, and how often an epoch has each direction.

    Returns:
        `tf.data.Dataset` of `{"source": [x_1 .. x_n, END], "target": [START, y_1 .. y_m, END]}`,
        int32: tensors `(length,)`, or RaggedTensors `(batch_size, None)`.

    Raises:
        ValueError: If the lists differ in length, or `mixture` is one of another number of pairs.

    Example:
    >>> from keras_transformers.text import SentencePieceTokenizer, encode_pairs
    >>> tokenizer = SentencePieceTokenizer.train(["a b", "b a"] * 9, vocab_size=7)
    >>> [pair["target"].numpy().tolist() for pair in encode_pairs(["a", "b"], ["", ""], tokenizer)]
    [[1, 2], [1, 2]]
    """
    _check_pairs(sources, targets, mixture)
    target_tokenizer = target_tokenizer or tokenizer
    marked = mixture.marked if mixture else lambda ids, chosen: ids
    with tf.init_scope():  # not as a constant of the graph in which `streams.epochs` asks for it
        texts = [tf.constant(list(side), tf.string) for side in (sources, targets)]

    def split(chosen: tf.Tensor) -> dict[str, tf.RaggedTensor]:
        source, target = (tf.gather(side, chosen) for side in texts)
        return {
            "source": marked(tokenizer.tokenize(source, end=True), chosen),
            "target": target_tokenizer.tokenize(target, start=True, end=True),
        }

    def draw(chosen: tf.Tensor, key: tf.Tensor) -> dict[str, tf.RaggedTensor]:
        source = draw_source(chosen, tf.concat([key, [1]], 0), end=True)
        drawn = {
            "source": marked(source, chosen),
            "target": draw_target(chosen, tf.concat([key, [2]], 0), start=True, end=True),
        }
        return drawn if longest is None else _within(longest, drawn, split, chosen)

    # In chunks: one call of the tokenizer for a single sentence costs as much as for hundreds.
    arranged = (batch_size or CHUNK, shuffle_seed, epoch)
    chunks = mixture.orders(*arranged) if mixture else orders(len(sources), *arranged)
    if sample is None:
        chunks = chunks.map(split)
    else:
        draw_source = _drawer(tokenizer, sources, sample)
        draw_target = _drawer(target_tokenizer, targets, sample)
        chunks = tf.data.Dataset.zip(chunks, keys(shuffle_seed or 0, epoch)).map(draw)
    chunks = chunks.prefetch(1)
    return chunks if batch_size else chunks.unbatch()


def _check_pairs(sources: Sequence[str], targets: Sequence[str], mixture: Mixture | None) -> None:
    if len(sources) != len(targets):
        raise ValueError(
            f"encode_pairs: `targets` must have as many sentences as `sources`, {len(sources)}. "
            f"Received: {len(targets)}"
        )
    if mixture is not None and sum(mixture.sizes) != len(sources):
        raise ValueError(
            f"encode_pairs: `mixture` must have as many pairs as there are, {len(sources)}. "
            f"Received: {mixture.sizes}"
        )


def _within(
    longest: tuple[int, int],
    drawn: dict[str, tf.RaggedTensor],
    split: Callable[[tf.Tensor], dict[str, tf.RaggedTensor]],
    chosen: tf.Tensor,
) -> dict[str, tf.RaggedTensor]:
    """The drawn splits; pairs that take more than `longest` tokens get their best one instead."""
    most = {"source": longest[0], "target": longest[1] + 1}  # labels lack START
    too_long = tf.reduce_any([drawn[side].row_lengths() > most[side] for side in drawn], axis=0)
    best = split(tf.boolean_mask(chosen, too_long))
    number = tf.cumsum(tf.cast(too_long, tf.int32), exclusive=True)  # of a pair within `best`
    rows = tf.where(too_long, tf.size(chosen) + number, tf.range(tf.size(chosen)))
    return {side: tf.gather(tf.concat([drawn[side], best[side]], 0), rows) for side in drawn}


def _drawer(
    tokenizer: Tokenizer, strings: Sequence[str], sample: float
) -> Callable[..., tf.RaggedTensor]:
    """Function of the numbers of sentences and a key, that draws a split of each."""
    if not can_be_drawn(tokenizer):
        with tf.init_scope():
            texts = tf.constant(list(strings), tf.string)
        tokenize: Callable[..., tf.RaggedTensor] = tokenizer.tokenize
        return lambda chosen, key, **marks: tokenize(
            tf.gather(texts, chosen), sample=sample, **marks
        )
    sampler = SubwordSampler(tokenizer, strings, sample)

    def draw(chosen: tf.Tensor, key: tf.Tensor, **marks: Any) -> tf.RaggedTensor:
        ids, lengths = tf.numpy_function(
            lambda *drawn: sampler.sample(*drawn, **marks), [chosen, key], [tf.int32, tf.int64]
        )
        ids, lengths = tf.ensure_shape(ids, [None]), tf.ensure_shape(lengths, [None])
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    return draw


def bucketed(
    dataset: tf.data.Dataset, boundaries: Sequence[int], tokens_per_batch: int, padding_id: int = 0
) -> tf.data.Dataset:
    """Groups pairs of like length, so that XLA compiles one shape for each boundary.

    A pair goes to the first boundary that its longer side does not exceed and is padded to it. A
    batch has `tokens_per_batch // boundary` rows; the last of a bucket is filled with rows of
    padding, which weigh nothing in the loss.

    Args:
        dataset: Of `{"source": ids, "target": [START, .., END]}`, as from `encode_pairs`.
        boundaries: Increasing lengths, for instance `(8, 16, 32, 64)`.
        tokens_per_batch: Positions on each side of a batch, at most.
        padding_id: The id that stands for padding.

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
    >>> [tuple(labels.shape) for _, labels in batches]
    [(4, 16), (2, 32)]
    """
    boundaries = check_boundaries("bucketed", boundaries, tokens_per_batch)
    sizes = [tokens_per_batch // boundary for boundary in boundaries]

    def split(pair: dict[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        length = tf.maximum(tf.size(pair["source"]), tf.size(pair["target"]) - 1)
        tf.debugging.assert_less_equal(
            length, boundaries[-1], "bucketed: a pair is longer than the last boundary"
        )
        inputs = {"source": pair["source"], "target": pair["target"][:-1]}
        return inputs, pair["target"][1:]

    def fill(
        inputs: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        length = tf.shape(labels)[1]
        rows = tf.gather(sizes, tf.argmax(tf.constant(boundaries) >= length))
        missing = [[0, rows - tf.shape(labels)[0]], [0, 0]]
        return tf.nest.map_structure(
            lambda ids: tf.pad(ids, missing, constant_values=padding_id), (inputs, labels)
        )

    batches = dataset.map(split).bucket_by_sequence_length(
        lambda inputs, labels: tf.maximum(tf.size(inputs["source"]), tf.size(labels)),
        bucket_boundaries=[boundary + 1 for boundary in boundaries],
        bucket_batch_sizes=[*sizes, 1],
        pad_to_bucket_boundary=True,
        padding_values=padding_id,
    )
    return without_autotuning(batches.map(fill).prefetch(8))


def check_boundaries(
    owner: str, boundaries: Sequence[int], tokens_per_batch: int
) -> tuple[int, ...]:
    """The boundaries as a tuple; ValueError unless they increase and the last fits the budget."""
    boundaries = tuple(boundaries)
    increasing = all(a < b for a, b in zip(boundaries, boundaries[1:], strict=False))
    if not boundaries or not increasing or tokens_per_batch < boundaries[-1]:
        raise ValueError(
            f"{owner}: `boundaries` must increase and not exceed `tokens_per_batch`. "
            f"Received: boundaries={boundaries}, tokens_per_batch={tokens_per_batch}"
        )
    return boundaries


def real_token_share(
    batches: Iterable[Any], names: Sequence[str] = ("source", "target"), padding_id: int = 0
) -> float:
    """Share of positions that hold a real token, of all sequences counted together.

    Args:
        batches: Iterable of `({"source": ids, "target": ids, ...}, labels)`.
        names: Names of the sequences.
        padding_id: The id that stands for padding.

    Returns:
        A float in [0, 1].

    Example:
    >>> from keras_transformers.text import real_token_share
    >>> real_token_share([({"source": [[5, 2, 0, 0]], "target": [[1, 7, 0, 0]]}, None)])
    0.5
    """
    real = positions = 0
    for inputs, _ in batches:
        for name in names:
            real += int(np.sum(np.asarray(inputs[name]) != padding_id))
            positions += int(np.size(inputs[name]))
    return real / max(positions, 1)


MULTIPLE = 8  # of a length, for the sake of the accelerators


def boundaries_for(lengths: Values, batch_size: int) -> tuple[tuple[int, ...], int]:
    """Lengths to pad to, and positions in a batch, for `bucketed` and `bucketed_texts`.

    Half of the sequences fit into the first length, nine of ten into the second, all into the last,
    each rounded up to a multiple of 8. A batch has room for `batch_size` sequences of mean length.

    Args:
        lengths: Integers `(n,)`.
        batch_size: Sequences in a batch, on average.

    Returns:
        Increasing lengths, and tokens in a batch.

    Example:
    >>> from keras_transformers.text.batching import boundaries_for
    >>> boundaries_for([5, 6, 7, 7, 30], batch_size=4)
    ((8, 32), 44)
    """
    lengths = np.sort(np.asarray(lengths))
    quantiles = (lengths[math.ceil(share * len(lengths)) - 1] for share in (0.5, 0.9, 1.0))
    found = sorted({MULTIPLE * math.ceil(int(each) / MULTIPLE) for each in quantiles})
    tokens = max(batch_size * math.ceil(float(np.mean(lengths))), found[-1])
    return tuple(found), tokens


def within(boundaries: Sequence[int], most: int) -> tuple[int, ...]:
    """Boundaries of which none exceeds the positions of a model.

    Example:
    >>> from keras_transformers.text.batching import within
    >>> within((8, 24, 40), 36)
    (8, 24, 36)
    """
    return tuple(sorted({min(each, most) for each in boundaries}))


def framed(
    tokenizer: Tokenizer, strings: Strings, longest: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Ids of texts as a classifier sees them: START, what fits, END.

    Or what else the tokenizer puts around a text, see `tokenizers.marks_of`: GPT-2's nothing.

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
