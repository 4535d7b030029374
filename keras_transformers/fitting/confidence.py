"""How sure a translator is, told as how good its translations may be expected to be."""

from collections.abc import Sequence

from keras_transformers.export import Translator
from keras_transformers.predictors import TranslatorPredictor
from keras_transformers.predictors.quality import ConfidenceCurve, mean_log_probability
from keras_transformers.training import sentence_chrf


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
