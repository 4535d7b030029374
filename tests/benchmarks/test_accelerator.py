"""Claims about the accelerator's benchmark, and about what a training step asks of one."""

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import time

import pytest

from benchmarks.accelerator import cases

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs jax")

WITHOUT_TENSORFLOW = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refused())
"""
LOWER = """
import json
import jax, keras, numpy as np
from benchmarks.accelerator import cases, ours
from keras_transformers import layers

programs = {name: ours.lowered_step(case) for name, case in cases.SMOKE.items()}
for term in (layers.RelativePositionBias(), layers.GridRelativeBias((4, 4))):
    layer, x = layers.SelfAttention(2, position=term), np.ones((2, 16, 8), "float32")
    layer.build(x.shape)
    weights = [variable.value for variable in layer.trainable_variables]
    sums = lambda weights: layer.stateless_call(weights, [], x)[0].astype("float32").sum()
    programs[type(term).__name__] = jax.jit(jax.grad(sums)).lower(weights).as_text()
print(json.dumps(programs))
"""
DOT = re.compile(
    r"dot_general .*contracting_dims = \[([\d, ]*)\] x.*"
    r": \(tensor<(\S+)>, tensor<(\S+)>\) -> tensor<(\S+)>"
)


def on_jax(*arguments):
    """Standard output of a process on the JAX backend that cannot import TensorFlow."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.mark.slow
def test_the_smoke_test_checks_and_trains_without_a_device():
    said = on_jax("-m", "benchmarks.accelerator", "--smoke", "--only", "ViT")
    assert "| ViT-B/16: keras_transformers |" in said
    assert "0 problems" in said


@pytest.mark.slow
def test_the_whole_smoke_test():
    assert "0 problems" in on_jax("-m", "benchmarks.accelerator", "--smoke")


def test_no_part_outlasts_the_minutes():
    started = time.perf_counter()
    said = on_jax("-m", "benchmarks.accelerator", "--smoke", "--minutes", "0.1")
    assert "minutes were over" in said
    assert time.perf_counter() - started < 30


@pytest.fixture(scope="module")
def programs():
    """Each case's training step in mixed_bfloat16, as JAX hands it to XLA."""
    return json.loads(on_jax("-c", WITHOUT_TENSORFLOW + LOWER).splitlines()[-1])


@pytest.fixture(scope="module")
def products(programs):
    """Operations and dtypes of every product of each program, none of which is a convolution."""
    assert not any("stablehlo.convolution" in program for program in programs.values())
    return {
        name: [product_of(line) for line in programs[name].splitlines() if "dot_general" in line]
        for name in cases.SMOKE
    }


def product_of(line):
    """Operations of one product, and the dtypes of what it multiplies."""
    contracted, left, right, output = DOT.search(line).groups()
    left, right, output = (each.split("x") for each in (left, right, output))
    summed = math.prod(int(left[int(axis)]) for axis in contracted.split(","))
    return 2 * summed * math.prod(map(int, output[:-1])), left[-1], right[-1]


@pytest.mark.parametrize("name", cases.SMOKE)
@pytest.mark.slow
def test_every_product_of_a_training_step_is_of_bfloat16(name, products):
    """Under mixed_bfloat16; a single operand of float32 would leave a GPU's fast units idle."""
    assert len(products[name]) > 10
    assert all(dtypes == ["bf16", "bf16"] for _, *dtypes in products[name])


@pytest.mark.parametrize("name", cases.SMOKE)
def test_operations_counted_from_shapes_are_those_of_the_step(name, products):
    """Without a fused kernel, which leaves out what a causal mask hides."""
    counted = sum(operations for operations, *_ in products[name])
    assert counted == round(cases.training_operations(cases.SMOKE[name], whole_squares=True))


@pytest.mark.parametrize("name", [*cases.SMOKE, "RelativePositionBias", "GridRelativeBias"])
def test_gradients_of_tables_are_added_up_in_float32(name, programs):
    """Of tokens, positions and distances: a row may have thousands of terms."""
    scatters = re.findall(
        r'"stablehlo.scatter".*?\}\) : \(tensor<(\S+)>', programs[name], re.DOTALL
    )
    assert bool(scatters) == (name != "ViT-B/16")
    assert all(shape.endswith("f32") for shape in scatters)


def test_operations_of_vit_are_those_published():
    """17.5 billion multiply-adds an image: Liu et al. 2021, table 1."""
    case = cases.CASES["ViT-B/16"]
    forward = cases.training_operations(case) / 3 / 2 / case.rows
    assert round(forward / 1e9, 1) == 17.5
