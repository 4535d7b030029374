"""Claims about what a run prints: every line fits the terminal, and one line says how it goes."""

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import types

import keras
import numpy as np
import pytest
import rich.console

from keras_transformers.training import BudgetedDecay
from recipes.lib import progress

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
WIDTHS = [60, 80, 100]
SENTENCE = "A sentence of a log, with words of many lengths, that no terminal of 60 columns holds."


class Terminal(io.StringIO):
    """An output that says that it is a terminal."""

    def isatty(self):
        return True


def fit(output, width, epochs=2, **budget):
    """Trains a small model, whose progress is shown on a terminal of so many columns."""
    console = rich.console.Console(
        file=output, width=width, force_terminal=output.isatty(), color_system=None
    )
    decay = BudgetedDecay(0.1, **{"steps": 5 * epochs, **budget})
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae", "mape", "msle", "cosine_similarity"])
    x = np.ones((20, 3), "float32")
    model.fit(
        x,
        x[:, :1],
        4,
        epochs=epochs,
        validation_data=(x, x[:, :1]),
        callbacks=[decay, progress.Progress(decay, console=console)],
    )


def shown(output):
    """The pieces between the ends of lines, without what controls the terminal."""
    return [piece for piece in re.split(r"[\r\n]+", CONTROL.sub("", output.getvalue())) if piece]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_training_is_longer_than_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setattr(progress, "PAUSE", 0.0)
    output = Terminal()
    fit(output, width)
    lines = shown(output)
    assert any("━" in line and " 3/5 " in f"{line} " for line in lines)
    assert any("validating ..." in line for line in lines)
    assert max(map(len, [*lines, *capsys.readouterr().out.splitlines()])) <= width


def test_without_a_terminal_there_is_one_line_an_epoch(capsys):
    output = io.StringIO()
    fit(output, 80)
    assert output.getvalue() == ""
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in said if line.startswith("Epoch")] == [
        ["Epoch", "1/2"],
        ["Epoch", "2/2"],
    ]
    first = next(line for line in said if line.startswith("Epoch 1/2"))
    assert re.search(r"  loss \S+  val_loss \S+  .* \d+ s  \d+ s left$", first)


def test_an_epoch_that_ends_early_says_its_share(capsys):
    fit(io.StringIO(), 80, steps=7)
    assert "Epoch 2/2 (40% of it)  loss" in capsys.readouterr().out


def test_a_forecast_follows_from_the_pace_of_the_steps_and_not_from_the_first_scoring(
    monkeypatch, capsys
):
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    decay = BudgetedDecay(0.1, minutes=10.0)
    decay.seconds, decay.epochs = lambda: clock.now, lambda: 0.5
    decay.minutes_left = lambda: 9.0
    shows = progress.Progress(decay, documented_steps=1000)
    shows.set_params({"verbose": 1, "epochs": 60, "steps": 50})
    shows.on_train_begin()
    for steps, seconds_of_scoring in ((13, 33.0), (14, 0.0)):
        shows.on_epoch_begin(0)
        for step in range(steps):
            clock.now += 1.0
            shows.on_train_batch_end(step)
        clock.now += seconds_of_scoring
    # Half an epoch is trained, and a step takes a second. 540 seconds are left, a tenth of them for
    # scoring.
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"About {0.5 + 540 * 0.9 / 50:.1f} epochs fit into 10 minutes on this machine.",
        "The documented result took 20 epochs, for which --minutes 20 would do here.",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_whatever_is_printed_is_broken_between_words(width, monkeypatch):
    output = Terminal()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv("COLUMNS", str(width))
    with progress.lines_that_fit():
        print(f"  {SENTENCE}")
        print("機械翻訳は文を別の言語に変える。" * 6)
        print("x" * 250)
        print("partly", end="", flush=True)
    lines = output.getvalue().splitlines()
    assert all(rich.cells.cell_len(line) <= width for line in lines)
    assert " ".join("".join(f"{line}\n" for line in lines[:2]).split()).startswith("A sentence of")
    assert lines[-1] == "partly" and "".join(lines).count("x") == 250


def test_text_is_cut_to_one_line_and_commands_are_broken_as_a_shell_reads_them(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    cut = progress.one_line(f"{SENTENCE}\n{SENTENCE}", "  source: ")
    assert cut.startswith("  source: A sentence") and cut.endswith("…") and len(cut) <= 60
    command = (
        f"python -m recipes.vit --dataset {shlex.quote(SENTENCE)} --seed 2 --output runs/other"
    )
    lines = progress.shell_command(command)
    assert shlex.split(lines.replace("\\\n", "")) == shlex.split(command)
    assert lines.splitlines()[0] == "python -m recipes.vit --dataset \\"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("recipe", ["vit", "translation", "language_model", "text_classification"])
def test_a_recipe_on_a_terminal_has_no_line_that_is_wrapped(recipe, width):
    import fcntl
    import pty
    import struct
    import termios

    import pyte

    folder = tempfile.mkdtemp()  # whose name is short enough for a line
    process, terminal = pty.fork()
    if not process:
        os.environ.pop("COLUMNS", None)
        os.environ["TERM"] = "xterm-256color"
        program = [sys.executable, "-m", f"recipes.{recipe}", "--smoke", "--epochs", "2"]
        os.execv(sys.executable, [*program, "--output", f"{folder}/run"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    raw = b""
    while piece := _read(terminal):
        raw += piece
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    pieces = re.split(r"[\r\n]+", CONTROL.sub("", raw.decode()))
    assert not [piece for piece in pieces if rich.cells.cell_len(piece) > width]
    screen = pyte.HistoryScreen(width, 40, history=10_000)
    pyte.ByteStream(screen).feed(raw)
    kept = ["".join(row[x].data for x in range(width)) for row in screen.history.top]
    shutil.rmtree(folder)
    epochs = [line.split()[1] for line in [*kept, *screen.display] if line.startswith("Epoch")]
    assert epochs == ["1/2", "2/2"]


def _read(terminal):
    try:
        return os.read(terminal, 65_536)
    except OSError:  # its end, on Linux
        return b""
