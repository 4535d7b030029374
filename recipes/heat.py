"""What the answer to an image draws on, as a map over its patches."""

import numpy as np
import tensorflow as tf

from keras_transformers.inspection import attention_maps, attention_rollout
from keras_transformers.models import ViT


def heat(model, images):
    """What the answers draw on, `(batch, rows, columns)`, and how that was found.

    None where nothing says: the model has neither attention over patches nor stages.
    """
    if isinstance(model, ViT):
        try:
            return attention_to_patches(model, images), "attention roll-out"
        except ValueError:  # another mixer stands in attention's place
            return None
    if hasattr(model, "strides"):
        return importance(model, images), "gradient times input"
    return None


def attention_to_patches(model, images):
    """How much the answer draws on each patch, `(batch, rows, columns)`, by attention roll-out."""
    maps = attention_maps(model, images)
    pooled = [maps.pop(path) for path in list(maps) if "attention_pooling" in path]
    rollout = attention_rollout(maps)
    if pooled:
        rollout = np.einsum("bqt,btk->bk", pooled[0].mean(axis=1), rollout)
    elif model.pooling.of_class_token:
        rollout = rollout[:, 0]
    else:
        rollout = rollout[:, model.prefix_tokens :].mean(axis=1)
    return rollout[:, model.prefix_tokens :].reshape(-1, *model.grid(images.shape[1:3]))


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
