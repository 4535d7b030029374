"""What the products of a decoding step cost, by rows (batch times beams), in float32 and 8 bits.

    python -m benchmarks.decoding_products

The sizes of Transformer base: of its six decoder blocks the projections of one token, as
`project_token` makes them (six kernels of 512 x 512 and two of 512 x 2,048 a block), and its logits
for 32,000 tokens, as `TokenEmbedding.step_logits` makes them with the largest of each row. Each set
of kernels is a program of its own that XLA compiles. Beside the milliseconds stand the
multiplications and additions a second, in thousand millions.
"""

import argparse
import statistics
import time

import numpy as np

from benchmarks.report import heading, table, write

WIDTH, MLP, LAYERS, VOCAB = 512, 2048, 6, 32000
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPES = {"blocks": LAYERS * (6 * WIDTH * WIDTH + 2 * WIDTH * MLP), "logits": VOCAB * WIDTH}


def blocks(kind):
    """A function of `(rows, 1, width)`: all projections of the decoder's blocks in turn."""
    import keras
    from keras import ops

    from keras_transformers.layers.projections import project_token

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


def milliseconds(function, rows, rounds):
    """Median of `rounds` calls."""
    import tensorflow as tf

    compiled = tf.function(function, jit_compile=True)
    x = tf.constant(np.random.default_rng(0).normal(size=(rows, 1, WIDTH)).astype("float32"))
    seconds = []
    for _ in range(rounds + 2):
        started = time.perf_counter()
        tf.nest.map_structure(lambda y: y.numpy(), compiled(x))
        seconds.append(time.perf_counter() - started)
    return 1e3 * statistics.median(seconds[2:])


def run_all(rounds):
    result = {**heading("tensorflow", "keras"), "milliseconds": {}}
    for kind in ("float32", "int8"):
        functions = {"blocks": blocks(kind), "logits": logits(kind)}
        for rows in ROWS:
            found = {}
            for name, function in functions.items():
                taken = milliseconds(function, rows, rounds)
                found[f"{name}, ms"] = round(taken, 2)
                found[f"{name}, 1e9 a second"] = round(2 * rows * SHAPES[name] / taken / 1e6)
            result["milliseconds"][f"{kind}, {rows}"] = found
    print(table(result["milliseconds"]))
    write("decoding_products", result, {"products of a step": result["milliseconds"]})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    run_all(**vars(parser.parse_args()))
