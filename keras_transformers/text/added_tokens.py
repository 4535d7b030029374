"""Tokens that were added to a vocabulary: found in a text before it is cut into pieces."""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

# What Unicode calls white space, in a class of RE2.
SPACES = r"\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found as it is written, wherever it stands in a text.

    Hugging Face's tokens of that name, but for those that must be whole words.

    Args:
        content: How it is written.
        normalized: Whether it is looked for after the text is normalised, as it is itself.
        lstrip, rstrip: Whether it takes the white space before and after it.
        special: Whether it is a mark and no text, which vanishes when ids are joined to strings.

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
        self._first = [(t.content, t) for t in tokens if not t.normalized]
        late = [t for t in tokens if t.normalized]
        contents = [t.content for t in late]
        if late and normalize is not None:
            contents = [each.decode() for each in normalize(tf.constant(contents)).numpy()]
        self._late = list(zip(contents, late, strict=True))
        self._numbers = {token.content: numbers[token.content] for token in tokens}

    def ids(
        self, strings: tf.Tensor, rest: Callable[[tf.Tensor], tf.RaggedTensor]
    ) -> tf.RaggedTensor:
        """Ids of strings.

        Args:
            strings: `(batch,)`.
            rest: Function of strings `(n,)`, normalised, that gives ids, an int32 RaggedTensor
                `(n, None)`; of an empty string none.

        Returns:
            int32 RaggedTensor `(batch, None)`.
        """

        def others(strings: tf.Tensor) -> tf.RaggedTensor:
            strings = strings if self._normalize is None else self._normalize(strings)
            return self._cut(strings, self._late, rest)

        return self._cut(strings, self._first, others)

    def _cut(
        self,
        strings: tf.Tensor,
        tokens: Sequence[tuple[str, AddedToken]],
        rest: Callable[[tf.Tensor], tf.RaggedTensor],
    ) -> tf.RaggedTensor:
        if not tokens:
            return rest(strings)
        import tensorflow_text as tf_text  # only who tokenizes needs it

        contents = [content for content, _ in tokens]
        pattern = "|".join(map(_escaped, sorted(contents, key=len, reverse=True)))
        parts = tf_text.regex_split(strings, pattern, pattern)  # (batch, None)
        found = parts.flat_values
        equal = found[:, None] == tf.constant(contents)[None]
        is_token, which = tf.reduce_any(equal, 1), tf.argmax(tf.cast(equal, tf.int32), 1)
        text = tf.where(is_token, "", _stripped(parts, is_token, which, tokens))
        numbers = tf.constant([self._numbers[token.content] for _, token in tokens], tf.int32)
        ids = tf.RaggedTensor.from_row_lengths(
            tf.gather(numbers, tf.boolean_mask(which, is_token)), tf.cast(is_token, tf.int64)
        )
        ids = tf.concat([ids, rest(text)], axis=1)  # of each part, one of the two is empty
        return tf.RaggedTensor.from_row_splits(ids, parts.row_splits).merge_dims(1, 2)


def _stripped(
    parts: tf.RaggedTensor,
    is_token: tf.RaggedTensor,
    which: tf.RaggedTensor,
    tokens: Sequence[tuple[str, AddedToken]],
) -> tf.RaggedTensor:
    """The parts without the white space that the tokens beside them take."""
    text, row = parts.flat_values, parts.value_rowids()
    same = row[1:] == row[:-1]
    for side, name in ((0, "rstrip"), (1, "lstrip")):
        takes = [getattr(token, name) for _, token in tokens]
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


def _escaped(content: str) -> str:
    """A pattern of RE2 for exactly this text."""
    return re.sub(r"([!-/:-@\[-^`{-~])", r"\\\1", content)
