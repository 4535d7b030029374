"""What the next layer sees of a tensor: its implicit Keras mask."""

import keras

from tests.contract import to_numpy


class _Seen(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, x, mask=None):
        self.mask = None if mask is None else to_numpy(mask)
        return x


def mask_of(output):
    """The mask as an array, None where there is none."""
    seen = _Seen()
    seen(output)
    return seen.mask
