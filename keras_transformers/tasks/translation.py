"""Translation: a SavedModel that takes raw text and gives raw text, tokenizer and search inside."""

import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import tensorflow as tf

from keras_transformers import pretrained
from keras_transformers.core.types import StrPath, Tokenizer
from keras_transformers.core.words import refused_context
from keras_transformers.data.streams import orders
from keras_transformers.data.table_files import Chosen
from keras_transformers.generation import (
    BeamSearch,
    Request,
    Sampling,
    Shortlist,
    Shortlisted,
    decode,
)
from keras_transformers.generation.decode import Part, run_in_parts
from keras_transformers.generation.inputs import check_streamable
from keras_transformers.generation.request import Decodable, most_tokens, padding_of
from keras_transformers.generation.search import Search
from keras_transformers.generation.shortlists import Within
from keras_transformers.models import Transformer
from keras_transformers.pretrained.files import CONFIG, read_json
from keras_transformers.pretrained.search import load_new_tokens, load_stop_strings
from keras_transformers.tasks.fitting import (
    Asked,
    Fitted,
    attach_adapter,
    bucket_texts,
    hold_out_part,
    split_parts,
    train_model,
)
from keras_transformers.tasks.predictor_folder import SHORTLIST, Held, Published
from keras_transformers.tasks.registry import Task
from keras_transformers.tasks.rounds import (
    Rounds,
    changed_search,
    exportable_search,
    sequences_of,
    uniform,
)
from keras_transformers.tasks.served import Saving, Served, Signature, bounded, lengths_for, strings
from keras_transformers.tasks.text_predictor import TextStream, byte_id
from keras_transformers.tasks.text_signatures import PieceNames
from keras_transformers.tasks.translation_predictor import (
    AnyGlossary,
    Demanded,
    TranslatorPredictor,
    answer_with,
)
from keras_transformers.tasks.translation_quality import ConfidenceCurve
from keras_transformers.tasks.translation_signatures import (
    Alternatives,
    DemandedPhrases,
    GivenTranslations,
    LanguageChoice,
    Lists,
    TokenScores,
)
from keras_transformers.text import PairCorpus, bucketed, read_pairs
from keras_transformers.text.tokenizers import Context, cutter_of_targets, in_marks
from keras_transformers.training import score_translations, token_learning

REQUEST = tf.TensorSpec([None], tf.string, name="text")
LENGTHS = (16, 32, 64, 128, 256, 512)  # of sources, by default
RESULTS = {
    "translation": tf.TensorSpec([None], tf.string),
    "score": tf.TensorSpec([None], tf.float32),
    "finished": tf.TensorSpec([None], tf.bool),
}


class Sources(NamedTuple):
    """The texts of a request as a translator reads them.

    Attributes:
        ids: Token ids with marks, int32 `(batch, None)`.
        is_empty: Texts without a token, bool `(batch,)`.
        is_cut: Texts of which a part was cut off, bool `(batch,)`.
    """

    ids: tf.RaggedTensor
    is_empty: tf.Tensor
    is_cut: tf.Tensor


