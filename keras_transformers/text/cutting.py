"""Strings that are cut into parts: at the matches of a pattern, and at added tokens.

All is done by ops that every TensorFlow has.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# What Unicode calls white space, in a class of RE2.
SPACES = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# What `\w` is to Rust's regular expressions, in a class of RE2.
WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}"
WORD += r"\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
SEPARATOR = b"\xff"  # no byte of UTF-8


def valid(strings: tf.Tensor, errors: str = "replace") -> tf.Tensor:
    """Strings in valid UTF-8; what is none becomes U+FFFD, or is left out ("ignore")."""
    return tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors=errors)


def escaped(content: str) -> str:
    """A pattern of RE2 for exactly this text."""
    return re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", content)


def cut_out(strings: tf.Tensor, pattern: str, keep: bool = True) -> tf.RaggedTensor:
    """The matches of a pattern and what stands between them, each a part; no part is empty.

    Args:
        strings: `(n,)`, valid UTF-8.
        pattern: Of RE2, without groups that are numbered.
        keep: Whether the matches are kept.

    Returns:
        String RaggedTensor `(n, None)`.
    """
    rewrite = SEPARATOR + rb"\1" + SEPARATOR if keep else SEPARATOR
    return separated(tf.strings.regex_replace(strings, f"({pattern})", rewrite))


def separated(strings: tf.Tensor) -> tf.RaggedTensor:
    """The parts between separators that are not empty."""
    parts = tf.strings.split(strings, sep=SEPARATOR)
    return tf.ragged.boolean_mask(parts, parts.with_values(parts.flat_values != ""))


class Numbers:
    """A table of strings and their numbers that is no resource of a graph.

    Strings are told apart by 63 bits of a hash.

    Args:
        numbers: Dict of string -> number.

    Raises:
        ValueError: If two strings have one hash.
    """

    def __init__(self, numbers: Mapping[Any, int]) -> None:
        hashes = self._hashed(tf.constant(list(numbers), tf.string)).numpy()
        order = hashes.argsort()
        self._hashes = hashes[order]
        self._numbers = np.array(list(numbers.values()), "int32")[order]
        if (self._hashes[1:] == self._hashes[:-1]).any():
            raise ValueError("Two pieces of the vocabulary have one hash.")

    @staticmethod
    def _hashed(strings: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_hash_bucket_fast(strings, (1 << 63) - 1)

    def __call__(self, strings: tf.Tensor, other: int) -> tf.Tensor:
        """Their numbers, int32; `other` for those that are not there."""
        hashes = self._hashed(strings)
        found = tf.minimum(tf.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        known = tf.gather(tf.constant(self._hashes), found) == hashes
        return tf.where(known, tf.gather(tf.constant(self._numbers), found), other)


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found as it is written, wherever it stands in a text.

    Hugging Face's tokens of that name.

    Args:
        content: How it is written.
        normalized: Whether it is looked for after the text is normalised, as it is itself.
        lstrip, rstrip: Whether it takes the white space before and after it.
        special: Whether it is a mark and no text, which vanishes when ids are joined to strings.
        single_word: Whether it is found only where no letter or digit stands beside it.

    Example:
    >>> from keras_transformers.text import AddedToken, WordPieceTokenizer
    >>> vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    >>> tokenizer = WordPieceTokenizer(vocab, added_tokens=[AddedToken("[NEW]")])
    >>> tokenizer.tokenize(["the [NEW] cat"]).to_list()
    [[5, 7, 6]]
    """

    content: str
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    special: bool = False
    single_word: bool = False


def read_added(owner: str, tokens: Iterable[AddedToken | dict[str, Any]]) -> tuple[AddedToken, ...]:
    """Tokens, or dicts of their arguments, as a tuple.

    Raises:
        ValueError: If one is empty or there twice.
    """
    read = tuple(t if isinstance(t, AddedToken) else AddedToken(**t) for t in tokens)
    contents = [token.content for token in read]
    wrong = [each for each in contents if not each or contents.count(each) > 1]
    if wrong:
        raise ValueError(
            f"{owner}: `added_tokens` must have no token twice and no empty one. "
            f"Received: {wrong[:5]}"
        )
    return read


def write_added(tokens: Iterable[AddedToken]) -> list[dict[str, Any]]:
    """The tokens as dicts, for a configuration."""
    return [dataclasses.asdict(token) for token in tokens]


def numbered(vocab: Mapping[str, int], tokens: Iterable[AddedToken]) -> dict[str, int]:
    """Dict of piece -> id: the vocabulary, and behind it the added tokens that it lacks."""
    numbers = dict(vocab)
    for token in tokens:
        numbers.setdefault(token.content, len(numbers))
    return numbers


