"""Small detection Transformers for the tests."""

import keras
import numpy as np

from keras_transformers.models import DETR, ResNet
from tests.contract import ON_JAX, compiled

RNG = np.random.default_rng(4)
IMAGES = RNG.normal(size=(2, 33, 50, 3)).astype("float32")  # 3 x 4 positions of 16 x 16 pixels
FOCAL = {"classification": "focal", "class_cost": 2.0, "class_weight": 2.0}
KINDS = {
    "learned": {},
    "anchors": {"queries": "anchors", "norm_first": True},
    "proposals": {"queries": "proposals", "norm_first": True, "criterion": FOCAL},
    "proposals, softmax": {"queries": "proposals", "max_wavelength": 20.0},
}


def small_backbone(**kwargs):
    settings = {"hidden_dim": 4, "num_layers": (1, 1, 1), "bottleneck": False}
    settings |= {"stem": "convolutions", "norm": "group", "name": "backbone"}
    return ResNet(None, **settings, **kwargs)


def make(kind="learned", backbone=None, **changes):
    """A model of a kind of queries, with changes, flat ones or parts."""
    settings = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 11}
    settings |= {"num_encoder_layers": 1, "num_decoder_layers": 2, "num_queries": 5}
    dtype = {"dtype": changes["dtype"]} if "dtype" in changes else {}
    backbone = small_backbone(**dtype) if backbone is None else backbone
    settings |= {"backbone": backbone, **KINDS[kind], **changes}
    return DETR.from_variant("R50", 3, **settings)


def random(model, *shape):
    """Built, with weights that are far from zero, so that boxes and classes differ."""
    if not model.built:
        model.build(shape)
    rng = np.random.default_rng(5)
    for weight in sorted(model.weights, key=lambda weight: weight.path):
        if "norm" not in weight.path:
            fan = np.prod(weight.shape[:-1]) if len(weight.shape) > 1 else 4
            weight.assign(rng.normal(size=weight.shape) * (2 / fan) ** 0.5)
    return model


def function(model):
    """The model, as a whole where every operation is compiled."""
    return compiled(model) if ON_JAX else model


def patches(side=8, width=13):
    """A backbone whose positions see the pixels of their own patch alone."""
    images = keras.Input((None, None, 3))
    x = keras.layers.Conv2D(width, side, side, activation="tanh")(images)
    return keras.Model(images, x, name="backbone")
