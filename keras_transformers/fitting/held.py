"""What stands around a model that can learn."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Held:
    """A model and what stands around it.

    Args:
        model: The Keras model.
        tokenizer: Of texts.
        preprocessing: Of images, a `vision.Preprocessing`.
        labels: Names of the classes.
        options: Arguments of the exporter besides these, such as `search` and `lengths`.
        pooler_activation: Of published classifiers of the model's kind, for a new head.
        adapter: Arguments of `training.add_lora` for the next `fit`; None trains all weights, or
            the adapter that there is.
        label_separator: Separator of several labels in one str, as `fit` was given it; None: ",".

    Example:
    >>> from keras_transformers.fitting import Held
    >>> Held(model=None, labels=["cat", "dog"]).labels
    ['cat', 'dog']
    """

    model: Any
    tokenizer: Any = None
    preprocessing: Any = None
    labels: Sequence[str] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    pooler_activation: str = "tanh"
    adapter: Mapping[str, Any] | None = None
    label_separator: str | None = None
