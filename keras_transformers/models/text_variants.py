"""Numbers of models of text: which make which part, and how they are checked."""

from collections.abc import Mapping, Sequence
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
