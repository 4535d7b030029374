"""Whether one system translates better than another, or was only luckier with the sentences."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.extras import needed_by
from keras_transformers.training.scripts import bleu_tokenizer
from keras_transformers.training.translation import bleu_metric
from keras_transformers.training.translation_report import translation_metrics

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
