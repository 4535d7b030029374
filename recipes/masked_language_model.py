"""Pre-trains a text encoder by masked language modelling: BERT's task, on text files.

    python -m recipes.masked_language_model                           # Shakespeare's scenes
    python -m recipes.masked_language_model --train a.txt --valid b.txt --test c.txt
    python -m recipes.masked_language_model --train "shards/*.jsonl" ...  # a stream
    python -m recipes.masked_language_model --dataset tfds:NAME

Devlin et al. 2018, https://arxiv.org/abs/1810.04805; Liu et al. 2019,
https://arxiv.org/abs/1907.11692. `recipes.text_classification --pretrained` goes on from its
folder; the scenes held out here are held out there. Measured on two cores of an AMD EPYC with
AVX-512: 31.9 % of the hidden tokens of held-out scenes are found, perplexity 49.5, after ten
minutes of training (seed 1).
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import tensorflow as tf

from keras_transformers.export import MaskFiller
from keras_transformers.models import TextEncoder
from keras_transformers.tasks.mask_filling import masked_documents
from keras_transformers.text import WordPieceTokenizer, encoder_of_documents
from keras_transformers.training import Muon

from .data.documents import load_documents
from .lib import training
from .lib.batches import open_stream
from .lib.options import Run, main


@dataclass(frozen=True)
class Data:
    """The texts, how they are cut into rows, and which tokens are hidden."""

    dataset: str = "shakespeare-scenes"  # or shakespeare, or tfds:NAME
    train: str | None = None  # own texts instead: files, or folders; a pattern is a stream
    valid: str | None = None  # the same, to stop in time; else a share of --train
    test: str | None = None  # the same, to score on at the end; else a share of --train
    vocab_size: int = 4000  # pieces
    lower_case: bool = True  # as in BERT uncased
    row_length: int = 128  # positions in a row
    mask_rate: float = 0.2  # of tokens; small models like more than BERT's 0.15
    whole_words: bool = True  # a piece is easily guessed from the others of its word
    samples: tuple[str, ...] = (  # to fill in
        "To be, or not to [MASK], that is the question.",
        "My [MASK], my lord!",
        "Good [MASK], good night.",
    )


@dataclass(frozen=True)
class Architecture:
    """The encoder."""

    variant: Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini"  # 256 wide
    style: Literal["bert", "modern"] = "modern"  # the newer, see `TextEncoder`
    dropout: float = 0.0  # other words are masked each time; and the text is read a few times only


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
class Config:
    """Every number of a run. The defaults suit some millions of characters and two CPU cores."""

    run: Run = Run("runs/masked_language_model")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    SMOKE: ClassVar = {
        "epochs": 1,
        "steps_per_epoch": 4,
        "batch_size": 512,
        "row_length": 64,
        "vocab_size": 500,
        "variant": "tiny",
        "warmup_steps": 2,
    }


def load_data(config):
    """Returns a tokenizer trained on the texts, and batches in which tokens are hidden."""
    options, seed = config.data, config.run.seed
    data = load_documents(options.dataset, options.train, options.valid, options.test)
    if config.run.smoke:
        data = data.sample(train=40, valid=5, test=5)
    for corpus in data.corpora().values():
        print(corpus.summary())
    tokenizer = WordPieceTokenizer.train(data.train.texts, options.vocab_size, options.lower_case)
    rows = config.training.batch_size // options.row_length

    def batches(documents, seed, epoch=None):
        hidden = (options.mask_rate, options.whole_words)
        return masked_documents(
            documents, tokenizer, options.row_length, rows, seed, epoch, *hidden
        )

    documents = {
        name: tf.data.Dataset.from_tensors(tokenizer.tokenize(corpus.texts, start=True, end=True))
        for name, corpus in data.corpora().items()
    }

    def arrange(documents, epoch):
        return batches(documents, seed, epoch)

    train = partial(arrange, documents["train"])
    if data.shards is not None:
        encode = encoder_of_documents(tokenizer)
        train = open_stream(config, data.shards, encode, arrange)
    return tokenizer, {
        "train": train,
        "valid": batches(documents["valid"], None),
        "test": training.counted(batches(documents["test"], None)),
    }


def build_model(config, vocab_size):
    """The encoder with a head that restores tokens, compiled with Muon."""
    options = config.model
    model = TextEncoder.from_variant(
        options.variant,
        vocab_size,
        head="masked_language",
        style=options.style,
        max_length=max(512, config.data.row_length),
        dropout=options.dropout,
        attention_dropout=0.0,
    )
    learned, optimizer = (
        training.token_loss_and_metrics(model),
        training.make_optimizer(config, Muon),
    )
    return training.compile_model(config, model, optimizer, (None, None), **learned)


def write_samples(folder, model, tokenizer, samples, path):
    """Fills in the samples, prints and keeps them."""
    rows = list(zip(samples, MaskFiller(model, tokenizer).fill(samples), strict=True))
    folder.write_table(path.name, ["text", "filled"], rows)
    for _, filled in rows:
        print(f"  {filled}")


def run(config):
    """Trains, scores on the test set, fills in samples, exports; returns the metrics."""
    folder = training.start_run(config)
    tokenizer, batches = load_data(config)
    folder.keep("vocab.txt", tokenizer.save)
    with training.model_scope(config):
        model = build_model(config, tokenizer.vocab_size)
    history, measured = training.fit_tokens(
        config, folder, model, batches["train"], batches["valid"]
    )
    training.continue_on_tensorflow()
    found = model.evaluate(batches["test"], verbose=0, return_dict=True)
    scores = {
        "test_masked_accuracy": found["accuracy"],
        "test_masked_perplexity": math.exp(found["cross_entropy"]),
    }
    samples = config.data.samples
    return training.finish(
        folder,
        {**scores, **measured},
        model=model,
        history=history,
        curves=("loss", "accuracy", "tokens_per_second"),
        exports={
            "samples.tsv": partial(write_samples, folder, model, tokenizer, samples),
            "saved_model": lambda path: MaskFiller(model, tokenizer).save(path),
        },
        use=lambda: folder.show_use(samples[0], '{}["text"]', lambda answer: answer["text"]),
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
