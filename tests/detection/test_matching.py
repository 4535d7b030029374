"""Claims about the cheapest matching."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.optimize import linear_sum_assignment

from keras_transformers.detection import match
from tests.contract import ON_JAX, to_numpy

# Cases, rows, columns: 10,000 cases in all.
SHAPES = {
    "few rows": (5000, 3, 7),
    "one row": (1000, 1, 5),
    "as many columns": (2000, 5, 5),
    "many": (1900, 7, 11),
    "a crowded image": (100, 29, 53),
}
COSTS = {
    "any": lambda rng, shape: rng.normal(size=shape),
    "ties": lambda rng, shape: rng.integers(0, 4, shape),
    "far apart": lambda rng, shape: rng.choice([1e-3, 1.0, 30.0], shape) * rng.random(shape),
}


def compiled(cost, valid):
    """`match` by XLA, for a batch of a size that is not known before."""
    if ON_JAX:
        import jax

        return to_numpy(jax.jit(match)(cost, valid))
    import tensorflow as tf

    signature = [tf.TensorSpec((None, *x.shape[1:]), x.dtype) for x in (cost, valid)]
    return to_numpy(tf.function(match, input_signature=signature, jit_compile=True)(cost, valid))


def check(cost, valid, found):
    """Distinct columns for the valid rows alone, as cheap as SciPy's."""
    assert found.shape == valid.shape and found.dtype == "int32"
    np.testing.assert_array_equal(found >= 0, valid)
    for costs, rows, columns in zip(np.float64(cost), valid, found, strict=True):
        costs, columns = costs[rows], columns[rows]
        assert len(set(columns)) == len(columns) and (columns < costs.shape[1]).all()
        best = costs[linear_sum_assignment(costs)].sum()
        assert costs[np.arange(len(costs)), columns].sum() <= best + 1e-4


@pytest.mark.parametrize("name", SHAPES)
def test_the_matching_is_as_cheap_as_scipys(name):
    cases, rows, columns = SHAPES[name]
    rng = np.random.default_rng(cases)
    parts = np.array_split(np.arange(cases), len(COSTS))
    cost = np.concatenate(
        [
            make(rng, (len(part), rows, columns))
            for make, part in zip(COSTS.values(), parts, strict=True)
        ]
    ).astype("float32")
    valid = rng.random((cases, rows)) < 0.8
    valid[::2] = True
    valid[1] = False
    check(cost, valid, compiled(cost, valid))


def test_without_padding_every_row_has_a_column():
    cost = np.random.default_rng(3).normal(size=(13, 3, 7)).astype("float32")
    check(cost, np.ones((13, 3), bool), to_numpy(match(cost)))


@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_the_dtype_of_the_costs_does_not_matter(precision):
    cost = np.random.default_rng(3).integers(0, 9, (13, 3, 7))
    check(cost, np.ones((13, 3), bool), to_numpy(match(ops.cast(cost, precision))))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_costs_that_are_no_numbers_are_avoided_and_the_search_ends(value):
    rng = np.random.default_rng(5)
    cost = rng.integers(0, 9, (101, 5, 7)).astype("float32")
    broken = rng.random(cost.shape) < 0.2
    broken[0] = True
    cost[broken] = value
    found = compiled(cost, np.ones((101, 5), bool))
    assert all(len(set(columns)) == 5 for columns in found) and found.min() >= 0
    avoidable = 0
    for costs, wrong, columns in zip(cost, broken, found, strict=True):
        rows, best = linear_sum_assignment(wrong)
        if not wrong[rows, best].any():
            avoidable += 1
            assert np.isfinite(costs[rows, columns]).all()
    assert avoidable > 50


def test_a_matching_of_nothing_is_nothing():
    assert to_numpy(match(np.zeros((3, 0, 7), "float32"))).shape == (3, 0)


def test_fewer_columns_than_rows_are_refused():
    with pytest.raises(ValueError, match=r"at least as many columns.*\(2, 5, 3\)"):
        match(keras.ops.zeros((2, 5, 3)))
