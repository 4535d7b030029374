"""What one does with a run that has ended: commands or calls that work as they stand."""

import json
import pathlib
import shlex
import sys

from .bad_input import COMMAND, program

IMPROVEMENT = 0.01  # of the validation loss in the last epoch, from which on longer training pays
OF_ONE_RUN = ("--output", "--minutes", "--epochs", "--seed", "--resume", "--overwrite")


def still_learning(history):
    """Whether the validation loss of a history still fell by more than 1 % at its end."""
    names = ("val_cross_entropy", "val_loss")
    values = next((history[name] for name in names if name in (history or {})), [])
    if len(values) < 2 or values[-1] > min(values):
        return False
    return values[-2] - values[-1] > IMPROVEMENT * abs(values[-2])


def commands(folder, asked=None, longer=None, reason=""):
    """Commands that use a finished run, with what each does.

    Args:
        folder: Of the run.
        asked: What its model has answered: a text or the path of an image, and a dict of options of
            `predict`; None if it was asked nothing.
        longer: Dict of the options of a longer run, if that is advised.
        reason: The reason for a longer run, as a sentence without its stop.

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
    if longer is not None:
        again = folder.with_name(f"{folder.name}_longer")
        told = [word for key, x in longer.items() for word in (f"--{key}", f"{x:g}")]
        steps.append((line(name, *_own_options(), *told, "--output", again), reason))
    other = _another(folder)
    if other is not None:
        steps.append((line("compare", other, folder), "Compare it with another run"))
    elif longer is None:
        again = folder.with_name(f"{folder.name}_seed_2")
        what = "See how much the score depends on the random seed"
        steps.append((line(name, *_own_options(), "--seed", 2, "--output", again), what))
    return steps


def calls(folder, recipe, longer=None, reason=""):
    """The same for a run that a program or a notebook has called, as lines of Python.

    Args:
        folder, longer, reason: As for `commands`.
        recipe: Name of the recipe's module.
    """
    folder, short = pathlib.Path(folder), recipe.rpartition(".")[2]
    if longer is not None:
        options, ending, what = longer, "longer", reason
    else:
        options, ending = {"seed": 2}, "seed_2"
        what = "See how much the score depends on the random seed"
    told = ", ".join(f"{key}={value:g}" for key, value in options.items())
    again = str(folder.with_name(f"{folder.name}_{ending}"))
    call = f"{short}.run(configure({short}.Config, {told}, output={again!r}))"
    return [(call, f"{what} (add your other options)")]


def _own_options():
    """The options of this command line, but for those that differ from run to run."""
    kept, words = [], sys.argv[1:]
    while words:
        word = words.pop(0)
        if word.partition("=")[0] not in OF_ONE_RUN:
            kept.append(word)
        elif "=" not in word and words and not words[0].startswith("--"):
            words.pop(0)
    return kept


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
