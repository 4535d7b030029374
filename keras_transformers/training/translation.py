"""BLEU and chrF of translations, during training and after it."""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_transformers.extras import needed_by
from keras_transformers.training.scripts import bleu_tokenizer

LEAST = 1.0  # BLEU; below, a handful of words decides it
LONGEST_LINE = 120  # characters of a line that shows a text, whatever the terminal
SHARE = 0.1  # of the time, at most, that scorings without a fixed number of epochs take


class TranslationScores(keras.callbacks.Callback):
    """Translates a validation set after each epoch and scores it with sacreBLEU and chrF.

    Puts `val_bleu` and `val_chrf` into the epoch's logs, so that `History`, and `ModelCheckpoint`
    or `EarlyStopping` that come later in the list of callbacks, see them (BLEU: Papineni et al.
    2002; Post 2018, https://arxiv.org/abs/1804.08771; chrF: Popović 2015). And `val_rank`, to keep
    the best by: BLEU, and by chrF among those whose BLEU is the same or below 1.

    Args:
        translate: Function from a list of source sentences to a list of translations.
        sources, references: Lists of str of one length.
        every: Epochs from one scoring to the next; or None, for as many scorings as a tenth of
            the time allows: one after the first epoch, and after each a pause of nine times the
            seconds it took. The last epoch is always scored. The others get minus infinity, which
            is never the best. (After a missing score `ModelCheckpoint` overwrites the best file,
            and nothing is ever better than a NaN that came first.) `EarlyStopping` counts them into
            its patience.
        tokenize: sacreBLEU's tokenizer, "13a", "zh", "char", "ja-mecab" ...; by default the one
            that suits what the references are written in, see `bleu_tokenizer`.
        samples: Number of translations to print after each scoring.
        prefix: What the names in the logs begin with.
        groups: Optional name of a group for each sentence, as of its direction of translation,
            "en-de". Then each group is scored by itself, as `val_bleu_en-de`, and `val_bleu` and
            `val_chrf` are the means of the groups.

    Attributes:
        tokenize: The tokenizer, of all references together.
        signature: sacreBLEU's signature of the last scoring.
        examples: The first `samples` (3 at least) of (source, translation, reference).

    Raises:
        ValueError: If the lists differ in length or are empty, `every` is not positive, or there is
            no such tokenizer.
        ImportError: If sacreBLEU, or what its tokenizer needs, is not installed.

    Example:
    >>> from keras_transformers.training import TranslationScores
    >>> callback = TranslationScores(lambda sources: ["a b c d"], ["x"], ["a b c d"])
    >>> logs = {}
    >>> callback.on_epoch_end(0, logs)
    >>> round(logs["val_bleu"], 1), round(logs["val_chrf"], 1)
    (100.0, 100.0)
    """

    def __init__(
        self,
        translate: Callable[[list[str]], Sequence[str]],
        sources: Sequence[str],
        references: Sequence[str],
        every: int | None = 1,
        tokenize: str | None = None,
        samples: int = 0,
        prefix: str = "val_",
        groups: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if groups is not None and len(groups) != len(sources):
            raise ValueError(
                "TranslationScores: `groups` must have a name for each sentence, "
                f"{len(sources)}. Received: {len(groups)}"
            )
        if not sources or len(sources) != len(references) or (every or 1) < 1:
            raise ValueError(
                "TranslationScores: `sources` and `references` must be as long as each other and "
                f"not empty, `every` positive. Received: {len(sources)} and {len(references)}, "
                f"every={every}"
            )
        self.translate = translate
        self.sources = list(sources)
        self.references = list(references)
        self.every = every
        self.tokenize = tokenize or bleu_tokenizer(self.references)
        self._groups = _rows_of_groups(groups)
        self._tokenizers = {
            name: tokenize or bleu_tokenizer([self.references[row] for row in rows])
            for name, rows in self._groups.items()
        }
        for each in {self.tokenize, *self._tokenizers.values()}:
            bleu_metric(each)  # or its absence would be found after an epoch
        self.samples = samples
        self.prefix = prefix
        self.signature: str | None = None
        self.examples: list[tuple[str, str, str]] = []
        # A function: checkpoints hold what is data, and another process has another clock.
        self._is_pause_over: Callable[[], bool] = lambda: True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        names = [f"{kind}_{name}" for name in self._groups for kind in ("bleu", "chrf")]
        scores = dict.fromkeys(["bleu", "chrf", *names, "rank"], -math.inf)
        if self._is_due(epoch):
            started = time.monotonic()
            scores |= self._score()
            self._pause(time.monotonic() - started)
            bleu = scores["bleu"] if scores["bleu"] >= LEAST else 0.0
            scores["rank"] = bleu + 1e-6 * scores["chrf"]
        if logs is not None:
            logs.update({f"{self.prefix}{name}": score for name, score in scores.items()})

    def _is_due(self, epoch: int) -> bool:
        is_last = epoch + 1 == (self.params or {}).get("epochs")
        is_stopping = getattr(self.model, "stop_training", False)
        due = (epoch + 1) % self.every == 0 if self.every else self._is_pause_over()
        return is_last or is_stopping or due

    def _pause(self, seconds: float) -> None:
        pause = seconds * (1 / SHARE - 1)
        ends = time.monotonic() + pause
        self._is_pause_over = lambda: time.monotonic() >= ends
        if self.every is None and self.samples:
            print(f"\nScoring took {seconds:.0f} s; the next is {pause:.0f} s from now or later.")

    def _score(self) -> dict[str, float]:
        translations = list(self.translate(self.sources))
        if len(translations) != len(self.sources):
            raise ValueError(
                f"TranslationScores: `translate` must return {len(self.sources)} translations. "
                f"Received: {len(translations)}"
            )
        bleu, chrf, self.signature = score_translations(
            translations, self.references, self.tokenize
        )
        triples = zip(self.sources, translations, self.references, strict=True)
        self.examples = list(triples)[: max(self.samples, 3)]
        for source, translation, _ in self.examples[: self.samples]:
            print(f"\n{_one_line('  ', source)}\n{_one_line('  -> ', translation)}")
        own = {name: self._score_of(name, translations) for name in self._groups}
        if own:
            bleu, chrf = (sum(each) / len(own) for each in zip(*own.values(), strict=True))
        scores = {"bleu": bleu, "chrf": chrf}
        for name, (of_bleu, of_chrf) in own.items():
            scores |= {f"bleu_{name}": of_bleu, f"chrf_{name}": of_chrf}
        return scores

    def _score_of(self, name: str, translations: Sequence[str]) -> tuple[float, float]:
        """BLEU and chrF of a group."""
        rows = self._groups[name]
        ours, references = ([side[row] for row in rows] for side in (translations, self.references))
        return score_translations(ours, references, self._tokenizers[name])[:2]


def _one_line(start: str, text: str) -> str:
    """Returns a line with a text, which is cut if the line is longer than the terminal."""
    longest = min(shutil.get_terminal_size().columns, LONGEST_LINE)
    line = start + " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _rows_of_groups(groups: Sequence[str] | None) -> dict[str, list[int]]:
    """The numbers of the sentences of each group."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(groups or ()):
        rows.setdefault(name, []).append(row)
    return rows


def score_translations(
    translations: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> tuple[float, float, str]:
    """Corpus BLEU and chrF by sacreBLEU, cased.

    Args:
        translations, references: Lists of str of one length.
        tokenize: sacreBLEU's tokenizer; by default that of `bleu_tokenizer`.

    Returns:
        BLEU, chrF (both in percent) and the signature of the BLEU, which names the tokenizer.

    Raises:
        ValueError: If there is no such tokenizer.
        ImportError: If sacreBLEU, or what its tokenizer needs, is not installed.

    Example:
    >>> from keras_transformers.training import score_translations
    >>> score_translations(["a b c d"], ["a b c d"])[0] > 99.9
    True
    """
    metric = bleu_metric(tokenize or bleu_tokenizer(references))
    with needed_by("scoring translations"):
        from sacrebleu.metrics import CHRF

    bleu = metric.corpus_score(translations, [references]).score
    chrf = CHRF().corpus_score(translations, [references]).score
    return bleu, chrf, str(metric.get_signature())


def sentence_chrf(translations: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each translation by sacreBLEU, in percent.

    Args:
        translations, references: Lists of str of one length.

    Raises:
        ValueError: If they differ in length.
        ImportError: If sacreBLEU is not installed.

    Example:
    >>> from keras_transformers.training import sentence_chrf
    >>> sentence_chrf(["a cat", "a dog"], ["a cat", "x"])
    [100.0, 0.0]
    """
    with needed_by("scoring translations"):
        from sacrebleu.metrics import CHRF

    metric = CHRF()
    pairs = zip(translations, references, strict=True)
    return [metric.sentence_score(own, [reference]).score for own, reference in pairs]


def bleu_metric(tokenize: str) -> Any:
    """sacreBLEU's metric with a tokenizer."""
    with needed_by("scoring translations"):
        from sacrebleu.metrics import BLEU  # only where translations are scored

    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(
            f"score_translations: `tokenize` must be one of {', '.join(BLEU.TOKENIZERS)}. "
            f"Received: {tokenize!r}"
        )
    try:
        return BLEU(tokenize=tokenize)
    except (ImportError, RuntimeError) as error:
        needed = " ".join(str(error).split())
        raise ImportError(f"score_translations: {tokenize!r} cannot be used: {needed}") from error
