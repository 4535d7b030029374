"""Strings that end a text: an automaton over the bytes of tokens (Aho & Corasick 1975)."""

import re
import weakref
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from keras import ops

from keras_transformers.annotations import Array, Index, Tensor, Tokenizer
from keras_transformers.generation.request import number_of, over_beams
from keras_transformers.words import byte_letters

ROOT = 0  # state of the automaton where no string has begun
REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
BYTE_OF = {letter: byte for byte, letter in enumerate(byte_letters())}
_BYTES_OF_TOKENS: Any = weakref.WeakKeyDictionary()


class StopStrings:
    """Strings at which a text ends, for the tokens of a tokenizer.

    A text ends with the token whose bytes complete one of the strings, wherever in the token the
    string ends; it may have begun in the prompt. A string inside the prompt ends nothing. This is
    the rule of `stop_strings` in `transformers`. Constraints such as `min_length` and phrases do
    not keep a string from ending a text.

    The strings become an automaton over bytes (Aho & Corasick 1975,
    https://doi.org/10.1145/360825.360855), and this a table over tokens: searches look up one state
    for each of the last tokens, whatever the size of the vocabulary.

    Args:
        tokenizer: Tokenizer of the texts.
        strings: One str, or several; none empty.

    Raises:
        ValueError: If there is no string, one is empty, or they have over 1,024 bytes together.

    Example:
    >>> from keras_transformers.generation import StopStrings
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> StopStrings(tokenizer, ["sat", "mat"]).strings
    ('sat', 'mat')
    """

    def __init__(self, tokenizer: Tokenizer, strings: str | Sequence[str]) -> None:
        strings = (strings,) if isinstance(strings, str) else tuple(strings)
        known = all(isinstance(string, str) and string for string in strings)
        size = sum(len(string.encode()) for string in strings) if known else 0
        if not strings or not known or size > 1024:
            raise ValueError(
                "StopStrings: `strings` must be one str or several, none empty, of at most 1,024 "
                f"bytes together. Received: {strings!r}"
            )
        self.strings = strings
        self.table = _table(bytes_of_tokens(tokenizer), [string.encode() for string in strings])

    @property
    def pattern(self) -> str:
        """Regular expression (RE2) of the first of the strings in a text and all behind it."""
        return rf"(?s)(?:{'|'.join(map(re.escape, self.strings))}).*"

    def for_vocabulary(self, vocab: int | None) -> Array:
        """Returns the table for a model whose vocabulary may be larger than the tokenizer's.

        Args:
            vocab: Size of the model's vocabulary; None where it does not say.

        Returns:
            int16 `(states, vocab + 1)`: the state after a token; `-1 - state` if it completes a
            string. The last column is that of padding.
        """
        states, known = self.table.shape
        unchanged = np.arange(states, dtype="int16")[:, None]
        more = max(0, (vocab or known) - known) + 1
        return np.concatenate([self.table, np.repeat(unchanged, more, axis=1)], axis=1)


def completed(tokens: Tensor, index: Index, table: Tensor) -> Tensor:
    """Tells which sequences complete a string with their token at `index`.

    Args:
        tokens: Integers `(batch, beams, length)`.
        index: Position of the last token; or `(batch,)`, one for each row; or `(batch, beams)`.
        table: See `StopStrings.for_vocabulary`.

    Returns:
        Bool `(batch, beams)`.
    """
    states, columns = table.shape[0], number_of(table)
    # No string has more bytes than there are states, and so no more tokens than this window, as
    # long as each token has a byte.
    window = ops.arange(2 - states, 1, dtype="int32")
    one_for_each_beam = len(getattr(index, "shape", ())) == 2
    last = cast(Tensor, index)[..., None] if one_for_each_beam else over_beams(index)
    positions = ops.broadcast_to(last + window, (*ops.shape(tokens)[:2], states - 1))
    ids = ops.cast(ops.take_along_axis(tokens, ops.maximum(positions, 0), axis=-1), "int32")
    ids = ops.where(ops.logical_or(ids < 0, positions < 0), columns - 1, ids)
    flat, state = ops.reshape(table, (-1,)), ops.zeros_like(ids[..., 0])
    for number in range(states - 1):
        after = ops.cast(ops.take(flat, state * columns + ids[..., number], axis=0), "int32")
        state = ops.where(after < 0, -1 - after, after)
    return after < 0


