"""Boundaries of pieces and words, and strings that end a text."""

import dataclasses
import functools
import re
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
from keras import ops

from keras_transformers.core.types import Array, Index, Tensor, Tokenizer
from keras_transformers.core.words import byte_letters
from keras_transformers.generation.request import (
    Request,
    in_prompt,
    is_whole,
    lengths_of,
    limits_of,
    number_of,
    over_beams,
    prompt_lengths,
    take_at,
)

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


StartId = TypeVar("StartId", int, int | None)


@dataclasses.dataclass(frozen=True)
class Boundaries:
    """Tokens at the beginning and at the end of a sequence.

    `first` and `last` count nothing: their log-probability is taken for 0.

    Args:
        ends: Ids each of which ends a sequence, in place of the request's `end_id`; () for that one
            alone.
        first: Id that a sequence without a prompt begins with, such as that of a language.
        last: Id that stands where a sequence reaches its limit on tokens, mostly END's. None leaves
            it cut.
        banned_first: Ids that are not chosen first: behind the prompt, or behind `first`.
        start: Id that stands before the first token, in place of the `start_id` that is asked for;
            it is none of the result. Where that is None, texts have no such token.

    Raises:
        ValueError: If an id is no integer from 0 on; while searching, if one is beyond the
            vocabulary.

    Example:
    >>> from keras_transformers.generation import Boundaries, Constraints, Greedy
    >>> search = Greedy(Constraints(boundaries=Boundaries(ends=(2, 7), last=2)))
    >>> search.constraints.boundaries.ends
    (2, 7)
    """

    ends: tuple[int, ...] = ()
    first: int | None = None
    last: int | None = None
    banned_first: tuple[int, ...] = ()
    start: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ends", tuple(dict.fromkeys(self.ends)))
        object.__setattr__(self, "banned_first", tuple(sorted(set(self.banned_first))))
        if not all(map(is_whole, self.ids)):
            raise ValueError(f"Boundaries: ids must be from 0 on. Received: {self}")

    @property
    def ids(self) -> tuple[int, ...]:
        """All ids that are named here."""
        named = (self.first, self.last, self.start)
        single = tuple(token for token in named if token is not None)
        return (*self.ends, *single, *self.banned_first)

    def start_of(self, start_id: StartId) -> int | StartId:
        """The id before the first token, where `start_id` is asked for."""
        return start_id if start_id is None or self.start is None else self.start

    def end_of(self, request: Request) -> int:
        """The id that is forced where a sequence must end."""
        if not self.ends or request.end_id in self.ends:
            return request.end_id
        return self.ends[0]

    def is_end(self, ids: Tensor, request: Request) -> Tensor:
        """Which of integer `ids` end a sequence."""
        end, *others = self.ends or (request.end_id,)
        found = ids == end
        for other in others:
            found = ops.logical_or(found, ids == other)
        return found

    def ended(self, ids: Tensor, tokens: Tensor, index: Index, request: Request) -> Tensor:
        """Tells which sequences end with their tokens at `index`, bool `(batch, beams)`.

        A token of the prompt ends nothing, even if it is END.

        Args:
            ids: Integers `(batch, beams)`, those tokens.
            tokens: Integers `(batch, beams, max_length)`, the sequences with them.
            index: Position, or `(batch,)`, one for each row.
            request: The `Request`.
        """
        chosen = ops.logical_not(in_prompt(index, request))
        ends = self.is_end(ids, request)
        if request.stop_table is not None:
            ends = ops.logical_or(ends, completed(tokens, index, request.stop_table))
        return ops.logical_and(ends, chosen[:, None])

    def finished(self, tokens: Tensor, request: Request) -> Tensor:
        """Tells which sequences the search has ended itself.

        Not one that was cut at its limit or must end there: that END says nothing of the model.

        Args:
            tokens: Integers `(batch, ..., max_length)`.
            request: The `Request`.

        Returns:
            Bool `(batch, ...)`.
        """
        positions = ops.arange(ops.shape(tokens)[-1], dtype="int32")
        chosen = positions >= prompt_lengths(request)[:, None]  # (batch, max_length)
        if request.max_lengths is not None:
            early = positions + 1 < ops.cast(request.max_lengths, "int32")[:, None]
            chosen = ops.logical_and(chosen, early)
        if self.last is not None:
            limits = ops.reshape(ops.cast(limits_of(request), "int32"), (-1, 1))
            chosen = ops.logical_and(chosen, positions + 1 < limits)
        ends = self.is_end(tokens, request)
        several = len(tokens.shape) == 3
        if request.stop_table is not None:
            beams = tokens if several else tokens[:, None]
            last = ops.cast(lengths_of(beams, request.padding_id), "int32") - 1
            stopped = completed(beams, ops.maximum(last, 0), request.stop_table)
            stopped = ops.logical_and(stopped[..., None], positions == last[..., None])
            ends = ops.logical_or(ends, stopped if several else stopped[:, 0])
        chosen = chosen[:, None] if several else chosen
        return ops.any(ops.logical_and(ends, chosen), axis=-1)

    def forced(self, index: Index, request: Request) -> Tensor:
        """The token that must be taken at `index`, `(batch,)`; padding where there is a choice."""
        given = take_at(request.forced, index)
        free, forced = given == request.padding_id, given
        if request.max_lengths is not None:
            due = ops.logical_and(free, index + 1 >= request.max_lengths)
            forced = ops.where(due, self.end_of(request), forced)
        if self.first is not None:
            forced = ops.where(ops.logical_and(free, index == 0), self.first, forced)
        if self.last is not None:
            due = ops.logical_and(free, index + 1 >= limits_of(request))
            forced = ops.where(due, self.last, forced)
        return forced

    def not_scored(self, index: Index, request: Request) -> Tensor | None:
        """Where `first` or `last` decides, or a prompt whose scores are not asked for, `(batch,)`.

        None where there is neither.
        """
        found = []
        if not request.prompt_scores:
            found.append(in_prompt(index, request))
        if self.first is not None or self.last is not None:
            due = index < 0 if self.first is None else index == 0
            if self.last is not None:
                due = ops.logical_or(due, index + 1 >= limits_of(request))
            free = take_at(request.forced, index) == request.padding_id
            found.append(ops.logical_and(free, due))
        return functools.reduce(ops.logical_or, found) if found else None

    def begins(self, index: Index, request: Request) -> Tensor:
        """Whether the token at `index` is the first that is chosen, bool `(batch,)`."""
        before = prompt_lengths(request)
        return ops.equal(index, before if self.first is None else ops.maximum(before, 1))
