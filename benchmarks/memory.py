"""What a training step needs beside weights and optimizer: precision, accumulation, blocks twice.

    pip install -e '.[recipes]'
    python -m benchmarks.memory

ViT-Ti/16 at 224 pixels, 12 layers, 64 images a step of AdamW, XLA on TensorFlow, each way in a
process of its own: the peak of its resident memory over four steps above what it held, compiled
program apart, with model and optimizer in place. A process that trains on batches of one image
tells what compiling and running take by themselves, and is subtracted. `step_s` is the median of
steps 2 to 4. `difference` is the largest of any weight from those of the first row.
"""

import argparse
import json
import sys
import time

from benchmarks import alternating
from benchmarks.report import heading, resident_mebibytes, write

BATCH, STEPS = 64, 4
WAYS = {  # title -> precision, accumulated batches, whether blocks are computed twice
    "float32": ("float32", 1, False),
    "blocks computed twice": ("float32", 1, True),
    "4 batches of 16 accumulated": ("float32", 4, False),
    "both": ("float32", 4, True),
    "mixed_bfloat16": ("mixed_bfloat16", 1, False),
    "mixed_bfloat16, blocks computed twice": ("mixed_bfloat16", 1, True),
}


def train(precision, accumulated, twice, batch=BATCH):
    """Trains in this process; returns MiB, seconds a step and the weights."""
    import contextlib

    import keras
    import numpy as np

    from keras_transformers import layers, models, training

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(precision)
    with layers.rematerialized_blocks() if twice else contextlib.nullcontext():
        model = models.ViT.from_variant("Ti/16", num_classes=10, num_layers=12)
    model.build((None, 224, 224, 3))
    optimizer = training.AdamW(
        1e-3,
        epsilon=1e-5,  # above the rounding of gradients that are zero
        global_clipnorm=1.0,
        gradient_accumulation_steps=accumulated if accumulated > 1 else None,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=True)
    optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, 224, 224, 3)).astype("float32")
    y = rng.integers(0, 10, batch)
    before, seconds = resident_mebibytes("VmRSS"), []
    for _ in range(STEPS):
        started = time.perf_counter()
        model.fit(x, y, batch_size=batch // accumulated, shuffle=False, verbose=0)
        seconds.append(time.perf_counter() - started)
    weights = np.concatenate([np.ravel(variable) for variable in model.trainable_variables])
    return resident_mebibytes() - before, float(np.median(seconds[1:])), weights


def measured(folder, title, batch=BATCH):
    """MiB, seconds and weights of one way in a process of its own."""
    import numpy as np

    path = f"{folder}/weights.npy"
    command = [sys.executable, "-m", "benchmarks.memory", "--way", title, "--weights", path]
    printed = alternating.ran([*command, "--batch", str(batch)])
    return *json.loads(printed.splitlines()[-1]), np.load(path)


def main():
    import tempfile

    import numpy as np

    rows, reference = {}, None
    with tempfile.TemporaryDirectory() as folder:
        for title, (_, accumulated, _) in WAYS.items():
            alone, _, _ = measured(folder, title, accumulated)
            mebibytes, seconds, weights = measured(folder, title)
            if reference is None:
                reference = weights, mebibytes - alone
            rows[title] = {
                "MiB": round(mebibytes - alone),
                "of_float32": f"{(mebibytes - alone) / reference[1]:.0%}",
                "step_s": round(seconds, 2),
                "difference": f"{np.abs(weights - reference[0]).max():.1e}",
            }
            print(title, rows[title], flush=True)
    result = {**heading("tensorflow", "keras"), "rows": rows}
    write("memory", result, {f"ViT-Ti/16, {BATCH} images a step": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way is None:
        main()
    else:
        import numpy as np

        *figures, weights = train(*WAYS[given.way], given.batch)
        np.save(given.weights, weights)
        print(json.dumps(figures))
