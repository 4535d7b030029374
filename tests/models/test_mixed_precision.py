"""Claims about training in mixed precision: it goes where float32 does, with every model."""

import numpy as np
import pytest

from tests.every_model import MODELS, trained

# Numbers are rounded to 11 and 8 bits; three layers of sums and three steps of Adam widen that.
BOUNDS = {"mixed_float16": 5e-3, "mixed_bfloat16": 3e-2}
QUICK = ("vit", "mixed_float16")
PAIRS = [
    pytest.param(name, precision, marks=() if (name, precision) == QUICK else pytest.mark.slow)
    for name in MODELS
    for precision in BOUNDS
]


@pytest.mark.parametrize(("name", "precision"), PAIRS)
def test_three_steps_are_near_those_of_float32(name, precision):
    """The loss, and the weights, of which no step moves one by more than about 0.01."""
    weights, loss = trained(name, rate=0.0)
    near, near_loss = trained(name, precision=precision, rate=0.0)
    assert near_loss == pytest.approx(loss, rel=BOUNDS[precision])
    squares = [np.mean((a - b) ** 2) for a, b in zip(weights, near, strict=True)]
    assert np.sqrt(np.mean(squares)) < BOUNDS[precision] / 3
