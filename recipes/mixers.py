"""One encoder, everything that can mix its tokens, two tasks: a table of what each gives and costs.

    python -m recipes.mixers                                   # all variants, three seeds
    python -m recipes.mixers --variants attention lstm --tasks text --seeds 1

Every variant is the same pre-norm encoder with another `mixer`, trained for as many epochs on the
same batches: pictures of the Fashion-MNIST subset, and passages of Shakespeare's plays, where the
question is which play they are from. Variants with positions inside attention have none outside.

Measured on two cores of an AMD EPYC with AVX-512 in 2.2 hours, with other work beside it: `mlp`
classifies 83.2 % of the pictures rightly, `attention` 80.1 %, `nothing` 75.5 %; of the passages (36
plays) 16.2, 25.2 and 12.1 %. The whole table is in the README.
"""

import dataclasses
import typing

import keras
import numpy as np
import tensorflow as tf

from keras_transformers import streams
from keras_transformers.export import image_classifier
from keras_transformers.layers import (
    ALiBi,
    ConvolutionMixing,
    EncoderBlock,
    FourierMixing,
    GridRelativeBias,
    LinearAttention,
    LocalAttention,
    LSTMMixing,
    MLPMixing,
    PatchEmbedding,
    PositionEmbedding,
    RandomSynthesizer,
    RelativePositionBias,
    RotaryEmbedding,
    SelfAttention,
    ShawRelativePosition,
    TokenEmbedding,
)
from keras_transformers.text import SentencePieceTokenizer
from keras_transformers.training import AdamW, BudgetedDecay
from keras_transformers.vision import Preprocessing
from keras_transformers.visualization import comparison

from .command import RunConfig, begin, begin_anew, main
from .data import images, shakespeare
from .devices import hand_over
from .flops import floating_point_operations


@dataclasses.dataclass(frozen=True)
class Task:
    """Arrays to learn from and to be scored on, and what makes tokens of them."""

    train: tuple
    valid: tuple
    test: tuple
    classes: list
    length: int
    grid: tuple | None  # rows and columns, where tokens lie on a grid
    vocab_size: int | None  # where they are pieces of text

    def head(self, number):
        """The first examples of each split."""
        splits = {name: getattr(self, name) for name in ("train", "valid", "test")}
        return dataclasses.replace(
            self, **{name: (x[:number], y[:number]) for name, (x, y) in splits.items()}
        )


@keras.saving.register_keras_serializable("recipes")
class Nothing(keras.layers.Layer):
    """Mixes no tokens: the control."""

    def call(self, x):
        return keras.ops.zeros_like(x)

    def get_config(self):
        return super().get_config()  # Keras's automatic one knows no dtype policy


HEADS = 4
VARIANTS = {
    "attention": lambda task: SelfAttention(HEADS),
    "dot": lambda task: SelfAttention(HEADS, score="dot"),
    "general": lambda task: SelfAttention(HEADS, score="general"),
    "additive": lambda task: SelfAttention(HEADS, score="additive"),
    "rotary": lambda task: SelfAttention(HEADS, position=RotaryEmbedding()),
    "alibi": lambda task: SelfAttention(HEADS, position=ALiBi()),
    "relative_bias": lambda task: SelfAttention(
        HEADS, position=GridRelativeBias(task.grid) if task.grid else RelativePositionBias()
    ),
    "shaw": lambda task: SelfAttention(HEADS, position=ShawRelativePosition()),
    "multi_query": lambda task: SelfAttention(HEADS, num_key_value_heads=1),
    "local": lambda task: LocalAttention(HEADS, window_size=16),
    "linear": lambda task: LinearAttention(HEADS),
    "fourier": lambda task: FourierMixing(ignore_mask=True),
    "mlp": lambda task: MLPMixing(mlp_dim=2 * task.length),
    "synthesizer": lambda task: RandomSynthesizer(HEADS),
    "convolution": lambda task: ConvolutionMixing(7, HEADS),
    "dynamic_convolution": lambda task: ConvolutionMixing(7, HEADS, dynamic=True),
    "lstm": lambda task: LSTMMixing(grid=task.grid),
    "nothing": lambda task: Nothing(),
}
POSITIONS_INSIDE = ("rotary", "alibi", "relative_bias", "shaw")


