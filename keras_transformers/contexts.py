"""Sentences with those before them: how a text says so to a translator that reads them."""

from collections.abc import Iterable, Sequence

SEPARATOR = "\x1e"  # "record separator" of ASCII; nobody types it, and no XML file can hold it


def in_context(sentence: str, previous: Sequence[str]) -> str:
    r"""A sentence behind those before it, with U+001E between: what a translator is asked for.

    Args:
        sentence: What is to be translated.
        previous: The sentences before it, the nearest last; U+001E in one becomes a space.

    Example:
    >>> from keras_transformers.contexts import in_context
    >>> in_context("It is open.", ["Look at the door."])
    'Look at the door.\x1eIt is open.'
    """
    parts = (" ".join(each.split(SEPARATOR)).strip() for each in (*previous, sentence))
    return SEPARATOR.join(parts)


def without_context(texts: Iterable[str]) -> list[str]:
    r"""The sentences alone.

    Example:
    >>> from keras_transformers.contexts import without_context
    >>> without_context(["Look at the door.\x1eIt is open.", "Go in."])
    ['It is open.', 'Go in.']
    """
    return [text.rpartition(SEPARATOR)[2] for text in texts]


def refused_context(text: str | bytes, most: int) -> str | None:
    r"""What is wrong with a text that has more previous sentences than a translator reads.

    Args:
        text: With U+001E behind each of them.
        most: How many it reads.

    Example:
    >>> from keras_transformers.contexts import refused_context
    >>> refused_context("One.\x1eTwo.", 0)
    'must have no previous sentences (U+001E): the translator was trained without. Received: 1'
    """
    encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    number = encoded.count(SEPARATOR.encode())
    if number <= most:
        return None
    how = f"with up to {most}" if most else "without"
    least = f"at most {most}" if most else "no"
    return (
        f"must have {least} previous sentences (U+001E): the translator was trained {how}. "
        f"Received: {number}"
    )
