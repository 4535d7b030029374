"""What a run says of its time: at its start, while it trains, and when it has trained."""

import datetime
import math
import time

import keras
import rich.console
import rich.live
import rich.text

HIDDEN = ("epochs", "seconds", "val_rank")  # of an epoch's logs
PAUSE = 0.2  # seconds from one drawing of the line to the next
SHORTEST_BAR, LONGEST_BAR = 10, 30  # characters
OBSERVED = 60  # seconds of training after which a forecast is made
SCORING = 0.1  # share of the time that scoring takes, where nothing was scored yet


def announce(config):
    """Says at once what will happen, for the first result is minutes away."""
    of = config.training
    minutes, epochs = getattr(of, "minutes", None), getattr(of, "epochs", None)
    limits = [f"{minutes:g} minutes"] if minutes else []
    limits += [f"{epochs} epochs"] if epochs else []  # several networks have theirs
    at_most = f" for {' or '.join(limits)} at most" if limits else ""
    print(
        f"{config.run.output}: reads the data, trains{at_most}, then scores, exports and draws.",
        flush=True,
    )


class Progress(keras.callbacks.ProgbarLogger):
    """Shows how training goes, in lines that are no longer than the terminal.

    One line is drawn anew while an epoch runs. One stays when the epoch has ended. Where the output
    is no terminal, only lines that stay are printed. Keras draws no bar beside this callback.

    Args:
        budget: The `BudgetedDecay`.
        documented_epochs: Epochs of the result that the documentation states, if the run has its
            data and model.
        console: Where to print, a `rich.console.Console`; by default standard output.
    """

    def __init__(self, budget, documented_epochs=None, console=None):
        super().__init__()
        self._budget, self._documented = budget, documented_epochs
        self._console = console or rich.console.Console(highlight=False, soft_wrap=True)
        self._live = None
        self._position = self._values = ""

    def on_train_begin(self, logs=None):
        self._began, self._drawn, self._forecast = time.monotonic(), 0.0, False
        self._batches = 0  # of this process
        self._say("Compiling the first step, which takes 10 to 60 s ...")

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch, self._epoch_began = epoch, time.monotonic()
        self._values = self._position = ""
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
        self._batches += 1
        if self._batches == 1:
            self._after_first_step()
        now = time.monotonic()
        if now - self._drawn >= PAUSE or batch + 1 == self.params["steps"]:
            self._drawn, self._position = now, (batch + 1, self.params["steps"])
            if self._live is not None:  # numbers on an accelerator are waited for
                self._values = shown_values(logs)
                self._live.refresh()
        if not self._forecast and self._budget.seconds() >= OBSERVED:
            self._forecast = True
            self._say_forecast()

    def on_test_begin(self, logs=None):
        self._redraw("validating ...")

    def on_test_batch_begin(self, batch, logs=None):
        pass

    def on_test_batch_end(self, batch, logs=None):
        pass

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
        width = self._console.width if self._console.is_terminal else 100
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
        """Says how many epochs fit into the minutes, as far as one can tell by now."""
        minutes = self._budget.minutes
        if minutes is None:
            return
        epochs = self._budget.epochs() * minutes * 60 / self._budget.seconds()
        if self._budget.epochs() < 1:
            epochs *= 1 - SCORING
        epochs = min(epochs, self.params["epochs"])
        self._say(f"About {epochs:.1f} epochs fit into {minutes:g} minutes on this machine.")
        if self._documented and epochs < 0.8 * self._documented:
            needed = math.ceil(minutes * self._documented / epochs / 5) * 5
            self._say(
                f"The documented result took {self._documented:g} epochs, for which --minutes "
                f"{needed} would do here."
            )

    def _line(self):
        """The line of the epoch that runs."""
        done, steps = self._position or (0, self.params["steps"])
        number = f"Epoch {self._epoch + 1}/{self.params['epochs']}"
        count, left = f"{done}/{steps or '?'}", self._budget.minutes_left()
        values = [self._values] if isinstance(self._values, str) else list(self._values)
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
        self._values = doing
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


def shown_values(logs):
    """The numbers of an epoch as words, without those that were not taken."""
    return [
        f"{name} {float(value):.4g}"
        for name, value in (logs or {}).items()
        if name not in HIDDEN and float(value) != -math.inf
    ]


def time_of(minutes):
    """A time in words: "40 s", "4 min", "1.5 h"."""
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
