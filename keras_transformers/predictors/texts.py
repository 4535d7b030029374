"""Predictors that take text."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import tensorflow as tf

from keras_transformers.data.labels import Entity, entities_of, mark_entities
from keras_transformers.predictors.base import (
    Predictor,
    Refused,
    check_process,
    named_probabilities,
    received,
)

if TYPE_CHECKING:
    from keras_transformers.generation.search import Search
    from keras_transformers.predictors.text_streams import TextStream


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

    def _function(self, signature: str, method: str, names: Sequence[str]) -> Callable[..., Any]:
        """Returns a function besides `predict`'s: of an exporter, or of a SavedModel.

        Args:
            signature, method: Its name in a SavedModel, and in an exporter.
            names: Names of its inputs, before those of `may_take`.

        Raises:
            AttributeError: If there is no such function.
        """
        check_process(signature)
        # An exporter first: one with other settings may stand beside a SavedModel.
        function: Callable[..., Any] | None = getattr(self._run, method, None)
        if function is not None:
            return function
        signatures = vars(self).get("loaded", {})
        if signature not in signatures:
            raise AttributeError(
                f"{signature}: {self._source} has no signature {signature!r}; export it by this "
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
            self._made["served"] = self._fitting(asked).served()
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


class TextGeneratorPredictor(TextPredictor):
    """Goes on with a text: a str, prompt and continuation; with `details` a dict.

    That has `text`, `continuation`, `finished`, whether the model ended the text, and `truncated`,
    whether the beginning of the prompt was cut off. `predict(texts, scores=True)` adds how probable
    the model finds what it writes, and `score` says it of other texts.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextGeneratorPredictor
    >>> TextGeneratorPredictor(lambda text: {"text": text + " ..."}).predict("Once")
    'Once ...'
    """

    kind = "text_generator"
    _tells = False  # of tokens

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
        """Goes on with one text, or many.

        Args:
            raw, batch_size, verbose, details: As `Predictor.predict` takes them.
            new_tokens: Most tokens of a continuation; by default as it was loaded.
            search: `Greedy()`, `BeamSearch(...)` or `Sampling(...)` in place of the one that it was
                loaded with, whose boundaries it takes (END, tokens that come first), and whose
                constraints if it has none of its own. Each new search compiles anew.
            seed: Seed of what is drawn, for the same texts every time. The random numbers of a text
                follow from the seed and its place among all, whatever `batch_size` is.
            n_best: Number of texts for each; a list of them is then the answer, best first, or in
                the order in which they were drawn.
            stop_strings: Strings, or one, at which a text ends besides END; they are cut off. By
                default those that it was loaded with; () for none. New ones compile anew.
            scores: Whether to say how probable the model finds what it writes. Adds to what
                `details` gives `tokens`, a list of `(piece, log-probability)` of the continuation,
                END the last where the model chose it, and `log_probability`, their sum. The
                probabilities are the model's own, whatever `search` makes of them.

        Returns:
            A str, or with `n_best` a list of str; for many texts a list of those. With `details` or
            `scores` a dict in place of a str or a list; where there are several texts for each, it
            has also `texts` and `continuations`, lists, and with `scores` `log_probabilities` and
            `all_tokens`, lists, of all these texts; the others are of the first.

        Raises:
            ValueError: If an item is no text, a setting is impossible, or one is given and there is
                only a SavedModel, whose settings are fixed.
            AttributeError: If what was exported cannot give `scores`.
        """
        writing = self._writing(new_tokens, search, seed, n_best, stop_strings)
        chosen = writing.telling(scores)
        return super(TextGeneratorPredictor, chosen).predict(raw, batch_size, verbose, details)

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
        """As `Predictor.each`, with what `predict` takes besides."""
        writing = self._writing(new_tokens, search, seed, n_best, stop_strings)
        chosen = writing.telling(scores)
        return super(TextGeneratorPredictor, chosen).each(items, batch_size, verbose, details)

    def telling(self, scores: bool = True) -> Self:
        """Returns the predictor whose answers have `scores`, see `predict`; itself if False."""
        if not scores or self._tells:
            return self
        made = copy.copy(self)
        made._drawing = self._drawing or self._run
        made._run = self._function("tokens", "with_tokens", ("text",))
        made._tells = True
        return made

    def score(
        self,
        texts: Sequence[str | bytes],
        prompts: Sequence[str | bytes] | None = None,
        batch_size: int | None = None,
    ) -> list[dict[str, Any]]:
        """Computes how probable texts are, by the model.

        Prompt and text become tokens together. Those of the prompt are the ones that it would have
        alone, up to the first that differs; a token in which the prompt ends belongs to the text.
        START stands before the first token, as when the model writes. A tokenizer without START, as
        GPT-2's, has END there if there is no prompt: the text follows on the end of another. END
        behind a text does not count, unless the text contains it (`"... <|endoftext|>"`).

        Args:
            texts: Texts, a list.
            prompts: What stands before each, a list as long, in which "" is nothing; None for
                nothing before any.
            batch_size: Texts of a request; by default 1,024.

        Returns:
            A dict for each text: `score`, the logarithm of its probability after its prompt;
            `tokens`, a list of `(piece, log-probability)`, whose sum is the score; and `truncated`,
            whether the beginning of the prompt or the end of the text was cut off. Together both
            may have as many tokens as the longest prompt and `new_tokens`. The perplexity of a text
            is `exp(-score / len(tokens))`.

        Raises:
            ValueError: If the lists differ in length, or an item is no text.
            AttributeError: If what was exported cannot score.
        """
        sides = [texts] if prompts is None else [texts, prompts]
        if any(isinstance(side, str | bytes) or len(side) != len(texts) for side in sides):
            shown = [side if isinstance(side, str | bytes) else len(side) for side in sides]
            raise ValueError(
                "score: `texts` must be a list, and `prompts` None or a list as long. "
                f"{received(shown)}"
            )
        score = self._function("score", "with_prompts", ("text", "prompt"))
        return self._scores(score, [texts, prompts or [""] * len(texts)], batch_size)

    def stream(
        self,
        prompt: str | bytes,
        new_tokens: int | None = None,
        search: Search | None = None,
        seed: int | None = None,
        tokens_at_a_time: int | None = None,
        stop_strings: str | Sequence[str] | None = None,
    ) -> TextStream:
        """Goes on with one text, and hands over what follows it while it is written.

        Args:
            prompt: The text.
            new_tokens, search, seed, stop_strings: As `predict` takes them; `Greedy()` or
                `Sampling(...)` of one sample.
            tokens_at_a_time: Most tokens that are chosen between two looks at them. By default the
                first comes alone, and then as many as take about a tenth of a second.

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
        writing = self._writing(new_tokens, search, seed, None, stop_strings)
        return writing._streamed(prompt, tokens_at_a_time)

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        every = [text_of(text) for text in row["texts"]] if "texts" in row else []
        if not details and not self._tells:
            best = text_of(row["text"])
            return (every or [best]) if self._lists else best
        texts: dict[str, Any] = {name: text_of(row[name]) for name in ("text", "continuation")}
        texts |= {name: bool(row[name]) for name in ("finished", "truncated")}
        if every:
            texts["texts"] = every
            texts["continuations"] = [text_of(text) for text in row["continuations"]]
        if self._tells:
            texts |= scores_of(row)
            if every:
                texts |= _scores_of_all(row)
        return texts


