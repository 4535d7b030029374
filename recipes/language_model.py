"""A language model from text files to a SavedModel that writes: GPT-2's architecture and its heirs.

    python -m recipes.language_model                                  # Shakespeare's works
    python -m recipes.language_model --train a.txt --valid b.txt --test c.txt
    python -m recipes.language_model --dataset tfds:NAME
    python -m recipes.language_model --pretrained gpt2                # published, in that folder

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
https://arxiv.org/abs/2302.13971. Measured on three plays held out of Shakespeare's works, on two
cores of an AMD EPYC with AVX-512: 1.82 bits a byte, perplexity 1,184 a word, after ten minutes of
training (four epochs, seed 1; `python -m benchmarks.language_modeling`).
"""

import collections
import dataclasses
import math
import typing

import numpy as np
import tensorflow as tf

from keras_transformers.export import TextGenerator
from keras_transformers.generation import Sampling
from keras_transformers.inspection import attention_maps
from keras_transformers.models import LanguageModel
from keras_transformers.pretrained import load_tokenizer
from keras_transformers.text import SentencePieceTokenizer, packed_documents, sliding_windows
from keras_transformers.training import AdamW
from keras_transformers.visualization import attention_heat_map, training_curves

from . import texts
from .command import begin, main, publish, start_from
from .data.documents import load_documents
from .devices import hand_over


@dataclasses.dataclass(frozen=True)
class Config(texts.TextConfig):
    """Every number of a run. The defaults suit five million characters and two CPU cores."""

    dataset: str = "shakespeare"  # or tfds:NAME
    output: str = "runs/language_model"
    pretrained: str | None = None  # folder of published GPT-2 weights, to go on from
    variant: typing.Literal["tiny", "mini", "small", "medium", "large", "xl"] = "mini"
    style: typing.Literal["gpt2", "modern"] = "modern"
    num_key_value_heads: int | None = None
    dropout: float = 0.0  # in ten minutes every text is read four times, not forty
    stride: int = 128  # between the windows of evaluation: the rest of a row is context
    prompts: tuple[str, ...] = ("", "ROMEO.\n", "Shall I compare thee")  # to go on with
    temperature: float = 0.8
    top_p: float = 0.95
    new_tokens: int = 128  # of each continuation


SMOKE = {"epochs": 1, "batch_size": 512, "row_length": 64, "vocab_size": 500, "variant": "tiny"}
SMOKE.update(warmup_steps=2, stride=32, new_tokens=16)
SMOKE_CHARACTERS = 20_000
# What changes where not chosen, to go on from published weights.
TUNING = {"learning_rate": 1e-4, "batch_size": 2048, "dropout": 0.1}


def load_data(config):
    """Texts, a lossless tokenizer trained on them, and the ids of each text."""
    data = load_documents(config.dataset, config.train, config.valid, config.test)
    if config.smoke:
        data = data.sample(train=3, valid=1, test=1)
        cut = {
            name: dataclasses.replace(
                corpus, texts=[text[:SMOKE_CHARACTERS] for text in corpus.texts]
            )
            for name, corpus in data.corpora().items()
        }
        data = dataclasses.replace(data, **cut)
    for corpus in data.corpora().values():
        print(corpus.summary())
    if config.pretrained is None:
        tokenizer = SentencePieceTokenizer.train(
            data.train.texts, config.vocab_size, lossless=True
        )
    else:
        tokenizer = load_tokenizer(config.pretrained)
    ids = {
        name: [tokenizer.tokenize(text, start=True, end=True).numpy() for text in corpus.texts]
        for name, corpus in data.corpora().items()
    }
    return data, tokenizer, ids


def windows(config, documents, padding_id):
    """Batches in which every token is predicted once, with context."""
    ids, labels = sliding_windows(documents, config.row_length, config.stride, padding_id)
    rows = config.batch_size // config.row_length
    missing = -len(ids) % rows  # one shape, compiled once; rows of padding weigh nothing
    ids, labels = (
        np.pad(array, ((0, missing), (0, 0)), constant_values=padding_id) for array in (ids, labels)
    )
    return tf.data.Dataset.from_tensor_slices(({"ids": ids}, labels)).batch(rows)


