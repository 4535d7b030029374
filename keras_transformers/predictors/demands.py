"""What must stand in each translation of a request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.annotations import StrPath
from keras_transformers.placeables import kept_as_written
from keras_transformers.text.glossary import Glossary

MOST = 12  # phrases of one sentence; what is behind them is not demanded

AnyGlossary = Glossary | Mapping[str, str] | StrPath


def phrases_of(
    glossary: AnyGlossary | None = None, keep_placeables: bool = False, language: str | None = None
) -> Callable[[str], list[str]] | None:
    """A function from a sentence to what its translation must hold; None if that is nothing.

    Args:
        glossary: A `Glossary`, a dict of its terms, or the path of its file.
        keep_placeables: Whether placeables are phrases, too: see `placeables.kept_as_written`.
        language: The target language, for a glossary that names several.
    """
    if glossary is None and not keep_placeables:
        return None
    if glossary is None:
        glossary = Glossary({})
    elif isinstance(glossary, Mapping):
        glossary = Glossary(glossary)
    elif not isinstance(glossary, Glossary):
        glossary = Glossary.read(glossary)
    terms = glossary if language is None else glossary.towards(language)

    def phrases(sentence: str) -> list[str]:
        kept = kept_as_written(sentence) if keep_placeables else []
        return [*terms.find(sentence), *kept][:MOST]

    return phrases


def answering(
    run: Callable[..., Any], demanding: Callable[..., Any], find: Callable[[str], Sequence[str]]
) -> Callable[..., dict[str, Any]]:
    """A function of texts that gives those with phrases to `demanding`, and the others to `run`.

    Args:
        run: Function of texts, `(batch,)`, and what is asked besides, that gives a dict of tensors.
        demanding: The same with `phrases` `(batch, number)` behind it.
        find: The phrases of a sentence.
    """

    def answer(text: tf.Tensor, *besides: tf.Tensor) -> dict[str, Any]:
        rows = [list(find(each.decode())) for each in text.numpy()]
        having = np.array([bool(row) for row in rows], bool)
        found: dict[str, Any] = {}
        for which, function in ((having, demanding), (~having, run)):
            if not which.any() and (found or rows):
                continue
            (chosen,) = np.nonzero(which)
            given = [tf.gather(each, chosen) for each in (text, *besides)]
            if function is demanding:
                given.append(dense([rows[i] for i in chosen]))
            for name, values in function(*given).items():
                values = np.asarray(values)
                whole = np.empty((len(rows), *values.shape[1:]), values.dtype)
                whole = found.setdefault(name, whole)
                whole[chosen] = values
        return found

    return answer


def dense(phrases: Sequence[Sequence[str]]) -> tf.Tensor:
    """Lists of phrases as strings `(batch, number)`, "" where there is none."""
    number = max(map(len, phrases), default=0)
    rows = [[*row, *[""] * (number - len(row))] for row in phrases]
    return tf.constant(rows, tf.string, shape=[len(rows), number])
