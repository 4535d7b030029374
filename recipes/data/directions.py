"""Several directions of translation in one set of data, told apart as in "en-de=a.tsv"."""

import dataclasses
import re

from keras_transformers.tables import is_pattern
from keras_transformers.text import Mixture, PairCorpus

from .own_files import held_out_of

DIRECTION = re.compile(r"([A-Za-z0-9_]+)-([A-Za-z0-9_]+)")


@dataclasses.dataclass(frozen=True)
class JoinedCorpus:
    """The pairs of several directions one after another, to be used as a `PairCorpus`.

    Args:
        parts: Dict of direction, as "en-de", -> `PairCorpus`.
        temperature: See `Mixture`.
    """

    parts: dict[str, PairCorpus]
    temperature: float = 1.0

    def __len__(self):
        return sum(map(len, self.parts.values()))

    @property
    def sources(self):
        """Their texts, a list."""
        return [text for part in self.parts.values() for text in part.sources]

    @property
    def targets(self):
        """Their translations, a list."""
        return [text for part in self.parts.values() for text in part.targets]

    @property
    def directions(self):
        """The direction of each pair, a list."""
        return [name for name, part in self.parts.items() for _ in part.sources]

    @property
    def languages(self):
        """Code of the language of each translation, a list."""
        return [target_of(direction) for direction in self.directions]

    def head(self, number):
        """The first pairs of each direction, so many."""
        return self._changed(lambda name, part: part.head(number))

    def spread(self, number):
        """Returns at most `number` pairs at even distances, equally many of each direction."""
        of_each = max(number // len(self.parts), 1)
        return self._changed(lambda name, part: part.spread(of_each))

    def without_long(self, tokenizers, source_length, target_length):
        """See `PairCorpus.without_long`; the marks of languages are counted."""
        source, target = tokenizers
        return self._changed(
            lambda name, part: part.without_long(
                (source.towards(target_of(name)), target), source_length, target_length
            )
        )

    def summary(self):
        """A line for each direction."""
        return "\n".join(f"{name}: {part.summary()}" for name, part in self.parts.items())

    def mixture(self, tokenizer):
        """The `Mixture` of the directions by `weights_of`, with the marks of a tokenizer."""
        marks = tuple(tokenizer.language_marks[target_of(name)] for name in self.parts)
        corpora = tuple(self.parts.values())
        weights = weights_of(corpora, self.temperature)
        return Mixture(tuple(map(len, corpora)), marks, self.temperature, weights)

    def _changed(self, change):
        parts = {name: change(name, part) for name, part in self.parts.items()}
        return dataclasses.replace(self, parts=parts)


def weights_of(corpora, temperature):
    """The weights by which `Mixture` shares out text instead of pairs.

    Steps and minutes are spent on text: of two directions with equal text, that of the shorter
    pairs is shown in more pairs.
    """
    lengths = [sum(map(len, corpus.targets)) / len(corpus) for corpus in corpora]
    return tuple(length ** (1 / temperature - 1) for length in lengths)


def target_of(direction):
    """The code of the language that is translated to."""
    return DIRECTION.fullmatch(direction)[2]


def targets_of(corpus):
    """The codes of all languages that are translated to, in their order; none of a `PairCorpus`."""
    own = getattr(corpus, "own", corpus)  # of an `ExtendedCorpus`
    return tuple(dict.fromkeys(map(target_of, getattr(own, "parts", ()))))


def several(given):
    """The values of an option that takes one or several, a tuple."""
    return tuple(given) if isinstance(given, tuple | list) else (given,) if given else ()


def named(given, option):
    """Dict of direction -> file or set of each of the values of an option; None if none is named.

    Raises:
        ValueError: If only some have a direction, or two the same.
    """
    values = tuple(map(str, several(given)))
    found = [re.fullmatch(rf"({DIRECTION.pattern})=(.+)", value, re.DOTALL) for value in values]
    if len(values) < 2 and not any(found):
        return None
    for value, match in zip(values, found, strict=True):
        if match is None:
            raise ValueError(
                f"{option}: several directions are named, as en-de=a.tsv. Received: {value}"
            )
    names = [match[1] for match in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{option}: {name} must be there once. Received: {', '.join(values)}")
    return {match[1]: match[4] for match in found}


def of_files(files, read):
    """Dict of split -> dict of direction -> corpus.

    What a direction lacks is held out of its own pairs. Directions of which none are learned from
    can be validated and tested, if there is one into their language.

    Args:
        files: Dict of split -> dict of direction -> path.
        read: Function from a path to a `PairCorpus`.

    Raises:
        ValueError: If one is translated to a language that is not learned, or is a stream.
    """
    known = {target_of(name) for name in files["train"]}
    corpora = {split: {} for split in files}
    for split, paths in files.items():
        for name, path in paths.items():
            if target_of(name) not in known:
                raise ValueError(
                    f"--{split}: {name} must be into a language of --train, "
                    f"{', '.join(sorted(known))}."
                )
            if is_pattern(path):
                raise ValueError(f"--{split}: {path} is a stream, which has one direction alone.")
            corpora[split][name] = read(path)
    for name in files["train"]:
        own = {split: corpora[split][name] for split in files if name in corpora[split]}
        for split, corpus in held_out_of(own).items():
            corpora[split][name] = corpus
    # Those that are learned come first, in their order.
    return {
        split: {name: found[name] for name in dict.fromkeys((*files["train"], *found))}
        for split, found in corpora.items()
    }
