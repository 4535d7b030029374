"""Cost of self-attention against the length: ours, Keras's and PyTorch's layer, the same weights.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.attention
    python -m benchmarks.attention --batch 1

Forward and backward pass of one layer of width 256 with 4 heads; float32, Keras under XLA. On 8,192
tokens, as many sequences as that makes, or on one sequence, up to 16,384 tokens. "All weights" is
our layer where it makes the weights of all pairs, whatever the length; PyTorch's does not
(`scaled_dot_product_attention`). Memory is what a process holds at its peak beyond what it held
before the layer was made. Outputs must agree before anything is timed.
"""

import argparse
import math
import os

import numpy as np

from benchmarks import alternating, pictures
from benchmarks.report import heading, resident_mebibytes, table, write

WIDTH, HEADS, TOKENS = 256, 4, 8192
LENGTHS = {None: (32, 128, 512, 1024, 2048), 1: (512, 1024, 2048, 4096, 8192, 16384)}
OURS, PLAIN = "keras_transformers", "all weights"
NAMES = (OURS, PLAIN, "Keras", "PyTorch")
MOST = 8192  # the longest of which all weights are made: 4 GiB each at twice as many


def numbers(length, batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, length, WIDTH)).astype("float32")
    kernels = rng.normal(size=(4, WIDTH, WIDTH)).astype("float32") / 16
    return x, kernels


def of_keras(name, x, kernels):
    import keras
    import tensorflow as tf

    from keras_transformers.layers import SelfAttention
    from keras_transformers.layers.attention import kernels

    if name == PLAIN:
        kernels.LEAST_PAIRS = kernels.LEAST_PAIRS_OF_CUDNN = math.inf
    before = resident_mebibytes("VmRSS")
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

    call = tf.function(lambda x: layer(x, x) if name == "Keras" else layer(x), jit_compile=True)
    return run, call(x).numpy(), before


def of_pytorch(x, kernels):
    import torch

    torch.set_num_threads(os.cpu_count())
    before = resident_mebibytes("VmRSS")
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

    return run, layer(x, x, x, need_weights=False)[0].detach().numpy(), before


def prepare(name, settings):
    alternating.keep_freed_memory()
    x, kernels = numbers(settings["length"], settings["batch"])
    made = of_pytorch(x, kernels) if name == "PyTorch" else of_keras(name, x, kernels)
    run, output, before = made
    return run, {"output": output[0, :, 0].tolist(), "before": round(before)}


def of_length(length, batch, rounds):
    """Milliseconds of each candidate, with their spread, and mebibytes."""
    names, before = NAMES if length <= MOST else (OURS, "PyTorch"), {}

    def check(results):
        for name, result in results.items():
            expected = results[OURS]["output"]
            np.testing.assert_allclose(result["output"], expected, atol=1e-4, err_msg=name)
            before[name] = result["before"]

    settings = {"length": length, "batch": batch}
    found = alternating.measure("benchmarks.attention", names, settings, rounds, check)
    row = {}
    for name, figures in found.items():
        row |= {f"{name} {each}": figures[each] for each in ("milliseconds", "from", "to")}
        row[f"{name} MiB"] = figures["peak_mebibytes"] - before[name]
    return row


def run_all(rounds, batch):
    rows = {}
    for length in LENGTHS[batch]:
        rows[f"length {length}"] = of_length(length, batch or TOKENS // length, rounds)
        print(table({f"length {length}": rows[f"length {length}"]}), flush=True)
    what = f"{TOKENS} tokens" if batch is None else f"a batch of {batch}"
    name = "attention" if batch is None else f"attention_batch_{batch}"
    result = {**heading("tensorflow", "keras", "torch"), "what": what, "rows": rows}
    milliseconds, memory = (
        {
            length: {column: x for column, x in row.items() if column.endswith("MiB") == mebibytes}
            for length, row in rows.items()
        }
        for mebibytes in (False, True)
    )
    write(name, result, {f"Milliseconds for {what}": milliseconds, "Memory": memory})
    if batch is None:
        pictures.draw(name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, choices=[1], help="else as many as make 8,192 tokens")
    alternating.main(prepare, run_all, parser)
