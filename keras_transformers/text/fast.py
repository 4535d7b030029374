"""Tokenizers of `tokenizer.json`, by the package `tokenizers` or by ops of TensorFlow's graph."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import Any, Self, cast

import keras
import tensorflow as tf

from keras_transformers.core.types import Strings
from keras_transformers.text.cutting import valid
from keras_transformers.text.in_graph_program import Program
from keras_transformers.text.in_graph_splitting import Inexpressible
from keras_transformers.text.tokenizers import (
    FromDefinition,
    GivenIds,
    Languages,
    Marks,
    Multilingual,
    Template,
    check_ops,
    given_ids,
    given_row,
    has_package,
    read_template,
    read_truncation,
    rows_of,
)

MOST_GAPS = 1 << 16  # ids without a token, beside as many as there are tokens
WITHOUT = "tensorflow-text is not installed"


@keras.saving.register_keras_serializable("keras_transformers")
class FastTokenizer(Multilingual, tf.Module):
    """Strings to the ids of a `tokenizer.json` and back: any model, normaliser and splitting.

    There are two ways to them, which agree. Called on strings, it has the package `tokenizers` do
    it. Inside a graph, as of `tf.data` and of a SavedModel, it is made of ops, as far as these give
    exactly the same; `check_exportable` says what they do not, which then is done by the package in
    `tf.data`, and refused in a SavedModel.

    Args:
        definition: The content of `tokenizer.json`, text of JSON, or the dict that it is.
        start, end, padding, mask: Tokens that have these roles, or None where there are none.
        languages: `text.Languages`, or a dict of its arguments, of a translator of many languages:
            what stands around a text follows from them, not from the file's template.

    Raises:
        ValueError: If it is no such content, or a token is not in it.

    Example:
    >>> from keras_transformers.text import FastTokenizer
    >>> model = {"type": "WordLevel", "vocab": {"a": 0, "cat": 1, "?": 2}, "unk_token": "?"}
    >>> tokenizer = FastTokenizer({"model": model, "pre_tokenizer": {"type": "Whitespace"}})
    >>> tokenizer.tokenize(["a cat sat"]).to_list()
    [[0, 1, 2]]
    """

    def __init__(
        self,
        definition: str | Mapping[str, Any],
        start: str | None = None,
        end: str | None = None,
        padding: str | None = None,
        mask: str | None = None,
        languages: Languages | dict[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        text = definition if isinstance(definition, str) else json.dumps(dict(definition))
        self.definition = text  # as text: TensorFlow would wrap a dict
        self.start, self.end, self.padding, self.mask = start, end, padding, mask
        try:
            read = json.loads(text)
            if not isinstance(read, dict):
                raise ValueError(f"must be a JSON object. Received: a {type(read).__name__}")
            numbers = _numbers(read)
            self._template = read_template(read.get("post_processor"))
            self.truncation = read_truncation(read.get("truncation"))
            added = read.get("added_tokens") or []
            self.special_ids = tuple(sorted({each["id"] for each in added if each["special"]}))
        except (
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            ValueError,
            RecursionError,
        ) as error:
            raise ValueError(f"FastTokenizer: {type(error).__name__}: {error}") from None
        for role, token in (("start", start), ("end", end), ("padding", padding), ("mask", mask)):
            if token is not None and token not in numbers:
                raise ValueError(
                    f"FastTokenizer: `{role}` must be a token of the vocabulary. "
                    f"Received: {token!r}"
                )
        self.vocab_size = 1 + max(numbers.values())
        names = {number: token for token, number in numbers.items()}
        self._names = tuple(names.get(number, "") for number in range(self.vocab_size))
        self.start_id = None if start is None else numbers[start]
        self.end_id = -1 if end is None else numbers[end]
        self.pad_id = -1 if padding is None else numbers[padding]
        self.mask_id = None if mask is None else numbers[mask]
        self._host = FromDefinition("FastTokenizer", lambda: json.loads(text))
        self._set_languages(languages, numbers)

    def _set_languages(
        self, languages: Languages | dict[str, Any] | None, numbers: Mapping[str, int]
    ) -> None:
        self.languages = Languages(**languages) if isinstance(languages, dict) else languages
        tokens = {} if self.languages is None else self.languages.tokens
        missing = [token for token in tokens.values() if token not in numbers]
        if missing or tokens and self.end is None:
            raise ValueError(
                "FastTokenizer: with `languages` there must be an `end`, and the vocabulary have "
                f"the token of every language. Missing: {missing[:5] or ['end']}"
            )
        self.language_ids = {code: numbers[token] for code, token in tokens.items()}
        if self.languages is not None:
            self.start_id = self._language_start()

    def with_languages(self, languages: Languages) -> Self:
        """The same tokenizer with other languages."""
        return self.from_config({**self.get_config(), "languages": languages})

    @functools.cached_property
    def _program(self) -> Program | str:
        """The ops, or why there are none."""
        try:
            with tf.init_scope():  # whatever graph asks first
                return Program(json.loads(self.definition), self._names, self.special_ids)
        except Inexpressible as error:
            return str(error)
        except ImportError:
            return WITHOUT

    def check_exportable(self) -> None:
        """Raises where it cannot become part of a SavedModel.

        Raises:
            ValueError: If ops do not give exactly its ids; the message names what they do not.
            ImportError: If they need tensorflow-text, and it is not installed.
        """
        if self._program == WITHOUT:
            check_ops("FastTokenizer")
        if isinstance(self._program, str):
            raise ValueError(
                "FastTokenizer: a SavedModel tokenizes with TensorFlow's ops, which do not give "
                f"exactly {self._program}."
            )

    def _ops(self) -> Program | None:
        """The ops, if they are to be used here."""
        if tf.executing_eagerly() and has_package("tokenizers"):
            return None
        return None if isinstance(self._program, str) else self._program

    def tokenize(
        self,
        strings: Strings,
        start: bool = False,
        end: bool = False,
        pair: Strings | None = None,
        truncate: bool = False,
    ) -> tf.RaggedTensor | tf.Tensor:
        """Splits strings into ids; an added token in the text becomes its id.

        Args:
            strings: String tensor, or list, `(batch,)`, or one string `()`.
            start, end: Whether to put before and after what the file's template puts there, or,
                where it puts nothing, the tokens `start` and `end`. With languages as of a
                `text.PieceTokenizer`: what decoding starts with, and all marks of the language.
            pair: Optional second strings, as many: they follow as the template says.
            truncate: Whether long texts are cut as the file says, if it says so.

        Returns:
            int32 RaggedTensor `(batch, None)`, or a tensor `(length,)` for one string.
        """
        strings = tf.convert_to_tensor(strings, tf.string)
        ids = self._ids(strings)
        before, between, after = self._around(start, end, pair is not None)
        marks = len(before) + len(after) + len(between)
        cut = self.truncation if truncate else None
        if pair is None:
            parts = [ids if cut is None else cut(ids, marks)]
        else:
            second = self._ids(tf.convert_to_tensor(pair, tf.string))
            if cut is not None:
                ids, second = cut.of_pair(ids, second, marks)
            parts = [ids, *_rows(between, ids), second]
        found = tf.concat([*_rows(before, ids), *parts, *_rows(after, ids)], axis=1)
        return found if strings.shape.rank else found[0]

    def _around(self, start: bool, end: bool, pair: bool) -> tuple[Marks, Marks, Marks]:
        """Ids before a text, or the first of two, between them, and after."""
        if self.languages is not None:
            before, after = self._language_marks() if end else ((), ())
            return ((cast(int, self.start_id), *before) if start else before), (), after
        if pair:
            before, between, after = self._template.pair
        else:
            before = self._template.before or (() if self.start_id is None else (self.start_id,))
            after = self._template.after or (() if self.end is None else (self.end_id,))
            between = ()
        return before if start else (), between, after if end else ()

    @property
    def source_marks(self) -> tuple[Marks, Marks]:
        """Ids that stand before and behind a text that is translated: a language's, the file's.

        END behind it where there are neither.
        """
        if self.languages is not None:
            return self._language_marks()
        if self._template == Template():
            return (), (() if self.end is None else (self.end_id,))
        return self._template.before, self._template.after

    @property
    def text_marks(self) -> tuple[Marks, Marks]:
        """Ids before and after a text: the template's, or START and END where it has none."""
        template = self._template
        if template.before or template.after or any(template.pair):
            return template.before, template.after
        return ((), ()) if self.start_id is None else ((self.start_id,), (self.end_id,))

    @property
    def pair_marks(self) -> tuple[Marks, Marks, Marks]:
        """Ids before the first of a pair of texts, between the two, and after the second."""
        if any(self._template.pair):
            return self._template.pair
        before, after = self.text_marks
        return before, after, after

    @property
    def framing(self) -> dict[str, bool]:
        """`start` and `end` with which ids are those of the published call with special tokens."""
        if self.languages is not None:
            return {"start": False, "end": True}
        return {"start": bool(self._template.before), "end": bool(self._template.after)}

    def _ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Ids of strings, without marks around them."""
        text = valid(tf.reshape(strings, [-1]))
        program = self._ops()
        return self._host.ids(text) if program is None else program.ids(text)

    def detokenize(self, ids: GivenIds) -> tf.Tensor:
        """Joins ids to strings; special tokens vanish, as does all from the first END on.

        Args:
            ids: Integers `(..., length)`, dense, ragged `(batch, None)`, or lists of any lengths.

        Returns:
            String tensor of the shape of `ids` without its last axis, UTF-8.

        Raises:
            ValueError: If an id is not in the vocabulary (in a graph, when it runs,
                `tf.errors.InvalidArgumentError`).
        """
        ids = given_ids("FastTokenizer.detokenize", ids, self.vocab_size, self.pad_id)
        shape = tf.shape(ids)
        dense = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        real = dense != self.pad_id
        if self.end is not None:
            real &= tf.cumsum(tf.cast(dense == self.end_id, tf.int32), axis=1) == 0
        rows = tf.ragged.boolean_mask(dense, real)
        program = self._ops()
        strings = self._host.texts(rows) if program is None else program.texts(rows)
        return tf.ensure_shape(tf.reshape(strings, shape[:-1]), ids.shape[:-1])

    def pieces(self, ids: GivenIds) -> list[str]:
        """The pieces of one sequence of ids, as a list of str (for the axes of an image).

        Raises:
            ValueError: If an id is not in the vocabulary.
        """
        return [self._names[i] for i in given_row("FastTokenizer.pieces", ids, self.vocab_size)]

    def get_config(self) -> dict[str, Any]:
        languages = None if self.languages is None else dataclasses.asdict(self.languages)
        return {
            "definition": self.definition,
            "start": self.start,
            "end": self.end,
            "padding": self.padding,
            "mask": self.mask,
            "languages": languages,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


def _rows(marks: Marks, ids: tf.RaggedTensor) -> list[tf.Tensor]:
    """The marks as they stand beside every row of `ids`, in a list, empty without marks."""
    return [rows_of(marks, ids.nrows())] if marks else []


def _numbers(definition: Mapping[str, Any]) -> dict[str, int]:
    """Dict of token -> id: the model's and the added ones."""
    vocab = definition["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {piece: number for number, (piece, _) in enumerate(vocab)}
    numbers, size, most = dict(vocab), len(definition["model"]["vocab"]), -1
    for token in definition.get("added_tokens") or []:
        most = max(most + 1, size) if token["content"] not in numbers else most
        given = numbers.setdefault(token["content"], most)
        if token["id"] != given:
            raise ValueError(
                f"the added token {token['content']!r} must have the id {given}, by the vocabulary "
                f"and the tokens added before. Received: {token['id']}"
            )
    if not numbers or not all(type(i) is int and 0 <= i < 1 << 31 for i in numbers.values()):
        raise ValueError("the vocabulary must map tokens to ids")
    if max(numbers.values()) >= MOST_GAPS + 2 * len(numbers):
        raise ValueError(
            f"the {len(numbers)} tokens must have ids below {MOST_GAPS + 2 * len(numbers)}, twice "
            f"their number and {MOST_GAPS}. Received: {max(numbers.values())}"
        )
    return numbers
