"""What models of a single text take: ids, or a dict of them and more."""

from keras import ops


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


def real_positions(real):
    """Positions of the real tokens, counted from 0, wherever padding stands.

    Args:
        real: Bool `(batch, length)`; True = real token.

    Returns:
        int32 `(batch, length)`.
    """
    return ops.maximum(ops.cumsum(ops.cast(real, "int32"), axis=1) - 1, 0)


def refuse_long(model, ids, max_length):
    """Raises ValueError where a row has more places than there are positions."""
    length = ids.shape[1]
    if isinstance(length, int) and length > max_length:
        raise ValueError(
            f"{type(model).__name__} '{model.name}': `ids` must be at most max_length={max_length} "
            f"long. Received: shape {tuple(ids.shape)}"
        )
