"""Scores of the recipes in mixed precision beside float32, for the same numbers of epochs.

    pip install -e '.[recipes]'
    python -m benchmarks.mixed_precision

Each run is a recipe with its own defaults but for the options of RECIPES, for so many epochs and
not minutes, in a process of its own: BLEU and chrF of the translation recipe on its test set with
beam 4, top-1 of the ViT recipe on its test pictures. Means and standard deviations over the seeds.
Nothing is timed: other work may run beside it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.report import heading, table, write

RECIPES = {  # recipe -> options, scores
    "vit": (("--epochs", "6"), ("test_top1", "test_calibration_error")),
    "translation": (("--variant", "tiny", "--epochs", "4"), ("test_bleu", "test_chrf")),
}
PRECISIONS = ("float32", "mixed_bfloat16")


def scores(recipe, options, precision, seed, names):
    """The scores of one run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", f"recipes.{recipe}", "--output", folder]
        command += ["--precision", precision, "--seed", str(seed)]
        command += ["--minutes", "None", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = json.loads(pathlib.Path(folder, "metrics.json").read_text())
    return [metrics[name] for name in names]


def main(seeds, recipes):
    runs, tables = {}, {}
    for recipe in recipes:
        options, names = RECIPES[recipe]
        found = {precision: [] for precision in PRECISIONS}
        for seed in range(1, seeds + 1):
            for precision in PRECISIONS:
                found[precision].append(scores(recipe, options, precision, seed, names))
                print(recipe, precision, seed, found[precision][-1], flush=True)
        title = f"recipes.{recipe} {' '.join(options)}, seeds 1 to {seeds}"
        tables[title] = {
            precision: {
                name: f"{mean:.2f} ± {spread:.2f}"
                for name, mean, spread in zip(
                    names, np.mean(each, axis=0), np.std(each, axis=0, ddof=1), strict=True
                )
            }
            for precision, each in found.items()
        }
        runs[recipe] = {"options": options, "scores": names, **found}
        print(table(tables[title]), flush=True)
    result = {**heading("tensorflow", "keras", "sacrebleu"), "runs": runs}
    write("mixed_precision", result, tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    main(**vars(parser.parse_args()))
