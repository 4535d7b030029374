"""What the code of nearly every page of README and docs imports, for `tests/test_pages.py`."""

import tensorflow as tf  # noqa: F401
import tensorflow_text  # noqa: F401

import keras_transformers.export
import keras_transformers.fitting
import keras_transformers.predictors
import keras_transformers.pretrained  # noqa: F401
from tests import conftest  # noqa: F401
