"""Parallel text for the recipes: embedded sets, TensorFlow Datasets, or the user's own files."""

import dataclasses

from keras_transformers.shards import Shards
from keras_transformers.tables import PAIRS
from keras_transformers.text import PairCorpus, SentencePieceTokenizer, encode_pairs, read_pairs
from keras_transformers.training import text_normalization

from .embedded import find as find_embedded
from .embedded import split_name
from .own_files import SAMPLE, held_out_of, own_files, shards_of
from .tfds import download, find

EMBEDDED = {"ui.en-de": ("English", "German"), "bible.en-es": ("English", "Spanish")}
SPLITS = {"train": "train", "valid": "validation", "test": "test"}  # ours -> TFDS's


@dataclasses.dataclass(frozen=True)
class TranslationData:
    """Pairs to learn from, to choose by and to score on, and what is translated into what."""

    name: str
    train: PairCorpus
    valid: PairCorpus
    test: PairCorpus
    source_language: str = "source"
    target_language: str = "target"
    shards: Shards | None = None  # where they are a stream, of which `train` is a sample

    def head(self, **numbers):
        """The first pairs of each split, so many."""
        kept = {split: getattr(self, split).head(number) for split, number in numbers.items()}
        return dataclasses.replace(self, **kept)


def load(dataset="ui.en-de", train=None, valid=None, test=None, data_dir=None, columns=()):
    """Loads a set of sentence pairs.

    Args:
        dataset: "ui.en-de", "bible.en-es", or "FOLDER/NAME" of these; or "tfds:NAME" for a
            translation set of TensorFlow Datasets, for instance
            "tfds:ted_hrlr_translate/pt_to_en".
        train, valid, test: The user's own files instead, see `text.read_pairs`; what is not given
            is held out of the first. `train` can be a pattern, as "shards/*.jsonl": then it is a
            stream, and the others must be given.
        data_dir: Where TensorFlow Datasets keeps its files.
        columns: Names of source and target in own files, where they have others.

    Returns:
        A `TranslationData`.

    Raises:
        ValueError: If the name is unknown, a file is missing from the three, or a set is unusable.
    """
    files = {"train": train, "valid": valid, "test": test}
    if own_files(files):
        if shards := shards_of(files, PAIRS, chosen=columns or None):
            return _of_shards(shards, valid, test, columns or None)
        read = {s: read_pairs(path, columns=columns or None) for s, path in files.items() if path}
        return TranslationData("own files", **held_out_of(read))
    dataset = str(dataset)  # of a Path, too, the message is a sentence
    if dataset.startswith("tfds:"):
        return _from_tfds(dataset.removeprefix("tfds:"), data_dir)
    name, folder = split_name(dataset, EMBEDDED)
    if name is None:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(EMBEDDED)}, tfds:NAME (for "
            "instance tfds:ted_hrlr_translate/pt_to_en), or give your own files with --train, "
            "--valid and --test."
        )
    there = find_embedded(name, name, folder)
    corpora = (read_pairs(there / f"{split}.tsv.gz") for split in SPLITS)
    return TranslationData(name, *corpora, *EMBEDDED[name])


def _of_shards(shards, valid, test, columns):
    pairs = ((source.decode(), target.decode()) for source, target in shards.sample(SAMPLE))
    sample = PairCorpus.from_pairs(f"Sample of {shards.name}", pairs)
    others = (read_pairs(path, columns=columns) for path in (valid, test))
    return TranslationData("own files", sample, *others, shards=shards)


def _from_tfds(name, data_dir):
    builder = find(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find` would have said so

    features = builder.info.features or {}
    texts = [key for key in features if isinstance(features[key], tfds.features.Text)]
    if len(texts) != 2:
        raise ValueError(
            f"tfds:{name} is not a translation set: it needs two texts an example, but its "
            f"features are {', '.join(features)}."
        )
    keys = builder.info.supervised_keys
    source, target = keys if keys and set(keys) == set(texts) else texts
    download(builder, name)
    missing = [split for split in SPLITS.values() if split not in builder.info.splits]
    if missing:
        raise ValueError(
            f"tfds:{name} has no split {' or '.join(missing)}; it has "
            f"{', '.join(builder.info.splits)}. Write its pairs to files of your own."
        )

    def pairs(split):
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            yield example[source].decode(), example[target].decode()

    corpora = (
        PairCorpus.from_pairs(f"tfds:{name} {split}", pairs(split)) for split in SPLITS.values()
    )
    return TranslationData(f"tfds:{name}", *corpora, source, target)


def train_tokenizer(data, vocab_size, normalization=None):
    """A tokenizer of both languages.

    Args:
        data: A `TranslationData`.
        vocab_size: Number of pieces.
        normalization: Of characters; None goes by the script.
    """
    sides = data.train.sources, data.train.targets
    rule = normalization or text_normalization(*sides)
    print(f"Vocabulary: {vocab_size} pieces, normalization {rule}")
    return SentencePieceTokenizer.train(sum(sides, []), vocab_size, normalization=rule)


def both(tokenizer):
    """The tokenizers of sources and targets."""
    return tokenizer, tokenizer.for_targets() if hasattr(tokenizer, "for_targets") else tokenizer


def encode(corpus, tokenizers, **options):
    """Pairs of id sequences by the tokenizers of `both`, see `encode_pairs`."""
    source, target = tokenizers
    return encode_pairs(corpus.sources, corpus.targets, source, target_tokenizer=target, **options)
