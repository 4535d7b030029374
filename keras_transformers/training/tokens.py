"""How models that predict tokens are trained."""

from typing import Any

from keras_transformers.training.linear_cross_entropy import LinearCrossEntropy
from keras_transformers.training.losses import SmoothedCrossEntropy
from keras_transformers.training.metrics import MaskedAccuracy, TokenCrossEntropy
from keras_transformers.training.r_drop import RDropCrossEntropy

# Entries of a vocabulary whose logits are too large to be made: 4 bytes for each and each token.
LARGE = 100_000


def token_learning(
    padding_id: int = 0, label_smoothing: float = 0.0, model: Any = None, r_drop: float = 0.0
) -> dict[str, Any]:
    """Loss and metrics of a model that predicts tokens; padding counts for nothing.

    Args:
        padding_id: The label that stands for padding.
        label_smoothing: Share of each label that is moved to the others.
        model: What is trained. One of this library with 100,000 tokens and more gets
            `LinearCrossEntropy`, the same loss without all logits at once.
        r_drop: Weight of R-Drop's second term: the loss is then `RDropCrossEntropy`, for batches
            of `streams.each_row_twice`.

    Returns:
        `loss` and `metrics` for `compile`.

    Raises:
        ValueError: If there are so many tokens, and `r_drop`, which needs all logits.

    Example:
    >>> from keras_transformers.training import token_learning
    >>> [metric.name for metric in token_learning()["metrics"]]
    ['accuracy', 'cross_entropy']
    """
    found = model.output_table() if hasattr(model, "output_table") else None
    large = found is not None and found[0].vocab_size >= LARGE
    if large and r_drop:
        raise ValueError(
            f"token_learning: `r_drop` must be 0 for a model with {LARGE:,} tokens and more, whose "
            f"logits are never made all at once. Received: r_drop={r_drop}"
        )
    kind = LinearCrossEntropy if large else SmoothedCrossEntropy
    loss = kind(label_smoothing, padding_id)
    return {
        "loss": RDropCrossEntropy(r_drop, label_smoothing, padding_id) if r_drop else loss,
        "metrics": [MaskedAccuracy(padding_id), TokenCrossEntropy(padding_id)],
    }
