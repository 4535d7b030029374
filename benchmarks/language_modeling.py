"""A language model of Shakespeare in so many minutes: ours, PyTorch's, n-grams, and compressors.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.language_modeling

Everyone learns from the same 38 works and is asked for the same three plays, in bits per byte.

- ours: `recipes.language_model` as it comes, but for the minutes;
- PyTorch: nanoGPT's network and training (GPT-2 blocks, AdamW with its rates and decay, random
  crops, dropout 0.1), as wide and deep as ours, on the same pieces, in the same time;
- 5-gram: modified Kneser-Ney smoothing, on the same pieces;
- xz and gzip: of the training text and a play together, less the training text alone.

Tokens are predicted with at least 128 before them, or all of a play's for the n-grams.
"""

import argparse
import gzip
import json
import lzma
import math
import pathlib
import tempfile
import time

import numpy as np

from benchmarks import alternating, pictures
from benchmarks.report import heading, table, write

MINUTES, LENGTH, STRIDE, ROWS = 10.0, 256, 128, 16
WIDTH, HEADS, LAYERS = 256, 4, 4


def texts():
    """Training and test texts."""
    from recipes.data import shakespeare

    corpora = shakespeare.by_work()
    return corpora["train"].texts, corpora["test"].texts


def tokens():
    """Training and test ids, and the size of the vocabulary."""
    from keras_transformers.text import SentencePieceTokenizer
    from recipes.language_model import Config

    train, test = texts()
    tokenizer = SentencePieceTokenizer.train(train, Config().data.vocab_size, lossless=True)
    ids = [
        [tokenizer.tokenize(text, start=True, end=True).numpy() for text in part]
        for part in (train, test)
    ]
    return *ids, tokenizer.vocab_size


def for_loop():
    """Training ids, windows of the test ids and their labels, and the size of the vocabulary."""
    from keras_transformers.text import sliding_windows

    train, test, vocab_size = tokens()
    return train, list(zip(*sliding_windows(test, LENGTH, STRIDE), strict=True)), vocab_size


def ours(minutes, seed):
    """Metrics of the recipe's run."""
    from recipes import language_model
    from recipes.lib.options import configure

    with tempfile.TemporaryDirectory() as folder:
        config = configure(language_model.Config, output=folder, minutes=minutes, seed=seed)
        metrics = language_model.run(config)
        history = pathlib.Path(folder, "history.csv").read_text()
    lines = [line.split(",") for line in history.splitlines()]
    names = ("seconds", "cross_entropy", "val_cross_entropy")
    columns = [lines[0].index(name) for name in names]
    curve = [[float(line[column]) for column in columns] for line in lines[1:]]
    return {
        "bits_per_byte": metrics["test_bits_per_byte"],
        "perplexity_per_word": metrics["test_perplexity_per_word"],
        "parameters": metrics["parameters"],
        "tokens_per_second": metrics["tokens_per_second"],
        "curve": curve,
    }


