"""Where the embedded data sets are: a clone has all, an installed package the small ones."""

import pathlib

HERE = pathlib.Path(__file__).parent
CLONE = pathlib.Path("recipes", "data")  # where the current directory is a clone


def split_name(dataset, names):
    """Name and folder of an embedded set that is given as `NAME` or `FOLDER/NAME`.

    Args:
        dataset: What the user has given, a str.
        names: Of the embedded sets.

    Returns:
        The name, and the folder or None; None and None if it is no embedded set.
    """
    path = pathlib.Path(dataset)
    if path.name not in names:
        return None, None
    return path.name, path.parent if str(path) != path.name else None


def find(name, file, folder=None):
    """The path of an embedded set.

    Args:
        name: Of the set.
        file: Of its file or folder.
        folder: Where it must be; None for beside this module, or in the clone that is the current
            directory.

    Raises:
        FileNotFoundError: If it is not there.
    """
    for there in (HERE, CLONE) if folder is None else (pathlib.Path(folder),):
        if (there / file).exists():
            return there / file
    if folder is not None:
        raise FileNotFoundError(f"The data set {name} needs {file}, which is not in {folder}.")
    raise FileNotFoundError(
        f"The data set {name} is too large for the installed package. {file} is in recipes/data of "
        "a clone of the repository, and of the source distribution (`pip download --no-deps "
        "--no-binary :all: keras_transformers`). Work in that folder, or say where it is: "
        f"--dataset CLONE/recipes/data/{name}"
    )