class Translator(Served):
    """A trained model, its tokenizer and a search as one function from text to text.

    It takes UTF-8 strings `(batch,)` and gives a dict of `translation` string, `score` float32, the
    search's, `finished` bool, whether the model ended the translation itself, and `truncated` bool,
    whether the end of the sentence was cut off, each `(batch,)`. An empty sentence gets an empty
    translation. Where the search finds n sequences (`n_best`, `num_samples`), these are of the
    best, or the first; `translations` string and `scores` float32, `(batch, n)`, hold all. The
    translation of n ids, marks included, is cut after `min(2 n + 10, n + 50)` tokens (n + 50:
    Vaswani et al. 2017, section 6.1), or after the number that `new_tokens` and the search's
    `min_length` set; `finished` is False then. For XLA sentences are sorted by length and padded to
    a few lengths and batch sizes, each compiled when it is first used; the SavedModel that `save`
    writes can be called without XLA, see `Served`. The model's weights are shared, not copied:
    during training it translates with the current weights.

    If the tokenizer has marks of languages and no `target`, a further input is `target_language`,
    strings `(batch,)`, the code of a language for each sentence. With a target, as of
    `tokenizer.towards("de")`, there is no such input. A translation contains no marks.

    If the vocabulary has a mark of previous sentences (`<context2>`), a text can have that number
    of sentences in front, the nearest last and U+001E behind each, as `contexts.in_context` writes
    it. The last sentence is translated; the oldest of the others are dropped if there is no room.

    Args:
        model: A `models.Transformer`, or any model with its `start_decoding` and `decode_step`.
        tokenizer: A `text.SentencePieceTokenizer`, `text.PieceTokenizer`, `text.MarianTokenizer` or
            `text.BytePairTokenizer`, whose padding is the model's.
        search: `BeamSearch(...)` (default: 4 beams), `Greedy()` or `Sampling(...)`.
        source_lengths: Lengths in ids, marks included, to which sources are padded; a longer source
            is cut, and `truncated` tells so. By default 16, 32, 64 and so on, as far as the model
            has positions; up to 512 if it has no limit.
        shortlist: A `generation.Shortlist`: each sentence is translated within the lists of its
            pieces, see `generation.Shortlisted`; the SavedModel holds it. `score` is by the whole
            vocabulary.
        new_tokens: Most tokens of a translation, END included, for sources of all lengths; None for
            the limit above. Memory, and time with XLA, grow with it.

    Raises:
        ValueError: If `source_lengths` do not increase, `new_tokens` is not positive, the tokenizer
            has ids that the model does not know, or the list is of other vocabularies.

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
        self._positions = getattr(model, "most_positions", None)
        self.new_tokens = _check_new_tokens(new_tokens, self._positions)
        languages = LanguageChoice("Translator", tokenizer)
        super().__init__("translator", model, REQUEST, *languages.requests)
        self.tokenizer = tokenizer
        self.padding = padding_of(model)
        self.lengths = lengths_for(
            "Translator", model, tokenizer, source_lengths, LENGTHS, "source_lengths"
        )
        self.languages = languages
        self._context: Context | None = getattr(tokenizer, "context", None)
        if not model.built:
            model({name: np.ones((1, 1), "int32") for name in ("source", "target")})
        # A tokenizer that does not name its marks has END behind a source, and nothing before it.
        self.source_marks = getattr(tokenizer, "source_marks", ((), (tokenizer.end_id,)))
        self._num_marks = sum(map(len, self.source_marks)) + len(languages.requests)
        if self._num_marks > self.longest:
            raise ValueError(
                "Translator: `source_lengths` must have room for what stands before and behind a "
                f"source, {self.source_marks}. Received: {self.lengths}"
            )
        self._choose_tokens_by(search or BeamSearch(), shortlist)
        # Shared by the further signatures, so that a SavedModel has one table of pieces.
        self.target_tokenizer = cutter_of_targets(tokenizer)
        self.pieces = PieceNames(self.target_tokenizer)
        self._phrases = DemandedPhrases(self)
        self._scores = GivenTranslations(self)
        self._alternatives = Alternatives(self)
        self.confidence = None

    def _choose_tokens_by(self, search: Search, shortlist: Shortlist | None) -> None:
        """Sets the search, its first token, its lists and the outputs that it gives."""
        tokenizer = self.tokenizer
        search = exportable_search("Translator", search)
        start = search.constraints.boundaries.start
        self._start_id: Any = tokenizer.start_id if start is None else start
        if self._start_id is None:
            raise ValueError(
                "Translator: the tokenizer must have a `start_id`, or the search `boundaries` with "
                "a `start`, the token that decoding begins with (`decoder_start_token_id` of a "
                f"published folder). Received: {type(tokenizer).__name__} without one"
            )
        self._given_search = search
        self._shortlist = shortlist
        self._search = self.languages.without_marks(search)
        self.make_seed(search)
        self._is_sampled = isinstance(search, Sampling)
        self._lists: Lists | None = None
        if shortlist is not None:
            self._search = Shortlisted(shortlist, self._search)
            self._search.check(self.model)
            self._lists = Lists(self._search, self.padding, self._start_id, tokenizer.end_id)
        self._results = RESULTS
        if (number := sequences_of(self._search)) > 1:
            self._results = RESULTS | {
                "translations": tf.TensorSpec([None, number], tf.string),
                "scores": tf.TensorSpec([None, number], tf.float32),
            }

    @property
    def search(self) -> Search:
        """The search that chooses tokens; marks are banned."""
        return self._search

    @property
    def target_marks(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids before and behind a target: START, and the token of a language behind it; END."""
        marks = (self._start_id, self._search.constraints.boundaries.first)
        return tuple(mark for mark in marks if mark is not None), (self.tokenizer.end_id,)

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Codes of the languages to choose from, of which a request names one for each text."""
        return self.languages.codes

    @property
    def context(self) -> int:
        """Number of previous sentences that the model reads before a sentence."""
        return self._context.sentences if self._context else 0

    @property
    def confidence(self) -> ConfidenceCurve | None:
        """The expected quality of a translation by its log-probability, or None.

        See `fitting.calibrate_confidence`.
        """
        return self._confidence

    @confidence.setter
    def confidence(self, curve: ConfidenceCurve | None) -> None:
        self._confidence = curve
        self._tokens = TokenScores(self)  # with a curve it has one output more

    def most_tokens(self, source_length: Any) -> Any:
        """Returns the most tokens of a translation, END included, for a length of its source.

        Args:
            source_length: An integer, or an int32 tensor.

        Returns:
            The same kind and shape.
        """
        if self.new_tokens is not None:
            return 0 * source_length + self.new_tokens  # of the shape of `source_length`
        is_number = isinstance(source_length, int)
        minimum, maximum = (min, max) if is_number else (tf.minimum, tf.maximum)
        limit = maximum(most_tokens(source_length, minimum), self._search.constraints.min_length)
        return limit if self._positions is None else minimum(limit, self._positions)

    def answer(self, *arguments: Any, phrases: Sequence[tf.Tensor] = ()) -> dict[str, tf.Tensor]:
        """Translates a request: encodes it, searches in rounds, and joins the pieces.

        Args:
            *arguments: Texts, strings `(batch,)`; their languages, if there is a choice; and the
                `Rounds` that compute.
            phrases: The ids of the phrases that each translation must hold, or an empty sequence.
        """
        *request, rounds = arguments
        sources = self.encode(*request)
        translate = functools.partial(self._translate, rounds)
        numbers = self.row_numbers(sources.ids)
        outputs = rounds.run_by_length(translate, sources.ids, self._results, numbers, *phrases)
        return self.finish(sources, outputs)

    def encode(self, text: tf.Tensor, *language: tf.Tensor) -> Sources:
        """Tokenizes texts, and puts their marks and languages beside them."""
        longest = self.lengths[-1]
        text, is_shortened = bounded(text, longest, end=self._context is not None)
        ids = self.tokenizer.tokenize(text)
        lengths = ids.row_lengths()
        room = longest - self._num_marks
        if self._context is not None:
            ids, lengths = self._context.within(ids, room)
        marked = in_marks(ids[:, :room], self.source_marks)
        if language:
            marked = tf.concat([*self.languages.marks(text, *language), marked], axis=1)
        return Sources(marked, lengths == 0, (lengths > room) | is_shortened)

    def _translate(
        self, rounds: Rounds, ids: tf.RaggedTensor, numbers: tf.Tensor, *phrases: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Translates the sources of a round; see `find_tokens` for the arguments."""
        tokens, scores, finished = self.find_tokens(rounds, ids, numbers, *phrases)
        texts = self.tokenizer.detokenize(tokens)
        if tokens.shape.rank == 2:
            return {"translation": texts, "score": scores, "finished": finished}
        best = {"translation": texts[:, 0], "score": scores[:, 0], "finished": finished[:, 0]}
        return best | {"translations": texts, "scores": scores}

    def find_tokens(
        self, rounds: Rounds, ids: tf.RaggedTensor, numbers: tf.Tensor, *phrases: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Searches for the translations of a round.

        Args:
            rounds: The `Rounds` that compute.
            ids: Sources with marks, int32 `(batch, None)`.
            numbers: Numbers of the sources in their request, int32 `(batch,)`.
            *phrases: Nothing, or ids of phrases `(batch, number, forms, length)`.

        Returns:
            Tokens `(batch, [n,] length)`, scores and `finished` `(batch, [n])`.
        """
        decode_program = rounds.program(self._decode)

        def decode_rows(num_rows: int | None) -> Any:
            # The source is made here. If both branches shared a tensor, TensorFlow would take a
            # wrong constant from it as the number of rows.
            source = rounds.padded(ids, self.lengths, self.padding)
            source = tf.ensure_shape(source, [num_rows, None])
            draws = None
            if self._is_sampled:
                draws = self.drawn(ids, self.most_tokens(tf.shape(source)[1]), numbers)
            if phrases:  # a phrase may hold any token, so lists do not count
                shaped = [tf.ensure_shape(x, [num_rows, *x.shape[1:]]) for x in phrases]
                return decode_program(source, draws, rounds.stages, None, *shaped)
            lists = None if self._lists is None else self._lists.within(source, rounds.compiled)
            return decode_program(source, draws, rounds.stages, lists)

        # A single row is traced apart: layers are faster if they know that there is one row.
        return tf.cond(tf.equal(ids.nrows(), 1), lambda: decode_rows(1), lambda: decode_rows(None))

    def drawn(self, ids: tf.RaggedTensor, length: tf.Tensor, rows: tf.Tensor) -> tf.Tensor | None:
        """Draws the random numbers in [0, 1) of `Sampling` for a round: a hook.

        Args:
            ids: Ids of the sources, int32 `(batch, None)`.
            length: Most tokens of each translation.
            rows: Numbers of the sources in their request, int32 `(batch,)`.

        Returns:
            float32 `(batch, length, samples)`; None for other searches.
        """
        return uniform(self._search, length, rows, self.seed)

    def _decode(
        self,
        source: tf.Tensor,
        draws: Any,
        stages: int | None,
        lists: Sequence[tf.Tensor] | None = None,
        *phrases: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Searches for the translations of padded ids: within lists, or with phrases."""
        # The limit of a sentence follows from its own length, without padding. So its translation
        # does not depend on its neighbours in the batch.
        lengths = tf.reduce_sum(tf.cast(source != self.padding, tf.int32), axis=1)
        min_lengths, max_lengths = self._search.constraints.limits(lengths)
        width = self.most_tokens(tf.shape(source)[1])
        request = Request(
            tf.fill([source.shape[0] or tf.shape(source)[0], width], self.padding),
            self._start_id,
            self.tokenizer.end_id,
            min_lengths,
            max_lengths,
            draws,
            padding_id=self.padding,
            cut_lengths=self.most_tokens(lengths),
        )
        search = self._search
        within = None if lists is None else Within(*lists)
        if phrases:
            request = request._replace(phrases=phrases[0], joints=self._phrases.joints)
            search = self._phrases.search_of(search)
        result = decode(self.model, source, search, request, stages, within=within)
        return result["tokens"], result["scores"], result["finished"]

    def finish(self, sources: Sources, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the answer for all rows; the translation of an empty text is empty."""
        is_empty = sources.is_empty
        answer = {
            "translation": tf.where(is_empty, "", outputs["translation"]),
            "score": tf.where(is_empty, 0.0, outputs["score"]),
            "finished": outputs["finished"] | is_empty,
            "truncated": sources.is_cut,
        }
        if "translations" in outputs:
            answer["translations"] = tf.where(is_empty[:, None], "", outputs["translations"])
            answer["scores"] = tf.where(is_empty[:, None], 0.0, outputs["scores"])
        return answer

    def given(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: scores translations; see the signature "score"."""
        return self.call_deprecated("given", "score", inputs)

    def with_tokens(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: translates and scores each token; see the signature "tokens"."""
        return self.call_deprecated("with_tokens", "tokens", inputs)

    def with_phrases(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: translates with phrases; see the signature "phrases"."""
        return self.call_deprecated("with_phrases", "phrases", inputs)

    def following(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Deprecated: finds the pieces that may follow; see the signature "alternatives"."""
        return self.call_deprecated("following", "alternatives", inputs)

    def log_probabilities(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Computes those of the model: see `models.Transformer.log_probabilities`."""
        return self.model.log_probabilities(source, target)

    def further_signatures(self) -> dict[str, Signature]:
        return {
            "score": self._scores.signature,
            "tokens": self._tokens.signature,
            "alternatives": self._alternatives.signature,
            "phrases": self._phrases.signature,
        }

    def resources(self) -> dict[str, Any]:
        further = {"target_tokenizer": self.target_tokenizer}
        if self._lists is not None:
            further["shortlist"] = self._lists
        return super().resources() | further

    def description(self) -> dict[str, Any]:
        description = super().description()
        if self.target_languages:
            description["target_languages"] = list(self.target_languages)
        if self.confidence is not None:
            description["confidence"] = dataclasses.asdict(self.confidence)
        if self.context:
            description["context"] = self.context
        return description

    def changed(
        self,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        n_best: int | None = None,
    ) -> "Translator":
        """Returns a translator with the same model and tokenizer, and other settings.

        Args:
            new_tokens, search, seed, n_best: As `TranslatorPredictor.predict` takes them.
        """
        search = changed_search("Translator", self._given_search, search, seed, n_best)
        number = self.new_tokens if new_tokens is None else new_tokens
        settings = (search, self.lengths, self._shortlist, number)
        return Translator(self.model, self.tokenizer, *settings)

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
        check_streamable("Translator", self._search)
        reason = refused_context(sentence, self.context)
        if reason:
            raise ValueError(f"Translator: a sentence {reason}")
        languages = self.languages.encode_choice(target_language, 1)
        sources = self.encode(strings([sentence]), *languages)
        source = self.compiled_rounds.padded(sources.ids, self.lengths, self.padding)
        width = self.most_tokens(source.shape[1])
        draws = None
        if self._is_sampled:
            draws = self.drawn(sources.ids, tf.constant(width), self.row_numbers(sources.ids))
        lengths = tf.reduce_sum(tf.cast(source != self.padding, tf.int32), axis=1)
        parts = run_in_parts(
            "Translator",
            self.model,
            source.numpy(),
            np.full((1, width), self.padding, "int32"),
            self.most_tokens(lengths).numpy(),
            self._search,
            self._start_id,
            self.tokenizer.end_id,
            None if draws is None else draws.numpy(),
            tokens_at_a_time=tokens_at_a_time,
        )

        def texts_of(rows: list[list[int]]) -> list[str]:
            texts = self.tokenizer.detokenize(tf.ragged.constant(rows, tf.int32)).numpy()
            return [text.decode("utf-8", "replace") for text in texts]

        if sources.is_empty[0]:  # an empty text has an empty translation
            parts = iter((Part([], True),))
        is_cut = bool(sources.is_cut[0])
        return TextStream(parts, texts_of, byte_id(self.tokenizer), truncated=is_cut)

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
            sentences: The list; each sentence can have previous ones in front, see `context`.
            target_language: If there are `target_languages`, the code of one of them, or a list of
                one for each sentence.
            glossary, keep_placeables: As `TranslatorPredictor.predict` takes them.
            phrases: For each sentence a list of further phrases in its translation.

        Raises:
            ValueError: If the language is missing or unknown, or there is nothing to choose from;
                `phrases` are not one list for each sentence; or a sentence has more previous ones
                than `context`.
        """
        text = strings(sentences)
        request = (text, *self.languages.encode_choice(target_language, len(sentences)))
        for sentence in sentences:
            reason = refused_context(sentence, self.context)
            if reason:
                raise ValueError(f"Translator: a sentence {reason}")
        language = target_language if isinstance(target_language, str) else None
        demanded = Demanded(glossary, keep_placeables, language)
        rows = demanded.rows("Translator", sentences, phrases)
        answer = answer_with(rows, self, self._phrases.signature.compiled, *request)
        return [text.decode() for text in np.asarray(answer["translation"])]

    def score(
        self,
        sentences: Sequence[str],
        translations: Sequence[str],
        target_language: str | None = None,
    ) -> list[dict[str, Any]]:
        """Scores translations, token by token: see `TranslatorPredictor.score`."""
        return TranslatorPredictor(self).towards(target_language).score(sentences, translations)


def _check_new_tokens(new_tokens: int | None, positions: int | None) -> int | None:
    """Returns the most tokens of a translation; ValueError if the model has too few positions."""
    if new_tokens is not None and not 1 <= new_tokens <= (positions or new_tokens):
        limit = "" if positions is None else f" and at most {positions}, the model's positions"
        raise ValueError(
            f"Translator: `new_tokens` must be positive{limit}. Received: {new_tokens}"
        )
    return new_tokens


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
    exporter = Translator(model, tokenizer, search, source_lengths, shortlist, new_tokens)
    return exporter.save(path, **saving)


LONGEST = 4096  # ids on a side, if the model has no last position
# Model types that generate other texts than translations, too. The length of their outputs does not
# follow from the length of the source, so the generation settings limit it.
OF_ANY_LENGTH = ("bart", "mt5", "pegasus", "t5")
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
    default_search = BeamSearch()

    @classmethod
    def from_published(cls, published: Published) -> Fitted | None:
        model = published.model
        folder = published.folder
        new_tokens = published.new_tokens
        if not isinstance(model, Transformer):
            return None
        tokenizer = pretrained.load_tokenizer(folder, published.languages)
        options: dict[str, Any] = {"search": _published_search(published, tokenizer)}
        if stop_strings := load_stop_strings(folder):
            raise ValueError(
                f"load: `stop_strings` in the generation settings of {folder} must be none, for it "
                f"holds a model with an encoder. Received: {stop_strings}"
            )
        if new_tokens is None:
            after_prompt = read_json(folder, CONFIG).get("model_type") not in OF_ANY_LENGTH
            new_tokens = load_new_tokens(folder, after_prompt=after_prompt)
            if new_tokens is not None:
                new_tokens = min(new_tokens, model.most_positions or new_tokens)
        if new_tokens is not None:
            options["new_tokens"] = new_tokens
        return cls(Held(model, tokenizer, options=options))

    @classmethod
    def options_of_run(
        cls, folder: pathlib.Path, predictor: Any, numbers: Mapping[str, Any]
    ) -> dict[str, Any]:
        if languages := predictor.target_languages:
            raise ValueError(
                f"{folder} translates into {', '.join(languages)}, and `fit` learns one language. "
                f'Go on from its parts, `model` and `tokenizer.towards("{languages[0]}")`, by '
                "`encode_pairs` and Keras."
            )
        names = ("beam_size", "length_penalty")
        search = BeamSearch(**{name: numbers[name] for name in names if name in numbers})
        options: dict[str, Any] = {"search": search}
        if (folder / SHORTLIST).is_file():
            options["shortlist"] = Shortlist.load(folder / SHORTLIST)
        return options

    def served(self) -> Any:
        return Translator(self.held.model, self.held.tokenizer, **self.held.options)

    def fit(
        self, data: Any, valid: Any, asked: Asked, label_smoothing: float = 0.1
    ) -> tuple[Fitted, dict[str, Any]]:
        """Trains on pairs of source and target.

        Args:
            data, valid: As `text.read_pairs` reads them; with None, a part of `data` is `valid`.
            asked: Settings of the training.
            label_smoothing: Share of the probability of a token that the other tokens get.

        Returns:
            The translator, and the history.
        """
        data, valid = split_parts(data, valid, asked.verbose)
        train = read_pairs(data, columns=asked.columns)
        watched = None if valid is None else read_pairs(valid, columns=asked.columns)
        train, watched = hold_out_part(asked, train, watched, PairCorpus.split)
        numbers = asked.numbers(len(train), "text")
        train_ids = self._encode_pairs(train)
        watched_ids = self._encode_pairs(watched)
        lengths = _lengths(train_ids)
        longest = max(int(lengths.max()), int(_lengths(watched_ids).max()))
        boundaries, tokens = bucket_texts(lengths, numbers.batch_size, longest, self._longest())
        padding = self.held.model.padding_id

        def make_batches(
            ids: dict[str, tf.RaggedTensor], seed: int | None = None, epoch: Any = None
        ) -> tf.data.Dataset:
            chunks = orders(ids["source"].shape[0], CHUNK, seed, epoch)
            pairs = chunks.map(lambda rows: {side: tf.gather(x, rows) for side, x in ids.items()})
            return bucketed(pairs.unbatch(), boundaries, tokens, padding)

        held = attach_adapter(self.held, False)
        history = train_model(
            held.model,
            lambda epoch: make_batches(train_ids, asked.seed, epoch),
            make_batches(watched_ids),
            numbers,
            asked,
            **token_learning(padding, label_smoothing, held.model),
        )
        return TranslatorFitting(held), history

    def _longest(self) -> int:
        """Returns the most ids on a side of a pair; longer pairs are left out."""
        return int(getattr(self.held.model, "most_positions", None) or LONGEST)

    def _encode_pairs(self, corpus: PairCorpus) -> dict[str, tf.RaggedTensor]:
        """Tokenizes pairs, adds their marks, and leaves out pairs that are too long."""
        exporter = self.served()
        marks = {"source": exporter.source_marks, "target": exporter.target_marks}
        texts = {
            "source": (exporter.tokenizer, corpus.sources),
            "target": (exporter.target_tokenizer, corpus.targets),
        }
        pairs = {}
        for side, (side_tokenizer, lines) in texts.items():
            ids = side_tokenizer.tokenize(tf.constant(lines, tf.string))
            pairs[side] = in_marks(ids, marks[side])
        fits = _lengths(pairs) <= self._longest()
        if not fits.all():
            warnings.warn(
                f"{corpus.name}: {(~fits).sum():,} pairs of over {self._longest()} tokens on a "
                "side are left out",
                stacklevel=2,
            )
            pairs = {side: tf.ragged.boolean_mask(ids, fits) for side, ids in pairs.items()}
        if not fits.any():
            raise ValueError(f"{corpus.name}: no pair has at most {self._longest()} tokens a side.")
        return pairs

    def evaluate(self, data: Any, columns: Chosen = None) -> dict[str, float]:
        """Returns BLEU and chrF of translations by the translator's own search."""
        corpus = read_pairs(data, columns=columns)
        translations = self.served().translate(corpus.sources)
        bleu, chrf, _ = score_translations(translations, corpus.targets)
        return {"bleu": bleu, "chrf": chrf, "rows": len(corpus)}


def _published_search(published: Published, tokenizer: Any) -> Search:
    """Returns the search of a published translator, which begins with the token of a language.

    Raises:
        ValueError: If the model translates between many languages, and no file says which.
    """
    folder = published.folder
    search = pretrained.load_search(folder)
    if getattr(tokenizer, "languages", None) is None:
        return search
    boundaries = search.constraints.boundaries
    is_open = boundaries.first is None and tokenizer.language_id is not None
    if published.languages is not None or is_open:
        return pretrained.load_search(folder, tokenizer.language_id)
    if boundaries.first is None and boundaries.start not in tokenizer.language_ids.values():
        raise ValueError(
            f"load: {folder} translates between many languages, and no file says which. Give "
            "`languages`, the codes of the source's and the target's, of "
            f"{', '.join(tokenizer.languages.tokens)}."
        )
    return search


def _lengths(ids: dict[str, tf.RaggedTensor]) -> Any:
    """Returns the positions that pairs need: those of their longer sides, without START."""
    return np.maximum(ids["source"].row_lengths(), ids["target"].row_lengths() - 1)


TASKS = (Task(Translator, TranslatorPredictor, TranslatorFitting, output="translation"),)
