"""Texts for the recipes: embedded sets, TensorFlow Datasets, or the user's own files."""

import collections
import dataclasses

from keras_transformers.data.labels import indicator_size, names_of, whole_number
from keras_transformers.data.splits import PARTS
from keras_transformers.shards import Shards
from keras_transformers.tables import LABELS, TEXTS
from keras_transformers.tasks.text_classification import in_parts
from keras_transformers.text import TextCorpus, read_labelled, read_texts, row_of_labels

from . import data_sets, shakespeare

DOCUMENTS = {"shakespeare": shakespeare.by_work, "shakespeare-scenes": shakespeare.by_scene}
LABELLED = {"shakespeare-plays": shakespeare.passages}
PIECE = 256  # words, of which one can be held out of a long text


@dataclasses.dataclass(frozen=True)
class TextData:
    """Texts for training, validation and the test."""

    name: str
    train: TextCorpus
    valid: TextCorpus
    test: TextCorpus
    shards: Shards | None = None  # where they are a stream, of which `train` is a sample

    def corpora(self):
        """Returns a dict of split -> corpus."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def sample(self, **numbers):
        """Returns random samples of splits, with a number of texts for each."""
        corpora = self.corpora()
        samples = {split: corpora[split].sample(number) for split, number in numbers.items()}
        return dataclasses.replace(self, **samples)


def load_documents(dataset="shakespeare", train=None, valid=None, test=None, data_dir=None):
    """Loads texts without labels.

    Args:
        dataset: "shakespeare", works of which four are held out; "shakespeare-scenes", what is said
            in each scene; "FOLDER/NAME" of these; or "tfds:NAME" for a set of TensorFlow Datasets
            with a text feature.
        train, valid, test: The user's own instead: text files, folders of them, or tables, see
            `text.read_texts`; what is not given is held out of the first. `train` can be a pattern,
            as "shards/*.jsonl": then it is a stream, and the others must be given.
        data_dir: Where TensorFlow Datasets keeps its files.

    Returns:
        A `TextData`.

    Raises:
        ValueError: If the name is unknown, a file is missing from the three, or a set is unusable.
    """
    return _load(dataset, (train, valid, test), data_dir, DOCUMENTS, _read_documents, False)


def load_labelled(
    dataset="shakespeare-plays",
    train=None,
    valid=None,
    test=None,
    data_dir=None,
    separator=None,
    columns=(),
):
    """Loads texts with labels.

    Args:
        dataset: "shakespeare-plays", passages of forty words by the play that they are from, or
            "FOLDER/shakespeare-plays"; or "tfds:NAME" for a set of TensorFlow Datasets with a text
            and a class label.
        train, valid, test: The user's own files instead, see `read_labelled`; what is not given is
            held out of the first. `train` can be a pattern, as "shards/*.jsonl": then it is a
            stream, gone through once beforehand for the names of the classes, and the others must
            be given.
        data_dir: Where TensorFlow Datasets keeps its files.
        separator: What stands between several classes of a text, in own files; None for one each.
        columns: Names of text and class in own files, where they have others, or numbers, see
            `parse_columns`.

    Returns:
        A `TextData` whose corpora have labels.

    Raises:
        ValueError: As `load_documents`.
    """
    if separator is not None and train is None:
        raise ValueError(
            f"{dataset} has one class for each text; several are read from your own files, with "
            "--train, --valid and --test."
        )

    def read(files):
        return _read_labelled(files, separator, data_sets.parse_columns(columns) or None)

    return _load(dataset, (train, valid, test), data_dir, LABELLED, read, True)


def _load(dataset, paths, data_dir, embedded, read, labelled):
    files = dict(zip(PARTS, paths, strict=True))
    if data_sets.has_own_files(files):
        return _report_duplicates(TextData("own files", **read(files)))
    dataset = str(dataset)  # of a Path, too, the message is a sentence
    if dataset.startswith("tfds:"):
        name = dataset.removeprefix("tfds:")
        return _report_duplicates(TextData(dataset, **_from_tfds(name, data_dir, labelled)))
    name, folder = data_sets.split_name(dataset, embedded)
    if name is None:
        raise ValueError(
            f"There is no data set '{dataset}'. Choose {' or '.join(embedded)}, tfds:NAME (for "
            "instance tfds:imdb_reviews), or give your own files with --train, --valid and --test."
        )
    return TextData(name, **embedded[name](folder=folder))


def _report_duplicates(data):
    """Prints the number of duplicate texts, except those of a stream; returns the data."""
    corpora = data.corpora()
    if data.shards is not None:
        del corpora["train"]
    labels = None
    if all(corpus.labels is not None for corpus in corpora.values()):
        labels = {split: list(map(str, corpus.labels)) for split, corpus in corpora.items()}
    data_sets.print_duplicates(
        data.name, {split: corpus.texts for split, corpus in corpora.items()}, labels
    )
    return data


def _read_documents(files):
    if shards := data_sets.find_shards(files, [TEXTS]):
        texts = [text.decode() for (text,) in shards.sample(data_sets.SAMPLE)]
        corpora = {split: read_texts(files[split]) for split in ("valid", "test")}
        sample = TextCorpus(f"Sample of {shards.name}", texts)
        return {"train": sample, "shards": shards, **corpora}
    read = {split: read_texts(path) for split, path in files.items() if path}
    if len(read) < len(files):
        read["train"] = in_parts(read["train"], PIECE)
    return data_sets.hold_out_missing(read)


def _read_labelled(files, separator, columns):
    if shards := data_sets.find_shards(files, (TEXTS, LABELS), chosen=columns, row=list):
        classes, indicators = _classes_of(shards, separator)
        name, rows = f"Sample of {shards.name}", shards.sample(data_sets.SAMPLE)
        train = TextCorpus.labelled(name, rows, classes, separator=separator)
        row = row_of_labels(classes, separator, indicators)
        stream = {"shards": dataclasses.replace(shards, row=row)}
    else:
        train, stream = read_labelled(files["train"], None, separator, columns), {}
    others = {
        split: read_labelled(files[split], train.classes, separator, columns)
        for split in ("valid", "test")
        if files[split]
    }
    return data_sets.hold_out_missing({"train": train, **others, **stream})


def _classes_of(shards, separator):
    """Returns the names of the classes of a stream, and whether its labels are lists of 0 and 1."""
    names, sizes = set(), set()
    is_missing = False  # a label: whole numbers are then floats, as pandas writes them
    for part in shards.parts:
        for _, values in part.rows(shards.columns, shards.chosen, 0, shards.keys):
            if isinstance(values, str):
                is_missing |= repr(LABELS.name) in values
                continue
            label = values[1]
            is_missing |= label == ""
            sizes.add(indicator_size(label))
            names.update(names_of(label, separator))
    if len(sizes) == 1 and 0 not in sizes:
        (size,) = sizes
        return [str(number) for number in range(size)], True
    whole = {whole_number(name) for name in names}
    if is_missing and all(name.lstrip("+-").isdecimal() for name in whole):
        names = whole
    return sorted(names), False


def _from_tfds(name, data_dir, labelled):
    builder = data_sets.find_builder(name, data_dir)
    import tensorflow_datasets as tfds  # there, or `find_builder` would have said so

    features = builder.info.features or {}
    texts = [key for key in features if isinstance(features[key], tfds.features.Text)]
    labels = [key for key in features if isinstance(features[key], tfds.features.ClassLabel)]
    if not texts or (labelled and not labels):
        needs = "a text and a class label" if labelled else "a text"
        raise ValueError(
            f"tfds:{name} does not fit: it needs {needs} an example, but its features are "
            f"{', '.join(features)}."
        )
    text = "text" if "text" in texts else texts[0]
    label = ("label" if "label" in labels else labels[0]) if labelled else None
    data_sets.download(builder, name)

    def read(split):
        examples = tfds.as_numpy(builder.as_dataset(split=split))
        rows = [(e[text].decode(), int(e[label]) if labelled else None) for e in examples]
        complete = [(text, label) for text, label in rows if text.strip() and label != -1]
        left_out = collections.Counter({"empty or without a label": len(rows) - len(complete)})
        corpus = TextCorpus(
            f"tfds:{name} {split}",
            [text for text, _ in complete],
            [label for _, label in complete] if labelled else None,
            features[label].names if labelled else None,
            dict(left_out),
        )
        return corpus.checked("its texts are empty")

    return data_sets.hold_out_missing(
        {ours: read(theirs) for ours, theirs in data_sets.find_splits(builder, name).items()}
    )