class AddedTokens:
    """Cuts added tokens out of texts, and leaves the rest to somebody else.

    At one position the longest is taken, as in Hugging Face's. Those that are not normalised are
    looked for first; the rest of the text is normalised, and looked through for the others.

    Args:
        tokens: `AddedToken`s.
        numbers: Dict of content -> id.
        normalize: Function of strings `(n,)` that normalises them, or None.
    """

    def __init__(
        self,
        tokens: Iterable[AddedToken],
        numbers: Mapping[str, int],
        normalize: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        self._normalize = normalize
        tokens = list(tokens)
        self._first = _Listed([(t.content, t) for t in tokens if not t.normalized], numbers)
        late = [t for t in tokens if t.normalized]
        contents = [t.content for t in late]
        if late and normalize is not None:
            contents = [each.decode() for each in normalize(tf.constant(contents)).numpy()]
        self._late = _Listed(list(zip(contents, late, strict=True)), numbers)
        # How each normalised token is written in a text that is normalised.
        self.written = {token.content: text for token, text in zip(late, contents, strict=True)}

    def ids(
        self, strings: tf.Tensor, rest: Callable[[tf.Tensor, tf.Tensor], tf.RaggedTensor]
    ) -> tf.RaggedTensor:
        """Ids of strings.

        Args:
            strings: `(batch,)`.
            rest: Function of strings `(n,)`, normalised, and of whether each is the beginning of
                a text, that gives ids, an int32 RaggedTensor `(n, None)`; of an empty string none.

        Returns:
            int32 RaggedTensor `(batch, None)`.
        """

        def others(strings: tf.Tensor, first: tf.Tensor) -> tf.RaggedTensor:
            strings = strings if self._normalize is None else self._normalize(strings)
            return self._cut(strings, first, self._late, rest)

        return self._cut(strings, tf.fill(tf.shape(strings), True), self._first, others)

    def _cut(
        self,
        strings: tf.Tensor,
        first: tf.Tensor,
        listed: "_Listed",
        rest: Callable[[tf.Tensor, tf.Tensor], tf.RaggedTensor],
    ) -> tf.RaggedTensor:
        if not listed.tokens:
            return rest(strings, first)
        parts, which = listed.found(strings)
        is_token, which = which >= 0, tf.maximum(which, 0)
        text = tf.where(is_token, "", _stripped(parts, is_token, which, listed.tokens))
        ids = tf.RaggedTensor.from_row_lengths(
            tf.gather(listed.ids, tf.boolean_mask(which, is_token)), tf.cast(is_token, tf.int64)
        )
        row = parts.value_rowids()
        begins = tf.concat([[True], row[1:] != row[:-1]], 0)[: tf.size(row)]
        begins &= tf.gather(first, row)
        ids = tf.concat([ids, rest(text, begins)], axis=1)  # of each part, one of the two is empty
        return tf.RaggedTensor.from_row_splits(ids, parts.row_splits).merge_dims(1, 2)


class _Listed:
    """Tokens as they are looked for.

    Args:
        tokens: Pairs of how each is written in the text, and the token.
        numbers: Dict of content -> id.
    """

    def __init__(
        self, tokens: Sequence[tuple[str, AddedToken]], numbers: Mapping[str, int]
    ) -> None:
        self.tokens = tuple(token for _, token in tokens)
        self.ids = np.array([numbers[token.content] for token in self.tokens], "int32")
        contents = sorted((content for content, _ in tokens), key=len, reverse=True)
        self._pattern = "|".join(map(escaped, contents))
        if tokens:
            self._which = Numbers({content: i for i, (content, _) in enumerate(tokens)})

    def found(self, strings: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The parts of strings, and which token each is, or -1; a word in others is none."""
        parts = cut_out(strings, self._pattern)  # (batch, None)
        text, row = parts.flat_values, parts.value_rowids()
        which = self._which(text, -1)
        alone = [token.single_word for token in self.tokens]
        if not any(alone):
            return parts, which
        same = row[1:] == row[:-1]
        before = tf.strings.regex_full_match(text, rf"(?s).*[{WORD}]")[:-1] & same
        after = tf.strings.regex_full_match(text, rf"(?s)[{WORD}].*")[1:] & same
        beside = tf.concat([[False], before], 0)[: tf.size(row)]
        beside |= tf.concat([after, [False]], 0)[: tf.size(row)]
        which = tf.where(tf.gather(tf.constant(alone), tf.maximum(which, 0)) & beside, -1, which)
        # Texts that stand side by side then are one again.
        joins = tf.concat([[False], same & (which[1:] < 0) & (which[:-1] < 0)], 0)[: tf.size(row)]
        group = tf.cumsum(tf.cast(~joins, tf.int32)) - 1
        text = tf.strings.unsorted_segment_join(
            text, group, tf.reduce_sum(tf.cast(~joins, tf.int32))
        )
        which, row = tf.boolean_mask(which, ~joins), tf.boolean_mask(row, ~joins)
        return tf.RaggedTensor.from_value_rowids(text, row, parts.nrows()), which


def _stripped(
    parts: tf.RaggedTensor,
    is_token: tf.RaggedTensor,
    which: tf.RaggedTensor,
    tokens: Sequence[AddedToken],
) -> tf.RaggedTensor:
    """The parts without the white space that the tokens beside them take."""
    text, row = parts.flat_values, parts.value_rowids()
    same = row[1:] == row[:-1]
    takers = [token.rstrip for token in tokens], [token.lstrip for token in tokens]
    for side, takes in enumerate(takers):
        if not any(takes):
            continue
        taker = is_token & tf.gather(tf.constant(takes), which)
        if side == 0:  # what stands behind a token
            beside = tf.concat([[False], taker[:-1] & same], 0)
            shorter = tf.strings.regex_replace(text, rf"^[{SPACES}]+", "")
        else:
            beside = tf.concat([taker[1:] & same, [False]], 0)
            shorter = tf.strings.regex_replace(text, rf"[{SPACES}]+$", "")
        text = tf.where(beside[: tf.size(text)], shorter, text)
    return text
