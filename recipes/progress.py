"""What a run says of its time: at its start, while it trains, and when it has trained."""

import datetime
import math
import time

import keras


def announce(config):
    """Says at once what will happen, for the first result is minutes away."""
    of = config.training
    minutes, epochs = getattr(of, "minutes", None), getattr(of, "epochs", None)
    limits = [f"{minutes:g} minutes"] if minutes else []
    limits += [f"{epochs} epochs"] if epochs else []  # several networks have theirs
    at_most = f" for {' or '.join(limits)} at most," if limits else ""
    print(
        f"{config.run.output}: reads the data; trains,{at_most} where the first step compiles; "
        "then scores, exports and draws.",
        flush=True,
    )


class Progress(keras.callbacks.ProgbarLogger):
    """Keras's bar without scores that were not taken, and with the minutes that are left.

    Args:
        budget: The `BudgetedDecay`.
    """

    def __init__(self, budget):
        super().__init__()
        self._budget = budget

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._started = time.monotonic()
        if self._budget.minutes and self.verbose:
            until = datetime.datetime.now() + datetime.timedelta(
                minutes=self._budget.minutes_left()
            )
            print(f"Trains until {until:%H:%M:%S} at the latest.", flush=True)

    def on_train_batch_end(self, batch, logs=None):
        super().on_train_batch_end(batch, self._shown(logs))

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, self._shown(logs))

    def on_train_end(self, logs=None):
        if self.verbose:
            minutes = (time.monotonic() - self._started) / 60
            print(f"Trained for {minutes:.1f} minutes; scores, exports and figures come next.")

    def _shown(self, logs):
        shown = {name: x for name, x in (logs or {}).items() if float(x) != -math.inf}  # not taken
        shown.pop("seconds", None)
        return shown | {"minutes_left": self._budget.minutes_left()}
