"""Small pyramids, for claims about all of them."""

import functools

import numpy as np

from keras_transformers.models import PVT, MViT, Swin

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 37, 50, 3)).astype("float32")
SMALL = {
    "swin": (
        Swin,
        {
            "image_size": (37, 50),
            "hidden_dim": 6,
            "num_layers": (1, 2, 1, 1),
            "num_heads": (1, 2, 3, 4),
            "window_size": 3,
        },
    ),
    "swin2": (
        Swin,
        {
            "image_size": (37, 50),
            "hidden_dim": 6,
            "num_layers": (2, 1, 1, 1),
            "version": 2,
            "num_heads": (1, 2, 3, 4),
            "window_size": 4,
            "pretrained_window_size": 3,
        },
    ),
    "pvt": (
        PVT,
        {
            "image_size": (37, 50),
            "hidden_dims": (4, 6, 9, 10),
            "num_layers": (1, 2, 1, 1),
            "num_heads": (1, 2, 3, 5),
            "mlp_ratios": (2, 2, 3, 1),
            "reductions": (4, 2, 2, 1),
        },
    ),
    "mvit": (MViT, {"image_size": (37, 50), "hidden_dim": 6, "num_layers": (1, 1, 2, 1)}),
}


def make(kind, **changes):
    model, settings = SMALL[kind]
    make_model = functools.partial(Swin.from_variant, "T") if model is Swin else model
    return make_model(**{"num_classes": 7, **settings, **changes})


def built(kind, **changes):
    model = make(kind, **changes)
    model.build((None, *model.get_config()["image_size"], 3))
    return model
