"""Predictors that take text."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from keras_transformers.entities import Entity, entities_of, mark_entities
from keras_transformers.predictors.base import Predictor, named_probabilities, received

if TYPE_CHECKING:
    from keras_transformers.generation.search import Search


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
        served: Any = self._run
        if not hasattr(served, "changed"):  # a SavedModel, perhaps beside its model
            if "served" not in self._made:
                self._made["served"] = self._fitting("predict").served()
            served = self._made["served"]
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
    whether the beginning of the prompt was cut off.

    Example:
    >>> import tensorflow as tf
    >>> from keras_transformers.predictors import TextGeneratorPredictor
    >>> TextGeneratorPredictor(lambda text: {"text": text + " ..."}).predict("Once")
    'Once ...'
    """

    kind = "text_generator"

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

        Returns:
            A str, or with `n_best` a list of str; for many texts a list of those. With `details` a
            dict in place of a str or a list; where there are several texts for each, it has also
            `texts` and `continuations`, lists.

        Raises:
            ValueError: If an item is no text, a setting is impossible, or one is given and there is
                only a SavedModel, whose settings are fixed.
        """
        chosen = self._writing(new_tokens, search, seed, n_best, stop_strings)
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
    ) -> Iterator[Any]:
        """As `Predictor.each`, with what `predict` takes besides."""
        chosen = self._writing(new_tokens, search, seed, n_best, stop_strings)
        return super(TextGeneratorPredictor, chosen).each(items, batch_size, verbose, details)

    def _answer(self, row: dict[str, Any], details: bool) -> Any:
        every = [text_of(text) for text in row["texts"]] if "texts" in row else []
        if not details:
            best = text_of(row["text"])
            return (every or [best]) if self._lists else best
        texts: dict[str, Any] = {name: text_of(row[name]) for name in ("text", "continuation")}
        texts |= {name: bool(row[name]) for name in ("finished", "truncated")}
        if every:
            texts["texts"] = every
            texts["continuations"] = [text_of(text) for text in row["continuations"]]
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
