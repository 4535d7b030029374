"""Pairs that a machine has made, or other extra ones: learned from, never tested with."""

import collections
import dataclasses
import re

from keras_transformers.core.words import without_context
from keras_transformers.text import Mixture, PairCorpus, read_pairs

from .directions import DIRECTION, JoinedCorpus, target_of, weights_of

SIDES = ("sources", "targets")
TAG = "<bt>"  # before sources that were translated back (Caswell et al. 2019)


@dataclasses.dataclass(frozen=True)
class Extra:
    """Extra pairs of one direction, all with the tag or all without.

    Args:
        corpus: The pairs, without it.
        direction: As "en-de"; "" where there is one alone.
        tagged: Whether the tag stands before their sources.
    """

    corpus: PairCorpus
    direction: str = ""
    tagged: bool = False


@dataclasses.dataclass(frozen=True)
class ExtendedCorpus:
    """One's own pairs and extra ones behind them, to be used as a `PairCorpus`.

    Args:
        own: A `PairCorpus`, or a `JoinedCorpus` of several directions.
        extra: A tuple of `Extra`s.
        upsample: How often own pairs are shown for each time that the extra ones are.
    """

    own: PairCorpus | JoinedCorpus
    extra: tuple[Extra, ...]
    upsample: float = 1.0

    def __len__(self):
        return sum(map(len, self._corpora))

    @property
    def _corpora(self):
        return [self.own, *(each.corpus for each in self.extra)]

    @property
    def sources(self):
        """Their texts, a list."""
        return [text for corpus in self._corpora for text in corpus.sources]

    @property
    def targets(self):
        """Their translations, a list."""
        return [text for corpus in self._corpora for text in corpus.targets]

    @property
    def tags(self):
        """The tags that a vocabulary must have, a tuple."""
        return (TAG,) if any(each.tagged for each in self.extra) else ()

    def head(self, number):
        """The first own pairs and the first of each extra part, so many."""
        return self._changed(self.own.head(number), lambda each: each.corpus.head(number))

    def without_long(self, tokenizers, source_length, target_length):
        """See `PairCorpus.without_long`; marks are counted."""
        source, target = tokenizers

        def shorter(each):
            towards = source.towards(target_of(each.direction)) if each.direction else source
            room = source_length - each.tagged
            return each.corpus.without_long((towards, target), room, target_length)

        return self._changed(
            self.own.without_long(tokenizers, source_length, target_length), shorter
        )

    def summary(self):
        """A line for each part."""
        return "\n".join(corpus.summary() for corpus in self._corpora)

    def mixture(self, tokenizer):
        """The `Mixture` of own and extra pairs, with the marks of a tokenizer.

        Raises:
            ValueError: If some are tagged and the tokenizer has no such mark.
        """
        known = getattr(tokenizer, "tags", {})
        if lacking := [tag for tag in self.tags if tag not in known]:
            raise ValueError(
                f"--extra: the vocabulary has no mark {lacking[0]}, as those of published models; "
                "have recipes.back_translate write such pairs with --no-tag."
            )
        own = getattr(self.own, "parts", {"": self.own})
        parts = [(name, corpus, (), self.upsample) for name, corpus in own.items()]
        for each in self.extra:
            tag = (known[TAG],) if each.tagged else ()
            parts.append((each.direction, each.corpus, tag, 1.0))
        temperature = getattr(self.own, "temperature", 1.0)
        by_text = weights_of([corpus for _, corpus, _, _ in parts], temperature)
        return Mixture(
            sizes=tuple(len(corpus) for _, corpus, _, _ in parts),
            marks=tuple((*_language(tokenizer, name), *tag) for name, _, tag, _ in parts),
            temperature=temperature,
            weights=tuple(by * weight for by, (*_, weight) in zip(by_text, parts, strict=True)),
        )

    def _changed(self, own, change):
        extra = tuple(dataclasses.replace(each, corpus=change(each)) for each in self.extra)
        return dataclasses.replace(self, own=own, extra=extra)


def _language(tokenizer, direction):
    """The mark of the language that is translated to, of several."""
    return (tokenizer.language_marks[target_of(direction)],) if direction else ()


def extended(data, files, upsample=1.0):
    """The `TranslationData` with extra pairs to learn from; as it is, where there are no files.

    A pair of which a side is the same as in the validation or test set is left out, and counted.

    Args:
        data: A `TranslationData`.
        files: Paths or patterns, see `text.read_pairs`. Of several directions each has one in
            front, as "en-de=a.tsv".
        upsample: How often own pairs are shown for each time that the extra ones are.

    Raises:
        ValueError: If a file is unusable, has no direction where it must, or the data is a stream;
            or `upsample` is not positive.
        FileNotFoundError: If there is no such file.
    """
    if not 0 < upsample < float("inf") or upsample != 1 and not files:
        raise ValueError(f"--upsample must be positive, with --extra. Received: {upsample}")
    if not files:
        return data
    if data.shards is not None:
        raise ValueError("--extra is for data in memory. Received: a stream for --train")
    pairs = collections.defaultdict(list)
    left_out, names = (collections.defaultdict(kind) for kind in (collections.Counter, dict))
    held_out = [[*getattr(data.valid, side), *getattr(data.test, side)] for side in SIDES]
    seen = [{*without_context(texts)} for texts in held_out]
    for given in files:
        direction, path = _direction(str(given), getattr(data.train, "parts", {}))
        corpus, first = read_pairs(path), None
        for source, target in zip(corpus.sources, corpus.targets, strict=True):
            bare = source.removeprefix(TAG) if f"{source} ".startswith(f"{TAG} ") else source
            origin = direction, bare is not source
            names[origin][corpus.name] = True
            first = first or origin
            if bare.strip() in seen[0] or target in seen[1]:
                left_out[origin]["with a side in the validation or test set"] += 1
            else:
                pairs[origin].append((bare, target))
        left_out[first].update(corpus.left_out)  # nobody knows of which part they would be
    # Pairs of several files are one part, however they are distributed.
    extra = tuple(
        Extra(_corpus(origin, names[origin], pairs[origin], left_out[origin]), *origin)
        for origin in names
    )
    return dataclasses.replace(data, train=ExtendedCorpus(data.train, extra, upsample))


def _corpus(origin, names, pairs, left_out):
    """The corpus of a part, with its account."""
    direction, tagged = origin
    name = " ".join(each for each in (direction, ", ".join(names), TAG if tagged else "") if each)
    return PairCorpus.from_pairs(name, pairs, left_out, len(pairs) + left_out.total())


def _direction(given, known):
    """Direction and path of a value of `--extra`."""
    if not known:
        return "", given
    match = re.fullmatch(rf"({DIRECTION.pattern})=(.+)", given, re.DOTALL)
    if match is None or match[1] not in known:
        raise ValueError(
            f"--extra: the direction must stand in front, of {', '.join(known)}, as "
            f"{next(iter(known))}=a.tsv. Received: {given}"
        )
    return match[1], match[4]
