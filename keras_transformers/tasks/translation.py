"""Translation: a SavedModel that takes raw text and gives raw text, tokenizer and search inside."""

import dataclasses
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.core.words import refused_context
from keras_transformers.data.streams import orders
from keras_transformers.data.table_files import Chosen
from keras_transformers.generation import BeamSearch, Request, Shortlist, Shortlisted, decode
from keras_transformers.generation.decode import Part, run_in_parts
from keras_transformers.generation.inputs import check_streamable
from keras_transformers.generation.request import Decodable, most_tokens, padding_of
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlists import Within
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    in_two,
    learned,
    split_parts,
    with_adapter,
)
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import (
    Rounds,
    alone_or_not,
    changed_search,
    sequences_of,
    uniform,
    without_draft,
)
from keras_transformers.tasks.served import Saving, Served, bounded, lengths_for, strings
from keras_transformers.tasks.text_predictor import TextStream, byte_id
from keras_transformers.tasks.translation_inputs import LanguageChoice, Lists
from keras_transformers.tasks.translation_predictor import (
    AnyGlossary,
    Demanded,
    TranslatorPredictor,
    answer_with,
)
from keras_transformers.tasks.translation_quality import ConfidenceCurve, mean_log_probability
from keras_transformers.tasks.translation_signatures import (
    Alternatives,
    DemandedPhrases,
    GivenTranslations,
    TokenScores,
)
from keras_transformers.text import PairCorpus, bucketed, read_pairs
from keras_transformers.text.batching import boundaries_for, within
from keras_transformers.text.tokenizers import Context, cutter_of_targets, in_marks
from keras_transformers.training import score_translations, sentence_chrf, token_learning

REQUEST = (tf.TensorSpec([None], tf.string, name="text"),)
LENGTHS = (16, 32, 64, 128, 256, 512)  # of sources, where nothing else is said
RESULTS = {
    "translation": tf.TensorSpec([None], tf.string),
    "score": tf.TensorSpec([None], tf.float32),
    "finished": tf.TensorSpec([None], tf.bool),
}


