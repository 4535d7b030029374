"""Question answering: the piece of a raw text that answers a question."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack

import keras
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.generation.request import padding_of
from keras_transformers.models import SpanHead
from keras_transformers.models.text_heads import NEVER
from keras_transformers.tasks.fitting import Answering, Fitted
from keras_transformers.tasks.predictor import received
from keras_transformers.tasks.predictor_folder import Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import Rounds
from keras_transformers.tasks.served import LENGTHS, Saving, Served, bounded, lengths_for
from keras_transformers.tasks.text_predictor import TextPredictor, text_of
from keras_transformers.text import Offsets, with_offsets
from keras_transformers.text.cutting import SPACES, valid
from keras_transformers.text.tokenizers import marks_of_pair, rows_of

QUESTION = 64  # most tokens of a question that are read
LONGEST = 384  # ids of a window by default, as BERT was trained


class _Windows(NamedTuple):
    """Windows over contexts, with their question, in the order of the requests."""

    ids: tf.RaggedTensor  # (windows, None)
    begins: tf.Tensor  # (windows,): position in the window at which the context begins
    sizes: tf.Tensor  # (windows,): number of tokens of the context in the window
    starts: tf.Tensor  # (windows,): position of the first of these tokens in the context
    numbers: tf.Tensor  # (requests,): number of windows of each request


class QuestionAnswerer(Served):
    """A model with a `SpanHead` and its tokenizer as one function from question and text to answer.

    It takes UTF-8 strings `(batch, 2)`, a question and the context that holds its answer, and gives
    a dict, each `(batch,)`: `answer` string, a piece of the context; `start` and `end` int32, its
    characters in the context; `score` float32, the probability of its first token times that of its
    last; `no_answer` float32, the same product for the first mark of the row, to which some models
    point if there is no answer; and `truncated` bool, whether the end of the question, or of a
    context of more than 64 KiB, was cut off. The answer begins and ends with whole words, see
    `text.with_offsets`.

    If a context is longer than the model takes, it is read in windows that overlap, and the best
    answer of all windows is given. For XLA lengths and batch sizes are few, as in `TextClassifier`;
    weights are shared.

    Args:
        model: A `models.TextEncoder` or `models.LanguageModel` with `SpanHead`, or any model from
            ids `(batch, length)` to logits `(batch, 2, length)`. If it has token types, the context
            has the second.
        tokenizer: Any tokenizer of `keras_transformers.text`. It joins question and context to one
            row as a pair of texts.
        lengths: Increasing lengths in ids to which windows are padded. By default those of 32, 64,
            128, 256 and 384 for which the model has positions.
        overlap: Tokens that a window has in common with the one before; by default 128, or half of
            a window if that is less.
        longest_answer: Most tokens of an answer.

    Raises:
        ValueError: If the lengths do not increase or exceed the model's positions, or leave no room
            for a context beside a question; the tokenizer has ids that the model does not know; or
            `longest_answer` is not positive.

    Example:
    >>> from keras_transformers.export import QuestionAnswerer
    >>> from keras_transformers.models import SpanHead, TextEncoder
    >>> from keras_transformers.text import WordPieceTokenizer
    >>> special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    >>> tokenizer = WordPieceTokenizer([*special, "who", "sat", "a", "cat", "?"])
    >>> model = TextEncoder.from_variant("tiny", 10, head=SpanHead())
    >>> answerer = QuestionAnswerer(model, tokenizer, lengths=(16,))
    >>> found = answerer([["Who sat?", "A cat sat."]])
    >>> start, end = int(found["start"][0]), int(found["end"][0])
    >>> found["answer"][0].numpy().decode() == "A cat sat."[start:end]
    True
    """

    kind = "question_answerer"

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        lengths: Sequence[int] | None = None,
        overlap: int | None = None,
        longest_answer: int = 15,
    ) -> None:
        request = tf.TensorSpec([None, 2], tf.string, name="question_and_context")
        super().__init__("question_answerer", model, request)
        usual = (*(length for length in LENGTHS if length < LONGEST), LONGEST)
        self.lengths = lengths_for("QuestionAnswerer", model, tokenizer, lengths, usual)
        if longest_answer < 1:
            raise ValueError(
                f"QuestionAnswerer: `longest_answer` must be positive. Received: {longest_answer}"
            )
        self._marks = marks_of_pair(tokenizer)
        self._longest_answer = longest_answer
        room = self.lengths[-1] - sum(map(len, self._marks))
        self._question = min(QUESTION, room // 2)
        self._overlap = min(128, room // 4) if overlap is None else overlap
        if not 0 <= self._overlap < room - self._question:
            raise ValueError(
                "QuestionAnswerer: `overlap` must be from 0 to less than what the longest of "
                f"`lengths` leaves of a context, {room - self._question}. Received: {overlap}"
            )
        self._has_types = (getattr(getattr(model, "embedding", None), "token_types", 0) or 0) > 1
        model(tf.ones((1, 2), tf.int32), training=False)
        self.tokenizer = tokenizer
        self.padding = padding_of(model)

    def answer(self, request: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        question, _ = bounded(request[:, 0], self._question)
        context, is_cut = bounded(request[:, 1], self.longest)
        context = valid(context)
        question_ids = self.tokenizer.tokenize(question)
        offsets = with_offsets(self.tokenizer, context)
        windows = self._make_windows(question_ids[:, : self._question], offsets.ids)
        spans = self._find_spans(windows, rounds)
        best, no_answer = _best_of_windows(spans, windows.numbers)
        return {
            **_cut_answer(context, offsets, best["first"], best["last"]),
            "score": best["score"],
            "no_answer": no_answer,
            "truncated": is_cut | (question_ids.row_lengths() > self._question),
        }

    def _make_windows(self, questions: tf.RaggedTensor, contexts: tf.RaggedTensor) -> _Windows:
        """Makes rows of marks, question, marks, a part of the context, marks."""
        before, between, after = self._marks
        occupied = tf.cast(questions.row_lengths(), tf.int32) + sum(map(len, self._marks))
        room = self.lengths[-1] - occupied
        context_sizes = tf.cast(contexts.row_lengths(), tf.int32)
        excess = tf.maximum(context_sizes - room, 0)
        step = room - self._overlap
        numbers = 1 + (excess + step - 1) // step
        request = tf.repeat(tf.range(tf.size(numbers)), numbers)
        starts = tf.ragged.range(numbers).flat_values * tf.gather(step, request)
        rest = tf.gather(context_sizes, request) - starts
        sizes = tf.minimum(rest, tf.gather(room, request))
        first = tf.cast(tf.gather(contexts.row_starts(), request), tf.int32) + starts
        parts = tf.ragged.range(first, first + sizes)
        parts = parts.with_values(tf.gather(contexts.flat_values, parts.flat_values))
        questions = tf.gather(questions, request)

        parts = parts.with_row_splits_dtype(questions.row_splits.dtype)
        number = tf.size(request)
        rows = [
            rows_of(before, number),
            questions,
            rows_of(between, number),
            parts,
            rows_of(after, number),
        ]
        begins = tf.gather(occupied, request) - len(after)
        return _Windows(tf.concat(rows, axis=1), begins, sizes, starts, numbers)

    def _find_spans(self, windows: _Windows, rounds: Rounds) -> dict[str, tf.Tensor]:
        """Finds the best span of each window: its `first` and `last` token in the context.

        Returns:
            Dict of `first`, `last`, `score`, and `nothing`, the probability of no answer.
        """
        order = tf.argsort(windows.ids.row_lengths(), stable=True)
        find = rounds.program(self._find)

        def compute(
            ids: tf.RaggedTensor, begin: tf.Tensor, size: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            return find(rounds.padded(ids, self.lengths, self.padding), begin, size)

        scalar = {name: tf.TensorSpec([None], tf.float32) for name in ("score", "nothing")}
        scalar |= {name: tf.TensorSpec([None], tf.int32) for name in ("first", "last")}
        inputs = [tf.gather(x, order) for x in (windows.ids, windows.begins, windows.sizes)]
        outputs = rounds.run(compute, inputs, scalar)
        back = tf.argsort(order)
        spans = {name: tf.gather(values, back) for name, values in outputs.items()}
        spans["first"] += windows.starts
        spans["last"] += windows.starts
        return spans

    def _find(self, ids: tf.Tensor, begin: tf.Tensor, size: tf.Tensor) -> dict[str, tf.Tensor]:
        """Finds the best span of padded windows, counted from the beginning of the context."""
        length = tf.shape(ids)[1]
        begin = begin[:, None]
        position = tf.range(length)[None]
        is_context = (position >= begin) & (position < begin + size[:, None])
        inputs: Any = ids
        if self._has_types:
            is_second = (position >= begin) & (ids != self.padding)
            inputs = {"ids": ids, "token_types": tf.cast(is_second, tf.int32)}
        logits = tf.cast(self.model(inputs, training=False), tf.float32)
        is_mark = (position == 0) & bool(self._marks[0])
        logits = tf.where((is_context | is_mark)[:, None], logits, NEVER)
        probabilities = tf.nn.softmax(logits)
        nothing = tf.reduce_prod(tf.where(is_mark[:, None], probabilities, 0.0)[:, :, 0], axis=1)
        starts, ends = tf.unstack(tf.where(is_context[:, None], probabilities, 0.0), axis=1)
        longest = self._longest_answer
        ends = tf.pad(ends, [[0, 0], [0, longest - 1]])
        scores = tf.stack([starts * ends[:, i : i + length] for i in range(longest)], axis=2)
        best = tf.argmax(tf.reshape(scores, [-1, length * longest]), axis=1, output_type=tf.int32)
        first = best // longest
        return {
            "score": tf.reduce_max(scores, axis=[1, 2]),
            "first": first - begin[:, 0],
            "last": first + best % longest - begin[:, 0],
            "nothing": nothing,
        }


def _best_of_windows(
    spans: dict[str, tf.Tensor], numbers: tf.Tensor
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Returns the best span of every request, and the probability that there is no answer."""
    rows = {name: tf.RaggedTensor.from_row_lengths(x, numbers) for name, x in spans.items()}
    scores = rows["score"].to_tensor(-1.0)
    scores = tf.pad(scores, [[0, 0], [0, 1]], constant_values=-1.0)  # a column if there is no row
    window = tf.argmax(scores, axis=1)[:, None]
    best = {}
    for name, row in rows.items():
        best[name] = tf.gather(row.to_tensor(), window, batch_dims=1)[:, 0]
    return best, tf.reduce_min(rows["nothing"], axis=1)


