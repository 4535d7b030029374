"""Further signatures of exporters that write text: log-probabilities of tokens."""

from typing import Any

import tensorflow as tf

from keras_transformers.tasks.rounds import Rounds, sequences_of
from keras_transformers.tasks.served import Signature, bounded


class TextSignature:
    """A further signature of an exporter that writes text.

    A subclass has `answer(*request, rounds)`, as exporters do, see `served.Served`.

    Args:
        exporter: `Translator` or `TextGenerator`, whose model, tokenizer, search and programs are
            used.
        *requests: `tf.TensorSpec` of each input.

    Attributes:
        exporter: As given.
        tokenizer: The tokenizer of texts that the model writes.
        pieces: Function from ids to their pieces.
        signature: The `Signature`.
    """

    def __init__(self, exporter: Any, *requests: tf.TensorSpec) -> None:
        self.exporter = exporter
        self.tokenizer = exporter.target_tokenizer
        self.pieces = exporter.pieces
        self.signature: Signature = exporter.make_signature(self.answer, requests)

    def answer(self, *arguments: Any) -> dict[str, tf.Tensor]:
        """Answers a request: the hook of a subclass."""
        raise NotImplementedError

    def score_tokens(
        self, ids: tf.Tensor, values: tf.Tensor, counts: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Returns the pieces of tokens, their log-probabilities and the sums of these.

        Args:
            ids: int32 `(..., length)`.
            values: Log-probabilities, float32 `(..., length)`.
            counts: Tokens that count, from the first on, bool `(..., length)`.

        Returns:
            Dict of `tokens` and `log_probabilities`, `(..., longest)`, "" and 0 behind the last of
            each row, and `log_probability` `(...)`.
        """
        numbers = tf.reduce_sum(tf.cast(counts, tf.int32), axis=-1)
        longest = tf.maximum(tf.reduce_max(numbers), 0)  # without a row it is the least integer
        values = tf.where(counts, values, 0.0)[..., :longest]
        counts = counts[..., :longest]
        pieces = self.pieces(tf.where(counts, ids[..., :longest], 0))
        return {
            "tokens": tf.where(counts, pieces, ""),
            "log_probabilities": values,
            "log_probability": tf.reduce_sum(values, axis=-1),
        }


class PieceNames:
    """A function from ids to pieces, by a constant that is made when it is first called.

    Args:
        tokenizer: The tokenizer of the pieces.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._names: tf.Tensor | None = None

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns strings in the shape of `ids`, integers."""
        if self._names is None:
            with tf.init_scope():
                pieces = self._tokenizer.pieces(range(self._tokenizer.vocab_size))
                self._names = tf.constant(pieces, tf.string)
        return tf.gather(self._names, ids)


PROMPTED = (
    tf.TensorSpec([None], tf.string, name="text"),
    tf.TensorSpec([None], tf.string, name="prompt"),
)


class GivenTexts(TextSignature):
    """The signature "score" of a `TextGenerator`.

    It takes `text` and `prompt`, UTF-8 strings `(batch,)` each, and gives `score` float32
    `(batch,)`, the log-probability of the text after its prompt, which may be ""; `tokens`,
    strings, and `log_probabilities`, float32, both `(batch, length)`, the tokens of the text, ""
    and 0 behind the last; and `truncated` bool `(batch,)`, whether the beginning of a prompt or the
    end of a text was cut off.

    Prompt and text become tokens together. The tokens of the prompt are those that it would have
    alone, up to the first that differs; all from there on are the text's, so that a token in which
    the prompt ends is the text's. START stands before the first token, as when the generator
    writes; without START, END stands there where no token of a prompt does. END behind the text
    does not count, unless the text contains it.

    Args:
        generator: The `TextGenerator`, whose model and tokenizer are used. Together prompt and text
            may have as many tokens as its longest prompt and continuation.
    """

    def __init__(self, generator: Any) -> None:
        super().__init__(generator, *PROMPTED)

    def answer(self, text: tf.Tensor, prompt: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        generator = self.exporter
        limit = generator.longest + generator.new_tokens
        rows, numbers, truncated = self._rows(text, prompt, limit)
        begins = rows.row_lengths() - numbers
        longest = tf.maximum(tf.reduce_max(numbers), 0)
        lengths = [length + 1 for length in (*generator.lengths, limit)]

        def compute(
            rows: tf.RaggedTensor, begins: tf.Tensor, numbers: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            ids = rounds.padded(rows, lengths, generator.padding)
            missing = tf.maximum(2 - tf.shape(ids)[1], 0)  # a kernel may refuse zero positions
            ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=generator.padding)
            log_probabilities = rounds.program(generator.model.log_probabilities)(ids)
            columns = tf.range(longest, dtype=tf.int64)
            last = tf.cast(tf.shape(log_probabilities)[1] - 1, tf.int64)
            columns = tf.minimum(begins[:, None] - 1 + columns, last)
            values = tf.gather(log_probabilities, columns, batch_dims=1)
            counts = tf.range(longest, dtype=tf.int64) < numbers[:, None]
            return {"log_probabilities": tf.where(counts, values, 0.0)}

        results = {"log_probabilities": tf.TensorSpec([None, None], tf.float32)}
        values = tf.cond(
            tf.size(text) > 0,
            lambda: rounds.run_by_length(compute, rows, results, begins, numbers),
            lambda: {"log_probabilities": tf.zeros((0, longest))},
        )["log_probabilities"]
        positions = tf.ragged.range(rows.row_lengths())
        is_text = positions.flat_values >= tf.gather(begins, rows.value_rowids())
        ids = tf.ragged.boolean_mask(rows, rows.with_flat_values(is_text))
        return {
            "score": tf.reduce_sum(values, axis=1),
            "log_probabilities": values,
            "tokens": tf.ragged.map_flat_values(self.pieces, ids).to_tensor(""),
            "truncated": truncated,
        }

    def _rows(
        self, text: tf.Tensor, prompt: tf.Tensor, limit: int
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns the tokens of prompts and texts that the model reads.

        Args:
            text, prompt: Strings `(batch,)`.
            limit: Most tokens of a prompt and its text.

        Returns:
            The tokens, int32 `(batch, None)`, with START or its replacement first; the number of
            tokens of the text at the end of each row, int64 `(batch,)`; and the rows of which
            tokens are cut off, bool `(batch,)`.
        """
        generator = self.exporter
        text, is_text_cut = bounded(text, limit)
        prompt, is_prompt_cut = bounded(prompt, limit, end=True)
        ids = generator.token_ids(prompt + text)
        size = ids.row_lengths()
        prompt_size = _count_common(ids, generator.token_ids(prompt))
        text_length = tf.minimum(size - prompt_size, limit)
        prompt_length = tf.minimum(prompt_size, limit - text_length)
        positions = tf.ragged.range(size).flat_values
        first = tf.gather(prompt_size - prompt_length, ids.value_rowids())
        last = tf.gather(prompt_size + text_length, ids.value_rowids())
        is_read = (positions >= first) & (positions < last)
        read_ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_read))
        rows = tf.concat([generator.beginnings(prompt_length == 0), read_ids], axis=1)
        is_cut = (prompt_length + text_length < size) | is_text_cut | is_prompt_cut
        return rows, text_length, is_cut


