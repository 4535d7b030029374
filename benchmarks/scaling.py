"""Step time, memory and communication on 1, 2, 4 and 8 virtual devices, beside the formulas.

    pip install -e '.[test]'
    KERAS_BACKEND=jax python -m benchmarks.scaling

A ViT on JAX, AdamW with global clipping, float32. The devices are parts of one CPU, so that more
of them add no speed: what grows with their number is what sharing costs. Three things are checked.
Bytes: the collectives of the compiled step against `benchmarks.plan`. Memory: what each device
holds. Time: with a fixed batch, `T(n) = T(1) + (n - 1) U + A(n)`, where U is one more update of all
weights and A(n) summing as many bytes over n devices, both measured alone; with a fixed batch for
each device, T(1) is taken n times. `slope` is the least-squares slope of time over n.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # before JAX is imported

import math
import re
import time

import jax
import keras
import numpy as np

from benchmarks import plan
from benchmarks.report import heading, table, write
from keras_transformers import distribution, models, training

CLASSES, IMAGE, PATCH = 16, 32, 4
SIZES = {"hidden_dim": 256, "num_heads": 8, "mlp_dim": 1024, "num_layers": 4}
DATA, MODEL = (1, 2, 4, 8), ("data=1,model=2", "data=2,model=2", "data=4,model=2", "data=2,model=4")
BATCH, STEPS = 64, 10
SMOKE = {"hidden_dim": 32, "num_heads": 8, "mlp_dim": 64, "num_layers": 1}
COLLECTIVE = re.compile(
    r"= (\(?[^=]*?\)?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\((.*)$",
    re.MULTILINE,
)
ARRAY = re.compile(r"\b(pred|[suf]|bf)(\d*)\[([\d,]*)\]")


def model_of(sizes):
    """The same sizes for the formulas."""
    length = (IMAGE // PATCH) ** 2 + 1
    width = sizes["hidden_dim"]
    other = (3 * PATCH**2 + length + CLASSES) * width
    return plan.Stack(width, sizes["mlp_dim"], sizes["num_layers"], length, other=other)


def compiled_step(sizes, batch):
    """The training step as XLA has it, its state, a batch, and the model."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batch, IMAGE, IMAGE, 3)).astype("float32")
    y = rng.integers(0, CLASSES, batch)
    keras.utils.set_random_seed(0)
    model = models.ViT(CLASSES, image_size=IMAGE, patch_size=PATCH, **sizes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(training.AdamW(1e-3, global_clipnorm=1.0), loss, jit_compile=True)
    model.fit(x, y, batch_size=batch, verbose=0, callbacks=[distribution.Guard()])
    kinds = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in kind] for kind in kinds)
    spread = keras.distribution.distribution()
    data = tuple(
        keras.distribution.distribute_tensor(each, spread.get_data_layout(each.shape))
        for each in (x, y)
    )
    where = jax.tree.map(lambda value: value.sharding, state)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(None, where))
    return step.lower(state, data).compile(), state, data, model


def sent_bytes(program):
    """Kind of collective -> bytes that each device sends in a step, rings assumed."""
    found = {}
    program = re.sub(r"/\*.*?\*/", "", program)  # comments inside long tuples
    for shapes, kind, rest in COLLECTIVE.findall(program):
        size, group = _bytes(shapes), _group(rest)
        share = (group - 1) / group
        factor = {
            "all-reduce": 2 * share,
            "all-gather": share,
            "reduce-scatter": share * group,
            "all-to-all": share,
            "collective-permute": 1.0,
        }[kind]
        found[kind] = found.get(kind, 0) + factor * size
    return {kind: round(size) for kind, size in found.items() if size}


