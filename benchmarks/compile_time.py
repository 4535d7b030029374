"""Time to the first training step: import, build, trace and compile, in a fresh process each time.

    pip install torch && pip install -e '.[recipes,benchmark]'
    python -m benchmarks.compile_time

The network and the candidates of `benchmarks.training`; PyTorch only where it compiles. The first
step is traced and compiled; the second shows what a step costs, and that nothing was traced twice.
The second start finds in `compile_cache` what the first one left, in a folder that was empty.
"""

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time

from benchmarks import alternating, training
from benchmarks.report import heading, table, write

SECOND = f"{training.OURS}, second start"
MODULES = {
    training.OURS: ("keras_transformers", "keras"),
    SECOND: ("keras_transformers", "keras"),
    "plain Keras": ("keras",),
    "KerasHub": ("keras", "keras_hub"),
    "PyTorch compiled": ("torch", "transformers"),
}
NAMES = tuple(MODULES)


def stages(name, folder):
    """Seconds of each stage, in this process; compiled programs of ours are kept in the folder."""
    times = [time.perf_counter()]

    def passed():
        times.append(time.perf_counter())

    for module in MODULES[name]:
        importlib.import_module(module)
    if name.startswith(training.OURS):
        sys.modules["keras_transformers"].compile_cache(folder)
    passed()
    if name.startswith("PyTorch"):
        step = training.of_pytorch(name, check=False)[0]
    else:
        sys.modules["keras"].utils.set_random_seed(0)
        step = training.of_keras(name, check=False)[0]
    passed()
    for _ in range(3):
        step()
        passed()
    names = ("imports", "build", "first_step", "second_step", "third_step")
    return dict(zip(names, (b - a for a, b in zip(times, times[1:], strict=False)), strict=True))


def main(rounds):
    found = {name: [] for name in NAMES}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in NAMES:
                asked = ("--candidate", name, "--folder", folder)
                found[name].append(alternating.fresh("benchmarks.compile_time", *asked))
    rows = {
        name: {
            stage: round(statistics.median(each[stage] for each in measured), 2)
            for stage in measured[0]
        }
        | {
            "until_first_step_from": round(min(sum(list(m.values())[:3]) for m in measured), 2),
            "to": round(max(sum(list(m.values())[:3]) for m in measured), 2),
        }
        for name, measured in found.items()
    }
    print(table(rows))
    result = {**heading(*training.PACKAGES), "rounds": rounds, "seconds": rows}
    write("compile_time", result, {"Seconds (medians)": rows})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidate", choices=NAMES, help="used by the benchmark itself")
    parser.add_argument("--folder", help="used by the benchmark itself")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.candidate:
        print(json.dumps(stages(arguments.candidate, arguments.folder)))
    else:
        main(arguments.rounds)
