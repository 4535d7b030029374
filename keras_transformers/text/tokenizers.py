"""Parts that all tokenizers share.

They check ids and texts, put marks around texts and pairs of texts, cut texts that are too long,
choose a language, and keep previous sentences as context.

The packages `tokenizers` and `sentencepiece` tokenize wherever tensorflow-text is not: on Windows,
on a Python that it has no wheel for. A graph calls them through Python then, as `tf.data` can; a
SavedModel cannot.
"""

import collections.abc
import contextlib
import dataclasses
import functools
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias, cast

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import Array, Tensor, Tokenizer, Values
from keras_transformers.core.words import SEPARATOR

GivenIds: TypeAlias = Values | tf.RaggedTensor


def given_ids(owner: str, ids: GivenIds, vocab_size: int, pad_id: int) -> tf.Tensor:
    """Ids to be joined to strings as a dense int32 tensor.

    Args:
        owner: Name of the tokenizer's class, for messages.
        ids: Integers `(..., length)`, dense; ragged `(batch, None)`; or nested lists, whose rows
            may differ in length.
        vocab_size: One more than the largest id.
        pad_id: What fills rows; an id even where it is none of the vocabulary.

    Raises:
        ValueError: If they are no integers, or one is neither in the vocabulary nor padding. In a
            graph the program ends with `tf.errors.InvalidArgumentError` and the same sentence.
    """
    tensor: Any = ids if tf.is_tensor(ids) else _tensor_of_ids(ids)
    if isinstance(tensor, tf.RaggedTensor):
        tensor = tensor.to_tensor(tf.cast(pad_id, tensor.dtype))
    if not tensor.dtype.is_integer:
        raise ValueError(f"{owner}: `ids` must be integers. Received: {tensor.dtype.name}")
    ids64 = tf.cast(tensor, tf.int64)
    wrong = ((ids64 < 0) | (ids64 >= vocab_size)) & (ids64 != pad_id)
    message = f"{owner}: `ids` must be from 0 to {vocab_size - 1}, the vocabulary's. Received:"
    if tf.executing_eagerly():
        if tf.reduce_any(wrong):
            raise ValueError(f"{message} {ids64[wrong].numpy()[:5].tolist()}")
        return tf.cast(ids64, tf.int32)
    found = tf.boolean_mask(ids64, wrong)
    with tf.control_dependencies([tf.debugging.Assert(tf.size(found) == 0, [message, found])]):
        return tf.cast(ids64, tf.int32)


def given_row(owner: str, ids: GivenIds, vocab_size: int) -> Array:
    """The ids of one sequence as an array, after checking that each is in the vocabulary."""
    ids = np.asarray(ids if hasattr(ids, "__array__") else list(cast(Any, ids)))
    if ids.ndim != 1 or ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{owner}: `ids` must be one sequence of integers. Received: {ids.dtype} of shape "
            f"{ids.shape}"
        )
    wrong = (ids < 0) | (ids >= vocab_size)
    if wrong.any():
        raise ValueError(
            f"{owner}: `ids` must be from 0 to {vocab_size - 1}, the vocabulary's. "
            f"Received: {ids[wrong][:5].tolist()}"
        )
    return ids.astype("int32")


def given_texts(owner: str, strings: Iterable[str | bytes | Tensor]) -> Iterator[str]:
    """`strings` one by one, after checking that they are a collection of texts.

    Args:
        owner: Who was given them, for messages.
        strings: Iterable of str; or of bytes or tensors, as a dataset has them, in UTF-8.

    Raises:
        ValueError: If it is one string, or a dict, whose keys would be taken, or what is in it is
            no text.
    """
    mapping = isinstance(strings, collections.abc.Mapping)
    if mapping or isinstance(strings, (str, bytes)) or not hasattr(strings, "__iter__"):
        hint = "; `.values()` are its values" if mapping else ""
        raise ValueError(
            f"{owner}: `strings` must be an iterable of str. Received: a {type(strings).__name__}"
            f"{hint}"
        )
    return _checked_texts(owner, strings)


