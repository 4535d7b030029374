"""An end of a training run after some steps, for tests of what a resumed run does."""

import keras


class Killed(Exception):
    """What ends a run in these tests, as SIGKILL would."""


class Kill(keras.callbacks.Callback):
    """Ends a run after so many steps."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Killed

    def get_state(self):
        return {}

    def set_state(self, state):
        pass  # or the run that goes on would be killed at once