@dataclasses.dataclass(frozen=True)
class Config(RunConfig):
    """Every number of a run; the defaults take some two hours on two CPU cores."""

    output: str = "runs/mixers"
    variants: tuple[str, ...] = tuple(VARIANTS)
    tasks: tuple[typing.Literal["image", "text"], ...] = ("image", "text")
    seeds: int = 3  # runs of each variant on each task
    image_epochs: int = 5
    text_epochs: int = 4
    batch_size: int = 128
    hidden_dim: int = 64
    mlp_dim: int = 128
    num_layers: int = 2
    patch_size: int = 4  # 49 tokens of a picture of 28 pixels
    text_length: int = 48  # pieces of a passage; those beyond are left out
    words: int = 32  # of a passage
    vocab_size: int = 2000
    dropout: float = 0.1
    learning_rate: float = 2e-3  # the peak
    weight_decay: float = 0.05
    warmup_steps: int = 50


SMOKE = {"variants": ("fourier", "nothing"), "seeds": 1}
SMOKE.update(image_epochs=2, text_epochs=2, num_layers=1, warmup_steps=2)


def load_images(config):
    """Pictures of the Fashion-MNIST subset."""
    data = images.load("fashion-mnist-12k")
    preprocessing = Preprocessing.measured(data.train.decoded(Preprocessing(28, 1)).images, 28)
    splits = []
    for corpus in (data.train, data.valid, data.test):
        pixels = corpus.decoded(preprocessing).images
        splits.append((np.asarray(preprocessing.normalize(pixels)), np.asarray(corpus.labels)))
    side = 28 // config.patch_size
    return Task(*splits, data.train.classes, side * side, (side, side), None), preprocessing


def load_text(config):
    """Passages of Shakespeare's plays, as pieces."""
    data = shakespeare.passages(config.words)
    tokenizer = SentencePieceTokenizer.train(data["train"].texts, config.vocab_size)
    splits = []
    for corpus in (data["train"], data["valid"], data["test"]):
        ids = tokenizer.tokenize(corpus.texts).to_tensor(shape=(None, config.text_length))
        splits.append((ids.numpy(), np.array(corpus.labels)))
    classes = data["train"].classes
    return Task(*splits, classes, config.text_length, None, tokenizer.vocab_size)


