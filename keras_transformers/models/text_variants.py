"""Numbers of models of text: which make which part, and how they are checked."""

from collections.abc import Mapping, Sequence
from typing import Any

from keras_transformers.models.settings import check_numbers

OF_BLOCK, OF_EMBEDDING = ("num_heads", "mlp_dim"), ("vocab_size", "hidden_dim", "max_length")


def check_text_numbers(
    owner: str, settings: Mapping[str, Any], further: Sequence[str] = ()
) -> None:
    """`check_numbers` of those that are there, of parts, of layers and `further` ones."""
    names = (*OF_EMBEDDING, *OF_BLOCK, "num_layers", *further)
    there = {name: settings[name] for name in names if settings.get(name) is not None}
    check_numbers(owner, there)
