"""Parallel text for the recipes: embedded sets, TensorFlow Datasets, or the user's own files."""

import collections
import dataclasses
import functools
import re

from keras_transformers.core.words import without_context
from keras_transformers.data.splits import PARTS
from keras_transformers.shards import Shards
from keras_transformers.tables import PAIRS
from keras_transformers.text import (
    PairCorpus,
    SentencePieceTokenizer,
    coverage,
    encode_pairs,
    read_pairs,
    train_of_fitting_size,
)
from keras_transformers.text.tokenizers import mark_of_context
from keras_transformers.training import text_normalization

from . import data_sets
from .joined_corpora import (
    DIRECTION,
    JoinedCorpus,
    as_tuple,
    extended,
    parse_directions,
    read_directions,
    targets_of,
)

EMBEDDED = {"ui.en-de": ("English", "German"), "bible.en-es": ("English", "Spanish")}


@dataclasses.dataclass(frozen=True)
class TranslationData:
    """Pairs for training, validation and the test, and the names of both languages.

    The three are of type `PairCorpus`; with several directions, of type `JoinedCorpus`.
    """

    name: str
    train: PairCorpus
    valid: PairCorpus
    test: PairCorpus
    source_language: str = "source"
    target_language: str = "target"
    shards: Shards | None = None  # where they are a stream, of which `train` is a sample
    context: int = 0  # previous sources that stand before each, at most

    def corpora(self):
        """Returns a dict of split -> corpus."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def head(self, **numbers):
        """Returns the first pairs of splits, with a number of pairs for each."""
        corpora = self.corpora()
        heads = {split: corpora[split].head(number) for split, number in numbers.items()}
        return dataclasses.replace(self, **heads)

    def reversed(self):
        """Returns the pairs of the other direction of translation, in the same splits.

        Raises:
            ValueError: If there are several directions, which have their names, or a stream.
        """
        corpora = self.corpora()
        if self.shards is not None or any(isinstance(x, JoinedCorpus) for x in corpora.values()):
            raise ValueError(
                "--reverse is of one direction in memory. Exchange the --columns of a stream; name "
                "each of several directions as its columns are."
            )
        for split, corpus in corpora.items():
            corpora[split] = dataclasses.replace(
                corpus, sources=corpus.targets, targets=corpus.sources
            )
        languages = {
            "source_language": self.target_language,
            "target_language": self.source_language,
        }
        return dataclasses.replace(self, **corpora, **languages)


def load(
    dataset="ui.en-de",
    train=None,
    valid=None,
    test=None,
    data_dir=None,
    columns=(),
    temperature=1.0,
    extra=(),
    upsample=1.0,
    reverse=False,
    context=0,
):
    """Loads a set of sentence pairs; or several, of one direction of translation each.

    Args:
        dataset: "ui.en-de", "bible.en-es", or "FOLDER/NAME" of these; or "tfds:NAME" for a
            translation set of TensorFlow Datasets, for instance
            "tfds:ted_hrlr_translate/pt_to_en".
        train, valid, test: The user's own files instead, see `text.read_pairs`; what is not given
            is held out of the first. `train` can be a pattern, as "shards/*.jsonl": then it is a
            stream, and the others must be given.
        data_dir: Where TensorFlow Datasets keeps its files.
        columns: Names of source and target in own files, where they have others, or numbers, see
            `parse_columns`.
        temperature: Of the mixture of several directions, see `Mixture`. They are tuples of names
            or files with a direction in front, as "en-de=a.tsv"; embedded sets have one by name.
        extra, upsample: Files of pairs that are learned from besides, see `extended`.
        reverse: Whether targets are translated to sources. The splits are the same, so that what
            is tested with in one direction is not learned from in the other.
        context: Number of previous sources that stand before each, see `text.read_pairs`: own files
            alone have their rows in the order of documents.

    Returns:
        A `TranslationData`.

    Raises:
        ValueError: If the name is unknown, a file is missing from the three, or a set is unusable;
            or it has `context` and its rows are in no order.
    """
    if context and reverse:
        raise ValueError("--context: with --reverse it would be of targets; exchange the columns.")
    columns = data_sets.parse_columns(columns)
    data = _load(dataset, train, valid, test, data_dir, columns, temperature, context)
    _report_duplicates(data)
    return extended(data.reversed() if reverse else data, extra, upsample)


def _report_duplicates(data):
    """Prints the number of duplicate sources of each direction, except those of a stream."""
    if data.shards is not None:
        return
    sources = collections.defaultdict(dict)
    for split, corpus in data.corpora().items():
        for direction, part in getattr(corpus, "parts", {data.name: corpus}).items():
            sources[direction][split] = without_context(part.sources)
    for direction, of_direction in sources.items():
        data_sets.print_duplicates(direction, of_direction)


def _load(dataset, train, valid, test, data_dir, columns, temperature, context):
    files = {"train": as_tuple(train), "valid": as_tuple(valid), "test": as_tuple(test)}
    read = functools.partial(read_pairs, columns=columns or None, context=context)
    if context and not data_sets.has_own_files(files):
        raise ValueError(
            "--context: give files whose rows are in the order of documents, by --train; those of "
            f"data sets are shuffled. Received: {', '.join(map(str, as_tuple(dataset)))}"
        )
    if (found := _directions(dataset, files, data_dir, read)) is not None:
        corpora = {split: JoinedCorpus(parts) for split, parts in found.items()}
        corpora["train"] = dataclasses.replace(corpora["train"], temperature=temperature)
        return TranslationData(", ".join(found["train"]), **corpora, context=context)
    (dataset,) = as_tuple(dataset)
    files = {split: given[0] if given else None for split, given in files.items()}
    if data_sets.has_own_files(files):
        if shards := data_sets.find_shards(files, PAIRS, chosen=columns or None):
            if context:
                raise ValueError(f"--context: {files['train']} is a stream, which is shuffled.")
            return _of_shards(shards, files["valid"], files["test"], columns or None)
        corpora = {split: read(path) for split, path in files.items() if path}
        return TranslationData("own files", **data_sets.hold_out_missing(corpora), context=context)
    dataset = str(dataset)  # of a Path, too, the message is a sentence
    if dataset.startswith("tfds:"):
        return _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    name, folder = data_sets.split_name(dataset, EMBEDDED)
    if name is None:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:ted_hrlr_translate/pt_to_en), or give your own files with --train, "
            "--valid and --test."
        )
    folder_of_set = data_sets.find_embedded(name, name, folder)
    files = (next(folder_of_set.glob(f"{split}.tsv.*")) for split in PARTS)  # packed by gzip or xz
    return TranslationData(name, *map(read_pairs, files), *EMBEDDED[name])


def _directions(dataset, files, data_dir, read):
    """Returns a dict of split -> dict of direction -> corpus; None for one direction."""
    if data_sets.has_own_files(files):
        found = {split: parse_directions(given, f"--{split}") for split, given in files.items()}
        if not any(found.values()):
            return None
        for split, given in files.items():
            if given and not found[split]:
                raise ValueError(
                    f"--{split}: several directions are named, as en-de=a.tsv. Received: {given[0]}"
                )
        found = {split: paths or {} for split, paths in found.items()}
        return read_directions(found, read)
    names = list(map(str, as_tuple(dataset)))
    if len(names) == 1 and parse_directions(names, "--dataset") is None:
        return None
    sets = parse_directions([_with_direction(name) for name in names], "--dataset")
    sets = {name: load(which, data_dir=data_dir) for name, which in sets.items()}
    return {split: {name: data.corpora()[split] for name, data in sets.items()} for split in files}


def _with_direction(dataset):
    """Returns the name of a set with the direction that the name of an embedded set ends in."""
    name = re.search(rf"\.({DIRECTION.pattern})$", dataset)
    return f"{name[1]}={dataset}" if name and "=" not in dataset else dataset


def _of_shards(shards, valid, test, columns):
    pairs = (
        (source.decode(), target.decode()) for source, target in shards.sample(data_sets.SAMPLE)
    )
    sample = PairCorpus.from_pairs(f"Sample of {shards.name}", pairs)
    others = (read_pairs(path, columns=columns) for path in (valid, test))
    return TranslationData("own files", sample, *others, shards=shards)


def _from_tfds(name, data_dir):
    builder = data_sets.find_builder(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find_builder` would have said so

    features = builder.info.features or {}
    texts = [key for key in features if isinstance(features[key], tfds.features.Text)]
    if len(texts) != 2:
        raise ValueError(
            f"tfds:{name} is not a translation set: it needs two texts an example, but its "
            f"features are {', '.join(features)}."
        )
    keys = builder.info.supervised_keys
    source, target = keys if keys and set(keys) == set(texts) else texts
    data_sets.download(builder, name)
    parts = data_sets.find_splits(builder, name)
    missing = [split for split in PARTS if split not in parts]
    if missing:
        raise ValueError(
            f"tfds:{name} has no split {' or '.join(missing)}; it has "
            f"{', '.join(builder.info.splits)}. Write its pairs to files of your own."
        )

    def pairs(split):
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            yield example[source].decode(), example[target].decode()

    names = [parts[part] for part in PARTS]
    corpora = [PairCorpus.from_pairs(f"tfds:{name} {split}", pairs(split)) for split in names]
    return TranslationData(f"tfds:{name}", *corpora, source, target)


def train_tokenizer(data, vocab_size, normalization=None, pieces="unigram", byte_fallback=False):
    """Trains a tokenizer of all languages, with a mark of each if there are several directions.

    Marks of extra pairs and of previous sources are among its own, too. Prints how well the
    vocabulary suits each language, by the pairs that are held out.

    Args:
        data: A `TranslationData`.
        vocab_size: Number of pieces, or "auto" for what `train_of_fitting_size` finds.
        normalization: Of characters; None goes by the script.
        pieces: "unigram" or "bpe", see `SentencePieceTokenizer.train`.
        byte_fallback: Whether unknown characters become their bytes.
    """
    sides = without_context(data.train.sources), data.train.targets
    rule, texts = normalization or text_normalization(*sides), sum(sides, [])
    context = [mark_of_context(data.context)] if data.context else []

    def train(size):
        return SentencePieceTokenizer.train(
            texts,
            size,
            model_type=pieces,
            byte_fallback=byte_fallback,
            normalization=rule,
            languages=targets_of(data.train),
            tags=(*getattr(data.train, "tags", ()), *context),
        )

    is_automatic = vocab_size == "auto"
    tokenizer = train_of_fitting_size(train, texts) if is_automatic else train(vocab_size)
    by_rule = ", of which 95 % occur 100 times or more" if is_automatic else ""
    print(f"Vocabulary: {tokenizer.vocab_size} pieces{by_rule}, normalization {rule}")
    for language, texts in _by_language(data).items():
        report = coverage(tokenizer, texts)
        print(
            f"  {language}: {report.pieces_per_word:.2f} pieces a word, {report.unknown:.2%} "
            f"unknown, {report.used:.0%} of the vocabulary used"
        )
    return tokenizer


def _by_language(data):
    """Returns a dict of language -> texts with words, of the validation pairs."""
    sides, texts_by_language = (data.source_language, data.target_language), {}
    for name, corpus in getattr(data.valid, "parts", {"": data.valid}).items():
        languages = name.split("-") if name else sides
        for language, texts in zip(
            languages, (without_context(corpus.sources), corpus.targets), strict=True
        ):
            texts_by_language.setdefault(language, []).extend(texts)
    return {
        language: texts
        for language, texts in texts_by_language.items()
        if any(map(str.split, texts))
    }


def both(tokenizer):
    """Returns the tokenizers of sources and targets."""
    return tokenizer, tokenizer.for_targets() if hasattr(tokenizer, "for_targets") else tokenizer


def encode(corpus, tokenizers, **options):
    """Encodes pairs by the tokenizers of `both`, see `encode_pairs`."""
    source, target = tokenizers
    if hasattr(corpus, "mixture"):
        options["mixture"] = corpus.mixture(source)
    return encode_pairs(corpus.sources, corpus.targets, source, target_tokenizer=target, **options)
