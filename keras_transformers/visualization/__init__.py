"""Figures of training and of attention, drawn from plain arrays with matplotlib."""

from keras_transformers.visualization.attention import (
    attention_heat_map,
    grid_position_similarity,
    images_with_attention,
    patch_filters,
    position_bias,
    position_similarity,
)
from keras_transformers.visualization.charts import (
    comparison,
    confusion_matrix,
    grouped_bars,
    learning_rate_range,
    most_confused,
    training_curves,
)
from keras_transformers.visualization.images import images_side_by_side, images_with_boxes

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
