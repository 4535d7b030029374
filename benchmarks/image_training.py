"""Training speed of image models: ours beside KerasHub and timm.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.image_training --model vit     # ViT-Ti/4, 32 pixels, batches of 128
    python -m benchmarks.image_training --model swin    # Swin-T, 224 pixels, batches of 8
    python -m benchmarks.image_training --model recipe  # the default network of `recipes.vit`

The last has a stem of convolutions, grey images, stochastic depth, smoothed labels and clipped
gradients, as the recipe; timm's `VisionTransformer` is given the same stem. Everyone trains the
same network for 10 classes in float32 with AdamW on the same random batch; ours runs under XLA on
the TensorFlow backend, and without it on the PyTorch backend. Each candidate runs in a process of
its own, in turn, three times over. Each is measured as it comes and with `keep_freed_memory`, which
is ours but serves every library that allocates through the C library. Counted are whole steps, the
first ones (compilation) left out.
"""

import argparse
import json
import os
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, write

CLASSES, WARM, STEPS = 10, 3, 8
MODELS = {"vit": (128, 32), "swin": (8, 224), "recipe": (128, 32)}  # batch, pixels
ON_PYTORCH = "keras_transformers on PyTorch"
CANDIDATES = ("keras_transformers", ON_PYTORCH, "keras_hub", "timm", "timm compiled")
OF_RECIPE = ("keras_transformers", "timm")


def batch(model):
    size, pixels = MODELS[model]
    rng = np.random.default_rng(0)
    channels = 1 if model == "recipe" else 3
    images = rng.normal(size=(size, pixels, pixels, channels)).astype("float32")
    return images, np.arange(size) % CLASSES


def keras_step(model, images, labels):
    """A step of `fit`, under XLA where the backend has it; waits for the loss."""
    import keras

    model.compile(
        keras.optimizers.AdamW(1e-3, weight_decay=0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() != "torch",  # compiled, PyTorch is slower here
    )
    model.optimizer.build(model.trainable_variables)
    return lambda: model.train_on_batch(images, labels), model.count_params()


def ours(model):
    from keras_transformers import models

    images, labels = batch(model)
    if model == "recipe":
        from recipes import vit

        built = vit.build_model(vit.Config(), CLASSES, channels=1)  # compiled
        labels = np.eye(CLASSES, dtype="float32")[labels]
        return lambda: built.train_on_batch(images, labels), built.count_params()
    if model == "vit":
        built = models.ViT.from_variant("Ti/4", CLASSES, image_size=images.shape[1])
    else:
        built = models.Swin.from_variant("T", CLASSES)
    built.build(images.shape)
    return keras_step(built, images, labels)


def keras_hub(model):
    import keras
    import keras_hub

    images, labels = batch(model)
    if model == "vit":
        backbone = keras_hub.models.ViTBackbone(
            image_shape=images.shape[1:],
            patch_size=4,
            num_layers=12,
            num_heads=3,
            hidden_dim=192,
            mlp_dim=768,
        )
    else:
        backbone = keras_hub.models.SwinTransformerBackbone(
            image_shape=images.shape[1:],
            embed_dim=96,
            depths=(2, 2, 6, 2),
            num_heads=(3, 6, 12, 24),
            window_size=7,
            drop_path=0.0,
        )
    inputs = keras.Input(images.shape[1:])
    x = backbone(inputs)
    if model == "vit":
        x = x[:, 0]
    else:
        x = keras.ops.mean(keras.ops.reshape(x, (-1, 49, 768)), axis=1)
    logits = keras.layers.Dense(CLASSES)(x)
    return keras_step(keras.Model(inputs, logits), images, labels)


def stem_for_timm(img_size, patch_size, in_chans, embed_dim, **_):
    """`layers.ConvolutionalStem` in PyTorch, as timm takes it."""
    import timm
    from torch import nn

    class Stem(nn.Sequential):
        num_patches = (img_size // patch_size) ** 2

        def forward(self, x):
            return super().forward(x).flatten(2).transpose(1, 2)

    halvings, made = patch_size.bit_length() - 1, []
    for i in range(halvings):
        width = embed_dim >> (halvings - 1 - i)
        made += [nn.Conv2d(in_chans, width, 3, 2, 1, bias=False), timm.layers.LayerNorm2d(width)]
        made += [nn.ReLU()]
        in_chans = width
    return Stem(*made, nn.Conv2d(embed_dim, embed_dim, 1))


def of_timm(model, compiled):
    import timm
    import torch

    torch.set_num_threads(os.cpu_count())
    images, labels = batch(model)
    if model == "recipe":
        network = timm.models.VisionTransformer(
            images.shape[1], 8, in_chans=1, num_classes=CLASSES, global_pool="avg", embed_dim=128,
            depth=4, num_heads=4, mlp_ratio=2, class_token=False, fc_norm=False, drop_path_rate=0.1,
            embed_layer=stem_for_timm,
        ).train()  # fmt: skip
    else:
        names = {"vit": "vit_tiny_patch16_224", "swin": "swin_tiny_patch4_window7_224"}
        options = {"img_size": images.shape[1], "patch_size": 4, "num_classes": CLASSES}
        network = timm.create_model(names[model], drop_path_rate=0.0, **options).train()
    smoothing = 0.1 if model == "recipe" else 0.0
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    images = torch.tensor(images).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor(labels)
    forward = torch.compile(network) if compiled else network

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy
        loss(forward(images), labels, label_smoothing=smoothing).backward()
        if model == "recipe":
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return step, sum(parameter.numel() for parameter in network.parameters())


def measure(model, name, keep):
    """Prints seconds of each step and the parameters, as JSON."""
    # Before the first import of Keras, which reads it then.
    os.environ["KERAS_BACKEND"] = "torch" if name == ON_PYTORCH else "tensorflow"
    if keep:
        alternating.keep_freed_memory()
    makers = {
        "keras_transformers": ours,
        ON_PYTORCH: ours,
        "keras_hub": keras_hub,
        "timm": lambda model: of_timm(model, compiled=False),
        "timm compiled": lambda model: of_timm(model, compiled=True),
    }
    step, parameters = makers[name](model)
    for _ in range(WARM):
        step()
    seconds = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "parameters": parameters}))


def run_all(model, rounds):
    """Every candidate in turn, `rounds` times."""
    found = {}
    for _ in range(rounds):
        for name in OF_RECIPE if model == "recipe" else CANDIDATES:
            for keep in (False, True):
                options = ["--model", model, "--only", name, *(["--keep"] if keep else [])]
                result = alternating.fresh("benchmarks.image_training", *options)
                key = f"{name}, freed memory kept" if keep else name
                entry = found.setdefault(key, {**result, "rounds": []})
                entry["rounds"].append(float(np.median(result["seconds"])))
                print(key, entry["rounds"], flush=True)
    return {
        name: {
            "milliseconds": round(1e3 * float(np.median(entry["rounds"])), 1),
            "rounds": [round(1e3 * seconds, 1) for seconds in entry["rounds"]],
            "parameters": entry["parameters"],
        }
        for name, entry in found.items()
    }


def main(model, rounds):
    result = {
        **heading("tensorflow", "keras", "keras-hub", "torch", "timm"),
        "batch, pixels": MODELS[model],
        "median milliseconds a step": run_all(model, rounds),
    }
    write("vit_recipe_training" if model == "recipe" else f"{model}_training", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="vit")
    parser.add_argument("--only", choices=CANDIDATES)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.only:
        measure(arguments.model, arguments.only, arguments.keep)
    else:
        main(arguments.model, arguments.rounds)
