"""Scores of translations: BLEU, chrF, TER, reports, significance, alignment errors."""

import collections
import dataclasses
import importlib.util
import math
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import keras

from keras_transformers.core.imports import needed_by
from keras_transformers.core.words import kept_placeables, words_of

MOST_READ = 5000  # texts, from all over the list
SHARE = 0.2  # of the letters in a script, from which on texts count as written in it
# Scripts whose words have no spaces between them, and those of Europe.
SCRIPTS = {
    "han": "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "without spaces": (
        "\u0e00-\u0eff"  # Thai, Lao
        "\u0f00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Tibetan, Burmese
        "\u1780-\u17ff\u19e0-\u19ff\u1950-\u19df"  # Khmer, Tai Le
    ),
    "european": "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u052f\u1e00-\u1fff",
}
_LETTERS = {name: re.compile(f"[{inside}]") for name, inside in SCRIPTS.items()}


def _shares(texts: Sequence[str]) -> dict[str, float]:
    """Dict of script -> share of the letters, and "other"."""
    read = "".join(texts[:: max(len(texts) // MOST_READ, 1)])
    counts = collections.Counter(
        {name: len(pattern.findall(read)) for name, pattern in _LETTERS.items()}
    )
    others = re.sub("|".join(pattern.pattern for pattern in _LETTERS.values()), "", read)
    counts["other"] = sum(map(str.isalpha, others))
    letters = max(counts.total(), 1)
    return {name: count / letters for name, count in counts.items()}


def bleu_tokenizer(references: Sequence[str]) -> str:
    """The tokenizer of sacreBLEU that suits what references are written in.

    BLEU counts words, which "13a" finds by the spaces between them. Chinese gets "zh", Japanese
    "ja-mecab" where MeCab is installed (`pip install sacrebleu[ja]`), and "char", which counts
    characters, stands in for it and serves Thai, Lao, Burmese, Tibetan and Khmer. All others get
    "13a". Scores by one tokenizer say nothing about scores by another.

    Args:
        references: List of str.

    Example:
    >>> from keras_transformers.training import bleu_tokenizer
    >>> bleu_tokenizer(["eine Katze"]), bleu_tokenizer(["我喜欢猫。"]), bleu_tokenizer(["ฉันรักแมว"])
    ('13a', 'zh', 'char')
    """
    share = _shares(references)
    east_asian = share["han"] + share["kana"]
    if max(east_asian, share["without spaces"]) < SHARE:
        return "13a"
    if share["without spaces"] > east_asian:
        return "char"
    if share["kana"] < SHARE * east_asian:  # a name or two
        return "zh"
    installed = all(importlib.util.find_spec(name) for name in ("MeCab", "ipadic"))
    return "ja-mecab" if installed else "char"


def text_normalization(*sides: Sequence[str]) -> Literal["nmt_nfkc", "none"]:
    """How a SentencePiece vocabulary should change the characters of texts: a rule's name.

    "nmt_nfkc", SentencePiece's own, where all sides are in Latin, Greek or Cyrillic script. It
    makes "," of a full-width comma and drops joiners of zero width, so that what a model writes
    cannot have them; texts in other scripts get "none".

    Args:
        *sides: Lists of str, each in a language of its own.

    Example:
    >>> from keras_transformers.training import text_normalization
    >>> text_normalization(["a cat"], ["eine Katze"]), text_normalization(["a cat"], ["我喜欢猫。"])
    ('nmt_nfkc', 'none')
    """
    others = (sum(_shares(side).values()) - _shares(side)["european"] for side in sides)
    return "nmt_nfkc" if all(share < SHARE for share in others) else "none"


LEAST = 1.0  # BLEU; below, a handful of words decides it
LONGEST_LINE = 120  # characters of a line that shows a text, whatever the terminal
SCORING_SHARE = 0.1  # of the time, at most, that scorings without a fixed number of epochs take


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
        pause = seconds * (1 / SCORING_SHARE - 1)
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


LENGTHS = (2, 5, 10, 20, 40)  # words of a source: groups up to these, and one beyond
FREQUENCIES = (0, 5, 50, 500)  # times that a word stands in what was learned from
REPEATED = 3  # times that the same words follow each other
EAST_ASIAN = ("zh", "ja-mecab", "char", "ko-mecab")
_REPETITION = re.compile(rf"(\b\w+\b(?:\W+\b\w+\b){{0,3}})(?:\W+\1\b){{{REPEATED - 1},}}")


@dataclasses.dataclass(frozen=True)
class TranslationReport:
    """What `report_translations` finds.

    Attributes:
        scores: "bleu", "chrf", "chrf++" and "ter" in percent, of the corpus.
        signatures: sacreBLEU's, by the same names.
        by_length: A dict for each group of sources, by their words: "words", "sentences", "bleu"
            and "chrf".
        by_frequency: A dict for each group of the references' words, by how often they stand in
            what was learned from: "seen", "words", and "found", how many of them stand in the
            translation, too; empty if that is not known.
        placeables: Kind -> `(kept, expected)`, see `placeables.kept_placeables`.
        faults: Number of translations that are "empty", "copied" (equal to a source that its
            reference is not equal to), "repeating" (the same one to four words three times in a
            row), "short" or "long" (less than half, more than twice of the reference's characters).

    Example:
    >>> from keras_transformers.training import report_translations
    >>> report = report_translations(["der Hund", "ja"], ["the dog", "yes"], ["der Hund", "yes"])
    >>> type(report).__name__, report.faults["copied"]
    ('TranslationReport', 1)
    """

    scores: dict[str, float]
    signatures: dict[str, str]
    by_length: list[dict[str, Any]]
    by_frequency: list[dict[str, Any]]
    placeables: dict[str, tuple[int, int]]
    faults: dict[str, int]


def translation_metrics(tokenize: str) -> dict[str, Any]:
    """sacreBLEU's metrics by name: "bleu", "chrf", "chrf++" (Popović 2017), "ter" (Snover 2006).

    Args:
        tokenize: sacreBLEU's tokenizer for BLEU; TER takes its rules for Chinese and Japanese where
            BLEU takes such a tokenizer.

    Example:
    >>> from keras_transformers.training.translation import translation_metrics
    >>> list(translation_metrics("13a"))
    ['bleu', 'chrf', 'chrf++', 'ter']
    """
    bleu = bleu_metric(tokenize)
    with needed_by("scoring translations"):
        from sacrebleu.metrics import CHRF, TER

    asian = tokenize in EAST_ASIAN
    ter = TER(normalized=asian, asian_support=asian)
    return {"bleu": bleu, "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": ter}


def report_translations(
    sources: Sequence[str],
    references: Sequence[str],
    translations: Sequence[str],
    word_counts: Mapping[str, int] | None = None,
    tokenize: str | None = None,
) -> TranslationReport:
    """Scores translations by all that people report, and says where they are wrong.

    Args:
        sources, references, translations: Lists of str of one length.
        word_counts: How often words stand in the targets that were learned from, see `count_words`.
        tokenize: sacreBLEU's tokenizer; by default that of `bleu_tokenizer`.

    Raises:
        ValueError: If the lists differ in length or are empty, or there is no such tokenizer.
        ImportError: If sacreBLEU, or what its tokenizer needs, is not installed.

    Example:
    >>> from keras_transformers.training import report_translations
    >>> report = report_translations(["Öffne a"], ["open a"], ["open a"])
    >>> round(report.scores["chrf++"]), report.faults["copied"]
    (100, 0)
    """
    sizes = {len(sources), len(references), len(translations)}
    if len(sizes) != 1 or not sources:
        raise ValueError(
            "report_translations: `sources`, `references` and `translations` must be as long as "
            f"each other and not empty. Received: {len(sources)}, {len(references)}, "
            f"{len(translations)}"
        )
    metrics = translation_metrics(tokenize or bleu_tokenizer(references))
    whole = {
        name: metric.corpus_score(translations, [references]).score
        for name, metric in metrics.items()
    }
    triples = list(zip(sources, references, translations, strict=True))
    return TranslationReport(
        scores=whole,
        signatures={name: str(metric.get_signature()) for name, metric in metrics.items()},
        by_length=_by_length(triples, {name: metrics[name] for name in ("bleu", "chrf")}),
        by_frequency=_by_frequency(triples, word_counts),
        placeables=kept_placeables(triples),
        faults={name: sum(map(has, triples)) for name, has in FAULTS.items()},
    )


def count_words(texts: Sequence[str]) -> collections.Counter[str]:
    """How often each word stands in texts, case ignored.

    Marks such as the vowel signs of Indic scripts belong to their words; in scripts without spaces
    between words each character counts as one.

    Example:
    >>> from keras_transformers.training import count_words
    >>> count_words(["A cat", "a dog"])["a"]
    2
    """
    return collections.Counter(word for text in texts for word in _words(text))


def _words(text: str) -> list[str]:
    return [word.casefold() for word in words_of(text) if word[0].isalnum()]


FAULTS: dict[str, Callable[[tuple[str, str, str]], bool]] = {
    "empty": lambda x: not x[2].strip() and bool(x[1].strip()),
    "copied": lambda x: x[2].strip() == x[0].strip() != x[1].strip(),
    "repeating": lambda x: bool(_REPETITION.search(x[2])) and not _REPETITION.search(x[1]),
    "short": lambda x: 0 < 2 * len(x[2].strip()) < len(x[1].strip()),
    "long": lambda x: len(x[2].strip()) > 2 * len(x[1].strip()),
}


def _groups(limits: Sequence[int]) -> list[str]:
    """Names of the groups up to each limit, and of the one beyond."""
    first = [0, *(limit + 1 for limit in limits)]
    pairs = zip(first, limits, strict=False)
    names = [str(low) if low == high else f"{low}-{high}" for low, high in pairs]
    return [*names, f"{first[-1]}+"]


def _group(number: int, limits: Sequence[int]) -> int:
    return sum(number > limit for limit in limits)


def _by_length(
    triples: Sequence[tuple[str, str, str]], metrics: Mapping[str, Any]
) -> list[dict[str, Any]]:
    found = collections.defaultdict(list)
    for triple in triples:
        found[_group(len(triple[0].split()), LENGTHS)].append(triple)
    rows = []
    for group, name in enumerate(_groups(LENGTHS)):
        if group in found:
            _, references, translations = zip(*found[group], strict=True)
            scores = {
                key: metric.corpus_score(translations, [references]).score
                for key, metric in metrics.items()
            }
            rows.append({"words": name, "sentences": len(references), **scores})
    return rows


def _by_frequency(
    triples: Sequence[tuple[str, str, str]], word_counts: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    if word_counts is None:
        return []
    words, found = collections.Counter[int](), collections.Counter[int]()
    for _, reference, translation in triples:
        has = collections.Counter(_words(translation))
        for word, count in collections.Counter(_words(reference)).items():
            group = _group(word_counts.get(word, 0), FREQUENCIES)
            words[group] += count
            found[group] += min(count, has[word])
    return [
        {"seen": name, "words": words[group], "found": found[group]}
        for group, name in enumerate(_groups(FREQUENCIES))
        if words[group]
    ]


SAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class SystemScore:
    """A system's score by one metric.

    Attributes:
        score: Of the corpus, in percent.
        mean: Of the resampled corpora.
        half_width: Of the interval around `mean` that holds 95 % of them.
        p_value: How often a difference from the first system as large as the one found comes
            about by chance, if there is none; None of the first.

    Example:
    >>> from keras_transformers.training import compare_translations
    >>> systems = {"old": ["a b d c"] * 9, "new": ["a b c d"] * 9}
    >>> score = compare_translations(systems, ["a b c d"] * 9, samples=100)["bleu"]["old"]
    >>> type(score).__name__, score.p_value
    ('SystemScore', None)
    """

    score: float
    mean: float
    half_width: float
    p_value: float | None


def compare_translations(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    tokenize: str | None = None,
    samples: int = SAMPLES,
    metrics: Sequence[str] = ("bleu", "chrf"),
) -> dict[str, dict[str, SystemScore]]:
    """Scores of systems on one test set, with the first compared by paired bootstrap.

    Sentences are drawn with replacement `samples` times, the same for all systems (Koehn 2004,
    "Statistical significance tests for machine translation evaluation"), by sacreBLEU, whose seed
    is 12345, or `SACREBLEU_SEED`.

    Args:
        systems: Name -> translations; two or more.
        references: As many as each system has translations.
        tokenize: sacreBLEU's tokenizer; by default that of `bleu_tokenizer`.
        samples: How many corpora are drawn.
        metrics: Some of "bleu", "chrf", "chrf++" and "ter", which takes long.

    Returns:
        Dict of metric -> dict of system -> `SystemScore`.

    Raises:
        ValueError: If there are fewer than two systems, lists differ in length or are empty, a
            metric is unknown, or `samples` is not positive.
        ImportError: If sacreBLEU, or what its tokenizer needs, is not installed.

    Example:
    >>> from keras_transformers.training import compare_translations
    >>> references = ["a b c d", "b c d e", "c d e f"] * 5
    >>> systems = {"old": ["a b d c"] * 15, "new": references}
    >>> found = compare_translations(systems, references, samples=100)["chrf"]["new"]
    >>> found.score > 99.9, found.p_value < 0.05
    (True, True)
    """
    lengths = {name: len(found) for name, found in systems.items()}
    if len(systems) < 2 or not references or set(lengths.values()) != {len(references)}:
        raise ValueError(
            "compare_translations: `systems` must be two or more, each with as many translations "
            f"as there are references. Received: {lengths}, {len(references)} references"
        )
    tokenize = tokenize or bleu_tokenizer(references)
    bleu_metric(tokenize)  # says what is missing
    known = translation_metrics(tokenize)
    unknown = sorted(set(metrics) - set(known))
    if unknown or not metrics or samples < 1:
        raise ValueError(
            f"compare_translations: `metrics` must be some of {', '.join(known)}, and `samples` "
            f"positive. Received: {list(metrics)}, {samples}"
        )
    with needed_by("compare_translations"):
        from sacrebleu.significance import PairedTest

    named: list[Any] = [(name, list(found)) for name, found in systems.items()]
    chosen = {name: known[name] for name in metrics}
    test = PairedTest(named, chosen, [list(references)], test_type="bs", n_samples=samples)
    table: Any = test()[1]
    # sacreBLEU's chance is the smallest there is where nothing differs.
    (_, first), *others = named
    same = {name for name, found in others if found == first}
    return {
        metric: {
            system: SystemScore(x.score, x.mean, x.ci, 1.0 if system in same else x.p_value)
            for system, x in zip(systems, results, strict=True)
        }
        for metric, results in zip(metrics, list(table.values())[1:], strict=True)
    }


def alignment_error_rate(
    links: Sequence[Collection[tuple[int, int]]],
    sure: Sequence[Collection[tuple[int, int]]],
    possible: Sequence[Collection[tuple[int, int]]] | None = None,
) -> dict[str, float]:
    """The alignment error rate of Och & Ney 2003 (https://aclanthology.org/J03-1002, section 6).

    Of links A, sure ones S and possible ones P, of which the sure ones are some, over all pairs of
    sentences: `1 - (|A & S| + |A & P|) / (|A| + |S|)`, precision `|A & P| / |A|` and recall
    `|A & S| / |S|`.

    Args:
        links: For each pair of sentences the links `(source word, target word)` that were found.
        sure: For each those that must be found.
        possible: For each those that may be found; sure ones are so whether they are named or not.
            By default there are no others.

    Returns:
        Dict of "error_rate", "precision" and "recall", from 0 to 1; 0 errors, and 1, where there is
        nothing to find and nothing was found.

    Raises:
        ValueError: If the lists differ in length.

    Example: one of two sure links is missing, and a link is wrong.
    >>> from keras_transformers.training import alignment_error_rate
    >>> alignment_error_rate([[(0, 0), (1, 0)]], [[(0, 0), (1, 1)]])
    {'error_rate': 0.5, 'precision': 0.5, 'recall': 0.5}
    """
    maybe: Sequence[Any] = [()] * len(sure) if possible is None else possible
    sizes = {"links": len(links), "sure": len(sure), "possible": len(maybe)}
    if len(set(sizes.values())) != 1:
        raise ValueError(
            "alignment_error_rate: `links`, `sure` and `possible` must be as long as each other. "
            f"Received: {', '.join(map(str, sizes.values()))}"
        )
    found = required = both = allowed = 0
    for own, must, may in zip(map(set, links), map(set, sure), map(set, maybe), strict=True):
        found, required = found + len(own), required + len(must)
        both, allowed = both + len(own & must), allowed + len(own & (must | may))
    total = found + required
    return {
        "error_rate": 1 - (both + allowed) / total if total else 0.0,
        "precision": allowed / found if found else 1.0,
        "recall": both / required if required else 1.0,
    }
