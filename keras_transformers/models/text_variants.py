"""How flat keywords of `from_variant` become parts of a model of text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_transformers.models.settings import check_divides, check_sizes

OF_BLOCK, OF_EMBEDDING = ("num_heads", "mlp_dim"), ("vocab_size", "hidden_dim", "max_length")


def check_numbers(owner: str, settings: Mapping[str, Any], optional: Sequence[str] = ()) -> None:
    """Raises ValueError unless the numbers that are there are positive, and heads fit the width."""
    names = (*OF_EMBEDDING, *OF_BLOCK, "num_layers")
    there = [name for name in names if settings.get(name) is not None]
    check_sizes(owner, settings, there, [name for name in optional if name in settings])
    if {"num_heads", "hidden_dim"} <= {*there}:
        check_divides(owner, settings, "num_heads", "hidden_dim")


def with_part(
    settings: Mapping[str, Any],
    changes: Mapping[str, Any],
    part: str,
    make: Callable[..., Any],
    numbers: Sequence[str],
    words: Sequence[str],
) -> dict[str, Any]:
    """Flat settings with a part in the place of the numbers it stands for, where there must be one.

    Args:
        settings: Those of a variant, with changes.
        changes: What the user gave, who is told of a number beside a part by the constructor.
        part: Its name.
        make: Function of the numbers and words that makes it.
        numbers: Names of the numbers that stand for the default part.
        words: Names of further keywords, by one of which the part is another.
    """
    given = changes.get(part) is not None
    of_words = {name: settings[name] for name in words if name in settings}
    if not given and not of_words:
        return dict(settings)
    left = {k: v for k, v in settings.items() if k not in numbers or (given and k in changes)}
    if not given:
        of_numbers = {name: settings[name] for name in numbers if name in settings}
        left[part] = make(**of_numbers, **of_words)
    return left
