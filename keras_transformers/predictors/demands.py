"""What must stand in each translation of a request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_transformers.core.types import StrPath
from keras_transformers.core.words import kept_as_written, without_context
from keras_transformers.localization.glossary import Glossary

MOST = 12  # phrases of one sentence; what is behind them is not demanded

AnyGlossary = Glossary | Mapping[str, str] | StrPath


class Demanded:
    """What translations must hold.

    Args:
        glossary: A `Glossary`, a dict of its terms, or the path of its file.
        keep_placeables: Whether placeables are phrases, too: see `placeables.kept_as_written`.
        language: The target language, for a glossary that names several.
    """

    def __init__(
        self,
        glossary: AnyGlossary | None = None,
        keep_placeables: bool = False,
        language: str | None = None,
    ) -> None:
        self._keep_placeables = keep_placeables
        if glossary is None or isinstance(glossary, Mapping):
            glossary = Glossary(glossary or {})
        elif not isinstance(glossary, Glossary):
            glossary = Glossary.read(glossary)
        self._glossary = glossary if language is None else glossary.towards(language)

    def __bool__(self) -> bool:
        return self._keep_placeables or len(self._glossary) > 0

    def rows(
        self, owner: str, sentences: Sequence[str], phrases: Sequence[Sequence[str]] | None = None
    ) -> list[list[str]]:
        """The phrases of each sentence, at most `MOST`: those given, of the glossary, placeables.

        Raises:
            ValueError: If `phrases` are not one list for each.
        """
        given = [()] * len(sentences) if phrases is None else phrases
        if len(given) != len(sentences) or any(isinstance(row, str | bytes) for row in given):
            raise ValueError(
                f"{owner}: `phrases` must be a list of phrases for each of {len(sentences)} "
                f"sentences. Received: {given!r:.100}"
            )
        rows = []
        for sentence, row in zip(without_context(sentences), given, strict=True):
            kept = kept_as_written(sentence) if self._keep_placeables else []
            rows.append([*filter(None, row), *self._glossary.find(sentence), *kept][:MOST])
        return rows


def answer_with(
    rows: Sequence[Sequence[str]],
    run: Callable[..., Any],
    demanding: Callable[..., Any],
    *given: tf.Tensor,
) -> dict[str, Any]:
    """A dict of arrays for texts: those with phrases from `demanding`, the others from `run`.

    Args:
        rows: Phrases of each text.
        run: Function of texts, `(batch,)`, and what is asked besides, that gives a dict of tensors.
        demanding: The same with `phrases` `(batch, number)` behind it.
        *given: Texts, and what is asked besides.
    """
    having = np.array([bool(row) for row in rows], bool)
    if not having.any():
        return {name: np.asarray(values) for name, values in run(*given).items()}
    found: dict[str, Any] = {}
    for which, function in ((having, demanding), (~having, run)):
        (chosen,) = np.nonzero(which)
        if not len(chosen):
            continue
        part = [tf.gather(each, chosen) for each in given]
        part += [dense([rows[int(i)] for i in chosen])] if function is demanding else []
        for name, values in function(*part).items():
            values = np.asarray(values)
            whole = np.empty((len(rows), *values.shape[1:]), values.dtype)
            found.setdefault(name, whole)[chosen] = values
    return found


def dense(phrases: Sequence[Sequence[str]]) -> tf.Tensor:
    """Lists of phrases as strings `(batch, number)`, "" where there is none."""
    number = max(map(len, phrases), default=0)
    rows = [[*row, *[""] * (number - len(row))] for row in phrases]
    return tf.constant(rows, tf.string, shape=[len(rows), number])
