"""Requests of any size, computed in rounds of a few sizes that XLA compiles once each."""

import json
import pathlib
import sys

import tensorflow as tf

from keras_transformers.generation import Sampling
from keras_transformers.predictors import KINDS

LARGEST_BATCH = 64  # a larger request takes several rounds


def round_size(batch):
    """Rows of a round for a request of `batch` rows (int32 scalar): a power of two, at most 64."""
    powers = tf.constant([1 << i for i in range(31)])
    enough = tf.reduce_min(tf.boolean_mask(powers, powers >= batch))  # 1 for 0
    return tf.minimum(LARGEST_BATCH, enough)


def in_rounds(ids, compute, results, filling):
    """Computes any number of ragged rows, sorted by length, in rounds of a few sizes.

    Args:
        ids: int32 RaggedTensor `(batch, None)`.
        compute: Function of a RaggedTensor `(size, None)` that gives a dict of tensors `(size,
            ...)`.
        results: Dict of their names to `tf.TensorSpec`s, without a batch size.
        filling: Id of the row with which the last round is filled.

    Returns:
        Dict of the results of all rows, in the order of `ids`.
    """
    order = tf.argsort(ids.row_lengths(), stable=True)
    sorted_ids, batch = tf.gather(ids, order), tf.cast(ids.nrows(), tf.int32)
    size = round_size(batch)
    rounds = (batch + size - 1) // size
    arrays = {
        name: tf.TensorArray(spec.dtype, rounds, infer_shape=False, element_shape=spec.shape)
        for name, spec in results.items()
    }
    for i in tf.range(rounds):
        part = sorted_ids[i * size : (i + 1) * size]
        rows = tf.cast(part.nrows(), tf.int32)
        empty = tf.fill([size - rows, 1], tf.constant(filling, ids.dtype))
        found = compute(tf.concat([part, empty], axis=0))
        arrays = {name: array.write(i, found[name][:rows]) for name, array in arrays.items()}
    back = tf.argsort(order)
    return {name: tf.gather(array.concat(), back) for name, array in arrays.items()}


class Served(tf.Module):
    """A module whose `__call__` is a traced function; `save` makes it a SavedModel's signature."""

    kind = None  # one of `predictors.KINDS`

    @property
    def labels(self):
        """Names of the classes, a list, or None."""
        labels = getattr(self, "_labels", None)
        return None if labels is None else [label.decode() for label in labels.numpy()]

    def predict(self, raw, **options):
        """Answers in plain Python for one thing or many, see `predictors.Predictor.predict`."""
        return KINDS[self.kind](self, self.labels).predict(raw, **options)

    def save(self, path):
        """Writes a SavedModel with the signature `serving_default`, which says what it is."""
        path = pathlib.Path(path)
        tf.saved_model.save(self, str(path), signatures={"serving_default": self.__call__})
        version = sys.modules[__name__.partition(".")[0]].__version__
        about = {"kind": self.kind, "labels": self.labels, "version": version}
        (path / "assets.extra").mkdir(exist_ok=True)
        (path / "assets.extra" / "keras_transformers.json").write_text(
            json.dumps(about, indent=2) + "\n", encoding="utf-8"
        )
        return path


def for_lengths(lengths, branches):
    """One function of ragged ids: of `branches`, that of the first of `lengths` that is enough."""
    limits = tf.constant(lengths, tf.int64)

    def run(ids):
        which = tf.searchsorted(limits, [tf.reduce_max(ids.row_lengths())])[0]
        return tf.switch_case(
            tf.cast(which, tf.int32), [lambda branch=branch: branch(ids) for branch in branches]
        )

    return run


def strings(texts):
    """A list of str, which may be empty, as a tensor.

    Raises:
        TypeError: If it is one str, which would be a list of its characters.
    """
    if isinstance(texts, str | bytes):
        raise TypeError(
            "Expected a list of texts; for one alone, use `predict` or [text]. "
            f"Received: {texts[:60]!r}"
        )
    return tf.constant(list(texts), tf.string, shape=[len(texts)])


def padded(ids, lengths):
    """A dense tensor of ragged rows, padded with 0 to the first of `lengths` that is enough."""
    lengths = tf.constant(lengths, tf.int64)
    enough = tf.gather(lengths, tf.searchsorted(lengths, [tf.reduce_max(ids.row_lengths())])[0])
    dense = ids.to_tensor(0)
    return tf.pad(dense, [[0, 0], [0, tf.cast(enough, tf.int32) - tf.shape(dense)[1]]])


def check_lengths(owner, name, lengths):
    """The lengths as a tuple; ValueError unless they increase."""
    lengths = tuple(lengths)
    if not lengths or any(a >= b for a, b in zip(lengths, lengths[1:], strict=False)):
        raise ValueError(f"{owner}: `{name}` must increase. Received: {lengths}")
    return lengths


def uniform(search, max_length, batch):
    """The random numbers of `Sampling`; those of a seed are the same in every round."""
    if not isinstance(search, Sampling):
        return None
    shape = [batch, max_length, search.beams]
    if search.seed is None:
        return tf.random.uniform(shape)
    return tf.random.stateless_uniform(shape, seed=[search.seed, 0])
