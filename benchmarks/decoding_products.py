"""What the products of a decoding step cost, by rows (batch times beams), in float32 and 8 bits.

    python -m benchmarks.decoding_products

The sizes of Transformer base: of its six decoder blocks the projections of one token, as
`project_token` makes them (six kernels of 512 x 512 and two of 512 x 2,048 a block), and its logits
for 32,000 tokens, as `TokenEmbedding.step_logits` makes them with the largest of each row. Each set
of kernels is a program of its own that XLA compiles; all of one number of rows take turns. Beside
the milliseconds stand the multiplications and additions a second, in thousand millions.
"""

import argparse
import statistics
import time

import numpy as np

from benchmarks.report import heading, table, write

WIDTH, MLP, LAYERS, VOCAB = 512, 2048, 6, 32000
KINDS = ("float32", "int8")
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPES = {"blocks": LAYERS * (6 * WIDTH * WIDTH + 2 * WIDTH * MLP), "logits": VOCAB * WIDTH}


def blocks(kind):
    """A function of `(rows, 1, width)`: all projections of the decoder's blocks in turn."""
    import keras
    from keras import ops

    from keras_transformers.layers.attention.scores import project_token

    layers = []
    for _ in range(LAYERS):
        for inputs, outputs in [(WIDTH, WIDTH)] * 6 + [(WIDTH, MLP), (MLP, WIDTH)]:
            dense = keras.layers.Dense(outputs)
            dense.build((None, None, inputs))
            if kind == "int8":
                dense.quantize("int8")
            layers.append(dense)

    def run(x):
        for dense in layers:
            x = project_token(dense, x)
            x = x / (ops.max(ops.abs(x), axis=-1, keepdims=True) + 1e-6)
        return x

    return run


def logits(kind):
    """A function of `(rows, 1, width)`: the largest logit of each row and where it is."""
    from keras_transformers.generation.request import top_tokens
    from keras_transformers.layers import TokenEmbedding

    layer = TokenEmbedding(VOCAB, WIDTH)
    layer.build()
    if kind == "int8":
        layer.quantize("int8")
    return lambda x: top_tokens(layer.step_logits(x), 1)


def milliseconds(functions, rows, rounds):
    """Median of `rounds` calls of each of a dict of functions, in turns."""
    import tensorflow as tf

    compiled = {name: tf.function(each, jit_compile=True) for name, each in functions.items()}
    x = tf.constant(np.random.default_rng(0).normal(size=(rows, 1, WIDTH)).astype("float32"))
    seconds = {name: [] for name in functions}
    for _ in range(rounds + 2):
        for name, function in compiled.items():
            started = time.perf_counter()
            tf.nest.map_structure(lambda y: y.numpy(), function(x))
            seconds[name].append(time.perf_counter() - started)
    return {name: 1e3 * statistics.median(each[2:]) for name, each in seconds.items()}


def run_all(rounds):
    result = {**heading("tensorflow", "keras"), "milliseconds": {}}
    makers = {"blocks": blocks, "logits": logits}
    functions = {(kind, name): make(kind) for name, make in makers.items() for kind in KINDS}
    for rows in ROWS:
        for (kind, name), taken in milliseconds(functions, rows, rounds).items():
            found = result["milliseconds"].setdefault(f"{kind}, {rows}", {})
            found[f"{name}, ms"] = round(taken, 2)
            found[f"{name}, 1e9 a second"] = round(2 * rows * SHAPES[name] / taken / 1e6)
    print(table(result["milliseconds"]))
    write("decoding_products", result, {"products of a step": result["milliseconds"]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    run_all(**vars(parser.parse_args()))
