"""Losses, schedules, metrics and callbacks for `model.fit`."""

from keras_transformers.training.budget import BudgetedDecay
from keras_transformers.training.callbacks import (
    CheckpointAverage,
    Throughput,
    TranslationScores,
    score_translations,
)
from keras_transformers.training.checkpoints import Checkpoints
from keras_transformers.training.classification import (
    ClassificationScores,
    calibration_error,
    score_classes,
)
from keras_transformers.training.detection import DetectionScores, best_threshold, score_boxes
from keras_transformers.training.losses import SmoothedCrossEntropy, token_cross_entropy
from keras_transformers.training.memory import keep_freed_memory
from keras_transformers.training.metrics import MaskedAccuracy, Perplexity, TokenCrossEntropy
from keras_transformers.training.optimizers import AdamW, Muon, orthogonalize
from keras_transformers.training.resume import ExactResume
from keras_transformers.training.schedules import InverseSquareRoot, WarmupLinear

__all__ = [
    "AdamW",
    "BudgetedDecay",
    "CheckpointAverage",
    "Checkpoints",
    "ClassificationScores",
    "DetectionScores",
    "ExactResume",
    "InverseSquareRoot",
    "MaskedAccuracy",
    "Muon",
    "Perplexity",
    "SmoothedCrossEntropy",
    "Throughput",
    "TokenCrossEntropy",
    "TranslationScores",
    "WarmupLinear",
    "best_threshold",
    "calibration_error",
    "keep_freed_memory",
    "orthogonalize",
    "score_boxes",
    "score_classes",
    "score_translations",
    "token_cross_entropy",
]
