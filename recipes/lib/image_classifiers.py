"""Scores, tables and figures of image classifiers, and maps of what their answers draw on."""

import itertools
from functools import partial
from textwrap import shorten

import keras
import numpy as np
import tensorflow as tf

from keras_transformers.export.classes import THRESHOLD
from keras_transformers.inspection import (
    attention_gradients,
    attention_maps,
    attention_relevance,
    attention_rollout,
)
from keras_transformers.models import ViT
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
    """Scores of a classifier's probabilities on a corpus, and those that are metrics, a dict."""
    scores, metrics = _scores(probabilities, corpus)
    for row in scores.table:
        print("  {class:20} precision {precision:.3f}  recall {recall:.3f}".format(**row))
    last = history["val_accuracy"][-1]
    name, scale = ("valid_accuracy", 1) if corpus.several else ("valid_top1", 100)
    return scores, metrics | {"test_examples": len(corpus.labels), name: scale * last}


def _scores(probabilities, corpus):
    if corpus.several:
        scores = score_labels(probabilities, corpus.labels, corpus.classes)
        return scores, {f"test_{name}": value for name, value in scores.numbers().items()}
    scores = score_classes(probabilities, corpus.labels, corpus.classes)
    return scores, {
        "test_top1": 100 * scores.top1,
        "test_top5": 100 * scores.top5,
        "test_calibration_error": scores.calibration_error,
    }


def in_words(probabilities, corpus):
    """What is true of each image, and what is said of it: two lists of str, commas between."""
    if corpus.several:
        rows = (corpus.labels, probabilities >= THRESHOLD)
        return [[", ".join(itertools.compress(corpus.classes, row)) for row in of] for of in rows]
    return [[corpus.classes[i] for i in of] for of in (corpus.labels, probabilities.argmax(1))]


def tables(folder, scores, probabilities, corpus):
    """What is written: dict of name -> function of the path, for each class and each image."""

    def classes(path):
        header = ["class", "images", "precision", "recall", "f1"]
        folder.write_table(path.name, header, [list(row.values()) for row in scores.table])

    def predictions(path):  # with the probability of the most probable class
        header = ["labels" if corpus.several else "label", "predicted", "probability"]
        most = [f"{each:.6f}" for each in probabilities.max(axis=1)]
        rows = zip(*in_words(probabilities, corpus), most, strict=True)
        folder.write_table(path.name, header, rows)

    return {"classes.tsv": classes, "predictions.tsv": predictions}


def show_use(folder, corpus, preprocessing):
    """Writes the first image of a corpus, and prints how its class or labels are asked for."""
    image = corpus.select([0]).decoded(preprocessing).images[0]
    wanted = "labels" if corpus.several else "label"
    example = folder.write_example(image)
    folder.show_use(example, f'{{}}["{wanted}"]', lambda answer: answer[wanted])


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


ROLLOUT, RELEVANCE, GRADIENT = "roll-out", "relevance to the class", "gradient times input"


def heat(model, images):
    """What the answers draw on, `(batch, rows, columns)`, and how that was found.

    None where nothing says: the model has neither attention over patches nor stages.
    """
    try:
        found = ways(model, images)
    except ValueError:  # another mixer stands in attention's place
        return None
    how = next(reversed(found), None)  # the one that is of the class
    return None if how is None else (found[how], how)


def ways(model, images):
    """Dict of all ways to see what the answers draw on -> maps `(batch, rows, columns)`.

    A ViT's roll-out says what tokens were mixed, whichever the answer: background patches, into
    which such a model puts what it knows of the whole, are bright. Relevance says what spoke for
    the class. Windows have neither, as no weight joins a patch to the answer.
    """
    if isinstance(model, ViT):
        maps = attention_maps(model, images)
        return {
            ROLLOUT: rollout_to_patches(model, images, maps),
            RELEVANCE: relevance_to_patches(model, images, maps),
        }
    return {GRADIENT: importance(model, images)} if hasattr(model, "strides") else {}


def rollout_to_patches(model, images, maps):
    """How much of each patch is mixed into the answer, by attention roll-out."""
    maps, pooled = without_pooling(maps)
    pooled = None if pooled is None else pooled.mean(axis=1)
    return of_patches(model, images, attention_rollout(maps), pooled)


def relevance_to_patches(model, images, maps):
    """How much each patch speaks for the class that the model says (Chefer et al. 2021)."""
    maps, pooled = without_pooling(maps)
    slopes, slope = without_pooling(attention_gradients(model, images))
    if pooled is not None:
        pooled = np.maximum(pooled * slope, 0).mean(axis=1)
    relevance = attention_relevance(maps, slopes) - np.eye(next(iter(maps.values())).shape[-1])
    return of_patches(model, images, relevance, pooled)


def without_pooling(maps):
    """Those of the encoder, and that of the attention that pools its tokens, or None."""
    pooling = {path: each for path, each in maps.items() if "attention_pooling" in path}
    encoder = {path: each for path, each in maps.items() if path not in pooling}
    return encoder, next(iter(pooling.values()), None)


def of_patches(model, images, tokens, pooled):
    """From a matrix of tokens to the share of each patch in what the head sees, on its grid."""
    if pooled is not None:
        row = np.einsum("bqt,btk->bk", pooled, tokens)
    elif model.pooling.of_class_token:
        row = tokens[:, 0]
    else:
        row = tokens[:, model.prefix_tokens :].mean(axis=1)
    return row[:, model.prefix_tokens :].reshape(-1, *model.grid(images.shape[1:3]))


def importance(model, images):
    """How much the answer hangs on each patch, `(batch, rows, columns)`: gradient times input.

    Baehrens et al. 2010, Shrikumar et al. 2016 (https://arxiv.org/abs/1605.01713). Attention of
    windows does not tell: no weight joins a patch to the answer.
    """
    images = tf.convert_to_tensor(images)
    with tf.GradientTape() as tape:
        tape.watch(images)
        best = tf.reduce_sum(tf.reduce_max(model(images), axis=1))
    share = tf.reduce_sum(tf.abs(tape.gradient(best, images) * images), axis=-1, keepdims=True)
    side = model.strides()[0]
    return np.asarray(tf.nn.avg_pool2d(share, side, side, "SAME"))[..., 0]
