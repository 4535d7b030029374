"""Claims about training in mixed precision: it goes where float32 does, with every model."""

import numpy as np
import pytest

from tests.every_model import MODELS, trained

# Numbers are rounded to 11 and 8 bits, which three layers of sums and norms of few channels widen;
# DETR may match another query.
BOUNDS = {"mixed_float16": (5e-3, 1e-3), "mixed_bfloat16": (1e-2, 1e-3)}


@pytest.mark.slow
@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("name", MODELS)
def test_three_steps_are_near_those_of_float32(name, precision):
    """The loss, and the weights, which three steps move by some 3e-3."""
    of_loss, of_weights = BOUNDS[precision]
    weights, loss = trained(name, rate=0.0, step=1e-3)
    near, near_loss = trained(name, precision=precision, rate=0.0, step=1e-3)
    assert near_loss == pytest.approx(loss, rel=of_loss)
    squares = [np.mean((a - b) ** 2) for a, b in zip(weights, near, strict=True)]
    assert np.sqrt(np.mean(squares)) < of_weights
