"""What an optimizer costs: time of a training step, and the loss that steps reach.

    pip install -e '.[recipes]'
    python -m benchmarks.optimizers                # both
    python -m benchmarks.optimizers --part times
    python -m benchmarks.optimizers --part losses

Times are of the default network of `recipes.translation` on its batches of 1,024 positions, in
turns, a process each, with freed memory kept. Losses are of the three recipes that train with Muon
at their learning rates, with a linear warm-up and decay over the steps: cross-entropy of the
validation set, of several seeds. "Muon before" is what it was until version 0.2: five iterations
of Jordan et al. 2024 on one matrix after the other.
"""

import argparse
import dataclasses
import functools
import importlib
import json
import statistics

import numpy as np

from benchmarks import alternating
from benchmarks.report import FOLDER, heading, write

NAMES = ("AdamW", "SGD", "Muon", "Muon before")
RECIPES = ("translation", "language_model", "masked_language_model")
POSITIONS = 1024  # in a batch
VALIDATED = 40  # batches of the validation set at most


def orthogonalized_before(matrices, steps):
    """Newton-Schulz with the coefficients of Jordan et al. 2024, one matrix after the other."""
    from keras import ops

    a, b, c = 3.4445, -4.7750, 2.0315
    made = []
    for x in ops.unstack(matrices):
        wide = x.shape[0] <= x.shape[1]
        x = x if wide else ops.transpose(x)
        x = x / (ops.sqrt(ops.sum(ops.square(x))) + 1e-7)
        for _ in range(steps):
            gram = ops.matmul(x, ops.transpose(x))
            x = a * x + ops.matmul(b * gram + c * ops.matmul(gram, gram), x)
        made.append(x if wide else ops.transpose(x))
    return ops.stack(made)


def optimizer(name, learning_rate=1e-4):
    import keras

    from keras_transformers.training import AdamW, Muon, muon

    if name == "SGD":
        return keras.optimizers.SGD(learning_rate)
    if name == "AdamW":
        return AdamW(learning_rate, weight_decay=0.05)
    if name == "Muon before":
        muon.orthogonalize = orthogonalized_before  # of this process, see `prepare`
        muon.TOGETHER = 1
        return Muon(learning_rate, weight_decay=0.05, steps=5)
    return Muon(learning_rate, weight_decay=0.05, **({"steps": 3} if "three" in name else {}))


def prepare(name, settings):
    from keras_transformers.models import Transformer
    from keras_transformers.training import SmoothedCrossEntropy

    alternating.keep_freed_memory()
    model = Transformer.from_variant("mini", settings["vocab"], dropout=0.0, norm_first=True)
    model.compile(optimizer(name), SmoothedCrossEntropy(0.1), jit_compile=True)
    model.build({"source": (None, None), "target": (None, None)})
    model.optimizer.build(model.trainable_variables)
    rows, length = POSITIONS // 64, 64
    ids = np.random.default_rng(0).integers(3, settings["vocab"], (rows, length), dtype="int32")
    segments = np.repeat(np.repeat([1, 2, 3, 4], 16)[None].astype("int32"), rows, axis=0)
    inputs = dict.fromkeys(("source", "target"), ids)
    inputs |= dict.fromkeys(("source_segments", "target_segments"), segments)

    def run():
        for _ in range(settings["steps"]):
            model.train_on_batch(inputs, ids)

    return run, None


def times(settings, rounds):
    measured = alternating.measure("benchmarks.optimizers", NAMES, settings, rounds)
    adamw = measured["AdamW"]["milliseconds"]
    return {
        name: {
            "milliseconds_a_step": round(of["milliseconds"] / settings["steps"], 1),
            "from": round(of["from"] / settings["steps"], 1),
            "to": round(of["to"] / settings["steps"], 1),
            "of_AdamW": round(of["milliseconds"] / adamw, 3),
            "seconds_until_first": of["seconds_until_first"],
            "peak_mebibytes": of["peak_mebibytes"],
        }
        for name, of in measured.items()
    }


