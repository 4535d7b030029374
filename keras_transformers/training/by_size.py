"""Numbers for fine-tuning that follow from how many examples there are."""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """How long and how fast to learn.

    Args:
        learning_rate: The peak.
        epochs: Of the examples.
        batch_size: Examples in a batch.
        warmup_steps: To the peak.

    Example:
    >>> from keras_transformers.training import fine_tuning_numbers
    >>> fine_tuning_numbers(3000).batch_size
    32
    """

    learning_rate: float
    epochs: int
    batch_size: int
    warmup_steps: int


def fine_tuning_numbers(examples: int, kind: Literal["text", "image"] = "text") -> FineTuning:
    """Numbers for so many labelled examples.

    Args:
        examples: Rows to learn from.
        kind: "text" or "image".

    Example:
    >>> from keras_transformers.training import fine_tuning_numbers
    >>> fine_tuning_numbers(200).epochs > fine_tuning_numbers(20_000).epochs
    True
    """
    batch_size = 16 if examples < 1000 else 32
    epochs = min(max(round(20_000 / max(examples, 1)), 3), 20)
    steps = epochs * math.ceil(examples / batch_size)
    return FineTuning(1e-4 if kind == "image" else 5e-5, epochs, batch_size, steps // 10)
