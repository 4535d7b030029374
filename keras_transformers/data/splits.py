"""The parts of a set: their names, and what is held out of one piece, by one rule for all data."""

import collections
import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from keras_transformers.core.types import Array

SHARE = 0.1  # of the rows
LEAST, MOST = 50, 1000  # rows; fewer say little, and more say it no better
LARGEST = 0.2  # share of the rows, however few these are

# What people call the parts of a set, in any case.
PARTS = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}


def part_of(name: str) -> str | None:
    """The part of a set that a name stands for, a key of `PARTS`; None for other names.

    Example:
    >>> from keras_transformers.data.splits import part_of
    >>> part_of("Validation"), part_of("cat")
    ('valid', None)
    """
    name = name.strip().casefold()
    return next((part for part, names in PARTS.items() if name in names), None)


def find_parts(where: str, names: Iterable[str], kind: str = "folder") -> dict[str, str]:
    """Finds the parts of a set by their names, such as those of folders.

    Args:
        where: Owner of the names, for messages.
        names: The names; those that stand for no part are passed over.
        kind: What has the names, for messages.

    Returns:
        Dict of "train", "valid" and "test" to the name that stands for it, of those that are there.

    Raises:
        ValueError: If two names stand for one part.

    Example:
    >>> from keras_transformers.data.splits import find_parts
    >>> find_parts("photos", ["Testing", "Training", "sketches"])
    {'train': 'Training', 'test': 'Testing'}
    """
    parts: dict[str, str] = {}
    for name in names:
        part = part_of(name)
        if part is not None and part in parts:
            raise ValueError(f"{where} has more than one {kind} for {part}: {parts[part]}, {name}")
        if part is not None:
            parts[part] = name
    return {part: parts[part] for part in PARTS if part in parts}


def number_held_out(rows: int) -> int:
    """How many of so many rows are held out: a tenth, from 50 to 1,000, at most a fifth of them.

    Example:
    >>> from keras_transformers.data.splits import number_held_out
    >>> [number_held_out(rows) for rows in (9, 100, 3_000, 1_000_000)]
    [1, 20, 300, 1000]
    """
    return min(max(round(SHARE * rows), LEAST), MOST, int(LARGEST * rows))


def held_out(
    keys: Sequence[str | bytes],
    seed: int = 0,
    strata: Sequence[Hashable] | None = None,
    number: int | None = None,
) -> Array:
    """Which rows are held out: those whose keys have the smallest hashes.

    Rows with one key stay together, so that nothing is scored on what it was taught. The choice
    does not depend on the order of the rows, and hardly changes when others come to them. Of a
    class with a single key nothing is held out, and never all of one.

    Args:
        keys: What a row is known by: the source text, or the bytes of an image. Case, and how many
            blanks there are, make no difference to a text.
        seed: Other seeds choose others.
        strata: What the share is to be the same of, such as the class of each row; None: of all
            rows together.
        number: How many; by default `number_held_out`. As keys stay together, it can be a few more.

    Returns:
        Bool `(rows,)`.

    Raises:
        ValueError: If there are too few rows, or keys, to hold one out.

    Example:
    >>> from keras_transformers.data.splits import held_out
    >>> kept = held_out(["a", "b", "c", "d", "A ", "e"], number=2)
    >>> int(kept.sum()), bool(kept[0] == kept[4])
    (3, True)
    """
    plain = [_plain(key) for key in keys]
    rows = len(plain)
    wanted = number_held_out(rows) if number is None else number
    chosen = _chosen(plain, seed, strata, lambda size: wanted * size / max(rows, 1))
    if wanted < 1 or not chosen.any():
        raise ValueError(
            f"{rows:,} rows with {len(set(plain)):,} different texts or images are too few to "
            "hold some out; give what to validate by as well."
        )
    return chosen


def share_held_out(
    keys: Sequence[str | bytes],
    share: float,
    seed: int = 0,
    strata: Sequence[Hashable] | None = None,
) -> Array:
    """Which rows are held out, chosen as by `held_out`: a share of each stratum.

    Of each stratum at least one row is held out, and never all: none if all have one key.

    Args:
        keys, seed, strata: As for `held_out`.
        share: In [0, 1], of the rows.

    Returns:
        Bool `(rows,)`.

    Example:
    >>> from keras_transformers.data.splits import share_held_out
    >>> share_held_out(["a", "a", "b", "b"], 0.5).sum().item()
    2
    """
    plain = [_plain(key) for key in keys]
    return _chosen(plain, seed, strata, lambda size: max(round(share * size), 1))


def count_duplicates(
    parts: Mapping[str, Sequence[str | bytes]],
    labels: Mapping[str, Sequence[Hashable]] | None = None,
) -> dict[str, int]:
    """Counts the rows that stand more than once in the parts of a set.

    Args:
        parts: Dict of part -> what each of its rows is known by, as for `held_out`.
        labels: Optional dict of part -> the label of each of its rows.

    Returns:
        Dict of where they stand -> number, of those that are not 0.

    Example:
    >>> from keras_transformers.data.splits import count_duplicates
    >>> count_duplicates({"train": ["a", "b", "b"], "test": ["b", "c"]})
    {'repeated in train': 1, 'of test also in train': 1}
    """
    plain = {part: [_plain(key) for key in keys] for part, keys in parts.items()}
    counts: collections.Counter[str] = collections.Counter()
    seen: dict[str, set[bytes]] = {}
    for part, keys in plain.items():
        counts[f"repeated in {part}"] = len(keys) - len(set(keys))
        for other, known in seen.items():
            counts[f"of {part} also in {other}"] = sum(key in known for key in keys)
        seen[part] = set(keys)
    labels_of: dict[bytes, set[Hashable]] = collections.defaultdict(set)
    for part, of_part in (labels or {}).items():
        for key, label in zip(plain[part], of_part, strict=True):
            labels_of[key].add(label)
    counts["with several labels"] = sum(len(found) > 1 for found in labels_of.values())
    return dict(+counts)


def _chosen(
    keys: Sequence[bytes],
    seed: int,
    strata: Sequence[Hashable] | None,
    wanted_of: Callable[[int], float],
) -> Array:
    """Bool `(rows,)`: of each stratum `wanted_of(its rows)`, by the hashes of the keys."""
    rows_of: dict[bytes, list[int]] = collections.defaultdict(list)
    for row, key in enumerate(keys):
        rows_of[key].append(row)
    chosen = np.zeros(len(keys), bool)
    order = sorted(rows_of, key=lambda key: _hashed(key, seed))
    groups: dict[Hashable, list[bytes]] = collections.defaultdict(list)
    for key in order:
        groups[None if strata is None else _stratum(strata, rows_of[key])].append(key)
    for keys_of_group in groups.values():
        wanted = wanted_of(sum(len(rows_of[key]) for key in keys_of_group))
        taken = 0
        for key in keys_of_group[: len(keys_of_group) - 1]:  # never all
            if taken + 0.5 > wanted:
                break
            chosen[rows_of[key]] = True
            taken += len(rows_of[key])
    return chosen


def _stratum(strata: Sequence[Hashable], rows: Sequence[int]) -> Hashable:
    """That of several rows with one key: the one that most have, and of these the first sorted."""
    counts = collections.Counter(strata[row] for row in rows)
    return min(counts, key=lambda each: (-counts[each], repr(each)))


def _plain(key: str | bytes) -> bytes:
    return key if isinstance(key, bytes) else " ".join(key.casefold().split()).encode()


def _hashed(key: bytes, seed: int) -> bytes:
    return hashlib.blake2b(key, digest_size=16, salt=seed.to_bytes(8, "little")).digest()