def build_model(config, task, variant):
    """Tokens, the encoder with this mixer, the mean over real tokens, classes."""
    if task.vocab_size is None:
        inputs = keras.Input(task.train[0].shape[1:])
        padding, x = None, PatchEmbedding(config.patch_size, config.hidden_dim)(inputs)
    else:
        inputs = keras.Input((task.length,), dtype="int32")
        padding = inputs != 0
        x = TokenEmbedding(task.vocab_size, config.hidden_dim, scale=False)(inputs)
    if variant not in POSITIONS_INSIDE:
        x = PositionEmbedding(task.length)(x)
    x = keras.layers.Dropout(config.dropout)(x)
    mixer = VARIANTS[variant](task)
    knows_padding = padding is not None and variant != "nothing"
    for _ in range(config.num_layers):
        block = EncoderBlock(
            HEADS,
            config.mlp_dim,
            config.dropout,
            activation="gelu",
            norm_first=True,
            mixer=mixer,
        )
        x = block(x, padding_mask=padding) if knows_padding else block(x)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.GlobalAveragePooling1D("channels_last")(x, mask=padding)
    model = keras.Model(inputs, keras.layers.Dense(len(task.classes))(x), name=variant)
    model.compile(
        config.make_optimizer(AdamW, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=config.jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def train(config, folder, name, task, model, seed, epochs):
    """Fits; returns the history, and the share of the test set that is classified rightly."""
    x, y = task.train
    batch = min(config.batch_size, len(y))
    x, y = tf.constant(x), tf.constant(y)
    steps = len(y) // batch

    def make(epoch):
        whole = streams.orders(len(y), batch, seed, epoch).take(steps)  # one shape, compiled once
        return whole.map(lambda chosen: (tf.gather(x, chosen), tf.gather(y, chosen)))

    budget = BudgetedDecay(
        config.learning_rate, config.warmup_steps, epochs * steps, decay="cosine"
    )
    history = folder.fit(model, make, steps, epochs, [budget], name, verbose=0)
    seconds = np.diff([0.0, *history["seconds"]])
    measured = {
        # The first epoch compiles; what else the machine has to do only adds to the others.
        "seconds_an_epoch": float(min(seconds[1:] if epochs > 1 else seconds)),
        "valid_accuracy": accuracy(model, *task.valid, batch),
        "accuracy": accuracy(model, *task.test, batch),
    }
    return history, measured


def accuracy(model, x, y, batch_size):
    """Share of right answers, in batches of one size."""
    padded = x[np.arange(len(y) + -len(y) % batch_size) % len(y)]
    logits = model.predict(padded, batch_size=batch_size, verbose=0)[: len(y)]
    return float(np.mean(logits.argmax(-1) == y))


def compare(config, folder, tasks):
    """Trains everything; returns a row for each task and variant, and the best picture model."""
    rows, curves, best = {}, [], (0.0, None)
    for name, task in tasks.items():
        epochs = config.image_epochs if name == "image" else config.text_epochs
        for variant in config.variants:
            runs = []
            for seed in range(config.seed, config.seed + config.seeds):
                begin_anew(config, seed)
                with config.making():
                    model = build_model(config, task, variant)
                history, measured = train(
                    config, folder, f"{name}-{variant}-{seed}", task, model, seed, epochs
                )
                runs.append(measured)
                curves += [
                    (name, variant, seed, epoch + 1, *values)
                    for epoch, values in enumerate(
                        zip(history["loss"], history["accuracy"], strict=True)
                    )
                ]
                if name == "image" and measured["valid_accuracy"] > best[0]:
                    best = (measured["valid_accuracy"], model)
            found = [run["accuracy"] for run in runs]
            operations = floating_point_operations(model, task.train[0][:1])
            rows[name, variant] = {
                "accuracy": float(np.mean(found)),
                "spread": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
                "seconds_an_epoch": min(run["seconds_an_epoch"] for run in runs),
                "parameters": model.count_params(),
                "megaflop_an_example": operations / 1e6,
            }
            print(f"{name:6} {variant:20} " + describe(rows[name, variant]), flush=True)
    header = ["task", "variant", "seed", "epoch", "loss", "accuracy"]
    folder.write_table("history.csv", header, curves, delimiter=",")
    return rows, best[1]


def describe(row):
    """A line of the table."""
    return (
        f"{100 * row['accuracy']:5.1f} +- {100 * row['spread']:.1f} %  "
        f"{row['seconds_an_epoch']:6.2f} s/epoch  {row['parameters']:9,} parameters  "
        f"{row['megaflop_an_example']:7.2f} MFLOP"
    )


def draw(path, rows, tasks):
    """What each variant gives beside what it costs."""
    panels = {
        f"{name}: accuracy on the test set": {
            variant: row for (task, variant), row in rows.items() if task == name
        }
        for name in tasks
    }
    costs = ("seconds_an_epoch", "parameters", "megaflop_an_example")
    comparison(panels, path, y="accuracy", spread="spread", x=costs)


def run(config):
    """Trains every variant on every task; returns the metrics."""
    config, folder = begin(config, SMOKE)
    unknown = [name for name in config.variants if name not in VARIANTS]
    if unknown or config.seeds < 1:
        raise ValueError(
            f"--variants must be some of {', '.join(VARIANTS)}, and --seeds at least 1. "
            f"Received: {', '.join(unknown) or config.seeds}"
        )
    tasks, preprocessing = {}, None
    if "image" in config.tasks:
        tasks["image"], preprocessing = load_images(config)
    if "text" in config.tasks:
        tasks["text"] = load_text(config)
    if config.smoke:
        tasks = {name: task.head(3 * config.batch_size) for name, task in tasks.items()}
    rows, model = compare(config, folder, tasks)
    hand_over()
    columns = list(next(iter(rows.values())))
    table = [(*key, *(row[column] for column in columns)) for key, row in rows.items()]
    folder.write_table("table.tsv", ["task", "variant", *columns], table)
    metrics = {
        f"{task}_{variant}_{column}": value
        for (task, variant), row in rows.items()
        for column, value in row.items()
    }
    folder.write_metrics(metrics)
    if model is not None:
        model.save(folder / "model.keras")
        classes = tasks["image"].classes
        with folder.exporting("saved_model") as path:
            image_classifier(model, path, classes, preprocessing)
    with folder.drawing("comparison") as path:
        draw(path, rows, tasks)
    folder.end()
    if model is not None:
        picture = images.load("fashion-mnist-12k").test.images[0]
        folder.show_use(
            folder.write_example(picture), '{}["label"]', lambda answer: answer["label"]
        )
    return metrics


if __name__ == "__main__":
    main(run, Config, __doc__)
