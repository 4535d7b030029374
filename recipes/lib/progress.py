"""The output of a run: lines that fit the terminal, and the progress of training."""

import contextlib
import datetime
import math
import shlex
import shutil
import sys
import textwrap
import time

import keras
import rich.cells
import rich.console
import rich.live
import rich.text

HIDDEN = ("epochs", "seconds", "val_rank")  # of an epoch's logs
PAUSE = 0.2  # seconds from one drawing of the line to the next
SHORTEST_BAR, LONGEST_BAR = 10, 30  # characters
LONGEST_LINE = 120  # characters of a text that is cut, where there is no terminal
OBSERVED = 60  # seconds of training after which a forecast is made
SCORING = 0.1  # share of the time that validation and scoring take


@contextlib.contextmanager
def lines_that_fit():
    """A scope that breaks printed lines longer than the terminal, if there is a terminal."""
    output = sys.stdout
    if output.isatty():
        sys.stdout = _Fitted(output)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = output


class _Fitted:
    """An output that breaks long lines between words.

    Args:
        output: Where they go.
    """

    def __init__(self, output):
        self._output, self._rest = output, ""

    def write(self, text):
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._output.write(broken(line, columns()) + "\n")
        return len(text)

    def flush(self):
        self._output.write(self._rest)
        self._rest = ""
        self._output.flush()

    def __getattr__(self, name):
        return getattr(self._output, name)


