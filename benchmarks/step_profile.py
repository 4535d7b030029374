"""Where the time of a recipe's training step goes, by kind of operation, under XLA on a CPU.

    pip install -e '.[recipes]'
    python -m benchmarks.step_profile translation
    python -m benchmarks.step_profile vit

The recipe's default network and batch, with random data, through `model.fit`. TensorFlow's profiler
says how long each operation of XLA's program runs, and the program, dumped as text, what each is
and which layer it came from. Operations run side by side, some end after they have returned (in the
backward pass a kernel's gradient beside that of the input), and the profiler's own time is in the
figures: the shares say where to look; a step's milliseconds are measured before it starts.
"""

import argparse
import collections
import os
import pathlib
import re
import tempfile
import time

import numpy as np

from benchmarks.report import heading, table, write

RECIPES = ("translation", "vit")
# `%name = type[shape]{layout} opcode(%operand, ...), ..., metadata={op_name="..."}`
INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (\w+)\[([\d,]*)\]\S* ([\w\-]+)\((.*)$")
# What a fused loop belongs to, by its `op_name`; the first that fits.
LOOPS = (
    ("optimizer", r"muon|adam"),
    ("dropout", r"dropout|drop_path"),
    ("norms", r"norm"),
    ("attention: softmax, masks, layouts", r"mixer|attention"),
    ("feed-forward: activation and biases", r"feed_forward"),
    ("embeddings and positions", r"embedding|positions"),
    ("convolutional stem", r"stem|patch"),
)


def model_and_data(recipe):
    """The compiled model, and inputs and labels of a batch."""
    rng = np.random.default_rng(0)
    if recipe == "translation":
        from recipes import translation

        config = translation.Config()
        model = translation.build_model(config, config.data.vocab_size)
        rows = config.training.batch_size // config.data.row_length
        shape = (rows, config.data.row_length)
        ids = rng.integers(3, config.data.vocab_size, (2, *shape)).astype("int32")
        segments = np.broadcast_to(np.arange(shape[1]) * 3 // shape[1] + 1, shape).astype("int32")
        inputs = {"source": ids[0], "target": np.roll(ids[1], 1, axis=1)}
        return model, {**inputs, "source_segments": segments, "target_segments": segments}, ids[1]
    from recipes import vit

    config, classes = vit.Config(), 10
    model = vit.build_model(config, classes, channels=1)
    rows, side = config.training.batch_size, config.data.image_size
    labels = np.eye(classes, dtype="float32")[rng.integers(0, classes, rows)]
    return model, rng.normal(size=(rows, side, side, 1)).astype("float32"), labels


def profiled(recipe, steps, folder):
    """Milliseconds of a step; and of each operation in a step, by its name."""
    import tensorflow as tf

    from keras_transformers import training

    training.keep_freed_memory()
    model, x, y = model_and_data(recipe)
    batches = tf.data.Dataset.from_tensors((x, y)).repeat()
    fit = {"steps_per_epoch": steps, "shuffle": False, "verbose": 0}
    model.fit(batches, **fit)
    taken = []
    for _ in range(3):
        started = time.perf_counter()
        model.fit(batches, **fit)
        taken.append((time.perf_counter() - started) / steps)
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3, python_tracer_level=0)
    with tf.profiler.experimental.Profile(str(folder), options):
        model.fit(batches, **fit)
    return 1e3 * float(np.median(taken)), _durations(folder, steps)


def _durations(folder, steps):
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space, found = xplane_pb2.XSpace(), collections.Counter()
    (path,) = pathlib.Path(folder).glob("**/*.xplane.pb")
    space.ParseFromString(path.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                found[plane.event_metadata[event.metadata_id].name] += event.duration_ps
    return {name: duration / 1e9 / steps for name, duration in found.items()}


def instructions(program):
    """Name -> opcode, shape, operands' names and the source's name, of an HLO program's text."""
    found = {}
    for line in program.splitlines():
        match = INSTRUCTION.match(line)
        if match:
            name, _, shape, opcode, rest = match.groups()
            source = re.search(r'op_name="([^"]*)"', rest)
            operands = re.findall(r"%([\w.\-]+)", rest.partition(")")[0])
            sizes = tuple(int(size) for size in shape.split(",") if size)
            dims = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", rest)
            summed = [int(axis) for axis in dims[1].split(",") if axis] if dims else []
            found[name] = (opcode, sizes, operands, source[1] if source else "", summed)
    return found


def kind_of(name, program):
    """What kind of operation a named one is, and how many billion operations if a product."""
    opcode, shape, operands, source, summed = program[name]
    if opcode == "dot":
        left = program[operands[0]][1]
        terms = np.prod([left[axis] for axis in summed])
        gigaflop = 2 * terms * np.prod(shape) / 1e9
        if re.search("muon", source):
            return "products: optimizer", gigaflop
        if len(shape) > 3 or (len(shape) == 3 and shape[0] != 1):
            return "products: attention's scores and values", gigaflop
        if "gradient_tape" not in source:
            return "products: forward", gigaflop
        return "products: backward", gigaflop
    if opcode == "convolution":
        return "convolutions", 0.0
    if "reduce-window" in name:
        return "loops: sums and maxima cut into windows", 0.0
    if opcode in ("copy", "transpose", "concatenate", "slice", "pad"):
        return "loops: copies", 0.0
    for kind, words in LOOPS:
        if re.search(words, source):
            return f"loops: {kind}", 0.0
    return "loops: loss, metrics, residuals and the rest", 0.0


def by_kind(durations, program):
    """A row for each kind: milliseconds, share, and the rate of products."""
    milliseconds, gigaflops, calls = (collections.Counter() for _ in range(3))
    for name, duration in durations.items():
        if name in program and program[name][0] not in ("call", "while", "conditional"):
            kind, gigaflop = kind_of(name, program)
            milliseconds[kind] += duration
            gigaflops[kind] += gigaflop
            calls[kind] += 1
    whole = sum(milliseconds.values())
    return {
        kind: {
            "operations": calls[kind],
            "milliseconds": round(each, 2),
            "share": f"{each / whole:.1%}",
            "GFLOP/s": round(1e3 * gigaflops[kind] / each) if gigaflops[kind] else "",
        }
        for kind, each in milliseconds.most_common()
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--longest", type=int, default=0, help="also list so many operations")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flags = [f"--xla_dump_to={folder}/program", "--xla_dump_hlo_as_text"]
        # Before TensorFlow is imported.
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
        step, durations = profiled(asked.recipe, asked.steps, pathlib.Path(folder, "profile"))
        dumped = pathlib.Path(folder, "program").glob("*cpu_after_optimizations.txt")
        text = max(dumped, key=lambda path: path.stat().st_size).read_text()
    program = instructions(text)
    result = {
        **heading("tensorflow", "keras"),
        "milliseconds_a_step": round(step, 1),
        "kinds": by_kind(durations, program),
    }
    print(f"{step:.1f} milliseconds a step\n\n{table(result['kinds'], 'kind')}")
    title = f"{asked.recipe}, {step:.1f} milliseconds a step: operations one by one"
    write(f"step_profile_{asked.recipe}", result, {title: result["kinds"]})
    known = sorted((each for each in durations.items() if each[0] in program), key=lambda x: -x[1])
    for name, duration in known[: asked.longest]:
        opcode, shape, _, source, _ = program[name]
        print(f"{duration:8.3f} ms  {name} {opcode} {list(shape)} {source}")


if __name__ == "__main__":
    main()