def bytes_of_tokens(tokenizer: Tokenizer) -> list[bytes]:
    """Returns what each token adds to a text between other tokens, in UTF-8.

    Tokens that vanish from texts, such as END, add nothing.
    """
    if tokenizer not in _BYTES_OF_TOKENS:
        ids = np.arange(tokenizer.vocab_size)
        # Between two others, since some tokenizers drop blanks at both ends of a text.
        singles = tokenizer.detokenize(ids[:, None]).numpy().tolist()
        anchor = next((number for number, text in enumerate(singles) if text.isalpha()), 0)
        before = singles[anchor]
        after = tokenizer.detokenize([[anchor, anchor]]).numpy()[0].removeprefix(before)
        rows = np.stack([np.full_like(ids, anchor), ids, np.full_like(ids, anchor)], axis=1)
        texts = tokenizer.detokenize(rows).numpy().tolist()
        names = getattr(tokenizer, "_names", None)  # those of byte pairs as the file has them
        if names is None and hasattr(tokenizer, "pieces"):
            names = tokenizer.pieces(ids.tolist())
        of_tokens = []
        for number, text in enumerate(texts):
            whole = text.startswith(before) and len(text) >= len(before) + len(after)
            added = text[len(before) :].removesuffix(after) if whole else b""
            if REPLACEMENT in added and names is not None:
                added = _incomplete(names[number]) or added
            of_tokens.append(added)
        _BYTES_OF_TOKENS[tokenizer] = of_tokens
    known: list[bytes] = _BYTES_OF_TOKENS[tokenizer]
    return known


def _incomplete(name: str) -> bytes | None:
    """The bytes of a token that holds a part of a character, by its name in the vocabulary."""
    if match := re.fullmatch("<0x([0-9A-Fa-f]{2})>", name):
        return bytes.fromhex(match[1])
    if not set(name) <= BYTE_OF.keys():
        return None
    return bytes(BYTE_OF[letter] for letter in name)


def _table(tokens: list[bytes], strings: list[bytes]) -> Array:
    """States after each token, int16 `(states, tokens)`; `-1 - state` if it completes a string."""
    after, completes = _automaton(strings)
    lengths = np.array([len(token) for token in tokens])
    order = np.argsort(-lengths, kind="stable")
    joined = np.frombuffer(b"".join(tokens[number] for number in order), np.uint8)
    starts = np.cumsum(lengths[order]) - lengths[order]
    states = len(after)
    state = np.repeat(np.arange(states)[:, None], len(tokens), axis=1)
    complete = np.zeros(state.shape, bool)
    for position in range(int(lengths.max(initial=0))):
        number = int(np.sum(lengths > position))  # of the longest, which come first
        byte = joined[starts[:number] + position]
        state[:, :number] = after[state[:, :number], byte]
        complete[:, :number] |= completes[state[:, :number]]
    table = np.empty(state.shape, "int16")
    table[:, order] = np.where(complete, -1 - state, state)
    return table


def _automaton(strings: list[bytes]) -> tuple[Array, Array]:
    """States after each byte, int `(states, 256)`, and which states complete a string, bool."""
    children: list[dict[int, int]] = [{}]
    completes = [False]
    for string in strings:
        state = ROOT
        for byte in string:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                completes.append(False)
            state = children[state][byte]
        completes[state] = True
    after = np.zeros((len(children), 256), int)
    fallback = [ROOT] * len(children)
    queue = [ROOT]
    for state in queue:  # breadth first: fallbacks are shorter, so known
        for byte in range(256):
            child = children[state].get(byte)
            beside = after[fallback[state], byte] if state != ROOT else ROOT
            if child is None:
                after[state, byte] = beside
                continue
            after[state, byte], fallback[child] = child, int(beside)
            completes[child] |= completes[fallback[child]]
            queue.append(child)
    return after, np.array(completes)
