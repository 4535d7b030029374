"""NaN or infinity in a random number at a random step: the last finite state must stay."""

import random

import keras
import numpy as np

from keras_transformers.training.checkpoints import Checkpoints
from tests.faults import kills
from tests.faults.runs import Run, checkpoints
from tests.training import test_resume as small


class Poison(keras.callbacks.Callback):
    """Makes one number of a model or its optimizer not finite after a step."""

    def __init__(self, step, rng):
        super().__init__()
        self._left, self._rng = step, rng

    def on_train_batch_end(self, batch, logs=None):
        self._left -= 1
        if self._left == 0:
            held = [*self.model.trainable_variables, *self.model.optimizer.variables]
            held = [v for v in held if keras.backend.is_float_dtype(v.dtype) and v.shape]
            variable = self._rng.choice(held)
            value = keras.ops.convert_to_numpy(variable).copy()
            value[tuple(map(self._rng.randrange, value.shape))] = self._rng.choice(
                [np.nan, np.inf, -np.inf]
            )
            variable.assign(value)

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


def is_survived(folder, expected, rng):
    """Whether a poisoned run ends with a sentence, and goes on from before to the right weights."""
    try:
        # From where there is a checkpoint up to the last one but for the end's.
        small.fit(folder, extra=[Poison(rng.randrange(4, 17), rng)])
    except FloatingPointError as error:
        said = str(error)
    else:
        return False
    _, arrays = Checkpoints(folder).newest()
    finite = all(np.isfinite(a).all() for name, a in arrays.items() if not name.startswith("call"))
    healed, _ = small.fit(folder, extra=[Poison(-1, rng)])
    same = zip(small.state(healed), expected, strict=True)
    same = all(np.array_equal(one, other) for one, other in same)
    return finite and "hold NaN or infinity" in said and same


def run(folder, data, tries, seed):
    """Title -> tries and those in which a finite state was kept, and the run could go on."""
    rng = random.Random(seed)
    model, _ = small.fit(folder / "whole", extra=[Poison(-1, rng)])
    expected = small.state(model)
    survived = [is_survived(folder / str(i), expected, rng) for i in range(tries)]
    recipe, of, arguments, _ = kills.KINDS["vit"]
    arguments = [*arguments, *data[of], "--learning-rate", "1e30", "--checkpoint-steps", "1"]
    diverging = Run(recipe, folder / "diverging", *arguments)
    status, sentence = diverging.end(), diverging.said.strip().splitlines()[-1]
    print(f"learning rate 1e30: {status}, {sentence}", flush=True)
    right = status == 1 and "Lower the learning rate" in sentence
    right &= bool(checkpoints(folder / "diverging"))
    return {
        "NaN or infinity in weights or optimizer": (tries, sum(survived)),
        "a learning rate of 1e30": (1, int(right)),
    }
