"""Speed of a training step: ours, plain Keras, KerasHub and PyTorch, the same network in all.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.training

A Transformer of 3+3 layers, width 256, one table of 8,000 (`benchmarks.networks`), batches of 64
pairs of 32 + 32 tokens, Adam (ours `AdamW` without decay), dropout 0.1, cross-entropy. PyTorch's is
Hugging Face's MarianMT. All start from the same weights, and their losses without dropout must
agree before anything is timed.
Every candidate runs in a process of its own, in turns, as it comes and with `keep_freed_memory`,
which is ours but serves every library that allocates through the C library.
"""

import argparse
import functools
import math
import os
import time

import numpy as np

from benchmarks import alternating, networks
from benchmarks.report import heading, table, write

PACKAGES = ("tensorflow", "keras", "keras-hub", "torch", "transformers")
KEPT = ", freed memory kept"
OURS = "keras_transformers"
BF16 = f"{OURS} mixed_bfloat16"
NAMES = (OURS, "plain Keras", "KerasHub", "PyTorch", "PyTorch compiled")
OTHERS = (BF16, f"{BF16} without XLA", f"{OURS} without XLA")


def weights():
    from benchmarks.marian import random_weights

    return random_weights(networks.ours(), seed=1)


def of_keras(name, check=True):
    import keras

    from keras_transformers.training import AdamW, SmoothedCrossEntropy

    if "mixed_bfloat16" in name:
        keras.config.set_dtype_policy("mixed_bfloat16")
    makers = {"plain Keras": networks.plain_keras, "KerasHub": networks.keras_hub}
    model = makers.get(name, networks.ours)()
    inputs, labels = networks.batch()
    mean = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = None
    if check:
        networks.load(model, weights())
        loss = float(mean(labels, model(inputs, training=False)))
    adam = AdamW(1e-4, 0.0) if name.startswith(OURS) else keras.optimizers.Adam(1e-4)
    model.compile(
        adam,
        SmoothedCrossEntropy(0.0) if name.startswith(OURS) else mean,
        jit_compile="without" not in name,
    )
    model.optimizer.build(model.trainable_variables)
    return lambda: model.train_on_batch(inputs, labels), loss


def of_pytorch(name, check=True):
    import torch

    from benchmarks.marian import marian

    torch.set_num_threads(os.cpu_count())
    settings = {**networks.SIZES, "vocab_size": networks.VOCAB, "dropout": networks.DROPOUT}
    model = marian(settings, alternating.apart(weights) if check else None)
    inputs, labels = networks.batch()
    source, target = (torch.tensor(inputs[key]).long() for key in ("source", "target"))
    labels = torch.tensor(labels).long().reshape(-1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    forward = torch.compile(model) if name.endswith("compiled") else model

    def loss():
        logits = forward(
            input_ids=source, attention_mask=source != 0, decoder_input_ids=target
        ).logits
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, networks.VOCAB), labels, ignore_index=0
        )

    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    model.eval()
    with torch.no_grad():
        first = loss().item() if check else None
    model.train()
    return step, first


def prepare(name, settings):
    base = name.removesuffix(KEPT)
    if base != name:
        alternating.keep_freed_memory()
    make = of_pytorch if base.startswith("PyTorch") else of_keras
    step, loss = make(base)

    def run():
        for _ in range(settings["steps"]):
            step()

    return run, loss


def check(losses):
    wrong = {
        name: loss
        for name, loss in losses.items()
        if abs(loss - losses[OURS]) > (0.05 if "bfloat16" in name else 1e-4)
    }
    assert not wrong, f"other losses than ours, {losses[OURS]}: {wrong}"


