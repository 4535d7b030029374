"""Cost of self-attention against the length: ours, Keras's and PyTorch's layer, the same weights.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.attention

Forward and backward pass of one layer of width 256 with 4 heads on 8,192 tokens, as many sequences
as that makes; float32, Keras under XLA. Outputs must agree before anything is timed.
"""

import argparse
import os

import numpy as np

from benchmarks import alternating
from benchmarks.report import curves, heading, table, write

WIDTH, HEADS, TOKENS = 256, 4, 8192
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
NAMES = ("keras_transformers", "Keras", "PyTorch")


def numbers(length):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TOKENS // length, length, WIDTH)).astype("float32")
    kernels = rng.normal(size=(4, WIDTH, WIDTH)).astype("float32") / 16
    return x, kernels


def of_keras(name, x, kernels):
    import keras
    import tensorflow as tf

    from keras_transformers.layers import SelfAttention

    x = tf.constant(x)
    if name == "Keras":
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        layer.build(x.shape, x.shape)
    else:
        layer = SelfAttention(HEADS)
        layer.build(x.shape)
    for weight in layer.weights:
        number = ("query", "key", "value", "attention_output").index(weight.path.split("/")[-2])
        value = kernels[number] if weight.path.endswith("kernel") else np.zeros(weight.shape)
        weight.assign(np.reshape(value, weight.shape))

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, x) if name == "Keras" else layer(x)
            total = tf.reduce_sum(y * y)
        return tape.gradient(total, [x, *(weight.value for weight in layer.weights)])

    def run():
        return [gradient.numpy()[..., 0] for gradient in step(x)]

    return run, (layer(x, x) if name == "Keras" else layer(x)).numpy()


def of_pytorch(x, kernels):
    import torch

    torch.set_num_threads(os.cpu_count())
    layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.tensor(np.concatenate([k.T for k in kernels[:3]])))
        layer.out_proj.weight.copy_(torch.tensor(kernels[3].T))
        layer.in_proj_bias.zero_()
        layer.out_proj.bias.zero_()
    x = torch.tensor(x, requires_grad=True)

    def run():
        layer.zero_grad()
        x.grad = None
        y, _ = layer(x, x, x, need_weights=False)
        (y * y).sum().backward()

    return run, layer(x, x, x, need_weights=False)[0].detach().numpy()


def prepare(name, settings):
    alternating.keep_freed_memory()
    x, kernels = numbers(settings["length"])
    run, output = of_pytorch(x, kernels) if name == "PyTorch" else of_keras(name, x, kernels)
    return run, output[0, :, 0].tolist()


def check(outputs):
    for name, output in outputs.items():
        np.testing.assert_allclose(output, outputs[NAMES[0]], atol=1e-4, err_msg=name)


def run_all(rounds):
    rows = {}
    for length in LENGTHS:
        settings = {"length": length}
        found = alternating.measure("benchmarks.attention", NAMES, settings, rounds, check)
        rows[f"length {length}"] = {
            f"{name} {column}": row[column]
            for name, row in found.items()
            for column in ("milliseconds", "from", "to")
        }
        print(table({f"length {length}": rows[f"length {length}"]}), flush=True)
    result = {**heading("tensorflow", "keras", "torch"), "tokens": TOKENS, "rows": rows}
    write("attention", result, {f"Milliseconds for {TOKENS} tokens": rows})
    series = {
        name: [row[f"{name} milliseconds"] / TOKENS * 1e3 for row in rows.values()]
        for name in NAMES
    }
    curves("attention", LENGTHS, series, "length", "microseconds a token, forward and backward")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    alternating.main(prepare, run_all, parser)
