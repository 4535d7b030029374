"""Pre-trains a text encoder by masked language modelling: BERT's task, on text files.

    python -m recipes.masked_language_model                           # Shakespeare's scenes
    python -m recipes.masked_language_model --train a.txt --valid b.txt --test c.txt
    python -m recipes.masked_language_model --dataset tfds:NAME

Devlin et al. 2018, https://arxiv.org/abs/1810.04805; Liu et al. 2019,
https://arxiv.org/abs/1907.11692. `recipes.text_classification --pretrained` goes on from its
folder; the scenes held out here are held out there. Measured on two cores of an AMD EPYC with
AVX-512: 31.9 % of the hidden tokens of held-out scenes are found, perplexity 49.5, after ten
minutes of training (seed 1).
"""

import dataclasses
import math
import typing

import tensorflow as tf

from keras_transformers.export import MaskFiller
from keras_transformers.models import TextEncoder
from keras_transformers.text import WordPieceTokenizer, masked, packed_documents
from keras_transformers.visualization import training_curves

from . import texts
from .command import begin, main
from .data.documents import load_documents
from .devices import hand_over


@dataclasses.dataclass(frozen=True)
class Config(texts.TextConfig):
    """Every number of a run. The defaults suit some millions of characters and two CPU cores."""

    dataset: str = "shakespeare-scenes"  # or shakespeare, or tfds:NAME
    output: str = "runs/masked_language_model"
    variant: typing.Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini"
    style: typing.Literal["bert", "modern"] = "modern"
    row_length: int = 128
    dropout: float = 0.0  # other words are masked each time; and the text is read a few times only
    lower_case: bool = True
    mask_rate: float = 0.2  # of tokens; small models like more than BERT's 0.15
    whole_words: bool = True
    samples: tuple[str, ...] = (
        "To be, or not to [MASK], that is the question.",
        "My [MASK], my lord!",
        "Good [MASK], good night.",
    )


SMOKE = {"epochs": 1, "batch_size": 512, "row_length": 64, "vocab_size": 500, "variant": "tiny"}
SMOKE.update(warmup_steps=2)


def load_data(config):
    """Texts, a tokenizer trained on them, and batches in which tokens are hidden."""
    data = load_documents(config.dataset, config.train, config.valid, config.test)
    if config.smoke:
        data = data.sample(train=40, valid=5, test=5)
    for corpus in data.corpora().values():
        print(corpus.summary())
    tokenizer = WordPieceTokenizer.train(data.train.texts, config.vocab_size, config.lower_case)
    rows = config.batch_size // config.row_length

    def batches(documents, seed, epoch=None):
        packed = packed_documents(
            documents, config.row_length, rows, seed, shift=False, epoch=epoch
        )
        return masked(
            packed,
            tokenizer.mask_id,
            tokenizer.vocab_size,
            tokenizer.special_ids,
            config.mask_rate,
            tokenizer.starts_word if config.whole_words else None,
            seed or 0,
            dynamic=seed is not None,
            epoch=epoch,
        )

    documents = {
        name: tf.data.Dataset.from_tensors(tokenizer.tokenize(corpus.texts, start=True, end=True))
        for name, corpus in data.corpora().items()
    }
    return tokenizer, {
        "train": lambda epoch: batches(documents["train"], config.seed, epoch),
        "valid": texts.counted(batches(documents["valid"], None)),
        "test": texts.counted(batches(documents["test"], None)),
    }


def build_model(config, vocab_size):
    """The encoder with a head that restores tokens, compiled with Muon."""
    model = TextEncoder.from_variant(
        config.variant,
        vocab_size,
        head="masked_language",
        style=config.style,
        max_length=max(512, config.row_length),
        dropout=config.dropout,
        attention_dropout=0.0,
    )
    return texts.token_model(config, model)


def run(config):
    """Trains, scores on the test set, fills in samples, exports; returns the metrics."""
    config, folder = begin(config, SMOKE)
    tokenizer, batches = load_data(config)
    tokenizer.save(folder / "vocab.txt")
    with config.making():
        model = build_model(config, tokenizer.vocab_size)
    history, measured = texts.fit_tokens(config, folder, model, batches["train"], batches["valid"])
    hand_over()
    found = model.evaluate(batches["test"], verbose=0, return_dict=True)
    metrics = {
        "test_masked_accuracy": found["accuracy"],
        "test_masked_perplexity": math.exp(found["cross_entropy"]),
        **measured,
        "parameters": model.count_params(),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    folder.write_metrics(metrics)
    filler = MaskFiller(model, tokenizer)
    with folder.exporting("samples.tsv"):
        rows = list(zip(config.samples, filler.fill(config.samples), strict=True))
        folder.write_table("samples.tsv", ["text", "filled"], rows)
        for _, filled in rows:
            print(f"  {filled}")
    with folder.exporting("saved_model") as path:
        filler.save(path)
    groups = ("loss", "accuracy", "tokens_per_second")
    with folder.drawing("training_curves") as path:
        training_curves(history, path, groups)
    folder.end()
    folder.show_use(config.samples[0], '{}["text"]', lambda answer: answer["text"])
    return metrics


if __name__ == "__main__":
    main(run, Config, __doc__)
