"""Cost of the loss over a large vocabulary: all logits at once, and a chunk of them at a time.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.cross_entropy

From 2,048 hidden states of width 512 and the table of the vocabulary to the smoothed cross-entropy
and the gradients of both, float32: `token_cross_entropy` of the logits and `linear_cross_entropy`,
both under XLA, and PyTorch's `cross_entropy`. MiB is what a process holds at its peak beyond the
states and the table, compiled program included; the table's gradient, which every way has to give,
is in it, and taken off in the column beside it. Losses and gradients must agree before anything is
timed.
"""

import argparse
import os

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, holding, table, write

POSITIONS, WIDTH, SMOOTHING = 2048, 512, 0.1
VOCABULARIES = (32_000, 256_000)
MOST = 32_000  # the largest for PyTorch, which at 256,000 would hold some 16 GB
OURS, PLAIN, TORCH = "linear_cross_entropy", "all logits", "PyTorch, all logits"


def numbers(vocab):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((POSITIONS, WIDTH), "float32")
    entries = rng.standard_normal((vocab, WIDTH), "float32")
    entries *= 0.05
    return x, entries, rng.integers(1, vocab, POSITIONS).astype("int32")


def few(loss, of_x, of_table):
    """Some of the numbers that ways must agree on."""
    return [float(loss), *map(float, of_x[3, :4]), *map(float, of_table[:4, 3])]


def of_tensorflow(name, vocab):
    import tensorflow as tf

    from keras_transformers.training import linear_cross_entropy, token_cross_entropy

    x, entries, labels = map(tf.Variable, numbers(vocab))
    before, weights = holding(), tf.ones(POSITIONS) / POSITIONS

    def losses():
        if name == OURS:
            found = linear_cross_entropy(x, entries, labels, None, SMOOTHING, 0, weights)
            return found.losses
        return token_cross_entropy(labels, tf.matmul(x, entries, transpose_b=True), SMOOTHING)[0]

    @tf.function(jit_compile=True, autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(losses() * weights)
        return loss, *tape.gradient(loss, [x, entries])

    def run():
        return few(*(tensor.numpy() for tensor in step()))

    return run, before


def of_pytorch(vocab):
    import torch

    torch.set_num_threads(os.cpu_count())
    x, entries, labels = map(torch.from_numpy, numbers(vocab))
    x.requires_grad_(), entries.requires_grad_()
    before = holding()

    def run():
        x.grad = entries.grad = None
        loss = torch.nn.functional.cross_entropy(
            x @ entries.T, labels.long(), label_smoothing=SMOOTHING
        )
        loss.backward()
        return few(loss.detach(), x.grad, entries.grad)

    return run, before


def prepare(name, settings):
    alternating.keep_freed_memory()
    vocab = settings["vocab"]
    run, before = of_pytorch(vocab) if name == TORCH else of_tensorflow(name, vocab)
    return run, {"numbers": run(), "before": before}


def of_vocabulary(vocab, rounds):
    before = {}

    def check(results):
        for name, result in results.items():
            expected = results[PLAIN]["numbers"]
            np.testing.assert_allclose(
                result["numbers"], expected, rtol=1e-4, atol=1e-7, err_msg=name
            )
            before[name] = result["before"]

    names = (PLAIN, OURS, TORCH) if vocab <= MOST else (PLAIN, OURS)
    found = alternating.measure("benchmarks.cross_entropy", names, {"vocab": vocab}, rounds, check)
    rows, gradient = {}, vocab * WIDTH * 4 / 2**20
    for name, figures in found.items():
        mebibytes = figures["peak_mebibytes"] - before[name]
        rows[name] = {each: round(figures[each]) for each in ("milliseconds", "from", "to")}
        rows[name] |= {
            "MiB": round(mebibytes),
            "MiB beyond the table's gradient": round(mebibytes - gradient),
        }
    return rows


def run_all(rounds):
    rows = {}
    for vocab in VOCABULARIES:
        rows[f"{vocab:,} entries"] = of_vocabulary(vocab, rounds)
        print(table(rows[f"{vocab:,} entries"]), flush=True)
    what = f"{POSITIONS} positions, width {WIDTH}, forward and backward"
    result = {**heading("tensorflow", "keras", "torch"), "what": what, "rows": rows}
    write("cross_entropy", result, {f"{what}, {name}": each for name, each in rows.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    alternating.main(prepare, run_all, parser)
