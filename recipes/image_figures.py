"""What is drawn of a classifier of pictures: curves, confusion, and what answers draw on."""

import numpy as np

from keras_transformers.visualization import (
    confusion_matrix,
    images_with_attention,
    training_curves,
)


def draw(folder, history, model, preprocessing, data, probabilities, scores, attention):
    """Curves, confusion, and pictures with what was made of them.

    Args:
        attention: Function of model and normalised pictures to what the answer draws on, `(batch,
            rows, columns)`.
    """
    with folder.drawing("training_curves") as path:
        training_curves(history, path, ("loss", "accuracy"))
    classes = data.test.classes
    with folder.drawing("confusion") as path:
        confusion_matrix(scores.confusion, classes, path)
    with folder.drawing("predictions_attention") as path:
        draw_attention(path, model, preprocessing, data, probabilities, attention)


def draw_attention(path, model, preprocessing, data, probabilities, attention):
    """Test pictures, half of them classified wrongly, and what the answers draw on."""
    classes = data.test.classes
    predicted = probabilities.argmax(axis=1)
    wrong = np.flatnonzero(predicted != data.test.labels)[:8]
    right = np.flatnonzero(predicted == data.test.labels)[: 16 - len(wrong)]
    places = np.concatenate([right, wrong])
    shown = data.test.select(places).decoded(preprocessing).images
    titles = [
        f"{classes[data.test.labels[i]]}\n-> {classes[predicted[i]]}, {probabilities[i].max():.0%}"
        for i in places
    ]
    pixels = shown if shown.shape[-1] == 3 else shown.mean(-1, keepdims=True)
    images_with_attention(
        pixels / 255,
        attention(model, preprocessing.normalize(shown)),
        titles,
        path,
        title="True class -> predicted class and its probability, and what it draws on",
    )