def _checked_texts(owner: str, strings: Iterable[Any]) -> Iterator[str]:
    for number, text in enumerate(strings):
        text = text.numpy() if hasattr(text, "numpy") else text
        if not isinstance(text, (str, bytes)):
            raise ValueError(
                f"{owner}: `strings` must be an iterable of str. Received: a "
                f"{type(text).__name__} at position {number}"
            )
        yield text if isinstance(text, str) else text.decode()


def _tensor_of_ids(ids: GivenIds) -> tf.Tensor | tf.RaggedTensor:
    """Ids as a tensor, ragged where lists differ in length."""
    if not isinstance(ids, (list, tuple, range)):
        return ids if isinstance(ids, tf.RaggedTensor) else tf.convert_to_tensor(ids)
    ids = [each.numpy() if hasattr(each, "numpy") else each for each in cast(Any, ids)]
    if any(map(tf.is_tensor, ids)):  # of a graph
        return tf.convert_to_tensor(ids)
    try:
        array = np.asarray(ids)
    except ValueError:
        return tf.ragged.constant(ids)
    return tf.convert_to_tensor(array if array.size else array.astype("int32"))


Marks = tuple[int, ...]
STRATEGIES = ("LongestFirst", "OnlyFirst", "OnlySecond")


@dataclasses.dataclass(frozen=True)
class Template:
    """Ids before, between and after one text or a pair.

    Args:
        before, after: Of one text.
        pair: Before the first, between the two, and after the second.
    """

    before: Marks = ()
    after: Marks = ()
    pair: tuple[Marks, Marks, Marks] = ((), (), ())


def read_template(part: Any) -> Template:
    """The template that a post-processor is.

    Raises:
        ValueError: If it is another thing.
    """
    kind = None if part is None else part.get("type")
    if kind in (None, "ByteLevel"):
        return Template()
    if kind == "Sequence":
        found = [read_template(each) for each in part["processors"]]
        marked = [each for each in found if each != Template()]
        if len(marked) > 1:
            raise ValueError("the post-processor Sequence: only one may put marks around a text")
        return marked[0] if marked else Template()
    if kind in ("BertProcessing", "RobertaProcessing"):
        end, start = (int(part[name][1]) for name in ("sep", "cls"))
        between = (end,) if kind == "BertProcessing" else (end, end)
        return Template((start,), (end,), ((start,), between, (end,)))
    if kind == "TemplateProcessing":
        return _template_of_pieces(part)
    raise ValueError(f"the post-processor {kind}: it is not known here")


