"""Text generation: a language model continues a raw text."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.generation import Request, Sampling, StopStrings, decode
from keras_transformers.generation.decode import run_in_parts
from keras_transformers.generation.inputs import check_streamable
from keras_transformers.generation.request import Decodable, padding_of, vocabularies_of
from keras_transformers.generation.search import Search
from keras_transformers.models import LanguageHead, LanguageModel
from keras_transformers.pretrained.search import load_new_tokens, load_stop_strings
from keras_transformers.tasks.fitting import Fitted
from keras_transformers.tasks.predictor import received
from keras_transformers.tasks.predictor_folder import Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import (
    Rounds,
    changed_search,
    exportable_search,
    sequences_of,
    uniform,
)
from keras_transformers.tasks.served import (
    Saving,
    Served,
    Signature,
    bounded,
    joined_past_ends,
    lengths_for,
    lengths_up_to,
    strings,
)
from keras_transformers.tasks.text_classification import UnlabelledTextFitting
from keras_transformers.tasks.text_predictor import (
    TextPredictor,
    TextStream,
    byte_id,
    pairs_of,
    scores_of,
    text_of,
)
from keras_transformers.tasks.text_signatures import (
    ContinuationScores,
    GivenTexts,
    PieceNames,
    TextSignature,
)
from keras_transformers.text import packed_documents
from keras_transformers.text.tokenizers import cutter_of_targets

NEW_TOKENS = 128  # of a continuation
LENGTHS = (16, 64, 256, 1024, 4096)  # of prompts, by default
DEFAULT_SEARCH = Sampling(temperature=0.8, top_p=0.95)
RESULTS = {
    "text": tf.TensorSpec([None], tf.string),
    "continuation": tf.TensorSpec([None], tf.string),
    "finished": tf.TensorSpec([None], tf.bool),
}


class Prompts(NamedTuple):
    """The texts of a request as a generator reads them.

    Attributes:
        ids: Token ids, with START or its replacement first, int32 `(batch, None)`.
        is_cut: Texts of which the beginning was cut off, bool `(batch,)`.
    """

    ids: tf.RaggedTensor
    is_cut: tf.Tensor


class Written(NamedTuple):
    """The tokens of a round.

    Attributes:
        start: The first token of each prompt, int32 `(batch, 1)`.
        forced: The other tokens of each prompt, and padding, int32 `(batch, length)`.
        tokens: Prompts and continuations without START, int32 `(batch, n, length)`.
        finished: Texts that the model has ended itself, bool `(batch, n)`.
    """

    start: tf.Tensor
    forced: tf.Tensor
    tokens: tf.Tensor
    finished: tf.Tensor


class TextGenerator(Served):
    """A trained language model, its tokenizer and a search as one function from text to text.

    It takes UTF-8 strings `(batch,)`; after an empty one a new text begins. It gives a dict, each
    `(batch,)`, of `text` string, the prompt and its continuation; `continuation` string, the
    continuation alone; `finished` bool, whether the model ended the text; and `truncated` bool,
    whether the beginning of the prompt was cut off. Marks such as END vanish from a text, also in a
    prompt. If the search finds n sequences (`n_best`, `num_samples`), these outputs are those of
    the best, or the first, and `texts` and `continuations`, strings `(batch, n)`, hold all. For XLA
    prompts are sorted by length and padded to a few lengths and batch sizes, each compiled when it
    is first used; the SavedModel that `save` writes can be called without XLA, see `Served`. The
    model reads all tokens of a prompt at once. Its weights are shared, not copied.

    The signatures "tokens" and "score" of a SavedModel, `predict(scores=True)` and `score` give
    log-probabilities of tokens. They are the model's own; settings of the search do not change
    them.

    Args:
        model: A `models.LanguageModel`, or any model with its `start_decoding` and `decode_step`.
            Scores need its `log_probabilities`, too.
        tokenizer: A `text.SentencePieceTokenizer`, best one trained with `lossless=True`, a
            `text.WordPieceTokenizer`, or a `text.BytePairTokenizer`.
        search: `Sampling(...)` (default: temperature 0.8, top_p 0.95), `Greedy()` or
            `BeamSearch(...)`.
        new_tokens: Most tokens of a continuation.
        stop_strings: Strings, or one, at which a text ends, as it does at END. They are cut off,
            with the characters behind them in their last token.
        prompt_lengths: Lengths in tokens to which prompts are padded. A longer prompt loses its
            beginning, and `truncated` tells so. By default 16, 64, 256 and so on, as far as the
            model has positions; up to 4,096 if it has no limit.

    Raises:
        ValueError: If `prompt_lengths` do not increase, `new_tokens` is not positive, the model has
            too few positions for both, the tokenizer has ids that the model does not know, or a
            string of `stop_strings` is empty.

    Example:
    >>> from keras_transformers.export import TextGenerator
    >>> from keras_transformers.models import LanguageModel
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = LanguageModel.from_variant("tiny", 14)
    >>> writer = TextGenerator(model, tokenizer, new_tokens=5, prompt_lengths=(8,))
    >>> [text.startswith("a cat") for text in writer.write(["a cat", "a cat sat"])]
    [True, True]
    """

    kind = "text_generator"

    def __init__(
        self,
        model: Decodable,
        tokenizer: Tokenizer,
        search: Search | None = None,
        new_tokens: int = NEW_TOKENS,
        prompt_lengths: Sequence[int] | None = None,
        stop_strings: str | Sequence[str] = (),
    ) -> None:
        super().__init__("text_generator", model, tf.TensorSpec([None], tf.string, name="text"))
        if new_tokens < 1:
            raise ValueError(
                f"TextGenerator: `new_tokens` must be positive. Received: {new_tokens}"
            )
        positions = getattr(model, "most_decodable", None)
        room = None if positions is None else positions - new_tokens
        if prompt_lengths is None:
            # If not even the shortest prompt fits, the check below says so.
            longest = None if room is None else max(room, LENGTHS[0])
            prompt_lengths = lengths_up_to(longest, LENGTHS, factor=4)
        lengths = lengths_for(
            "TextGenerator", model, tokenizer, prompt_lengths, LENGTHS, "prompt_lengths"
        )
        if room is not None and lengths[-1] > room:
            raise ValueError(
                f"TextGenerator: the model's {positions} positions must hold the longest of "
                f"`prompt_lengths` and `new_tokens`. Received: prompt_lengths={lengths}, "
                f"new_tokens={new_tokens}"
            )
        search = exportable_search("TextGenerator", search or DEFAULT_SEARCH)
        search.constraints.check_no_ratio("TextGenerator: without a source")
        if not model.built:
            model(tf.ones((1, 1), tf.int32))
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.lengths = lengths
        self.search = search
        self.new_tokens = new_tokens
        self.make_seed(search)
        self.results = RESULTS
        if (number := sequences_of(search)) > 1:
            several = tf.TensorSpec([None, number], tf.string)
            self.results = RESULTS | {"texts": several, "continuations": several}
        self._stop = StopStrings(tokenizer, stop_strings) if stop_strings else None
        self._stop_table: tf.Tensor | None = None
        if self._stop is not None:
            self._stop_table = tf.constant(self._stop.for_vocabulary(vocabularies_of(model)[1]))
        # Shared by the further signatures, so that a SavedModel has one table of pieces.
        self.target_tokenizer = cutter_of_targets(tokenizer)
        self.pieces = PieceNames(self.target_tokenizer)
        self._scores: dict[str, TextSignature] = {}
        if hasattr(model, "log_probabilities"):  # a model of the user's may lack it
            self._scores = {"score": GivenTexts(self), "tokens": ContinuationScores(self)}

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Strings at which a text ends."""
        return () if self._stop is None else self._stop.strings

    def token_ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes strings `(batch,)` to int32 `(batch, None)`, without marks."""
        ids = self.tokenizer.tokenize(text)
        # A prompt may contain the token of padding, at which the search would choose another token.
        return tf.ragged.boolean_mask(ids, ids != self.padding)

    def beginnings(self, is_empty: tf.Tensor) -> tf.RaggedTensor | tf.Tensor:
        """Returns the ids before the first tokens of texts, `(batch, None)`.

        The id is START. Without START it is END for the rows in which no other token would stand
        before the first token that is chosen or scored.

        Args:
            is_empty: Bool `(batch,)`, True for those rows.
        """
        start = self.tokenizer.start_id
        if start is not None:
            return tf.fill([tf.size(is_empty), 1], start)
        missing = tf.cast(is_empty, tf.int64)
        # A text that begins follows on the end of another.
        ends = tf.fill([tf.reduce_sum(missing)], self.tokenizer.end_id)
        return tf.RaggedTensor.from_row_lengths(ends, missing)

    def answer(self, text: tf.Tensor, rounds: Rounds) -> dict[str, tf.Tensor]:
        """Continues texts: encodes them, searches in rounds, and joins the tokens."""
        prompts = self.encode(text)
        numbers = self.row_numbers(prompts.ids)

        def write(ids: tf.RaggedTensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
            return self.join(self.find_tokens(rounds, ids, numbers))

        outputs = rounds.run_by_length(write, prompts.ids, self.results, numbers)
        return {**outputs, "truncated": prompts.is_cut}

    def encode(self, text: tf.Tensor) -> Prompts:
        """Tokenizes texts; a long one keeps its end."""
        text, is_shortened = bounded(text, self.longest, end=True)
        ids = self.token_ids(text)
        lengths = ids.row_lengths()
        prompts = tf.concat([self.beginnings(lengths == 0), ids[:, -self.longest :]], axis=1)
        return Prompts(prompts, (lengths > self.longest) | is_shortened)

    def _split_start(self, ids: tf.RaggedTensor, rounds: Rounds) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the first tokens of prompts, `(batch, 1)`, and the rest, with room behind."""
        prompts = rounds.padded(ids, [length + 1 for length in self.lengths], self.padding)
        widths = [[0, 0], [0, self.new_tokens]]
        return prompts[:, :1], tf.pad(prompts[:, 1:], widths, constant_values=self.padding)

    def find_tokens(self, rounds: Rounds, ids: tf.RaggedTensor, numbers: tf.Tensor) -> Written:
        """Searches for the continuations of a round.

        Args:
            rounds: The `Rounds` that compute.
            ids: Prompts, START first, int32 `(batch, None)`.
            numbers: Numbers of the prompts in their request, int32 `(batch,)`.
        """
        start, forced = self._split_start(ids, rounds)
        width = tf.shape(forced)[1]
        draws = uniform(self.search, width, numbers, self.seed)
        decode_program = rounds.program(self._decode)
        prompt_length = width - self.new_tokens
        tokens, finished = decode_program(start[:, 0], forced, draws, prompt_length, rounds.stages)
        return Written(start, forced, tokens, finished)

    def join(self, written: Written) -> dict[str, tf.Tensor]:
        """Joins the tokens of a round to texts."""
        start, forced, tokens, finished = written
        number = sequences_of(self.search)
        prompts = self._text(tf.concat([start, forced], axis=1))
        starts = tf.repeat(start, number, axis=0)
        texts = self._text(tf.concat([starts, tf.reshape(tokens, [-1, tf.shape(tokens)[2]])], 1))
        begins = tf.repeat(tf.strings.length(prompts), number)
        rest = tf.strings.substr(texts, begins, tf.strings.length(texts))
        if self._stop is not None:
            rest = tf.strings.regex_replace(rest, self._stop.pattern, "", replace_global=False)
            texts = tf.strings.join([tf.repeat(prompts, number), rest])
        texts = tf.reshape(texts, [-1, number])
        rest = tf.reshape(rest, [-1, number])
        best = {"text": texts[:, 0], "continuation": rest[:, 0], "finished": finished[:, 0]}
        return best if number == 1 else best | {"texts": texts, "continuations": rest}

    def _text(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns texts of the model's dense ids, whose padding need not be the tokenizer's."""
        return joined_past_ends(self.tokenizer, ids, self.padding)

    def _decode(
        self,
        start: tf.Tensor,
        forced: tf.Tensor,
        draws: Any,
        prompt_length: Any,
        stages: int | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns tokens `(batch, n, length)` without START, and ended texts, `(batch, n)`.

        `forced` holds the padded ids of prompts without START.
        """
        # The limit of a text follows from its own prompt, without padding. So a text does not
        # depend on its neighbours in the batch.
        lengths = tf.reduce_sum(tf.cast(forced != self.padding, tf.int32), axis=1)
        limits = lengths + self.new_tokens
        fewest, _ = self.search.constraints.limits(tf.zeros_like(limits))
        request = Request(
            forced,
            start,
            self.tokenizer.end_id,
            fewest,
            None,
            draws,
            prompt_length,
            self.padding,
            cut_lengths=limits,
            prompt_scores=False,
            stop_table=self._stop_table,
        )
        decoded = decode(self.model, forced, self.search, request, stages)
        tokens = decoded["tokens"]
        finished = decoded["finished"]
        if len(tokens.shape) == 2:  # one text for each prompt
            return tokens[:, None], finished[:, None]
        return tokens, finished

    def changed(
        self,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
        stop_strings: str | Sequence[str] | None = None,
    ) -> "TextGenerator":
        """Returns a generator with the same model and tokenizer, and other settings.

        Args:
            new_tokens, search, seed, n_best, stop_strings: As `TextGeneratorPredictor.predict`
                takes them.
        """
        search = changed_search("TextGenerator", self.search, search, seed, n_best)
        number = self.new_tokens if new_tokens is None else new_tokens
        lengths = None if number > self.new_tokens else self.lengths
        stop = self.stop_strings if stop_strings is None else stop_strings
        return TextGenerator(self.model, self.tokenizer, search, number, lengths, stop)

    def stream(self, prompt: str | bytes, tokens_at_a_time: int | None = None) -> TextStream:
        """Continues one text, and hands over the continuation while it is written.

        The pieces are the continuation that a call gives for the text alone.

        Args:
            prompt: The text.
            tokens_at_a_time: See `generation.stream`.

        Returns:
            An iterator of str, with the attributes `prompt`, the text as the model reads it,
            `truncated`, and `finished`, whether the model ended the text.

        Raises:
            ValueError: If the search is neither `Greedy()` nor `Sampling(...)` of one sample.

        Example:
        >>> from keras_transformers.export import TextGenerator
        >>> from keras_transformers.generation import Greedy
        >>> from keras_transformers.models import LanguageModel
        >>> from keras_transformers.text import SentencePieceTokenizer
        >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
        >>> model = LanguageModel.from_variant("tiny", 14)
        >>> writer = TextGenerator(model, tokenizer, Greedy(), 5, prompt_lengths=(8,))
        >>> pieces = writer.stream("a cat")
        >>> pieces.prompt + "".join(pieces) == writer.write(["a cat"])[0]
        True
        """
        check_streamable("TextGenerator", self.search)
        prompts = self.encode(strings([prompt]))
        start, forced = self._split_start(prompts.ids, self.compiled_rounds)
        numbers = self.row_numbers(prompts.ids)
        draws = uniform(self.search, forced.shape[1], numbers, self.seed)
        size = forced.shape[1] - self.new_tokens
        forced = forced.numpy()
        parts = run_in_parts(
            "TextGenerator",
            self.model,
            np.zeros((1, 0), "int32"),  # no source
            forced,
            np.sum(forced != self.padding, axis=1) + self.new_tokens,
            self.search,
            start[:, 0].numpy(),
            self.tokenizer.end_id,
            None if draws is None else draws.numpy(),
            size,
            stop_strings=self._stop,
            tokens_at_a_time=tokens_at_a_time,
        )
        before = prompts.ids[0].numpy().tolist()
        begin = self._text(prompts.ids.to_tensor()).numpy()[0]

        def texts_of(rows: list[list[int]]) -> list[str]:
            rows = [before + tokens for tokens in rows]
            texts = self._text(tf.ragged.constant(rows, tf.int32).to_tensor(self.padding)).numpy()
            return [text[len(begin) :].decode("utf-8", "replace") for text in texts]

        prompt_text = begin.decode("utf-8", "replace")
        is_cut = bool(prompts.is_cut[0])
        byte = byte_id(self.tokenizer)
        return TextStream(parts, texts_of, byte, prompt_text, is_cut, self.stop_strings)

    def write(self, prompts: Sequence[str]) -> list[str]:
        """Continues a list of str; returns the prompts with their continuations."""
        return [text.decode() for text in self(strings(prompts))["text"].numpy()]

    def score(
        self, texts: Sequence[str], prompts: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Scores texts, token by token: see `TextGeneratorPredictor.score`."""
        return TextGeneratorPredictor(self).score(texts, prompts)

    def with_tokens(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: continues texts and scores each token; see the signature "tokens"."""
        return self.call_deprecated("with_tokens", "tokens", inputs)

    def with_prompts(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: scores texts after prompts; see the signature "score"."""
        return self.call_deprecated("with_prompts", "score", inputs)

    def log_probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """Computes those of the model: see `models.LanguageModel.log_probabilities`."""
        return self.model.log_probabilities(ids)

    def further_signature(self, name: str) -> Signature:
        if not self._scores:
            model = type(self.model).__name__
            raise AttributeError(f"TextGenerator: {model} has no `log_probabilities`, for scores.")
        return super().further_signature(name)

    def further_signatures(self) -> dict[str, Signature]:
        return {name: scores.signature for name, scores in self._scores.items()}

    def resources(self) -> dict[str, Any]:
        return super().resources() | {"target_tokenizer": self.target_tokenizer}


def text_generator(
    model: Decodable,
    tokenizer: Tokenizer,
    path: StrPath,
    search: Search | None = None,
    new_tokens: int = 128,
    prompt_lengths: Sequence[int] | None = None,
    stop_strings: str | Sequence[str] = (),
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a writer that continues raw text. See `TextGenerator` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.LanguageModel.from_variant("tiny", 14)
    >>> path = export.text_generator(
    ...     model, tokenizer, tempfile.mkdtemp(), new_tokens=5, prompt_lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['continuation', 'finished', 'text', 'truncated']
    """
    generator = TextGenerator(model, tokenizer, search, new_tokens, prompt_lengths, stop_strings)
    return generator.save(path, **saving)


class TextGeneratorPredictor(TextPredictor):
    """Continues a text: a str, prompt and continuation; with `details` a dict.

    The dict has `text`, `continuation`, `finished`, whether the model ended the text, and
    `truncated`, whether the beginning of the prompt was cut off. `predict(texts, scores=True)` adds
    the log-probabilities of the continuation, and `score` gives those of other texts.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextGeneratorPredictor
    >>> TextGeneratorPredictor(lambda text: {"text": text + " ..."}).predict("Once")
    'Once ...'
    """

    kind = "text_generator"
    _tells = False  # whether answers have scores

    def predict(
        self,
        raw: Any,
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
        stop_strings: str | Sequence[str] | None = None,
        scores: bool = False,
    ) -> Any:
        """Continues one text, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            new_tokens: Most tokens of a continuation; by default the number of the loaded model.
            search: `Greedy()`, `BeamSearch(...)` or `Sampling(...)` in place of the loaded model's
                search. It takes the boundaries of that search (END, tokens that come first), and
                its constraints if it has none of its own. Each new search compiles anew.
            seed: Seed of the samples, for the same texts every time. The random numbers of a text
                follow from the seed and the number of the text, whatever `batch_size` is.
            n_best: Number of texts for each prompt. The answer is then a list of them, the best
                first, or in the order in which they were drawn.
            stop_strings: Strings, or one, at which a text ends, as it does at END; they are cut
                off. By default those of the loaded model; () for none. New ones compile anew.
            scores: Whether to add scores to the outputs of `details`: `tokens`, a list of `(piece,
                log-probability)` of the continuation, with END if the model chose it, and
                `log_probability`, their sum. The probabilities are the model's own; the search does
                not change them.

        Returns:
            A str, or with `n_best` a list of str; for many texts a list of those. With `details` or
            `scores` a dict in place of a str or a list. If there are several texts for each prompt,
            the dict also has the lists `texts` and `continuations`, and with `scores` the lists
            `log_probabilities` and `all_tokens`; its other entries are those of the first text.

        Raises:
            ValueError: If an item is no text, a setting is impossible, or there are settings and
                only a SavedModel, whose settings are fixed.
            AttributeError: If the export cannot give `scores`.
        """
        predictor = self._change_settings(new_tokens, search, seed, n_best, stop_strings)
        predictor = predictor.telling(scores)
        return super(TextGeneratorPredictor, predictor).predict(raw, batch_size, verbose, details)

    def each(
        self,
        items: Iterable[Any],
        batch_size: int | None = None,
        verbose: int = 0,
        details: bool = False,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
        stop_strings: str | Sequence[str] | None = None,
        scores: bool = False,
    ) -> Iterator[Any]:
        """Yields answers as `Predictor.each` does, with the arguments of `predict`."""
        predictor = self._change_settings(new_tokens, search, seed, n_best, stop_strings)
        predictor = predictor.telling(scores)
        return super(TextGeneratorPredictor, predictor).each(items, batch_size, verbose, details)

    def telling(self, scores: bool = True) -> Self:
        """Returns the predictor whose answers have `scores`, see `predict`; itself if False."""
        if not scores or self._tells:
            return self
        predictor = self._replace_function(self._find_function("tokens", ("text",)))
        predictor._tells = True
        return predictor

    def score(
        self,
        texts: Sequence[str | bytes],
        prompts: Sequence[str | bytes] | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, Any]]:
        """Computes the log-probabilities of texts by the model.

        Prompt and text become tokens together. The tokens of the prompt are those that it would
        have alone, up to the first that differs; a token in which the prompt ends belongs to the
        text. START stands before the first token, as when the model writes. A tokenizer without
        START, as GPT-2's, has END there if there is no prompt: the text follows on the end of
        another. END behind a text does not count, unless the text contains it (`"...
        <|endoftext|>"`).

        Args:
            texts: A list of texts.
            prompts: A list of the prompts before the texts, in which "" is no prompt; None for no
                prompts.
            batch_size: Texts of a request; by default 1,024.

        Returns:
            A dict for each text: `score`, the logarithm of its probability after its prompt;
            `tokens`, a list of `(piece, log-probability)`, whose sum is the score; and `truncated`,
            whether the beginning of the prompt or the end of the text was cut off. Together both
            may have as many tokens as the longest prompt and `new_tokens`. The perplexity of a text
            is `exp(-score / len(tokens))`.

        Raises:
            ValueError: If the lists differ in length, or an item is no text.
            AttributeError: If the export cannot score.
        """
        sides = [texts] if prompts is None else [texts, prompts]
        if any(isinstance(side, str | bytes) or len(side) != len(texts) for side in sides):
            sizes = [side if isinstance(side, str | bytes) else len(side) for side in sides]
            raise ValueError(
                "score: `texts` must be a list, and `prompts` None or a list as long. "
                f"{received(sizes)}"
            )
        score = self._find_function("score", ("text", "prompt"))
        return self._score_items(score, [texts, prompts or [""] * len(texts)], batch_size)

    def stream(
        self,
        prompt: str | bytes,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        tokens_at_a_time: int | None = None,
        stop_strings: str | Sequence[str] | None = None,
    ) -> TextStream:
        """Continues one text, and hands over the continuation while it is written.

        Args:
            prompt: The text.
            new_tokens, search, seed, stop_strings: As `predict` takes them; `Greedy()` or
                `Sampling(...)` of one sample.
            tokens_at_a_time: Most tokens that are chosen before they are handed over. By default
                the first comes alone, and then as many as take about a tenth of a second.

        Returns:
            An iterator of str. Joined, they are the `continuation` of `predict`, by the same seed.
            Its attributes are `prompt`, the text as the model reads it, `truncated`, and
            `finished`, whether the model ended the text. It may be left at any time.

        Raises:
            ValueError: If the prompt is no text, a setting is impossible, the search chooses
                several sequences, as a beam search does, or there is only a SavedModel.

        Example:
        >>> from keras_transformers.export import TextGenerator
        >>> from keras_transformers.generation import Greedy
        >>> from keras_transformers.models import LanguageModel
        >>> from keras_transformers.predictors import TextGeneratorPredictor
        >>> from keras_transformers.text import SentencePieceTokenizer
        >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
        >>> model = LanguageModel.from_variant("tiny", 14)
        >>> writer = TextGeneratorPredictor(TextGenerator(model, tokenizer, prompt_lengths=(8,)))
        >>> pieces = list(writer.stream("a cat", new_tokens=5, search=Greedy()))
        >>> details = writer.predict("a cat", details=True, new_tokens=5, search=Greedy())
        >>> "".join(pieces) == details["continuation"]
        True
        """
        predictor = self._change_settings(new_tokens, search, seed, None, stop_strings)
        return predictor._stream_text(prompt, tokens_at_a_time)

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        texts = [text_of(text) for text in row["texts"]] if "texts" in row else []
        if not details and not self._tells:
            best = text_of(row["text"])
            return (texts or [best]) if self._lists else best
        answer: dict[str, Any] = {
            "text": text_of(row["text"]),
            "continuation": text_of(row["continuation"]),
            "finished": bool(row["finished"]),
            "truncated": bool(row["truncated"]),
        }
        if texts:
            answer["texts"] = texts
            answer["continuations"] = [text_of(text) for text in row["continuations"]]
        if self._tells:
            answer |= scores_of(row)
            if texts:
                answer |= _scores_of_all(row)
        return answer


def _scores_of_all(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the scores of all texts that were written for one prompt."""
    rows = zip(row["all_tokens"], row["all_log_probabilities"], strict=True)
    return {
        "log_probabilities": row["all_log_probability"].tolist(),
        "all_tokens": [pairs_of(*tokens) for tokens in rows],
    }


class LanguageModelFitting(UnlabelledTextFitting):
    """A language model, which continues texts.

    Example:
    >>> from keras_transformers.fitting import LanguageModelFitting
    >>> LanguageModelFitting.kind
    'text_generator'
    """

    kind = "text_generator"
    default_search = DEFAULT_SEARCH

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        folder = published.folder
        new_tokens = published.new_tokens
        if not isinstance(model, LanguageModel) or not isinstance(model.head, LanguageHead | None):
            return None
        if new_tokens is None:
            # If there are few positions, half of them are for the prompt.
            new_tokens = load_new_tokens(folder, after_prompt=True) or NEW_TOKENS
            new_tokens = min(new_tokens, (model.most_decodable or 2 * new_tokens) // 2)
        options = {"search": pretrained.load_search(folder), "new_tokens": new_tokens}
        if stop_strings := load_stop_strings(folder):
            options["stop_strings"] = stop_strings
        return cls(published.read_text_model(options))

    @classmethod
    def options_of_run(
        cls, folder: pathlib.Path, predictor: Any, numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        if "temperature" not in numbers:
            return {}
        search = Sampling(numbers["temperature"], top_p=numbers["top_p"])
        return {"search": search, "new_tokens": numbers["new_tokens"]}

    def served(self) -> Any:
        return TextGenerator(self.held.model, self.held.tokenizer, **self.held.options)

    def _marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokenizer = self.held.tokenizer
        start = () if tokenizer.start_id is None else (tokenizer.start_id,)
        return start, (tokenizer.end_id,)

    def _batches(
        self, rows: tf.data.Dataset, size: int, seed: int | None = None, epoch: Any = None
    ) -> tf.data.Dataset:
        padding = padding_of(self.held.model)
        return packed_documents(rows, self._length(), size, seed, padding_id=padding, epoch=epoch)


TASKS = (Task(TextGenerator, TextGeneratorPredictor, LanguageModelFitting, output="continuation"),)
