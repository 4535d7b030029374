"""A language model from text files to a SavedModel that writes: GPT-2's architecture and its heirs.

    python -m recipes.language_model                                  # Shakespeare's works
    python -m recipes.language_model --train a.txt --valid b.txt --test c.txt
    python -m recipes.language_model --train "shards/*.jsonl" ...     # a stream
    python -m recipes.language_model --dataset tfds:NAME
    python -m recipes.language_model --pretrained gpt2                # published, in that folder

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
https://arxiv.org/abs/2302.13971. Measured on three plays held out of Shakespeare's works, on two
cores of an AMD EPYC with AVX-512: 1.82 bits a byte, perplexity 1,184 a word, in ten minutes (four
epochs, seed 1; `python -m benchmarks.language_modeling`).
"""

import collections
import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import tensorflow as tf

from keras_transformers.export import TextGenerator
from keras_transformers.generation import Sampling
from keras_transformers.inspection import attention_maps
from keras_transformers.models import LanguageModel
from keras_transformers.pretrained import load_tokenizer
from keras_transformers.text import (
    SentencePieceTokenizer,
    encoder_of_documents,
    packed_documents,
    sliding_windows,
)
from keras_transformers.training import AdamW, Muon
from keras_transformers.visualization import attention_heat_map

from .data.documents import load_documents
from .lib import fine_tuning, training
from .lib.batches import open_stream
from .lib.options import Run, main


@dataclass(frozen=True)
class Data:
    """The texts, and how they are cut into rows."""

    dataset: str = "shakespeare"  # or tfds:NAME
    train: str | None = None  # own texts instead: files, or folders; a pattern is a stream
    valid: str | None = None  # the same, to stop in time; else a share of --train
    test: str | None = None  # the same, to score on at the end; else a share of --train
    vocab_size: int = 4000  # pieces, which lose nothing of the text
    row_length: int = 256  # positions in a row
    stride: int = 128  # between the windows of evaluation: the rest of a row is context


@dataclass(frozen=True)
class Architecture:
    """The decoder."""

    pretrained: str | None = None  # folder of published GPT-2 weights, to go on from
    variant: Literal["tiny", "mini", "small", "medium", "large", "xl"] = "mini"  # 256 wide
    style: Literal["gpt2", "modern"] = "modern"  # the newer, see `LanguageModel`
    num_key_value_heads: int | None = None  # fewer than of queries: a smaller cache
    dropout: float = 0.0  # in ten minutes every text is read four times, not forty


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    minutes: float | None = 10.0  # of training; the learning rate decays to reach 0 then
    epochs: int = 100  # at most, however quick the machine; without minutes the decay ends there
    steps_per_epoch: int = 1000  # of a stream of shards, which has no other epochs
    batch_size: int = 4096  # positions in a batch
    learning_rate: float = 5e-3  # the peak, for matrices and embeddings alike
    weight_decay: float = 0.05  # of matrices and embeddings
    warmup_steps: int = 50  # to the peak
    decay: Literal["linear", "cosine"] = "linear"  # to 0, over the budget
    patience: int = 3  # epochs without a better validation loss before training stops


