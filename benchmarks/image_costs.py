"""What windows and masking save: Swin beside ViT over the area of an image, MAE beside ViT.

    pip install -e '.[recipes]'
    python -m benchmarks.image_costs

- Operations (`recipes.lib.flops`) and time of a block of width 96 on patches of 4 pixels, batch 1,
  inference under XLA: a `SwinBlock` (window 7, shifted) and an `EncoderBlock` over all patches.
- A training step of the encoder of a masked autoencoder at 75 % masking beside one of the whole
  ViT-S/16 at 224 pixels, batch 8: forward, backward and update of the mean of the output's squares,
  in turns.
"""

import math
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks import pictures
from benchmarks.report import heading, table, write
from keras_transformers.layers import EncoderBlock, SwinBlock
from keras_transformers.models import ViT
from keras_transformers.training import keep_freed_memory
from recipes.lib.flops import floating_point_operations

SIDES, WIDTH, HEADS = (112, 224, 336, 448), 96, 3  # pixels
BATCH, TURNS, KEPT = 8, 7, 0.25


def blocks(side):
    """Name -> a built block and its input, of an image of so many pixels."""
    grid = (1, side // 4, side // 4, WIDTH)
    found = {
        "Swin": (SwinBlock(HEADS, 7, 4 * WIDTH, shift=3), grid),
        "ViT": (EncoderBlock(HEADS, 4 * WIDTH, norm_first=True), (1, grid[1] * grid[2], WIDTH)),
    }
    for name, (block, shape) in found.items():
        block.build(shape)
        yield name, block, np.random.default_rng(0).normal(size=shape).astype("float32")


def seconds(run, times=5):
    """The least of several runs, after two."""
    found = []
    for _ in range(times + 2):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found[2:])


def of_area():
    """Operations and time by the side of the image."""
    rows = {}
    for side in SIDES:
        for name, block, x in blocks(side):
            call = tf.function(block, jit_compile=True, autograph=False)
            x_tensor = tf.constant(x)
            rows.setdefault(name, []).append(
                {
                    "pixels": side,
                    "operations": floating_point_operations(block, x),
                    "milliseconds": 1e3 * seconds(lambda call=call, x=x_tensor: call(x).numpy()),
                }
            )
            print(name, rows[name][-1], flush=True)
    return rows


def exponent(points, name):
    """Of the area, between the two largest images."""
    before, last = points[-2:]
    grown = math.log(last["pixels"] ** 2 / before["pixels"] ** 2)
    return round(math.log(last[name] / before[name]) / grown, 2)


def of_masking():
    """Seconds of a step of the encoder, of all patches and of those that masking leaves."""
    images = tf.random.stateless_normal((BATCH, 224, 224, 3), (1, 2))
    patches = 14 * 14
    order = np.stack([np.random.default_rng(i).permutation(patches) for i in range(BATCH)])
    visible = tf.constant(order[:, : int(KEPT * patches)], tf.int32)
    steps = {}
    for name, chosen in (("all patches", None), ("a quarter of them", visible)):
        model = ViT.from_variant("S/16", None, positions="sinusoidal")
        model.build(images.shape)
        optimizer = keras.optimizers.AdamW(1e-4)
        optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=True, autograph=False)
        def step(model=model, optimizer=optimizer, chosen=chosen):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model.norm(model.encode(images, True, visible=chosen)) ** 2)
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            pairs = [pair for pair in zip(gradients, variables, strict=True) if pair[0] is not None]
            optimizer.apply_gradients(pairs)
            return loss

        steps[name] = step
    turns = [
        {name: seconds(lambda s=step: s().numpy(), 1) for name, step in steps.items()}
        for _ in range(TURNS)
    ]
    found = {name: float(np.median([turn[name] for turn in turns])) for name in steps}
    return {
        **{f"milliseconds, {name}": round(1e3 * value, 1) for name, value in found.items()},
        "ratio": round(found["a quarter of them"] / found["all patches"], 3),
    }


def main():
    keep_freed_memory()
    points = of_area()
    rows = {
        name: {
            f"{kind}, exponent of the area": exponent(values, kind)
            for kind in ("operations", "milliseconds")
        }
        | {f"ms at {point['pixels']} pixels": round(point["milliseconds"], 1) for point in values}
        for name, values in points.items()
    }
    masking = {"MAE, encoder's step": of_masking()}
    print(table(rows), table(masking), sep="\n")
    result = {**heading("tensorflow", "keras"), "area": points, "masking": masking}
    write("image_costs", result, {"A block over an image": rows, "Masking": masking})
    pictures.draw("image_costs")


if __name__ == "__main__":
    main()
