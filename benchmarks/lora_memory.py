"""What tuning a large translator by LoRA takes, beside `peft`: memory above the weights, and time.

    pip install torch peft && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.lora_memory --folder /tmp/nllb

The model has NLLB-200-distilled-600M's shape and random weights in float32, as in
`benchmarks.large_models`. Each candidate has a process of its own: it loads, gets adapters of rank
`--rank` on the projections of attention and the feed-forward networks, and takes steps of AdamW on
the same `--rows` pairs of 32 tokens. Ours is compiled by XLA, its loss that of
`training.LinearCrossEntropy`; PyTorch runs as `peft`'s users have it. Of memory, what a process
holds resident counts, at its peak, above what it held after its imports, less the weights.
"""

import argparse
import ctypes
import gc
import json
import math
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np

from benchmarks import alternating
from benchmarks.large_folders import NLLB, write
from benchmarks.report import heading, holding, resident_mebibytes, table
from benchmarks.report import write as report

OURS, THEIRS = "keras_transformers", "peft"
PACKAGES = ("tensorflow", "keras", "torch", "transformers", "peft")
LENGTH = 32
# What `peft` calls the layers that "attention" and "feed_forward" are.
MODULES = ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]


def pairs(config, rows):
    """Sources and targets, whose first token is a mark."""
    return np.random.default_rng(0).integers(5, config["vocab_size"], (2, rows, LENGTH), "int32")


def ours(folder, rank, ids):
    """Function that loads, and one of its model that takes a step and gives the loss."""
    import tensorflow as tf

    from keras_transformers import pretrained, training

    training.keep_freed_memory()  # as the recipes do

    def load():
        model = pretrained.load(folder)
        training.add_lora(model, rank)
        loss = training.LinearCrossEntropy()
        model.compile(training.AdamW(1e-4), loss, jit_compile=True)
        return model

    source, target = ids
    batch = {"source": source, "target": target[:, :-1]}, target[:, 1:]
    data = tf.data.Dataset.from_tensors(batch)

    def step(model):
        return model.fit(data, verbose=0).history["loss"][0]

    def trained(model):
        return sum(math.prod(x.shape) for x in model.trainable_variables)

    return load, step, trained


def theirs(folder, rank, ids):
    import peft
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    source, target = (torch.tensor(x).long() for x in ids)
    given, labels = target[:, :-1].contiguous(), target[:, 1:].contiguous()

    def load():
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
        settings = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=MODULES)
        model = peft.get_peft_model(model, settings).train()
        trained = [x for x in model.parameters() if x.requires_grad]
        return model, torch.optim.AdamW(trained, 1e-4)

    def step(made):
        model, optimizer = made
        optimizer.zero_grad()
        sources = {"input_ids": source, "attention_mask": torch.ones_like(source)}
        loss = model(**sources, decoder_input_ids=given, labels=labels).loss
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    def trained(made):
        return sum(x.numel() for x in made[0].parameters() if x.requires_grad)

    return load, step, trained


def candidate(name, folder, rank, rows, steps):
    """Figures of one, in this process."""
    config = json.loads(pathlib.Path(folder, "config.json").read_text())
    load, step, trained = {OURS: ours, THEIRS: theirs}[name](folder, rank, pairs(config, rows))
    weights = pathlib.Path(folder, "model.safetensors").stat().st_size / 2**20
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = holding()
    model = load()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    loading = resident_mebibytes()
    holding()
    losses, seconds = [], []
    for _ in range(1 + steps):
        started = time.perf_counter()
        losses.append(step(model))
        seconds.append(time.perf_counter() - started)
    peak = max(loading, resident_mebibytes()) - before
    first, *seconds = seconds
    number = trained(model)
    return {
        "numbers_trained": f"{number:,}",
        "MiB of gradients and moments": round(3 * 4 * number / 2**20),
        "MiB of weights": round(weights),
        "MiB above the weights while loading": round(loading - before - weights),
        "MiB above the weights at the peak": round(peak - weights),
        "first step, s": round(first, 1),
        "step, s": round(statistics.median(seconds), 2),
        "from, to": f"{min(seconds):.2f}, {max(seconds):.2f}",
        "loss": f"{losses[0]:.3f} to {losses[-1]:.3f}",
    }


def run_all(folder, rank, rows, steps, smoke):
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(folder or made)
        folder.mkdir(exist_ok=True)
        if not (folder / "config.json").exists():
            alternating.apart(write, str(folder), NLLB, smoke)
        found = {}
        for name in (OURS, THEIRS):
            found[name] = alternating.apart(candidate, name, str(folder), rank, rows, steps)
            print(name, json.dumps(found[name]), flush=True)
    print(table(found))
    if not smoke:
        what = f"LoRA of rank {rank}, {rows} pairs of {LENGTH} tokens a step"
        report("lora_memory", {**heading(*PACKAGES), "what": what, "results": found}, {what: found})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="for the weights; by default a temporary one")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="a small shape")
    run_all(**vars(parser.parse_args()))
