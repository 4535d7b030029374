"""Joined corpora of sentence pairs: several directions of translation, and extra pairs."""

import collections
import dataclasses
import re

from keras_transformers.core.words import without_context
from keras_transformers.tables import is_pattern
from keras_transformers.text import Mixture, PairCorpus, read_pairs

from .data_sets import hold_out_missing

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
        """The sources of all parts, a list."""
        return [text for part in self.parts.values() for text in part.sources]

    @property
    def targets(self):
        """The targets of all parts, a list."""
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
        """Returns the first `number` pairs of each direction."""
        return self._changed(lambda name, part: part.head(number))

    def spread(self, number):
        """Returns at most `number` pairs at even distances, equally many of each direction."""
        of_each = max(number // len(self.parts), 1)
        return self._changed(lambda name, part: part.spread(of_each))

    def without_long(self, tokenizers, source_length, target_length):
        """Leaves out long pairs, see `PairCorpus`; the marks of languages count."""
        source, target = tokenizers
        return self._changed(
            lambda name, part: part.without_long(
                (source.towards(target_of(name)), target), source_length, target_length
            )
        )

    def summary(self):
        """Returns a line for each direction."""
        return "\n".join(f"{name}: {part.summary()}" for name, part in self.parts.items())

    def mixture(self, tokenizer):
        """Returns the `Mixture` of the directions by `weights_of`, with marks of a tokenizer."""
        marks = tuple(tokenizer.language_marks[target_of(name)] for name in self.parts)
        corpora = tuple(self.parts.values())
        weights = weights_of(corpora, self.temperature)
        return Mixture(tuple(map(len, corpora)), marks, self.temperature, weights)

    def _changed(self, change):
        parts = {name: change(name, part) for name, part in self.parts.items()}
        return dataclasses.replace(self, parts=parts)


def weights_of(corpora, temperature):
    """Returns weights by which `Mixture` shares out text instead of pairs.

    Steps and minutes are spent on text: of two directions with equal text, that of the shorter
    pairs is shown in more pairs.
    """
    lengths = [sum(map(len, corpus.targets)) / len(corpus) for corpus in corpora]
    return tuple(length ** (1 / temperature - 1) for length in lengths)


def target_of(direction):
    """Returns the code of the target language."""
    return DIRECTION.fullmatch(direction)[2]


def targets_of(corpus):
    """Returns the codes of all target languages, in their order; none for a `PairCorpus`."""
    own = getattr(corpus, "own", corpus)  # of an `ExtendedCorpus`
    return tuple(dict.fromkeys(map(target_of, getattr(own, "parts", ()))))


def as_tuple(value):
    """Returns the values of an option that takes one or several, a tuple."""
    if isinstance(value, tuple | list):
        return tuple(value)
    return (value,) if value else ()


def parse_directions(values_of_option, option):
    """Returns a dict of direction -> file or set from the values of an option; None without names.

    Raises:
        ValueError: If only some have a direction, or two the same.
    """
    values = tuple(map(str, as_tuple(values_of_option)))
    matches = [re.fullmatch(rf"({DIRECTION.pattern})=(.+)", value, re.DOTALL) for value in values]
    if len(values) < 2 and not any(matches):
        return None
    for value, match in zip(values, matches, strict=True):
        if match is None:
            raise ValueError(
                f"{option}: several directions are named, as en-de=a.tsv. Received: {value}"
            )
    names = [match[1] for match in matches]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{option}: {name} must be there once. Received: {', '.join(values)}")
    return {match[1]: match[4] for match in matches}


def read_directions(files, read):
    """Returns a dict of split -> dict of direction -> corpus.

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
        for split, corpus in hold_out_missing(own).items():
            corpora[split][name] = corpus
    # Those that are learned come first, in their order.
    return {
        split: {name: found[name] for name in dict.fromkeys((*files["train"], *found))}
        for split, found in corpora.items()
    }


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
    """Own pairs and extra pairs behind them, to be used as a `PairCorpus`.

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
        return [self.own, *(extra.corpus for extra in self.extra)]

    @property
    def sources(self):
        """The sources of all parts, a list."""
        return [text for corpus in self._corpora for text in corpus.sources]

    @property
    def targets(self):
        """The targets of all parts, a list."""
        return [text for corpus in self._corpora for text in corpus.targets]

    @property
    def tags(self):
        """The tags that a vocabulary must have, a tuple."""
        return (TAG,) if any(extra.tagged for extra in self.extra) else ()

    def head(self, number):
        """Returns the first `number` own pairs, and as many of each extra part."""
        return self._changed(self.own.head(number), lambda each: each.corpus.head(number))

    def without_long(self, tokenizers, source_length, target_length):
        """Leaves out long pairs, see `PairCorpus`; marks count."""
        source, target = tokenizers

        def shorter(each):
            towards = source.towards(target_of(each.direction)) if each.direction else source
            room = source_length - each.tagged
            return each.corpus.without_long((towards, target), room, target_length)

        return self._changed(
            self.own.without_long(tokenizers, source_length, target_length), shorter
        )

    def summary(self):
        """Returns a line for each part."""
        return "\n".join(corpus.summary() for corpus in self._corpora)

    def mixture(self, tokenizer):
        """Returns the `Mixture` of own and extra pairs, with the marks of a tokenizer.

        Raises:
            ValueError: If some are tagged and the tokenizer has no such mark.
        """
        marks_of_tags = getattr(tokenizer, "tags", {})
        if lacking := [tag for tag in self.tags if tag not in marks_of_tags]:
            raise ValueError(
                f"--extra: the vocabulary has no mark {lacking[0]}, as those of published models; "
                "have recipes.back_translate write such pairs with --no-tag."
            )
        own_parts = getattr(self.own, "parts", {"": self.own})
        parts = [(name, corpus, (), self.upsample) for name, corpus in own_parts.items()]
        for extra in self.extra:
            tag = (marks_of_tags[TAG],) if extra.tagged else ()
            parts.append((extra.direction, extra.corpus, tag, 1.0))
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
    """Returns the mark of the target language, if there are several."""
    return (tokenizer.language_marks[target_of(direction)],) if direction else ()


def extended(data, files, upsample=1.0):
    """Returns the `TranslationData` with extra training pairs, which are never tested with.

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
    held_out_sources = {*without_context([*data.valid.sources, *data.test.sources])}
    held_out_targets = {*without_context([*data.valid.targets, *data.test.targets])}
    for file in files:
        direction, path = _direction(str(file), getattr(data.train, "parts", {}))
        corpus, first = read_pairs(path), None
        for source, target in zip(corpus.sources, corpus.targets, strict=True):
            bare = source.removeprefix(TAG) if f"{source} ".startswith(f"{TAG} ") else source
            origin = direction, bare is not source
            names[origin][corpus.name] = True
            first = first or origin
            if bare.strip() in held_out_sources or target in held_out_targets:
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
    """Returns the corpus of a part, with its counts of pairs that were left out."""
    direction, tagged = origin
    name = " ".join(part for part in (direction, ", ".join(names), TAG if tagged else "") if part)
    return PairCorpus.from_pairs(name, pairs, left_out, len(pairs) + left_out.total())


def _direction(value, directions):
    """Returns direction and path of a value of `--extra`."""
    if not directions:
        return "", value
    match = re.fullmatch(rf"({DIRECTION.pattern})=(.+)", value, re.DOTALL)
    if match is None or match[1] not in directions:
        raise ValueError(
            f"--extra: the direction must stand in front, of {', '.join(directions)}, as "
            f"{next(iter(directions))}=a.tsv. Received: {value}"
        )
    return match[1], match[4]
