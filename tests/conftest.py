"""Settings for all tests."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported

import keras  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

# A first call compiles, so that its time says nothing; the same examples in every run.
settings.register_profile("keras_transformers", deadline=None, max_examples=10, derandomize=True)
settings.load_profile("keras_transformers")


@pytest.fixture(autouse=True)
def seeded():
    """Random weights are the same, whichever tests ran before."""
    keras.utils.set_random_seed(1234)
