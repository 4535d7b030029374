"""Writes down eight test sentences of a translator's run, beside their references, for README.

    python -m recipes.translation
    python -m benchmarks.samples runs/translation
    python -m benchmarks.figures

Run both on the same machine, whose name is written down. The test sentences stand at equal
distances in the test set, so that nobody chooses them.
"""

import csv
import json
import pathlib
import sys

from benchmarks.report import FOLDER, heading
from recipes.translation import Config

NUMBER = 8


def samples(folder):
    """The result: scores of the run, and its samples as rows."""
    metrics, config = (
        json.loads((folder / name).read_text(encoding="utf-8"))
        for name in ("metrics.json", "config.json")
    )
    with (folder / "translations.tsv").open(encoding="utf-8", newline="") as file:
        sentences = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return {
        **heading("keras", "tensorflow"),
        "command": _command(config),
        "variant": config["variant"],
        "bleu": metrics["test_bleu"],
        "chrf": metrics["test_chrf"],
        "minutes": metrics["seconds_training_and_evaluation"] / 60,
        "epochs": metrics["epochs"],
        "sentences": len(sentences),
        "rows": sentences[:: len(sentences) // NUMBER][:NUMBER],
    }


def _command(config):
    """The command of a run with default options, except for its minutes."""
    command = "python -m recipes.translation"
    if config["minutes"] == Config().training.minutes:
        return command
    return f"{command} --minutes {config['minutes']:g}"


if __name__ == "__main__":
    text = json.dumps(samples(pathlib.Path(sys.argv[1])), indent=2, ensure_ascii=False)
    (FOLDER / "samples.json").write_text(f"{text}\n", encoding="utf-8")
