"""Data whose order follows from a seed and the number of an epoch alone, so that it can be resumed.

A pipeline that counts its epochs itself can only be read from the beginning. A pipeline made of
`orders` and `keys` with an `epoch` gives the same batches whenever that epoch is asked for, in any
process. `epochs` joins such pipelines into what `fit` reads, from any position on.
"""

from keras_transformers.data.streams import (
    Draws,
    each_row_twice,
    epochs,
    first_or_second,
    keys,
    of_epoch,
    orders,
    without_autotuning,
)

__all__ = [
    "Draws",
    "each_row_twice",
    "epochs",
    "first_or_second",
    "keys",
    "of_epoch",
    "orders",
    "without_autotuning",
]