class FurtherFunctions(Served):
    """Base of `Translator`: scores of pieces and of given translations, alternatives, phrases.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.tasks.translation import FurtherFunctions
    >>> issubclass(Translator, FurtherFunctions)
    True
    """

    def _make_further(self) -> None:
        """Called when all is there that they use."""
        self._scoring = GivenTranslations(self)
        self._phrases = DemandedPhrases(self)
        self._alternatives = Alternatives(self)
        self.confidence = None

    @property
    def confidence(self) -> ConfidenceCurve | None:
        """How good a translation is that it is so sure of, or None: `calibrate_confidence`."""
        curve: ConfidenceCurve | None = self._curve_of()
        return curve

    @confidence.setter
    def confidence(self, curve: ConfidenceCurve | None) -> None:
        self._curve_of = lambda: curve
        self._tokens = TokenScores(self)  # whose outputs it decides

    @property
    def languages_asked(self) -> tuple[tf.TensorSpec, ...]:
        """The input `target_language`, or none."""
        return self._languages.requests

    def log_probabilities(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """The model's: see `models.Transformer.log_probabilities`."""
        return self._model.log_probabilities(source, target)

    def given(
        self, text: tf.Tensor, translation: tf.Tensor, *language: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """What the model thinks of given translations, compiled by XLA: see `GivenTranslations`."""
        return self._scoring.compiled(text, translation, *language)

    def with_phrases(self, *given: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translations that hold phrases, compiled by XLA: see `DemandedPhrases`."""
        return self._phrases.compiled(*given)

    def with_tokens(self, text: tf.Tensor, *language: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translations and what the model thinks of each piece, compiled: see `TokenScores`."""
        return self._tokens.compiled(text, *language)

    def following(
        self, text: tf.Tensor, prefix: tf.Tensor, *language: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The pieces likeliest to follow beginnings of translations, compiled: `Alternatives`."""
        return self._alternatives.compiled(text, prefix, *language)

    def score(
        self,
        sentences: Sequence[str],
        translations: Sequence[str],
        target_language: str | None = None,
    ) -> list[dict[str, Any]]:
        """How probable translations are, token by token: see `TranslatorPredictor.score`."""
        return TranslatorPredictor(self).towards(target_language).score(sentences, translations)

    def _more_signatures(self) -> dict[str, Any]:
        more = {
            "tokens": self._tokens,
            "alternatives": self._alternatives,
            "phrases": self._phrases,
        }
        found = {name: each.portable for name, each in more.items()}
        return {"score": self._scoring.portable, **found}

    def _more_about(self) -> dict[str, Any]:
        about: dict[str, Any] = {}
        if self.target_languages:
            about["target_languages"] = list(self.target_languages)
        if self.confidence is not None:
            about["confidence"] = dataclasses.asdict(self.confidence)
        if self.context:
            about["context"] = self.context
        return about


class Translator(FurtherFunctions):
    """A trained model, its tokenizer and a search as one function from text to text.

    It takes UTF-8 strings `(batch,)` and gives a dict of `translation` string, `score` float32, the
    search's, `finished` bool, whether the model ended the translation itself, and `truncated` bool,
    whether the end of the sentence was cut off, each `(batch,)`. An empty sentence gets an empty
    translation. Where the search finds n sequences (`n_best`, `num_samples`), these are of the
    best, or the first, and there are `translations` string and `scores` float32 of all besides,
    `(batch, n)`. The translation of one of n ids, marks included, is cut after `min(2 n + 10, n +
    50)` tokens (n + 50: Vaswani et al. 2017, section 6.1), or after as many as `new_tokens` and the
    search's `min_length` say; `finished` is False then. For XLA sentences are sorted by length and
    padded to a few lengths and batch sizes, each compiled when it is first met; what `save` writes
    can be called without XLA, see `Served`. The model's weights are shared, not copied: used during
    training it translates with the weights of the moment.

    Where the tokenizer has marks of languages and no `target`, it takes `target_language` besides,
    strings `(batch,)`, the code of a language for each sentence. With a target, as of
    `tokenizer.towards("de")`, it takes texts alone. No mark stands in a translation.

    Where the vocabulary has a mark of previous sentences (`<context2>`), a text can have so many in
    front, the nearest last and U+001E behind each, as `contexts.in_context` writes it. The last
    sentence is translated; of the others the oldest go where there is no room.

    Args:
        model: A `models.Transformer`, or any model with its `start_decoding` and `decode_step`.
        tokenizer: A `text.SentencePieceTokenizer`, `text.PieceTokenizer`, `text.MarianTokenizer` or
            `text.BytePairTokenizer`, whose padding is the model's.
        search: `BeamSearch(...)` (default: 4 beams), `Greedy()` or `Sampling(...)`.
        source_lengths: Lengths in ids, marks included, to which sources are padded; what exceeds
            the last is cut off, and said so in `truncated`. By default 16, 32, 64 and so on, as
            far as the model has positions; up to 512 where it has no limit.
        shortlist: A `generation.Shortlist`: each sentence is translated within the lists of its
            pieces, see `generation.Shortlisted`; the SavedModel holds it. `score` is by the whole
            vocabulary.
        new_tokens: Most tokens of a translation, END included, however long its source is; None for
            the limit above. Memory and, compiled by XLA, time grow with it.

    Raises:
        ValueError: If `source_lengths` do not increase, `new_tokens` is not positive, the tokenizer
            has ids that are none of the model's, or the list is of other vocabularies.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> translator = Translator(model, tokenizer, source_lengths=(8,))
    >>> len(translator.translate(["a cat", "", "a cat sat on a mat"]))
    3
    """

    kind = "translator"

    def __init__(
        self,
        model: Decodable,
        tokenizer: Tokenizer,
        search: Search | None = None,
        source_lengths: Sequence[int] | None = None,
        shortlist: Shortlist | None = None,
        new_tokens: int | None = None,
    ) -> None:
        positions = getattr(model, "most_positions", None)
        if new_tokens is not None and not 1 <= new_tokens <= (positions or new_tokens):
            limit = "" if positions is None else f" and at most {positions}, the model's positions"
            raise ValueError(
                f"Translator: `new_tokens` must be positive{limit}. Received: {new_tokens}"
            )
        self._new_tokens = new_tokens
        languages = LanguageChoice("Translator", tokenizer)
        super().__init__("translator", *REQUEST, *languages.requests)
        self._languages = languages
        self._context: Context | None = getattr(tokenizer, "context", None)
        self._lengths = lengths_for(
            "Translator", model, tokenizer, source_lengths, LENGTHS, "source_lengths"
        )
        if not model.built:
            model({name: np.ones((1, 1), "int32") for name in ("source", "target")})
        self._hold(model)
        self._tokenizer = tokenizer
        # Of tokenizers that do not say it, END stands behind a source, and nothing before it.
        self._marks = getattr(tokenizer, "source_marks", ((), (tokenizer.end_id,)))
        if self._marked() > self._lengths[-1]:
            raise ValueError(
                "Translator: `source_lengths` must have room for what stands before and behind a "
                f"source, {self._marks}. Received: {self._lengths}"
            )
        search = BeamSearch() if search is None else without_draft("Translator", search)
        settings = search, shortlist
        self._given_of = lambda: settings  # out of TensorFlow's sight
        start = search.constraints.boundaries.start
        self._start_id: Any = tokenizer.start_id if start is None else start
        if self._start_id is None:
            raise ValueError(
                "Translator: the tokenizer must have a `start_id`, or the search `boundaries` with "
                "a `start`, the token that decoding begins with (`decoder_start_token_id` of a "
                f"published folder). Received: {type(tokenizer).__name__} without one"
            )
        self._search = languages.without_marks(search)
        self._hold_seed(search)
        self._lists: Lists | None = None
        if shortlist is not None:
            self._search = Shortlisted(shortlist, self._search)
            self._search.check(model)
            marks = (padding_of(model), self._start_id, tokenizer.end_id)
            self._lists = Lists(self._search, *marks)
        self._make_further()

    @property
    def search(self) -> Search:
        """What chooses tokens; marks are banned."""
        return self._search

    @property
    def target_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and behind a target: START, and the token of a language behind it; END."""
        boundaries = self._search.constraints.boundaries
        marks = (self._start_id, boundaries.first)
        return tuple(each for each in marks if each is not None), (self._tokenizer.end_id,)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes of the languages of which each sentence must be asked for in one; often none."""
        return self._languages.codes

    @property
    def context(self) -> int:
        """How many previous sentences it reads before the one that it translates; often 0."""
        return self._context.sentences if self._context else 0

    def most_tokens(self, source_length: Any) -> Any:
        """Most tokens of a translation, END included, of a source of so many ids.

        Args:
            source_length: An integer, or an int32 tensor.

        Returns:
            The same kind and shape.
        """
        if self._new_tokens is not None:
            return 0 * source_length + self._new_tokens  # of the shape of `source_length`
        is_number = isinstance(source_length, int)
        minimum, maximum = (min, max) if is_number else (tf.minimum, tf.maximum)
        most = maximum(most_tokens(source_length, minimum), self._search.constraints.min_length)
        positions = getattr(self._model, "most_positions", None)
        return most if positions is None else minimum(most, positions)

    def _marked(self) -> int:
        """Number of marks beside a source."""
        return sum(map(len, self._marks)) + len(self._languages.requests)

    def _sources(
        self, text: tf.Tensor, *language: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Ids with marks, which texts are empty, and which are cut."""
        longest = self._lengths[-1]
        text, cut = bounded(text, longest, end=self._context is not None)
        ids = self._tokenizer.tokenize(text)
        lengths, room = ids.row_lengths(), longest - self._marked()
        if self._context is not None:
            ids, lengths = self._context.within(ids, room)
        marked = in_marks(ids[:, :room], self._marks)
        marked = tf.concat([*self._languages.marks(text, *language), marked], axis=1)
        return marked, lengths == 0, (lengths > room) | cut

    def _answer(self, *given: Any) -> dict[str, tf.Tensor]:
        *request, rounds = given
        return self.answer(request, rounds)

    def answer(
        self, request: Sequence[tf.Tensor], rounds: Rounds, *phrases: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Answers texts (and languages), with ids of phrases if such are demanded."""
        sources, empty, cut = self._sources(*request)

        def compute(
            ids: tf.RaggedTensor, rows: tf.Tensor, *phrases: tf.Tensor
        ) -> dict[str, tf.Tensor]:
            return self._translate(ids, rows, rounds, *phrases)

        numbers = self._row_numbers(sources)
        found = rounds.run_by_length(compute, sources, self._results(), numbers, *phrases)
        answer = {
            "translation": tf.where(empty, "", found["translation"]),
            "score": tf.where(empty, 0.0, found["score"]),
            "finished": found["finished"] | empty,
            "truncated": cut,
        }
        if "translations" in found:
            answer["translations"] = tf.where(empty[:, None], "", found["translations"])
            answer["scores"] = tf.where(empty[:, None], 0.0, found["scores"])
        return answer

    def _results(self) -> dict[str, tf.TensorSpec]:
        """Names and shapes of what `_translate` gives."""
        number = sequences_of(self._search)
        if number == 1:
            return RESULTS
        every = {"translations": tf.string, "scores": tf.float32}
        return RESULTS | {name: tf.TensorSpec([None, number], of) for name, of in every.items()}

    def _translate(
        self, ids: tf.RaggedTensor, rows: tf.Tensor, rounds: Rounds, *phrases: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        tokens, scores, finished = self._every(ids, rows, rounds, *phrases)
        texts = self._tokenizer.detokenize(tokens)
        if tokens.shape.rank == 2:
            return {"translation": texts, "score": scores, "finished": finished}
        best = {"translation": texts[:, 0], "score": scores[:, 0], "finished": finished[:, 0]}
        return best | {"translations": texts, "scores": scores}

    def _found(
        self, ids: tf.RaggedTensor, numbers: tf.Tensor, rounds: Rounds, *phrases: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Tokens `(batch, length)`, scores and `finished` `(batch,)`: the best, or the first."""
        tokens, scores, finished = self._every(ids, numbers, rounds, *phrases)
        if tokens.shape.rank == 3:
            return tokens[:, 0], scores[:, 0], finished[:, 0]
        return tokens, scores, finished

    def _every(
        self, ids: tf.RaggedTensor, numbers: tf.Tensor, rounds: Rounds, *phrases: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Tokens `(batch, [n,] length)`, scores and `finished` `(batch, [n])` of a round.

        `numbers` are those of its rows in their request.
        """
        search, padding = rounds.program(self._decode), padding_of(self._model)

        def decode_rows(rows: int | None) -> Any:
            # Made here: of a tensor that both branches share TensorFlow folds the number of rows
            # into a wrong constant.
            source = rounds.padded(ids, self._lengths, padding)
            source = tf.ensure_shape(source, [rows, None])
            drawn = self.drawn(ids, self.most_tokens(tf.shape(source)[1]), numbers)
            if phrases:  # of any tokens, so lists do not count
                asked = [tf.ensure_shape(each, [rows, *each.shape[1:]]) for each in phrases]
                return search(source, drawn, rounds.stages, None, *asked)
            lists = None if self._lists is None else self._lists.within(source, rounds.compiled)
            return search(source, drawn, rounds.stages, lists)

        result: tuple[tf.Tensor, tf.Tensor, tf.Tensor] = alone_or_not(ids, decode_rows)
        return result

    def drawn(self, ids: tf.RaggedTensor, most: tf.Tensor, rows: tf.Tensor) -> tf.Tensor | None:
        """Hook: the random numbers in [0, 1) of `Sampling` for a round, None for other searches.

        Args:
            ids: Of its sources, int32 `(batch, None)`.
            most: Tokens of each translation, at most.
            rows: Numbers of the sources in their request, int32 `(batch,)`.

        Returns:
            float32 `(batch, most, samples)`.
        """
        return uniform(self._search, most, rows, self.seed)

    def _decode(
        self,
        source: tf.Tensor,
        drawn: Any,
        stages: int | None,
        lists: Sequence[tf.Tensor] | None = None,
        *phrases: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Tokens, scores and `finished` of dense ids: within lists, or with phrases, if given."""
        padding = padding_of(self._model)
        # Each sentence's limit follows from its own length, whatever it is padded to: what it
        # becomes must not depend on its neighbours in the batch.
        pieces = tf.reduce_sum(tf.cast(source != padding, tf.int32), axis=1)
        cut = self.most_tokens(pieces)
        fewest, most = self._search.constraints.limits(pieces)
        length = self.most_tokens(tf.shape(source)[1])
        forced = tf.fill([source.shape[0] or tf.shape(source)[0], length], padding)
        start, end = self._start_id, self._tokenizer.end_id
        request = Request(
            forced, start, end, fewest, most, drawn, padding_id=padding, cut_lengths=cut
        )
        search, within = self._search, None if lists is None else Within(*lists)
        if phrases:
            request = request._replace(phrases=phrases[0], joints=self._phrases.joints)
            search = self._phrases.search_of(search)
        found = decode(self._model, source, search, request, stages, within=within)
        return found["tokens"], found["scores"], found["finished"]

    def changed(
        self,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
    ) -> "Translator":
        """Returns one with the same model and tokenizer that translates by other settings.

        Args:
            new_tokens, search, seed, n_best: As `TranslatorPredictor.predict` takes them.
        """
        own, shortlist = self._given_of()
        search = changed_search("Translator", own, search, seed, n_best)
        number = self._new_tokens if new_tokens is None else new_tokens
        named = (self._model, self._tokenizer, search, self._lengths, shortlist, number)
        return Translator(*named)

    def stream(
        self,
        sentence: str | bytes,
        target_language: str | None = None,
        tokens_at_a_time: int | None = None,
    ) -> TextStream:
        """Translates one text, and hands over the translation while it is written.

        The pieces are the translation that a call gives for the text alone.

        Args:
            sentence, target_language: One of each, as `translate` takes them.
            tokens_at_a_time: See `generation.stream`.

        Returns:
            An iterator of str, with the attributes `truncated`, and `finished`, whether the model
            ended the translation.

        Raises:
            ValueError: If the search is neither `Greedy()` nor `Sampling(...)` of one sample, or
                as `translate`.
        """
        search, padding = self._search, padding_of(self._model)
        check_streamable("Translator", search)
        if wrong := refused_context(sentence, self.context):
            raise ValueError(f"Translator: a sentence {wrong}")
        languages = self._languages.given(target_language, 1)
        ids, empty, cut = self._sources(strings([sentence]), *languages)
        source = self._rounds.padded(ids, self._lengths, padding)
        most = self.most_tokens(source.shape[1])
        drawn = self.drawn(ids, tf.constant(most), self._row_numbers(ids))
        pieces = tf.reduce_sum(tf.cast(source != padding, tf.int32), axis=1)
        forced, limits = np.full((1, most), padding, "int32"), self.most_tokens(pieces).numpy()
        named = (self._model, source.numpy(), forced, limits, search, self._start_id)
        parts = run_in_parts(
            "Translator",
            *named,
            self._tokenizer.end_id,
            None if drawn is None else drawn.numpy(),
            tokens_at_a_time=tokens_at_a_time,
        )

        def texts_of(rows: list[list[int]]) -> list[str]:
            texts = self._tokenizer.detokenize(tf.ragged.constant(rows, tf.int32)).numpy()
            return [text.decode("utf-8", "replace") for text in texts]

        if empty[0]:  # an empty text has an empty translation
            parts = iter((Part([], True),))
        return TextStream(parts, texts_of, byte_id(self._tokenizer), truncated=bool(cut[0]))

    def translate(
        self,
        sentences: Sequence[str],
        target_language: str | Sequence[str] | None = None,
        glossary: AnyGlossary | None = None,
        keep_placeables: bool = False,
        phrases: Sequence[Sequence[str]] | None = None,
    ) -> list[str]:
        """Translates a list of str to a list of str.

        Args:
            sentences: The list; each can have previous ones in front, see `context`.
            target_language: Where there are `target_languages`: the code of one of them, or a list
                of one for each sentence.
            glossary, keep_placeables: As `TranslatorPredictor.predict` takes them.
            phrases: Of each sentence a list of what must be in its translation besides.

        Raises:
            ValueError: If it is missing, or there is nothing to choose from, or no such language;
                or if `phrases` are not one list for each sentence, or a sentence has more previous
                ones than `context`.
        """
        given = strings(sentences), *self._languages.given(target_language, len(sentences))
        for wrong in filter(None, (refused_context(each, self.context) for each in sentences)):
            raise ValueError(f"Translator: a sentence {wrong}")
        language = target_language if isinstance(target_language, str) else None
        demanded = Demanded(glossary, keep_placeables, language)
        rows = demanded.rows("Translator", sentences, phrases)
        found = answer_with(rows, self, self.with_phrases, *given)
        return [text.decode() for text in np.asarray(found["translation"])]


def translator(
    model: Decodable,
    tokenizer: Tokenizer,
    path: StrPath,
    search: Search | None = None,
    source_lengths: Sequence[int] | None = None,
    shortlist: Shortlist | None = None,
    new_tokens: int | None = None,
    **saving: Unpack[Saving],
) -> pathlib.Path:
    """Exports a translator of raw text. See `Translator` and its `save`.

    Example:
    >>> import tempfile, tensorflow as tf
    >>> from keras_transformers import export, models, text
    >>> tokenizer = text.SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = models.Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> path = export.translator(model, tokenizer, tempfile.mkdtemp(), source_lengths=(8,))
    >>> served = tf.saved_model.load(str(path)).signatures["serving_default"]
    >>> sorted(served(text=tf.constant(["a cat"])))
    ['finished', 'score', 'translation', 'truncated']
    """
    made = Translator(model, tokenizer, search, source_lengths, shortlist, new_tokens)
    return made.save(path, **saving)


LONGEST = 4096  # ids on a side, where the model has no last position
CHUNK = 8192  # pairs that are gathered at a time


class TranslatorFitting(Fitted):
    """A translator, or another model that writes one text for another.

    Example:
    >>> from keras_transformers.fitting import TranslatorFitting
    >>> TranslatorFitting.kind
    'translator'
    """

    kind = "translator"
    choices = ("label_smoothing",)

    def served(self) -> Any:
        return Translator(self.held.model, self.held.tokenizer, **self.held.options)

    def fit(
        self, data: Any, valid: Any, asked: Asked, label_smoothing: float = 0.1
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on pairs of source and target.

        Args:
            data, valid: What `text.read_pairs` reads; `valid` None holds some out.
            asked: See there.
            label_smoothing: Share of each token that is moved to the others.

        Returns:
            Itself, and the history.
        """
        data, valid = split_parts(data, valid, asked.verbose)
        train = read_pairs(data, columns=asked.columns)
        watched = None if valid is None else read_pairs(valid, columns=asked.columns)
        train, watched = in_two(asked, train, watched, PairCorpus.split)
        numbers = asked.numbers(len(train), "text")
        ids = [self._ids(corpus, asked) for corpus in (train, watched)]
        counts = [len(_lengths(each)) for each in ids]  # in the graph they would be tensors
        lengths = _lengths(ids[0])
        boundaries, tokens = boundaries_for(lengths, numbers.batch_size)
        most = self._longest()
        boundaries = within(
            (*boundaries, max(int(lengths.max()), int(_lengths(ids[1]).max()))), most
        )
        tokens, padding = max(tokens, boundaries[-1]), self.held.model.padding_id

        def batches(part: int, seed: int | None = None, epoch: Any = None) -> tf.data.Dataset:
            of = ids[part]
            chunks = orders(counts[part], CHUNK, seed, epoch)
            pairs = chunks.map(lambda rows: {side: tf.gather(of[side], rows) for side in of})
            return bucketed(pairs.unbatch(), boundaries, tokens, padding)

        held = with_adapter(self.held, False)
        history = learned(
            held.model,
            lambda epoch: batches(0, asked.seed, epoch),
            batches(1),
            numbers,
            asked,
            **token_learning(padding, label_smoothing, held.model),
        )
        return TranslatorFitting(held), history

    def _longest(self) -> int:
        """Most ids on a side of a pair; longer pairs are left out, and counted."""
        return int(getattr(self.held.model, "most_positions", None) or LONGEST)

    def _ids(self, corpus: PairCorpus, asked: Asked) -> dict[str, tf.RaggedTensor]:
        """Ids with the marks that the model knows; pairs that are too long are left out."""
        tokenizer = self.held.tokenizer
        targets = cutter_of_targets(tokenizer)
        marks = {"source": self._source_marks(), "target": self.served().target_marks}
        texts = {"source": (tokenizer, corpus.sources), "target": (targets, corpus.targets)}
        found = {}
        for side, (of, lines) in texts.items():
            ids = of.tokenize(tf.constant(lines, tf.string))
            found[side] = in_marks(ids, marks[side])
        kept = _lengths(found) <= self._longest()
        if not kept.all():
            warnings.warn(
                f"{corpus.name}: {(~kept).sum():,} pairs of over {self._longest()} tokens on a "
                "side are left out",
                stacklevel=2,
            )
            found = {side: tf.ragged.boolean_mask(ids, kept) for side, ids in found.items()}
        if not kept.any():
            raise ValueError(f"{corpus.name}: no pair has at most {self._longest()} tokens a side.")
        return found

    def _source_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokenizer = self.held.tokenizer
        found: tuple[tuple[int, ...], tuple[int, ...]] = getattr(
            tokenizer, "source_marks", ((), (tokenizer.end_id,))
        )
        return found

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """BLEU and chrF of translations by the search that answers."""
        corpus = read_pairs(data, columns=columns)
        translations = self.served().translate(corpus.sources)
        bleu, chrf, _ = score_translations(translations, corpus.targets)
        return {"bleu": bleu, "chrf": chrf, "rows": len(corpus)}


def _lengths(ids: dict[str, tf.RaggedTensor]) -> Any:
    """Places that each pair takes in a row: those of its longer side, START not counted."""
    return np.maximum(ids["source"].row_lengths(), ids["target"].row_lengths() - 1)


def calibrate_confidence(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    target_language: str | None = None,
) -> ConfidenceCurve:
    """Makes a translator say how good its translations may be expected to be.

    Translates validation sentences that the model has not learned from, and sets
    `translator.confidence`: the sentence chrF that translations have on average whose tokens have
    the same mean log-probability. It holds for texts like those, and search and weights as they
    are. What `save` writes has it, too.

    Args:
        translator: An `export.Translator`.
        sources, references: Lists of str of one length; some hundreds or more.
        target_language: The code of the references' language, where there are several.

    Returns:
        The `ConfidenceCurve`.

    Raises:
        ValueError: If the lists differ in length or hold nothing.
        ImportError: If sacreBLEU is not installed.

    Example:
    >>> from keras_transformers.export import Translator
    >>> from keras_transformers.fitting import calibrate_confidence
    >>> from keras_transformers.models import Transformer
    >>> from keras_transformers.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["a cat sat on a mat"] * 9, vocab_size=14)
    >>> model = Transformer(14, hidden_dim=8, num_heads=2, mlp_dim=16, num_layers=1)
    >>> translator = Translator(model, tokenizer, source_lengths=(8,))
    >>> curve = calibrate_confidence(translator, ["a cat", "a mat"], ["a cat", "a mat"])
    >>> 0 <= translator.predict("a cat", confidence=True)["confidence"] <= 100
    True
    """
    if len(sources) != len(references) or not sources:
        raise ValueError(
            "calibrate_confidence: `sources` and `references` must be lists as long as each other "
            f"and not empty. Received: {len(sources)} and {len(references)}"
        )
    predictor = TranslatorPredictor(translator)
    rows = predictor.predict(list(sources), scores=True, target_language=target_language)
    kept = [i for i, row in enumerate(rows) if row["tokens"]]  # an empty text has none
    scores = [mean_log_probability(rows[i]) for i in kept]
    translations = [rows[i]["translation"] for i in kept]
    qualities = sentence_chrf(translations, [references[i] for i in kept])
    curve = ConfidenceCurve.fit(scores, qualities)
    translator.confidence = curve
    return curve


TASKS = (Task(Translator, TranslatorPredictor, TranslatorFitting, output="translation"),)
