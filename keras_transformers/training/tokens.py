"""How models that predict tokens are trained."""

from typing import Any

from keras_transformers.training.linear_cross_entropy import LinearCrossEntropy
from keras_transformers.training.losses import SmoothedCrossEntropy
from keras_transformers.training.metrics import MaskedAccuracy, TokenCrossEntropy

# Entries of a vocabulary whose logits are too large to be made: 4 bytes for each and each token.
LARGE = 100_000


def token_learning(
    padding_id: int = 0, label_smoothing: float = 0.0, model: Any = None
) -> dict[str, Any]:
    """Loss and metrics of a model that predicts tokens; padding counts for nothing.

    Args:
        padding_id: The label that stands for padding.
        label_smoothing: Share of each label that is moved to the others.
        model: What is trained. One of this library with 100,000 tokens and more gets
            `LinearCrossEntropy`, the same loss without all logits at once.

    Returns:
        `loss` and `metrics` for `compile`.

    Example:
    >>> from keras_transformers.training import token_learning
    >>> [metric.name for metric in token_learning()["metrics"]]
    ['accuracy', 'cross_entropy']
    """
    found = model.output_table() if hasattr(model, "output_table") else None
    large = found is not None and found[0].vocab_size >= LARGE
    kind = LinearCrossEntropy if large else SmoothedCrossEntropy
    return {
        "loss": kind(label_smoothing, padding_id),
        "metrics": [MaskedAccuracy(padding_id), TokenCrossEntropy(padding_id)],
    }
