"""JSON that others wrote, read with suspicion."""

import json
from typing import Any

MOST_CONTAINERS = 250_000


def parse_json(
    data: bytes, most: int, where: Any, containers: float = MOST_CONTAINERS
) -> dict[str, Any]:
    """The JSON object in bytes.

    Args:
        data: The bytes.
        most: How many there may be.
        where: Its file, for messages.
        containers: How many lists and objects there may be; an empty list takes thirty times the
            memory of its text.

    Raises:
        ValueError: If it is too large, not JSON in UTF-8 (a byte order mark does no harm), no
            object, or has a key twice.
    """
    if len(data) > most:
        raise ValueError(f"{where} has more than {most / 2**20:g} MiB, too much for a JSON file.")
    if data.count(b"[") + data.count(b"{") > containers:
        raise ValueError(f"{where} has more than {containers} lists and objects.")

    try:
        found = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON in UTF-8: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError(f"{where} must hold a JSON object. Received: a {type(found).__name__}")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"it has the key {key[:100]!r} twice")
            seen.add(key)
    return found
