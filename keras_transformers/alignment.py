"""Links between words of a translation and words of its source, found by cross-attention.

`pharaoh` and `read_pharaoh` write and read such links as files hold them.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tensor, Tokenizer
from keras_transformers.inspection import attention_maps
from keras_transformers.models import AlignmentHead
from keras_transformers.text.tokenizers import cutter_of_targets, in_marks
from keras_transformers.text.words import with_offsets

__all__ = ["align_words", "learn_alignment", "pharaoh", "read_pharaoh"]

Links = list[tuple[int, int]]


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as Pharaoh, Moses and word aligners write them: "0-0 1-2", source first.

    Example:
    >>> from keras_transformers.alignment import pharaoh
    >>> pharaoh([(0, 0), (1, 2)])
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> Links:
    """The links of a line, in their order; ValueError if there is anything else.

    Example:
    >>> from keras_transformers.alignment import read_pharaoh
    >>> read_pharaoh("0-0 1-2")
    [(0, 0), (1, 2)]
    """
    parts = line.split()
    wrong = [part for part in parts if not re.fullmatch(r"[0-9]+-[0-9]+", part)]
    if wrong:
        raise ValueError(
            f"read_pharaoh: `line` must have links such as 0-0. Received: {wrong[0][:60]!r}"
        )
    return [(int(source), int(target)) for source, _, target in (x.partition("-") for x in parts)]


Marks = tuple[tuple[int, ...], tuple[int, ...]]
BLANK = "\u2581"  # as SentencePiece writes it


class Pairs:
    """Pairs of texts, their ids, and of which word each piece is.

    Args:
        owner: For messages: who asks.
        tokenizer, sources, targets, target_marks: See `align_words`.

    Attributes:
        lengths: Ids of the longer side of each pair, marks included.
    """

    def __init__(
        self,
        owner: str,
        tokenizer: Any,
        sources: Sequence[str],
        targets: Sequence[str],
        target_marks: Marks | None = None,
    ) -> None:
        if len(sources) != len(targets) or any(isinstance(x, str) for x in (sources, targets)):
            raise ValueError(
                f"{owner}: `sources` and `targets` must be lists as long as each other. "
                f"Received: {len(sources)} and {len(targets)}"
            )
        end = (tokenizer.end_id,)
        marks = getattr(tokenizer, "source_marks", ((), end))
        start = () if tokenizer.start_id is None else (tokenizer.start_id,)
        of_target = (start, end) if target_marks is None else target_marks
        if not of_target[0]:
            raise ValueError(
                f"{owner}: `target_marks` must have an id before a target, START. "
                f"Received: {of_target}"
            )
        self._sides = [
            Side(owner, "sources", tokenizer, sources, marks),
            Side(owner, "targets", cutter_of_targets(tokenizer), targets, of_target),
        ]
        self.lengths = np.max([side.lengths for side in self._sides], axis=0)

    def ids(self, rows: Array, padding: int) -> dict[str, tf.Tensor]:
        """Dense ids of some pairs."""
        chosen = [tf.gather(side.marked, rows).to_tensor(padding) for side in self._sides]
        return dict(zip(("source", "target"), chosen, strict=True))

    def links(self, row: int, weights: Array, at: str) -> Links:
        """The links of a pair, from weights `(queries, keys)`."""
        source, target = (side.words[row] for side in self._sides)
        if not len(source) or not len(target):
            return []
        before, after = self._sides[0].before, self._sides[1].before
        first = after if at == "input" else after - 1  # the query of the first piece
        weights = weights[first : first + len(target)]
        keys = weights[:, before : before + len(source)]
        words = np.zeros((len(target), source[-1] + 1))
        np.maximum.at(words.T, source, keys.T)
        sums = np.zeros((target[-1] + 1, source[-1] + 1))
        np.add.at(sums, target, words)
        rest = np.zeros(target[-1] + 1)
        np.add.at(rest, target, weights.sum(axis=1) - keys.sum(axis=1))
        best = sums.argmax(axis=1)
        linked = sums[np.arange(len(best)), best] > rest
        return [(int(best[i]), int(i)) for i in np.unique(target) if linked[i]]

    def check(self, owner: str, row: int, links: Links) -> None:
        """ValueError if a link of a pair is of a word that there is not."""
        numbers = [side.words[row][-1] + 1 if len(side.words[row]) else 0 for side in self._sides]
        for link in links:
            if not all(0 <= word < most for word, most in zip(link, numbers, strict=True)):
                raise ValueError(
                    f"{owner}: `links` must be of words that there are; pair {row} has "
                    f"{numbers[0]} and {numbers[1]}. Received: {link[0]}-{link[1]}"
                )

    def wanted(self, row: int, links: Links, shape: tuple[int, int]) -> tuple[Array, Array]:
        """What a query should attend to, where links of words are known.

        Args:
            row: Number of the pair.
            links: Its links.
            shape: Queries and keys, with padding.

        Returns:
            float32 `(queries, keys)`, for the query that produces a piece of a linked word the same
            share for each piece of the words it is linked to; and `(queries,)`, 1 there, else 0.
        """
        source, target = (side.words[row] for side in self._sides)
        before, after = self._sides[0].before, self._sides[1].before
        found = np.zeros(shape, "float32")
        for one, other in links:
            keys, queries = np.flatnonzero(source == one), np.flatnonzero(target == other)
            found[np.ix_(queries + after - 1, keys + before)] = 1
        sums = found.sum(axis=1, keepdims=True)
        return found / np.maximum(sums, 1), (sums[:, 0] > 0).astype("float32")


class Side:
    """The texts of a side."""

    def __init__(
        self, owner: str, name: str, tokenizer: Any, texts: Sequence[str], marks: Any
    ) -> None:
        found = with_offsets(tokenizer, tf.constant(list(texts), tf.string, [len(texts)]))
        self.marked = in_marks(found.ids, marks)
        self.before = len(marks[0])
        self.lengths = self.marked.row_lengths().numpy()
        starts, ends = (np.split(each.flat_values.numpy(), each.row_splits.numpy()[1:-1])
                        for each in (found.starts, found.ends))  # fmt: skip
        self.words = []
        rows = zip(texts, found.ids.to_list(), starts, ends, strict=False)
        for number, (text, ids, start, end) in enumerate(rows):
            words = _words_of(text, start, end)
            if (
                words is None
            ):  # as where two ways to cut a number are equally good to a unigram model
                words = _words_of_pieces(text, tokenizer.pieces(ids))
            if words is None:
                raise ValueError(
                    f"{owner}: the tokenizer must cut text {number} of `{name}` so that its "
                    f"words can be told apart. Received: {text[:60]!r}"
                )
            self.words.append(words)


def _words_of(text: str, starts: Array, ends: Array) -> Array | None:
    """The word that each piece is of, what white space divides, from 0; None if it is not known.

    Args:
        text: The text.
        starts, ends: Of what each piece is of, as `text.with_offsets` has them.
    """
    sizes = np.cumsum([0, *(len(char.encode()) for char in text)])
    begins = [sizes[word.start()] for word in re.finditer(r"\S+", text)]
    if len(begins) > 1 and len(starts) and not starts.any() and (ends == ends[0]).all():
        return None
    return np.maximum(np.searchsorted(begins, starts, side="right") - 1, 0)


def _words_of_pieces(text: str, pieces: Sequence[str]) -> Array | None:
    """The same, of SentencePiece's pieces, of which the first of a word begins with its blank."""
    words = np.cumsum([piece.startswith(BLANK) for piece in pieces]) - 1
    return words if words[0] == 0 and words[-1] + 1 == len(text.split()) else None


