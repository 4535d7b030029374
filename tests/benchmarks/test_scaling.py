"""Claims about what devices send each other, against the formulas of the plan."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from benchmarks import plan

COUNT = """
import json
from benchmarks import scaling
from keras_transformers import distribution

sent = {}
for grid in ("data=8", "data=4,model=2", "data=1,model=8"):
    with distribution.distribute(grid):
        sent[grid] = scaling.sent_bytes(scaling.compiled_step(scaling.SMOKE, 16)[0].as_text())
print(json.dumps(sent))
"""


def test_a_ring_sends_nearly_twice_what_is_summed():
    assert plan.reduced(12, 1) == 0
    assert plan.reduced(12, 2) == 12
    assert plan.reduced(12, 4) == 18


def test_plan_counts_the_parameters_that_are_published():
    millions = {name: round(model.parameters / 1e6) for name, model in plan.MODELS.items()}
    assert millions == {"Transformer base": 63, "Transformer big": 214, "ViT-L/16": 304}


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")
def test_compiled_steps_send_what_the_formula_says():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COUNT],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    width, length = 32, 65
    model = plan.Stack(width, 64, 1, length, other=(3 * 16 + length + 16) * width)
    for grid, sent in json.loads(result.stdout.splitlines()[-1]).items():
        data, split = {"data=8": (8, 1), "data=4,model=2": (4, 2), "data=1,model=8": (1, 8)}[grid]
        formula = plan.gradient_bytes(model, data, split)
        formula += plan.activation_bytes(model, 16, data, split, width=4)
        assert sent.keys() == {"all-reduce"}
        assert abs(sent["all-reduce"] / formula - 1) < 0.06, (grid, sent, formula)  # biases, norms
