"""Ten million pairs from shards: memory, and a run that is killed and resumed to the same weights.

    python -m benchmarks.streaming          # some ten minutes of one core, 1.6 GB of disk
    python -m benchmarks.streaming --smoke  # a hundredth of it; writes nothing

Pairs of the English-German user interfaces, drawn with repetition, in 40 shards of lines, of which
8 are packed; in every 100,000 pairs one line has no tab. Each process trains a tiny Transformer on
packed rows. One is never stopped. One is killed by SIGKILL in its last third, and the same command
resumes it: the weights are compared bit by bit. Another reads all rows once, without training.

Memory is that of the whole process, at its peak, less what it held after one step on an array of
zeros: TensorFlow, the model, its optimizer and the compiled step.
"""

import argparse
import gzip
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

from benchmarks.report import heading, holding, resident_mebibytes, write

PAIRS, SHARDS, STEPS = 10_000_000, 40, 900
SMOKE = (100_000, 8, 60)
PARAGRAPH, BAD_EVERY = 50, 100_000  # pairs drawn together; pairs to a bad line
LENGTHS, ROWS = (56, 64), 64  # positions for source and target, rows in a batch
LIMIT = 1024  # MiB
LIMITED = "MiB above TensorFlow and the model"


def make_shards(folder, pairs, shards):
    """Writes shards and a tokenizer; returns how many bytes and bad lines there are."""
    from keras_transformers.text import SentencePieceTokenizer
    from recipes.data.translation import load

    train = load("ui.en-de").train
    tokenizer = SentencePieceTokenizer.train(train.sources + train.targets, 2500)
    tokenizer.save(folder / "tokenizer.model")
    lines = [f"{s}\t{t}\n".encode() for s, t in zip(train.sources, train.targets, strict=True)]
    draw = random.Random(0)
    paragraphs = [b"".join(draw.choices(lines, k=PARAGRAPH)) for _ in range(2000)]
    total = bad = 0
    (folder / "shards").mkdir()
    for shard in range(shards):
        parts = draw.choices(paragraphs, k=pairs // shards // PARAGRAPH)
        for position in range(0, len(parts), BAD_EVERY // PARAGRAPH):
            parts[position] += b"a line without a tab\n"
            bad += 1
        packed = shard % 5 == 0
        path = folder / "shards" / f"{shard:03}.tsv{'.gz' if packed else ''}"
        data = b"".join(parts)
        path.write_bytes(gzip.compress(data, 1) if packed else data)
        total += path.stat().st_size
    return total, bad


def shards_in(folder):
    from keras_transformers.shards import Shards
    from keras_transformers.tables import PAIRS as COLUMNS

    return Shards.find(f"{folder}/shards/*", COLUMNS, seed=1)


def train(folder, run, steps):
    """Trains in this process, from the last checkpoint if there is one; writes the weights."""
    import keras
    import numpy as np

    from keras_transformers.models import Transformer
    from keras_transformers.shards import ShardStream
    from keras_transformers.text import SentencePieceTokenizer, encoder_of_pairs, packed
    from keras_transformers.training import AdamW, ExactResume, SmoothedCrossEntropy

    tokenizer = SentencePieceTokenizer.load(folder / "tokenizer.model")
    shards = shards_in(folder)
    imported = resident_mebibytes("VmRSS")
    keras.utils.set_random_seed(1)
    model = Transformer(
        tokenizer.vocab_size, hidden_dim=32, num_heads=2, mlp_dim=64, num_layers=1, dropout=0.1
    )
    model.compile(AdamW(1e-3), SmoothedCrossEntropy(0.1), jit_compile=False)
    zeros = {f"{side}{kind}": np.zeros((ROWS, length), "int32")
             for side, length in zip(("source", "target"), LENGTHS, strict=True)
             for kind in ("", "_segments")}  # fmt: skip
    model.train_on_batch(zeros, zeros["target"])
    keras.utils.set_random_seed(1)
    before = holding()

    def arrange(pairs, epoch):
        return packed(pairs, *LENGTHS, ROWS, seed=1, epoch=epoch)

    began = time.perf_counter()
    stream = ShardStream(shards, encoder_of_pairs(tokenizer, LENGTHS), arrange, run / "journal")
    resume = ExactResume(run / "checkpoints", every_minutes=None, every_steps=max(steps // 20, 1))
    per_epoch = steps // 4
    model.fit(
        stream.batches(resume.start[0] * per_epoch + resume.start[1]),
        steps_per_epoch=per_epoch,
        epochs=4,
        initial_epoch=resume.start[0],
        callbacks=resume.after([First(began), keras.callbacks.TerminateOnNaN()]),
        verbose=2,
        shuffle=False,
    )
    np.savez(run / "weights.npz", *model.get_weights())
    return {
        "from step": resume.start[0] * per_epoch + resume.start[1],
        "seconds to its first batch": round(First.seconds, 1),
        "MiB after imports": round(imported),
        "MiB after a step": round(before),
        "MiB at the peak": round(resident_mebibytes()),
        LIMITED: round(resident_mebibytes() - before),
    }


def First(began):
    """A callback that keeps how long the first batch took to come."""
    import keras

    class FirstBatch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            First.seconds = First.seconds or time.perf_counter() - began

        def get_state(self):
            return {}

    First.seconds = None
    return FirstBatch()


def read(folder, run, pairs):
    """Reads and shuffles all rows once; returns figures."""
    shards = shards_in(folder)
    next(shards.blocks())
    before, began, cpu = holding(), time.perf_counter(), time.process_time()
    rows, bad = 0, []
    for block in shards.blocks():
        if block.position.passed:
            break
        rows += len(block.origins)
        bad += block.left_out
    assert rows == pairs, (rows, pairs)
    return {
        "rows": rows,
        "bad lines": len(bad),
        "the first of them": f"{pathlib.Path(bad[0].file).name}, line {bad[0].line}",
        "seconds": round(time.perf_counter() - began),
        "microseconds of a core a row": round(1e6 * (time.process_time() - cpu) / rows, 1),
        "MiB at the peak": round(resident_mebibytes()),
        "MiB above the first buffer": round(resident_mebibytes() - before),
    }


def of_process(what, folder, run, number, kill_at=None):
    """Figures of a process of its own; None where it is killed once its journal has that step."""
    run.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.streaming", "--process", what]
    process = subprocess.Popen([*command, str(folder), str(run), str(number)])
    while process.poll() is None:
        time.sleep(0.05)
        if kill_at is not None and checkpointed(run) >= kill_at:
            time.sleep(random.Random(1).random())
            process.send_signal(signal.SIGKILL)
            process.wait()
            return None
    assert process.returncode == 0, f"{what} ended with {process.returncode}"
    return json.loads((run / f"{what}.json").read_text())


def checkpointed(run):
    """Steps of the newest checkpoint."""
    names = [path.name[-12:] for path in (run / "checkpoints").glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def compare(folder, pairs, shards, steps):
    """Figures of all processes."""
    import numpy as np

    began = time.perf_counter()
    size, bad = make_shards(folder, pairs, shards)
    print(f"{pairs:,} pairs in {shards} shards, {size / 1e9:.2f} GB: "
          f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
    runs = {"never stopped": of_process("train", folder, folder / "whole", steps)}
    of_process("train", folder, folder / "killed", steps, kill_at=2 * steps // 3)
    last = checkpointed(folder / "killed")
    assert not (folder / "killed" / "weights.npz").exists(), "it ended before it was killed"
    runs["killed and resumed"] = of_process("train", folder, folder / "killed", steps)
    whole, resumed = (np.load(folder / name / "weights.npz") for name in ("whole", "killed"))
    differing = sum(not np.array_equal(whole[name], resumed[name]) for name in whole.files)
    reading = of_process("read", folder, folder / "read", pairs)
    assert reading["bad lines"] == bad, (reading, bad)
    figures = {"pairs": pairs, "shards": shards, "gigabytes": round(size / 1e9, 2), "steps": steps}
    figures |= {"step of the last checkpoint before SIGKILL": last}
    figures |= {"arrays of weights": len(whole.files), "arrays that differ": differing}
    return {"figures": figures, "training": runs, "reading": reading}


def main(smoke=False):
    with tempfile.TemporaryDirectory() as folder:
        found = compare(pathlib.Path(folder), *(SMOKE if smoke else (PAIRS, SHARDS, STEPS)))
    assert found["figures"]["arrays that differ"] == 0, found
    assert all(row[LIMITED] < LIMIT for row in found["training"].values()), found
    tables = {
        "The run": {"figures": found["figures"]},
        "Killed and resumed": found["training"],
        "All rows read once": {"reading": found["reading"]},
    }
    if smoke:
        print(json.dumps(found, indent=2))
    else:
        write("streaming", heading("tensorflow", "keras") | found, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="few pairs; writes nothing")
    parser.add_argument("--process", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        what, folder, run, number = options.process
        folder, run = pathlib.Path(folder), pathlib.Path(run)
        figures = {"train": train, "read": read}[what](folder, run, int(number))
        (run / f"{what}.json").write_text(json.dumps(figures))
    else:
        main(options.smoke)
