"""What one does with a run that has ended: commands that work as they stand."""

import json
import pathlib
import shlex

from .bad_input import COMMAND, program


def commands(folder, asked=None):
    """Commands that use a finished run, with what each does.

    Args:
        folder: Of the run.
        asked: What its model has answered: a text or the path of an image, and a dict of options of
            `predict`; None if it was asked nothing.

    Returns:
        List of `(command, what it does)`.
    """
    called, folder = program(), pathlib.Path(folder)
    start, _, name = called.rpartition(" " if called.startswith(COMMAND) else ".")
    between = " " if called.startswith(COMMAND) else "."

    def line(recipe, *words):
        return " ".join([f"{start}{between}{recipe}", *(shlex.quote(str(word)) for word in words)])

    steps = []
    if asked is not None:
        raw, options = asked
        told = [word for key, x in options.items() for word in (f"--{key.replace('_', '-')}", x)]
        steps.append((line("predict", folder, raw, *told), "Ask it on the command line"))
        steps.append((line("demo", folder), "Try it in a page in the browser"))
    other = _another(folder)
    if other is not None:
        steps.append((line("compare", other, folder), "Compare it with another run"))
    else:
        again = folder.with_name(f"{folder.name}_seed_2")
        steps.append((line(name, "--seed", 2, "--output", again), "Learn what chance does"))
    return steps


def _another(folder):
    """The newest other run of the same kind beside it; None if there is none."""
    mine = _names(folder)
    runs = [path.parent for path in folder.parent.glob("*/metrics.json")]
    runs = [run for run in runs if run.name != folder.name and _names(run) == mine]
    return max(runs, key=lambda run: (run / "metrics.json").stat().st_mtime, default=None)


def _names(folder):
    """The names of a run's options, by which it is of a recipe."""
    path = folder / "config.json"
    return set(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
