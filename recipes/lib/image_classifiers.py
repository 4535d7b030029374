"""Scores, tables and figures of image classifiers, and maps of what their answers draw on."""

import itertools
from functools import partial
from textwrap import shorten

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.inspection import (
    attention_gradients,
    attention_maps,
    attention_relevance,
    attention_rollout,
)
from keras_transformers.models import ViT
from keras_transformers.tasks.classes import THRESHOLD
from keras_transformers.training import (
    AdamW,
    classification_accuracy,
    classification_loss,
    score_classes,
    score_labels,
)
from keras_transformers.vision import WaitingClock
from keras_transformers.visualization import comparison, confusion_matrix, images_with_attention

from . import training
from .fine_tuning import unfreezing_callbacks

HEADS = "(distillation_)?head"  # paths of the heads of image classifiers


def compile_classifier(config, model):
    """Compiles a model of labelled images, whose head is new."""
    numbers, kind = config.training, model.problem_type
    averages = {"use_ema": numbers.ema is not None, "ema_momentum": numbers.ema or 0.99}
    optimizer = training.make_optimizer(
        config, AdamW, beta_2=0.98, global_clipnorm=numbers.clip_norm, **averages
    )
    loss = classification_loss(kind, numbers.label_smoothing)
    metrics = [classification_accuracy(kind)]
    return training.compile_model(config, model, optimizer, new=HEADS, loss=loss, metrics=metrics)


def fit_images(config, folder, model, batches, valid, number):
    """Fits a classifier to `number` images.

    Returns:
        The history, and a dict of what was measured on the way.
    """
    clock, batch_size = WaitingClock(), min(config.training.batch_size, number)
    steps = number // batch_size
    callbacks = [keras.callbacks.SwapEMAWeights()] if config.training.ema else []
    callbacks += unfreezing_callbacks(config, steps)
    options = {"watch": clock.watch, "validation_data": valid}
    history = training.fit(config, folder, model, batches, steps, callbacks, **options)
    seconds = history["seconds"]
    epoch_seconds = np.median(np.diff(seconds)) if len(seconds) > 1 else seconds[0]
    return history, {
        "share_of_time_waiting_for_data": float(clock.seconds.numpy()) / seconds[-1],
        "images_per_second": float(steps * batch_size / epoch_seconds),
    }


def score(probabilities, corpus, history):
    """Scores the probabilities of a classifier on a corpus.

    Returns:
        The scores of all classes, see `score_classes` and `score_labels`; and a dict of metrics.
    """
    if corpus.several:
        scores = score_labels(probabilities, corpus.labels, corpus.classes)
        metrics = {f"test_{name}": value for name, value in scores.numbers().items()}
        valid = {"valid_accuracy": history["val_accuracy"][-1]}
    else:
        scores = score_classes(probabilities, corpus.labels, corpus.classes)
        metrics = {
            "test_top1": 100 * scores.top1,
            "test_top5": 100 * scores.top5,
            "test_calibration_error": scores.calibration_error,
        }
        valid = {"valid_top1": 100 * history["val_accuracy"][-1]}
    for row in scores.table:
        print("  {class:20} precision {precision:.3f}  recall {recall:.3f}".format(**row))
    return scores, {**metrics, "test_examples": len(corpus.labels), **valid}


def describe_answers(probabilities, corpus):
    """Returns the true and the predicted labels of each image: two lists of text."""
    if corpus.several:
        indicators = (corpus.labels, probabilities >= THRESHOLD)
        return [
            [", ".join(itertools.compress(corpus.classes, row)) for row in rows]
            for rows in indicators
        ]
    classes = (corpus.labels, probabilities.argmax(1))
    return [[corpus.classes[i] for i in numbers] for numbers in classes]


def tables(folder, scores, probabilities, corpus):
    """Returns tables of classes and of images to write, a dict of name -> function of the path."""

    def classes(path):
        header = ["class", "images", "precision", "recall", "f1"]
        folder.write_table(path.name, header, [list(row.values()) for row in scores.table])

    def predictions(path):  # with the probability of the most probable class
        header = ["labels" if corpus.several else "label", "predicted", "probability"]
        highest = [f"{probability:.6f}" for probability in probabilities.max(axis=1)]
        rows = zip(*describe_answers(probabilities, corpus), highest, strict=True)
        folder.write_table(path.name, header, rows)

    return {"classes.tsv": classes, "predictions.tsv": predictions}


def show_use(folder, corpus, preprocessing):
    """Writes the first image of a corpus, and prints how its class or labels are asked for."""
    image = corpus.select([0]).decoded(preprocessing).images[0]
    key = "labels" if corpus.several else "label"
    example = folder.write_example(image)
    folder.show_use(example, f'{{}}["{key}"]', lambda answer: answer[key])


# Figures.


def pictures(model, preprocessing, corpus, probabilities, scores):
    """Returns the figures to draw, a dict of name -> function of the path.

    Args:
        corpus: The test set, whose images have these `probabilities` and `scores`.
    """
    draw_answers = partial(draw_attention, model, preprocessing, corpus, probabilities)
    if corpus.several:  # labels that do not exclude each other have no confusion matrix
        return {"labels": partial(draw_labels, scores), "predictions_attention": draw_answers}
    confusion = partial(confusion_matrix, scores.confusion, corpus.classes)
    return {"confusion": confusion, "predictions_attention": draw_answers}