def network(vocab_size):
    """nanoGPT's network in PyTorch."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.attend = nn.Linear(WIDTH, 3 * WIDTH)
            self.project = nn.Linear(WIDTH, WIDTH)
            self.hidden, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            batch, length, _ = x.shape
            heads = self.attend(self.norms[0](x)).view(batch, length, 3, HEADS, -1)
            query, key, value = heads.permute(2, 0, 3, 1, 4)
            rate = 0.1 if self.training else 0.0
            y = functional.scaled_dot_product_attention(
                query, key, value, dropout_p=rate, is_causal=True
            )
            y = y.transpose(1, 2).reshape(batch, length, WIDTH)
            x = x + self.dropout(self.project(y))
            y = functional.gelu(self.hidden(self.norms[1](x)))
            return x + self.dropout(self.out(y))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocab_size, WIDTH)
            self.positions = nn.Embedding(LENGTH, WIDTH)
            self.dropout = nn.Dropout(0.1)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    last = name.endswith(("project.weight", "out.weight"))
                    deviation = 0.02 / math.sqrt(2 * LAYERS) if last else 0.02
                    nn.init.normal_(parameter, std=deviation)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
            return self.norm(self.blocks(self.dropout(x))) @ self.tokens.weight.T

    return Network()


def pytorch(minutes, seed):
    """The same for a loop in PyTorch."""
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    train, windows, vocab_size = alternating.apart(for_loop)
    stream = torch.tensor(np.concatenate(train), dtype=torch.long)
    model = network(vocab_size)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    peak, warmup = 1e-3, 100
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=peak,
        betas=(0.9, 0.99),
    )
    started, step, curve, losses = time.perf_counter(), 0, [], []
    model.train()
    while (spent := (time.perf_counter() - started) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            cosine = 0.1 + 0.9 * (1 + math.cos(math.pi * spent)) / 2
            group["lr"] = peak * min(step / warmup, cosine)
        first = torch.randint(len(stream) - LENGTH - 1, (ROWS,))
        rows = torch.stack([stream[i : i + LENGTH + 1] for i in first])
        loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        losses.append(loss.item())
        if step % 100 == 0:
            curve.append([60 * minutes * spent, float(np.mean(losses[-100:]))])
    seconds = time.perf_counter() - started
    model.eval()
    nats = 0.0
    with torch.no_grad():
        for ids, labels in windows:
            labels = torch.tensor(labels, dtype=torch.long)
            logits = model(torch.tensor(ids, dtype=torch.long)[None])[0]
            nats += functional.cross_entropy(logits, labels, reduction="sum", ignore_index=0).item()
    return {
        **alternating.apart(scores, nats),
        "parameters": sum(p.numel() for p in model.parameters()),
        "tokens_per_second": step * ROWS * LENGTH / seconds,
        "curve": curve,
    }


def n_grams(minutes, seed):
    """The same for five-grams."""
    from benchmarks.ngrams import KneserNey

    train, test, vocab_size = tokens()
    model = KneserNey(train, vocab_size)
    return scores(-sum(np.log(model.probabilities(document)).sum() for document in test))


def compressor(compress):
    """A function like the others for a compressor of bytes."""

    def measure(minutes, seed):
        train, test = ("".join(part).encode() for part in texts())
        more = len(compress(train + test)) - len(compress(train))
        return {"bits_per_byte": 8 * more / len(test)}

    return measure


def scores(nats):
    """Bits per byte and perplexity per word of the test texts."""
    _, test = texts()
    size = sum(len(text.encode()) for text in test)
    words = sum(len(text.split()) for text in test)
    return {
        "bits_per_byte": nats / size / math.log(2),
        "perplexity_per_word": math.exp(nats / words),
    }


CANDIDATES = {
    "ours": ours,
    "PyTorch": pytorch,
    "5-gram": n_grams,
    "xz": compressor(lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)),
    "gzip": compressor(lambda data: gzip.compress(data, 9)),
}


def main(minutes, seed):
    rows, curves = {}, {}
    for name in CANDIDATES:
        arguments = ("--candidate", name, "--minutes", str(minutes), "--seed", str(seed))
        found = alternating.fresh("benchmarks.language_modeling", *arguments)
        curves[name] = found.pop("curve", [])
        rows[name] = {key: round(value, 3) for key, value in found.items()}
        print(table({name: rows[name]}), flush=True)
    result = heading("keras", "tensorflow", "torch", "keras_transformers")
    result |= {"minutes": minutes, "seed": seed, "candidates": rows, "curves": curves}
    write("language_modeling", result, {f"{minutes:g} minutes, seed {seed}": rows})
    pictures.draw("language_modeling")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--candidate")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.candidate:
        found = CANDIDATES[arguments.candidate](arguments.minutes, arguments.seed)
        print(json.dumps(found))
    else:
        main(arguments.minutes, arguments.seed)
