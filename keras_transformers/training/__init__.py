"""Losses, schedules, metrics and callbacks for `model.fit`."""

from keras_transformers.training.callbacks import (
    CheckpointAverage,
    Throughput,
    TranslationScores,
    score_translations,
)
from keras_transformers.training.losses import SmoothedCrossEntropy, token_cross_entropy
from keras_transformers.training.metrics import MaskedAccuracy, TokenCrossEntropy
from keras_transformers.training.schedules import InverseSquareRoot

__all__ = [
    "CheckpointAverage",
    "InverseSquareRoot",
    "MaskedAccuracy",
    "SmoothedCrossEntropy",
    "Throughput",
    "TokenCrossEntropy",
    "TranslationScores",
    "score_translations",
    "token_cross_entropy",
]