def load(recipe, config):
    """Vocabulary size, batches of an epoch by its number, and of the validation set."""
    if recipe.__name__.endswith(".translation"):
        _, tokenizer, train, valid = recipe.load_data(config)
    elif recipe.__name__.endswith(".language_model"):
        _, tokenizer, ids = recipe.load_data(config)
        arrange = recipe.full_rows(config, tokenizer.pad_id)
        train = functools.partial(arrange, recipe.dataset_of_ids(ids["train"]))
        valid = recipe.windows(config, ids["valid"], tokenizer.pad_id)
    else:
        tokenizer, batches = recipe.load_data(config)
        train, valid = batches["train"], batches["valid"]
    return tokenizer.vocab_size, train, valid


def losses_of(name, kind, seeds, steps):
    """Validation cross-entropy of a recipe's network after so many steps, of each seed."""
    import keras

    from keras_transformers import streams
    from keras_transformers.training import WarmupLinear, keep_freed_memory

    keep_freed_memory()
    recipe = importlib.import_module(f"recipes.{name}")
    config = recipe.Config()
    training = dataclasses.replace(config.training, batch_size=POSITIONS)
    config = dataclasses.replace(config, training=training)
    schedule = WarmupLinear(training.learning_rate, training.warmup_steps, steps)
    recipe.training.make_optimizer = lambda *_: optimizer(kind, schedule)
    vocab, train, valid = load(recipe, config)
    valid = valid.take(VALIDATED).cache()
    model, found = recipe.build_model(config, vocab), []
    batches = len(list(train(0)))
    for seed in range(1, seeds + 1):
        keras.utils.set_random_seed(seed)
        other = recipe.build_model(config, vocab)
        model.set_weights(other.get_weights())
        for variable in model.optimizer.variables:  # the rate is a schedule's, no variable
            variable.assign(np.zeros(variable.shape, variable.dtype))
        data = streams.epochs(lambda epoch, first=seed: train(epoch + 100 * first), batches)
        model.fit(data, steps_per_epoch=steps, epochs=1, shuffle=False, verbose=0)
        found.append(model.evaluate(valid, verbose=0, return_dict=True)["cross_entropy"])
    return [round(value, 4) for value in found]


def losses(seeds, steps):
    rows = {}
    for kind in ("Muon", "Muon before", "Muon of three steps"):
        row = {}
        for name in RECIPES:
            arguments = ["--recipe", name, "--kind", kind]
            arguments += ["--seeds", str(seeds), "--steps", str(steps)]
            found = alternating.fresh("benchmarks.optimizers", *arguments)
            spread = f" ({', '.join(f'{value:.3f}' for value in found)})"
            row[name] = f"{statistics.mean(found):.3f}{spread}"
        rows[kind] = row
    return rows


def run_all(part, seeds, steps, rounds, recipe, kind):
    if recipe:
        print(json.dumps(losses_of(recipe, kind, seeds, steps)))
        return
    title = "optimizers"
    kept = FOLDER / f"{title}.json"
    tables = json.loads(kept.read_text())["tables"] if kept.exists() else {}
    if part != "losses":
        key = "A training step of recipes.translation's default network"
        tables[key] = times({"vocab": 2500, "steps": 8}, rounds)
    if part != "times":
        key = f"Validation cross-entropy after {steps} steps of {POSITIONS} positions"
        tables[key] = losses(seeds, steps)
    result = {**heading("tensorflow", "keras"), "tables": tables}
    write(title, result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=("both", "times", "losses"), default="both")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="of training, for the losses")
    parser.add_argument("--rounds", type=int, default=7, help="for the times")
    parser.add_argument("--recipe", choices=RECIPES, help="used by the benchmark itself")
    parser.add_argument("--kind", help="used by the benchmark itself")
    alternating.main(prepare, run_all, parser)