class MaskFillerPredictor(TextPredictor):
    """Fills in `[MASK]`: a dict of `text`, `candidates` and `truncated` for each text.

    `candidates` are dicts of `token` and `probability` for the first `[MASK]`, best first.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import MaskFillerPredictor
    >>> def fill(text):
    ...     return {"text": tf.constant(["to be"]), "candidates": tf.constant([["be", "do"]]),
    ...             "probabilities": tf.constant([[0.75, 0.25]]), "truncated": tf.constant([False])}
    >>> MaskFillerPredictor(fill).predict("to [MASK]")["candidates"][0]
    {'token': 'be', 'probability': 0.75}
    """

    kind = "mask_filler"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        pairs = zip(row["candidates"], row["probabilities"], strict=True)
        return {
            "text": text_of(row["text"]),
            # Without a mask they are empty and of probability 0.
            "candidates": [
                {"token": text_of(token), "probability": float(p)} for token, p in pairs if p > 0
            ],
            "truncated": bool(row["truncated"]),
        }


class TextClassifierPredictor(TextPredictor):
    """Classifies texts: a dict of `label`, `probability`, `probabilities` and `truncated`.

    `probabilities` is a dict from the name of each class; where the names are not known, from "0",
    "1", ... Where a text can have several labels, `labels` is the list of those that it has.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextClassifierPredictor
    >>> def classify(text):
    ...     return {"label": tf.constant(["cat"]), "probability": tf.constant([0.75]),
    ...             "probabilities": tf.constant([[0.75, 0.25]]), "truncated": tf.constant([False])}
    >>> TextClassifierPredictor(classify, ["cat", "dog"]).predict("miaow")["probabilities"]
    {'cat': 0.75, 'dog': 0.25}
    """

    kind = "text_classifier"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        answer = named_probabilities(row, self.labels)
        return answer | {"truncated": bool(row["truncated"])}


class TextRegressorPredictor(TextPredictor):
    """Gives a number for a text: a float; with `details` a dict of `value` and `truncated`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextRegressorPredictor
    >>> stars = lambda text: {"value": tf.constant([4.5])}
    >>> TextRegressorPredictor(stars).predict("Well made.")
    4.5
    """

    kind = "text_regressor"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        value = float(row["value"])
        return {"value": value, "truncated": bool(row["truncated"])} if details else value