def _count_common(first: tf.RaggedTensor, second: tf.RaggedTensor) -> tf.Tensor:
    """Counts the tokens with which both of two rows begin, int64 `(batch,)`."""
    second = second.to_tensor(-2)
    width = tf.shape(second)[1]
    first = first.to_tensor(-1)[:, :width]
    first = tf.pad(first, [[0, 0], [0, width - tf.shape(first)[1]]], constant_values=-1)
    is_same = tf.cast(first == second, tf.int64)
    return tf.reduce_sum(tf.math.cumprod(is_same, axis=1), axis=1)


class ContinuationScores(TextSignature):
    """The signature "tokens" of a `TextGenerator`.

    It takes `text`, as `serving_default`, and gives its outputs and more: `tokens`, strings, and
    `log_probabilities`, float32, both `(batch, length)`, the tokens of `continuation` and their
    log-probabilities after the tokens before them. END is the last token if the model chose it;
    behind the last stand "" and 0. `log_probability`, float32 `(batch,)`, is their sum. If the
    search gives n texts, there are `all_tokens` and `all_log_probabilities` `(batch, n, length)`,
    and `all_log_probability` `(batch, n)`. Probabilities are the model's own, the softmax of its
    logits: temperature, penalties and constraints of the search do not change them. An END that the
    search forces at the limit does not count.

    Args:
        generator: The `TextGenerator`, whose model, tokenizer and search are used.
    """

    def __init__(self, generator: Any) -> None:
        super().__init__(generator, *generator.requests)

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        generator = self.exporter
        number = sequences_of(generator.search)
        width = generator.new_tokens
        prompts = generator.encode(text)

        def write(ids: tf.RaggedTensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
            written = generator.find_tokens(rounds, ids, numbers)
            return generator.join(written) | self._score_written(written, rounds)

        results = {
            "ids": tf.TensorSpec([None, number, width], tf.int32),
            "log_probabilities": tf.TensorSpec([None, number, width], tf.float32),
        }
        results = generator.results | results
        numbers = generator.row_numbers(prompts.ids)
        answer = rounds.run_by_length(write, prompts.ids, results, numbers)
        answer["truncated"] = prompts.is_cut
        ids = answer.pop("ids")
        values = answer.pop("log_probabilities")
        is_real = (ids != generator.padding) & ~self._is_forced_end(ids)
        scores = self.score_tokens(ids, values, is_real)
        answer |= {name: values[:, 0] for name, values in scores.items()}
        if number > 1:
            answer |= {f"all_{name}": values for name, values in scores.items()}
        return answer

    def _score_written(self, written: Any, rounds: Rounds) -> dict[str, tf.Tensor]:
        """Returns the continuations alone, and their log-probabilities, `(batch, n, new_tokens)`.

        Args:
            written: The tokens of a round, a `text_generation.Written`.
            rounds: The `Rounds` that compute.
        """
        generator = self.exporter
        start, prompts, tokens, _ = written
        lengths = tf.reduce_sum(tf.cast(prompts != generator.padding, tf.int32), axis=1)
        positions = lengths[:, None] + tf.range(generator.new_tokens)
        ids = []
        values = []
        # The logits of all n sequences at once would need n times the memory.
        for i in range(sequences_of(generator.search)):
            rows = tf.concat([start, tokens[:, i]], axis=1)
            log_probabilities = rounds.program(generator.model.log_probabilities)(rows)
            ids.append(tf.gather(tokens[:, i], positions, batch_dims=1))
            values.append(tf.gather(log_probabilities, positions, batch_dims=1))
        return {"ids": tf.stack(ids, axis=1), "log_probabilities": tf.stack(values, axis=1)}

    def _is_forced_end(self, ids: tf.Tensor) -> tf.Tensor:
        """Tells which ids are an END that the search puts at the limit of a continuation."""
        generator = self.exporter
        boundaries = generator.search.constraints.boundaries
        ends = boundaries.ends or (self.tokenizer.end_id,)
        if boundaries.last not in ends:
            return tf.zeros_like(ids, tf.bool)
        at_limit = tf.range(generator.new_tokens) == generator.new_tokens - 1
        return (ids == boundaries.last) & at_limit
