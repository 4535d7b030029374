"""What the answer to an image draws on, as a map over its patches."""

import numpy as np
import tensorflow as tf

from keras_transformers.inspection import (
    attention_gradients,
    attention_maps,
    attention_relevance,
    attention_rollout,
)
from keras_transformers.models import ViT

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