ROWS = 64  # pairs that are looked at together
BLOCK = "cross_attention"


def align_words(
    model: keras.Model,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    at: Literal["input", "output"] = "output",
    learned: AlignmentHead | None = None,
    target_marks: Marks | None = None,
) -> list[Links]:
    """Links the words of translations to those words of their sources that are attended to most.

    Words are what white space divides. The weights of one decoder block's cross-attention are
    averaged over heads (Garg et al. 2019, https://arxiv.org/abs/1909.02074, section 3); of the
    pieces of a source word the one that is attended to most counts, those of a target word are
    added up. Each target word is linked to the source word with the most, or to none where END and
    other marks have more. A piece's query is the one that produces it, or the one that reads it, a
    position later (Chen et al. 2020, https://arxiv.org/abs/2004.14837, section 3.1). What suits a
    model can be measured alone, by `training.alignment_error_rate`: the defaults are what suits the
    model of `recipes.translation`, which has three blocks.

    With a `learned` head, of `learn_alignment`, its weights are taken in place of a block's; they
    are far better links.

    Args:
        model: A `models.Transformer`, or another with `decoder_blocks` and source and target ids.
        tokenizer: Its tokenizer; of several languages one `towards` the targets'.
        sources, targets: Lists of str of one length.
        layer: Number of the decoder block, from 0; by default the last.
        heads: Numbers of the heads that are averaged; by default all.
        at: "output", the query that produces a piece; "input", the one that reads it.
        learned: A head that has learned links with this model; it decides in place of `layer`,
            `heads` and `at`, which must then have their defaults.
        target_marks: Ids before and behind each target, as the model knows them; by default the
            tokenizer's START and END.

    Returns:
        For each pair the links `(source word, target word)`, from 0, by target word.

    Raises:
        ValueError: If the lists differ in length, there is no such layer or head, one is given
            beside a `learned` head, or the tokenizer cuts a text so that its pieces cannot be told
            apart by words.

    Example:
    >>> from keras_transformers.alignment import align_words, pharaoh
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> (links,) = align_words(model, tokenizer, ["a"], ["a"])
    >>> pharaoh(links) in ("0-0", "")
    True
    """
    pairs = Pairs("align_words", tokenizer, sources, targets, target_marks)
    if at not in ("input", "output"):
        raise ValueError(f'align_words: `at` must be "input" or "output". Received: {at!r}')
    if learned is None:
        match = f"{_block(model, layer).name}/{BLOCK}"
    elif (layer, heads, at) != (None, None, "output"):
        raise ValueError(
            "align_words: `layer`, `heads` and `at` must have their defaults beside a `learned` "
            f"head. Received: {layer}, {heads}, {at!r}"
        )
    found: list[Links] = [[] for _ in sources]
    order = np.argsort(pairs.lengths, kind="stable")
    for start in range(0, len(order), ROWS):
        rows = order[start : start + ROWS]
        ids = pairs.ids(rows, model.padding_id)
        if learned is None:
            (weights,) = attention_maps(model, ids, match).values()
            weights = _averaged(weights, heads)
        else:
            weights = keras.ops.convert_to_numpy(keras.ops.softmax(learned.scores(model, ids)))
        for row, each in zip(rows, weights, strict=True):
            found[row] = pairs.links(row, each, at)
    return found


def _block(model: Any, layer: int | None) -> Any:
    blocks = getattr(model, "decoder_blocks", None)
    if not blocks:
        raise ValueError(
            "align_words: `model` must have decoder blocks with cross-attention. "
            f"Received: {type(model).__name__}"
        )
    chosen = len(blocks) - 1 if layer is None else layer
    if not 0 <= chosen < len(blocks):
        raise ValueError(
            f"align_words: `layer` must be from 0 to {len(blocks) - 1}. Received: {layer}"
        )
    return blocks[chosen]


def _averaged(weights: Array, heads: Sequence[int] | None) -> Array:
    """The mean over heads of `(batch, heads, queries, keys)`."""
    number = weights.shape[1]
    if heads is not None and (not heads or not all(0 <= head < number for head in heads)):
        raise ValueError(
            f"align_words: `heads` must be some of 0 to {number - 1}. Received: {heads}"
        )
    return weights[:, slice(None) if heads is None else list(heads)].mean(axis=1)


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
