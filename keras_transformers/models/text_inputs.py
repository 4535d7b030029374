"""What models of a single text take: ids, or a dict of them and more."""

from keras import ops

from keras_transformers.assertions import at_most, require
from keras_transformers.layers import padding_mask, segment_mask, segment_positions


def text_inputs(model, inputs, optional):
    """A dict with `ids`, after checking its keys.

    Args:
        model: The one that is called, for the message.
        inputs: Ids `(batch, length)`, or a dict.
        optional: Keys that there may be besides.

    Raises:
        ValueError: If there are no ids, or there is a key that the model does not know.
    """
    if not isinstance(inputs, dict):
        return {"ids": inputs}
    if "ids" not in inputs or not inputs.keys() <= {"ids", *optional}:
        listed = ", ".join(map(repr, optional))
        raise ValueError(
            f"{type(model).__name__} '{model.name}': `inputs` must be ids, or have the key 'ids', "
            f"and none besides but {listed}. Received: {sorted(inputs)}"
        )
    return inputs


def rows_of_table(model, ids):
    """Ids that a table has rows for: padding outside the vocabulary becomes any row."""
    return ops.maximum(ids, 0) if model.padding_id < 0 else ids


def masks_and_positions(model, inputs, max_length=None):
    """Who sees whom, and where each token stands in its own text.

    Args:
        model: The one that is called, for the message.
        inputs: From `text_inputs`.
        max_length: Number of positions there are, or None.

    Returns:
        `(batch, length, length)` bool of packed rows, `(batch, length)` bool of others (one of them
        None), and positions int32 `(batch, length)`, counted from 0 wherever padding stands.

    Raises:
        ValueError: If a row that is not packed has more places than there are positions.
    """
    ids, segments = inputs["ids"], inputs.get("segments")
    if segments is not None:
        same = segment_mask(segments)
        return same, None, segment_positions(same)
    if max_length is not None:
        owner = f"{type(model).__name__} '{model.name}'"
        rule = f"`ids` must be at most max_length={max_length} long."
        ids = require(ids, [at_most(ops.shape(ids)[1], max_length)], f"{owner}: {rule}")
    real = padding_mask(ids, model.padding_id)
    return None, real, ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=1) - 1, 0)