def _bytes(shapes):
    return sum(
        math.prod(int(side) for side in dims.split(",") if side) * (int(bits or 8) // 8)
        for _, bits, dims in ARRAY.findall(shapes)
    )


def _group(rest):
    """Devices that take part in a collective together, in each of the ways XLA writes them."""
    ways = r"\{\{[\d,]*\}|\[\d+,\d+\]|mesh\[[^\]]*\].*?\{[^}]*\}"
    groups = re.search(rf"replica_groups=({ways})", rest)
    if groups is None:  # of a permutation, which sends whole pieces
        return 2
    if groups[1].startswith("{"):
        return len(groups[1].split(","))
    if groups[1].startswith("["):
        return int(groups[1][1:-1].split(",")[1])
    sizes = dict(re.findall(r"'(\w+)'=(\d+)", groups[1]))
    axes = groups[1].rpartition("{")[2]
    named = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", axes)
    return math.prod(int(part or sizes[name]) for name, part in named)


def seconds(function, *arguments, carried=False):
    """Median of several calls; where `carried`, each takes the state that the last one left."""
    taken = []
    for _ in range(STEPS + 1):
        started = time.perf_counter()
        answer = jax.block_until_ready(function(*arguments))
        taken.append(time.perf_counter() - started)
        if carried:
            arguments = (answer[1], *arguments[1:])
    return float(np.median(taken[1:]))


def measured(grid, sizes, batch):
    """Figures of one grid."""
    devices = distribution.parse(grid)
    with distribution.distribute(devices):
        step, state, data, model = compiled_step(sizes, batch)
        held = next(iter(distribution.bytes_per_device(model).values()))
        taken = seconds(step, state, data, carried=True)
    sent = sent_bytes(step.as_text())
    formula = model_of(sizes)
    expected = plan.gradient_bytes(formula, devices.data, devices.model)
    expected += plan.activation_bytes(formula, batch, devices.data, devices.model, width=4)
    return {
        "batch": batch,
        "step_ms": round(1e3 * taken, 2),
        "weights_MB": round(held["weights"] / 1e6, 3),
        "optimizer_MB": round(held["optimizer"] / 1e6, 3),
        **{f"{kind}_MB": round(size / 1e6, 3) for kind, size in sent.items()},
        "sent_MB": round(sum(sent.values()) / 1e6, 3),
        "formula_MB": round(expected / 1e6, 3),
    }


def parts_of_time(sizes):
    """Seconds of one more update of all weights, and of a sum over n devices, measured apart."""
    count = round(plan.held(model_of(sizes), 1))
    weights = [jax.numpy.ones(count) for _ in range(4)]

    @jax.jit
    def update(weight, gradient, moment, velocity):
        moment = moment + 0.1 * (gradient - moment)
        velocity = velocity + 0.001 * (gradient**2 - velocity)
        return weight - 1e-3 * moment / (velocity**0.5 + 1e-7), moment, velocity

    sums = {1: 0.0}
    for number in DATA[1:]:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:number]), ("data",))
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
        whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        terms = jax.device_put(np.ones((number, count), "float32"), rows)
        sums[number] = seconds(jax.jit(lambda x: x.sum(axis=0), out_shardings=whole), terms)
    return seconds(update, *weights), sums


def with_expected_times(rows, update, sums, each_device):
    """Adds the formula's time to the data-parallel rows, and gives both slopes in ms a device."""
    alone, times = rows["data=1"]["step_ms"], {}
    for number in DATA:
        work = alone * (number if each_device else 1)
        times[number] = work + 1e3 * ((number - 1) * update * (not each_device) + sums[number])
        rows[f"data={number}"]["formula_ms"] = round(times[number], 2)
    found = [rows[f"data={number}"]["step_ms"] for number in DATA]
    return {
        "slope_ms": round(float(np.polyfit(DATA, found, 1)[0]), 3),
        "slope_by_formula_ms": round(float(np.polyfit(DATA, list(times.values()), 1)[0]), 3),
    }


def main(smoke=False):
    sizes, batch = (SMOKE, 16) if smoke else (SIZES, BATCH)
    tables, slopes = {}, {}
    update, sums = parts_of_time(sizes)
    for title, each_device in (("fixed batch", False), ("fixed batch a device", True)):
        rows = {}
        for number in DATA:
            size = batch // 8 * number if each_device else batch
            rows[f"data={number}"] = measured(f"data={number}", sizes, size)
            print(title, number, rows[f"data={number}"], flush=True)
        slopes[title] = with_expected_times(rows, update, sums, each_device)
        tables[title] = rows
    tables["matrices split too"] = {grid: measured(grid, sizes, batch) for grid in MODEL}
    tables["slopes"] = slopes
    if smoke:
        print("\n\n".join(f"{title}\n\n{table(rows)}" for title, rows in tables.items()))
        return
    alone = {"update_ms": 1e3 * update, "sum_ms": {n: 1e3 * each for n, each in sums.items()}}
    result = {**heading("keras", "jax"), "sizes": sizes, "alone": alone, **tables}
    write("scaling", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny sizes; writes nothing")
    main(**vars(parser.parse_args()))
