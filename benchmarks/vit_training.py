"""Training speed of ViT-Ti/4 at 32 pixels, batches of 128: ours beside KerasHub and timm.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.vit_training

Everyone trains the same network (12 layers of width 192, 65 tokens, class token, 10 classes) in
float32 with AdamW on the same random batch; ours runs under XLA on the TensorFlow backend, and
without it on the PyTorch backend. Each candidate runs in a process of its own, in turn,
three times over. Each is measured as it comes and with `keep_freed_memory`, which is ours but
serves every library that allocates through the C library. Counted are whole steps, the first ones
(compilation) left out.
"""

import argparse
import json
import os
import time

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, write

BATCH, SIZE, CLASSES, WARM, STEPS = 128, 32, 10, 3, 8
ON_PYTORCH = "keras_transformers on PyTorch"
CANDIDATES = ("keras_transformers", ON_PYTORCH, "keras_hub", "timm", "timm compiled")


def batch():
    rng = np.random.default_rng(0)
    return rng.normal(size=(BATCH, SIZE, SIZE, 3)).astype("float32"), np.arange(BATCH) % CLASSES


def keras_step(model):
    """A step of `fit`, under XLA where the backend has it; waits for the loss."""
    import keras

    images, labels = batch()
    model.compile(
        keras.optimizers.AdamW(1e-3, weight_decay=0.05),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=keras.backend.backend() != "torch",  # compiled, PyTorch is slower here
    )
    model.optimizer.build(model.trainable_variables)
    return lambda: model.train_on_batch(images, labels), model.count_params()


def ours():
    from keras_transformers.models import ViT

    model = ViT.from_variant("Ti/4", CLASSES, image_size=SIZE)
    model.build((None, SIZE, SIZE, 3))
    return keras_step(model)


def keras_hub():
    import keras
    import keras_hub

    backbone = keras_hub.models.ViTBackbone(
        image_shape=(SIZE, SIZE, 3),
        patch_size=4,
        num_layers=12,
        num_heads=3,
        hidden_dim=192,
        mlp_dim=768,
    )
    images = keras.Input((SIZE, SIZE, 3))
    logits = keras.layers.Dense(CLASSES)(backbone(images)[:, 0])
    return keras_step(keras.Model(images, logits))


def of_timm(compiled):
    import timm
    import torch

    torch.set_num_threads(os.cpu_count())
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=SIZE, patch_size=4, num_classes=CLASSES
    ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    images, labels = batch()
    images = torch.tensor(images).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor(labels)
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forward(images), labels).backward()
        optimizer.step()

    return step, sum(parameter.numel() for parameter in model.parameters())


def measure(name, keep):
    """Prints seconds of each step and the parameters, as JSON."""
    # Before the first import of Keras, which reads it then.
    os.environ["KERAS_BACKEND"] = "torch" if name == ON_PYTORCH else "tensorflow"
    if keep:
        from keras_transformers.training import keep_freed_memory

        keep_freed_memory()
    makers = {
        "keras_transformers": ours,
        ON_PYTORCH: ours,
        "keras_hub": keras_hub,
        "timm": lambda: of_timm(compiled=False),
        "timm compiled": lambda: of_timm(compiled=True),
    }
    step, parameters = makers[name]()
    for _ in range(WARM):
        step()
    seconds = []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    print(json.dumps({"seconds": seconds, "parameters": parameters}))


def run_all(rounds):
    """Every candidate in turn, `rounds` times."""
    found = {}
    for _ in range(rounds):
        for name in CANDIDATES:
            for keep in (False, True):
                options = ["--only", name, *(["--keep"] if keep else [])]
                result = alternating.fresh("benchmarks.vit_training", *options)
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


def main(rounds):
    result = {
        **heading("tensorflow", "keras", "keras-hub", "torch", "timm"),
        "batch": BATCH,
        "median milliseconds a step": run_all(rounds),
    }
    write("vit_training", result)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CANDIDATES)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.only:
        measure(arguments.only, arguments.keep)
    else:
        main(arguments.rounds)
