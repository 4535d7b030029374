"""A head that learns links of words, beside a translator that stays as it is."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.alignment.links import Links, Marks, Pairs
from keras_transformers.core.types import Array, Tensor, Tokenizer
from keras_transformers.models import AlignmentHead

LENGTHS = (16, 32, 64, 128)  # that batches are padded to; longer pairs are left out
POSITIONS = 2048  # of a batch, on either side


def learn_alignment(
    model: keras.Model,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    links: Sequence[Links],
    epochs: int = 2,
    learning_rate: float = 4e-3,
    seed: int = 1,
    target_marks: Marks | None = None,
) -> AlignmentHead:
    """Teaches an `AlignmentHead` links of words: guided alignment, beside a trained translator.

    The loss is the cross-entropy of what each piece of a linked target word should attend to, the
    pieces of the source words that it is linked to, all alike (Chen et al. 2016,
    https://arxiv.org/abs/1607.01628; Garg et al. 2019, https://arxiv.org/abs/1909.02074, eq. 6).
    Words without a link teach nothing. There the translator learns both tasks; here it stays as it
    is, to the bit, and so do its translations.

    Args:
        model, tokenizer, sources, targets, target_marks: See `align_words`; pairs of over 128 ids
            on a side are left out, with a sentence that says how many.
        links: For each pair its links, as of eflomal or fast_align, see `read_pharaoh`; those that
            were found both ways are the best to learn from.
        epochs: Times that each pair is seen.
        learning_rate: Of Adam, at first; it decays to 0.
        seed: Of the first weights and of the order.

    Returns:
        The head, for `align_words`; `head.save("alignment.keras")` keeps it.

    Raises:
        ValueError: If the lists differ in length, or a link is of a word that there is not.

    Example:
    >>> from keras_transformers.alignment import align_words, learn_alignment
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> texts = ["a cat", "a mat"]
    >>> head = learn_alignment(model, tokenizer, texts, texts, [[(0, 0), (1, 1)]] * 2)
    >>> len(align_words(model, tokenizer, texts, texts, learned=head))
    2
    """
    if len(links) != len(sources):
        raise ValueError(
            f"learn_alignment: `links` must have those of each pair, {len(sources)}. "
            f"Received: {len(links)}"
        )
    pairs = Pairs("learn_alignment", tokenizer, sources, targets, target_marks)
    for row, each in enumerate(links):
        pairs.check("learn_alignment", row, each)
    if not model.built:
        model({name: np.ones((1, 1), "int32") for name in ("source", "target")})
    batches = _Batches(pairs, links, model.padding_id)
    keras.utils.set_random_seed(seed)
    head = AlignmentHead()
    taught = Taught(model, head)
    order = batches.orders(epochs, seed)
    schedule = keras.optimizers.schedules.PolynomialDecay(learning_rate, max(len(order), 1), 0.0)
    loss = keras.losses.CategoricalCrossentropy(True, reduction="mean_with_sample_weight")
    taught.compile(keras.optimizers.Adam(schedule), loss, jit_compile=True)
    if order:
        dataset = batches.dataset(order)
        taught.fit(dataset, steps_per_epoch=len(order), shuffle=False, verbose=0)
    return head


class Taught(keras.Model):
    """The head on the states of a translator, whose weights it does not have."""

    def __init__(self, translator: Any, head: AlignmentHead) -> None:
        super().__init__()
        self._translator_of = lambda: translator
        self.head = head

    def call(self, ids: dict[str, Tensor]) -> Tensor:
        return self.head.scores(self._translator_of(), ids)


class _Batches:
    """Batches of pairs of like length."""

    def __init__(self, pairs: Pairs, links: Sequence[Links], padding: int) -> None:
        self._pairs, self._links, self._padding = pairs, links, padding
        some = np.array([len(each) > 0 for each in links], bool)
        short = pairs.lengths <= LENGTHS[-1]
        if (some & ~short).any():
            number = (some & ~short).sum()
            print(f"learn_alignment: {number:,} pairs of over {LENGTHS[-1]} ids are left out")
        self._rows = np.flatnonzero(some & short)

    def orders(self, epochs: int, seed: int) -> list[tuple[int, Array]]:
        """Length and rows of each batch of all epochs, each in an order of its own."""
        generator = np.random.default_rng(seed)
        found: list[tuple[int, Array]] = []
        for _ in range(epochs):
            rows = generator.permutation(self._rows)
            bucket = np.searchsorted(LENGTHS, self._pairs.lengths[rows])
            batches: list[tuple[int, Array]] = []
            for which, length in enumerate(LENGTHS):
                own, size = rows[bucket == which], POSITIONS // length
                parts = [own[start : start + size] for start in range(0, len(own), size)]
                batches += [(length, part) for part in parts]
            found += [batches[i] for i in generator.permutation(len(batches))]
        return found

    def dataset(self, order: list[tuple[int, Array]]) -> tf.data.Dataset:
        """Ids, what each query should attend to, and which queries count."""
        ids, values = tf.TensorSpec([None, None], tf.int32), tf.float32
        signature = (
            {"source": ids, "target": ids},
            tf.TensorSpec([None, None, None], values),
            tf.TensorSpec([None, None], values),
        )
        found = tf.data.Dataset.from_generator(
            lambda: (self._batch(*each) for each in order), output_signature=signature
        )
        return found.prefetch(4)

    def _batch(self, length: int, rows: Array) -> tuple[dict[str, Array], Array, Array]:
        size = POSITIONS // length
        ids = {
            side: np.pad(
                each.numpy(),
                ((0, size - len(rows)), (0, length - each.shape[1])),
                constant_values=self._padding,
            )
            for side, each in self._pairs.ids(rows, self._padding).items()
        }
        wanted = np.zeros((size, length, length), "float32")
        weights = np.zeros((size, length), "float32")
        for i, row in enumerate(rows):
            wanted[i], weights[i] = self._pairs.wanted(row, self._links[row], (length, length))
        return ids, wanted, weights
