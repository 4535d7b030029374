"""Losses, schedules, metrics and callbacks for `model.fit`."""

from keras_transformers.data.labels import several_hot
from keras_transformers.training.adapters import (
    active_adapters,
    adapters_of,
    add_lora,
    combine_adapters,
    merge,
    remove_lora,
    set_adapter,
    unmerge,
)
from keras_transformers.training.callbacks import CheckpointAverage, Throughput, Tracker
from keras_transformers.training.checkpoints import Checkpoints
from keras_transformers.training.classification import (
    ClassificationScores,
    LabelScores,
    TagScores,
    calibration_error,
    classification_accuracy,
    classification_loss,
    score_classes,
    score_labels,
    score_tags,
)
from keras_transformers.training.detection import DetectionScores, best_threshold, score_boxes
from keras_transformers.training.distillation import Distiller, distillation_loss
from keras_transformers.training.fine_tuning import (
    FineTuning,
    GradualUnfreezing,
    block_depths,
    fine_tuning_numbers,
)
from keras_transformers.training.losses import (
    LinearCrossEntropy,
    RDropCrossEntropy,
    SmoothedCrossEntropy,
    TokenResults,
    linear_cross_entropy,
    token_cross_entropy,
)
from keras_transformers.training.memory import keep_freed_memory
from keras_transformers.training.metrics import (
    LabelAccuracy,
    MaskedAccuracy,
    Perplexity,
    TokenCrossEntropy,
    token_learning,
)
from keras_transformers.training.muon import Muon, orthogonalize
from keras_transformers.training.optimizers import AdamW, Lamb
from keras_transformers.training.range_test import RangeTest, learning_rate_range_test
from keras_transformers.training.resume import ExactResume
from keras_transformers.training.schedules import BudgetedDecay, InverseSquareRoot, WarmupLinear
from keras_transformers.training.translation import (
    SystemScore,
    TranslationReport,
    TranslationScores,
    alignment_error_rate,
    bleu_tokenizer,
    compare_translations,
    count_words,
    report_translations,
    score_translations,
    sentence_chrf,
    text_normalization,
)

__all__ = [
    "AdamW",
    "BudgetedDecay",
    "CheckpointAverage",
    "Checkpoints",
    "ClassificationScores",
    "DetectionScores",
    "Distiller",
    "ExactResume",
    "FineTuning",
    "GradualUnfreezing",
    "InverseSquareRoot",
    "LabelAccuracy",
    "LabelScores",
    "Lamb",
    "LinearCrossEntropy",
    "MaskedAccuracy",
    "Muon",
    "Perplexity",
    "RDropCrossEntropy",
    "RangeTest",
    "SmoothedCrossEntropy",
    "SystemScore",
    "Throughput",
    "TagScores",
    "TokenCrossEntropy",
    "TokenResults",
    "Tracker",
    "TranslationReport",
    "TranslationScores",
    "WarmupLinear",
    "active_adapters",
    "adapters_of",
    "add_lora",
    "alignment_error_rate",
    "best_threshold",
    "bleu_tokenizer",
    "block_depths",
    "calibration_error",
    "classification_accuracy",
    "classification_loss",
    "combine_adapters",
    "compare_translations",
    "count_words",
    "distillation_loss",
    "fine_tuning_numbers",
    "keep_freed_memory",
    "learning_rate_range_test",
    "linear_cross_entropy",
    "merge",
    "orthogonalize",
    "remove_lora",
    "report_translations",
    "score_boxes",
    "score_classes",
    "score_labels",
    "score_tags",
    "score_translations",
    "sentence_chrf",
    "set_adapter",
    "several_hot",
    "text_normalization",
    "token_cross_entropy",
    "token_learning",
    "unmerge",
]
