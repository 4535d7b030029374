"""Every model, tiny, with data to train it on."""

import contextlib

import keras
import numpy as np

from keras_transformers import models
from keras_transformers.training import SmoothedCrossEntropy

RNG = np.random.default_rng(5)
IDS = RNG.integers(1, 31, (6, 7)).astype("int32")
IMAGES = RNG.normal(size=(6, 32, 32, 3)).astype("float32")
SIZES = {"hidden_dim": 16, "num_heads": 2, "mlp_dim": 19}
STAGES = {"num_layers": (1, 1, 1, 1), "num_classes": 5, "image_size": 32}
BOXES = {
    "boxes": RNG.uniform(0.3, 0.6, (6, 3, 4)).astype("float32"),
    "labels": np.array([[0, 1, -1]] * 6, "int32"),
}


def vit(rate):
    rates = {"drop_path": rate, "dropout": rate}
    return models.ViT.from_variant("B/8", 5, image_size=32, num_layers=2, **rates, **SIZES)


def transformer(rate):
    rates = {"attention_dropout": rate, "dropout": rate}
    return models.Transformer.from_variant("base", 31, num_layers=1, **rates, **SIZES)


def language_model(rate):
    return models.LanguageModel.from_variant(
        "small", 31, num_layers=2, style="modern", dropout=rate, **SIZES
    )


def text_encoder(rate):
    head = {"head": "masked_language", "max_length": 9}
    return models.TextEncoder.from_variant("base", 31, num_layers=2, dropout=rate, **head, **SIZES)


def swin(rate):
    heads = {"num_heads": (1, 1, 2, 2), "window_size": 4}
    return models.Swin(hidden_dim=4, drop_path=rate, **heads, **STAGES)


def pvt(rate):
    heads = {"num_heads": (1, 1, 2, 2), "reductions": (4, 2, 1, 1), "mlp_ratios": (2, 2, 2, 2)}
    return models.PVT(hidden_dims=(4, 4, 6, 6), drop_path=rate, **heads, **STAGES)


def mvit(rate):
    return models.MViT(hidden_dim=8, drop_path=rate, **STAGES)


def mae(rate):
    options = {"num_layers": 1, "positions": "sinusoidal", "dropout": rate}
    encoder = models.ViT.from_variant("B/8", None, image_size=32, **options, **SIZES)
    return models.MAE(encoder, decoder_dim=8, decoder_heads=2, decoder_layers=2, seed=3)


def detr(rate):
    backbone = models.ResNet(
        None, hidden_dim=4, num_layers=(1, 1, 1), bottleneck=False, norm="batch", name="backbone"
    )
    return models.DETR(2, backbone, dropout=rate, **SIZES, num_layers=1, queries=5)


def deformable_detr(rate):
    backbone = models.ResNet(
        None, hidden_dim=4, num_layers=(1, 1, 1), bottleneck=False, norm="batch", name="backbone"
    )
    maps = models.FeatureMaps(backbone, ["stride_16"], num_levels=2)
    sizes = {**SIZES, "hidden_dim": 32, "queries": models.PointQueries(5, refine=True)}
    return models.DeformableDETR(2, maps, dropout=rate, **sizes, num_layers=1)


def recurrent(rate):
    return models.RecurrentTranslator(31, 16, dropout=rate)


OF_PICTURES = {make.__name__: make for make in (vit, swin, pvt, mvit)}
OF_TOKENS = {make.__name__: make for make in (transformer, language_model, text_encoder, recurrent)}
WITH_A_LOSS = {make.__name__: make for make in (mae, detr, deformable_detr)}
MODELS = {**OF_PICTURES, **OF_TOKENS, **WITH_A_LOSS}


def data(name):
    """Inputs and targets."""
    if name in OF_PICTURES:
        return IMAGES, np.arange(6) % 5
    if name in WITH_A_LOSS:
        return IMAGES, BOXES if name.endswith("detr") else None
    pairs = name in ("transformer", "recurrent")
    return ({"source": IDS, "target": IDS[:, ::-1]} if pairs else IDS), IDS


def trained(name, scope=None, precision="float32", jit_compile=True, rate=0.3, step=1e-2):
    """The weights and states after three steps, in float64, and the mean loss.

    Args:
        scope: In which the model is made.
        rate: Of all kinds of dropout.
        step: The learning rate.
    """
    keras.utils.set_random_seed(2)
    keras.config.set_dtype_policy(precision)
    try:
        with scope or contextlib.nullcontext():
            model = MODELS[name](rate)
        inputs, targets = data(name)
        model.build(keras.tree.map_structure(lambda x: (None, *x.shape[1:]), inputs))
        loss = None
        if name in OF_PICTURES:
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        elif name in OF_TOKENS:
            loss = SmoothedCrossEntropy(0.1)
        # Epsilon above the rounding of gradients that are zero, as that of the keys' bias is.
        optimizer = keras.optimizers.Adam(step, epsilon=1e-3)
        if precision == "mixed_float16":  # from Keras's scale, 2^15, the first steps are left out
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**8)
        model.compile(optimizer, loss, jit_compile=jit_compile)
    finally:
        keras.config.set_dtype_policy("float32")
    history = model.fit(inputs, targets, batch_size=2, shuffle=False, verbose=0)
    weights = [keras.ops.convert_to_numpy(v).astype("float64") for v in model.variables]
    return weights, history.history["loss"][0]
