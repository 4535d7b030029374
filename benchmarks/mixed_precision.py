"""Scores of the recipes in mixed precision beside float32, for the same numbers of epochs.

    pip install -e '.[recipes]'
    python -m benchmarks.mixed_precision

Each run is a recipe with its own defaults but for the options of RECIPES, for so many epochs and
not minutes, in a process of its own on a core of its own: BLEU and chrF of the translation recipe
on its test set with beam 4, top-1 of the ViT recipe on its test images. Means and standard
deviations over the seeds. Nothing is timed: other work may run beside it.
"""

import argparse
import itertools
import json
import os
import pathlib
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks import alternating
from benchmarks.report import heading, table, write

RECIPES = {  # recipe -> options, scores
    "vit": (("--epochs", "6"), ("test_top1", "test_calibration_error")),
    "translation": (("--epochs", "4"), ("test_bleu", "test_chrf")),
}
PRECISIONS = ("float32", "mixed_bfloat16")


def scores(recipe, seed, precision):
    """The scores of one run."""
    options, names = RECIPES[recipe]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", f"recipes.{recipe}", "--output", folder]
        command += ["--precision", precision, "--seed", str(seed)]
        command += ["--minutes", "None", *options]
        alternating.ran(command)
        metrics = json.loads(pathlib.Path(folder, "metrics.json").read_text())
    found = [metrics[name] for name in names]
    print(recipe, precision, seed, found, flush=True)
    return found


def a_core_each():
    """As many threads as cores, whose child processes keep to one core.

    XLA's processes that share cores spend most of their time waiting for one another.
    """
    cores = os.sched_getaffinity(0)
    free = iter(cores)
    return ThreadPoolExecutor(len(cores), initializer=lambda: os.sched_setaffinity(0, {next(free)}))


def main(seeds, recipes):
    wanted = list(itertools.product(recipes, range(1, seeds + 1), PRECISIONS))
    with a_core_each() as pool:
        found = dict(zip(wanted, pool.map(scores, *zip(*wanted, strict=True)), strict=True))
    runs, tables = {}, {}
    for recipe in recipes:
        options, names = RECIPES[recipe]
        runs[recipe] = {"options": options, "scores": names}
        rows = tables[f"recipes.{recipe} {' '.join(options)}, seeds 1 to {seeds}"] = {}
        for precision in PRECISIONS:
            each = [found[recipe, seed, precision] for seed in range(1, seeds + 1)]
            runs[recipe][precision] = each
            rows[precision] = {
                name: f"{mean:.3g} ± {spread:.2g}"
                for name, mean, spread in zip(
                    names, np.mean(each, axis=0), np.std(each, axis=0, ddof=1), strict=True
                )
            }
        print(table(rows), flush=True)
    result = {**heading("tensorflow", "keras", "sacrebleu"), "runs": runs}
    write("mixed_precision", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    main(**vars(parser.parse_args()))