def draw_labels(scores, path):
    """Draws the F1 score of each label beside its number of images."""
    rows = {row["class"]: row for row in scores.table if row["images"]}
    title = "Each label of the test set"
    comparison(rows, path, ["f1", "images"], logarithmic=["images"], title=title)


def draw_attention(model, preprocessing, corpus, probabilities, path):
    """Draws test images, half of them with wrong answers, and maps of what the answers draw on."""
    answers = describe_answers(probabilities, corpus)
    true, predicted = (np.array(texts) for texts in answers)
    wrong = np.flatnonzero(true != predicted)[:6]
    right = np.flatnonzero(true == predicted)[: 12 - len(wrong)]
    indices = np.concatenate([right, wrong])
    images = corpus.select(indices).decoded(preprocessing).images
    if corpus.several:
        names = [[shorten(texts[i] or "none", 40) for i in indices] for texts in answers]
        titles = ["\n-> ".join(pair) for pair in zip(*names, strict=True)]
        title = "True labels -> predicted labels, and what those draw on"
    else:
        titles = [f"{true[i]}\n-> {predicted[i]}, {probabilities[i].max():.0%}" for i in indices]
        title = "True class -> predicted class and its probability, and what it draws on"
    pixels = images if images.shape[-1] == 3 else images.mean(-1, keepdims=True)
    maps = heat_maps(model, preprocessing.normalize(images))
    images_with_attention(pixels / 255, maps, titles, path, columns=3, title=title)


# Maps over the patches of an image.

ROLLOUT, RELEVANCE, GRADIENT = "roll-out", "relevance to the class", "gradient times input"


def heat_map(model, images):
    """Returns maps `(batch, rows, columns)` of what the answers draw on, and the method's name.

    Returns None for a model that has neither attention over patches nor stages.
    """
    try:
        maps = heat_maps(model, images)
    except ValueError:  # another mixer replaces attention
        return None
    method = next(reversed(maps), None)  # the one that depends on the class
    return None if method is None else (maps[method], method)


def heat_maps(model, images):
    """Returns a dict of method -> maps `(batch, rows, columns)` of what the answers draw on.

    The roll-out of a ViT shows which tokens were mixed, and does not depend on the answer. It is
    bright on background patches, in which such a model stores knowledge of the whole image.
    Relevance shows the patches that speak for the class. Attention in windows has neither, because
    no weight joins a patch to the answer.
    """
    if isinstance(model, ViT):
        attention = attention_maps(model, images)
        return {
            ROLLOUT: rollout_to_patches(model, images, attention),
            RELEVANCE: relevance_to_patches(model, images, attention),
        }
    return {GRADIENT: importance(model, images)} if hasattr(model, "strides") else {}


def rollout_to_patches(model, images, attention):
    """Computes the share of each patch in the answer, by attention roll-out."""
    encoder, pooling = split_pooling(attention)
    pooling = None if pooling is None else pooling.mean(axis=1)
    return select_patches(model, images, attention_rollout(encoder), pooling)


def relevance_to_patches(model, images, attention):
    """Computes the relevance of each patch to the predicted class (Chefer et al. 2021)."""
    encoder, pooling = split_pooling(attention)
    slopes, pooling_slope = split_pooling(attention_gradients(model, images))
    if pooling is not None:
        pooling = np.maximum(pooling * pooling_slope, 0).mean(axis=1)
    tokens = next(iter(encoder.values())).shape[-1]
    relevance = attention_relevance(encoder, slopes) - np.eye(tokens)
    return select_patches(model, images, relevance, pooling)


def split_pooling(maps):
    """Returns the maps of the encoder, and the map of the attention that pools tokens, or None."""
    pooling = {path: weights for path, weights in maps.items() if "attention_pooling" in path}
    encoder = {path: weights for path, weights in maps.items() if path not in pooling}
    return encoder, next(iter(pooling.values()), None)


def select_patches(model, images, tokens, pooling):
    """Returns the share of each patch in the input of the head, on the grid of patches.

    Args:
        tokens: The shares of tokens in tokens, `(batch, tokens, tokens)`.
        pooling: The weights of the attention that pools tokens, or None.
    """
    if pooling is not None:
        row = np.einsum("bqt,btk->bk", pooling, tokens)
    elif model.pooling.of_class_token:
        row = tokens[:, 0]
    else:
        row = tokens[:, model.prefix_tokens :].mean(axis=1)
    return row[:, model.prefix_tokens :].reshape(-1, *model.grid(images.shape[1:3]))


def importance(model, images):
    """Computes gradient times input of the answer for each patch, `(batch, rows, columns)`.

    Baehrens et al. 2010, Shrikumar et al. 2016 (https://arxiv.org/abs/1605.01713).
    """
    images = tf.convert_to_tensor(images)
    with tf.GradientTape() as tape:
        tape.watch(images)
        best = tf.reduce_sum(tf.reduce_max(model(images), axis=1))
    share = tf.reduce_sum(tf.abs(tape.gradient(best, images) * images), axis=-1, keepdims=True)
    side = model.strides()[0]
    return np.asarray(tf.nn.avg_pool2d(share, side, side, "SAME"))[..., 0]
