"""The user's own files instead of a data set."""


def own_files(files):
    """Whether there are files of the user's own.

    Args:
        files: Dict of split -> path or None.

    Raises:
        ValueError: If there are some, but not all.
    """
    missing = [f"--{name}" for name, path in files.items() if not path]
    if missing and len(missing) < len(files):
        raise ValueError(
            f"Own files need --train, --valid and --test; missing: {' and '.join(missing)}."
        )
    return not missing
