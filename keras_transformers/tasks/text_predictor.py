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
BYTE = "<0xFF>"  # the name of the piece of a byte that is no part of any character
# White space is dropped at the end of a text, U+FFFD stands for a part of a character, and a
# lossless SentencePiece model escapes a character by U+0010.
UNSETTLED = re.compile(r"[\s\ufffd\x10]+\Z")


class TextStream(Iterator[str]):
    """Pieces of a text while a model writes it; joined, they are the text that `predict` gives.

    A piece is text that no later token can change, and never a part of a character. A stream that
    is not read to its end may be dropped.

    Args:
        parts: Tokens, as `generation.stream` chooses them.
        texts_of: Function from a list of sequences of tokens to the list of their texts.
        byte: Token of a byte that is no part of any character, see `byte_id`; or None.
        prompt: The text that the model continues, as it reads it; "" for a translation.
        truncated: Whether a part of the request was cut off.
        stop_strings: Strings; the text ends in front of the first of them.

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
        self.prompt = prompt
        self.truncated = truncated
        self.finished = False
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
        """Yields text as soon as it is settled."""
        tokens: list[int] = []
        text = sent = ""
        for part in parts:
            tokens += part.tokens
            self.finished = part.finished
            following = tokens if byte is None else [*tokens, byte]
            text, followed = texts_of([tokens, following])
            certain = settled_text(text, followed)
            text = self._cut_at_stop(text)
            certain = certain[: len(text) - self._count_begun(text)]
            if len(certain) > len(sent) and certain.startswith(sent):
                yield certain[len(sent) :]
                sent = certain
        if len(text) > len(sent):
            yield text[len(sent) :]

    def _cut_at_stop(self, text: str) -> str:
        """Returns the text in front of the first stop string."""
        starts = [text.find(string) for string in self._stop_strings]
        first = min((start for start in starts if start >= 0), default=len(text))
        return text[:first]

    def _count_begun(self, text: str) -> int:
        """Counts the characters at the end of a text that may begin a stop string."""
        longest = max(map(len, self._stop_strings), default=1) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        begins = (n for n in sizes if any(s.startswith(text[-n:]) for s in self._stop_strings))
        return next(begins, 0)


def settled_text(text: str, followed: str) -> str:
    """Returns the beginning of a text that no further token can change.

    Args:
        text: The text of the tokens so far.
        followed: The text with one more token, of a byte: some tokenizers then change the text of
            the bytes before.
    """
    return UNSETTLED.sub("", os.path.commonprefix([text, followed]))


def byte_id(tokenizer: Any) -> int | None:
    """Returns the id of the piece of a byte that is no part of any character, or None."""
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

    def _change_settings(
        self,
        new_tokens: int | None,
        search: Search | None,
        seed: int | None,
        n_best: int | None,
        stop_strings: str | Sequence[str] | None = None,
    ) -> Self:
        """Returns a predictor that writes by other settings; `None` leaves a setting as it is.

        Raises:
            ValueError: If there is no model, only a SavedModel, or a setting is impossible.
        """
        more: dict[str, Any] = {}
        if isinstance(stop_strings, str):
            stop_strings = (stop_strings,)
        if stop_strings is not None:
            more["stop_strings"] = tuple(stop_strings)
        settings = (new_tokens, search, seed, n_best)
        if not more and all(setting is None for setting in settings):
            return self
        if seed is not None and seed < 0:
            raise ValueError(f"predict: `seed` must be 0 or more. Received: {seed}")
        exporter = self._find_exporter("predict")
        # Another seed is another number, not another program.
        key = (new_tokens, search, seed is None, n_best, *more.values())
        exporters: dict[Any, Any] = self._made.setdefault("changed", {})
        if key not in exporters:
            exporters[key] = exporter.changed(*settings, **more)
        predictor = copy.copy(self)
        predictor._run = predictor._drawing = exporters[key]
        predictor._seed = seed
        predictor._lists = n_best is not None
        return predictor

    def _replace_function(self, run: Callable[..., Any]) -> Self:
        """Returns a predictor that answers by another function, with the same seed of samples."""
        predictor = copy.copy(self)
        predictor._drawing = self._drawing or self._run
        predictor._run = run
        return predictor

    def _find_function(self, signature: str, names: Sequence[str]) -> Callable[..., Any]:
        """Returns a further function of an exporter or a SavedModel.

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
        signatures = self.loaded
        if signature not in signatures:
            raise AttributeError(
                f"{signature}: {self.source} has no signature {signature!r}; export it by this "
                "version."
            )
        run = signatures[signature]
        input_names = (*names, *self.may_take)
        return lambda *inputs: run(**dict(zip(input_names, inputs, strict=False)))

    def _score_items(
        self,
        score: Callable[..., Any],
        sides: Sequence[Sequence[str | bytes]],
        batch_size: int | None,
    ) -> list[dict[str, Any]]:
        """Returns `score`, `tokens` and `truncated` for the items of one or more lists.

        Args:
            score: Function of a string tensor for each list, and of the `_further_inputs`.
            sides: The lists, as long as each other.
            batch_size: Items of a request.

        Raises:
            ValueError: If an item is no text, or `batch_size` is not positive.
        """
        size = self.rows if batch_size is None else batch_size
        if size < 1:
            raise ValueError(f"score: `batch_size` must be positive. Received: {batch_size}")
        encoded = [self._encode_items("score", side) for side in sides]
        answers: list[dict[str, Any]] = []
        for start in range(0, len(sides[0]), size):
            inputs = [tf.constant(side[start : start + size], tf.string) for side in encoded]
            inputs += self._further_inputs(len(inputs[0]))
            outputs = {name: tensor.numpy() for name, tensor in score(*inputs).items()}
            for i, total in enumerate(outputs["score"]):
                pairs = pairs_of(outputs["tokens"][i], outputs["log_probabilities"][i])
                is_cut = bool(outputs["truncated"][i])
                answers.append({"score": float(total), "tokens": pairs, "truncated": is_cut})
        return answers

    def _encode_items(self, function: str, items: Sequence[Any]) -> list[Any]:
        """Encodes items; an error names the function and the number of the item."""
        encoded = []
        for number, item in enumerate(items):
            try:
                encoded.append(self._encoded(item))
            except ValueError as error:
                raise ValueError(f"{function}: item {number} {error}") from None
        return encoded

    def _find_exporter(self, owner: str) -> Any:
        """Returns the exporter that answers, or makes one from the model beside a SavedModel.

        Raises:
            ValueError: If there is no model, only a SavedModel.
        """
        if hasattr(self._run, "changed"):
            return self._run
        if "served" not in self._made:
            self._made["served"] = self.fitting_for(owner).served()
        return self._made["served"]

    def _stream_text(
        self, raw: Any, tokens_at_a_time: int | None, *language: str | None
    ) -> TextStream:
        """Answers one text piece by piece."""
        items, is_alone = self._list_items(raw)
        text: Any = Refused(f"must be one text. {received(raw)}")
        if is_alone:
            text = self._encode_or_refuse(items[0])
        if isinstance(text, Refused):
            raise ValueError(f"stream: the text {text.reason}")
        exporter = self._find_exporter("stream")
        if self._seed is not None:
            exporter.seed.assign(self._seed)
        stream: TextStream = exporter.stream(text, *language, tokens_at_a_time=tokens_at_a_time)
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
    """Decodes a text, which may end inside a character."""
    return value.decode("utf-8", "replace")


def scores_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the scores of an answer's tokens, from a row of the signature "tokens"."""
    pairs = pairs_of(row["tokens"], row["log_probabilities"])
    return {"log_probability": float(row["log_probability"]), "tokens": pairs}


def pairs_of(tokens: Any, values: Any) -> list[tuple[str, float]]:
    """Returns pieces with their numbers, up to the last piece that is not empty."""
    number = max((i + 1 for i, piece in enumerate(tokens) if piece), default=0)
    pieces = [text_of(piece) for piece in tokens[:number]]
    return list(zip(pieces, map(float, values[:number]), strict=True))
