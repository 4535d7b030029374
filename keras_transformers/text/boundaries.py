"""The few lengths that sequences are padded to, by a rule."""

import math
from collections.abc import Sequence

import numpy as np

from keras_transformers.annotations import Values

MULTIPLE = 8  # of a length, for the sake of the accelerators


def boundaries_for(lengths: Values, batch_size: int) -> tuple[tuple[int, ...], int]:
    """Lengths to pad to, and positions in a batch, for `bucketed` and `bucketed_texts`.

    Half of the sequences fit into the first length, nine of ten into the second, all into the last,
    each rounded up to a multiple of 8. A batch has room for `batch_size` sequences of mean length.

    Args:
        lengths: Integers `(n,)`.
        batch_size: Sequences in a batch, on average.

    Returns:
        Increasing lengths, and tokens in a batch.

    Example:
    >>> from keras_transformers.text.boundaries import boundaries_for
    >>> boundaries_for([5, 6, 7, 7, 30], batch_size=4)
    ((8, 32), 44)
    """
    lengths = np.sort(np.asarray(lengths))
    quantiles = (lengths[math.ceil(share * len(lengths)) - 1] for share in (0.5, 0.9, 1.0))
    found = sorted({MULTIPLE * math.ceil(int(each) / MULTIPLE) for each in quantiles})
    tokens = max(batch_size * math.ceil(float(np.mean(lengths))), found[-1])
    return tuple(found), tokens


def within(boundaries: Sequence[int], most: int) -> tuple[int, ...]:
    """Boundaries of which none exceeds the positions of a model.

    Example:
    >>> from keras_transformers.text.boundaries import within
    >>> within((8, 24, 40), 36)
    (8, 24, 36)
    """
    return tuple(sorted({min(each, most) for each in boundaries}))
