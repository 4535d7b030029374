"""What helps a ViT on little data: the recipe with one choice changed at a time.

    pip install -e '.[recipes]'
    python -m benchmarks.vit_small_data

Every row trains on the recipe's 11,400 images for the same number of epochs, with the same seeds,
and is scored on the 2,000 test images. The first row is the recipe's default. Seconds count too:
a choice that doubles them must be worth it.
"""

import argparse
import tempfile

import keras
import numpy as np

from benchmarks.report import heading, write
from recipes import vit
from recipes.lib.options import configure

CHOICES = {
    "default": {},
    "plain patches instead of a convolutional stem": {"stem": "patches"},
    "shifted patches instead of a convolutional stem": {"stem": "shifted"},
    "class token instead of mean pooling": {"pooling": "token"},
    "attention pooling instead of mean pooling": {"pooling": "attention"},
    "no stochastic depth": {"drop_path": 0.0},
    "no random erasing": {"erasing": 0.0},
    "no crop, no flip": {"crop_padding": 0, "flip": False},
    "MixUp 0.2": {"mixup": 0.2},
    "averaged weights (EMA 0.998)": {"ema": 0.998},
}


def main(epochs, seeds):
    rows = {name: [] for name in CHOICES}
    for seed in seeds:  # the inner loop over choices: a slow hour of the machine meets them all
        for name, changes in CHOICES.items():
            with tempfile.TemporaryDirectory() as folder:
                given = {"output": folder, "minutes": None, "epochs": epochs, "seed": seed}
                metrics = vit.run(configure(vit.Config, **given, **changes))
            rows[name].append(metrics)
            keras.backend.clear_session()
            write("vit_small_data", summary(epochs, seeds, rows))


def summary(epochs, seeds, rows):
    return {
        **heading("tensorflow", "keras"),
        "epochs": epochs,
        "seeds": list(seeds),
        "rows": {
            name: {
                "test_top1": [round(row["test_top1"], 2) for row in found],
                "mean": round(float(np.mean([row["test_top1"] for row in found])), 2),
                "images_per_second": round(
                    float(np.median([row["images_per_second"] for row in found]))
                ),
                "parameters": found[0]["parameters"],
            }
            for name, found in rows.items()
            if found
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    main(**vars(parser.parse_args()))
