"""A shard of rows as JSON lines."""

import keras_transformers
from keras_transformers.predictors import Refused

from .shards import record


def loaded(folder, signature, target_language=None, search="own", seed=1, scores=False):
    """The predictor of a folder, see `keras_transformers.load`; of a translator, into a language.

    Args:
        folder, signature: See there.
        target_language: Code of the language.
        search: "own", or of translators what `searches.searching` takes.
        seed: Of what is drawn.
        scores: Whether answers have log-probabilities, of translators and text generators.

    Raises:
        ValueError: If there is no such language, or none was given where there are several; or the
            model cannot be searched so, or gives no log-probabilities.
    """
    predictor = keras_transformers.load(folder, signature)
    if search != "own":
        from .searches import searching  # what text needs, images do not

        predictor = searching(predictor, search, seed, signature)
    if scores:
        predictor = _telling(predictor, search)
    if predictor.kind == "translator":
        return predictor.towards(target_language)
    if target_language is not None:
        raise ValueError(f"--target-language is of translators. Received: a {predictor.kind}")
    return predictor


def _telling(predictor, search):
    """The predictor whose answers have log-probabilities; ValueError if it cannot give them."""
    if predictor.kind not in ("translator", "text_generator"):
        raise ValueError(
            f"--scores is of translators and text generators. Received: a {predictor.kind}"
        )
    if search != "own":
        raise ValueError(f"--scores must be left out beside --search. Received: {search}")
    try:
        return predictor.telling()
    except AttributeError as error:  # of a SavedModel of an older version
        raise ValueError(f"--scores: {error}") from None


def loaded_translator(folder, *asked):
    """`loaded`, of what must be a translator; ValueError if it is none."""
    predictor = loaded(folder, *asked)
    if predictor.kind != "translator":
        raise ValueError(f"{folder} must be a translator. Received: a {predictor.kind}")
    return predictor


def answered(predictor, rows):
    """JSON lines, bytes, one for each of a list of `Row`s.

    Texts are one request, whose rows the exported program sorts by length itself.
    """
    good = [row.content for row in rows if not isinstance(row.content, Refused)]
    # Of a detector's answers only the sure ones are wanted.
    answers = predictor.each(good, details=predictor.kind != "detector")
    lines = []
    for row in rows:
        answer = row.content if isinstance(row.content, Refused) else next(answers)
        lines.append(record(predictor.kind, row, answer))
    return b"".join(lines)
