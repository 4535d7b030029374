"""Fingerprints of the files that a run reads, by which a resumed run knows its data again."""

import glob
import hashlib
import pathlib

WHOLE = 2**28  # bytes of a file or folder that are hashed in full
ENDS = 2**16  # of larger ones, the bytes at the beginning and at the end of each file
MOST_OPENED = 100_000  # of folders with more files, only names and sizes are hashed


def fingerprints(options):
    """Fingerprints of all files and folders that options name.

    Args:
        options: Dict of name -> value. A value is a path, a pattern such as "shards/*.tsv", a
            direction with a path such as "en-de=a.tsv", or a tuple of these. Other values are
            passed over.

    Returns:
        Dict of "name value" -> dict of `bytes`, `files` and `sha256`.
    """
    found = {}
    for name, value in options.items():
        for text in value if isinstance(value, tuple | list) else (value,):
            if not isinstance(text, str):
                continue
            files = _files(text) or _files(text.partition("=")[2])  # behind a direction
            if files:
                found[f"{name} {text}"] = _fingerprint(files)
    return found


def _files(text):
    """Pairs of the name to hash and the path of the files that a text names, a list."""
    if not text:
        return []
    try:
        path = pathlib.Path(text)
        if path.is_file():
            return [("", path)]
        if path.is_dir():
            files = (each for each in path.rglob("*") if each.is_file())
            named = [(each.relative_to(path).as_posix(), each) for each in files]
            return sorted(each for each in named if each[1].name != "lock")  # of a run
    except (OSError, ValueError):  # a long text, or one with a zero byte, is no path
        return []
    if not glob.has_magic(text):
        return []
    paths = map(pathlib.Path, sorted(glob.glob(text)))
    return [(str(path), path) for path in paths if path.is_file()]


def _fingerprint(files):
    digest = hashlib.sha256()
    sizes = [path.stat().st_size for _, path in files]
    whole = sum(sizes) <= WHOLE
    for (name, path), size in zip(files, sizes, strict=True):
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        if not whole and len(files) > MOST_OPENED:
            continue
        with open(path, "rb") as file:
            if whole:
                digest.update(hashlib.file_digest(file, "sha256").digest())
            else:
                digest.update(file.read(ENDS))
                file.seek(max(size - ENDS, 0))
                digest.update(file.read(ENDS))
    return {"bytes": sum(sizes), "files": len(files), "sha256": digest.hexdigest()}
