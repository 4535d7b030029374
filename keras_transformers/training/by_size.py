"""How long and how fast to fine-tune, by the number of labelled examples."""

import dataclasses
import math
from typing import Literal

import numpy as np

# Of `benchmarks/small_data.py`: epochs by the number of examples, and the peak of the rate. That
# for 20,000 texts is chosen, not measured. At the smallest sizes a lower rate or twice the epochs
# brought nothing.
EPOCHS = {"text": {200: 8, 2_000: 3, 20_000: 1}, "image": {100: 40, 1_000: 12, 10_000: 4}}
RATES = {"text": 1e-4, "image": 1e-3}
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

    The rule: the rate follows from the kind, 1e-4 for texts and 1e-3 for images, and so does the
    number of epochs at three sizes: 8, 3 and 1 for 200, 2,000 and 20,000 texts, 40, 12 and 4 for
    100, 1,000 and 10,000 images. Between these epochs lie on a straight line, both axes
    logarithmic; beyond them they stay. Batches hold 16 below 1,000 examples; above, 32 texts or 64
    images. `python -m benchmarks.small_data` measured it.

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
    if examples < 1 or kind not in EPOCHS:
        raise ValueError(
            "fine_tuning_numbers: `examples` must be positive, and `kind` one of "
            f"{', '.join(EPOCHS)}. Received: examples={examples}, kind={kind!r}"
        )
    sizes, epochs = np.log(list(EPOCHS[kind])), np.log(list(EPOCHS[kind].values()))
    repeated = round(math.exp(np.interp(math.log(examples), sizes, epochs)))
    batch = 16 if examples < SMALL_BATCHES else 32 if kind == "text" else 64
    return FineTuning(
        learning_rate=RATES[kind],
        epochs=repeated,
        batch_size=batch,
        warmup_steps=repeated * math.ceil(examples / batch) // 10,
    )
