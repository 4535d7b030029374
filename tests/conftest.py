"""Settings for all tests."""

import gc
import itertools
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported
# The allocator that TensorFlow has by default on Intel and AMD returns nothing that is freed.
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
# Before JAX is: what runs once need not run fast, and most of the time is compilation.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# The same for XLA in TensorFlow. `XLA_FLAGS=` compiles as users do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:  # what one worker has compiled, all others have
    FOLDER = tempfile.TemporaryDirectory(prefix="jax-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = FOLDER.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import keras
import pytest
from hypothesis import settings

from tests.memory import (
    pytest_runtest_makereport,  # noqa: F401
    pytest_xdist_make_scheduler,  # noqa: F401
    release_graphs,
)
from tests.slow import pytest_collection_modifyitems  # noqa: F401

# A first call compiles, so that its time says nothing; the same examples in every run. JAX compiles
# every operation for every size.
EXAMPLES = 3 if keras.backend.backend() == "jax" else 7
settings.register_profile(
    "keras_transformers", deadline=None, max_examples=EXAMPLES, derandomize=True
)
settings.load_profile("keras_transformers")


if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    # Rewriting a graph that runs once takes longer than running it, a quarter of the time of tests
    # of exports. Sessions and processes of their own, as servers, rewrite as they do by default.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

FILES = itertools.count(1)  # of tests that this process has run


def pytest_collection_finish():
    """What imports made is never looked at for garbage: a walk over it takes a third of a second.

    Keras makes one for every layer that is quantised, and each file of tests ends with one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)  # a graph is some thousand objects: after 700 all of it still lives


@pytest.fixture(autouse=True)
def seeded():
    """Random weights are the same, whichever tests ran before."""
    keras.utils.set_random_seed(1234)


@pytest.fixture
def uncompiled():
    """On TensorFlow, operations run one by one, for searches over few tokens in half of the time.

    That a search gives the same compiled is a claim of tests/generation.
    """
    if keras.backend.backend() == "tensorflow":
        tf.config.run_functions_eagerly(True)
        yield
        tf.config.run_functions_eagerly(False)
    else:
        yield


@pytest.fixture(autouse=True, scope="module")
def collected():
    """What a file's tests leave behind is freed: models and their programs hold each other.

    What is left then stays, and is looked at again after some thirty files.
    """
    yield
    if next(FILES) % 30 == 0:
        gc.unfreeze()
    release_graphs()
    gc.freeze()
