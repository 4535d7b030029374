"""Windows over long texts, for measuring a language model with context at every token."""

from collections.abc import Iterable, Sequence

import numpy as np

from keras_transformers.annotations import Array


def sliding_windows(
    documents: Iterable[Sequence[int] | Array], length: int, stride: int, padding_id: int = 0
) -> tuple[Array, Array]:
    """Windows in which every token of every document is predicted once.

    The windows of a document begin `stride` tokens after one another, and each counts only what no
    window before it did: all but a document's first tokens are predicted from at least `length -
    stride` before them (Baevski & Auli 2019, https://arxiv.org/abs/1809.10853, section 4.3).

    Args:
        documents: Iterable of sequences of integer ids, START and END included.
        length: Places of a window.
        stride: Tokens from one window to the next; `length` for windows that do not overlap.
        padding_id: The id that stands for padding.

    Returns:
        Ids and labels, int32 `(windows, length)` each; labels are padding where they do not count.

    Raises:
        ValueError: If `stride` is not between 1 and `length`.

    Example:
    >>> from keras_transformers.text import sliding_windows
    >>> ids, labels = sliding_windows([[1, 5, 6, 7, 8, 2]], length=4, stride=2)
    >>> ids.tolist(), labels.tolist()
    ([[1, 5, 6, 7], [6, 7, 8, 0]], [[5, 6, 7, 8], [0, 0, 2, 0]])
    """
    if not 1 <= stride <= length:
        raise ValueError(
            f"sliding_windows: `stride` must be between 1 and `length`={length}. Received: {stride}"
        )
    rows = []
    for document in documents:
        document = np.asarray(document, "int32")
        ids, labels = document[:-1], document[1:]
        overlap, covered, start = length - stride, 0, 0
        while covered < len(ids):
            window = np.full((2, length), padding_id, "int32")
            end = min(start + length, len(ids))
            window[0, : end - start] = ids[start:end]
            window[1, covered - start : end - start] = labels[covered:end]
            rows.append(window)
            covered, start = end, end - overlap
    windows = np.array(rows, "int32").reshape(-1, 2, length)
    return windows[:, 0], windows[:, 1]
