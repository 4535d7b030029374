"""Texts that are handed over while a model writes them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from keras_transformers.generation.compiled import Part

TextsOf: TypeAlias = Callable[[list[list[int]]], list[str]]
BYTE = "<0xFF>"  # the name of a piece that is one byte, and no character with any other
# White space is dropped at the end of a text, U+FFFD stands for a part of a character, and a
# lossless SentencePiece model escapes a character by U+0010.
UNSETTLED = re.compile(r"[\s\ufffd\x10]+\Z")


class TextStream(Iterator[str]):
    """Pieces of a text while a model writes it; joined, they are the text that `predict` gives.

    A piece is what no later token can change: never a part of a character. A stream that is not
    read to its end may be dropped.

    Args:
        parts: Tokens, as `generation.stream` chooses them.
        texts_of: Function from a list of sequences of tokens to the list of their texts.
        byte: Token of a byte that is no character with any other, see `byte_id`; or None.
        prompt: The text that is gone on with, as the model reads it; "" of a translation.
        truncated: Whether a part of the request was cut off.
        stop_strings: Strings in front of the first of which the text ends.

    Attributes:
        prompt, truncated: As given.
        finished: Whether the model ended the text itself. False until then.

    Example:
    >>> from keras_transformers.generation.compiled import Part
    >>> from keras_transformers.predictors import TextStream
    >>> names = ["the", " cat", " ", "sat"]
    >>> texts_of = lambda rows: ["".join(names[token] for token in row) for row in rows]
    >>> stream = TextStream([Part([0], False), Part([1, 2], False), Part([3], True)], texts_of)
    >>> list(stream), stream.finished
    (['the', ' cat', ' sat'], True)
    """

    def __init__(
        self,
        parts: Iterable[Part],
        texts_of: TextsOf,
        byte: int | None = None,
        prompt: str = "",
        truncated: bool = False,
        stop_strings: Sequence[str] = (),
    ) -> None:
        self.prompt, self.truncated, self.finished = prompt, truncated, False
        self._stop_strings = tuple(stop_strings)
        self._pieces = self._read(parts, texts_of, byte)

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends the stream: nothing more is written."""
        self._pieces.close()

    def _read(
        self, parts: Iterable[Part], texts_of: TextsOf, byte: int | None
    ) -> Generator[str, None, None]:
        tokens: list[int] = []
        text = sent = ""
        for part in parts:
            tokens += part.tokens
            self.finished = part.finished
            following = tokens if byte is None else [*tokens, byte]
            text, followed = texts_of([tokens, following])
            text, settled = self._in_front(text), settled_text(text, followed)
            settled = settled[: len(text) - self._begun(text)]
            if len(settled) > len(sent) and settled.startswith(sent):
                yield settled[len(sent) :]
                sent = settled
        if len(text) > len(sent):
            yield text[len(sent) :]

    def _in_front(self, text: str) -> str:
        """Returns what stands in front of the first stop string."""
        starts = [text.find(string) for string in self._stop_strings]
        first = min((start for start in starts if start >= 0), default=len(text))
        return text[:first]

    def _begun(self, text: str) -> int:
        """Returns how many characters at the end of a text may begin a stop string."""
        longest = max(map(len, self._stop_strings), default=1) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        begins = (n for n in sizes if any(s.startswith(text[-n:]) for s in self._stop_strings))
        return next(begins, 0)


def settled_text(text: str, followed: str) -> str:
    """Returns the beginning of a text that no further token can change.

    Args:
        text: The text of the tokens so far.
        followed: The text with one more token, of a byte: some tokenizers then take back what the
            bytes before stood for.
    """
    return UNSETTLED.sub("", os.path.commonprefix([text, followed]))


def byte_id(tokenizer: Any) -> int | None:
    """The id of the piece of one byte that is no character with any other, or None."""
    if not hasattr(tokenizer, "pieces"):
        return None
    names = tokenizer.pieces(range(tokenizer.vocab_size))
    return names.index(BYTE) if BYTE in names else None
