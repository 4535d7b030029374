"""Classifies texts, from scratch or from a pre-trained encoder.

    python -m recipes.text_classification                  # from which of Shakespeare's plays?
    python -m recipes.text_classification --train a.tsv --valid b.tsv --test c.tsv
    python -m recipes.text_classification --dataset tfds:imdb_reviews
    python -m recipes.text_classification --pretrained runs/masked_language_model --compare \
        --seeds 3 --label-share 0.1
    python -m recipes.text_classification --pretrained bert-base-uncased

Own files hold a text, a tab and its class in each line, or are `.csv` or `.jsonl`; with
`--problem-type multi_label_classification` none, one or several classes, with commas between them.
Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 4. Measured by the last command but
one on two cores of an AMD EPYC with AVX-512: 28.4 +- 0.7 % of the test passages from the
pre-trained encoder, 15.8 +- 0.6 % from random weights, in 12 minutes.
"""

import dataclasses
import json
import pathlib
import typing

import numpy as np
import tensorflow as tf

from keras_transformers.export import TextClassifier
from keras_transformers.models import TextEncoder
from keras_transformers.pretrained import load_tokenizer
from keras_transformers.text import WordPieceTokenizer, bucketed_texts, framed
from keras_transformers.training import (
    AdamW,
    BudgetedDecay,
    classification_accuracy,
    classification_loss,
    score_classes,
    score_labels,
    several_hot,
)
from keras_transformers.visualization import confusion_matrix, training_curves

from . import texts
from .command import LabelConfig, begin, begin_anew, is_published, main, publish, start_from
from .data.documents import load_labelled
from .devices import hand_over


@dataclasses.dataclass(frozen=True)
class Config(texts.TextConfig, LabelConfig):
    """Every number of a run. The defaults suit some 10,000 short texts and two CPU cores."""

    dataset: str = "shakespeare-plays"  # or tfds:NAME
    output: str = "runs/text_classification"
    pretrained: str | None = None  # folder of a run of recipes.masked_language_model, or published
    compare: bool = False  # with --pretrained: train from random weights as well
    label_share: float = 1.0  # of the training texts, at random; the others are left out
    seeds: int = 1  # runs of each kind; the best on the validation set is exported
    minutes: float | None = None
    epochs: int = 8
    batch_size: int = 2048
    row_length: int = 256  # places for the longest text; what is longer is cut, and counted
    variant: typing.Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini"
    style: typing.Literal["bert", "modern"] = "modern"
    pooling: typing.Literal["token", "mean"] = "mean"
    lower_case: bool = True
    dropout: float = 0.2
    learning_rate: float = 5e-4  # the peak
    label_smoothing: float = 0.1


SMOKE = {"epochs": 1, "batch_size": 512, "row_length": 128, "vocab_size": 500, "variant": "tiny"}
SMOKE.update(warmup_steps=2)
# What changes where not chosen, to go on from published weights.
TUNING = {"learning_rate": 5e-5, "pooling": "token", "dropout": 0.1, "epochs": 3}
CURVES = ("loss", "accuracy", "val_loss", "val_accuracy")


def load_data(config):
    """Labelled texts, the tokenizer, and the ids of each split."""
    data = load_labelled(
        config.dataset, config.train, config.valid, config.test, separator=config.separator
    )
    if config.smoke:
        data = data.sample(train=400, valid=64, test=64)
    if config.label_share < 1:
        data = data.sample(train=max(round(config.label_share * len(data.train)), 1))
    if config.pretrained is None:
        tokenizer = WordPieceTokenizer.train(
            data.train.texts, config.vocab_size, config.lower_case
        )
    elif is_published(config.pretrained):
        tokenizer = load_tokenizer(config.pretrained)
    else:
        lower_case = _of_run(config.pretrained)["lower_case"]
        tokenizer = WordPieceTokenizer.load(
            pathlib.Path(config.pretrained, "vocab.txt"), lower_case
        )
    ids = {}
    for name, corpus in data.corpora().items():
        print(corpus.summary())
        ids[name], cut = framed(tokenizer, corpus.texts, config.row_length)
        if np.any(cut):
            print(f"  {np.sum(cut):,} of them have over {config.row_length} pieces and are cut")
    return data, tokenizer, ids


def lengths(config):
    """The lengths that texts are padded to."""
    return (*(n for n in (32, 64, 128, 256, 512) if n < config.row_length), config.row_length)


def _of_run(folder):
    """The configuration of another run."""
    path = pathlib.Path(folder, "config.json")
    if not path.is_file():
        raise FileNotFoundError(f"--pretrained: there is no {path}")
    return json.loads(path.read_text(encoding="utf-8-sig"))


