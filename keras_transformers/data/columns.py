"""Columns of a table: which one holds what, by name, by position, or by its usual name."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

Chosen: TypeAlias = str | int | Sequence[str | int] | None  # names of columns, or their positions


@dataclasses.dataclass(frozen=True)
class Column:
    """What is wanted of a table, and the names under which it is looked for.

    Args:
        names: In lower case; the first is what messages call it.
        holds: "text"; "labels", a text, a number or a list of them; or "anything".

    Example:
    >>> from keras_transformers.tables import Column
    >>> Column(("source", "src")).name
    'source'
    """

    names: tuple[str, ...]
    holds: Literal["text", "labels", "anything"] = "text"

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.names[0]

    def value(self, given: Any) -> Any:
        """What a cell holds: a str, for labels also a list of str; None where there is none."""
        if self.holds == "anything":
            return None if missing(given) else given
        found = text_of(given)
        return None if isinstance(found, list) and self.holds != "labels" else found


LABELS = Column(("labels", "label", "classes", "class", "category", "sentiment", "score"), "labels")
TEXTS = Column(("text", "sentence", "review", "content", "comment", "message", "document"))
PAIRS = (
    Column(("source", "src", "input")),
    Column(("target", "tgt", "trg", "translation", "output", "summary")),
)


def text_of(value: Any) -> Any:
    """A str, or a list of str, of what a cell holds; numbers are names, too. None of others."""
    if isinstance(value, str):
        return value if is_unicode(value) else None
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        values = [text_of(each) for each in value]
        return values if all(isinstance(each, str) for each in values) else None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None


def missing(value: Any) -> bool:
    """Whether a cell is empty: None, or NaN as pandas has it."""
    return value is None or isinstance(value, float) and math.isnan(value)


def is_unicode(text: str) -> bool:
    """Whether there is no half of a surrogate pair in it, as for a byte that is no UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def plain(name: Any) -> str:
    """The name of a column as it is compared."""
    return str(name).strip().lower()


def chosen_columns(chosen: Chosen, columns: Sequence[Column]) -> list[str | int] | None:
    """What a user said of the columns, as a list with an entry for each; None if nothing.

    Raises:
        ValueError: If they are not as many as the columns that are wanted.
    """
    if chosen is None:
        return None
    listed = [chosen] if isinstance(chosen, str | int) else list(chosen)
    if len(listed) != len(columns):
        wanted = " and ".join(each.name for each in columns)
        raise ValueError(
            f"`columns` must have a name or a position for each of {wanted}. Received: {chosen!r}"
        )
    return listed


def is_header(cells: Sequence[str], columns: Sequence[Column]) -> bool:
    """True if the first line of a file names columns.

    It does if as many of its cells are known names as columns are wanted. One name is enough if it
    is a name of the labels, which are the last column, as in `image_id,label`: no class is called
    "label".
    """
    names = [plain(cell) for cell in cells]
    labels = columns[-1].names if columns[-1].holds == "labels" else ()
    if len(names) >= len(columns) and not set(names).isdisjoint(labels):
        return True
    known = {name for column in columns for name in column.names}
    return sum(name in known for name in names) >= len(columns)


def has_usual_name(names: Sequence[Any], columns: Sequence[Column]) -> bool:
    """True if one of the names of a table is a usual name of one of the columns."""
    usual = {name for column in columns for name in column.names}
    return any(plain(name) in usual for name in names)


def check_names_differ(where: str, names: Sequence[Any]) -> None:
    """Raises a ValueError if two columns of a table have the same name.

    Args:
        where: The table, for messages.
        names: The names of all its columns.
    """
    listed = [str(name) for name in names]
    repeated = [name for name in dict.fromkeys(listed) if listed.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{where}: more than one column is called {repeated[0]!r}; give each a name of its "
            f"own. The columns are {', '.join(listed)}."
        )


def positions_of(
    where: str, names: Sequence[str], columns: Sequence[Column], chosen: list[str | int] | None
) -> list[int | None]:
    """The position of each column among names, None where it is not there.

    Columns that are wanted are found by their names; where none of the names is known and there
    are as many as are wanted, they are in that order. All others are passed over, but one that
    says which part a row belongs to: rows to test with would be trained on.

    Args:
        where: File and line, for messages.
        names: Those of the columns there.
        columns: What is wanted.
        chosen: What the user said, see `chosen_columns`.

    Raises:
        ValueError: If a chosen column is not there, two have names of the same, or one is "split".
    """
    if chosen is not None:
        return [_chosen_position(where, names, each) for each in chosen]
    if "split" in map(plain, names):
        raise ValueError(
            f"{where}: the column 'split' is not followed; give a file for each part, or say with "
            f"`columns` which to take whatever its part. The columns are {', '.join(names)}."
        )
    positions: list[int | None] = [None] * len(columns)
    for position, name in enumerate(map(plain, names)):
        for i, column in enumerate(columns):
            if name not in column.names:
                continue
            if positions[i] is not None:
                raise ValueError(
                    f"{where}: another column is already {column.name!r} beside {name!r}; say "
                    f"which with `columns`. The columns are {', '.join(map(str, names))}."
                )
            positions[i] = position
    if len(names) == len(columns) and not has_usual_name(names, columns):
        return list(range(len(columns)))
    return positions


def _chosen_position(where: str, names: Sequence[str], chosen: str | int) -> int:
    if isinstance(chosen, int) and -len(names) <= chosen < len(names):
        return chosen % len(names)
    exact = [i for i, name in enumerate(names) if str(name).strip() == str(chosen).strip()]
    found = exact or [i for i, name in enumerate(names) if plain(name) == plain(chosen)]
    if len(found) != 1 or isinstance(chosen, int):
        raise ValueError(
            f"{where}: there is no column {chosen!r} of `columns`, or more than one; the columns "
            f"are {', '.join(map(str, names))}."
        )
    return found[0]


def chosen_key(where: str, keys: Sequence[Any], chosen: str | int) -> Any:
    """The key of a chosen column in rows that are dicts, by the keys of the first one.

    Another row may have a key that the first one lacks, so that a name stays as it is.

    Raises:
        ValueError: If it is a position, and there are not as many keys.
    """
    if isinstance(chosen, int):
        return keys[_chosen_position(where, keys, chosen)]
    alike = [key for key in keys if plain(key) == plain(chosen)]
    return alike[0] if chosen not in keys and len(alike) == 1 else chosen


def not_found(
    where: str, names: Sequence[Any], columns: Sequence[Column], positions: Sequence[int | None]
) -> ValueError:
    """The error for a table that lacks columns."""
    pairs = zip(columns, positions, strict=True)
    lacking = [column for column, position in pairs if position is None]
    wanted = "; ".join(f"{each.name} ({', '.join(each.names)})" for each in lacking)
    return ValueError(
        f"{where}: there is no column for {wanted}; the columns are "
        f"{', '.join(map(str, names)) or 'none'}. Say which with `columns`, for instance "
        f"columns={tuple(map(str, names[: len(columns)]))!r}."
    )


def flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row in which the texts of `translation`, a dict by language, stand by themselves."""
    inner = row.get("translation")
    return {**inner} if isinstance(inner, Mapping) else row
