"""One encoder, everything that can mix its tokens, two tasks: a table of what each gives and costs.

    python -m recipes.mixers                                   # all variants, three seeds
    python -m recipes.mixers --variants attention lstm --tasks text --seeds 1

Every variant is the same pre-norm encoder with another `mixer`, trained for as many epochs on the
same batches: pictures of the Fashion-MNIST subset, and passages of Shakespeare's plays, where the
question is which play they are from. Variants with positions inside attention have none outside.

Measured on two cores of an AMD EPYC with AVX-512 in 2.2 hours, with other work beside it: `mlp`
classifies 83.2 % of the pictures rightly, `attention` 80.1 %, `nothing` 75.5 %; of the passages (36
plays) 16.2, 25.2 and 12.1 %. The whole table is in docs/benchmarks.
"""

import collections
import itertools
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import layers, streams
from keras_transformers.export import image_classifier
from keras_transformers.training import AdamW
from keras_transformers.visualization import comparison

from .data import tasks
from .data.images import load
from .lib import training
from .lib.flops import floating_point_operations
from .lib.options import Run, main


@keras.saving.register_keras_serializable("recipes")
class NoMixing(keras.layers.Layer):
    """A mixer that mixes no tokens: the control."""

    def call(self, x):
        return keras.ops.zeros_like(x)

    def get_config(self):
        return super().get_config()  # Keras's automatic one knows no dtype policy


HEADS = 4
VARIANTS = {
    "attention": lambda task: layers.SelfAttention(HEADS),
    "dot": lambda task: layers.SelfAttention(HEADS, score="dot"),
    "general": lambda task: layers.SelfAttention(HEADS, score="general"),
    "additive": lambda task: layers.SelfAttention(HEADS, score="additive"),
    "rotary": lambda task: layers.SelfAttention(HEADS, position=layers.RotaryEmbedding()),
    "alibi": lambda task: layers.SelfAttention(HEADS, position=layers.ALiBi()),
    "relative_bias": lambda task: layers.SelfAttention(
        HEADS,
        position=layers.GridRelativeBias(task.grid) if task.grid else layers.RelativePositionBias(),
    ),
    "shaw": lambda task: layers.SelfAttention(HEADS, position=layers.ShawRelativePosition()),
    "multi_query": lambda task: layers.SelfAttention(HEADS, num_key_value_heads=1),
    "local": lambda task: layers.LocalAttention(HEADS, window_size=16),
    "linear": lambda task: layers.LinearAttention(HEADS),
    "fourier": lambda task: layers.FourierMixing(ignore_mask=True),
    "mlp": lambda task: layers.MLPMixing(mlp_dim=2 * task.length),
    "synthesizer": lambda task: layers.RandomSynthesizer(HEADS),
    "convolution": lambda task: layers.ConvolutionMixing(7, HEADS),
    "dynamic_convolution": lambda task: layers.ConvolutionMixing(7, HEADS, dynamic=True),
    "lstm": lambda task: layers.LSTMMixing(grid=task.grid),
    "nothing": lambda task: NoMixing(),
}
POSITIONS_INSIDE = ("rotary", "alibi", "relative_bias", "shaw")


@dataclass(frozen=True)
class Data:
    """The tasks and their data."""

    tasks: tuple[Literal["image", "text"], ...] = ("image", "text")  # both, or one
    words: int = 32  # of a passage
    vocab_size: int = 2000  # pieces
    text_length: int = 48  # pieces of a passage; those beyond are left out


@dataclass(frozen=True)
class Architecture:
    """One encoder, and the mixers of its tokens."""

    variants: tuple[str, ...] = tuple(VARIANTS)  # all of them
    patch_size: int = 4  # 49 tokens of a picture of 28 pixels
    hidden_dim: int = 64  # of tokens
    mlp_dim: int = 128  # twice that
    num_layers: int = 2  # blocks
    dropout: float = 0.1  # of all blocks


@dataclass(frozen=True)
class Training:
    """The length and speed of each training."""

    seeds: int = 3  # runs of each variant on each task
    image_epochs: int = 5  # all variants have as many
    text_epochs: int = 4  # all variants have as many
    batch_size: int = 128  # images or passages
    learning_rate: float = 2e-3  # the peak
    weight_decay: float = 0.05  # of matrices
    warmup_steps: int = 50  # to the peak
    decay: Literal["linear", "cosine"] = "cosine"  # to 0, over the budget