def _template_of_pieces(part: Mapping[str, Any]) -> Template:
    special = part.get("special_tokens") or {}
    found: dict[str, list[Marks]] = {}
    for name, texts in (("single", "A"), ("pair", "AB")):
        marks: list[list[int]] = [[]]
        order = ""
        for piece in part[name]:
            if "Sequence" in piece:
                order += piece["Sequence"]["id"]
                marks.append([])
            else:
                marks[-1] += special[piece["SpecialToken"]["id"]]["ids"]
        if order != texts:
            raise ValueError(
                f"the post-processor TemplateProcessing: `{name}` must have each text once, in "
                f"order. Received: {order}"
            )
        found[name] = [tuple(each) for each in marks]
    before, after = found["single"]
    first, between, last = found["pair"]
    return Template(before, after, (first, between, last))


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Where long texts are cut.

    Args:
        max_length: Most ids, marks among them.
        strategy: Of a pair, "LongestFirst", "OnlyFirst" or "OnlySecond".
        left: Whether the beginning is cut off, not the end.
    """

    max_length: int
    strategy: str = "LongestFirst"
    left: bool = False

    def __call__(self, ids: tf.RaggedTensor, marks: int) -> tf.RaggedTensor:
        """Ragged ids, cut so that they and so many marks fit."""
        most = max(self.max_length - marks, 0)
        return self._cut(ids, tf.fill([ids.nrows()], tf.cast(most, tf.int64)))

    def of_pair(
        self, one: tf.RaggedTensor, other: tf.RaggedTensor, marks: int
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Both texts of pairs, cut so that they and so many marks fit."""
        most = tf.cast(max(self.max_length - marks, 0), tf.int64)
        first, second = one.row_lengths(), other.row_lengths()
        over = tf.maximum(first + second - most, 0)
        if self.strategy == "OnlyFirst":
            first = tf.maximum(first - over, 0)
        elif self.strategy == "OnlySecond":
            second = tf.maximum(second - over, 0)
        else:
            first, second = _longest_first(first, second, most, over)
        return self._cut(one, first), self._cut(other, second)

    def _cut(self, ids: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
        position = tf.range(tf.size(ids.values, tf.int64)) - tf.gather(
            ids.row_splits, ids.value_rowids()
        )
        kept = tf.minimum(lengths, ids.row_lengths())
        row = ids.value_rowids()
        if self.left:
            inside = position >= tf.gather(ids.row_lengths() - kept, row)
        else:
            inside = position < tf.gather(kept, row)
        return tf.ragged.boolean_mask(ids, ids.with_values(inside))


def _longest_first(
    first: tf.Tensor, second: tf.Tensor, most: tf.Tensor, over: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths of the two texts of pairs, of which the longer is cut until both are equal."""
    shorter = tf.minimum(first, second)
    # The longer takes what the shorter leaves; if that is less than the shorter has, half each.
    rest = tf.maximum(most - shorter, 0)
    halves = rest < shorter
    low, high = tf.where(halves, most // 2, shorter), tf.where(halves, most - most // 2, rest)
    swapped = first > second
    one, other = tf.where(swapped, high, low), tf.where(swapped, low, high)
    return tf.where(over > 0, one, first), tf.where(over > 0, other, second)


def read_truncation(part: Any) -> Truncation | None:
    """The truncation that a file asks for; ValueError if it is another thing."""
    if part is None:
        return None
    strategy = part.get("strategy", "LongestFirst")
    if strategy not in STRATEGIES:
        raise ValueError(
            f"truncation: `strategy` must be one of {STRATEGIES}. Received: {strategy}"
        )
    return Truncation(int(part["max_length"]), strategy, part.get("direction") == "Left")


def rows_of(marks: Marks, number: tf.Tensor) -> tf.Tensor:
    """Marks as they stand beside each of that many rows: int32 `(number, marks)`."""
    return tf.tile(tf.constant([marks], tf.int32, [1, len(marks)]), [number, 1])


def in_marks(ids: tf.RaggedTensor, marks: tuple[Marks, Marks]) -> tf.RaggedTensor:
    """Ragged rows of ids with marks before and behind each."""
    before, after = (rows_of(each, ids.nrows()) for each in marks)
    return tf.concat([before, ids, after], axis=1)


def cutter_of_targets(tokenizer: Any) -> Any:
    """The tokenizer that cuts targets, marks apart: only Marian's may have a model for each side.

    Languages alone change marks, and need not be known.
    """
    return tokenizer.for_targets() if hasattr(tokenizer, "target_proto") else tokenizer


def marks_of(tokenizer: Any) -> tuple[Marks, Marks]:
    """The ids that a tokenizer puts before and after a text that is classified.

    Those of a `tokenizer.json`'s template, or START and END; none where texts have no START, as
    GPT-2's.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> from keras_transformers.text.tokenizers import marks_of
    >>> marks_of(WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    ((2,), (3,))
    """
    found: tuple[Marks, Marks] | None = getattr(tokenizer, "text_marks", None)
    if found is not None:
        return found
    if tokenizer.start_id is None:
        return (), ()
    return (tokenizer.start_id,), (tokenizer.end_id,)


def marks_of_pair(tokenizer: Any) -> tuple[Marks, Marks, Marks]:
    """The ids before the first text of a pair, between the two, and after the second.

    Those of a `tokenizer.json`'s template; of RoBERTa and XLM-R `<s>`, `</s></s>` and `</s>`; of
    others as `marks_of`, and END between.

    Example:
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> from keras_transformers.text.tokenizers import marks_of_pair
    >>> marks_of_pair(WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat"]))
    ((2,), (3,), (3,))
    """
    found: tuple[Marks, Marks, Marks] | None = getattr(tokenizer, "pair_marks", None)
    if found is not None:
        return found
    before, after = marks_of(tokenizer)
    return before, after, after


@dataclasses.dataclass(frozen=True)
class Languages:
    """The languages of a translator of many, and the two that are translated between.

    Each has a token, which stands in front of a text or behind its END.

    Args:
        tokens: Dict of code -> token of the vocabulary.
        source: Code of the language of the texts.
        target: Code of the language to translate to, or None where nobody has said it.
        behind: Whether the token stands behind END, as in mBART's first version.

    Raises:
        ValueError: If a code is not one of `tokens`.

    Example:
    >>> from keras_transformers.text import Languages
    >>> Languages({"en": "__en__", "fr": "__fr__"}, source="en", target="fr").source
    'en'
    """

    tokens: Mapping[str, str]
    source: str
    target: str | None = None
    behind: bool = False

    def __post_init__(self) -> None:
        for name, code in (("source", self.source), ("target", self.target)):
            if code not in self.tokens and not (code is None and name == "target"):
                raise ValueError(
                    f"Languages: `{name}` must be one of {', '.join(self.tokens)}. "
                    f"Received: {code!r}"
                )


class Multilingual:
    """What tokenizers have in common that may have languages.

    A class must have the attributes `languages`, `language_ids` and `end_id`, and override
    `with_languages`.
    """

    languages: Languages | None
    language_ids: Mapping[str, int]  # code -> id of its token
    end_id: int

    def with_languages(self, languages: Languages) -> Self:
        """Hook: the same tokenizer with other languages."""
        raise NotImplementedError

    def for_targets(self) -> Self:
        """The tokenizer of the other language: what a model is trained to write.

        Raises:
            ValueError: If there are many languages, and nobody has said which; see `between`.
        """
        if self.languages is None:
            return self
        if self.languages.target is None:
            raise ValueError(
                f"{type(self).__name__}.for_targets: `languages` must have a `target`. "
                "Received: None"
            )
        return self.between(self.languages.target, None)

    def between(self, source: str, target: str | None) -> Self:
        """The tokenizer of a translator from one language to another, named by their codes.

        Raises:
            ValueError: If there is no such language, or there are none.
        """
        if self.languages is None:
            raise ValueError(f"{type(self).__name__}.between: this tokenizer has no languages.")
        changed = dataclasses.replace(self.languages, source=source, target=target)
        return self.with_languages(changed)

    @property
    def language_id(self) -> int | None:
        """Id of the token of the language to translate to; None where there is none."""
        if self.languages is None or self.languages.target is None:
            return None
        return self.language_ids[self.languages.target]

    def _language_start(self) -> int:
        """What decoding starts with: END, or the target's token where that stands behind END."""
        assert self.languages is not None
        if not self.languages.behind:
            return self.end_id
        return self.language_ids[self.languages.target or self.languages.source]

    def _language_marks(self) -> tuple[Marks, Marks]:
        """Ids before and behind a text in the source's language."""
        assert self.languages is not None
        language = self.language_ids[self.languages.source]
        if self.languages.behind:
            return (), (self.end_id, language)
        return (language,), (self.end_id,)


CONTEXT_TAG = re.compile("<context([1-9][0-9]*)>")


def mark_of_context(sentences: int) -> str:
    """The tag of a vocabulary for up to so many previous sentences.

    Example:
    >>> from keras_transformers.text.tokenizers import mark_of_context
    >>> mark_of_context(2)
    '<context2>'
    """
    return f"<context{sentences}>"


@dataclasses.dataclass(frozen=True)
class Context:
    """What a translator reads before a sentence: previous ones, a mark behind each.

    Tiedemann and Scherrer 2017, https://arxiv.org/abs/1708.05943, "2-to-1".

    Args:
        sentences: How many previous sentences it reads, at most; of more the nearest.
        mark: Id of the mark.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.text.tokenizers import Context
    >>> ids = tf.ragged.constant([[5, 6, 4, 7, 4, 8, 9], [5, 4]])
    >>> kept, lengths = Context(2, mark=4).within(ids, room=5)
    >>> kept.to_list(), lengths.numpy().tolist()
    ([[7, 4, 8, 9], [5, 4]], [2, 0])
    """

    sentences: int
    mark: int

    @classmethod
    def of_tags(cls, tags: Mapping[str, int]) -> Self | None:
        """The context that a vocabulary has a tag for; None without one."""
        found = ((CONTEXT_TAG.fullmatch(tag), number) for tag, number in tags.items())
        return next((cls(int(tag[1]), number) for tag, number in found if tag), None)

    def ids(self, cut: Callable[[tf.Tensor], tf.RaggedTensor], strings: tf.Tensor) -> tf.Tensor:
        """Ragged ids `(n, None)` of strings `(n,)`, in which U+001E stands between sentences.

        Args:
            cut: Function that gives the ids of sentences.
            strings: The strings.
        """
        parts = tf.strings.split(strings, SEPARATOR)[:, -self.sentences - 1 :]
        ids = cut(parts.values)
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self.mark)], axis=1)
        return parts.with_values(ids).merge_dims(1, 2)[:, :-1]

    def within(self, ids: tf.RaggedTensor, room: int) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Ids without the oldest sentences that have no room, and the lengths of the last alone.

        The last itself stays as long as it is.

        Args:
            ids: As from `ids`, `(n, None)`.
            room: Most ids of a row.
        """
        row, lengths = ids.value_rowids(), ids.row_lengths()
        at = tf.range(tf.size(row, row.dtype)) - tf.gather(ids.row_starts(), row)
        starts = tf.ragged.boolean_mask(ids.with_values(at + 1), ids == self.mark)
        starts = tf.pad(starts.to_tensor(0), [[0, 0], [1, 0]])  # of the sentences of each row
        last = tf.reduce_max(starts, axis=1)
        fits = starts >= (lengths - room)[:, None]
        first = tf.reduce_min(tf.where(fits, starts, last[:, None]), axis=1)
        kept = tf.ragged.boolean_mask(ids, ids.with_values(at >= tf.gather(first, row)))
        return kept, lengths - last


def with_room(sources: Sequence[str], tokenizer: Tokenizer, longest: int) -> list[str]:
    """Sources of at most so many ids, for which the oldest of previous sentences are left out.

    One that is too long alone stays.

    Args:
        sources: With U+001E between sentences.
        tokenizer: Of them.
        longest: Most ids, marks and END counted.
    """
    found = list(sources)
    rows = [row for row, text in enumerate(found) if SEPARATOR in text]
    while rows and getattr(tokenizer, "context", None) is not None:
        sizes = tokenizer.tokenize([found[row] for row in rows], end=True).row_lengths().numpy()
        rows = [row for row, size in zip(rows, sizes, strict=True) if size > longest]
        for row in rows:
            found[row] = found[row].partition(SEPARATOR)[2]
        rows = [row for row in rows if SEPARATOR in found[row]]
    return found


Rows: TypeAlias = Callable[[list[str]], Sequence[Sequence[int]] | Sequence[Sequence[str]]]


def check_ops(owner: str) -> None:
    """ImportError where a tokenizer cannot become part of a SavedModel for want of its ops."""
    if not has_ops():
        raise ImportError(
            f"{owner}: a SavedModel tokenizes with ops of tensorflow-text, which is not installed: "
            "pip install tensorflow-text, on Linux or macOS; all else works without."
        )


def has_package(name: str) -> bool:
    """Whether a package can be imported; a warning says why one that is installed cannot."""
    try:
        __import__(name)
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError) or error.name != name:
            warnings.warn(
                f"keras_transformers: {name} is installed but cannot be imported: {error}",
                stacklevel=2,
            )
        return False
    return True


has_ops = functools.partial(has_package, "tensorflow_text")


def package(owner: str, name: str) -> Any:
    """A package of the extra `text`.

    Raises:
        ImportError: If neither it nor tensorflow-text is installed.
    """
    try:
        return __import__(name)
    except ImportError:
        raise ImportError(
            f"{owner}: tokenizing needs the package {name}, or tensorflow-text; run "
            '`pip install "keras_transformers[text]"`.'
        ) from None


def ragged(function: Rows, strings: tf.Tensor, dtype: tf.DType = tf.int32) -> tf.RaggedTensor:
    """What a function of a list of str makes of strings.

    Args:
        function: Gives for each a list of ids, or of str.
        strings: `(n,)`, valid UTF-8.
        dtype: `tf.int32`, or `tf.string`.

    Returns:
        RaggedTensor `(n, None)`.
    """

    def call(strings: Array) -> tuple[Array, Array]:
        rows = function([each.decode("utf-8", "replace") for each in strings])
        flat: list[Any] = [each for row in rows for each in row]
        if dtype == tf.string:
            flat = [piece.encode("utf-8") for piece in flat]
        values = np.array(flat, object if dtype == tf.string else "int32")
        return values, np.array([len(row) for row in rows], "int64")

    if tf.executing_eagerly():
        values, lengths = call(strings.numpy())
        values = tf.constant(values.tolist(), dtype, shape=values.shape)
    else:
        values, lengths = tf.numpy_function(call, [strings], (dtype, tf.int64))
        values, lengths = tf.ensure_shape(values, [None]), tf.ensure_shape(lengths, [None])
    return tf.RaggedTensor.from_row_lengths(values, lengths)


def joined(function: Callable[[list[list[int]]], list[str]], ids: tf.RaggedTensor) -> tf.Tensor:
    """Strings `(n,)` that a function makes of ragged ids `(n, None)`."""

    def call(ids: Array, splits: Array) -> Array:
        rows = [ids[a:b].tolist() for a, b in zip(splits[:-1], splits[1:], strict=True)]
        return np.array([text.encode("utf-8") for text in function(rows)], object)

    if tf.executing_eagerly():
        strings = call(ids.flat_values.numpy(), ids.row_splits.numpy()).tolist()
        return tf.constant(strings, tf.string, shape=[len(strings)])
    found = tf.numpy_function(call, [ids.flat_values, ids.row_splits], tf.string)
    return tf.ensure_shape(found, [None])


def decomposed(strings: tf.Tensor) -> tf.Tensor:
    """Strings `(n,)` in Unicode's form NFD, by tensorflow-text, or by Python."""
    if has_ops():
        import tensorflow_text as tf_text

        return tf_text.normalize_utf8(strings, "NFD")

    def call(strings: Array) -> Array:
        texts = [unicodedata.normalize("NFD", each.decode("utf-8")) for each in strings]
        return np.array([text.encode("utf-8") for text in texts], object)

    if tf.executing_eagerly():
        return tf.constant(call(strings.numpy()).tolist(), tf.string, shape=strings.shape)
    return tf.ensure_shape(tf.numpy_function(call, [strings], tf.string), [None])


class FromDefinition:
    """A tokenizer of the package `tokenizers`, made when it is first used.

    Args:
        owner: Name of the class that uses it, for messages.
        definition: Function that gives what `tokenizer.json` would hold, as a dict.
    """

    def __init__(self, owner: str, definition: Callable[[], dict[str, Any]]) -> None:
        self._owner, self._definition = owner, definition

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer`, which neither cuts nor pads."""
        definition = {**self._definition(), "truncation": None, "padding": None}
        tokenizers = package(self._owner, "tokenizers")
        try:
            with self._without_panic():
                return tokenizers.Tokenizer.from_str(json.dumps(dict(definition)))
        except Exception as error:  # the package raises no other class
            raise ValueError(f"{self._owner}: `tokenizers` cannot read it: {error}") from None

    @contextlib.contextmanager
    def _without_panic(self) -> Iterator[None]:
        """Raises a ValueError where the package panics, as at a pattern that takes too long.

        Its class of a panic comes from BaseException, and cannot be imported.
        """
        try:
            yield
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise ValueError(f"{self._owner}: `tokenizers` panics: {error}") from None

    def ids(self, strings: tf.Tensor) -> tf.RaggedTensor:
        """Ids of strings `(n,)`, without marks around them."""
        return ragged(self._rows, strings)

    def _rows(self, texts: list[str]) -> list[list[int]]:
        with self._without_panic():
            found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found]

    def texts(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Strings of ragged ids `(n, None)`; special tokens vanish."""
        return joined(self._joined_rows, ids)

    def _joined_rows(self, rows: list[list[int]]) -> list[str]:
        with self._without_panic():
            return list(self.tokenizer.decode_batch(rows))
