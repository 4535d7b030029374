"""Layers that are given to other layers as arguments: a score, a position term, a mixer."""

import keras


def part(owner, argument, given, kind, names=None):
    """A copy of a layer given as an argument, in its owner's precision and without weights.

    A copy, so that one object can be given to every block of a stack and each has weights of its
    own.

    Args:
        owner: The layer whose argument it is.
        argument: What the owner calls it; also the copy's name.
        given: A layer, its serialised configuration, or one of `names`.
        kind: Class that it must be of.
        names: Dict of names to classes.

    Raises:
        ValueError: If it is nothing of that.
    """
    names = names or {}
    layer = given
    if isinstance(given, str) and given in names:
        layer = names[given]()
    elif isinstance(given, dict):
        layer = keras.saving.deserialize_keras_object(given)
    if not isinstance(layer, kind):
        choice = f"one of {', '.join(map(repr, names))} or " if names else ""
        raise ValueError(
            f"{type(owner).__name__} '{owner.name}': `{argument}` must be {choice}a "
            f"{kind.__name__}. Received: {given!r}"
        )
    config = _unshared(layer.get_config())
    config.update(name=argument, dtype=owner.dtype_policy)
    return type(layer).from_config(config)


def serialized(layer):
    """The configuration of a layer given as an argument, as `part` takes it; None of None."""
    config = layer if isinstance(layer, dict) else keras.saving.serialize_keras_object(layer)
    return _unshared(config)


def _unshared(config):
    """A configuration without Keras's marks of objects that are shared.

    Layers own their parts. And while a file is loaded, Keras marks objects as shared that had the
    same address one after the other, as copies of parts do that live for a moment.
    """
    if isinstance(config, dict):
        items = config.items()
        return {key: _unshared(value) for key, value in items if key != "shared_object_id"}
    if isinstance(config, (list, tuple)):
        return type(config)(map(_unshared, config))
    return config