@dataclass(frozen=True)
class Config:
    """Every number of a run; the defaults take some two hours on two CPU cores."""

    run: Run = Run("runs/mixers")
    data: Data = Data()
    model: Architecture = Architecture()
    training: Training = Training()
    SMOKE: ClassVar = {
        "variants": ("fourier", "nothing"),
        "seeds": 1,
        "image_epochs": 2,
        "text_epochs": 2,
        "num_layers": 1,
        "warmup_steps": 2,
    }


def load_data(config):
    """Returns a dict of name -> task, and the preprocessing of pictures."""
    options, data, preprocessing = config.data, {}, None
    if "image" in options.tasks:
        data["image"], preprocessing = tasks.image_task(config.model.patch_size)
    if "text" in options.tasks:
        data["text"] = tasks.text_task(options.words, options.vocab_size, options.text_length)
    if config.run.smoke:
        few = 3 * config.training.batch_size
        data = {name: task.head(few) for name, task in data.items()}
    return data, preprocessing


def build_model(config, task, variant):
    """Builds and compiles the encoder with this mixer, and classes of the mean over real tokens."""
    options = config.model
    if task.vocab_size is None:
        inputs = keras.Input(task.train[0].shape[1:])
        padding, x = None, layers.PatchEmbedding(options.patch_size, options.hidden_dim)(inputs)
    else:
        inputs = keras.Input((task.length,), dtype="int32")
        padding = inputs != 0
        x = layers.TokenEmbedding(task.vocab_size, options.hidden_dim, scale=False)(inputs)
    if variant not in POSITIONS_INSIDE:
        x = layers.PositionEmbedding(task.length)(x)
    x = keras.layers.Dropout(options.dropout)(x)
    mixer = VARIANTS[variant](task)
    knows_padding = padding is not None and variant != "nothing"
    block = {"dropout": options.dropout, "activation": "gelu", "norm_first": True, "mixer": mixer}
    for _ in range(options.num_layers):
        mixed = layers.EncoderBlock(mlp_dim=options.mlp_dim, **block)
        x = mixed(x, padding_mask=padding) if knows_padding else mixed(x)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.GlobalAveragePooling1D("channels_last")(x, mask=padding)
    model = keras.Model(inputs, keras.layers.Dense(len(task.classes))(x), name=variant)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = training.make_optimizer(config, AdamW, global_clipnorm=1.0)
    return training.compile_model(config, model, optimizer, loss=loss, metrics=["accuracy"])


def train(config, folder, name, variant, task, seed):
    """Makes and fits a model; returns it, its history and what was measured."""
    training.start_next_model(config, seed)
    with training.model_scope(config):
        model = build_model(config, task, variant)
    x, y = task.train
    batch = min(config.training.batch_size, len(y))
    x, y = tf.constant(x), tf.constant(y)
    steps = len(y) // batch
    epochs = config.training.image_epochs if name == "image" else config.training.text_epochs

    def make(epoch):
        whole = streams.orders(len(y), batch, seed, epoch).take(steps)  # one shape, compiled once
        return whole.map(lambda indices: (tf.gather(x, indices), tf.gather(y, indices)))

    called = f"{name}-{variant}-{seed}"
    options = {"epochs": epochs, "name": called, "verbose": 0}
    history = training.fit(config, folder, model, make, steps, **options)
    seconds = np.diff([0.0, *history["seconds"]])
    measured = {
        # The first epoch compiles; what else the machine has to do only adds to the others.
        "seconds_an_epoch": float(min(seconds[1:] if epochs > 1 else seconds)),
        "valid_accuracy": accuracy(model, *task.valid, batch),
        "accuracy": accuracy(model, *task.test, batch),
    }
    return model, history, measured


def accuracy(model, x, y, batch_size):
    """Returns the share of right answers, computed in batches of one size."""
    padded = x[np.arange(len(y) + -len(y) % batch_size) % len(y)]
    logits = model.predict(padded, batch_size=batch_size, verbose=0)[: len(y)]
    return float(np.mean(logits.argmax(-1) == y))


