"""Claims about counted operations."""

import keras
import numpy as np
import pytest

from keras_transformers.layers import FourierMixing, LSTMMixing, SelfAttention
from recipes.lib.flops import floating_point_operations

BATCH, LENGTH, WIDTH = 2, 32, 24


def counted(layer, *shape):
    x = np.zeros(shape, "float32")
    layer(x)
    return floating_point_operations(layer, x)


def test_a_product_counts_two_for_each_multiplication():
    dense = keras.layers.Dense(7, use_bias=False)
    assert counted(dense, BATCH, LENGTH, WIDTH) == 2 * BATCH * LENGTH * WIDTH * 7
    with_bias = counted(keras.layers.Dense(7), BATCH, LENGTH, WIDTH)
    assert with_bias == BATCH * LENGTH * 7 * (2 * WIDTH + 1)


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_convolution_counts_its_kernel_for_each_position(padding):
    layer = keras.layers.Conv2D(5, 3, padding=padding, use_bias=False)
    side = 8 if padding == "same" else 6
    assert counted(layer, BATCH, 8, 8, 4) == 2 * BATCH * side**2 * 9 * 4 * 5


def test_a_fourier_transform_counts_five_n_log_n():
    expected = BATCH * 5 * LENGTH * WIDTH * np.log2(LENGTH * WIDTH)
    assert counted(FourierMixing(), BATCH, LENGTH, WIDTH) == pytest.approx(expected, rel=1e-3)


def test_a_loop_counts_its_body_as_often_as_it_runs():
    one, many = (counted(LSTMMixing(causal=True), BATCH, length, WIDTH) for length in (16, LENGTH))
    assert many == pytest.approx(2 * one, rel=0.05)  # the weights are touched once


def test_attention_counts_what_the_formula_says():
    products = BATCH * (8 * LENGTH * WIDTH**2 + 4 * LENGTH**2 * WIDTH)
    found = counted(SelfAttention(4), BATCH, LENGTH, WIDTH)
    assert products < found < 1.2 * products  # biases and softmax beside them
