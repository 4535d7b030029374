"""Predictors of texts: their base, and texts that come piece by piece."""

import copy
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Self, TypeAlias

import tensorflow as tf

from keras_transformers.generation.decode import Part
from keras_transformers.generation.search import Search
from keras_transformers.tasks.predictor import Predictor, Refused, check_process, received

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
    >>> from keras_transformers.generation.decode import Part
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


class TextPredictor(Predictor):
    """A predictor of texts: each a str or UTF-8 bytes.

    Example:
    >>> from keras_transformers.predictors import TextPredictor
    >>> TextPredictor.takes
    'text'
    """

    takes = "text"
    _lists = False  # whether the answer to a text is a list of several

    def _writing(
        self,
        new_tokens: int | None,
        search: Search | None,
        seed: int | None,
        n_best: int | None,
        stop_strings: str | Sequence[str] | None = None,
    ) -> Self:
        """The predictor that writes by other settings; `None` leaves a setting as it is.

        Raises:
            ValueError: If there is no model, only a SavedModel, or a setting is impossible.
        """
        more: dict[str, Any] = {}
        if stop_strings is not None:
            alone = isinstance(stop_strings, str)
            more["stop_strings"] = (stop_strings,) if alone else tuple(stop_strings)
        settings = (new_tokens, search, seed, n_best)
        if not more and all(setting is None for setting in settings):
            return self
        if seed is not None and seed < 0:
            raise ValueError(f"predict: `seed` must be 0 or more. Received: {seed}")
        served = self._served("predict")
        made = copy.copy(self)
        # Another seed is another number, not another program.
        key = (new_tokens, search, seed is None, n_best, *more.values())
        known: dict[Any, Any] = self._made.setdefault("changed", {})
        if key not in known:
            known[key] = served.changed(*settings, **more)
        made._run = made._drawing = known[key]
        made._seed = seed
        made._lists = n_best is not None
        return made

    def _function(self, signature: str, names: Sequence[str]) -> Callable[..., Any]:
        """Returns a function besides `predict`'s: of an exporter, or of a SavedModel.

        Args:
            signature: Name of the signature.
            names: Names of its inputs, before those of `may_take`.

        Raises:
            AttributeError: If there is no such function.
        """
        check_process(signature)
        # An exporter first: one with other settings may stand beside a SavedModel.
        if hasattr(self._run, "further_signature"):
            function: Callable[..., Any] = self._run.further_signature(signature).compiled
            return function
        signatures = vars(self).get("loaded", {})
        if signature not in signatures:
            raise AttributeError(
                f"{signature}: {self.source} has no signature {signature!r}; export it by this "
                "version."
            )
        run, inputs = signatures[signature], (*names, *self.may_take)
        return lambda *given: run(**dict(zip(inputs, given, strict=False)))

    def _scores(
        self,
        score: Callable[..., Any],
        sides: Sequence[Sequence[str | bytes]],
        batch_size: int | None,
    ) -> list[dict[str, Any]]:
        """Returns `score`, `tokens` and `truncated` for the items of one or more lists.

        Args:
            score: Function of a string tensor for each list, and of `_besides`.
            sides: The lists, as long as each other.
            batch_size: Items of a request.

        Raises:
            ValueError: If an item is no text, or `batch_size` is not positive.
        """
        size = self.rows if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"score: `batch_size` must be positive. Received: {batch_size}")
        encoded = [[self._numbered("score", *item) for item in enumerate(side)] for side in sides]
        rows: list[dict[str, Any]] = []
        for start in range(0, len(sides[0]), size):
            part = [tf.constant(side[start : start + size], tf.string) for side in encoded]
            part += self._besides(len(part[0]))
            found = {name: tensor.numpy() for name, tensor in score(*part).items()}
            names = ("score", "log_probabilities", "tokens", "truncated")
            for total, values, tokens, cut in zip(*(found[x] for x in names), strict=True):
                pairs = pairs_of(tokens, values)
                rows.append({"score": float(total), "tokens": pairs, "truncated": bool(cut)})
        return rows

    def _numbered(self, function: str, number: int, item: Any) -> Any:
        """Returns what `_encoded` does; its error names the function and the item."""
        try:
            return self._encoded(item)
        except ValueError as error:
            raise ValueError(f"{function}: item {number} {error}") from None

    def _served(self, asked: str) -> Any:
        """The exporter that answers; of a SavedModel that of the model beside it.

        Raises:
            ValueError: If there is no model, only a SavedModel.
        """
        if hasattr(self._run, "changed"):
            return self._run
        if "served" not in self._made:
            self._made["served"] = self.fitting_for(asked).served()
        return self._made["served"]

    def _streamed(
        self, raw: Any, tokens_at_a_time: int | None, *language: str | None
    ) -> TextStream:
        """What the exporter writes of one text, piece by piece."""
        items, alone = self._several(raw)
        text = self._tried(items[0]) if alone else Refused(f"must be one text. {received(raw)}")
        if isinstance(text, Refused):
            raise ValueError(f"stream: the text {text.reason}")
        served = self._served("stream")
        if self._seed is not None:
            served.seed.assign(self._seed)
        stream: TextStream = served.stream(text, *language, tokens_at_a_time=tokens_at_a_time)
        if stream.truncated:
            warnings.warn(
                "stream: the text is longer than the model reads, and was cut.", stacklevel=3
            )
        return stream

    def _encoded(self, item: Any) -> Any:
        if not isinstance(item, str | bytes):
            raise ValueError(f"must be text (str or UTF-8 bytes). {received(item)}")
        try:
            if isinstance(item, str):
                return item.encode()
            item.decode()
            return bytes(item)
        except UnicodeError:
            raise ValueError(f"must be text in UTF-8. {received(item)}") from None


def text_of(value: bytes) -> str:
    """A str; a generator may stop inside a character."""
    return value.decode("utf-8", "replace")


def scores_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns what an answer says of its tokens, from a row of the signature "tokens"."""
    pairs = pairs_of(row["tokens"], row["log_probabilities"])
    return {"log_probability": float(row["log_probability"]), "tokens": pairs}


def pairs_of(tokens: Any, values: Any) -> list[tuple[str, float]]:
    """Returns pieces and numbers; there are none behind the last piece that is not empty."""
    number = max((i + 1 for i, piece in enumerate(tokens) if piece), default=0)
    pieces = [text_of(piece) for piece in tokens[:number]]
    return list(zip(pieces, map(float, values[:number]), strict=True))