def build_model(config, num_classes, vocab_size, start):
    """The encoder with a head for classes, from "scratch" or "pretrained", compiled."""
    head = {"head": "classification", "num_classes": num_classes, "pooling": config.pooling}
    head["problem_type"] = config.problem_type
    changes = {**head, "dropout": config.dropout, "attention_dropout": 0.0}
    if config.pretrained is None:
        model = TextEncoder.from_variant(
            config.variant, vocab_size, style=config.style, **changes
        )
    else:
        model = start_from(config.pretrained)
        if not isinstance(model, TextEncoder):
            raise ValueError(f"--pretrained: {config.pretrained} holds no text encoder.")
        if start == "pretrained":
            model = model.transferred(**changes)
        else:
            model = TextEncoder.from_config({**model.get_config(), **changes})
    if not model.built:
        model.build((None, None))
    model.compile(
        config.make_optimizer(AdamW, global_clipnorm=1.0),
        classification_loss(config.problem_type, config.label_smoothing),
        weighted_metrics=[classification_accuracy(config.problem_type)],
        jit_compile=config.jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def batches(config, ids, labels, classes, seed=None, epoch=None):
    """Batches of texts of like length, with labels of 0 and 1 for each class."""
    labels = several_hot(labels, classes) if config.several else labels
    dataset = bucketed_texts(ids, labels, lengths(config), config.batch_size, seed, epoch)

    def hot(labels):
        return tf.cast(labels, tf.float32) if config.several else tf.one_hot(labels, classes)

    return dataset.map(lambda ids, labels, weights: (ids, hot(labels), weights))


def score(config, classifier, corpus):
    """Scores of a classifier on a corpus, and those of them that runs are compared by, a dict."""
    probabilities = classifier.probabilities(corpus.texts)
    if config.several:
        labels = several_hot(corpus.labels, len(corpus.classes))
        found = score_labels(probabilities, labels, corpus.classes)
        return found, found.numbers()
    found = score_classes(probabilities, corpus.labels, corpus.classes)
    f1 = float(np.mean([row["f1"] for row in found.table]))
    return found, {"accuracy": found.top1, "macro_f1": f1}


def train(config, folder, data, ids, tokenizer, start, seed):
    """Fits one model; returns it, its history and its accuracy on the validation set."""
    begin_anew(config, seed)
    classes = len(data.train.classes)
    with config.making():
        model = build_model(config, classes, tokenizer.vocab_size, start)

    def make(epoch):
        return batches(config, ids["train"], data.train.labels, classes, seed, epoch)

    steps = sum(1 for _ in make(0))
    budget = BudgetedDecay(
        config.learning_rate, config.warmup_steps, config.epochs * steps, config.minutes
    )
    history = folder.fit(
        model,
        make,
        steps,
        config.epochs,
        [budget],
        f"{start}-{seed}",
        validation_data=texts.counted(batches(config, ids["valid"], data.valid.labels, classes)),
        verbose=2 if config.seeds > 1 else "auto",
    )
    return model, history


def compare(config, folder, data, tokenizer, ids):
    """Trains every start with every seed.

    Returns metrics, and model, history and test probabilities of the best on the validation set.
    """
    starts = ["scratch"] if config.pretrained is None else ["pretrained"]
    starts += ["scratch"] if config.compare else []
    rows, curves, best, metrics = [], [], (-1.0, None), {}
    seeds = range(config.seed, config.seed + config.seeds)
    trained = {
        (start, seed): train(config, folder, data, ids, tokenizer, start, seed)
        for start in starts
        for seed in seeds
    }
    hand_over()
    for start in starts:
        scores = []
        for seed in seeds:
            model, history = trained[start, seed]
            classifier = TextClassifier(model, tokenizer, data.train.classes, lengths(config))
            found, shown = score(config, classifier, data.test)
            scores.append(list(shown.values()))
            rows.append((start, seed, history["val_accuracy"][-1], *shown.values()))
            values = zip(*(history[name] for name in CURVES), strict=True)
            curves += [(start, seed, epoch + 1, *row) for epoch, row in enumerate(values)]
            if history["val_accuracy"][-1] > best[0]:
                best = (history["val_accuracy"][-1], (model, history, found))
        means, spreads = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=config.seeds > 1)
        for name, mean, spread in zip(shown, means, spreads, strict=True):
            metrics[f"{start}_test_{name}"] = float(mean)
            metrics[f"{start}_test_{name}_spread"] = float(spread)
    header = ["start", "seed", "valid_accuracy", *(f"test_{name}" for name in shown)]
    folder.write_table("runs.tsv", header, rows)
    folder.write_table("history.csv", ["start", "seed", "epoch", *CURVES], curves, delimiter=",")
    return metrics, best[1]


def run(config):
    """Trains, scores on the test set, exports; returns the metrics."""
    if config.compare and config.pretrained is None:
        raise ValueError("--compare needs --pretrained: there is nothing to compare with.")
    if config.seeds < 1 or not 0 < config.label_share <= 1:
        raise ValueError(
            "--seeds must be at least 1, and --label-share in (0, 1]. Received: "
            f"{config.seeds}, {config.label_share}"
        )
    config, folder = begin(config, SMOKE, TUNING)
    data, tokenizer, ids = load_data(config)
    tokenizer.save(folder / "vocab.txt")
    metrics, (model, history, found) = compare(config, folder, data, tokenizer, ids)
    model.save(folder / "model.keras")
    metrics |= {
        "parameters": model.count_params(),
        "seconds_training_and_evaluation": folder.seconds(),
    }
    folder.write_metrics(metrics)
    header = list(found.table[0])
    folder.write_table("classes.tsv", header, [row.values() for row in found.table])
    if is_published(config.pretrained) and config.pooling == "token":
        with folder.exporting("published"):
            publish(folder, model, tokenizer, data.train.classes)
    classifier = TextClassifier(model, tokenizer, data.train.classes, lengths(config))
    with folder.exporting("saved_model") as path:
        classifier.save(path)
    with folder.drawing("training_curves") as path:
        training_curves(history, path, ("loss", "accuracy"))
    if not config.several:
        with folder.drawing("confusion") as path:
            confusion_matrix(found.confusion, data.train.classes, path)
    folder.end()
    example = min(data.test.texts, key=len)
    wanted = "labels" if config.several else "label"
    folder.show_use(example, f'{{}}["{wanted}"]', lambda answer: answer[wanted])
    return metrics


if __name__ == "__main__":
    main(run, Config, __doc__)
