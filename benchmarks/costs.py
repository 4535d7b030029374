"""Parameters, operations and memory of each kind of layer, against length and width.

    pip install -e '.[recipes]'
    python -m benchmarks.costs

Beside the formulas of Vaswani et al. 2017, table 1, made exact: matrix products with all their
factors. Operations are counted in the program that XLA is given (`recipes.lib.flops`). Memory is
what the first compiled call adds to a new process at its peak, the compiler's own 40 MiB included
(Linux). Batch 1, float32, inference. A slope is that of the logarithm between the two largest
sizes.
"""

import argparse
import math

import keras
import numpy as np
import tensorflow as tf

from benchmarks import pictures
from benchmarks.alternating import fresh
from benchmarks.report import heading, resident_mebibytes, table, write
from keras_transformers import layers
from recipes.lib.flops import floating_point_operations

HEADS, WINDOW, KERNEL, HIDDEN = 4, 512, 7, 128


def fully_connected(length, width):
    positions = keras.layers.Reshape((length, width))
    return keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(length * width), positions])


# Kind -> layer, parameters, operations of its products, table 1's slopes in length and in width.
# T: length, D: width.
KINDS = {
    "self-attention": (
        lambda T, D: layers.SelfAttention(HEADS),
        lambda T, D: 4 * D**2 + 4 * D,
        lambda T, D: 8 * T * D**2 + 4 * T**2 * D,
        (2, 1),
    ),
    "feed-forward, 4 D": (
        lambda T, D: layers.FeedForward(4 * D),
        lambda T, D: 8 * D**2 + 5 * D,
        lambda T, D: 16 * T * D**2,
        (1, 2),
    ),
    "recurrent (LSTM)": (
        lambda T, D: keras.layers.LSTM(D, return_sequences=True),
        lambda T, D: 8 * D**2 + 4 * D,
        lambda T, D: 16 * T * D**2,
        (1, 2),
    ),
    "convolution, kernel 7": (
        lambda T, D: keras.layers.Conv1D(D, KERNEL, padding="same"),
        lambda T, D: KERNEL * D**2 + D,
        lambda T, D: 2 * KERNEL * T * D**2,
        (1, 2),
    ),
    "fully connected": (
        fully_connected,
        lambda T, D: T**2 * D**2 + T * D,
        lambda T, D: 2 * T**2 * D**2,
        (2, 2),
    ),
    "local, window 512": (
        lambda T, D: layers.LocalAttention(HEADS, WINDOW),
        lambda T, D: 4 * D**2 + 4 * D,
        lambda T, D: 8 * T * D**2 + 4 * T * (3 * WINDOW // 2) * D,
        (1, 1),
    ),
    "additive attention": (
        lambda T, D: layers.SelfAttention(HEADS, score="additive"),
        lambda T, D: 4 * D**2 + 5 * D,
        lambda T, D: 8 * T * D**2 + 6 * T**2 * D,
        (2, 1),
    ),
    "linear attention": (
        lambda T, D: layers.LinearAttention(HEADS),
        lambda T, D: 4 * D**2 + 4 * D,
        lambda T, D: 8 * T * D**2 + 4 * T * D * (D // HEADS + 1),
        (1, 2),
    ),
    "random synthesizer": (
        lambda T, D: layers.RandomSynthesizer(HEADS),
        lambda T, D: HEADS * T**2 + 2 * D**2 + 2 * D,
        lambda T, D: 4 * T * D**2 + 2 * T**2 * D,
        (2, 1),
    ),
    "MLP mixing, 128": (
        lambda T, D: layers.MLPMixing(HIDDEN),
        lambda T, D: 2 * T * HIDDEN + T + HIDDEN,
        lambda T, D: 4 * T * HIDDEN * D,
        (1, 1),
    ),
    "Fourier": (
        lambda T, D: layers.FourierMixing(),
        lambda T, D: 0,
        lambda T, D: 5 * T * D * math.log2(T * D),
        (1, 1),
    ),
    "lightweight convolution": (
        lambda T, D: layers.ConvolutionMixing(KERNEL, HEADS),
        lambda T, D: 3 * D**2 + 3 * D + HEADS * KERNEL,
        lambda T, D: 6 * T * D**2 + 2 * KERNEL * T * D,
        (1, 2),
    ),
}
LENGTHS, WIDTHS = (1024, 2048, 4096, 8192), (16, 32, 64, 128)
AT_WIDTH, AT_LENGTH = 32, 2048
SMALL = {"fully connected": ((8, 16, 32, 64), (4, 8, 16, 32), 8, 16)}


def measure(kind, length, width):
    """Parameters, operations and memory, beside what the formulas say."""
    make, parameters, operations, _ = KINDS[kind]
    layer, x = make(length, width), np.zeros((1, length, width), "float32")
    layer.build(x.shape)
    assert layer.count_params() == parameters(length, width), (kind, layer.count_params())

    counted = floating_point_operations(layer, x)
    return {
        "length": length,
        "width": width,
        "parameters": layer.count_params(),
        "operations": counted,
        "of the formula": round(counted / operations(length, width), 3),
    }


def memory(kind, length, width):
    """Mebibytes that the first compiled call adds to a new process at its peak, all included.

    A later call would add nothing: TensorFlow keeps what XLA has had.
    """
    layer, x = KINDS[kind][0](length, width), tf.zeros((1, length, width))
    layer.build(x.shape)
    call = tf.function(lambda x: layer(x), jit_compile=True, autograph=False)
    before = resident_mebibytes("VmRSS")
    call(x).numpy()
    return round(resident_mebibytes() - before)


def slope(points, name, along):
    """Exponent between the two largest sizes."""
    before, last = points[-2:]
    return round(math.log(last[name] / before[name]) / math.log(last[along] / before[along]), 2)


def main():
    points, rows = {}, {}
    for kind, (*_, claimed) in KINDS.items():
        usual = (LENGTHS, WIDTHS, AT_WIDTH, AT_LENGTH)
        lengths, widths, at_width, at_length = SMALL.get(kind, usual)
        by_length = [measure(kind, length, at_width) for length in lengths]
        by_width = [measure(kind, at_length, width) for width in widths]
        points[kind] = {"length": by_length, "width": by_width}
        rows[kind] = {
            "parameters, D=128": by_width[-1]["parameters"],
            "operations / formula": by_length[-1]["of the formula"],
            "slope in length": slope(by_length, "operations", "length"),
            "table: length": claimed[0],
            "slope in width": slope(by_width, "operations", "width"),
            "table: width": claimed[1],
        }
        for length in () if kind in SMALL else LENGTHS[-2:]:
            command = ("--memory", kind, "--length", str(length))
            rows[kind][f"MiB at length {length}"] = fresh("benchmarks.costs", *command)
        print(kind, rows[kind], flush=True)
    result = {**heading("tensorflow", "keras"), "rows": rows, "points": points}
    print(table(rows, "kind"))
    write("costs", result, {"Slopes of operations and memory": rows})
    pictures.draw("costs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", choices=KINDS, help="used by the benchmark itself")
    parser.add_argument("--length", type=int, help="used by the benchmark itself")
    arguments = parser.parse_args()
    if arguments.memory:
        print(memory(arguments.memory, arguments.length, AT_WIDTH))
    else:
        main()
