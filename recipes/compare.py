"""Puts runs side by side: the options in which they differ, and their metrics.

python -m recipes.compare runs/translation runs/long
python -m recipes.compare runs/vit runs/swin runs/mae
"""

import dataclasses
import json
import pathlib

import tyro

from .bad_input import ending_in_a_sentence, program


@dataclasses.dataclass(frozen=True)
class Config:
    """What is compared."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # folders of two runs or more


def read(folder, name):
    """What a run has written, a dict.

    Raises:
        ValueError: If it has not.
    """
    path = pathlib.Path(folder, name)
    if not path.is_file():
        raise ValueError(f"{folder} has no {name}: it is not the folder of a finished run.")
    return json.loads(path.read_text(encoding="utf-8-sig"))


def rows_of(dicts, differing=False):
    """Rows of a name and a text for each dict; those that differ alone, if asked for."""
    names = dict.fromkeys(name for each in dicts for name in each)
    rows = [[name, *(_text(each.get(name, "")) for each in dicts)] for name in names]
    return [row for row in rows if not differing or len(set(row[1:])) > 1]


def _text(value):
    """A number to be read beside another."""
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1e4 else str(value)


def compare(folders):
    """The table, a str."""
    if len(folders) < 2:
        raise ValueError("Give the folders of two runs or more.")
    metrics = [read(folder, "metrics.json") for folder in folders]
    options = [read(folder, "config.json") for folder in folders]
    rows = [["", *folders], *rows_of(options, differing=True), [""] * (len(folders) + 1)]
    rows += rows_of(metrics)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ([text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def main():
    """The command line; bad input ends in one sentence."""
    called = program("compare")
    config = tyro.cli(Config, prog=called, description=__doc__)
    with ending_in_a_sentence(called):
        print(compare(config.runs))


if __name__ == "__main__":
    main()
