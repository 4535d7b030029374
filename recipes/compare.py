"""Puts runs side by side: the options in which they differ, and their metrics.

    python -m recipes.compare runs/translation runs/long
    python -m recipes.compare runs/vit runs/swin runs/mae

Runs of translation with one test set are compared by paired bootstrap, too (Koehn 2004): how likely
chance alone makes a difference from the first run as large as the one found. `--figure errors.png`
draws where each is wrong.
"""

import csv
import dataclasses
import json
import pathlib

import tyro

from keras_transformers.training import compare_translations
from keras_transformers.visualization import grouped_bars

from .lib.command_line import run_command
from .lib.translating import error_panels, reports_by_direction


@dataclasses.dataclass(frozen=True)
class Config:
    """The runs to compare."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # folders of two runs or more
    samples: int = 1000  # corpora drawn by the bootstrap
    figure: str | None = None  # PNG to draw the errors of translations to


def read(folder, name):
    """Returns a JSON file of a run as a dict.

    Raises:
        ValueError: If it has not.
    """
    path = pathlib.Path(folder, name)
    if not path.is_file():
        raise ValueError(f"{folder} has no {name}: it is not the folder of a finished run.")
    return json.loads(path.read_text(encoding="utf-8-sig"))


def rows_of(dicts, differing=False):
    """Returns rows of a name and a text for each dict; `differing` leaves out equal ones."""
    names = dict.fromkeys(name for numbers in dicts for name in numbers)
    rows = [[name, *(_text(numbers.get(name, "")) for numbers in dicts)] for name in names]
    return [row for row in rows if not differing or len(set(row[1:])) > 1]


def _text(value):
    """Returns a number as it is read beside another."""
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


def compare(folders, samples=1000):
    """Returns the table of several runs as text."""
    if len(folders) < 2:
        raise ValueError("Give the folders of two runs or more.")
    metrics = [read(folder, "metrics.json") for folder in folders]
    options = [read(folder, "config.json") for folder in folders]
    rows = [["", *folders], *rows_of(options, differing=True), [""] * (len(folders) + 1)]
    rows += rows_of(metrics)
    if certain := significance(folders, samples):
        rows += [[""] * (len(folders) + 1), *certain]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def significance(folders, samples):
    """Returns rows on the translations of the runs; none without translations of one test set.

    A row has a metric's score with the half-width of its 95 % interval, or the chance of a
    difference.
    """
    if not all(pathlib.Path(folder, "translations.tsv").is_file() for folder in folders):
        return []
    tables = [_translations(folder) for folder in folders]
    sets = [[(row["source"], row["reference"]) for row in table] for table in tables]
    if any(values != sets[0] for values in sets):
        return [["other test sets", *("" for _ in folders)]]
    names = [f"{i}. {folder}" for i, folder in enumerate(folders)]  # one may be given twice
    systems = {
        name: [row["translation"] for row in table]
        for name, table in zip(names, tables, strict=True)
    }
    references = [reference for _, reference in sets[0]]
    tokenize = {read(folder, "report.json")["tokenizer"] for folder in folders}
    comparison = compare_translations(
        systems, references, tokenize.pop() if len(tokenize) == 1 else None, samples
    )
    rows = []
    for metric, scores in comparison.items():
        values = scores.values()
        rows.append([metric, *(f"{x.score:.2f} +- {x.half_width:.2f}" for x in values)])
        chances = ("" if x.p_value is None else f"p = {x.p_value:.3f}" for x in values)
        rows.append(["  beside the first", *chances])
    return rows


def _translations(folder):
    """Returns dicts of source, reference and translation of a run."""
    with open(pathlib.Path(folder, "translations.tsv"), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def draw(folders, path):
    """Draws the errors in the translations of runs."""
    reports = {folder: read(folder, "report.json") for folder in folders}
    grouped_bars(error_panels(reports_by_direction(reports)), path)


def run(config):
    """Prints the table, and draws errors if `figure` is set."""
    print(compare(config.runs, config.samples))
    if config.figure is not None:
        draw(config.runs, config.figure)


def main():
    """Runs the command line."""
    run_command("compare", Config, __doc__, run)


if __name__ == "__main__":
    main()