def compare(config, folder, data):
    """Trains everything; returns a row for each task and variant, and the best picture model."""
    rows, curves, best = {}, [], (0.0, None)
    for name, variant in itertools.product(data, config.model.variants):
        runs = []
        for seed in range(config.run.seed, config.run.seed + config.training.seeds):
            model, history, measured = train(config, folder, name, variant, data[name], seed)
            runs.append(measured)
            values = zip(history["loss"], history["accuracy"], strict=True)
            curves += [(name, variant, seed, epoch + 1, *row) for epoch, row in enumerate(values)]
            if name == "image" and measured["valid_accuracy"] > best[0]:
                best = (measured["valid_accuracy"], model)
        accuracies = [run["accuracy"] for run in runs]
        operations = floating_point_operations(model, data[name].train[0][:1])
        rows[name, variant] = {
            "accuracy": float(np.mean(accuracies)),
            "spread": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
            "seconds_an_epoch": min(run["seconds_an_epoch"] for run in runs),
            "parameters": model.count_params(),
            "megaflop_an_example": operations / 1e6,
        }
        print(f"{name:6} {variant:20} " + describe(rows[name, variant]), flush=True)
    header = ["task", "variant", "seed", "epoch", "loss", "accuracy"]
    folder.write_table("history.csv", header, curves, delimiter=",")
    return rows, best[1]


def describe(row):
    """Returns a line of the table."""
    return (
        f"{100 * row['accuracy']:5.1f} +- {100 * row['spread']:.1f} %  "
        f"{row['seconds_an_epoch']:6.2f} s/epoch  {row['parameters']:9,} parameters  "
        f"{row['megaflop_an_example']:7.2f} MFLOP"
    )


def draw(rows, path):
    """Draws the accuracy and the costs of each variant in one line; costs are those of one task."""
    tasks = list(dict.fromkeys(task for task, _ in rows))
    table = collections.defaultdict(dict)
    for (task, variant), row in rows.items():
        table[variant] |= {f"{task}, % right": 100 * row["accuracy"]}
        table[variant] |= {f"{task}_spread": 100 * row["spread"]}
        if task == tasks[0]:
            costs = ("parameters", "megaflop_an_example", "seconds_an_epoch")
            table[variant] |= {f"{task}: {cost}": row[cost] for cost in costs}
    columns = [name for name in next(iter(table.values())) if not name.endswith("_spread")]
    columns.sort(key=lambda name: ":" in name)  # scores first, then costs
    spreads = {f"{task}, % right": f"{task}_spread" for task in tasks}
    comparison(table, path, columns, spreads)


def show_use(folder):
    """Writes a picture, and prints how its class can be asked for."""
    picture = folder.write_example(load("fashion-mnist-12k").test.images[0])
    folder.show_use(picture, '{}["label"]', lambda answer: answer["label"])


def run(config):
    """Trains every variant on every task; returns the metrics."""
    variants, seeds = config.model.variants, config.training.seeds
    unknown = [name for name in variants if name not in VARIANTS]
    if unknown or seeds < 1:
        raise ValueError(
            f"--variants must be some of {', '.join(VARIANTS)}, and --seeds at least 1. "
            f"Received: {', '.join(unknown) or seeds}"
        )
    folder = training.start_run(config)
    data, preprocessing = load_data(config)
    rows, model = compare(config, folder, data)
    training.continue_on_tensorflow()
    columns = list(next(iter(rows.values())))
    table = [(*key, *(row[column] for column in columns)) for key, row in rows.items()]
    folder.write_table("table.tsv", ["task", "variant", *columns], table)
    metrics = {
        f"{task}_{variant}_{column}": value
        for (task, variant), row in rows.items()
        for column, value in row.items()
    }
    best = {}
    if model is not None:
        best = {"exports": {"model.keras": model.save}, "use": partial(show_use, folder)}
        best["exports"]["saved_model"] = partial(
            image_classifier, model, labels=data["image"].classes, preprocessing=preprocessing
        )
    return training.finish(folder, metrics, figures={"comparison": partial(draw, rows)}, **best)


if __name__ == "__main__":
    main(run, Config, __doc__)
