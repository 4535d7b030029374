"""What is drawn of a classifier of images: confusion, and what answers draw on."""

from functools import partial
from textwrap import shorten

import numpy as np

from keras_transformers.visualization import comparison, confusion_matrix, images_with_attention

from .heat import ways
from .image_scores import in_words


def pictures(model, preprocessing, corpus, probabilities, scores):
    """What is drawn: dict of name -> function of the path.

    Args:
        corpus: The test set, whose images have these `probabilities` and `scores`.
    """
    drawn = partial(draw_attention, model, preprocessing, corpus, probabilities)
    if corpus.several:  # which have no confusion: each is there or not by itself
        return {"labels": partial(draw_labels, scores), "predictions_attention": drawn}
    confusion = partial(confusion_matrix, scores.confusion, corpus.classes)
    return {"confusion": confusion, "predictions_attention": drawn}


def draw_labels(scores, path):
    """How well each label is found, beside how often it is there."""
    rows = {row["class"]: row for row in scores.table if row["images"]}
    title = "Each label of the test set"
    comparison(rows, path, ["f1", "images"], logarithmic=["images"], title=title)


def draw_attention(model, preprocessing, corpus, probabilities, path):
    """Test images, half of them classified wrongly, and what the answers draw on."""
    true, said = (np.array(words) for words in in_words(probabilities, corpus))
    wrong = np.flatnonzero(true != said)[:6]
    right = np.flatnonzero(true == said)[: 12 - len(wrong)]
    indices = np.concatenate([right, wrong])
    shown = corpus.select(indices).decoded(preprocessing).images
    if corpus.several:
        names = [[shorten(of[i] or "none", 40) for i in indices] for of in (true, said)]
        titles = ["\n-> ".join(each) for each in zip(*names, strict=True)]
        about = "True labels -> predicted labels, and what those draw on"
    else:
        titles = [f"{true[i]}\n-> {said[i]}, {probabilities[i].max():.0%}" for i in indices]
        about = "True class -> predicted class and its probability, and what it draws on"
    pixels = shown if shown.shape[-1] == 3 else shown.mean(-1, keepdims=True)
    maps = ways(model, preprocessing.normalize(shown))
    images_with_attention(pixels / 255, maps, titles, path, columns=3, title=about)
