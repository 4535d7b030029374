"""Labels of images, and the names of their classes, checked."""

import numpy as np


def checked_labels(name, labels, classes, several=False):
    """int32 `(n,)`, or uint8 `(n, classes)` where there can be several.

    Raises:
        ValueError: Unless they are integers within the classes, or 0 and 1 for each class.
    """
    labels = np.asarray(labels)
    if several:
        number = "classes" if classes is None else len(classes)
        fit = labels.ndim == 2 and number in ("classes", labels.shape[-1])
        if not fit or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"{name}: `labels` must be 0 and 1 of shape (n, {number}), where an image can have "
                f"several. Received: {labels.dtype} of shape {labels.shape}"
            )
        return labels.astype(np.uint8)
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
    """A list of str, by default the numbers of all classes; ValueError if one is twice."""
    if classes is None:
        last = labels.shape[1] if labels.ndim == 2 else labels.max(initial=-1) + 1
        return [str(number) for number in range(last)]
    classes = [each.decode() if isinstance(each, bytes) else str(each) for each in classes]
    twice = sorted({each for each in classes if classes.count(each) > 1})
    if twice:
        raise ValueError(
            f"{name}: no two `classes` may have the same name, for answers are names. "
            f"Received more than once: {', '.join(twice)}"
        )
    return classes


def of_classes(labels):
    """Places of the images of each class, a list of arrays; of several labels the rarest counts."""
    if labels.ndim == 2:
        rarest = labels[:, np.argsort(labels.sum(axis=0), kind="stable")] > 0
        labels = np.where(rarest.any(axis=1), rarest.argmax(axis=1), labels.shape[1])
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]
