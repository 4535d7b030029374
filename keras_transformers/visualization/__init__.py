"""Figures of training and of attention, drawn from plain arrays with matplotlib."""

from keras_transformers.visualization.attention import attention_heat_map, images_with_attention
from keras_transformers.visualization.bars import grouped_bars
from keras_transformers.visualization.curves import learning_rate_range, training_curves
from keras_transformers.visualization.embeddings import (
    grid_position_similarity,
    patch_filters,
    position_bias,
    position_similarity,
)
from keras_transformers.visualization.images import images_side_by_side, images_with_boxes
from keras_transformers.visualization.scores import comparison, confusion_matrix, most_confused

__all__ = [
    "attention_heat_map",
    "comparison",
    "confusion_matrix",
    "grid_position_similarity",
    "grouped_bars",
    "images_side_by_side",
    "images_with_attention",
    "images_with_boxes",
    "learning_rate_range",
    "most_confused",
    "patch_filters",
    "position_bias",
    "position_similarity",
    "training_curves",
]