def columns():
    """Returns the width of the terminal in characters; a very large number without a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 1 << 20


def broken(line, width):
    """Breaks a line into lines of at most `width`; a line that controls the terminal stays."""
    if len(line) <= width and rich.cells.cell_len(line) <= width or "\x1b" in line or "\r" in line:
        return line
    if rich.cells.cell_len(line) > len(line):  # characters as wide as two
        parts = rich.text.Text(line).wrap(rich.console.Console(width=width), width)
        return "\n".join(part.plain.rstrip() for part in parts)
    indent = line[: len(line) - len(line.lstrip())] + "  "
    parts = textwrap.wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
    )
    return "\n".join(parts)


def one_line(text, before=""):
    """Returns a text behind another one in one line, cut to the terminal."""
    text = " ".join(text.split())
    room = min(columns(), LONGEST_LINE) - rich.cells.cell_len(before)
    if rich.cells.cell_len(text) > room:
        text = rich.cells.set_cell_size(text, max(room - 1, 0)).rstrip() + "…"
    return before + text


def shell_command(command):
    """Breaks a command into lines that fit the terminal, and that a shell reads as one."""
    lines, width = [""], columns()
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(f"{lines[-1]} {word}") > width - 4:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def announce(config):
    """Prints the steps of the run at once, because the first result is minutes away."""
    training = config.training
    minutes, epochs = getattr(training, "minutes", None), getattr(training, "epochs", None)
    limits = [f"{minutes:g} minutes"] if minutes else []
    limits += [f"{epochs} epochs"] if epochs else []  # several networks have theirs
    at_most = f" for {' or '.join(limits)} at most" if limits else ""
    print(
        f"{config.run.output}: reads the data, trains{at_most}, then scores, exports and draws.",
        flush=True,
    )


class Progress(keras.callbacks.ProgbarLogger):
    """Shows the progress of training.

    One line is drawn anew while an epoch runs. One stays when the epoch has ended. Where the output
    is no terminal, only lines that stay are printed. Keras draws no bar beside this callback.

    Args:
        budget: The `BudgetedDecay`.
        documented_steps: Batches of the result that the documentation states, if the run has its
            data and model.
        console: Where to print, a `rich.console.Console`; by default standard output.
    """

    def __init__(self, budget, documented_steps=None, console=None):
        super().__init__()
        self._budget, self._documented = budget, documented_steps
        self._console = console or rich.console.Console(highlight=False)
        self._live = None
        self._done, self._values = 0, []  # steps of the epoch, and what is shown beside them

    def set_params(self, params):
        keras.callbacks.Callback.set_params(self, params)
        self.verbose = 1 if params["verbose"] == "auto" else params["verbose"]

    def on_train_begin(self, logs=None):
        self._began, self._drawn, self._forecast = time.monotonic(), 0.0, False
        self._batches = 0  # of this process
        # Of this process, without the first execution, which compiles:
        self._timed_steps, self._seconds_of_steps = 0, 0.0
        self._say("Compiling the first step, which takes 10 to 60 s ...")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._epoch_began = epoch, time.monotonic()
        self._ended_steps, self._last_step_ended = 0, self._epoch_began
        self._done, self._values = 0, []
        if self.verbose == 1 and self._console.is_terminal and not self._console.is_jupyter:
            self._live = rich.live.Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                get_renderable=self._line,
                vertical_overflow="crop",
            )
            self._live.start()

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        self._batches += 1
        if self._batches == 1:
            self._after_first_step()
        else:
            self._timed_steps += batch + 1 - self._ended_steps
            self._seconds_of_steps += now - self._last_step_ended
        self._ended_steps, self._last_step_ended = batch + 1, now
        if now - self._drawn >= PAUSE or batch + 1 == self.params["steps"]:
            self._drawn, self._done = now, batch + 1
            if self._live is not None:  # numbers on an accelerator are waited for
                self._values = shown_values(logs)
                self._live.refresh()
        if not self._forecast and self._budget.seconds() >= OBSERVED:
            self._forecast = True
            self._say_forecast()

    def on_test_begin(self, logs=None):
        self._redraw("validating ...")

    def on_test_batch_end(self, batch, logs=None):
        """Does nothing; Keras's callback would draw its bar."""

    def on_test_end(self, logs=None):
        self._redraw("scoring ...")

    def on_epoch_end(self, epoch, logs=None):
        self._stop_line()
        seconds = time.monotonic() - self._epoch_began
        total, epochs = self.params["epochs"], (logs or {}).get("epochs")
        number = f"Epoch {epoch + 1}/{total}"
        if epochs is not None and epochs != epoch + 1:
            number += f" ({epochs - epoch:.0%} of it)"
        words = [number, *shown_values(logs), time_of(seconds / 60)]
        left = self._budget.minutes_left()
        if left > 0 and not self.model.stop_training:
            words.append(f"{time_of(left)} left")
        width = self._console.width if self._console.is_terminal else 1000
        while len("  ".join(words)) > width and len(words) > 3:
            del words[-3 if words[-1].endswith("left") else -2]
        self._say("  ".join(words)[:width])

    def on_train_end(self, logs=None):
        self._stop_line()
        minutes = (time.monotonic() - self._began) / 60
        self._say(f"Trained for {time_of(minutes)}. Scores, exports and figures come next.")

    def _after_first_step(self):
        seconds = time.monotonic() - self._began
        until = ""
        if self._budget.minutes:
            left = datetime.timedelta(minutes=self._budget.minutes_left())
            until = f" Training ends at {datetime.datetime.now() + left:%H:%M} at the latest."
        self._say(f"The first step took {seconds:.0f} s.{until}")

    def _say_forecast(self):
        """Prints the number of epochs that fit into the minutes, from the pace until now."""
        minutes = self._budget.minutes
        if minutes is None or not self._timed_steps:
            return
        seconds_of_a_step = self._seconds_of_steps / self._timed_steps
        seconds_left = (60 * minutes - self._budget.seconds()) * (1 - SCORING)
        epochs_left = seconds_left / seconds_of_a_step / self.params["steps"]
        epochs = min(self._budget.epochs() + epochs_left, self.params["epochs"])
        self._say(f"About {epochs:.1f} epochs fit into {minutes:g} minutes on this machine.")
        documented = (self._documented or 0) / self.params["steps"]
        if epochs < 0.8 * documented:
            self._say(
                f"The documented result took {documented:.0f} epochs, for which --minutes "
                f"{minutes_for(documented, minutes, epochs)} would do here."
            )

    def _line(self):
        """Returns the line of the current epoch."""
        done, steps = self._done, self.params["steps"]
        number = f"Epoch {self._epoch + 1}/{self.params['epochs']}"
        count, left = f"{done}/{steps or '?'}", self._budget.minutes_left()
        values = list(self._values)
        ends = [f"{time_of(left)} left"] if left > 0 else []
        width = self._console.width - 1  # the cursor stands behind it
        while values and _length(number, count, *values, *ends) + SHORTEST_BAR + 2 > width:
            del values[-1]
        room = width - _length(number, count, *values, *ends) - 2
        size = max(min(room, LONGEST_BAR), 0)
        filled = round(size * done / steps) if steps else 0
        bar = "━" * filled + "─" * (size - filled)
        line = "  ".join(filter(None, [number, bar, count, *values, *ends]))
        return rich.text.Text(line[:width], no_wrap=True, overflow="crop")

    def _redraw(self, doing):
        self._values = [doing]
        if self._live is not None:
            self._live.refresh()

    def _stop_line(self):
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text):
        if self.verbose:
            print(text, flush=True)


def _length(*words):
    return len("  ".join(filter(None, words)))


def minutes_for(wanted, minutes, reached):
    """Returns the minutes for the wanted number of steps or epochs, rounded up to 5 minutes.

    Args:
        wanted: The wanted number.
        minutes, reached: A measurement: the number that was reached in some minutes.
    """
    return math.ceil(minutes * wanted / reached / 5) * 5


def shown_values(logs):
    """Returns the numbers of an epoch as words, losses first, without missing ones."""
    logs = logs or {}
    names = sorted(logs, key=lambda name: name.removeprefix("val_") != "loss")
    return [
        f"{name} {float(logs[name]):.4g}"
        for name in names
        if name not in HIDDEN and float(logs[name]) != -math.inf
    ]


def time_of(minutes):
    """Returns a time in words: "40 s", "4 min", "1.5 h"."""
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