def quickest(function, *arguments, repeats=7):
    """Seconds of the quickest call."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        function(*arguments)
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def _rate(product, x):
    return round(2 * len(x) ** 3 / quickest(product, x) / 1e9)


def _square(size):
    return np.random.default_rng(0).normal(size=(size, size)).astype("float32")


def tensorflow_rates(size=2048):
    """GFLOP/s of a matrix product by TensorFlow and XLA: what the machine can do."""
    import tensorflow as tf

    rates = {}
    for dtype in ("float32", "bfloat16"):
        x = tf.cast(_square(size), dtype)
        plain = tf.function(lambda x: tf.matmul(x, x)[0, 0], autograph=False)
        compiled = tf.function(lambda x: tf.matmul(x, x), jit_compile=True, autograph=False)
        rates[f"TensorFlow {dtype}"] = _rate(lambda x: plain(x).numpy(), x)  # noqa: B023
        rates[f"XLA {dtype}"] = _rate(lambda x: compiled(x)[0, 0].numpy(), x)  # noqa: B023
    return rates


def pytorch_rates(size=2048):
    """The same by PyTorch."""
    import torch

    torch.set_num_threads(os.cpu_count())
    return {
        f"PyTorch {dtype}": _rate(
            lambda x: x @ x, torch.tensor(_square(size)).to(getattr(torch, dtype))
        )
        for dtype in ("float32", "bfloat16")
    }


def products():
    """The matrix products of our forward pass: what, how many, matrices in each, (m, k, n)."""
    width, hidden, heads, layers = (
        networks.SIZES[key] for key in ("hidden_dim", "mlp_dim", "num_heads", "num_layers")
    )
    tokens, length = networks.BATCH * networks.LENGTH, networks.LENGTH
    pairs, head = networks.BATCH * heads, width // heads
    return (
        ("query, key and value", 2 * layers, 1, (tokens, width, 3 * width)),
        ("key and value of the source", layers, 1, (tokens, width, 2 * width)),
        ("query of the target, attention's output", 4 * layers, 1, (tokens, width, width)),
        ("scores", 3 * layers, pairs, (length, head, length)),
        ("weighted values", 3 * layers, pairs, (length, length, head)),
        ("feed-forward, first", 2 * layers, 1, (tokens, width, hidden)),
        ("feed-forward, second", 2 * layers, 1, (tokens, hidden, width)),
        ("logits", 1, 1, (tokens, width, networks.VOCAB)),
    )


def product_rates():
    """The step's products and nothing else, one by one under XLA: how quick a step could be."""
    import tensorflow as tf

    alternating.keep_freed_memory()
    rng, rows = np.random.default_rng(0), {}
    # Y = X W, dX = dY W^T, dW = X^T dY
    kinds = {"forward": {}, "d input": {"transpose_b": True}, "d weight": {"transpose_a": True}}
    for name, count, matrices, (m, k, n) in products():
        x, w, dy = (
            tf.constant(rng.normal(size=(matrices, *shape)), "float32")
            for shape in ((m, k), (k, n), (m, n))
        )
        operations = 2 * matrices * m * k * n
        rows[name] = {"a step": count, "m x k x n": f"{m} x {k} x {n}", "milliseconds": 0}
        for (kind, how), pair in zip(kinds.items(), ((x, w), (dy, w), (x, dy)), strict=True):
            product = tf.function(
                functools.partial(tf.matmul, **how), jit_compile=True, autograph=False
            )
            seconds = quickest(product, *pair, repeats=20)
            rows[name][f"{kind}, GFLOP/s"] = round(operations / seconds / 1e9)
            rows[name]["milliseconds"] += 1e3 * seconds * count
        rows[name]["milliseconds"] = round(rows[name]["milliseconds"], 1)
    return rows


def run_all(rounds, steps):
    rates = {**alternating.apart(tensorflow_rates), **alternating.apart(pytorch_rates)}
    alone = alternating.apart(product_rates)
    # A forward pass and twice that backward.
    operations = 3 * sum(
        2 * count * matrices * math.prod(size) for _, count, matrices, size in products()
    )
    milliseconds = sum(row["milliseconds"] for row in alone.values())
    gflops = round(operations / milliseconds / 1e6)
    in_all = {"milliseconds": round(milliseconds), "GFLOP/s": gflops}
    names = [name + kept for name in NAMES for kept in ("", KEPT)]
    names += [name + KEPT for name in OTHERS]
    rows = alternating.measure("benchmarks.training", names, {"steps": steps}, rounds, check)
    for row in rows.values():
        for column in ("milliseconds", "from", "to"):
            row[column] = round(row[column] / steps, 1)
        gflops = operations / row["milliseconds"] / 1e6
        row["gflops"] = round(gflops)
        row["share_of_tensorflow_product"] = round(gflops / rates["TensorFlow float32"], 2)
    rows_of_ratios = {
        name: {
            "as it comes": round(rows[OURS]["milliseconds"] / rows[name]["milliseconds"], 2),
            "freed memory kept": round(
                rows[OURS + KEPT]["milliseconds"] / rows[name + KEPT]["milliseconds"], 2
            ),
            "ours with its call, theirs as it comes": round(
                rows[OURS + KEPT]["milliseconds"] / rows[name]["milliseconds"], 2
            ),
        }
        for name in NAMES[1:]
    }
    result = {
        **heading(*PACKAGES),
        "matrix_product_gflops": rates,
        "gigaflop_a_step": round(operations / 1e9, 1),
        "products_alone": {**alone, "all": in_all},
        "rows": rows,
        "ours_divided_by_theirs": rows_of_ratios,
    }
    print(table(rows))
    tables = {
        "A step, milliseconds (median, least, most)": rows,
        "Ours divided by theirs": rows_of_ratios,
        "Matrix products, GFLOP/s": {"2048 x 2048": rates},
        "The step's products, each alone under XLA": alone,
        "All of them": {"a step": in_all},
    }
    write("training", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn")
    alternating.main(prepare, run_all, parser)