@dataclass(frozen=True)
class Decoding:
    """The prompts, and the sampling of their continuations."""

    prompts: tuple[str, ...] = ("", "ROMEO.\n", "Shall I compare thee")  # to go on with
    temperature: float = 0.8  # below 1: surer than it is
    top_p: float = 0.95  # share of the probability that is drawn from
    new_tokens: int = 128  # of each continuation


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit five million characters and two CPU cores."""

    run: Run = Run("runs/language_model")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    decoding: Decoding = Decoding()
    SMOKE: ClassVar = {
        "epochs": 1,
        "steps_per_epoch": 4,
        "batch_size": 512,
        "row_length": 64,
        "vocab_size": 500,
        "variant": "tiny",
        "warmup_steps": 2,
        "stride": 32,
        "new_tokens": 16,
    }
    # To go on from published weights.
    PUBLISHED: ClassVar = {"learning_rate": 1e-4, "batch_size": 2048, "dropout": 0.1}


SMOKE_CHARACTERS = 20_000  # of each text


def load_data(config):
    """Returns texts, a lossless tokenizer trained on them, and the ids of each text."""
    options = config.data
    data = load_documents(options.dataset, options.train, options.valid, options.test)
    if config.run.smoke:
        data = data.sample(train=3 if data.shards is None else 1000, valid=1, test=1)
        cut = {
            name: dataclasses.replace(
                corpus, texts=[text[:SMOKE_CHARACTERS] for text in corpus.texts]
            )
            for name, corpus in data.corpora().items()
        }
        data = dataclasses.replace(data, **cut)
    for corpus in data.corpora().values():
        print(corpus.summary())
    if config.model.pretrained is None:
        tokenizer = SentencePieceTokenizer.train(
            data.train.texts, options.vocab_size, lossless=True
        )
    else:
        tokenizer = load_tokenizer(config.model.pretrained)
    ids = {
        name: [tokenizer.tokenize(text, start=True, end=True).numpy() for text in corpus.texts]
        for name, corpus in data.corpora().items()
        if data.shards is None or name != "train"
    }
    return data, tokenizer, ids


def full_rows(config, padding_id):
    """Returns a function from documents and an epoch to batches of full rows."""
    length, seed = config.data.row_length, config.run.seed
    rows = config.training.batch_size // length

    def arrange(documents, epoch):
        return packed_documents(documents, length, rows, seed, padding_id=padding_id, epoch=epoch)

    return arrange


def dataset_of_ids(documents):
    """Returns a dataset of the ids of all documents."""
    lengths = [len(document) for document in documents]
    ids = np.concatenate(documents).astype("int32")
    return tf.data.Dataset.from_tensors(tf.RaggedTensor.from_row_lengths(ids, lengths))


def windows(config, documents, padding_id):
    """Returns batches in which every token is predicted once, with context."""
    options = config.data
    ids, labels = sliding_windows(documents, options.row_length, options.stride, padding_id)
    rows = config.training.batch_size // options.row_length
    missing = -len(ids) % rows  # one shape, compiled once; rows of padding weigh nothing
    ids, labels = (
        np.pad(array, ((0, missing), (0, 0)), constant_values=padding_id) for array in (ids, labels)
    )
    return tf.data.Dataset.from_tensor_slices(({"ids": ids}, labels)).batch(rows)


def build_model(config, vocab_size):
    """Builds and compiles the decoder-only Transformer, or the published one."""
    options = config.model
    if options.pretrained is not None:
        model = fine_tuning.start_from(options.pretrained, LanguageModel, "language model")
        optimizer = training.make_optimizer(config, AdamW, global_clipnorm=1.0)
    else:
        model = LanguageModel.from_variant(
            options.variant,
            vocab_size,
            style=options.style,
            num_key_value_heads=options.num_key_value_heads,
            max_length=max(1024, config.data.row_length),
            dropout=options.dropout,
            attention_dropout=0.0,
        )
        optimizer = training.make_optimizer(config, Muon)
    return training.compile_model(
        config, model, optimizer, (None, None), **training.token_loss_and_metrics(model)
    )


def score(config, folder, model, documents, corpus):
    """Computes bits per byte and perplexity of held-out texts, together and of each."""
    rows, totals = [], collections.Counter()
    if not model.compiled:  # any more, as `--lora` leaves it
        model.compile(jit_compile=True, **training.token_loss_and_metrics(model))
    for number, (document, text) in enumerate(zip(documents, corpus.texts, strict=True)):
        batches = windows(config, [document], model.padding_id)
        losses = model.evaluate(batches, verbose=0, return_dict=True)
        counts = {
            "nats": losses["cross_entropy"] * (len(document) - 1),
            "tokens": len(document) - 1,
            "words": len(text.split()),
            "bytes": len(text.encode()),
        }
        totals.update(counts)
        rows.append((number, text.strip().split("\n")[0][:60], *_scores(counts).values()))
    scores = {f"test_{name}": value for name, value in _scores(totals).items()}
    header = ["text", "begins", *_scores(totals)]
    folder.write_table("test_texts.tsv", header, rows)
    return scores | {f"test_{name}": totals[name] for name in ("tokens", "words", "bytes")}


def _scores(counts):
    return {
        "bits_per_byte": counts["nats"] / counts["bytes"] / math.log(2),
        "perplexity_per_word": math.exp(counts["nats"] / max(counts["words"], 1)),
        "perplexity_per_token": math.exp(counts["nats"] / counts["tokens"]),
    }


def generator(config, model, tokenizer, seed):
    """Returns a generator of continuations, which differ each time if the seed is None."""
    options = config.decoding
    search = Sampling(options.temperature, top_p=options.top_p, seed=seed)
    return TextGenerator(model, tokenizer, search, options.new_tokens)


def write_samples(config, model, tokenizer, path):
    """Prints and writes the continuations of the prompts."""
    writer = generator(config, model, tokenizer, config.run.seed)
    text = "\n\n--------\n\n".join(writer.write(config.decoding.prompts))
    path.write_text(text + "\n", encoding="utf-8")
    print(text)


def draw(model, tokenizer, text, path):
    """Draws the attention of each piece of a line in the last block."""
    ids = tokenizer.tokenize([line_to_draw(text)], start=True).to_tensor()
    *_, last = attention_maps(model, ids).values()
    pieces = tokenizer.pieces(ids[0])
    attention_heat_map(
        last[0].mean(axis=0),
        queries=pieces,
        keys=pieces,
        path=path,
        title="Attention of the last block, mean of its heads",
    )


def line_to_draw(text):
    """Returns the first line of 21 to 49 characters, or else the beginning of the longest."""
    lines = [line.strip() for line in text.split("\n")]
    fitting = (line for line in lines if 20 < len(line) < 50)
    return next(fitting, max(lines, key=len)[:49])


def run(config):
    """Trains, scores on the test set, writes samples, exports; returns the metrics."""
    folder = training.start_run(config)
    data, tokenizer, ids = load_data(config)
    if config.model.pretrained is None:
        folder.keep("tokenizer.model", tokenizer.save)
    arrange = full_rows(config, tokenizer.pad_id)
    if data.shards is not None:
        encode = encoder_of_documents(tokenizer)
        batches = open_stream(config, data.shards, encode, arrange)
    else:
        batches = partial(arrange, dataset_of_ids(ids["train"]))
    valid = windows(config, ids["valid"], tokenizer.pad_id)
    with training.model_scope(config):
        model = build_model(config, tokenizer.vocab_size)
    history, measured = training.fit_tokens(config, folder, model, batches, valid)
    training.continue_on_tensorflow()
    scores = score(config, folder, model, ids["test"], data.test)
    return training.finish(
        folder,
        {**scores, **measured},
        model=model,
        history=history,
        curves=("loss", "accuracy", "tokens_per_second"),
        exports={
            "samples.txt": partial(write_samples, config, model, tokenizer),
            "saved_model": lambda path: generator(config, model, tokenizer, None).save(path),
            "published": fine_tuning.publishing(config.model.pretrained, model, tokenizer),
        },
        figures={"attention": partial(draw, model, tokenizer, data.test.texts[0])},
        use=lambda: folder.show_use(config.decoding.prompts[-1], repeatable=False),
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
