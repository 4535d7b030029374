"""How long and how fast to fine-tune, by the number of labelled examples."""

import dataclasses
import math
from typing import Literal

import numpy as np

# Epochs and the peak of the learning rate at sizes that `benchmarks/small_data.py` has measured.
MEASURED = {
    "text": {200: (8, 2e-4), 2_000: (3, 1e-4), 20_000: (1, 1e-4)},
    "image": {100: (40, 1e-3), 1_000: (12, 1e-3), 10_000: (4, 1e-3)},
}
SMALL_BATCHES = 1_000  # examples below which a batch holds 16


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """Numbers for fine-tuning a pre-trained encoder, see `fine_tuning_numbers`.

    Attributes:
        learning_rate: The peak of AdamW's rate, which decays to 0 over all steps.
        epochs: Times that the examples are seen.
        batch_size: Examples in a batch.
        warmup_steps: Steps until the peak: a tenth of all.

    Example:
    >>> from keras_transformers.training import FineTuning
    >>> FineTuning(learning_rate=1e-4, epochs=3, batch_size=32, warmup_steps=19).epochs
    3
    """

    learning_rate: float
    epochs: int
    batch_size: int
    warmup_steps: int


def fine_tuning_numbers(examples: int, kind: Literal["text", "image"] = "text") -> FineTuning:
    """A learning rate, epochs, a batch size and a warm-up for so many labelled examples.

    The rule: epochs and rate are those that were best at the sizes measured (`docs/tuning.md`,
    `benchmarks/small_data.py`); between two sizes both lie on a straight line over the logarithm of
    the number, with logarithms of their own; beyond the smallest and the largest they stay. Batches
    hold 16 below 1,000 examples; above, 32 texts or 64 images.

    Args:
        examples: Labelled rows to train on.
        kind: Whether they are "text" or "image".

    Raises:
        ValueError: If `examples` is not positive, or there is no such kind.

    Example:
    >>> from keras_transformers.training import fine_tuning_numbers
    >>> numbers = fine_tuning_numbers(3000)
    >>> numbers.epochs, numbers.batch_size, numbers.warmup_steps
    (2, 32, 18)
    """
    if examples < 1 or kind not in MEASURED:
        raise ValueError(
            "fine_tuning_numbers: `examples` must be positive, and `kind` one of "
            f"{', '.join(MEASURED)}. Received: examples={examples}, kind={kind!r}"
        )
    sizes = np.log(list(MEASURED[kind]))
    epochs, rates = np.log(list(MEASURED[kind].values())).T
    size = math.log(examples)
    repeated = max(round(math.exp(np.interp(size, sizes, epochs))), 1)
    batch = 16 if examples < SMALL_BATCHES else 32 if kind == "text" else 64
    return FineTuning(
        learning_rate=float(f"{math.exp(np.interp(size, sizes, rates)):.2g}"),
        epochs=repeated,
        batch_size=batch,
        warmup_steps=repeated * math.ceil(examples / batch) // 10,
    )
