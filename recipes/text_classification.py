"""Classifies texts, from scratch or from a pre-trained encoder.

    python -m recipes.text_classification                  # from which of Shakespeare's plays?
    python -m recipes.text_classification --train a.tsv    # or with --valid b.tsv --test c.tsv
    python -m recipes.text_classification --train "shards/*.jsonl" ...  # a stream
    python -m recipes.text_classification --dataset tfds:imdb_reviews
    python -m recipes.text_classification --pretrained runs/masked_language_model --compare \
        --seeds 3 --label-share 0.1
    python -m recipes.text_classification --pretrained bert-base-uncased

Own files hold a text, a tab and its class in each line, or are `.csv`, `.jsonl` or `.parquet`; with
`--problem-type multi_label_classification` none, one or several classes, with commas between them.
Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 4. Measured by the last command but
one on two cores of an AMD EPYC with AVX-512: 28.4 +- 0.7 % of the test passages from the
pre-trained encoder, 15.8 +- 0.6 % from random weights, in 12 minutes.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from keras_transformers.export import TextClassifier
from keras_transformers.models import ClassificationHead, TextEncoder
from keras_transformers.text import WordPieceTokenizer, framed
from keras_transformers.training import (
    AdamW,
    classification_accuracy,
    classification_loss,
    score_classes,
    score_labels,
    several_hot,
)
from keras_transformers.visualization import confusion_matrix

from .data.data_sets import find_separator
from .data.documents import load_labelled
from .lib import fine_tuning, training
from .lib.batches import LabelledBatches, first_epoch
from .lib.options import Run, changed, main


@dataclass(frozen=True)
class Data:
    """The texts and their labels."""

    dataset: str = "shakespeare-plays"  # or tfds:NAME
    train: str | None = None  # own file instead: text and class; may be alone; a pattern: a stream
    valid: str | None = None  # the same, to stop in time; else a share of --train
    test: str | None = None  # the same, to score on at the end; else a share of --train
    columns: tuple[str, ...] = ()  # of text and class: their names, or numbers from 1
    # one label for each, or any number of them
    problem_type: Literal["single_label_classification", "multi_label_classification"] = (
        "single_label_classification"
    )
    label_separator: str = ","  # between several labels, in own files
    label_share: float = 1.0  # of the training texts, at random; the others are left out
    vocab_size: int = 4000  # pieces
    lower_case: bool = True  # as in BERT uncased
    row_length: int = 256  # positions for the longest text; what is longer is cut, and counted


@dataclass(frozen=True)
class Architecture:
    """The encoder."""

    pretrained: str | None = None  # folder of a run of recipes.masked_language_model, or published
    compare: bool = False  # with --pretrained: train from random weights as well
    variant: Literal["tiny", "mini", "small", "medium", "base", "large"] = "mini"  # 256 wide
    style: Literal["bert", "modern"] = "modern"  # the newer, see `TextEncoder`
    pooling: Literal["token", "mean"] = "mean"  # a published encoder has learned "token"
    dropout: float = 0.2  # higher than in pre-training: texts are few


@dataclass(frozen=True)
class Training:
    """The length and speed of training."""

    seeds: int = 1  # runs of each kind; the best on the validation set is exported
    minutes: float | None = None  # no limit but the epochs
    epochs: int = 8  # of the training texts
    steps_per_epoch: int = 1000  # of a stream of shards, which has no other epochs
    batch_size: int = 2048  # positions in a batch
    label_smoothing: float = 0.1  # against answers that are too sure
    learning_rate: float = 5e-4  # the peak
    weight_decay: float = 0.05  # of matrices and embeddings
    warmup_steps: int = 50  # to the peak
    decay: Literal["linear", "cosine"] = "linear"  # to 0, over the budget
    layer_decay: float = 1.0  # with --pretrained: factor on the rate of each block below the head
    unfreeze_every: float | None = None  # the same: epochs from one trained block to the next


@dataclass(frozen=True)
class Config:
    """Every number of a run. The defaults suit some 10,000 short texts and two CPU cores."""

    run: Run = Run("runs/text_classification")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    SMOKE: ClassVar = {
        "epochs": 1,
        "steps_per_epoch": 4,
        "batch_size": 512,
        "row_length": 128,
        "vocab_size": 500,
        "variant": "tiny",
        "warmup_steps": 2,
    }
    # To go on from published weights.
    PUBLISHED: ClassVar = {"learning_rate": 5e-5, "pooling": "token", "dropout": 0.1, "epochs": 3}


CURVES = ("loss", "accuracy", "val_loss", "val_accuracy")


def load_data(config):
    """Returns labelled texts, the tokenizer, and the ids of each split."""
    options, pretrained = config.data, config.model.pretrained
    data = load_labelled(
        options.dataset,
        options.train,
        options.valid,
        options.test,
        separator=find_separator(options),
        columns=options.columns,
    )
    if config.run.smoke:
        data = data.sample(train=400, valid=64, test=64)
    if options.label_share < 1 and data.shards is not None:
        raise ValueError("--label-share is for what is in memory; give fewer shards.")
    if options.label_share < 1:
        data = data.sample(train=max(round(options.label_share * len(data.train)), 1))
    if pretrained is None:
        tokenizer = WordPieceTokenizer.train(
            data.train.texts, options.vocab_size, options.lower_case
        )
    else:
        tokenizer = fine_tuning.tokenizer_of(pretrained)
    ids = {}
    for name, corpus in data.corpora().items():
        print(corpus.summary())
        ids[name], cut = framed(tokenizer, corpus.texts, options.row_length)
        if np.any(cut):
            print(f"  {np.sum(cut):,} of them have over {options.row_length} pieces and are cut")
    return data, tokenizer, ids


def lengths(config):
    """Returns the lengths that texts are padded to."""
    longest = config.data.row_length
    return (*(n for n in (32, 64, 128, 256, 512) if n < longest), longest)


def build_model(config, num_classes, vocab_size, start):
    """Builds and compiles the encoder with a new head; `start` is "scratch" or "pretrained"."""
    options, kind = config.model, config.data.problem_type
    activation = fine_tuning.pooler_activation(options.pretrained)
    head = ClassificationHead(num_classes, options.pooling, activation, options.dropout, kind)
    changes = {"head": head, "dropout": options.dropout}
    if options.pretrained is None:
        rates = {"attention_dropout": 0.0}
        model = TextEncoder.from_variant(
            options.variant, vocab_size, style=options.style, **changes, **rates
        )
    else:
        model = fine_tuning.start_from(options.pretrained, TextEncoder, "text encoder")
        if start == "pretrained":
            model = model.transferred(**changes)
        else:
            model = TextEncoder.from_config({**model.get_config(), **changes})
    if start == "scratch":
        config = changed(config, lora=None)
    return training.compile_model(
        config,
        model,
        training.make_optimizer(config, AdamW, global_clipnorm=1.0),
        (None, None),
        new="head",
        loss=classification_loss(kind, config.training.label_smoothing),
        weighted_metrics=[classification_accuracy(kind)],
    )


def train(config, folder, data, ids, tokenizer, start, seed):
    """Fits one model; returns it and its history."""
    training.start_next_model(config, seed)
    if start == "scratch":  # where all must learn alike
        config = changed(config, layer_decay=1.0, unfreeze_every=None)
    classes, name = len(data.train.classes), f"{start}-{seed}"
    with training.model_scope(config):
        model = build_model(config, classes, tokenizer.vocab_size, start)
    bucketed = LabelledBatches(config, lengths(config), classes, model.padding_id)
    make = partial(bucketed.in_memory, ids["train"], data.train.labels, seed)
    if data.shards is not None:
        make = bucketed.streamed(data.shards, tokenizer, seed)
    valid = training.counted(bucketed.in_memory(ids["valid"], data.valid.labels))
    folder.begin(model)
    steps = first_epoch(config, folder, make, f"stream-{name}")[1]
    by_blocks = fine_tuning.unfreezing_callbacks(config, steps)
    options = {"validation_data": valid, "name": name}
    options["verbose"] = 2 if config.training.seeds > 1 else "auto"
    history = training.fit(config, folder, model, make, steps, by_blocks, **options)
    return model, history


def score(classifier, corpus, several):
    """Returns scores of a classifier on a corpus, and a dict of those that runs are compared by."""
    probabilities = classifier.probabilities(corpus.texts)
    if several:
        labels = several_hot(corpus.labels, len(corpus.classes))
        scores = score_labels(probabilities, labels, corpus.classes)
        return scores, scores.numbers()
    scores = score_classes(probabilities, corpus.labels, corpus.classes)
    f1 = float(np.mean([row["f1"] for row in scores.table]))
    return scores, {"accuracy": scores.top1, "macro_f1": f1}


def compare(config, folder, data, tokenizer, ids):
    """Trains every start with every seed.

    Returns metrics, and model, history and test scores of the best on the validation set.
    """
    starts = ["scratch"] if config.model.pretrained is None else ["pretrained"]
    starts += ["scratch"] if config.model.compare else []
    rows, curves, best, metrics = [], [], (-1.0, None), {}
    seeds = range(config.run.seed, config.run.seed + config.training.seeds)
    trained = {
        (start, seed): train(config, folder, data, ids, tokenizer, start, seed)
        for start in starts
        for seed in seeds
    }
    training.continue_on_tensorflow()
    several = find_separator(config.data) is not None
    for start in starts:
        scores = []
        for seed in seeds:
            model, history = trained[start, seed]
            classifier = TextClassifier(model, tokenizer, data.train.classes, lengths(config))
            scores_of_test, compared = score(classifier, data.test, several)
            scores.append(list(compared.values()))
            rows.append((start, seed, history["val_accuracy"][-1], *compared.values()))
            values = zip(*(history[name] for name in CURVES), strict=True)
            curves += [(start, seed, epoch + 1, *row) for epoch, row in enumerate(values)]
            if history["val_accuracy"][-1] > best[0]:
                best = (history["val_accuracy"][-1], (model, history, scores_of_test))
        means, spreads = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=len(seeds) > 1)
        for name, mean, spread in zip(compared, means, spreads, strict=True):
            metrics[f"{start}_test_{name}"] = float(mean)
            metrics[f"{start}_test_{name}_spread"] = float(spread)
    metrics["test_examples"] = len(data.test.texts)
    header = ["start", "seed", "valid_accuracy", *(f"test_{name}" for name in compared)]
    folder.write_table("runs.tsv", header, rows)
    folder.write_table("history.csv", ["start", "seed", "epoch", *CURVES], curves, delimiter=",")
    return metrics, best[1]


def check(config):
    """Raises a ValueError if some numbers do not fit together."""
    seeds, share = config.training.seeds, config.data.label_share
    if config.model.compare and config.model.pretrained is None:
        raise ValueError("--compare needs --pretrained: there is nothing to compare with.")
    fine_tuning.check_depth_options(config)
    if seeds < 1 or not 0 < share <= 1:
        raise ValueError(
            f"--seeds must be at least 1, and --label-share in (0, 1]. Received: {seeds}, {share}"
        )


def run(config):
    """Trains, scores on the test set, exports; returns the metrics."""
    check(config)
    folder = training.start_run(config)
    data, tokenizer, ids = load_data(config)
    fine_tuning.keep_tokenizer(tokenizer, folder)
    metrics, (model, history, scores) = compare(config, folder, data, tokenizer, ids)
    model.save(folder / "model.keras")
    classes, several = data.train.classes, find_separator(config.data) is not None
    classifier = TextClassifier(model, tokenizer, classes, lengths(config))
    started_from = config.model.pretrained if config.model.pooling == "token" else None

    def write_classes(path):
        rows = [row.values() for row in scores.table]
        folder.write_table(path.name, list(scores.table[0]), rows)

    drawn = {} if several else {"confusion": partial(confusion_matrix, scores.confusion, classes)}
    key = "labels" if several else "label"
    return training.finish(
        folder,
        metrics,
        model=model,
        history=history,
        curves=("loss", "accuracy"),
        exports={
            "classes.tsv": write_classes,
            "published": fine_tuning.publishing(started_from, model, tokenizer, classes),
            "saved_model": classifier.save,
        },
        figures=drawn,
        use=lambda: folder.show_use(
            min(data.test.texts, key=len), f'{{}}["{key}"]', lambda answer: answer[key]
        ),
    )


if __name__ == "__main__":
    main(run, Config, __doc__)
