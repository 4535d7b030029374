"""Fingerprints of the files that a run reads, by which a resumed run knows its data again."""

import glob
import hashlib
import pathlib
import re

WHOLE = 2**28  # bytes of a file or folder that are hashed in full
ENDS = 2**16  # of larger ones, the bytes at the beginning and at the end of each file
MOST_OPENED = 100_000  # of folders with more files, only names and sizes are hashed
DIRECTION = re.compile(r"[a-z]{2,3}(?:_\w+)?-[a-z]{2,3}(?:_\w+)?=", re.IGNORECASE)


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
            if isinstance(text, str) and (paths := _paths(text)):
                found[f"{name} {text}"] = _fingerprint(paths)
    return found


def _paths(text):
    """The files that a value names, with the names to hash; an empty list if it names none."""
    text = DIRECTION.sub("", text, count=1)
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
    return [(each, pathlib.Path(each)) for each in sorted(glob.glob(text)) if _is_file(each)]


def _is_file(text):
    return pathlib.Path(text).is_file()


def _fingerprint(named):
    digest, total = hashlib.sha256(), 0
    sizes = [path.stat().st_size for _, path in named]
    whole = sum(sizes) <= WHOLE
    for (name, path), size in zip(named, sizes, strict=True):
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        total += size
        if not whole and len(named) > MOST_OPENED:
            continue
        with open(path, "rb") as file:
            if whole:
                digest.update(hashlib.file_digest(file, "sha256").digest())
            else:
                digest.update(file.read(ENDS))
                file.seek(max(size - ENDS, 0))
                digest.update(file.read(ENDS))
    return {"bytes": total, "files": len(named), "sha256": digest.hexdigest()}
