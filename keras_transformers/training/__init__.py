"""Losses, schedules, metrics and callbacks for `model.fit`."""

from keras_transformers.training.budget import BudgetedDecay
from keras_transformers.training.callbacks import (
    CheckpointAverage,
    Throughput,
    TranslationScores,
    score_translations,
)
from keras_transformers.training.losses import SmoothedCrossEntropy, token_cross_entropy
from keras_transformers.training.metrics import MaskedAccuracy, TokenCrossEntropy
from keras_transformers.training.optimizers import Muon, orthogonalize
from keras_transformers.training.schedules import InverseSquareRoot, WarmupLinear

__all__ = [
    "BudgetedDecay",
    "CheckpointAverage",
    "InverseSquareRoot",
    "MaskedAccuracy",
    "Muon",
    "SmoothedCrossEntropy",
    "Throughput",
    "TokenCrossEntropy",
    "TranslationScores",
    "WarmupLinear",
    "orthogonalize",
    "score_translations",
    "token_cross_entropy",
]
