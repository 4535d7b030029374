"""LAMB, for large batches."""

import keras

from keras_transformers.training.optimizers import ByStep


@keras.saving.register_keras_serializable("keras_transformers")
class Lamb(ByStep, keras.optimizers.Lamb):
    """`keras.optimizers.Lamb` with gradients of tables in full, and rates that differ by depth.

    You et al. 2020, https://arxiv.org/abs/1904.00962. For the arguments see Keras's, and for
    `depths` and `layer_decay` our `AdamW`.

    Example:
    >>> import keras
    >>> from keras_transformers.training import Lamb
    >>> Lamb(1e-3, depths=[0, 1, 2], layer_decay=0.5).rates_of_depths()
    [0.25, 0.5, 1.0]
    """
