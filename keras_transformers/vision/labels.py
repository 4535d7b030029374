"""Labels of images, and the names of their classes, checked."""

import numpy as np


def checked_labels(name, labels, classes):
    """int32 `(n,)`; ValueError unless they are integers within the classes."""
    labels = np.asarray(labels)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: `labels` must be integers of shape (n,). Received: {labels.dtype} of shape "
            f"{labels.shape}"
        )
    number = np.inf if classes is None else len(classes)
    if len(labels) and (labels.min() < 0 or labels.max() >= number):
        raise ValueError(
            f"{name}: `labels` must lie in [0, {number}), the number of classes. Received: "
            f"{labels.min()} to {labels.max()}"
        )
    return labels.astype(np.int32)


def class_names(name, classes, labels):
    """A list of str, by default the numbers up to the largest label; ValueError if one is twice."""
    if classes is None:
        return [str(number) for number in range(labels.max(initial=-1) + 1)]
    classes = [each.decode() if isinstance(each, bytes) else str(each) for each in classes]
    twice = sorted({each for each in classes if classes.count(each) > 1})
    if twice:
        raise ValueError(
            f"{name}: no two `classes` may have the same name, for answers are names. "
            f"Received more than once: {', '.join(twice)}"
        )
    return classes
