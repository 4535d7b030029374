"""The user's own labelled images: in folders, in tables, or as arrays."""

from keras_transformers.data.array_files import read_arrays
from keras_transformers.data.splits import PARTS, find_parts, part_of
from keras_transformers.tables import ENDINGS, ending
from keras_transformers.vision import ImageCorpus, read_folder, read_listed
from keras_transformers.vision.reading import folders_in, parts_of_folder

FOR_SEVERAL = (
    "recipes.vit and recipes.swin learn from such with --problem-type multi_label_classification."
)
TABLES = "labels.csv, .tsv or .jsonl, or train, valid and test in its place"


def from_npz(path, name, several=False):
    """Dict of part -> corpus, of an `.npz` file; its name stands in those of the corpora."""
    arrays = {key.lower(): array for key, array in read_arrays(path).items()}
    pairs = [key.removeprefix("x_") for key in arrays if key.startswith("x_")]
    parts = find_parts(str(path), [key for key in pairs if f"y_{key}" in arrays], "pair of arrays")
    needed = [f"{axis}_{part}" for part in ("train", "test") if part not in parts for axis in "xy"]
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}; it holds {', '.join(arrays) or 'nothing'}."
        )
    labels = {part: arrays[f"y_{theirs}"] for part, theirs in parts.items()}
    wide = {part: y.shape[1] if y.ndim == 2 else 1 for part, y in labels.items()}
    if not several and max(wide.values()) > 1:
        raise ValueError(f"{path} has {max(wide.values())} labels for each image; {FOR_SEVERAL}")
    classes = arrays.get("class_names")
    if classes is None:
        most = max(wide.values() if several else (int(y.max()) + 1 for y in labels.values()))
        classes = [str(number) for number in range(most)]
    return {
        part: ImageCorpus.from_arrays(
            f"{name} {part}", arrays[f"x_{theirs}"], labels[part], list(classes), several
        )
        for part, theirs in parts.items()
    }


def _tables(path):
    """Dict of part -> its table in a folder, of those that are there."""
    tables = {}
    for file in sorted(path.iterdir()):
        kind, name = ending(file), file.name.lower().removesuffix(".gz").removesuffix(".xz")
        stem = name.removesuffix(kind)
        part = "train" if stem == "labels" else part_of(stem)
        if kind in ENDINGS and part is not None:
            tables.setdefault(part, []).append(file)
    for part, files in tables.items():
        if len(files) > 1:
            listed = ", ".join(file.name for file in files)
            raise ValueError(f"{path} has more than one table for {part}: {listed}")
    return {part: tables[part][0] for part in PARTS if part in tables}


def from_tables(path, separator):
    """Dict of part -> corpus, of a folder with tables of images and their labels."""
    tables = _tables(path)
    if "train" not in tables:
        raise ValueError(f"{path} holds no table of images to learn from: {TABLES}.")
    return read_listed(tables, separator)


def from_folder(path):
    """Dict of part -> corpus, of a folder with a folder of images for each class."""
    inside = folders_in(path)
    parts = parts_of_folder(path)
    if len(inside) < 2 and not parts and (tables := list(_tables(path).values())):
        raise ValueError(f"{path} has labels in a table, {tables[0].name}; {FOR_SEVERAL}")
    if not parts:
        return {"train": read_folder(path)}
    others = [name for name in inside if name not in parts.values()]
    if others:
        print(f"{path}: {', '.join(others)} is no part of a set, and is passed over")
    train = read_folder(path / parts.pop("train"))
    others = {part: read_folder(path / name, train.classes) for part, name in parts.items()}
    return {"train": train, **others}