def build_model(config, vocab_size):
    """The decoder-only Transformer, compiled with Muon; or the published one."""
    if config.pretrained is not None:
        model = start_from(config.pretrained)
        if not isinstance(model, LanguageModel):
            raise ValueError(f"--pretrained: {config.pretrained} holds no language model.")
        optimizer = config.make_optimizer(AdamW, global_clipnorm=1.0)
        return texts.token_model(config, model, optimizer)
    model = LanguageModel.from_variant(
        config.variant,
        vocab_size,
        style=config.style,
        num_key_value_heads=config.num_key_value_heads,
        max_length=max(1024, config.row_length),
        dropout=config.dropout,
        attention_dropout=0.0,
    )
    return texts.token_model(config, model)


def score(config, folder, model, documents, corpus):
    """Bits per byte and perplexity of held-out texts, of all together and of each."""
    rows, totals = [], collections.Counter()
    for number, (document, text) in enumerate(zip(documents, corpus.texts, strict=True)):
        batches = windows(config, [document], model.padding_id)
        found = model.evaluate(batches, verbose=0, return_dict=True)
        counts = {
            "nats": found["cross_entropy"] * (len(document) - 1),
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


def export(config, folder, model, tokenizer):
    """Writes what it makes of the prompts, and the program that goes on with any."""
    search = Sampling(config.temperature, top_p=config.top_p, seed=config.seed)
    with folder.exporting("samples.txt"):
        write_samples(
            config, folder, TextGenerator(model, tokenizer, search, config.new_tokens)
        )
    with folder.exporting("saved_model") as path:  # another text each time it is asked
        search = dataclasses.replace(search, seed=None)
        TextGenerator(model, tokenizer, search, config.new_tokens).save(path)
    if config.pretrained is not None:
        with folder.exporting("published"):
            publish(folder, model, tokenizer)


def write_samples(config, folder, generator):
    """Prints what the model makes of the prompts, and keeps it."""
    samples = generator.write(config.prompts)
    text = "\n\n--------\n\n".join(samples)
    (folder / "samples.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


def draw(folder, history, model, tokenizer, text):
    """Curves, and what each piece of a line looks at in the last block."""
    groups = ("loss", "accuracy", "tokens_per_second")
    with folder.drawing("training_curves") as path:
        training_curves(history, path, groups)
    with folder.drawing("attention") as path:
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
    """The first line of 21 to 49 characters, or else the beginning of the longest."""
    lines = [line.strip() for line in text.split("\n")]
    fitting = (line for line in lines if 20 < len(line) < 50)
    return next(fitting, max(lines, key=len)[:49])


def run(config):
    """Trains, scores on the test set, writes samples, exports; returns the metrics."""
    config, folder = begin(config, SMOKE, TUNING)
    data, tokenizer, ids = load_data(config)
    if config.pretrained is None:
        tokenizer.save(folder / "tokenizer.model")
    documents = tf.data.Dataset.from_tensors(texts.ragged(ids["train"]))
    rows = config.batch_size // config.row_length
    padding = {"padding_id": tokenizer.pad_id}

    def batches(epoch):
        return packed_documents(
            documents, config.row_length, rows, config.seed, epoch=epoch, **padding
        )

    with config.making():
        model = build_model(config, tokenizer.vocab_size)
    valid = windows(config, ids["valid"], tokenizer.pad_id)
    history, measured = texts.fit_tokens(config, folder, model, batches, valid)
    hand_over()
    scores = score(config, folder, model, ids["test"], data.test)
    metrics = {
        **scores,
        **measured,
        "parameters": model.count_params(),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    folder.write_metrics(metrics)
    export(config, folder, model, tokenizer)
    draw(folder, history, model, tokenizer, data.test.texts[0])
    folder.end()
    folder.show_use(config.prompts[-1], repeatable=False)
    return metrics


if __name__ == "__main__":
    main(run, Config, __doc__)