def _cut_answer(
    context: tf.Tensor, offsets: Offsets, first: tf.Tensor, last: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the text from the first to the last token, and its characters in the context."""
    has_tokens = offsets.ids.row_lengths() > 0
    rows = tf.range(tf.size(first))

    def find_offset(numbers: tf.RaggedTensor, token: tf.Tensor) -> tf.Tensor:
        padded = tf.pad(numbers.to_tensor(), [[0, 0], [0, 1]])  # a column if all rows are empty
        token = tf.clip_by_value(token, 0, tf.shape(padded)[1] - 1)
        return tf.where(has_tokens, tf.gather_nd(padded, tf.stack([rows, token], axis=1)), 0)

    start = find_offset(offsets.starts, first)
    end = find_offset(offsets.ends, last)
    answer = tf.strings.substr(context, start, end - start)
    answer = tf.strings.regex_replace(answer, rf"[{SPACES}]+$", "")
    before = tf.strings.substr(context, tf.zeros_like(start), start)
    begin = tf.strings.length(before, unit="UTF8_CHAR")
    return {
        "answer": answer,
        "start": begin,
        "end": begin + tf.strings.length(answer, unit="UTF8_CHAR"),
    }


def question_answerer(
    model: keras.Model,
    tokenizer: Tokenizer,
    path: StrPath,
    lengths: Sequence[int] | None = None,
    overlap: int | None = None,
    longest_answer: int = 15,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a model that finds answers in texts. See `QuestionAnswerer` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "a", "cat"]
    >>> tokenizer = text.WordPieceTokenizer(words)
    >>> model = models.TextEncoder.from_variant("tiny", 8, head=models.SpanHead())
    >>> path = export.question_answerer(model, tokenizer, tempfile.mkdtemp(), lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(question_and_context=tf.constant([["Who?", "A cat."]])))
    ['answer', 'end', 'no_answer', 'score', 'start', 'truncated']
    """
    answerer = QuestionAnswerer(model, tokenizer, lengths, overlap, longest_answer)
    return answerer.save(path, **saving)


class QuestionAnswererPredictor(TextPredictor):
    """Answers a question by a piece of a text: a str; with `details` a dict.

    An item is a pair of question and context, a tuple or a list of two texts, or a dict with both.
    The dict has `answer` and `score`; `start` and `end`, so that the answer is
    `context[start:end]`; `no_answer`, the probability that there is no answer, if the model was
    trained so; and `truncated`, whether the end of the question, or of a very long context, was cut
    off.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import QuestionAnswererPredictor
    >>> first = lambda pairs: {"answer": tf.strings.substr(pairs[:, 1], 0, 5)}
    >>> answerer = QuestionAnswererPredictor(first)
    >>> answerer.predict(("Who sat?", "A cat sat."))
    'A cat'
    >>> answerer.predict([{"question": "Who?", "context": "A cat."}, ("Who?", "A dog.")])
    ['A cat', 'A dog']
    """

    kind = "question_answerer"
    takes = "question_and_context"

    def _is_one(self, raw: Any) -> bool:
        """Returns True for a pair of texts, too."""
        is_pair = isinstance(raw, tuple | list) and len(raw) == 2
        is_pair = is_pair and all(isinstance(text, str | bytes) for text in raw)
        return super()._is_one(raw) or is_pair

    def _encoded(self, item: Any) -> Any:
        if isinstance(item, dict) and {"question", "context"} <= item.keys():
            item = item["question"], item["context"]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(
                "must be a pair of question and context, or a dict with `question` and `context`. "
                f"{received(item)}"
            )
        return [super(QuestionAnswererPredictor, self)._encoded(text) for text in item]

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        answer = text_of(row["answer"])
        if not details:
            return answer
        return {
            "answer": answer,
            "score": float(row["score"]),
            "start": int(row["start"]),
            "end": int(row["end"]),
            "no_answer": float(row["no_answer"]),
            "truncated": bool(row["truncated"]),
        }


class QuestionAnswererFitting(Answering):
    """A model that marks the answer to a question in a text.

    Example:
    >>> from keras_transformers.fitting import QuestionAnswererFitting
    >>> QuestionAnswererFitting.kind
    'question_answerer'
    """

    kind = "question_answerer"

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        if not isinstance(getattr(published.model, "head", None), SpanHead):
            return None
        return cls(Held(published.model, pretrained.load_tokenizer(published.folder)))

    def served(self) -> Any:
        return QuestionAnswerer(self.held.model, self.held.tokenizer, **self.held.options)


TASKS = (
    Task(QuestionAnswerer, QuestionAnswererPredictor, QuestionAnswererFitting, output="no_answer"),
)