class TextTaggerPredictor(TextPredictor):
    """Tags the words of a text: a list of `[word, tag, probability]`; with `details` a dict.

    That has `words`, dicts of `word`, `tag`, `probability`, `start` and `end`, so that a word is
    `text[start:end]`; `entities`, where tags mark such: dicts of `text`, with blanks for other
    white space, `type`, `probability`, the mean of its words', `start` and `end`; and `truncated`.
    A word has the tag "" if it is behind what the model takes, or no piece of its vocabulary.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextTaggerPredictor
    >>> def tag(text):
    ...     words, tags = tf.constant([["Bo", "sat"]]), tf.constant([["B", "O"]])
    ...     probabilities, number = tf.constant([[0.75, 0.5]]), tf.constant([2])
    ...     return {"words": words, "tags": tags, "probabilities": probabilities, "number": number}
    >>> TextTaggerPredictor(tag).predict("Bo sat")
    [['Bo', 'B', 0.75], ['sat', 'O', 0.5]]
    """

    kind = "text_tagger"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        number = int(row["number"])
        words, tags = ([text_of(each) for each in row[name][:number]] for name in ("words", "tags"))
        probabilities = row["probabilities"][:number].tolist()
        if not details:
            return [list(each) for each in zip(words, tags, probabilities, strict=True)]
        starts, ends = (row[name][:number].tolist() for name in ("starts", "ends"))
        names = ("word", "tag", "probability", "start", "end")
        columns = (words, tags, probabilities, starts, ends)
        found = [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]
        answer = {"words": found, "truncated": bool(row["truncated"])}
        if mark_entities(self.labels or tags):
            answer["entities"] = [_entity(each, found) for each in entities_of(tags)]
        return answer


class SentenceEncoderPredictor(TextPredictor):
    """Gives a vector for a text: a list of floats; with `details` a dict.

    That has `embedding` and `truncated`.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import SentenceEncoderPredictor
    >>> encode = lambda text: {"embedding": tf.ones((len(text), 2))}
    >>> SentenceEncoderPredictor(encode).predict("to be")
    [1.0, 1.0]
    """

    kind = "sentence_encoder"

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        vector = row["embedding"].tolist()
        return {"embedding": vector, "truncated": bool(row["truncated"])} if details else vector


class QuestionAnswererPredictor(TextPredictor):
    """Answers a question by a piece of a text: a str; with `details` a dict.

    A thing is a pair of question and context, a tuple or a list of two texts, or a dict with both.
    The dict has `answer`, `score`, `start` and `end`, so that it is `context[start:end]`;
    `no_answer`, how probable the model finds it that there is none, if it was taught so; and
    `truncated`, whether the end of the question, or of a very long context, was cut off.

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
        """A pair, for no text alone is a thing."""
        pair = isinstance(raw, tuple | list) and len(raw) == 2
        return super()._is_one(raw) or pair and all(isinstance(each, str | bytes) for each in raw)

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
        found = {"answer": answer, "score": float(row["score"])}
        found |= {"start": int(row["start"]), "end": int(row["end"])}
        no_answer, truncated = float(row["no_answer"]), bool(row["truncated"])
        return {**found, "no_answer": no_answer, "truncated": truncated}


def _entity(entity: Entity, words: list[dict[str, Any]]) -> dict[str, Any]:
    """What is said of the words of an entity."""
    there = words[entity.start : entity.end]
    start, end = there[0]["start"], there[-1]["end"]
    text, probability = "", 0.0
    for each in there:
        text = text.ljust(each["start"] - start) + each["word"]
        probability += each["probability"] / len(there)
    about = {"text": text, "type": entity.type, "probability": probability}
    return {**about, "start": start, "end": end}


def text_of(value: bytes) -> str:
    """A str; a generator may stop inside a character."""
    return value.decode("utf-8", "replace")


def scores_of(row: dict[str, Any]) -> dict[str, Any]:
    """Returns what an answer says of its tokens, from a row of the signature "tokens"."""
    pairs = pairs_of(row["tokens"], row["log_probabilities"])
    return {"log_probability": float(row["log_probability"]), "tokens": pairs}


def _scores_of_all(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the same of all texts that were written for one prompt."""
    rows = zip(row["all_tokens"], row["all_log_probabilities"], strict=True)
    return {
        "log_probabilities": row["all_log_probability"].tolist(),
        "all_tokens": [pairs_of(*tokens) for tokens in rows],
    }


def pairs_of(tokens: Any, values: Any) -> list[tuple[str, float]]:
    """Returns pieces and numbers; there are none behind the last piece that is not empty."""
    number = max((i + 1 for i, piece in enumerate(tokens) if piece), default=0)
    pieces = [text_of(piece) for piece in tokens[:number]]
    return list(zip(pieces, map(float, values[:number]), strict=True))
