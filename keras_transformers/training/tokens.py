"""How models that predict tokens are trained."""

from typing import Any

from keras_transformers.training.losses import SmoothedCrossEntropy
from keras_transformers.training.metrics import MaskedAccuracy, TokenCrossEntropy


def token_learning(padding_id: int = 0, label_smoothing: float = 0.0) -> dict[str, Any]:
    """Loss and metrics of a model that predicts tokens; padding counts for nothing.

    Args:
        padding_id: The label that stands for padding.
        label_smoothing: Share of each label that is moved to the others.

    Returns:
        `loss` and `metrics` for `compile`.

    Example:
    >>> from keras_transformers.training import token_learning
    >>> [metric.name for metric in token_learning()["metrics"]]
    ['accuracy', 'cross_entropy']
    """
    return {
        "loss": SmoothedCrossEntropy(label_smoothing, padding_id),
        "metrics": [MaskedAccuracy(padding_id), TokenCrossEntropy(padding_id)],
    }
